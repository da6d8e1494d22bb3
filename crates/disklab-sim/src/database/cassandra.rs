//! Apache Cassandra: coordinator, replicas, read and write stages, over the cluster's parts.
//!
//! A read: client CPU, network, coordinator CPU, then on each contacted replica a read slot, CPU and
//! the pages of index and data, one after the other; the answers; the network; the client. A write
//! goes to all replicas and is answered by as many as the consistency level asks for; each appends
//! to commit log and memtable.

use disklab_disk::Refusal;
use disklab_units::random::Stream;

use self::job::DatabaseJob;
use crate::background::Wishes;
use crate::chance::work;
use crate::client::{Clients, Kind, NAMES, RowKeys, What};
use crate::cluster::{MOST_REPLICAS, Place, Ring, changes_of, hash};
use crate::database::build::{nodes, stored_row_bytes};
use crate::database::cassandra::event::Event;
use crate::database::replicas::{Snitch, Speculation};
use crate::disks::Disks;
use crate::engine::Slab;
use crate::filelayout::Pages;
use crate::job::{Fidelity, Load, Mechanism};
use crate::model::{Course, Model, Setting};
use crate::network::Paths;
use crate::node::Node;
use crate::report::Report;
use crate::storage::{File, NOBODY, PendingIo, Purpose, Touched};
use crate::tail::Split;

mod after;
mod bounds;
mod broken;
mod checks;
mod event;
mod faults;
pub mod job;
mod links;
mod load;
pub mod operations;
pub mod parameters;
mod rebuild;
mod request;
mod rules;
mod scaling;
mod standstill;
mod way;
mod ways;

use broken::Broken;
pub use checks::{check, check_cells};
use links::Traffic;
use request::Request;
use rules::Rules;
pub use scaling::simulate;
use way::{Ends, Way};

/// Bytes of a message without rows: a request, a digest, an acknowledgement with its headers.
/// **Source:** CQL and internode frames of single-row statements are 60 to 150 bytes long.
const MESSAGE_BYTES: u64 = 100;

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Operation {
    what: What,
    /// What is done of it now.
    part: What,
    kind: Kind,
    /// Rows that it reads.
    rows: u32,
    /// Which of the sizes its row has.
    size: u8,
    /// Where the time of the parts before this one went.
    carries: u32,
    coordinator: u16,
    thread: u32,
    intended: u64,
    /// When this part of it was meant to be sent.
    since: u64,
    key: u64,
    place: Place,
    /// Answers that it still waits for.
    needed: u8,
    /// Requests under way on its behalf, and itself until it is done.
    holds: u8,
    /// The replica that is asked when the read takes long.
    spare: Option<u8>,
    /// Tells it from others that had its place before.
    serial: u32,
    issued: u64,
    /// When it had left its client.
    left: u64,
    /// When its coordinator began with it.
    begun: u64,
}

/// A cluster in virtual time.
#[derive(Clone)]
pub struct Cassandra {
    course: Course<Event>,
    rules: Rules,
    clients: Clients,
    ring: Ring,
    /// Seats of the ring: nodes that the cluster begins with.
    seats: u64,
    /// Those, and behind them hosts that nodes move to later.
    nodes: Vec<Node>,
    operations: Slab<Operation>,
    /// Where the time of operations went whose next part is under way.
    splits: Slab<Split>,
    requests: Slab<Request>,
    paths: Paths,
    /// None: the order of the snitch beneath holds.
    snitch: Option<Snitch>,
    speculation: Speculation,
    /// Writes that wait for the commit log or a memtable, by node.
    held_writes: Vec<Vec<u32>>,
    /// Open-loop operations that wait because too many are under way: their intended starts.
    unsent: std::collections::VecDeque<u64>,
    chances: Stream,
    times: Stream,
    next_offer: u64,
    /// None: nothing breaks.
    broken: Option<Box<Broken>>,
}

impl Model for Cassandra {
    type Job = DatabaseJob;
    type Event = Event;

    /// Each cell says itself how small it is: [`simulate`].
    fn scaled(job: &DatabaseJob, _fidelity: Fidelity) -> (DatabaseJob, u64) {
        (job.clone(), 1)
    }

