//! YugabyteDB: a SQL layer on every node, over tablets that Raft groups replicate, over LSM trees.
//!
//! A statement: client CPU, network, CPU of the SQL layer on the connection's node; then each access
//! is a message to the leader of its tablet, often another node. **Reads** are served by the leader
//! alone: blocks from its block cache, from the page cache beneath, or from its disk. So a node's
//! memory caches the tablets that it leads, a third of the data of three nodes, although each stores
//! all of it. **Writes** are appended to the leader's log and sent to its followers; a majority of
//! appends answers. Logs are synced once a second each, not once a write: what writes cost a disk
//! follows the number of tablets. When a transaction has ended its rows leave the provisional records:
//! more CPU on every replica, which nobody waits for.
//!
//! **Source:** docs.yugabyte.com, architecture (DocDB, transactional I/O path) and the flags of
//! yb-tserver 2.18. **Divergence:** no leader moves, no conflict of transactions, no garbage.

mod event;
mod lsm;
mod plan;
mod server;

use disklab_disk::{Refusal, VolumeCounters};
use disklab_units::random::Stream;

use crate::chance::work;
use crate::database::yugabytedb::event::Event;
pub use crate::database::yugabytedb::plan::Plan;
use crate::database::yugabytedb::plan::{Access, Step};
pub use crate::database::yugabytedb::server::Server;
use crate::engine::Slab;
use crate::job::{AccessKind, Mechanism, SqlJob, SqlParameters, Stop};
use crate::model::{Course, Model, Setting};
use crate::network::{Link, Paths};
use crate::report::Report;
use crate::simulate::{NodeParts, SqlParts, sql_report};
use crate::station::{Servers, Slots};
use crate::storage::{NOBODY, PendingIos, Purpose, Touched};

/// Bytes of an internal message beside the rows: a read request, an acknowledgement.
/// **Source:** RPCs of yb-tserver carry 200 to 400 bytes of headers and hybrid times.
const MESSAGE_BYTES: u64 = 300;

/// What a quick run says where waiting began within it: people who think do not think faster in it, so those who wait
/// become as many as in a full run only after so much more of its time.
const GROWS_NOTE: &str = "what waits was still growing when the quick run ended: latencies are too short, maybe many times, and rates too high";

/// No block: the request waits for none.
const NO_BLOCK: u64 = u64::MAX;

/// A thread or a terminal.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    kind: u32,
    /// The next statement.
    step: u32,
    /// Accesses of the statement under way.
    pending: u32,
    /// When the transaction wanted a connection.
    started: u64,
    /// When the statement left the client.
    asked: u64,
    /// When the SQL layer has the last answer so far.
    ready: u64,
}

/// A request at one replica.
#[derive(Clone, Copy, Debug)]
struct Request {
    session: u32,
    access: u32,
    tablet: u32,
    node: u16,
    /// The leader's request, if this is a follower's.
    leader: Option<u32>,
    /// Appends that a majority still lacks.
    needed: u8,
    /// Messages that still name it, and itself until it has answered.
    holds: u8,
    /// Where in the tablet its rows begin.
    base: u64,
    /// Rows read so far, blocks that are not in memory among them.
    rows: u32,
    loaded: u32,
    /// A block beside that of a row.
    extra: bool,
    /// The block that it waits for.
    block: u64,
    since: u64,
    /// The next request that waits for the same thing.
    next: u32,
}

/// Sizes and rules that do not change during a run.
struct Rules {
    parameters: SqlParameters,
    /// CPU of encryption at an end of a message.
    tls_ns: u64,
    replicas: u16,
    extra_block_ppm: u32,
    log_period_ns: u64,
}

/// A cluster in virtual time.
pub struct Yugabytedb {
    course: Course<Event>,
    rules: Rules,
    plan: Plan,
    machines: Vec<(Servers, Link)>,
    connections: Slots,
    servers: Vec<Server>,
    sessions: Vec<Session>,
    requests: Slab<Request>,
    ios: PendingIos,
    paths: Paths,
    kinds: Stream,
    rows: Stream,
    times: Stream,
    people: Stream,
    before: Vec<Vec<VolumeCounters>>,
}

impl Model for Yugabytedb {
    type Job = SqlJob;
    type Event = Event;

