//! MariaDB's InnoDB: a thread for each connection, a buffer pool over the disk, a redo and a binary log that commits wait for.
//!
//! A statement: client CPU, network, CPU of its thread, then its rows one after the other, each in a leaf of 16 KiB that is in the pool
//! ([`pool`]) or is read with one I/O past the page cache. A change marks the leaf, a page of undo, and writes redo. **A commit** that
//! wrote waits until the redo log is on the disk, then until the binary log is: whoever finds no sync under way begins one for
//! all that is there, and those who come meanwhile share the next ([`wal`](super::wal)). A log that commits do not wait for is synced once a second
//! (redo), or written back by Linux every five (binary log). **Copies**: a commit goes to a replica behind the binary log, or to all
//! nodes of Galera before the logs, and waits for the round trip to the furthest. **Changed pages** reach the disk by the page
//! cleaner ([`flushing`]).
//!
//! Deleted rows leave the tree once a second ([`purge`]). A server that is killed comes back by its redo log ([`recovery`]); commits
//! wait for another one that has ended ([`peers`]).
//!
//! **Source:** MariaDB 10.11: buf0buf.cc, buf0lru.cc, buf0flu.cc, buf0dblwr.cc, log0log.cc, trx0trx.cc; log.cc.
//! **Divergence:** no lock on a row is waited for; leaves of rows are joined by purge ([`purge`]) and do not split, while those of a new
//! index do ([`splits`]); nothing is read ahead; a row that is added behind the last one makes pages ([`growth`]), any other one goes
//! to a page that is there. Of several servers one takes all transactions; a replica keeps up, and certification finds no conflict.
//! Another node of Galera applies what it gets ([`applier`]), and holds commits up where it cannot. **Held against our server**
//! (10.11.19): rows, 24 cells, in docs/predict-mariadb.md (2026-11-28). Sysbench (2026-11-27, a pool of 128 MiB over 450 MiB): reads of
//! point selects and read-only transactions 3 % too few; reads of a write-only transaction of one thread within 12 %, its bytes written
//! within 10 %; with eight threads reads a third and bytes written a quarter too few.
//! Of the file systems' journals that of the binary log alone is written.

mod applier;
mod broken;
mod buffered;
mod checks;
mod commits;
mod copies;
mod event;
mod flushing;
mod growth;
pub mod job;
mod latch;
mod leaves;
mod peers;
mod plan;
mod pool;
mod purge;
mod recovery;
mod rows;
mod server;
mod splits;

use std::collections::{HashMap, VecDeque};

use disklab_disk::{Op, Refusal};

pub use self::checks::check;
use self::job::{MariadbJob, MariadbParameters, Replication};
use crate::database::draws::{Draws, Place};
use crate::database::mariadb::applier::{Applier, OTHER};
use crate::database::mariadb::broken::Broken;
use crate::database::mariadb::buffered::ChangeBuffer;
use crate::database::mariadb::event::Event;
use crate::database::mariadb::flushing::{Flushing, ROUND_NS};
use crate::database::mariadb::growth::Growth;
use crate::database::mariadb::latch::Latch;
use crate::database::mariadb::leaves::PAGE_BYTES;
use crate::database::mariadb::plan::{Access, Plan, Tree, UNDO_PAGES};
use crate::database::mariadb::plan::{Laying, trees};
use crate::database::mariadb::pool::Pool;
use crate::database::mariadb::purge::Purge;
use crate::database::mariadb::server::{applier, filled_pool, logs, machine};
use crate::database::mariadb::splits::{Change, Index, REWRITE_REDO_BYTES};
use crate::database::outage::Outage;
use crate::database::sessions::{Clients, Costs, Sessions};
use crate::database::wal::Log;
use crate::disks::Disks;
use crate::job::{AccessKind, Fidelity, Mechanism};
use crate::machine::Machine;
use crate::model::{Course, Model, Setting};
use crate::report::Report;
use crate::simulate::{SqlParts, sql_report};
use crate::storage::{PendingIo, Purpose};
use crate::tail::Stretch;

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
    /// Where it is among the rows of the statement, and the leaf of the one that was drawn.
    at: Place,
    leaf: Option<u32>,
    /// The row's own leaf, where the search for it goes through the one before.
    own_leaf: Option<u32>,
    /// Whether it searches the row's tree from above, holds that tree's lock, and has had it alone for the row.
    searches: bool,
    holds: bool,
    had_alone: bool,
    /// Pages that the statement has read.
    loaded: u64,
    since: u64,
    /// Bytes of the binary log that the transaction's changes have.
    wrote: Option<u64>,
    /// Those of the transaction, when it commits.
    binlog_bytes: u64,
    /// Leaves that the transaction has changed, where another node applies its changes.
    changed: Vec<u32>,
    /// Trees and rows that it has deleted, where purge takes them.
    deleted: Vec<(u32, u64)>,
}