    /// Builds the cluster and its data. Passes of one seed have the same data and other keys and times.
    fn new(job: &DatabaseJob, setting: &Setting) -> Result<Cassandra, Refusal> {
        let Setting {
            scale,
            seed,
            pass,
            off,
            ..
        } = *setting;
        let has = |mechanism| setting.has(mechanism);
        let replicas = job.database.replication_factor as usize;
        assert!(replicas <= MOST_REPLICAS, "the job was checked");
        let even = !has(Mechanism::UnevenOwnership);
        let keys = RowKeys::count(job.workload.keys, job.dataset.rows, scale);
        let one = !has(Mechanism::FilledTables);
        let ring = ring_of(job, even, keys, seed, one);
        let stored = match job.dataset.stored_row_bytes {
            Some(bytes) => u64::from(bytes),
            None => stored_row_bytes(job.dataset.columns, job.dataset.column_bytes),
        };
        let mut nodes = nodes(job, setting, &ring, stored)?;
        let first = &mut nodes[0].machine.storage.disks.host;
        setting.keep_journal(first, job.workload.warm_up_ns);
        let seed = if pass == 0 { seed } else { hash(seed, pass) };
        let mut rules = Rules::new(job, stored, off);
        let database = &job.database;
        let snitch = Snitch::new(nodes.len(), database.snitch_badness_permille, scale);
        let percentile = if !has(Mechanism::SpeculativeRetry) {
            0
        } else {
            database.speculative_percentile
        };
        let clients = Clients::new(
            &job.client,
            &job.workload,
            (job.dataset.rows, scale),
            &rules.parameters,
            seed,
            off,
        );
        let kinds = match &job.workload.others {
            Some(_) => NAMES.len(),
            None => 2,
        };
        rules.keys_by_popularity = (keys > job.dataset.rows).then_some(keys);
        Ok(Cassandra {
            paths: Paths::new(&job.network, job.cluster.zones, seed, off),
            snitch: (replicas > 1 && has(Mechanism::DynamicSnitch)).then_some(snitch),
            speculation: Speculation::new(nodes.len(), percentile, scale),
            course: Course::new(job.workload.stop, job.workload.warm_up_ns, kinds),
            clients,
            ring,
            seats: u64::from(job.cluster.nodes),
            held_writes: vec![Vec::new(); nodes.len()],
            broken: job.faults.as_ref().map(|faults| {
                let from = job.workload.warm_up_ns;
                Box::new(Broken::new(faults, &job.cluster, nodes.len(), from, seed))
            }),
            nodes,
            operations: Slab::default(),
            splits: Slab::default(),
            requests: Slab::default(),
            unsent: std::collections::VecDeque::new(),
            chances: Stream::new(seed, "chances"),
            times: Stream::new(seed, "server cpu"),
            next_offer: 0,
            rules,
        })
    }