    fn new(job: &SqlJob, setting: &Setting) -> Result<Yugabytedb, Refusal> {
        let Setting { seed, off, .. } = *setting;
        let has_not = |mechanism| setting.has_not(mechanism);
        let plan = Plan::new(job, setting.scale);
        let nodes = job.cluster.nodes as usize;
        let mut servers = (0..nodes)
            .map(|number| Server::new(job, &plan, number, setting))
            .collect::<Result<Vec<Server>, Refusal>>()?;
        let machine = |_| {
            let endless = has_not(Mechanism::ClientCpu);
            let link = Link::new(job.client.network_bytes_per_s);
            (Servers::new(job.client.cores, endless), link)
        };
        let work = &job.workload;
        setting.keep_journal(&mut servers[0].storage.disks.host, work.warm_up_ns);
        let parameters = job.parameters.clone();
        let period = job.database.wal_sync_period_ns / plan.tablets.len().max(1) as u64;
        let rules = Rules {
            tls_ns: if job.database.tls {
                parameters.tls_cpu_ns
            } else {
                0
            },
            parameters,
            replicas: job.database.replication_factor as u16,
            extra_block_ppm: job.database.extra_block_ppm,
            log_period_ns: period.max(1),
        };
        Ok(Yugabytedb {
            course: Course::new(
                Stop {
                    operations: None,
                    duration_ns: Some(work.duration_ns),
                },
                work.warm_up_ns,
                plan.names.len(),
            )
            .on_time(),
            paths: Paths::new(&job.network, job.cluster.zones, seed, off),
            machines: (0..job.client.nodes.max(1)).map(machine).collect(),
            connections: Slots::new(work.connections.unwrap_or(u32::MAX)),
            before: servers
                .iter()
                .map(|server| server.storage.volumes(0))
                .collect(),
            servers,
            sessions: vec![Session::default(); work.sessions as usize],
            requests: Slab::default(),
            ios: PendingIos::default(),
            kinds: Stream::new(seed, "transactions"),
            rows: Stream::new(seed, "rows"),
            times: Stream::new(seed, "server cpu"),
            people: Stream::new(seed, "keying and thinking"),
            plan,
            rules,
        })
    }

    fn begin(&mut self) {
        self.course.schedule_measure(Event::Measure);
        if self.plan.writes {
            for node in 0..self.servers.len() as u32 {
                self.course.queue.push(0, Event::Tick(node));
            }
        }
        for session in 0..self.sessions.len() as u32 {
            let (kind, at) = self
                .plan
                .kinds
                .draw_first(&mut self.kinds, &mut self.people);
            self.sessions[session as usize].kind = kind;
            self.course.queue.push(at, Event::Begin(session));
        }
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Begin(session) => self.begin(now, session),
            Event::Arrive(session) => self.arrive(now, session),
            Event::Plan(session) => self.contact(now, session),
            Event::Enter(request) => self.enter(now, request),
            Event::Work(request) => self.work_done(now, request),
            Event::Loaded(request) => self.rows_read(now, request),
            Event::Acked(request) => self.acked(now, request),
            Event::Committed(request) => self.committed(now, request),
            Event::Answer(request) => self.answered(now, request),
            Event::Done(session) => self.done(now, session),
            Event::Io(io) => self.io_ended(now, io),
            Event::Due(node) => self.disk_is_due(now, node as usize),
            Event::Tick(node) => self.tick(now, node),
            Event::Pump(node) => self.pump(now, node as usize),
            Event::Measure => self.measure(now),
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn report(&mut self, job: &SqlJob, cell: u64) -> Report {
        let work = &job.workload;
        let (host, shares) = (&job.cluster.host, work.connections.is_some());
        let mut report = sql_report(cell, &work.transactions, shares, host, self.parts());
        if self.course.recorder.grew() {
            report.error_note = Some(GROWS_NOTE.to_owned());
        }
        report
    }
}

impl Yugabytedb {
    /// A session wants a connection for its transaction.
    fn begin(&mut self, now: u64, number: u32) {
        self.course.recorder.started(now);
        let session = &mut self.sessions[number as usize];
        session.started = now;
        session.step = self.plan.kinds.of(session.kind).steps.start;
        if self.connections.enter(now, number) {
            self.send(now, number);
        }
    }

    /// The node that a session is connected to.
    fn node_of(&self, session: u32) -> usize {
        session as usize % self.servers.len()
    }

    fn step(&self, session: u32) -> &Step {
        &self.plan.steps[self.sessions[session as usize].step as usize]
    }