struct Rules {
    parameters: MariadbParameters,
    writes_binlog: bool,
    syncs: [bool; 2],
    /// Whether pages of the redo log are read after a crash.
    recovery_reads: bool,
    /// Whether some rows or purge take their tree's lock alone, and whether ranges are estimated.
    locks_trees: bool,
    estimates: bool,
    replication: Replication,
    /// How many other servers hold all rows.
    others: usize,
}

impl Rules {
    fn new(job: &MariadbJob, plan: &Plan, setting: &Setting, purges: bool) -> Rules {
        let settings = &job.database;
        let has = |mechanism| setting.has(mechanism);
        Rules {
            parameters: job.parameters.clone(),
            writes_binlog: settings.writes_binlog,
            recovery_reads: has(Mechanism::RecoveryReads),
            locks_trees: settings.splits_exclude_searches
                && has(Mechanism::IndexLocks)
                && (purges || plan.trees.iter().any(Tree::grows)),
            estimates: has(Mechanism::RangeEstimates),
            syncs: [settings.syncs_redo, settings.sync_binlog > 0],
            replication: settings.replication,
            others: job.cluster.nodes as usize - 1,
        }
    }
}

/// A server in virtual time.
pub struct Mariadb {
    course: Course<Event>,
    rules: Rules,
    plan: Plan,
    /// By tree: leaves that split.
    indexes: Vec<Option<Index>>,
    growth: Growth,
    /// None: nothing is deleted, or purge costs nothing.
    purge: Option<Box<Purge>>,
    latches: Vec<Latch>,
    clients: Clients,
    machine: Machine,
    pool: Pool,
    is_writing: Vec<bool>,
    flushing: Flushing,
    redo: Log,
    binlog: Log,
    /// Another node of a Galera cluster, and commits that its queue holds up.
    applier: Option<Box<Applier>>,
    held: VecDeque<u32>,
    /// Leaves of secondary indexes whose changes wait until they are read; none: each is read for its change.
    buffered: Option<ChangeBuffer>,
    /// Sessions that wait for a page that one of them reads.
    reading: HashMap<u32, Vec<u32>>,
    /// Those that wait for a free page, and for room in the log.
    pageless: VecDeque<u32>,
    stalled: VecDeque<u32>,
    sessions: Vec<Session>,
    draws: Draws,
    /// None: nothing breaks.
    broken: Option<Box<Broken>>,
}

impl Model for Mariadb {
    type Job = MariadbJob;
    type Event = Event;

    fn scaled(job: &MariadbJob, fidelity: Fidelity) -> (MariadbJob, u64) {
        checks::scaled(job, fidelity)
    }

