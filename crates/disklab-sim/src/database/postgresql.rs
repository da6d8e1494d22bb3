//! PostgreSQL: a backend for each connection, `shared_buffers` over the page cache, a log that commits wait for.
//!
//! A statement: client CPU, network, CPU of its backend, then its rows one after the other: the leaf of the index and
//! the page of the row, each from `shared_buffers`, from the page cache beneath, or from the disk. A change marks pages,
//! and writes records into the log; the first change of a page after a checkpoint began writes all of it. **A commit**
//! waits until the log is on the disk: whoever finds no sync under way begins one for all that is written so far, and those
//! who come meanwhile share the next. With synchronous standbys the log then goes to them, and as many as the quorum
//! needs have to have synced it. **Changed pages** reach the disk by checkpoints, spread over their time, by the
//! background writer ahead of the clock, and by backends that find no clean buffer, through Linux's write-back.
//!
//! **Source:** PostgreSQL 15: xlog.c, bufmgr.c, freelist.c, checkpointer.c, heapam.c; chapter 30 of its manual.
//! A row that finds no room in its page for its next version goes to a new page, which is added to the relation in turn
//! ([`extension`]).
//!
//! **Divergence:** no lock on a row is waited for, no vacuum runs, indexes do not split, and standbys write the pages that the
//! primary writes.

mod basebackup;
mod broken;
mod buffers;
mod changes;
mod checkpoint;
mod checks;
mod durable;
mod event;
mod extension;
mod files;
mod fillorder;
pub mod job;
mod packing;
mod plan;
mod reads;
mod replay;
mod rows;
mod server;

use std::collections::VecDeque;

use disklab_disk::Refusal;

pub use self::checks::check;
use self::job::{PostgresqlJob, PostgresqlParameters};
use crate::database::draws::{Draws, Place};
use crate::database::outage::Outage;
use crate::database::postgresql::broken::Broken;
use crate::database::postgresql::buffers::Buffers;
use crate::database::postgresql::changes::Changes;
use crate::database::postgresql::event::Event;
use crate::database::postgresql::extension::{Extending, Extension};
use crate::database::postgresql::files::Files;
use crate::database::postgresql::packing::PAGE_BYTES;
use crate::database::postgresql::plan::{Plan, layouts};
use crate::database::postgresql::reads::Reads;
use crate::database::postgresql::server::{RECOVERY_SYNC, Server, WRITE_BACK};
use crate::database::sessions::{Clients, Costs, Sessions};
use crate::disks::Disks;
use crate::filelayout::spread;
use crate::job::{CacheState, Fidelity, Mechanism};
use crate::machine::Machine;
use crate::model::{Course, Model, Setting};
use crate::report::Report;
use crate::simulate::{SqlParts, sql_report};
use crate::storage::{NOBODY, PendingIo, Purpose};
use crate::tail::Stretch;

/// Bytes of a message between servers beside the log. **Source:** a `WALData` message has a header of 25 bytes, a reply 34.
const MESSAGE_BYTES: u64 = 34;

/// How often Linux looks for pages to write back, and how old they are then. **Source:** `dirty_writeback_centisecs` 500,
/// `dirty_expire_centisecs` 3000.
const EXPIRE_NS: u64 = 30_000_000_000;

/// Share of the page cache that changed pages may be before Linux writes them. **Source:** `dirty_background_ratio`, 10.
const BACKGROUND_SHARE: u64 = 10;

/// Pages after which the background writer asks Linux to write them. **Source:** `bgwriter_flush_after`, 512 kB.
const FLUSH_AFTER: usize = 64;

