//! etcd: a log that all puts go through, one sync for all that have come meanwhile, copied by Raft, over a database file.
//!
//! A put: client CPU, network, CPU of the member that takes it, the way to the leader if that is another one. **The leader's loop** writes all
//! entries that have come to its log and syncs it, and sends them to the followers at the same time; while the sync is under way it does
//! nothing else: new entries wait for the next round, and so do answers of followers and reads, which need a majority to say that it
//! still leads. An entry is committed when the leader and as many followers as make a majority have it on their disks. **To apply it** a member
//! needs its database file, which takes puts into memory and commits them every 100 ms or 10,000 puts ([`backend`]); meanwhile nothing is
//! applied, so that a put waits for two more syncs. The member that took a put answers when it has applied it.
//!
//! **Heartbeats** come out of the same loop. etcd warns where two of them are further apart than twice their interval; a follower that hears
//! nothing for an election time-out, drawn between one and two of those that are set, begins an election.
//!
//! **Source:** etcd 3.4: `raftNode.start` (etcdserver/raft.go: the leader writes in parallel with its followers, a follower answers
//! behind its sync, and since 3.4.21 a single member applies behind its own, too), wal.go, contention.go, backend.go; raft.go of its Raft.
//! **Divergence:** without a timetable an election is counted, and the same member leads on when its disk is back. With one another member
//! takes over ([`broken`]). No member that was away catches up by a snapshot, and keys are never compacted.

mod backend;
mod broken;
mod checks;
mod event;
pub mod job;
mod member;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use disklab_disk::Refusal;
use disklab_units::random::Stream;
use hdrhistogram::Histogram;

pub use self::checks::check;
use self::event::Event;
use self::job::{EtcdJob, EtcdParameters, EtcdSettings};
use self::member::Member;
use crate::chance::work;
use crate::database::outage::Outage;
use crate::database::servers::Members;
use crate::database::sessions::{Clients, Costs, Sessions};
use crate::database::transactions::Script;
use crate::disks::Disks;
use crate::job::{AccessKind, Fidelity};
use crate::machine::Machine;
use crate::model::{Course, Model, Setting};
use crate::record::histogram;
use crate::report::{LogReport, Report, latencies};
use crate::simulate::{SqlParts, sql_report};
use crate::storage::{PendingIo, Purpose};
use crate::tail::Stretch;

/// Who leads at first.
const FIRST: usize = 0;
/// Bytes of a message between members beside the entries. **Source:** raftpb's Message with its frame.
const MESSAGE_BYTES: u64 = 64;
const HOUR_NS: f64 = 3.6e12;

/// A request under way.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// Up to where the log has its put.
    position: u64,
}

/// Sizes and rules that do not change during a run.
struct Rules {
    parameters: EtcdParameters,
    settings: EtcdSettings,
    /// Bytes of a put in the log.
    entry_bytes: u64,
    /// Followers that make a majority with the leader.
    quorum: usize,
}

/// What the leader's loop has to do beside the log.
struct Lead {
    /// Who it is.
    who: usize,
    /// Up to where entries were sent.
    sent: u64,
    /// Reads that wait for the loop, and whether a majority has confirmed the leader to them.
    reads: VecDeque<(u32, bool)>,
    /// When it sent heartbeats last, and anything; whether heartbeats wait for a sync.
    beat: u64,
    spoke: u64,
    owes_beat: bool,
    missed: u64,
    elections: u64,
    chances: Stream,
}

/// How long something took.
struct Spans {
    all: Histogram<u64>,
    sum: u128,
}

impl Default for Spans {
    fn default() -> Spans {
        Spans {
            all: histogram(),
            sum: 0,
        }
    }
}

impl Spans {
    fn note(&mut self, span_ns: u64) {
        self.all.saturating_record(span_ns);
        self.sum += u128::from(span_ns);
    }
}

/// A cluster in virtual time.
pub struct Etcd {
    course: Course<Event>,
    rules: Rules,
    clients: Clients,
    /// By step of the script: whether it puts.
    puts: Vec<bool>,
    members: Vec<Member>,
    lead: Lead,
    sessions: Vec<Session>,
    /// How long syncs of the log took, and commits of the database file.
    syncs: Spans,
    commits: Spans,
    times: Stream,
    broken: Option<Box<Members>>,
}

impl Model for Etcd {
    type Job = EtcdJob;
    type Event = Event;