    fn new(job: &MariadbJob, setting: &Setting) -> Result<Mariadb, Refusal> {
        let has = |mechanism| setting.has(mechanism);
        let laying = Laying {
            in_order: !has(Mechanism::FillOrder),
            never_splits: !has(Mechanism::IndexSplits),
        };
        let (plan, script) = Plan::new(job, laying);
        let machine = machine(job, &plan, setting, 0)?;
        let work = &job.workload;
        let (settings, parameters) = (&job.database, &job.parameters);
        let tls = (settings.tls, parameters.tls_cpu_ns);
        let costs = Costs::new(parameters.client_cpu_ns, parameters.overhead_ns, tls);
        let (course, clients) = job.load(script, costs, setting);
        let pages = plan.pages + UNDO_PAGES;
        let pool = filled_pool(job, &plan, setting);
        let rows = plan.trees.first().map_or(1, |tree| tree.rows);
        let (redo, binlog) = logs(job, &plan, &machine.storage, setting);
        let purge = Purge::new(&plan, job).filter(|_| has(Mechanism::Purge));
        Ok(Mariadb {
            course,
            rules: Rules::new(job, &plan, setting, purge.is_some()),
            purge,
            machine,
            pool,
            is_writing: vec![false; pages as usize],
            flushing: Flushing::new(settings, setting),
            redo,
            binlog,
            applier: applier(job, &plan, setting)?,
            held: VecDeque::new(),
            buffered: (settings.change_buffering && has(Mechanism::ChangeBuffering))
                .then(ChangeBuffer::default),
            reading: HashMap::new(),
            pageless: VecDeque::new(),
            stalled: VecDeque::new(),
            sessions: vec![Session::default(); clients.count()],
            clients,
            draws: Draws::new(work, rows, true, setting),
            broken: Broken::new(job, pages, setting.seed),
            latches: plan.trees.iter().map(|_| Latch::default()).collect(),
            growth: Growth::new(plan.trees.len(), plan.laid_pages..plan.pages),
            indexes: plan.trees.iter().map(Tree::index).collect(),
            plan,
        })
    }

    fn begin(&mut self) {
        self.schedule_first();
        if self.plan.writes {
            self.course.queue.push(ROUND_NS, Event::Cleaner);
            if self.rules.syncs != [true, true] {
                self.course.queue.push(SYNC_EVERY_NS, Event::Logs);
            }
        }
        self.begin_sessions();
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Sql(event) => self.handle_sql(now, event),
            Event::Ready(session) | Event::Confirmed(session) if self.clients.is_over(session) => {}
            Event::Ready(session) => self.ready(now, session),
            Event::Confirmed(session) => self.confirmed(now, session),
            Event::Logs => self.write_logs(now),
            Event::Applied(thread) => self.applied(now, thread),
            Event::Cleaner => self.cleaner_round(now),
            Event::Recovered(piece) => self.recovered(now, piece),
        }
    }

    fn io_ended(&mut self, now: u64, io: PendingIo) {
        if io.node == OTHER {
            return self.other_io_ended(now, &io);
        }
        if io.node != self.machine.storage.number() {
            // Who wanted it has ended.
            return;
        }
        match io.purpose {
            Purpose::Piece(page) if self.recovers() => self.recovering_page_read(now, page),
            Purpose::Piece(session) => self.page_read(now, session, io.passed),
            Purpose::Log(which) => self.log_io_ended((now, io.passed), which),
            Purpose::Stream(which) => self.stream_ended(now, which),
            Purpose::Pages { from, place, .. } => self.page_written(now, from as u32, place as u8),
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn disks(&mut self, machine: u16) -> (&mut Course<Event>, &mut Disks) {
        let machine = match &mut self.applier {
            Some(applier) if machine == OTHER => &mut applier.machine,
            _ => &mut self.machine,
        };
        (&mut self.course, &mut machine.storage.disks)
    }

    fn report(&mut self, job: &MariadbJob, cell: u64) -> Report {
        let work = &job.workload;
        let faults = self.fault_report();
        let parts = SqlParts {
            recorder: &self.course.recorder,
            clients: &mut self.clients,
            nodes: vec![(&self.machine, 0)],
            blocks: self.pool.counts(),
            events: self.course.queue.scheduled(),
        };
        Report {
            faults,
            ..sql_report(cell, &work.transactions, &job.cluster.host, parts)
        }
    }
}

impl Sessions for Mariadb {
    const BEGINS_AT_ONCE: bool = false;

    fn clients(&mut self) -> &mut Clients {
        &mut self.clients
    }

    #[inline]
    fn server(&mut self, _session: u32) -> (usize, &mut Machine) {
        (0, &mut self.machine)
    }

    fn set_out_own(&mut self, number: u32) {
        let count = self.clients.count();
        self.sessions.resize_with(count, Session::default);
        let session = &mut self.sessions[number as usize];
        session.wrote = None;
        session.at.recent.clear();
        session.deleted.clear();
        (session.searches, session.holds) = (false, false);
    }

    fn planned(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Cpu);
        let is_full = self.log_is_full();
        let mut accesses = self.clients.step(number).accesses.clone();
        let changes = |access| self.plan.accesses[access as usize].changes();
        if is_full && accesses.any(changes) {
            self.stalled.push_back(number);
            self.write_oldest(u64::MAX);
            return self.write_on(now);
        }
        self.go_for_rows(now, number);
    }

    fn reset(&mut self, now: u64) {
        self.pool.reset();
        self.machine.reset(now);
    }

    fn outage(&mut self) -> Option<&mut Outage> {
        self.broken.as_mut().map(|broken| &mut broken.outage)
    }

    fn look_at_faults(&mut self, now: u64) {
        self.look(now);
    }

    fn primary(&self) -> (usize, bool) {
        (0, self.is_up())
    }

    fn is_degraded(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_some_and(|broken| broken.is_degraded())
    }
}