/// A thread or a terminal, with its backend.
#[derive(Clone, Debug, Default)]
struct Session {
    /// Where it is among the rows of the statement.
    at: Place,
    /// Pages that the row needs, and how many of them are there.
    pages: [u32; 2],
    wanted: u8,
    there: u8,
    /// Whether its page is being read, and which of the page cache's pages is next.
    reads: bool,
    part: u64,
    /// Whether it has its turn with the file that it reads, and waits for one to write a page that makes room.
    has_file: bool,
    writes: bool,
    /// Pages that the statement has read from the operating system, and changed ones that it wrote to make room.
    loaded: u32,
    /// How far it is with adding pages to a relation.
    extending: Extending,
    /// Whether the transaction has written to the log, and up to where.
    wrote: bool,
    lsn: u64,
    since: u64,
    /// When the last I/O that it waited for had passed all limits.
    passed: u64,
    /// The next session that waits for the same I/O, or page.
    next: u32,
}

/// Sizes and rules that do not change during a run.
struct Rules {
    parameters: PostgresqlParameters,
    standbys: usize,
    waits: bool,
    background_ns: u64,
    background_pages: usize,
    most_dirty: usize,
    read_ahead_bytes: u64,
    idle: bool,
}

impl Rules {
    fn new(job: &PostgresqlJob, setting: &Setting) -> Rules {
        let (settings, parameters) = (&job.database, job.parameters.clone());
        let idle = !setting.has(Mechanism::BackgroundIo);
        let cache_pages = job.cluster.page_cache_bytes / PAGE_BYTES;
        Rules {
            parameters,
            standbys: settings.synchronous_standbys as usize,
            waits: settings.synchronous_commit && !idle,
            background_ns: settings.bgwriter_delay_ns.max(1),
            background_pages: settings.bgwriter_most_pages as usize,
            most_dirty: (cache_pages / BACKGROUND_SHARE).max(1) as usize,
            read_ahead_bytes: job.cluster.read_ahead_bytes,
            idle,
        }
    }
}

/// A server and its standbys in virtual time.
pub struct Postgresql {
    course: Course<Event>,
    rules: Rules,
    plan: Plan,
    clients: Clients,
    servers: Vec<Server>,
    /// Which of them takes statements.
    primary: usize,
    buffers: Buffers,
    changes: Changes,
    files: Files,
    reads: Reads,
    /// By relation: whose turn it is to add pages.
    extensions: Vec<Extension>,
    /// Whether that takes turns.
    takes_turns: bool,
    /// Sessions that have got their turn with a file.
    woken: Vec<u32>,
    /// Changed pages that are in the page cache alone, with the time since when.
    dirty: VecDeque<(u64, u32)>,
    /// Sessions whose commit waits, in the order of the log.
    committing: VecDeque<u32>,
    sessions: Vec<Session>,
    draws: Draws,
    /// None: nothing breaks.
    broken: Option<Box<Broken>>,
}

impl Model for Postgresql {
    type Job = PostgresqlJob;
    type Event = Event;

    fn scaled(job: &PostgresqlJob, fidelity: Fidelity) -> (PostgresqlJob, u64) {
        checks::scaled(job, fidelity)
    }

    fn new(job: &PostgresqlJob, setting: &Setting) -> Result<Postgresql, Refusal> {
        let Setting { scale, seed, .. } = *setting;
        let has = |mechanism| setting.has(mechanism);
        let (plan, script) = Plan::new(job, scale, !has(Mechanism::FillOrder));
        let mut servers = (0..job.cluster.nodes as usize)
            .map(|number| Server::new(job, &plan, number, setting))
            .collect::<Result<Vec<Server>, Refusal>>()?;
        let work = &job.workload;
        setting.keep_journal(&mut servers[0].machine.storage.disks.host, work.warm_up_ns);
        let (settings, parameters) = (&job.database, &job.parameters);
        let tls = (settings.tls, parameters.tls_cpu_ns);
        let costs = Costs::new(parameters.client_cpu_ns, parameters.overhead_ns, tls);
        let (course, clients) = job.load(script, costs, setting);
        let images = settings.full_page_writes && has(Mechanism::FullPageImages);
        let rows = plan.relations.first().map_or(1, |relation| relation.rows);
        Ok(Postgresql {
            course,
            rules: Rules::new(job, setting),
            changes: Changes::new(settings, &plan, images).kept_if(job.faults.is_some()),
            broken: broken(job, seed),
            servers,
            primary: 0,
            buffers: buffers(job, &plan),
            files: Files::new(if job.cluster.locks_files && has(Mechanism::FileLocks) {
                plan.file_starts.len()
            } else {
                0
            }),
            reads: Reads::new(has(Mechanism::OwnReadAhead)),
            extensions: vec![Extension::default(); plan.relations.len()],
            takes_turns: has(Mechanism::RelationExtension),
            woken: Vec::new(),
            dirty: VecDeque::new(),
            committing: VecDeque::new(),
            sessions: vec![Session::default(); clients.count()],
            clients,
            draws: Draws::new(work, rows, false, setting),
            plan,
        })
    }