    /// A session sends its statement.
    fn send(&mut self, now: u64, number: u32) {
        self.sessions[number as usize].asked = now;
        if self.step(number).inside {
            return self.arrive(now, number);
        }
        let bytes = self.step(number).bytes / 2;
        let count = self.machines.len();
        let (cores, link) = &mut self.machines[number as usize % count];
        let cpu_ns = self.rules.parameters.client_cpu_ns + 2 * self.rules.tls_ns;
        let ready = cores.serve(now, work(&mut self.times, cpu_ns));
        let left = link.send(now, ready, bytes);
        let to = self.node_of(number);
        let way = self.paths.delay(number as usize % count, to);
        self.course.queue.push(left + way, Event::Arrive(number));
    }

    /// The SQL layer takes a statement: receives, plans and answers it, all in one piece.
    fn arrive(&mut self, now: u64, number: u32) {
        let step = self.step(number);
        let count = step.accesses.len() as u64;
        let messages = if step.inside { 0 } else { 2 };
        let parameters = &self.rules.parameters;
        let cpu_ns = parameters.statement_cpu_ns
            + messages * self.rules.tls_ns
            + count * parameters.message_cpu_ns;
        let span = work(&mut self.times, cpu_ns);
        let node = self.node_of(number);
        let at = self.servers[node].cores.serve(now, span);
        self.course.queue.push(at, Event::Plan(number));
    }

    /// The SQL layer asks the leaders.
    fn contact(&mut self, now: u64, number: u32) {
        let accesses = self.step(number).accesses.clone();
        let session = &mut self.sessions[number as usize];
        session.pending = accesses.len() as u32;
        session.ready = now;
        if accesses.is_empty() {
            return self.reply(now, number);
        }
        let own = self.node_of(number);
        for index in accesses {
            let access = self.plan.accesses[index as usize];
            let tablet = self.plan.draw_tablet(&access, &mut self.rows);
            let base = self.plan.draw_base(&access, tablet, &mut self.rows);
            let leader = self.plan.tablets[tablet as usize].leader;
            let request = self.requests.add(Request {
                session: number,
                access: index,
                tablet,
                node: leader,
                leader: None,
                needed: 0,
                holds: 1,
                base,
                rows: 0,
                loaded: 0,
                extra: false,
                block: NO_BLOCK,
                since: 0,
                next: NOBODY,
            });
            if usize::from(leader) == own {
                self.enter(now, request);
            } else {
                let bytes = MESSAGE_BYTES + access.written_bytes;
                let way = (own, usize::from(leader));
                self.travel(now, way, bytes, Event::Enter(request));
            }
        }
    }

    /// A message leaves a node.
    fn travel(&mut self, now: u64, (from, to): (usize, usize), bytes: u64, event: Event) {
        let left = self.servers[from].link.send(now, now, bytes);
        let way = self.paths.delay(from, to);
        self.course.queue.push(left + way, event);
    }

    fn is_remote(&self, request: &Request) -> bool {
        usize::from(request.node) != self.node_of(request.session)
    }

    /// A request comes to its replica.
    fn enter(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        let access = &self.plan.accesses[request.access as usize];
        let parameters = &self.rules.parameters;
        let rows = u64::from(access.rows);
        let writes = parameters.write_cpu_ns + rows * parameters.row_write_cpu_ns;
        let cpu_ns = match access.kind {
            _ if request.leader.is_some() => writes,
            AccessKind::Read => rows * parameters.row_read_cpu_ns,
            AccessKind::Insert => writes,
            _ => rows * parameters.row_read_cpu_ns + writes,
        };
        let tls_ns = if request.leader.is_some() || self.is_remote(&request) {
            2 * self.rules.tls_ns
        } else {
            0
        };
        let span = work(&mut self.times, cpu_ns + parameters.message_cpu_ns + tls_ns);
        let at = self.servers[usize::from(request.node)]
            .cores
            .serve(now, span);
        self.course.queue.push(at, Event::Work(number));
    }

    fn work_done(&mut self, now: u64, number: u32) {
        let request = &self.requests[number];
        let access = &self.plan.accesses[request.access as usize];
        if request.leader.is_some() {
            self.append(now, number);
        } else if access.kind == AccessKind::Insert {
            self.replicate(now, number);
        } else {
            self.read_on(now, number);
        }
    }