impl Mariadb {
    fn go_for_rows(&mut self, now: u64, number: u32) {
        let first = self.clients.step(number).accesses.start;
        let session = &mut self.sessions[number as usize];
        session.at.begin(first);
        session.loaded = 0;
        self.next_row(number, None);
        self.read_on(now, number);
    }

    /// Pages have been written: statements that waited for room in the log go on.
    fn log_has_room(&mut self, now: u64) {
        while !self.stalled.is_empty() && !self.log_is_full() {
            if let Some(number) = self.stalled.pop_front() {
                self.clients.spend(now, number, Stretch::Held);
                self.go_for_rows(now, number);
            }
        }
    }

    /// Goes through rows until a page has to be waited for, or the statement is done.
    fn read_on(&mut self, now: u64, number: u32) {
        loop {
            if !self.has_leaf(now, number) {
                return;
            }
            if let Some(leaf) = self.sessions[number as usize].own_leaf.take() {
                self.sessions[number as usize].leaf = Some(leaf);
                continue;
            }
            let end = self.clients.step(number).accesses.end;
            let session = &self.sessions[number as usize];
            if session.at.access >= end {
                break;
            }
            let access = self.plan.accesses[session.at.access as usize];
            let leaf = self.leaf_of(access.tree, session.at.number);
            if !self.has_lock(now, number, access.tree) {
                return;
            }
            if access.changes() {
                self.change(number, leaf, &access);
            }
            let session = &mut self.sessions[number as usize];
            session.at.go_on(access.draw, access.rows);
            session.leaf = None;
            self.next_row(number, Some(leaf));
        }
        self.finish(now, number);
    }

    /// Whether the leaf of the session's row is in the pool; if not, the session waits.
    fn has_leaf(&mut self, now: u64, number: u32) -> bool {
        let session = &self.sessions[number as usize];
        let Some(leaf) = session.leaf else {
            return true;
        };
        if !self.rules.locks_trees {
            return self.has_page(now, number, leaf);
        }
        let (searches, holds) = (session.searches, session.holds);
        let tree = self.plan.accesses[session.at.access as usize].tree as usize;
        if searches && !holds {
            if !self.latches[tree].search(number) {
                self.sessions[number as usize].since = now;
                return false;
            }
            // Before it looks for its page: where none is free, it may go on from within.
            self.sessions[number as usize].holds = true;
            self.latches[tree].hold();
        }
        let is_here = self.has_page(now, number, leaf);
        if is_here {
            self.has_searched(now, number);
        }
        is_here
    }

    /// The session has the first leaf of its search: it gives the tree's lock up.
    fn has_searched(&mut self, now: u64, number: u32) {
        let session = &mut self.sessions[number as usize];
        session.searches = false;
        if !std::mem::take(&mut session.holds) {
            return;
        }
        let tree = self.plan.accesses[session.at.access as usize].tree as usize;
        let others = self.latches[tree].release();
        self.go_on(now, others);
    }

