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

mod broken;
mod checks;
mod event;
pub mod job;
mod lsm;
mod plan;
mod server;

use disklab_disk::Refusal;
use disklab_units::random::Stream;

pub use self::checks::check;
use self::job::{SqlJob, SqlParameters};
use crate::database::outage::Outage;
use crate::database::servers::Members;
use crate::database::sessions::{Clients, Costs, Sessions, Setup};
use crate::database::yugabytedb::event::Event;
use crate::database::yugabytedb::plan::Access;
pub use crate::database::yugabytedb::plan::Plan;
pub use crate::database::yugabytedb::server::Server;
use crate::disks::Disks;
use crate::engine::Slab;
use crate::job::{AccessKind, Fidelity, Load, Stop};
use crate::machine::Machine;
use crate::model::{Course, Model, Setting};
use crate::report::Report;
use crate::simulate::{SqlParts, sql_report};
use crate::storage::{NOBODY, PendingIo, Purpose, Touched};
use crate::tail::{Spent, Stretch};

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
    /// Accesses of the statement under way.
    pending: u32,
    /// Where the time went until the SQL layer has the last answer so far.
    spent: Spent,
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
    replicas: u16,
    extra_block_ppm: u32,
    log_period_ns: u64,
}

/// A cluster in virtual time.
pub struct Yugabytedb {
    course: Course<Event>,
    rules: Rules,
    plan: Plan,
    clients: Clients,
    servers: Vec<Server>,
    sessions: Vec<Session>,
    requests: Slab<Request>,
    /// Where the time of each request went, and that of its append to its replica's own log.
    spent: Vec<Spent>,
    appending: Vec<Spent>,
    rows: Stream,
    members: Option<Box<Members>>,
}

impl Model for Yugabytedb {
    type Job = SqlJob;
    type Event = Event;

    fn scaled(job: &SqlJob, fidelity: Fidelity) -> (SqlJob, u64) {
        checks::scaled(job, fidelity)
    }

