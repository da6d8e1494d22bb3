//! MariaDB's InnoDB: a thread for each connection, a buffer pool over the disk, a redo and a binary log that commits wait for.
//!
//! A statement: client CPU, network, CPU of its thread, then its rows one after the other, each in a leaf of 16 KiB that is in the pool
//! ([`pool`]) or is read with one I/O past the page cache. A change marks the leaf, a page of undo, and writes redo. **A commit** that
//! wrote waits until the redo log is on the disk, then until the binary log is: whoever finds no sync under way begins one for
//! all that is there, and those who come meanwhile share the next ([`log`]). A log that commits do not wait for is synced once a second
//! (redo), or written back by Linux every five (binary log). **Copies**: a commit goes to a replica behind the binary log, or to all
//! nodes of Galera before the logs, and waits for the round trip to the furthest. **Changed pages** reach the disk by the page
//! cleaner ([`flushing`]).
//!
//! A server that is killed comes back by its redo log ([`recovery`]); commits wait for another one that has ended ([`peers`]).
//!
//! **Source:** MariaDB 10.11: buf0buf.cc, buf0lru.cc, buf0flu.cc, buf0dblwr.cc, log0log.cc, trx0trx.cc; log.cc.
//! **Divergence:** no lock on a row is waited for, pages do not split, purge does no work, nothing is read ahead; an insert goes to a
//! page that is there. Of several servers one takes all transactions; a replica keeps up, and certification finds no conflict. Another node of Galera
//! applies what it gets ([`applier`]), and holds commits up where it cannot. **Held against our server** (10.11.19, 2026-11-27, sysbench, a pool of 128 MiB over 450 MiB): reads of point selects and
//! read-only transactions 3 % too few; reads of a write-only transaction of one thread within 12 %, its bytes written within 10 %; with eight
//! threads reads a third and bytes written a quarter too few (take writes as an upper bound). **Probably** by purge: held back by an open snapshot while
//! 3,702 transactions of eight threads ran, it read 9,620 pages when it was let go, 2.6 a transaction beside the 5.2 of the transactions
//! (10.11.19, 2026-11-28, 400,000 rows beside 32 MiB): one thread's purge finds its pages in the pool, one that lags reads them again. The journal of the file system is not
//! written.

mod applier;
mod broken;
mod commits;
mod copies;
mod event;
mod flushing;
mod log;
mod peers;
mod plan;
mod pool;
mod recovery;
mod rows;
mod server;

use std::collections::{HashMap, VecDeque};

use disklab_disk::{Op, Refusal, VolumeCounters};
use disklab_units::random::Stream;

use crate::chance::work;
use crate::client::{RowKeys, distance};
use crate::database::mariadb::applier::{Applier, OTHER};
use crate::database::mariadb::broken::Broken;
use crate::database::mariadb::event::Event;
use crate::database::mariadb::flushing::{Flushing, ROUND_NS};
use crate::database::mariadb::log::Log;
use crate::database::mariadb::plan::{Access, Plan, Step, UNDO_PAGES};
pub use crate::database::mariadb::plan::{PAGE_BYTES, trees};
use crate::database::mariadb::pool::Pool;
use crate::database::mariadb::server::{applier, clients, filled_pool, logs, storage};
use crate::database::outage::{Seat, Standing};
use crate::engine::Slab;
use crate::job::{Load, MariadbJob, MariadbParameters, Mechanism, Replication, RowDraw};
use crate::model::{Course, Model, Setting};
use crate::network::{Link, Paths};
use crate::permutation::Permutation;
use crate::report::Report;
use crate::simulate::{NodeParts, SqlParts, sql_report};
use crate::station::{Servers, Slots};
use crate::storage::{PendingIo, PendingIos, Purpose, Storage};
use crate::tail::{Split, Stretch};

/// How often logs are synced or written back that no commit waits for. **Source:** `innodb_flush_log_at_timeout`, and Linux's
/// `dirty_writeback_centisecs`, both at their defaults.
const SYNC_EVERY_NS: u64 = 1_000_000_000;
const WRITTEN_BACK_EVERY: u64 = 5;

/// Numbers of the logs.
const REDO: u32 = 0;
const BINLOG: u32 = 1;