    /// Those go on who have waited for a tree's lock, each with whether it has had that alone; purge with its next row behind them.
    fn go_on(&mut self, now: u64, others: Vec<(u32, bool)>) {
        let mut purging = None;
        for (next, had_alone) in others {
            if next >= purge::FIRST {
                purging = Some(next);
                if had_alone {
                    self.purge_alone(next);
                }
            } else if !self.clients.is_over(next) {
                self.clients.spend(now, next, Stretch::Held);
                self.sessions[next as usize].had_alone = had_alone;
                self.read_on(now, next);
            }
        }
        if let Some(number) = purging {
            self.purge_on(now, number);
        }
    }

    /// Whether the session has its tree's lock alone, if its row needs that; if not, it waits.
    fn has_lock(&mut self, now: u64, number: u32, tree: u32) -> bool {
        let session = &self.sessions[number as usize];
        let splits = self.plan.trees[tree as usize].splits_at(session.at.number);
        if !self.rules.locks_trees || !splits || session.had_alone {
            return true;
        }
        self.sessions[number as usize].since = now;
        self.latches[tree as usize].take(number)
    }

    /// Whether a page is in the pool; if not, the session, or purge, waits until it has been read, and looks again.
    fn has_page(&mut self, now: u64, number: u32, page: u32) -> bool {
        if let Some(waiting) = self.reading.get_mut(&page) {
            waiting.push(number);
            self.waits(now, number);
            return false;
        }
        let is_blank = self.pool.is_blank(page);
        if !is_blank && self.pool.find(now, page) {
            return true;
        }
        self.waits(now, number);
        if !self.has_free_page() && !self.free_clean_page() {
            self.pageless.push_back(number);
            self.free_pages(now);
            self.pages_are_free(now);
            return false;
        }
        if is_blank {
            self.pool.make(now, page);
            self.redo.end += self.plan.split_redo_bytes;
            self.free_pages(now);
            return true;
        }
        self.read_page(now, number, page);
        false
    }

    /// Notes when a session begins to wait; purge is nobody whose time counts.
    fn waits(&mut self, now: u64, number: u32) {
        if let Some(session) = self.sessions.get_mut(number as usize) {
            session.since = now;
        }
    }

    fn read_page(&mut self, now: u64, number: u32, page: u32) {
        self.reading.insert(page, Vec::new());
        if let Some(session) = self.sessions.get_mut(number as usize) {
            session.loaded += 1;
        }
        let purpose = Purpose::Piece(number);
        let read = (Op::Read, u64::from(page) * PAGE_BYTES, PAGE_BYTES);
        let storage = &mut self.machine.storage;
        storage.send(now, &mut self.course.ios, purpose, read);
        self.free_pages(now);
    }

    /// Whether a page is free that none that is being read has been given.
    fn has_free_page(&self) -> bool {
        self.pool.free() > self.reading.len() as u32
    }

    /// Pages have become free: those who wait for one go on.
    fn pages_are_free(&mut self, now: u64) {
        while self.has_free_page()
            && let Some(number) = self.pageless.pop_front()
        {
            if number >= purge::FIRST {
                self.purge_on(now, number);
                continue;
            }
            let since = self.sessions[number as usize].since;
            self.course.recorder.waited_for_disk(now - since);
            self.clients.spend(now, number, Stretch::Held);
            self.read_on(now, number);
        }
    }