    fn scaled(job: &EtcdJob, fidelity: Fidelity) -> (EtcdJob, u64) {
        checks::scaled(job, fidelity)
    }

    fn new(job: &EtcdJob, setting: &Setting) -> Result<Etcd, Refusal> {
        let (work, parameters) = (&job.workload, &job.parameters);
        let members = (0..job.cluster.nodes as u16)
            .map(|number| Member::new(job, setting, number))
            .collect::<Result<Vec<Member>, Refusal>>()?;
        let mut puts = Vec::new();
        let script = Script::new(&work.transactions, |statement| {
            let from = puts.len() as u32;
            let kinds = statement.accesses.iter().map(|access| access.kind);
            puts.extend(kinds.map(|kind| kind != AccessKind::Read));
            (from..puts.len() as u32, parameters.request_cpu_ns)
        });
        let tls = (job.database.tls, parameters.tls_cpu_ns);
        let costs = Costs::new(parameters.client_cpu_ns, parameters.overhead_ns, tls);
        let (course, clients) = job.load(script, costs, setting);
        Ok(Etcd {
            course,
            rules: Rules {
                parameters: parameters.clone(),
                settings: job.database.clone(),
                entry_bytes: parameters.entry_bytes + u64::from(job.tables[0].row_bytes),
                quorum: members.len() / 2,
            },
            puts,
            members,
            lead: Lead {
                who: FIRST,
                sent: 0,
                reads: VecDeque::new(),
                beat: 0,
                spoke: 0,
                owes_beat: false,
                missed: 0,
                elections: 0,
                chances: Stream::new(setting.seed, "elections"),
            },
            sessions: vec![Session::default(); clients.count()],
            clients,
            syncs: Spans::default(),
            commits: Spans::default(),
            times: Stream::new(setting.seed, "member cpu"),
            broken: Members::new(job, work.warm_up_ns, setting.seed),
        })
    }

    fn begin(&mut self) {
        self.schedule_first();
        let Rules { settings, .. } = &self.rules;
        for member in 0..self.members.len() as u32 {
            let at = settings.batch_interval_ns;
            self.course.queue.push(at, Event::Batch(member));
        }
        if self.members.len() > 1 {
            let at = settings.heartbeat_ns;
            self.course.queue.push(at, Event::Heartbeat);
        }
        self.begin_sessions();
    }

    #[inline]
    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Sql(event) => self.handle_sql(now, event),
            Event::Asked(session) => {
                self.clients.spend(now, session, Stretch::Network);
                self.take(now, session);
            }
            Event::Confirmed(session) => {
                self.clients.spend(now, session, Stretch::Network);
                self.read(now, session, true);
            }
            Event::Ready(session) => {
                self.clients.spend(now, session, Stretch::Cpu);
                self.reply(now, now, session);
            }
            Event::Received(member) => self.received(now, member as usize),
            Event::Acked(member) => self.acked(now, member as usize),
            Event::Learned(member) => self.learned(now, member as usize),
            Event::Heartbeat => self.heartbeat(now),
            Event::Batch(member) => self.batch(now, member as usize),
        }
    }

    fn io_ended(&mut self, now: u64, io: PendingIo) {
        let index = usize::from(io.node);
        let member = &mut self.members[index];
        let (storage, ios) = (&mut member.machine.storage, &mut self.course.ios);
        match io.purpose {
            Purpose::Log(_) => {
                let mut done = Vec::new();
                let began = member.log.began;
                let when = (now, io.passed);
                member.log.io_ended(when, storage, ios, &mut done);
                if member.log.is_idle() {
                    self.synced(now, index, began, &done);
                }
            }
            Purpose::Stream(backend::COMMIT) => {
                if member.backend.io_ended(now, storage, ios) {
                    self.committed(now, index);
                }
            }
            Purpose::Stream(_) => {}
            Purpose::Pages { .. } | Purpose::Piece(_) => unreachable!("memory holds its database"),
        }
    }

    fn course(&mut self) -> &mut Course<Event> {
        &mut self.course
    }

    fn disks(&mut self, machine: u16) -> (&mut Course<Event>, &mut Disks) {
        let machine = &mut self.members[usize::from(machine)].machine;
        (&mut self.course, &mut machine.storage.disks)
    }

    fn report(&mut self, job: &EtcdJob, cell: u64) -> Report {
        let now = self.course.recorder.measured_to();
        let faults = self.broken.as_ref().map(|broken| broken.report(now));
        let hours = self.course.recorder.elapsed_ns() as f64 / HOUR_NS;
        let each_hour = |count: u64| (self.rules.quorum > 0).then(|| count as f64 / hours);
        let log = LogReport {
            wal_fsyncs: self.syncs.all.len(),
            sync_ms: latencies(&self.syncs.all, self.syncs.sum),
            backend_commits: self.commits.all.len(),
            commit_ms: latencies(&self.commits.all, self.commits.sum),
            late_heartbeats_per_hour: each_hour(self.lead.missed),
            elections_per_hour: each_hour(self.lead.elections),
        };
        let parts = SqlParts {
            recorder: &self.course.recorder,
            clients: &mut self.clients,
            nodes: self.members.iter().map(|m| (&m.machine, 0)).collect(),
            blocks: (0, 0),
            events: self.course.queue.scheduled(),
        };
        let (transactions, host) = (&job.workload.transactions, &job.cluster.host);
        Report {
            log: Some(log),
            faults,
            ..sql_report(cell, transactions, host, parts)
        }
    }
}