    /// Reads rows one after the other until a block has to be waited for, or all are there.
    fn read_on(&mut self, now: u64, number: u32) {
        let mut request = self.requests[number];
        let access = self.plan.accesses[request.access as usize];
        let index = usize::from(request.node);
        loop {
            let server = &mut self.servers[index];
            if request.block != NO_BLOCK {
                let pages = self.plan.pages_of(request.block);
                if let Touched::Awaits(io) = server.storage.touch_all(now, pages, &mut self.ios) {
                    if let Purpose::Pages { waiter, .. } = &mut self.ios[io].purpose {
                        request.next = std::mem::replace(waiter, number);
                    }
                    request.since = now;
                    self.requests[number] = request;
                    return self.take_decisions(now, index);
                }
                server.keep_block(request.block);
                request.block = NO_BLOCK;
                request.loaded += 1;
            }
            let Some(block) = self.next_block(&access, &mut request) else {
                break;
            };
            if !self.servers[index].has_block(block) {
                request.block = block;
            }
        }
        self.requests[number] = request;
        if request.loaded == 0 {
            return self.rows_read(now, number);
        }
        let cpu_ns = u64::from(request.loaded) * self.rules.parameters.block_cpu_ns;
        let span = work(&mut self.times, cpu_ns);
        let at = self.servers[index].cores.serve(now, span);
        self.course.queue.push(at, Event::Loaded(number));
    }

    /// The block of the next row that may not be in memory.
    fn next_block(&mut self, access: &Access, request: &mut Request) -> Option<u64> {
        if std::mem::take(&mut request.extra) {
            // A bloom filter was wrong: another block of the same tablet.
            let uniform = Access {
                draw: crate::job::RowDraw::Uniform,
                ..*access
            };
            return self
                .plan
                .draw_block(&uniform, request.tablet, 0, 0, &mut self.rows);
        }
        while request.rows < access.rows {
            let row = request.rows;
            request.rows += 1;
            let block =
                self.plan
                    .draw_block(access, request.tablet, request.base, row, &mut self.rows);
            if block.is_some() {
                let ppm = self.rules.extra_block_ppm;
                request.extra = ppm > 0 && self.rows.chance(ppm);
                return block;
            }
        }
        None
    }

    fn rows_read(&mut self, now: u64, number: u32) {
        let access = self.requests[number].access;
        match self.plan.accesses[access as usize].kind {
            AccessKind::Read => self.finish(now, number),
            _ => self.replicate(now, number),
        }
    }

    /// The leader appends and sends to its followers.
    fn replicate(&mut self, now: u64, number: u32) {
        let replicas = self.rules.replicas;
        let request = &mut self.requests[number];
        request.needed = (replicas / 2 + 1) as u8;
        // Each append names it, the leader's own too, which may be the last.
        request.holds += replicas as u8;
        let request = *request;
        let access = self.plan.accesses[request.access as usize];
        let bytes = MESSAGE_BYTES + access.written_bytes;
        let nodes = self.servers.len() as u16;
        for distance in 1..replicas {
            let follower = self.requests.add(Request {
                node: (request.node + distance) % nodes,
                leader: Some(number),
                ..request
            });
            let to = self.requests[follower].node;
            let way = (usize::from(request.node), usize::from(to));
            self.travel(now, way, bytes, Event::Enter(follower));
        }
        self.append(now, number);
    }

    /// A replica writes to its log and memstore.
    fn append(&mut self, now: u64, number: u32) {
        let Request {
            node,
            tablet,
            access,
            ..
        } = self.requests[number];
        let index = usize::from(node);
        if self.servers[index].lsm.blocks_writes() {
            self.servers[index].held.push(number);
            return;
        }
        let next = &mut self.requests[number].next;
        if self.servers[index].waits_for_log(tablet, number, next) {
            self.requests[number].since = now;
            return;
        }
        let bytes = self.plan.accesses[access as usize].written_bytes;
        let server = &mut self.servers[index];
        let sent = server.append(now, node, tablet, bytes, &mut self.ios);
        // Once as provisional records, once as rows.
        let flushes = server.lsm.append(2 * bytes);
        if flushes {
            self.pump(now, index);
        } else if sent {
            self.take_decisions(now, index);
        }
        self.appended(now, number);
    }

    fn appended(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        match request.leader {
            None => {
                self.count_append(now, number);
                self.let_go(number);
            }
            Some(leader) => {
                let node = usize::from(request.node);
                self.apply(now, &request);
                self.requests.release(number);
                let way = (node, usize::from(self.requests[leader].node));
                self.travel(now, way, MESSAGE_BYTES, Event::Acked(leader));
            }
        }
    }