    /// A session's page is there: it goes on, and whoever waits for the same.
    fn page_read(&mut self, now: u64, number: u32, passed: u64) {
        let page = match self.sessions.get(number as usize) {
            Some(session) => session.leaf.expect("it reads one"),
            None => self.purge_reads(number),
        };
        self.take_page(now, page);
        let waiting = self.reading.remove(&page).unwrap_or_default();
        for this in std::iter::once(number).chain(waiting) {
            if this >= purge::FIRST {
                self.purge_on(now, this);
                continue;
            }
            if self.clients.is_over(this) {
                continue;
            }
            let session = &mut self.sessions[this as usize];
            session.leaf = None;
            let since = session.since;
            self.waited(now, this, since, passed);
            self.has_searched(now, this);
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
        self.change_index(number, access);
        if let Some(purge) = &mut self.purge {
            let session = &mut self.sessions[number as usize];
            purge.note(session, access.tree, access.kind);
        }
        self.redo.end += self.rules.parameters.redo_row_bytes + access.redo_bytes;
        if begins {
            // The header of a rollback segment and its page, made once; what has left the pool since is read.
            let segment = self.draws.rows.below(UNDO_PAGES / 2) * 2;
            for page in [segment, segment + 1] {
                let (page, now) = ((self.plan.pages + page) as u32, self.course.queue.now());
                if !self.pool.find(now, page) && self.has_free_page() {
                    if self.pool.is_blank(page) {
                        self.pool.make(now, page);
                    } else {
                        self.read_beside(now, page);
                    }
                }
                if self.pool.holds(page) {
                    self.mark(page);
                }
            }
        }
    }

    /// The leaf of a row.
    fn leaf_of(&mut self, tree: u32, row: u64) -> u32 {
        if let Some(index) = &self.indexes[tree as usize] {
            return index.page_of(row);
        }
        let layout = &self.plan.trees[tree as usize];
        match layout.added_leaf(row) {
            Some(leaf) => self.growth.page_of(tree, leaf),
            None => {
                let leaf = layout.leaf_of(row);
                self.page_of(tree, leaf)
            }
        }
    }

    /// Where the rows of a leaf are, which purge may have joined with another one.
    #[inline]
    fn page_of(&mut self, tree: u32, leaf: u32) -> u32 {
        let purge = self.purge.as_mut();
        purge.map_or(leaf, |purge| purge.page_of(tree, leaf))
    }

    /// Changes an entry of an index whose leaves split: an update adds one beside that which is gone.
    fn change_index(&mut self, number: u32, access: &Access) {
        let row = self.sessions[number as usize].at.number;
        let Some(index) = &mut self.indexes[access.tree as usize] else {
            return;
        };
        let mut changes = Vec::new();
        if access.kind != AccessKind::Delete {
            changes.push(index.insert(row));
        }
        if access.kind != AccessKind::Insert {
            let gone = index.mark(row);
            changes.extend(gone.into_iter().map(|row| index.remove(row)));
        }
        for change in changes {
            self.rewrite(change);
        }
    }

    /// Leaves have changed: purge reads those that the pool lacks, all that changed are marked, and rewritten ones go to the redo log.
    fn rewrite(&mut self, change: Change) {
        let now = self.course.queue.now();
        let pages = change.pages.into_iter().chain(change.neighbours).flatten();
        for page in pages {
            let is_here = self.pool.holds(page) || self.reading.contains_key(&page);
            if is_here || self.pool.free() <= self.reading.len() as u32 {
                continue;
            }
            if change.made == Some(page) {
                self.pool.make(now, page);
            } else {
                self.read_beside(now, page);
            }
        }
        for page in change.pages.into_iter().flatten() {
            self.mark(page);
        }
        self.redo.end += u64::from(change.rewrites) * REWRITE_REDO_BYTES;
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
        let commits = self.clients.step(number).commits && session.wrote.is_some();
        let parameters = &self.rules.parameters;
        let mut cpu_ns = session.loaded * parameters.page_read_cpu_ns;
        if commits {
            cpu_ns += parameters.commit_cpu_ns;
        }
        let at = if cpu_ns == 0 {
            now
        } else {
            self.serve(now, number, cpu_ns)
        };
        self.course.queue.push(at, Event::Ready(number));
    }

    /// The thread has done its work: it answers, or waits for the logs.
    fn ready(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Cpu);
        let commits = self.clients.step(number).commits;
        let session = &mut self.sessions[number as usize];
        let Some(bytes) = session.wrote.filter(|_| commits) else {
            return self.reply(now, now, number);
        };
        session.wrote = None;
        self.redo.end += self.rules.parameters.redo_commit_bytes;
        self.binlog_bytes(number, bytes);
        self.purge_committed(number);
        if self.rules.replication == Replication::Galera {
            if self.applier.as_ref().is_some_and(|applier| applier.stops()) {
                return self.held.push_back(number);
            }
            return self.replicate(now, number);
        }
        self.log_commit(now, number);
    }
}