impl Sessions for Etcd {
    fn clients(&mut self) -> &mut Clients {
        &mut self.clients
    }

    #[inline]
    fn server(&mut self, session: u32) -> (usize, &mut Machine) {
        let home = self.home(session);
        (home, &mut self.members[home].machine)
    }

    /// The member that took a request goes to the leader with it.
    fn planned(&mut self, now: u64, session: u32) {
        self.clients.spend(now, session, Stretch::Cpu);
        let home = self.home(session);
        if home == self.lead.who {
            return self.take(now, session);
        }
        let bytes = if self.puts_one(session) {
            self.rules.entry_bytes
        } else {
            0
        };
        let at = self.travel(now, (home, self.lead.who), MESSAGE_BYTES + bytes);
        self.course.queue.push(at, Event::Asked(session));
    }

    fn reset(&mut self, now: u64) {
        for member in &mut self.members {
            member.machine.reset(now);
        }
        (self.syncs, self.commits) = (Spans::default(), Spans::default());
        (self.lead.missed, self.lead.elections) = (0, 0);
    }

    fn set_out_own(&mut self, session: u32) {
        let count = self.sessions.len().max(session as usize + 1);
        self.sessions.resize(count, Session::default());
    }

    fn outage(&mut self) -> Option<&mut Outage> {
        self.broken.as_mut().map(|broken| &mut broken.outage)
    }

    fn look_at_faults(&mut self, now: u64) {
        self.take_faults(now);
    }

    fn is_degraded(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_some_and(|broken| broken.is_degraded())
    }
}

impl Etcd {
    /// The member that a session is connected to; the next one, where that is lost.
    fn home(&self, session: u32) -> usize {
        let count = self.members.len();
        let first = self.clients.first_of(session) as usize;
        let mut members = (first..first + count).map(|number| number % count);
        members.find(|&member| self.has(member)).unwrap_or(0)
    }

    /// The members that follow.
    fn followers(&self) -> impl Iterator<Item = usize> + use<> {
        let who = self.lead.who;
        (0..self.members.len()).filter(move |&member| member != who)
    }

    /// Whether the request of a session is a put.
    fn puts_one(&self, session: u32) -> bool {
        let accesses = self.clients.step(session).accesses.clone();
        self.puts[accesses.start as usize..accesses.end as usize].contains(&true)
    }

    /// A member sends a message to another one; returns when it is there and has been read.
    fn travel(&mut self, now: u64, (from, to): (usize, usize), bytes: u64) -> u64 {
        let left = self.members[from].machine.link.send(now, now, bytes);
        let tls_ns = 2 * self.clients.tls_ns;
        let cpu_ns = self.rules.parameters.message_cpu_ns + tls_ns;
        left + self.clients.paths.delay(from, to) + work(&mut self.times, cpu_ns)
    }

    /// The leader takes a request.
    fn take(&mut self, now: u64, session: u32) {
        if !self.puts_one(session) {
            return self.read(now, session, false);
        }
        if !self.has(self.lead.who) {
            return;
        }
        let home = self.home(session);
        let log = &mut self.members[self.lead.who].log;
        log.end += self.rules.entry_bytes;
        log.wait(session);
        self.sessions[session as usize].position = log.end;
        self.members[home].waiting.push_back(session);
        self.save(now, self.lead.who);
    }