    fn new(job: &SqlJob, setting: &Setting) -> Result<Yugabytedb, Refusal> {
        let seed = setting.seed;
        let (plan, script) = Plan::new(job, setting.scale);
        let nodes = job.cluster.nodes as usize;
        let mut servers = (0..nodes)
            .map(|number| Server::new(job, &plan, number, setting))
            .collect::<Result<Vec<Server>, Refusal>>()?;
        let work = &job.workload;
        setting.keep_journal(&mut servers[0].machine.storage.disks.host, work.warm_up_ns);
        let parameters = job.parameters.clone();
        let tls = (job.database.tls, parameters.tls_cpu_ns);
        let setup = Setup {
            client: &job.client,
            network: (&job.network, job.cluster.zones),
            load: Load::Closed {
                threads: work.sessions,
            },
            connections: work.connections,
            costs: Costs::new(parameters.client_cpu_ns, parameters.overhead_ns, tls),
        };
        let names = script.names.len();
        let clients = Clients::new(script, setup, setting);
        let period = job.database.wal_sync_period_ns / plan.tablets.len().max(1) as u64;
        let rules = Rules {
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
                names,
            )
            .on_time(),
            servers,
            sessions: vec![Session::default(); clients.count()],
            clients,
            requests: Slab::default(),
            spent: Vec::new(),
            appending: Vec::new(),
            rows: Stream::new(seed, "rows"),
            members: Members::new(job, work.warm_up_ns, seed),
            plan,
            rules,
        })
    }

    fn begin(&mut self) {
        self.schedule_first();
        if self.plan.writes {
            for node in 0..self.servers.len() as u32 {
                self.course.queue.push(0, Event::Tick(node));
            }
        }
        self.begin_sessions();
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Sql(event) => self.handle_sql(now, event),
            Event::Enter(request) => self.enter(now, request),
            Event::Work(request) => self.work_done(now, request),
            Event::Loaded(request) => self.rows_read(now, request),
            Event::Acked(request) => self.acked(now, request),
            Event::Committed(request) => self.committed(now, request),
            Event::Answer(request) => self.answered(now, request),
            Event::Tick(node) => self.tick(now, node),
            Event::Pump(node) => self.pump(now, node as usize),
        }
    }

    fn io_ended(&mut self, now: u64, io: PendingIo) {
        let index = usize::from(io.node);
        match io.purpose {
            Purpose::Stream(stream) => {
                let bytes = self.servers[index].lsm.ended(stream);
                self.compaction_cpu(now, index, bytes);
                self.pump(now, index);
            }
            Purpose::Piece(_) => unreachable!("nobody rebuilds it"),
            Purpose::Log(tablet) => {
                let first = self.servers[index].synced(tablet);
                self.go_on(now, first, |model, request| {
                    model.appending[request as usize].waited(now, io.passed);
                    model.append(now, request);
                });
            }
            Purpose::Pages { waiter, .. } => {
                let storage = &mut self.servers[index].machine.storage;
                storage.arrived(io.purpose, &mut self.course.ios);
                self.go_on(now, waiter, |model, request| {
                    model.spent[request as usize].waited(now, io.passed);
                    model.read_on(now, request);
                });
            }
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn disks(&mut self, machine: u16) -> (&mut Course<Event>, &mut Disks) {
        let machine = &mut self.servers[usize::from(machine)].machine;
        (&mut self.course, &mut machine.storage.disks)
    }

    fn report(&mut self, job: &SqlJob, cell: u64) -> Report {
        let work = &job.workload;
        let host = &job.cluster.host;
        let mut report = sql_report(cell, &work.transactions, host, self.parts());
        if self.course.recorder.grew() {
            report.error_note = Some(GROWS_NOTE.to_owned());
        }
        let now = self.course.recorder.measured_to();
        report.faults = self.members.as_ref().map(|members| members.report(now));
        report
    }
}

impl Sessions for Yugabytedb {
    fn clients(&mut self) -> &mut Clients {
        &mut self.clients
    }

    #[inline]
    fn server(&mut self, session: u32) -> (usize, &mut Machine) {
        let node = self.node_of(session);
        (node, &mut self.servers[node].machine)
    }

    /// The SQL layer asks the leaders.
    fn planned(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Cpu);
        let accesses = self.clients.step(number).accesses.clone();
        let spent = Spent::from(now);
        self.sessions[number as usize] = Session {
            pending: accesses.len() as u32,
            spent,
        };
        if accesses.is_empty() {
            return self.reply(now, now, number);
        }
        let own = self.node_of(number);
        for index in accesses {
            let access = self.plan.accesses[index as usize];
            let tablet = self.plan.draw_tablet(&access, &mut self.rows);
            let base = self.plan.draw_base(&access, tablet, &mut self.rows);
            let leader = self.plan.tablets[tablet as usize].leader;
            let request = Request {
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
            };
            let request = self.add(request, spent);
            if usize::from(leader) == own {
                self.enter(now, request);
            } else {
                let bytes = MESSAGE_BYTES + access.written_bytes;
                let way = (own, usize::from(leader));
                self.travel(now, way, bytes, request, Event::Enter);
            }
        }
    }

    fn reset(&mut self, now: u64) {
        for server in &mut self.servers {
            server.machine.reset(now);
            server.block_counts = (0, 0);
        }
    }

    fn set_out_own(&mut self, session: u32) {
        let count = self.sessions.len().max(session as usize + 1);
        self.sessions.resize(count, Session::default());
    }

    fn outage(&mut self) -> Option<&mut Outage> {
        self.members.as_mut().map(|members| &mut members.outage)
    }

    fn look_at_faults(&mut self, now: u64) {
        self.take_faults(now);
    }

    fn is_degraded(&self) -> bool {
        let members = self.members.as_ref();
        members.is_some_and(|members| members.is_degraded())
    }
}

impl Yugabytedb {
    /// The node that a session is connected to; the next one, where that is lost.
    fn node_of(&self, session: u32) -> usize {
        self.next_there(self.clients.first_of(session) as usize)
    }

    /// A request sets out whose time went so far.
    fn add(&mut self, request: Request, spent: Spent) -> u32 {
        let number = self.requests.add(request);
        let count = self.spent.len().max(number as usize + 1);
        self.spent.resize(count, spent);
        self.appending.resize(count, spent);
        self.spent[number as usize] = spent;
        number
    }