    /// The CPU that a row costs once more when its transaction has ended.
    fn apply(&mut self, now: u64, request: &Request) {
        let access = &self.plan.accesses[request.access as usize];
        let cpu_ns = u64::from(access.rows) * self.rules.parameters.row_write_cpu_ns;
        let span = work(&mut self.times, cpu_ns);
        self.servers[usize::from(request.node)]
            .cores
            .serve(now, span);
    }

    fn acked(&mut self, now: u64, number: u32) {
        let node = usize::from(self.requests[number].node);
        let cpu_ns = self.rules.parameters.message_cpu_ns + 2 * self.rules.tls_ns;
        let span = work(&mut self.times, cpu_ns);
        let ready = self.servers[node].cores.serve(now, span);
        self.count_append(ready, number);
        self.let_go(number);
    }

    /// Counts an append that the leader knows of at `ready`; the one that makes a majority commits.
    fn count_append(&mut self, ready: u64, number: u32) {
        let request = &mut self.requests[number];
        let last = request.needed == 1;
        request.needed = request.needed.saturating_sub(1);
        if last {
            let at = ready + self.rules.parameters.replication_overhead_ns;
            self.course.queue.push(at, Event::Committed(number));
        }
    }

    fn committed(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        self.apply(now, &request);
        self.finish(now, number);
    }

    /// The leader answers.
    fn finish(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        if self.is_remote(&request) {
            let node = usize::from(request.node);
            let way = (node, self.node_of(request.session));
            self.travel(now, way, MESSAGE_BYTES, Event::Answer(number));
        } else {
            self.let_go(number);
            self.count_answer(now, now, request.session);
        }
    }

    fn answered(&mut self, now: u64, number: u32) {
        let session = self.requests[number].session;
        self.let_go(number);
        let node = self.node_of(session);
        let cpu_ns = self.rules.parameters.message_cpu_ns + 2 * self.rules.tls_ns;
        let span = work(&mut self.times, cpu_ns);
        let ready = self.servers[node].cores.serve(now, span);
        self.count_answer(now, ready, session);
    }

    /// One hold on a request less; the last one forgets it.
    fn let_go(&mut self, number: u32) {
        let request = &mut self.requests[number];
        request.holds -= 1;
        if request.holds == 0 {
            self.requests.release(number);
        }
    }

    fn count_answer(&mut self, now: u64, ready: u64, number: u32) {
        let session = &mut self.sessions[number as usize];
        session.ready = session.ready.max(ready);
        session.pending -= 1;
        if session.pending == 0 {
            self.reply(now, number);
        }
    }

    /// The SQL layer answers its client.
    fn reply(&mut self, now: u64, number: u32) {
        let bytes = self.step(number).bytes / 2;
        let node = self.node_of(number);
        let session = &self.sessions[number as usize];
        let ready = session.ready.max(now);
        let next = session.step + 1;
        let more = next < self.plan.kinds.of(session.kind).steps.end;
        if more && self.plan.steps[next as usize].inside {
            // The batch goes on where it is.
            return self.course.queue.push(ready, Event::Done(number));
        }
        let left = self.servers[node].link.send(now, ready, bytes);
        let way = self
            .paths
            .delay(node, number as usize % self.machines.len());
        let back = left + way + self.rules.parameters.overhead_ns;
        self.course.queue.push(back, Event::Done(number));
    }

    fn done(&mut self, now: u64, number: u32) {
        let session = self.sessions[number as usize];
        if let Some(name) = self.step(number).name {
            self.course
                .recorder
                .note(name as usize, now - session.asked);
        }
        self.sessions[number as usize].step += 1;
        let kind = self.plan.kinds.of(session.kind);
        if session.step + 1 < kind.steps.end {
            return self.send(now, number);
        }
        let think_ns = kind.think_ns;
        self.course
            .recorder
            .ended(now, session.kind as usize, session.started);
        if let Some(next) = self.connections.leave(now) {
            self.send(now, next);
        }
        let kinds = &self.plan.kinds;
        let (kind, pause) = kinds.draw_next(think_ns, &mut self.kinds, &mut self.people);
        self.sessions[number as usize].kind = kind;
        if pause == 0 {
            self.begin(now, number);
        } else {
            self.course.queue.push(now + pause, Event::Begin(number));
        }
    }