    fn begin(&mut self) {
        self.course.schedule_measure(Event::Measure);
        self.begin_faults();
        match self.rules.load {
            Load::Closed { threads } => {
                for thread in 0..threads {
                    self.start(0, thread);
                }
            }
            Load::Open { .. } => self.course.queue.push(0, Event::Offer),
        }
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Arrive(operation) => self.coordinate(now, operation),
            Event::Enter(request) => self.enter(now, request),
            Event::Work(request) => self.work_done(now, request),
            Event::Answer(request) => self.answered(now, request),
            Event::Done(operation) => self.done(now, operation),
            Event::Offer => self.offer(now),
            Event::Tick(node) => {
                let wishes = self.nodes[node as usize].background.tick(now);
                self.grant(node, wishes);
            }
            Event::Pump(node) => self.pump(now, node as usize),
            Event::Late(node) => self.ask_again(now, node),
            Event::Measure => self.measure(now),
            Event::Faults => self.look_at_faults(now),
            Event::Piece(piece) => self.piece_goes_on(now, piece),
        }
    }

    fn io_ended(&mut self, now: u64, io: PendingIo) {
        let index = usize::from(io.node);
        match io.purpose {
            Purpose::Stream(stream) => {
                self.nodes[index].background.written(stream);
                self.pump(now, index);
            }
            Purpose::Log(_) => unreachable!("its commit log is a stream"),
            Purpose::Piece(piece) => self.piece_io_ended(now, piece),
            Purpose::Pages { waiter, .. } => {
                let storage = &mut self.nodes[index].machine.storage;
                storage.arrived(io.purpose, &mut self.course.ios);
                let mut next = waiter;
                while next != NOBODY {
                    let request = &mut self.requests[next];
                    let this = next;
                    next = std::mem::replace(&mut request.next, NOBODY);
                    self.nodes[index]
                        .machine
                        .storage
                        .waited_for(request.file, request.page);
                    request.page += 1;
                    let cpu_ns = self.rules.parameters.disk_read_cpu_ns;
                    if cpu_ns > 0 && !request.way.has_waited() {
                        // **Divergence:** it keeps a processor busy, and this read does not wait for that.
                        self.nodes[index].machine.cores.serve(now, cpu_ns);
                    }
                    request.way.waited(request.since, io.passed, now);
                    self.course.recorder.waited_for_disk(now - request.since);
                    self.read_on(now, this);
                }
            }
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn disks(&mut self, machine: u16) -> (&mut Course<Event>, &mut Disks) {
        let machine = &mut self.nodes[usize::from(machine)].machine;
        (&mut self.course, &mut machine.storage.disks)
    }

    fn report(&mut self, job: &DatabaseJob, cell: u64) -> Report {
        self.report_of(cell, &job.cluster.host)
    }
}

/// The ring of a job's cluster; `one`: its rows lie in one table on each node, as they do where nodes come and go.
fn ring_of(job: &DatabaseJob, even: bool, rows: u64, seed: u64, one: bool) -> Ring {
    let replicas = job.database.replication_factor as usize;
    let tables = match &job.faults {
        None if !one => &job.dataset.tables_ppm[..],
        _ => &[],
    };
    let mut ring = Ring::of_tables(&job.cluster, replicas, even, rows, seed, tables);
    if let Some(faults) = &job.faults {
        ring.plan(&changes_of(faults), job.cluster.nodes as usize);
    }
    ring
}

impl Cassandra {
    /// The coordinator sends requests to the replicas.
    fn coordinate(&mut self, now: u64, number: u32) {
        let operation = self.operations[number];
        let at = usize::from(operation.coordinator);
        if self.is_untaken(now, number, at) || self.is_left_waiting(now, number, at) {
            return;
        }
        self.nodes[at].take_request(now, self.rules.garbage_of(&operation));
        let mut replicas = [0_u8; MOST_REPLICAS];
        let all = self.ring.replicas(operation.place);
        let count = all.len();
        for (replica, &seat) in replicas.iter_mut().zip(all) {
            *replica = self.node_on(seat);
        }
        let alive = self.keep_alive(now, at, &mut replicas[..count]);
        if !self.is_served(now, number, alive, count) {
            return;
        }
        let count = alive;
        let replicas = &mut replicas[..count];
        if self.rules.near_first {
            // Its own copy, then those of its zone; the ring's order among equals.
            let (paths, here) = (&self.paths, self.seat(at));
            replicas.sort_by_key(|&n| {
                let node = usize::from(n);
                (node != at, !paths.are_near(self.seat(node), here))
            });
        }
        let is_read = operation.kind == Kind::Read;
        if let (Some(snitch), true) = (&mut self.snitch, is_read) {
            snitch.sort(now, at, replicas);
        }
        let needed = self.rules.needed;
        // A scan asks nobody twice, and nobody more.
        let is_scan = operation.part == What::Scan;
        let repairs = self.rules.read_repair_ppm > 0
            && is_read
            && !is_scan
            && self.chances.chance(self.rules.read_repair_ppm);
        let contacted = if !is_read || repairs {
            count
        } else {
            usize::from(needed)
        };
        let entry = &mut self.operations[number];
        entry.needed = needed;
        entry.holds += contacted as u8;
        entry.begun = now;
        entry.spare = replicas
            .get(contacted)
            .copied()
            .filter(|_| is_read && !is_scan);
        if entry.spare.is_some()
            && let Some(at) = self.speculation.watch(now, at, number, operation.serial)
        {
            self.course
                .queue
                .push(at, Event::Late(u32::from(operation.coordinator)));
        }
        self.contact(now, number, &replicas[..contacted]);
    }

    /// A coordinator asks one replica more for each read that takes too long.
    fn ask_again(&mut self, now: u64, node: u32) {
        loop {
            let operations = &self.operations;
            let waits = |number, serial| {
                // A place that nobody has keeps what was there last.
                let operation: Operation = operations[number];
                operation.serial == serial && operation.needed > 0
            };
            match self.speculation.late(now, node as usize, waits) {
                Ok(number) => {
                    let entry = &mut self.operations[number];
                    if let Some(spare) = entry.spare.take() {
                        entry.holds += 1;
                        self.contact(now, number, &[spare]);
                    }
                }
                Err(Some(at)) => return self.course.queue.push(at, Event::Late(node)),
                Err(None) => return,
            }
        }
    }

    fn contact(&mut self, now: u64, number: u32, replicas: &[u8]) {
        let operation = self.operations[number];
        let at = usize::from(operation.coordinator);
        let costs = self
            .rules
            .costs_of(operation.part, operation.rows, operation.size);
        let (cpu_ns, coordinator_ns) = (costs.replica_ns, costs.coordinator_ns);
        let message_ns = costs.message_ns;
        if let [only] = replicas
            && usize::from(*only) == at
        {
            // Nobody else is asked: coordinator and replica work go together.
            let way = Way::of_work(now, 0);
            let request = self.add_request(now, number, *only, coordinator_ns + cpu_ns, way);
            return self.enter(now, request);
        }
        let remote = replicas.iter().filter(|&&n| usize::from(n) != at).count() as u64;
        let span = work(&mut self.times, coordinator_ns + remote * message_ns);
        let ready = self.nodes[at].machine.cores.serve(now, span);
        let way = Way::of_work(ready, self.nodes[at].paused(now).min(ready - now));
        for (place, &replica) in replicas.iter().enumerate() {
            if usize::from(replica) == at {
                let request = self.add_request(now, number, replica, cpu_ns, way);
                self.course.queue.push(ready, Event::Enter(request));
            } else {
                // The first replica sends the row, the others a digest of it; of a scan all send the rows.
                let carries_row =
                    operation.kind == Kind::Read && (place == 0 || operation.part == What::Scan);
                let answer_ns = if carries_row {
                    self.rules.rows_message_ns(operation.rows, operation.size)
                } else {
                    message_ns
                };
                let request = self.add_request(now, number, replica, cpu_ns + answer_ns, way);
                self.requests[request].carries_row = carries_row;
                let bytes = MESSAGE_BYTES + costs.sent_bytes;
                let left = self.nodes[at].machine.link.send(now, ready, bytes);
                let at = self.comes(left, at, usize::from(replica), bytes);
                self.course.queue.push(at, Event::Enter(request));
            }
        }
    }

    /// Which of its rows a node reads or writes for a key.
    #[inline]
    fn row_at(&self, key: u64, place: Place, node: u8) -> u64 {
        match self.rules.keys_by_popularity {
            None => self.ring.row_of(place, self.seat(usize::from(node)) as u8),
            // Of the keys that follow each other in popularity, those that the node has are one row: any share of its
            // rows has the share of the reads that it has in the real system.
            Some(keys) => {
                let rows = &self.nodes[usize::from(node)].rows;
                let rank = u128::from(key % keys) * u128::from(rows.count());
                rows.place((rank / u128::from(keys)) as u64)
            }
        }
    }

    fn add_request(&mut self, now: u64, operation: u32, node: u8, cpu_ns: u64, way: Way) -> u32 {
        let entry = self.operations[operation];
        let at = &self.nodes[usize::from(node)];
        let row = self.row_at(entry.key, entry.place, node);
        let last_row = (row + u64::from(entry.rows) - 1).min(at.rows.count().max(row + 1) - 1);
        let mut cpu_ns = cpu_ns;
        if entry.kind == Kind::Read {
            at.machine.storage.announce(row);
            if self.rules.decompress_byte_ps > 0 {
                let bytes = at.machine.storage.layout().chunk_bytes_of(row, last_row);
                cpu_ns += bytes * self.rules.decompress_byte_ps / 1000;
            }
        }
        self.requests.add(Request {
            operation,
            node: u16::from(node),
            kind: entry.kind,
            local: u16::from(node) == entry.coordinator,
            carries_row: false,
            sent: now,
            cpu_ns,
            file: File::Index,
            page: 0,
            pages: Pages { first: 0, last: 0 },
            next_chunk: 0,
            row,
            last_row,
            since: 0,
            way,
            next: NOBODY,
        })
    }

    /// A request comes to its replica and wants a slot.
    fn enter(&mut self, now: u64, number: u32) {
        let index = usize::from(self.requests[number].node);
        if self.is_away(index) || self.is_swallowed(now, number) || self.is_dropped(now, number) {
            return self.lose(number);
        }
        let request = &mut self.requests[number];
        request.way.entered = now;
        let node = &mut self.nodes[index];
        if !request.local {
            let operation = &self.operations[request.operation];
            node.take_request(now, self.rules.garbage_of(operation));
        }
        let slots = match request.kind {
            Kind::Read => &mut node.read_slots,
            Kind::Write => &mut node.write_slots,
        };
        if slots.enter(now, number) {
            self.begin_work(now, number);
        } else {
            self.waits(now, number, None);
        }
    }

    fn begin_work(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        let span = work(&mut self.times, request.cpu_ns);
        let node = &mut self.nodes[usize::from(request.node)];
        let at = node.machine.cores.serve(now, span);
        let way = &mut self.requests[number].way;
        way.began = now;
        way.paused_ns += node.paused(now).min(at - now);
        self.course.queue.push(at, Event::Work(number));
    }

    fn work_done(&mut self, now: u64, number: u32) {
        let way = &mut self.requests[number].way;
        if way.worked == 0 {
            way.worked = now;
        }
        let request = self.requests[number];
        match request.kind {
            // A row that the run has added: still in the memtable, or just written through the page
            // cache.
            Kind::Read if self.clients.added(self.operations[request.operation].key) => {
                self.finish(now, number);
            }
            Kind::Read => {
                self.may_miss(now, number);
                let storage = &self.nodes[usize::from(request.node)].machine.storage;
                let entry = &mut self.requests[number];
                if self.rules.reads_index {
                    entry.read_index(storage);
                } else {
                    entry.read_data(storage);
                }
                self.read_on(now, number);
            }
            Kind::Write => self.append(now, number),
        }
    }

    /// Touches a read's pages until one has to be waited for, or the last was there.
    fn read_on(&mut self, now: u64, number: u32) {
        let request = &mut self.requests[number];
        let index = usize::from(request.node);
        let storage = &mut self.nodes[index].machine.storage;
        loop {
            if request.page > request.pages.last && request.is_done(storage) {
                return self.finish(now, number);
            }
            match storage.touch(
                now,
                request.file,
                request.page,
                request.pages,
                &mut self.course.ios,
            ) {
                Touched::Ready => request.page += 1,
                Touched::Awaits(io) => {
                    if let Purpose::Pages { waiter, .. } = &mut self.course.ios[io].purpose {
                        request.next = std::mem::replace(waiter, number);
                    }
                    request.since = now;
                    let file = request.file;
                    return self.waits(now, number, Some(file));
                }
            }
        }
    }

    fn append(&mut self, now: u64, number: u32) {
        let index = usize::from(self.requests[number].node);
        if self.nodes[index].background.blocks_writes() {
            self.held_writes[index].push(number);
            return;
        }
        let Operation { part, size, .. } = self.operations[self.requests[number].operation];
        let bytes = self.rules.costs_of(part, 1, size).stored_bytes;
        let wishes = self.nodes[index].background.append(now, bytes);
        self.grant(index as u32, wishes);
        self.finish(now, number);
    }

    fn grant(&mut self, node: u32, wishes: Wishes) {
        if let Some(at) = wishes.tick_at {
            self.course.queue.push(at, Event::Tick(node));
        }
        if let Some(at) = wishes.pump_at {
            self.course.queue.push(at, Event::Pump(node));
        }
    }

    fn pump(&mut self, now: u64, index: usize) {
        let node = &mut self.nodes[index];
        let (storage, ios) = (&mut node.machine.storage, &mut self.course.ios);
        let wishes = node.background.pump(now, storage, ios);
        self.grant(index as u32, wishes);
        if !self.nodes[index].background.blocks_writes() {
            for request in std::mem::take(&mut self.held_writes[index]) {
                self.course.queue.push(now, Event::Work(request));
            }
        }
    }

    /// A replica has done its part: it frees the slot and answers.
    fn finish(&mut self, now: u64, number: u32) {
        let request = &mut self.requests[number];
        request.way.finished = now;
        let Request {
            kind,
            local,
            carries_row,
            operation,
            ..
        } = *request;
        let index = usize::from(request.node);
        let away = self.is_away(index);
        let node = &mut self.nodes[index];
        let slots = match kind {
            Kind::Read => &mut node.read_slots,
            Kind::Write => &mut node.write_slots,
        };
        let next = slots.leave(now);
        // What becomes ready in a pause goes on after it.
        let ready = now.max(node.pauses.until());
        if away {
            self.lose(number);
        } else if local {
            let request = self.requests[number];
            self.requests.release(number);
            self.count_answer(now, ready, &request);
        } else {
            let row_bytes = if carries_row {
                let Operation { rows, size, .. } = self.operations[operation];
                self.rules.bytes_of_rows(rows, size)
            } else {
                0
            };
            let bytes = MESSAGE_BYTES + row_bytes;
            let left = node.machine.link.send(now, ready, bytes);
            self.requests[number].way.rests(ready);
            let coordinator = usize::from(self.operations[operation].coordinator);
            let at = self.comes(left, index, coordinator, bytes);
            self.course.queue.push(at, Event::Answer(number));
        }
        if let Some(next) = next {
            self.begin_work(now, next);
        }
    }

    fn answered(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        let at = usize::from(self.operations[request.operation].coordinator);
        if self.is_away(at) || self.is_swallowed(now, number) {
            return self.lose(number);
        }
        self.requests.release(number);
        let span = if request.carries_row {
            let Operation { rows, size, .. } = self.operations[request.operation];
            self.rules.rows_message_ns(rows, size)
        } else {
            self.rules.parameters.message_cpu_ns
        };
        let ready = self.nodes[at].machine.cores.serve(now, span);
        self.count_answer(now, ready, &request);
    }

    /// Counts an answer that the coordinator has at `ready`; the last one needed ends its wait.
    fn count_answer(&mut self, now: u64, ready: u64, request: &Request) {
        let number = request.operation;
        let operation = &mut self.operations[number];
        let last = operation.needed == 1;
        operation.needed = operation.needed.saturating_sub(1);
        let (kind, at) = (operation.kind, usize::from(operation.coordinator));
        let begins = *operation;
        let (thread, begun) = (operation.thread, operation.begun);
        if kind == Kind::Read {
            // When the answer is there, not when a paused coordinator has seen it.
            if let Some(snitch) = &mut self.snitch {
                snitch.note(at, usize::from(request.node), now - request.sent);
            }
            if last && self.ring_has_spares() {
                self.speculation.note(at, ready - begun);
            }
        }
        self.let_go(number);
        if last {
            let bytes = MESSAGE_BYTES
                + if kind == Kind::Read {
                    self.rules.bytes_of_rows(begins.rows, begins.size)
                } else {
                    0
                };
            let left = self.nodes[at].machine.link.send(now, ready, bytes);
            if self.is_cut_from_client(at) {
                return self.never_told(now, number);
            }
            let machine = self.clients.machine_of(thread);
            let way = self.paths.delay(self.seat(at), machine);
            let client = self.client_end();
            let ends = (self.seat(at), client);
            let overhead_ns = self.rules.parameters.overhead_ns;
            let back = self.arrives(left, way, ends, bytes, Traffic::Messages) + overhead_ns;
            if self.comes_too_late(now, number, back) {
                return;
            }
            let ends = Ends {
                intended: begins.since,
                issued: begins.issued,
                left: begins.left,
                begun,
                sent: request.sent,
                heard: now,
                taken: ready,
                done: back,
                overhead_ns,
                paused_ns: self.nodes[at].paused(now).min(ready - now),
            };
            let split = request.way.split(&ends);
            assert_eq!(
                split.total(),
                back - begins.since,
                "an operation spends its time somewhere, and once"
            );
            self.note_split(number, &begins, split);
            self.course.queue.push(back, Event::Done(number));
        }
    }

    /// Notes where the time of a part of an operation went; with its last part, that of all of them.
    #[inline]
    fn note_split(&mut self, number: u32, operation: &Operation, mut split: Split) {
        if operation.what != What::ReadModifyWrite {
            let kind = operation.what as usize;
            return self.course.recorder.split(kind, &split);
        }
        if operation.carries == NOBODY {
            self.operations[number].carries = self.splits.add(split);
            return;
        }
        split.join(&self.splits[operation.carries]);
        self.splits.release(operation.carries);
        self.operations[number].carries = NOBODY;
        let kind = operation.what as usize;
        self.course.recorder.split(kind, &split);
    }

    /// Whether reads leave a replica that could be asked as well.
    fn ring_has_spares(&self) -> bool {
        usize::from(self.rules.needed) < self.ring.count()
    }

    /// One hold on an operation less; the last one forgets it.
    fn let_go(&mut self, number: u32) {
        let operation = &mut self.operations[number];
        operation.holds -= 1;
        if operation.holds == 0 {
            if operation.carries != NOBODY {
                // It failed between its parts.
                self.splits.release(operation.carries);
            }
            self.operations.release(number);
        }
    }

    /// Counts anew: the warm-up is over.
    fn measure(&mut self, now: u64) {
        let already = self.course.issued + self.unsent.len() as u64;
        self.course.measure(now, already);
        self.clients.reset();
        for node in &mut self.nodes {
            node.machine.reset(now);
            node.read_slots.reset(now);
            node.write_slots.reset(now);
            node.background.reset(now);
            node.pauses.reset();
        }
    }
}