    /// A node works for so long, on average, in nanoseconds; returns when it is done.
    fn compute(&mut self, now: u64, node: usize, cpu_ns: u64) -> u64 {
        let span = self.clients.work(cpu_ns);
        self.servers[node].machine.cores.serve(now, span)
    }

    /// The same for a request that waits for it.
    fn work(&mut self, now: u64, node: usize, cpu_ns: u64, number: u32) -> u64 {
        let at = self.compute(now, node, cpu_ns);
        self.spent[number as usize].on(at, Stretch::Cpu);
        at
    }

    /// A request's message leaves a node.
    fn travel(
        &mut self,
        now: u64,
        (from, to): (usize, usize),
        bytes: u64,
        number: u32,
        event: fn(u32) -> Event,
    ) {
        let left = self.servers[from].machine.link.send(now, now, bytes);
        let at = left + self.clients.paths.delay(from, to);
        self.spent[number as usize].on(at, Stretch::Network);
        self.course.queue.push(at, event(number));
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
            2 * self.clients.tls_ns
        } else {
            0
        };
        let cpu_ns = cpu_ns + parameters.message_cpu_ns + tls_ns;
        let at = self.work(now, usize::from(request.node), cpu_ns, number);
        self.course.queue.push(at, Event::Work(number));
    }

    fn work_done(&mut self, now: u64, number: u32) {
        let request = &self.requests[number];
        let access = &self.plan.accesses[request.access as usize];
        if request.leader.is_some() {
            self.begin_append(now, number);
        } else if access.kind == AccessKind::Insert {
            self.replicate(now, number);
        } else {
            self.read_on(now, number);
        }
    }

    /// Lets all requests that wait for the same I/O go on, in the order in which they came.
    fn go_on(&mut self, now: u64, first: u32, step: impl Fn(&mut Self, u32)) {
        let mut next = first;
        while next != NOBODY {
            let this = next;
            let request = &mut self.requests[this];
            next = std::mem::replace(&mut request.next, NOBODY);
            let since = request.since;
            self.course.recorder.waited_for_disk(now - since);
            step(self, this);
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
                if let Touched::Awaits(io) =
                    server
                        .machine
                        .storage
                        .touch_all(now, pages, &mut self.course.ios)
                {
                    if let Purpose::Pages { waiter, .. } = &mut self.course.ios[io].purpose {
                        request.next = std::mem::replace(waiter, number);
                    }
                    request.since = now;
                    self.requests[number] = request;
                    return;
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
        let at = self.work(now, index, cpu_ns, number);
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
            let to = (request.node + distance) % nodes;
            if !self.has(usize::from(to)) {
                self.let_go(number);
                continue;
            }
            let follower = Request {
                node: to,
                leader: Some(number),
                ..request
            };
            let follower = self.add(follower, self.spent[number as usize]);
            let way = (usize::from(request.node), usize::from(to));
            self.travel(now, way, bytes, follower, Event::Enter);
        }
        self.begin_append(now, number);
    }

    /// A replica's own log is next. A leader's request may be answered before that has it.
    fn begin_append(&mut self, now: u64, number: u32) {
        self.appending[number as usize] = self.spent[number as usize];
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
        server.append(now, tablet, bytes, &mut self.course.ios);
        // Once as provisional records, once as rows.
        let flushes = server.lsm.append(2 * bytes);
        if flushes {
            self.pump(now, index);
        }
        self.appended(now, number);
    }

    fn appended(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        let appending = &mut self.appending[number as usize];
        appending.on(now, Stretch::Held);
        let spent = *appending;
        match request.leader {
            None => {
                self.count_append(number, &spent);
                self.let_go(number);
            }
            Some(leader) => {
                self.apply(now, &request);
                self.spent[number as usize] = spent;
                let to = self.requests[leader].node;
                let way = (usize::from(request.node), usize::from(to));
                self.travel(now, way, MESSAGE_BYTES, number, Event::Acked);
            }
        }
    }

    /// The CPU that a row costs once more when its transaction has ended.
    fn apply(&mut self, now: u64, request: &Request) {
        let access = &self.plan.accesses[request.access as usize];
        let cpu_ns = u64::from(access.rows) * self.rules.parameters.row_write_cpu_ns;
        self.compute(now, usize::from(request.node), cpu_ns);
    }

    /// The leader hears of a follower's append.
    fn acked(&mut self, now: u64, follower: u32) {
        let leader = self.requests[follower].leader;
        let leader = leader.expect("a follower has one");
        let node = usize::from(self.requests[leader].node);
        let cpu_ns = self.rules.parameters.message_cpu_ns + 2 * self.clients.tls_ns;
        self.work(now, node, cpu_ns, follower);
        let spent = self.spent[follower as usize];
        self.requests.release(follower);
        self.count_append(leader, &spent);
        self.let_go(leader);
    }

    /// Counts an append that the leader knows of; the one that makes a majority commits.
    fn count_append(&mut self, number: u32, append: &Spent) {
        let request = &mut self.requests[number];
        let last = request.needed == 1;
        request.needed = request.needed.saturating_sub(1);
        if last {
            let at = append.until + self.rules.parameters.replication_overhead_ns;
            let spent = &mut self.spent[number as usize];
            *spent = *append;
            spent.on(at, Stretch::Overhead);
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
            self.travel(now, way, MESSAGE_BYTES, number, Event::Answer);
        } else {
            self.count_answer(now, number);
        }
    }

    fn answered(&mut self, now: u64, number: u32) {
        let node = self.node_of(self.requests[number].session);
        let cpu_ns = self.rules.parameters.message_cpu_ns + 2 * self.clients.tls_ns;
        self.work(now, node, cpu_ns, number);
        self.count_answer(now, number);
    }

    /// One hold on a request less; the last one forgets it.
    fn let_go(&mut self, number: u32) {
        let request = &mut self.requests[number];
        request.holds -= 1;
        if request.holds == 0 {
            self.requests.release(number);
        }
    }

    /// The SQL layer has the answer to a request; the last one to a statement is what that has waited for.
    fn count_answer(&mut self, now: u64, request: u32) {
        let number = self.requests[request].session;
        let spent = self.spent[request as usize];
        self.let_go(request);
        let session = &mut self.sessions[number as usize];
        if spent.until >= session.spent.until {
            session.spent = spent;
        }
        session.pending -= 1;
        if session.pending == 0 {
            let spent = session.spent;
            self.clients.join(number, &spent);
            self.reply(now, spent.until, number);
        }
    }

    /// Looks at one tablet's log on a node: each has its turn once a period.
    fn tick(&mut self, now: u64, node: u32) {
        let index = node as usize;
        self.servers[index].sync_next(now, &mut self.course.ios);
        self.course
            .queue
            .push(now + self.rules.log_period_ns, Event::Tick(node));
    }

    fn pump(&mut self, now: u64, index: usize) {
        let Server { lsm, machine, .. } = &mut self.servers[index];
        let (storage, ios) = (&mut machine.storage, &mut self.course.ios);
        if let Some(at) = lsm.pump(now, storage, ios) {
            self.course.queue.push(at, Event::Pump(index as u32));
        }
        if !self.servers[index].lsm.blocks_writes() {
            for request in std::mem::take(&mut self.servers[index].held) {
                self.append(now, request);
            }
        }
    }

    /// A compaction decompresses what it reads and compresses what it writes, block by block.
    fn compaction_cpu(&mut self, now: u64, index: usize, bytes: u64) {
        let cpu_ns = self.rules.parameters.block_cpu_ns * self.plan.blocks_in(bytes);
        self.servers[index].machine.cores.serve(now, cpu_ns);
    }

    /// What the run leaves for its report.
    fn parts(&mut self) -> SqlParts<'_> {
        let nodes = self.servers.iter();
        let nodes = nodes.map(|server| (&server.machine, server.lsm.pending_compaction_bytes()));
        let blocks = self.servers.iter().fold((0, 0), |sum, server| {
            let counts = server.block_counts;
            (sum.0 + counts.0, sum.1 + counts.1)
        });
        SqlParts {
            recorder: &self.course.recorder,
            clients: &mut self.clients,
            nodes: nodes.collect(),
            blocks,
            events: self.course.queue.scheduled(),
        }
    }
}