    /// A read wants the leader's loop; `confirmed`: a majority has said that it still leads.
    fn read(&mut self, now: u64, session: u32, confirmed: bool) {
        let who = self.lead.who;
        if !self.members[who].log.is_idle() {
            return self.lead.reads.push_back((session, confirmed));
        }
        if confirmed || self.rules.quorum == 0 {
            let home = self.home(session);
            let at = if home == who {
                now
            } else {
                self.travel(now, (who, home), MESSAGE_BYTES)
            };
            return self.course.queue.push(at, Event::Ready(session));
        }
        let mut answers: Vec<u64> = self
            .followers()
            .map(|follower| {
                let there = self.travel(now, (who, follower), MESSAGE_BYTES);
                there + self.clients.paths.delay(follower, who)
            })
            .collect();
        answers.sort_unstable();
        let at = answers[self.rules.quorum - 1];
        self.course.queue.push(at, Event::Confirmed(session));
    }

    /// A member brings to its disk what its log has, unless it is doing so; the leader sends it to its followers meanwhile.
    fn save(&mut self, now: u64, index: usize) {
        let Member { log, machine, .. } = &mut self.members[index];
        if !log.is_idle() || log.synced() == log.end {
            return;
        }
        let end = log.end;
        log.write(now, true, &mut machine.storage, &mut self.course.ios);
        if index != self.lead.who {
            return;
        }
        let bytes = MESSAGE_BYTES + end - std::mem::replace(&mut self.lead.sent, end);
        self.speaks(now);
        for follower in self.followers() {
            let at = self.travel(now, (index, follower), bytes);
            let at = self.members[follower].entries_coming.send(at, end);
            let event = Event::Received(follower as u32);
            self.course.queue.push(at, event);
        }
    }

    fn received(&mut self, now: u64, index: usize) {
        let is_there = self.has(index);
        let member = &mut self.members[index];
        let end = member.entries_coming.take();
        if is_there {
            member.log.end = end;
            self.save(now, index);
        }
    }

    /// A sync of a member's log is done, which began then and ended the wait of some.
    fn synced(&mut self, now: u64, index: usize, began: u64, done: &[u32]) {
        self.syncs.note(now - began);
        for &session in done {
            self.waited_for_log(now, session, began);
        }
        let who = self.lead.who;
        if index == who {
            if std::mem::take(&mut self.lead.owes_beat) {
                self.beat(now);
            }
            self.settle(now);
            for (session, confirmed) in std::mem::take(&mut self.lead.reads) {
                self.read(now, session, confirmed);
            }
        } else {
            let synced = self.members[index].log.synced();
            let at = self.travel(now, (index, who), MESSAGE_BYTES);
            let at = self.members[index].answers.send(at, synced);
            self.course.queue.push(at, Event::Acked(index as u32));
            self.apply(now, index, Stretch::Network);
        }
        self.save(now, index);
    }

    fn acked(&mut self, now: u64, index: usize) {
        let is_there = self.has(index);
        let member = &mut self.members[index];
        let confirmed = member.answers.take();
        if is_there {
            member.confirmed = confirmed;
        }
        if self.members[self.lead.who].log.is_idle() {
            self.settle(now);
        }
    }

    /// The leader looks what a majority has, applies it and tells the others.
    fn settle(&mut self, now: u64) {
        let who = self.lead.who;
        if !self.has(who) {
            return;
        }
        let followers = self.followers();
        let mut confirmed: Vec<u64> = followers.map(|one| self.members[one].confirmed).collect();
        confirmed.sort_unstable_by(|a, b| b.cmp(a));
        let own = self.members[who].log.synced();
        let committed = match self.rules.quorum {
            0 => own,
            quorum => own.min(confirmed[quorum - 1]),
        };
        if committed <= self.members[who].committed {
            return;
        }
        self.members[who].committed = committed;
        self.apply(now, who, Stretch::Network);
        for follower in self.followers() {
            let at = self.travel(now, (who, follower), MESSAGE_BYTES);
            let at = self.members[follower].commits_coming.send(at, committed);
            self.course.queue.push(at, Event::Learned(follower as u32));
        }
    }