/// A thread of the client, with its thread of the server.
#[derive(Clone, Debug, Default)]
struct Session {
    kind: u32,
    seat: Seat,
    step: u32,
    started: u64,
    asked: u64,
    /// The access of the statement, its row, and where a run of rows began.
    access: u32,
    row: u32,
    run: u32,
    base: u64,
    /// The row that was drawn, and its leaf.
    number: u64,
    leaf: Option<u32>,
    /// The row's own leaf, where the search for it goes through the one before.
    own_leaf: Option<u32>,
    /// Trees and rows of the transaction, oldest first, which an insert or a further statement takes again.
    recent: VecDeque<(u32, u64)>,
    /// Pages that the statement has read.
    loaded: u64,
    since: u64,
    /// Bytes of the binary log that the transaction's changes have.
    wrote: Option<u64>,
    split: Split,
    mark: u64,
    /// Leaves that the transaction has changed, where another node applies its changes.
    changed: Vec<u32>,
}

struct Rules {
    parameters: MariadbParameters,
    tls_ns: u64,
    load: Load,
    writes_binlog: bool,
    syncs: [bool; 2],
    /// Whether pages of the redo log are read after a crash.
    recovery_reads: bool,
    replication: Replication,
    /// How many other servers hold all rows.
    others: usize,
}

/// A server in virtual time.
pub struct Mariadb {
    course: Course<Event>,
    rules: Rules,
    plan: Plan,
    machines: Vec<(Servers, Link)>,
    connections: Slots,
    cores: Servers,
    link: Link,
    storage: Storage,
    pool: Pool,
    is_writing: Vec<bool>,
    flushing: Flushing,
    redo: Log,
    binlog: Log,
    /// Another node of a Galera cluster, and commits that its queue holds up.
    applier: Option<Box<Applier>>,
    held: VecDeque<u32>,
    /// Sessions that wait for a page that one of them reads.
    reading: HashMap<u32, Vec<u32>>,
    /// Those that wait for a free page, and for room in the log.
    pageless: VecDeque<u32>,
    stalled: VecDeque<u32>,
    sessions: Vec<Session>,
    idle: Vec<u32>,
    unsent: VecDeque<u64>,
    next_offer: u64,
    ios: PendingIos,
    paths: Paths,
    keys: RowKeys,
    shared: Option<(u64, Permutation)>,
    kinds: Stream,
    rows: Stream,
    times: Stream,
    people: Stream,
    arrivals: Stream,
    before: Vec<VolumeCounters>,
    /// None: nothing breaks.
    broken: Option<Box<Broken>>,
    /// Which of the server's lives it is: of its I/Os the number of their node.
    life: u16,
}

impl Model for Mariadb {
    type Job = MariadbJob;
    type Event = Event;

    fn new(job: &MariadbJob, setting: &Setting) -> Result<Mariadb, Refusal> {
        let Setting {
            scale, seed, off, ..
        } = *setting;
        let has_not = |mechanism| setting.has_not(mechanism);
        let plan = Plan::new(job);
        let storage = storage(job, &plan, setting)?;
        let work = &job.workload;
        let (Load::Closed { threads: sessions }
        | Load::Open {
            max_in_flight: sessions,
            ..
        }) = work.load;
        let (settings, parameters) = (&job.database, &job.parameters);
        let pages = plan.pages + UNDO_PAGES;
        let pool = filled_pool(job, &plan, setting);
        let rows = plan.trees.first().map_or(1, |tree| tree.rows);
        let by_popularity = RowKeys::count(work.keys, rows, scale) > rows;
        let (redo, binlog) = logs(job, &plan, &storage, setting);
        Ok(Mariadb {
            course: Course::new(work.stop, work.warm_up_ns, plan.names.len()).on_time(),
            rules: Rules {
                parameters: parameters.clone(),
                tls_ns: if settings.tls {
                    parameters.tls_cpu_ns
                } else {
                    0
                },
                load: work.load.clone(),
                writes_binlog: settings.writes_binlog,
                recovery_reads: !has_not(Mechanism::RecoveryReads),
                syncs: [settings.syncs_redo, settings.sync_binlog > 0],
                replication: settings.replication,
                others: job.cluster.nodes as usize - 1,
            },
            machines: clients(job, setting),
            connections: Slots::new(work.connections.unwrap_or(u32::MAX)),
            cores: Servers::new(job.cluster.cores, has_not(Mechanism::ServerCpu)),
            link: Link::new(job.cluster.network_bytes_per_s),
            before: storage.volumes(0),
            storage,
            pool,
            is_writing: vec![false; pages as usize],
            flushing: Flushing::new(settings, pages, setting),
            redo,
            binlog,
            applier: applier(job, &plan, setting)?,
            held: VecDeque::new(),
            reading: HashMap::new(),
            pageless: VecDeque::new(),
            stalled: VecDeque::new(),
            sessions: vec![Session::default(); sessions as usize],
            idle: Vec::new(),
            unsent: VecDeque::new(),
            next_offer: 0,
            ios: Slab::default(),
            paths: Paths::new(&job.network, job.cluster.zones, seed, off),
            keys: RowKeys::new(work.keys, work.asked_rows, rows, scale, seed)
                .drawn_from(work.key_stream.as_ref()),
            broken: Broken::new(job, pages, seed),
            life: 0,
            shared: by_popularity.then(|| (scale, Permutation::new(rows, seed))),
            plan,
            kinds: Stream::new(seed, "transactions"),
            rows: Stream::new(seed, "rows"),
            times: Stream::new(seed, "server cpu"),
            people: Stream::new(seed, "keying and thinking"),
            arrivals: Stream::new(seed, "arrivals"),
        })
    }