    /// Looks at one tablet's log on a node: each has its turn once a period.
    fn tick(&mut self, now: u64, node: u32) {
        let index = node as usize;
        let sent = self.servers[index].sync_next(now, node as u16, &mut self.ios);
        self.course
            .queue
            .push(now + self.rules.log_period_ns, Event::Tick(node));
        if sent {
            self.take_decisions(now, index);
        }
    }

    fn pump(&mut self, now: u64, index: usize) {
        let Server { lsm, storage, .. } = &mut self.servers[index];
        if let Some(at) = lsm.pump(now, storage, index as u16, &mut self.ios) {
            self.course.queue.push(at, Event::Pump(index as u32));
        }
        self.take_decisions(now, index);
        if !self.servers[index].lsm.blocks_writes() {
            for request in std::mem::take(&mut self.servers[index].held) {
                self.append(now, request);
            }
        }
    }

    /// Schedules what the disk model of a node has decided, and its next step.
    fn take_decisions(&mut self, now: u64, index: usize) {
        let disks = &mut self.servers[index].storage.disks;
        disks.schedule(
            now,
            &mut self.course.queue,
            Event::Io,
            Event::Due(index as u32),
        );
    }

    fn disk_is_due(&mut self, now: u64, index: usize) {
        if self.servers[index].storage.disks.step(now) {
            self.take_decisions(now, index);
        }
    }

    fn io_ended(&mut self, now: u64, number: u32) {
        let io = self.ios[number];
        let index = usize::from(io.node);
        self.ios.release(number);
        match io.purpose {
            Purpose::Stream(stream) => {
                let bytes = self.servers[index].lsm.ended(stream);
                self.compaction_cpu(now, index, bytes);
                self.pump(now, index);
            }
            Purpose::Piece(_) => unreachable!("nobody rebuilds it"),
            Purpose::Log(tablet) => {
                let mut next = self.servers[index].synced(tablet);
                while next != NOBODY {
                    let this = next;
                    let request = &mut self.requests[this];
                    next = std::mem::replace(&mut request.next, NOBODY);
                    let since = request.since;
                    self.course.recorder.waited_for_disk(now - since);
                    self.append(now, this);
                }
            }
            Purpose::Pages { waiter, .. } => {
                let storage = &mut self.servers[index].storage;
                storage.arrived(io.purpose, &mut self.ios);
                let mut next = waiter;
                while next != NOBODY {
                    let this = next;
                    let request = &mut self.requests[this];
                    next = std::mem::replace(&mut request.next, NOBODY);
                    let since = request.since;
                    self.course.recorder.waited_for_disk(now - since);
                    self.read_on(now, this);
                }
            }
        }
    }

    /// A compaction decompresses what it reads and compresses what it writes, block by block.
    fn compaction_cpu(&mut self, now: u64, index: usize, bytes: u64) {
        let cpu_ns = self.rules.parameters.block_cpu_ns * self.plan.blocks_in(bytes);
        self.servers[index].cores.serve(now, cpu_ns);
    }

    /// Counts anew: the warm-up is over.
    fn measure(&mut self, now: u64) {
        self.course.measure(now, 0);
        for (cores, link) in &mut self.machines {
            cores.reset();
            link.reset();
        }
        self.connections.reset(now);
        self.before = self
            .servers
            .iter()
            .map(|server| server.storage.volumes(now))
            .collect();
        for server in &mut self.servers {
            server.cores.reset();
            server.link.reset();
            server.storage.reset();
            server.block_counts = (0, 0);
        }
    }

    /// What the run leaves for its report.
    fn parts(&mut self) -> SqlParts<'_> {
        let now = self.course.recorder.measured_to();
        let used = self
            .connections
            .usage(now.max(self.connections.changed_at()));
        let nodes = self.servers.iter().zip(&self.before);
        let nodes = nodes.map(|(server, before)| NodeParts {
            cores: &server.cores,
            link: &server.link,
            storage: &server.storage,
            pending_compaction_bytes: server.lsm.pending_compaction_bytes(),
            before,
        });
        let blocks = self.servers.iter().fold((0, 0), |sum, server| {
            let counts = server.block_counts;
            (sum.0 + counts.0, sum.1 + counts.1)
        });
        SqlParts {
            recorder: &self.course.recorder,
            names: &self.plan.names,
            machines: &self.machines,
            connections: (self.connections.count(), used),
            nodes: nodes.collect(),
            blocks,
            events: self.course.queue.scheduled(),
            unsent: 0,
        }
    }
}