    fn learned(&mut self, now: u64, index: usize) {
        let member = &mut self.members[index];
        member.committed = member.commits_coming.take();
        if member.log.is_idle() {
            self.apply(now, index, Stretch::Network);
        }
    }

    /// A member applies what is committed, unless its database file is being committed. `waited`: for what its sessions did.
    fn apply(&mut self, now: u64, index: usize, waited: Stretch) {
        let member = &mut self.members[index];
        if member.backend.commits() || member.applied == member.committed {
            return;
        }
        let entries = (member.committed - member.applied) / self.rules.entry_bytes;
        member.applied = member.committed;
        member.backend.puts += entries;
        member.entries += entries;
        while let Some(&session) = self.members[index].waiting.front()
            && self.sessions[session as usize].position <= self.members[index].applied
        {
            self.members[index].waiting.pop_front();
            if waited == Stretch::Network {
                self.waited_for_others(now, session);
            } else {
                self.clients.spend(now, session, waited);
            }
            let span = work(&mut self.times, self.rules.parameters.put_cpu_ns);
            let at = self.members[index].machine.cores.serve(now, span);
            self.course.queue.push(at, Event::Ready(session));
        }
        let is_due = self.members[index].entries >= self.rules.settings.snapshot_entries;
        if is_due {
            self.snapshot(now, index);
        }
        if is_due || self.members[index].backend.puts >= self.rules.settings.batch_puts {
            self.commit(now, index);
        }
    }

    /// A put waited for other members: for the way there and back, else for the syncs of their logs.
    fn waited_for_others(&mut self, now: u64, session: u32) {
        if self.rules.quorum > 0 {
            let ways = 2 * self.clients.paths.mean_delay(FIRST, FIRST + 1);
            let mark = self.clients.mark(session);
            let there = now.min(mark + ways);
            self.clients.spend(there, session, Stretch::Network);
        }
        self.clients.spend(now, session, Stretch::Disk);
    }

    fn snapshot(&mut self, now: u64, index: usize) {
        let member = &mut self.members[index];
        member.entries = 0;
        let (storage, ios) = (&mut member.machine.storage, &mut self.course.ios);
        backend::snapshot(now, storage, ios);
    }

    /// A member commits the puts of its database file.
    fn commit(&mut self, now: u64, index: usize) {
        let Member {
            backend, machine, ..
        } = &mut self.members[index];
        backend.commit(now, &mut machine.storage, &mut self.course.ios);
    }

    /// A commit of a member's database file is done.
    fn committed(&mut self, now: u64, index: usize) {
        let backend = &mut self.members[index].backend;
        self.commits.note(now - backend.began);
        if std::mem::take(&mut backend.by_timer) {
            self.await_batch(now, index);
        }
        self.apply(now, index, Stretch::Held);
    }

    /// The timer of a member's database file.
    fn batch(&mut self, now: u64, index: usize) {
        let backend = &mut self.members[index].backend;
        if backend.commits() || backend.puts == 0 {
            return self.await_batch(now, index);
        }
        backend.by_timer = true;
        self.commit(now, index);
    }

    fn await_batch(&mut self, now: u64, index: usize) {
        let at = now + self.rules.settings.batch_interval_ns;
        self.course.queue.push(at, Event::Batch(index as u32));
    }

    fn heartbeat(&mut self, now: u64) {
        let at = now + self.rules.settings.heartbeat_ns;
        self.course.queue.push(at, Event::Heartbeat);
        if !self.has(self.lead.who) || !self.members[self.lead.who].log.is_idle() {
            self.lead.owes_beat = true;
            return self.elect(now);
        }
        self.beat(now);
    }

    /// The leader sends heartbeats, late or not.
    fn beat(&mut self, now: u64) {
        let since = now - std::mem::replace(&mut self.lead.beat, now);
        self.lead.missed += u64::from(since > 2 * self.rules.settings.heartbeat_ns);
        self.speaks(now);
    }

    /// The leader sends something: has a follower waited for it too long?
    fn speaks(&mut self, now: u64) {
        let silence = now - std::mem::replace(&mut self.lead.spoke, now);
        let set = self.rules.settings.election_ns;
        let followers = self.members.len() - 1;
        let loses_patience = silence > set
            && (0..followers).any(|_| silence > set + self.lead.chances.below(set.max(1)));
        self.lead.elections += u64::from(loses_patience);
    }
}