    fn begin(&mut self) {
        self.course.schedule_measure(Event::Measure);
        self.begin_faults();
        if self.plan.writes {
            self.course.queue.push(ROUND_NS, Event::Cleaner);
            if self.rules.syncs != [true, true] {
                self.course.queue.push(SYNC_EVERY_NS, Event::Logs);
            }
        }
        let all = 0..self.sessions.len() as u32;
        if matches!(self.rules.load, Load::Open { .. }) {
            self.idle = all.rev().collect();
            return self.course.queue.push(0, Event::Offer);
        }
        for session in all {
            let kinds = &self.plan.kinds;
            let (kind, at) = kinds.draw_first(&mut self.kinds, &mut self.people);
            self.sessions[session as usize].kind = kind;
            self.course.queue.push(at, Event::Begin(session));
        }
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        if self.broken.is_some() && self.comes_too_late(event) {
            return;
        }
        match event {
            Event::Begin(session) => match self.rules.load {
                Load::Closed { .. } => self.begin(now, session),
                Load::Open { .. } => self.take_next(now, session),
            },
            Event::Arrive(session) => self.arrive(now, session),
            Event::Plan(session) => self.planned(now, session),
            Event::Ready(session) => self.ready(now, session),
            Event::Done(session) => self.done(now, session),
            Event::Confirmed(session) => self.confirmed(now, session),
            Event::Logs => self.write_logs(now),
            Event::Io(io) => self.io_ended(now, io),
            Event::Due => {
                if self.storage.disks.step(now) {
                    self.take_decisions(now);
                }
            }
            Event::Applied(thread) => self.applied(now, thread),
            Event::OtherDue => {
                let applier = self.applier.as_mut().expect("it is due");
                if applier.storage.disks.step(now) {
                    self.take_other_decisions(now);
                }
            }
            Event::Cleaner => self.cleaner_round(now),
            Event::Offer => self.offer(now),
            Event::Measure => self.measure(now),
            Event::Faults => self.look_at_faults(now),
            Event::Recovered(piece) => self.recovered(now, piece),
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn report(&mut self, job: &MariadbJob, cell: u64) -> Report {
        let work = &job.workload;
        let faults = self.fault_report();
        let now = self.course.recorder.measured_to();
        let used = self
            .connections
            .usage(now.max(self.connections.changed_at()));
        let node = NodeParts {
            cores: &self.cores,
            link: &self.link,
            storage: &self.storage,
            pending_compaction_bytes: 0,
            before: &self.before,
        };
        let parts = SqlParts {
            recorder: &self.course.recorder,
            names: &self.plan.names,
            machines: &self.machines,
            connections: (self.connections.count(), used),
            nodes: vec![node],
            blocks: self.pool.counts(),
            events: self.course.queue.scheduled(),
            unsent: self.unsent.len() as u64,
        };
        let shares = work.connections.is_some();
        Report {
            faults,
            ..sql_report(cell, &work.transactions, shares, &job.cluster.host, parts)
        }
    }
}

impl Mariadb {
    /// A transaction of an open loop is due.
    fn offer(&mut self, now: u64) {
        self.course.issued += 1;
        self.course.recorder.started(now);
        match self.idle.pop() {
            Some(session) => {
                self.sessions[session as usize].kind = self.plan.kinds.draw(&mut self.kinds);
                self.set_out(now, session, now);
            }
            None => self.unsent.push_back(now),
        }
        if self.course.issued < self.course.most_issued {
            self.next_offer += distance(&self.rules.load, &mut self.arrivals);
            self.course.queue.push(self.next_offer, Event::Offer);
        }
    }

    fn begin(&mut self, now: u64, session: u32) {
        if self.course.issued < self.course.most_issued {
            self.course.issued += 1;
            self.course.recorder.started(now);
            self.set_out(now, session, now);
        }
    }

    fn set_out(&mut self, now: u64, number: u32, started: u64) {
        let session = &mut self.sessions[number as usize];
        session.started = started;
        session.seat.serial += 1;
        session.step = self.plan.kinds.of(session.kind).steps.start;
        session.wrote = None;
        session.recent.clear();
        session.split = Split::default();
        session.split.add(Stretch::Unsent, now - started);
        session.mark = now;
        if self.connections.enter(now, number) {
            self.send(now, number);
        }
    }

    fn step(&self, session: u32) -> &Step {
        &self.plan.steps[self.sessions[session as usize].step as usize]
    }

    fn spend(&mut self, now: u64, number: u32, stretch: Stretch) {
        let session = &mut self.sessions[number as usize];
        session.split.add(stretch, now - session.mark);
        session.mark = now;
    }

    /// A session sends its statement.
    fn send(&mut self, now: u64, number: u32) {
        if !self.can_send(now, number) {
            return;
        }
        self.spend(now, number, Stretch::Slots);
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
        self.spend(left, number, Stretch::Client);
        let way = self.paths.delay(number as usize % count, 0);
        self.course.queue.push(left + way, Event::Arrive(number));
    }

    /// The server's thread takes a statement, with all CPU that its rows will cost.
    fn arrive(&mut self, now: u64, number: u32) {
        self.spend(now, number, Stretch::Network);
        let step = self.step(number);
        let (accesses, further, changed) = step.counts;
        let messages = if step.inside { 0 } else { 2 };
        let parameters = &self.rules.parameters;
        let cpu_ns = parameters.statement_cpu_ns
            + messages * self.rules.tls_ns
            + accesses * parameters.row_read_cpu_ns
            + further * parameters.scan_row_cpu_ns
            + changed * parameters.row_write_cpu_ns;
        let at = self.cores.serve(now, work(&mut self.times, cpu_ns));
        self.course.queue.push(at, Event::Plan(number));
    }

    fn planned(&mut self, now: u64, number: u32) {
        self.spend(now, number, Stretch::Cpu);
        if self.step(number).counts.2 > 0 && self.log_is_full() {
            self.stalled.push_back(number);
            self.write_oldest(u64::MAX);
            return self.write_on(now);
        }
        self.go_for_rows(now, number);
    }

    fn go_for_rows(&mut self, now: u64, number: u32) {
        let first = self.step(number).accesses.start;
        let session = &mut self.sessions[number as usize];
        (session.access, session.row, session.run, session.loaded) = (first, 0, 0, 0);
        self.next_row(number, None);
        self.read_on(now, number);
    }

    /// Pages have been written: statements that waited for room in the log go on.
    fn log_has_room(&mut self, now: u64) {
        while !self.stalled.is_empty() && !self.log_is_full() {
            if let Some(number) = self.stalled.pop_front() {
                self.spend(now, number, Stretch::Held);
                self.go_for_rows(now, number);
            }
        }
    }

    /// Goes through rows until a page has to be waited for, or the statement is done.
    fn read_on(&mut self, now: u64, number: u32) {
        loop {
            let session = &self.sessions[number as usize];
            if let Some(leaf) = session.leaf
                && !self.has_page(now, number, leaf)
            {
                return;
            }
            if let Some(leaf) = self.sessions[number as usize].own_leaf.take() {
                self.sessions[number as usize].leaf = Some(leaf);
                continue;
            }
            let end = self.step(number).accesses.end;
            let session = &self.sessions[number as usize];
            if session.access >= end {
                break;
            }
            let access = self.plan.accesses[session.access as usize];
            let leaf = self.plan.trees[access.tree as usize].leaf_of(session.number);
            if access.changes() {
                self.change(number, leaf, &access);
            }
            let session = &mut self.sessions[number as usize];
            session.row += 1;
            let rows = match access.draw {
                RowDraw::KeyRun { .. } => session.run,
                _ => access.rows,
            };
            if session.row == rows {
                (session.access, session.row) = (session.access + 1, 0);
            }
            session.leaf = None;
            self.next_row(number, Some(leaf));
        }
        self.finish(now, number);
    }

    /// Whether a page is in the pool; if not, the session waits until it has been read, and looks again.
    fn has_page(&mut self, now: u64, number: u32, page: u32) -> bool {
        if let Some(waiting) = self.reading.get_mut(&page) {
            waiting.push(number);
            self.sessions[number as usize].since = now;
            return false;
        }
        if self.pool.find(now, page) {
            return true;
        }
        self.sessions[number as usize].since = now;
        if self.pool.free() <= self.reading.len() as u32 {
            self.pageless.push_back(number);
            self.free_pages(now);
            self.pages_are_free(now);
            return false;
        }
        self.read_page(now, number, page);
        false
    }

    fn read_page(&mut self, now: u64, number: u32, page: u32) {
        self.reading.insert(page, Vec::new());
        self.sessions[number as usize].loaded += 1;
        let purpose = Purpose::Piece(number);
        let io = self.ios.add(PendingIo::new(self.life, purpose));
        let (volume, at) = (self.storage.data_volume(), u64::from(page) * PAGE_BYTES);
        self.storage
            .submit(now, volume, Op::Read, at, PAGE_BYTES as u32, io);
        self.take_decisions(now);
        self.free_pages(now);
    }

    /// Pages have become free: those who wait for one go on.
    fn pages_are_free(&mut self, now: u64) {
        while self.pool.free() > self.reading.len() as u32
            && let Some(number) = self.pageless.pop_front()
        {
            let since = self.sessions[number as usize].since;
            self.course.recorder.waited_for_disk(now - since);
            self.spend(now, number, Stretch::Held);
            self.read_on(now, number);
        }
    }

    /// A session's page is there: it goes on, and whoever waits for the same.
    fn page_read(&mut self, now: u64, number: u32, passed: u64) {
        let page = self.sessions[number as usize].leaf.expect("it reads one");
        self.pool.take(now, page);
        let waiting = self.reading.remove(&page).unwrap_or_default();
        for this in std::iter::once(number).chain(waiting) {
            let session = &mut self.sessions[this as usize];
            if session.seat.is_over() {
                continue;
            }
            session.leaf = None;
            let since = session.since;
            self.course.recorder.waited_for_disk(now - since);
            self.spend(passed.clamp(since, now), this, Stretch::Limits);
            self.spend(now, this, Stretch::Disk);
            self.read_on(now, this);
        }
    }

    /// Changes a row: its leaf, undo, and the redo of both.
    fn change(&mut self, number: u32, leaf: u32, access: &Access) {
        let begins = self.sessions[number as usize].wrote.is_none();
        *self.sessions[number as usize].wrote.get_or_insert(0) += access.logged_bytes;
        self.mark(leaf);
        if self.applier.is_some() {
            self.sessions[number as usize].changed.push(leaf);
        }
        self.redo.end += self.rules.parameters.redo_row_bytes + access.redo_bytes;
        if begins {
            // The header of a rollback segment and its page are in the pool, or made anew: not read.
            let segment = self.rows.below(UNDO_PAGES / 2) * 2;
            for page in [segment, segment + 1] {
                let page = (self.plan.pages + page) as u32;
                if !self.pool.holds(page) && self.pool.free() > self.reading.len() as u32 {
                    let now = self.course.queue.now();
                    self.pool.take(now, page);
                }
                if self.pool.holds(page) {
                    self.mark(page);
                }
            }
        }
    }

    fn mark(&mut self, page: u32) {
        if let Some(broken) = &mut self.broken {
            broken.changed[page as usize] = self.redo.end;
        }
        if self.pool.holds(page) && !self.pool.mark(page, true) {
            let position = self.redo.end;
            self.flushing.change(page, position);
        }
    }

    /// The rows are there: the CPU of the pages that were read, and of a commit.
    fn finish(&mut self, now: u64, number: u32) {
        let session = &self.sessions[number as usize];
        let commits = self.step(number).commits && session.wrote.is_some();
        let parameters = &self.rules.parameters;
        let mut cpu_ns = session.loaded * parameters.page_read_cpu_ns;
        if commits {
            cpu_ns += parameters.commit_cpu_ns;
        }
        let at = if cpu_ns == 0 {
            now
        } else {
            self.cores.serve(now, work(&mut self.times, cpu_ns))
        };
        self.course.queue.push(at, Event::Ready(number));
    }

    /// The thread has done its work: it answers, or waits for the logs.
    fn ready(&mut self, now: u64, number: u32) {
        self.spend(now, number, Stretch::Cpu);
        let commits = self.step(number).commits;
        let session = &mut self.sessions[number as usize];
        let Some(bytes) = session.wrote.filter(|_| commits) else {
            return self.reply(now, number);
        };
        session.wrote = None;
        self.redo.end += self.rules.parameters.redo_commit_bytes;
        self.binlog_bytes(number, bytes);
        if self.rules.replication == Replication::Galera {
            if self.applier.as_ref().is_some_and(|applier| applier.stops()) {
                return self.held.push_back(number);
            }
            return self.replicate(now, number);
        }
        self.log_commit(now, number);
    }

    /// The server answers.
    fn reply(&mut self, now: u64, number: u32) {
        let bytes = self.step(number).bytes / 2;
        let session = &self.sessions[number as usize];
        let next = session.step + 1;
        let more = next < self.plan.kinds.of(session.kind).steps.end;
        if more && self.plan.steps[next as usize].inside {
            // The text goes on where it is.
            return self.course.queue.push(now, Event::Done(number));
        }
        let left = self.link.send(now, now, bytes);
        let way = self.paths.delay(0, number as usize % self.machines.len());
        let at = left + way + self.rules.parameters.overhead_ns;
        self.spend(left + way, number, Stretch::Network);
        self.spend(at, number, Stretch::Overhead);
        self.course.queue.push(at, Event::Done(number));
    }

    fn done(&mut self, now: u64, number: u32) {
        if self.sessions[number as usize].seat.standing == Standing::GivenUp {
            self.sessions[number as usize].seat.standing = Standing::Dead;
            return;
        }
        if let Some(name) = self.step(number).name {
            let asked = self.sessions[number as usize].asked;
            self.course.recorder.note(name as usize, now - asked);
        }
        let session = &mut self.sessions[number as usize];
        session.step += 1;
        let (kind, started) = (session.kind, session.started);
        let plan = self.plan.kinds.of(kind);
        if session.step < plan.steps.end {
            return self.send(now, number);
        }
        let think_ns = plan.think_ns;
        assert_eq!(
            session.split.total(),
            now - started,
            "a transaction spends its time somewhere, and once"
        );
        self.course.recorder.split(kind as usize, &session.split);
        self.course.recorder.ended(now, kind as usize, started);
        self.note_success(now, started);
        self.sessions[number as usize].seat.standing = Standing::Free;
        if let Some(next) = self.connections.leave(now) {
            self.send(now, next);
        }
        if matches!(self.rules.load, Load::Open { .. }) {
            return self.take_next(now, number);
        }
        let kinds = &self.plan.kinds;
        let (kind, pause) = kinds.draw_next(think_ns, &mut self.kinds, &mut self.people);
        self.sessions[number as usize].kind = kind;
        self.course.queue.push(now + pause, Event::Begin(number));
    }

    /// A session of an open loop has nothing to do: it takes what has waited longest.
    fn take_next(&mut self, now: u64, number: u32) {
        match self.unsent.pop_front() {
            Some(due) => {
                self.sessions[number as usize].kind = self.plan.kinds.draw(&mut self.kinds);
                self.set_out(now, number, self.rules.load.counted_from(due, now));
            }
            None => self.idle.push(number),
        }
    }

    /// Schedules what the disk model has decided, and its next step.
    fn take_decisions(&mut self, now: u64) {
        let disks = &mut self.storage.disks;
        for io in disks.passed() {
            self.ios[io].passed = now;
        }
        disks.schedule(now, &mut self.course.queue, Event::Io, Event::Due);
    }

    fn io_ended(&mut self, now: u64, number: u32) {
        let io = self.ios[number];
        self.ios.release(number);
        if io.node == OTHER {
            return self.other_io_ended(now, io.purpose);
        }
        if io.node != self.life {
            // Who wanted it has ended.
            return;
        }
        match io.purpose {
            Purpose::Piece(page) if self.recovers() => self.recovering_page_read(now, page),
            Purpose::Piece(session) => self.page_read(now, session, io.passed),
            Purpose::Log(which) => self.log_io_ended(now, which),
            Purpose::Stream(which) => self.stream_ended(now, which),
            Purpose::Pages { from, .. } => self.page_written(now, from as u32),
        }
    }

    /// Counts anew: the warm-up is over.
    fn measure(&mut self, now: u64) {
        let already = self.course.issued;
        self.course.measure(now, already);
        for (cores, link) in &mut self.machines {
            cores.reset();
            link.reset();
        }
        self.connections.reset(now);
        self.pool.reset();
        self.before = self.storage.volumes(now);
        self.cores.reset();
        self.link.reset();
        self.storage.reset();
    }
}