    fn begin(&mut self) {
        self.schedule_first();
        if self.plan.writes && !self.rules.idle {
            self.course
                .queue
                .push(checkpoint::LOOK_NS, Event::Checkpointer);
            self.course
                .queue
                .push(self.rules.background_ns, Event::Background);
        }
        self.begin_sessions();
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Sql(event) => self.handle_sql(now, event),
            Event::Ready(session) | Event::Resume(session) if self.clients.is_over(session) => {}
            Event::Ready(session) => self.ready(now, session),
            Event::Received(server) => self.received(now, server as usize),
            Event::Confirmed(server) => self.confirmed(now, server as usize),
            Event::Checkpointer => self.look_at_checkpoint(now),
            Event::Background => self.clean(now),
            Event::Resume(session) => {
                self.clients.spend(now, session, Stretch::Held);
                self.read_on(now, session);
            }
            Event::Replayed(server) => self.has_replayed(now, server as usize),
            Event::Copied(step) => self.copy_goes_on(now, step),
        }
    }

    fn io_ended(&mut self, now: u64, io: PendingIo) {
        let index = usize::from(io.node);
        match io.purpose {
            Purpose::Stream(WRITE_BACK) => {
                let server = &mut self.servers[index];
                server.written_back();
                server.write_back(now, &mut self.course.ios);
                if self.broken.is_some() {
                    self.return_on(now, index);
                }
            }
            Purpose::Stream(RECOVERY_SYNC) => self.recovery_synced(now, index),
            Purpose::Stream(_) => {}
            Purpose::Piece(piece) => self.piece_read(now, index, piece),
            Purpose::Log(_) => {
                let server = &mut self.servers[index];
                if server.log_io_ended((now, io.passed), &mut self.course.ios) {
                    self.log_synced(now, index);
                }
            }
            Purpose::Pages { waiter, .. } => {
                let storage = &mut self.servers[index].machine.storage;
                storage.arrived(io.purpose, &mut self.course.ios);
                let mut next = waiter;
                while next != NOBODY {
                    let this = next;
                    let session = &mut self.sessions[this as usize];
                    next = std::mem::replace(&mut session.next, NOBODY);
                    if self.clients.is_over(this) {
                        continue;
                    }
                    session.part += 1;
                    let since = session.since;
                    session.passed = io.passed.clamp(since, now);
                    self.waited(now, this, since, io.passed);
                    self.read_on(now, this);
                }
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

    fn report(&mut self, job: &PostgresqlJob, cell: u64) -> Report {
        let work = &job.workload;
        let host = &job.cluster.host;
        let faults = self.fault_report();
        Report {
            faults,
            ..sql_report(cell, &work.transactions, host, self.parts())
        }
    }
}

impl Sessions for Postgresql {
    fn clients(&mut self) -> &mut Clients {
        &mut self.clients
    }

    #[inline]
    fn server(&mut self, _session: u32) -> (usize, &mut Machine) {
        (self.primary, &mut self.servers[self.primary].machine)
    }

    fn set_out_own(&mut self, number: u32) {
        let count = self.clients.count();
        self.sessions.resize_with(count, Session::default);
        let session = &mut self.sessions[number as usize];
        session.wrote = false;
        session.at.recent.clear();
    }

    fn planned(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Cpu);
        let first = self.clients.step(number).accesses.start;
        let session = &mut self.sessions[number as usize];
        session.at.begin(first);
        session.loaded = 0;
        self.next_row(number);
        self.read_on(now, number);
    }

    fn reset(&mut self, now: u64) {
        self.buffers.reset();
        for server in &mut self.servers {
            server.machine.reset(now);
        }
    }

    fn outage(&mut self) -> Option<&mut Outage> {
        self.broken.as_mut().map(|broken| &mut broken.outage)
    }

    fn look_at_faults(&mut self, now: u64) {
        self.look(now);
    }

    #[inline]
    fn primary(&self) -> (usize, bool) {
        (self.primary, self.serves())
    }

    fn is_degraded(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_some_and(|broken| broken.is_degraded())
    }
}

impl Postgresql {
    /// The rows are there: the CPU of the pages that were read, and of a commit.
    fn finish(&mut self, now: u64, number: u32) {
        let session = &self.sessions[number as usize];
        let commits = self.clients.step(number).commits && session.wrote;
        let parameters = &self.rules.parameters;
        let mut cpu_ns = u64::from(session.loaded) * parameters.page_read_cpu_ns;
        cpu_ns += u64::from(session.at.run.saturating_sub(1)) * parameters.scan_row_cpu_ns;
        if commits {
            cpu_ns += parameters.commit_cpu_ns;
        }
        if cpu_ns == 0 {
            return self.ready(now, number);
        }
        let at = self.serve(now, number, cpu_ns);
        self.course.queue.push(at, Event::Ready(number));
    }

    /// A backend has done its work: it answers, or waits until its log is on the disk.
    fn ready(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Cpu);
        let commits = self.clients.step(number).commits && self.sessions[number as usize].wrote;
        if !commits {
            return self.reply(now, now, number);
        }
        let lsn = self.changes.commit();
        let session = &mut self.sessions[number as usize];
        (session.lsn, session.wrote, session.since) = (lsn, false, now);
        if !self.rules.waits {
            self.note_acknowledged(number);
            return self.reply(now, now, number);
        }
        self.committing.push_back(number);
        self.sync_log(now, self.primary, lsn);
    }

    /// What the run leaves for its report.
    fn parts(&mut self) -> SqlParts<'_> {
        SqlParts {
            recorder: &self.course.recorder,
            clients: &mut self.clients,
            nodes: self.servers.iter().map(|s| (&s.machine, 0)).collect(),
            blocks: self.buffers.counts(),
            events: self.course.queue.scheduled(),
        }
    }
}

/// What breaks; None: nothing does.
fn broken(job: &PostgresqlJob, seed: u64) -> Option<Box<Broken>> {
    let faults = job.faults.as_ref()?;
    let from = job.workload.warm_up_ns;
    Some(Box::new(Broken::new(faults, &job.cluster, from, seed)))
}

/// `shared_buffers` in the state asked for.
fn buffers(job: &PostgresqlJob, plan: &Plan) -> Buffers {
    let count = job.database.shared_buffers_bytes / PAGE_BYTES;
    let mut buffers = Buffers::new(plan.pages + plan.growth, count);
    if job.before.page_cache != CacheState::Cold && !job.before.empty {
        warm(&mut buffers, plan.pages);
    }
    buffers
}

/// Fills buffers with pages from all over, as reading them at random leaves them.
fn warm(buffers: &mut Buffers, pages: u64) {
    // Half a step beside those of the page cache: most pages are in one of the two.
    for page in spread(buffers.capacity(), pages, pages / 2) {
        buffers.keep(page as u32);
    }
}
