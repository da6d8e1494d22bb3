//! Servers that go away and come back, and what their clients make of it.
//!
//! What clients make of it is in [`outage`](crate::database::outage). A standby that is away confirms nothing; once it is back
//! it is sent what it has missed. One that has lost its primary looks for it every few seconds.
//!
//! How a server comes back is in [`replay`](super::replay).
//!
//! **Source:** `wal_retrieve_retry_interval` of PostgreSQL's manual, 20.6.3.

use std::collections::VecDeque;

use super::Postgresql;
use super::basebackup::{Copied, Copying, copy_of};
use super::changes::{History, Record};
use super::extension::Extension;
use super::files::Files;
use super::replay::Replay;
use crate::database::outage::Outage;
use crate::database::servers::{Life, Phase, Turn};
use crate::database::sessions::Sessions;
use crate::job::faults::{Event, What};
use crate::job::{Cluster, SqlFaults};
use crate::report::FaultReport;

/// What a server comes back by.
#[derive(Debug)]
pub(super) enum Work {
    /// It gets a copy of the primary's data.
    Copying(Box<Copying>),
    /// It brings its data up to the end of its log.
    Replaying(Box<Replay>),
}

/// A server.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub life: Life<Work>,
    /// Of a standby that has lost its primary: when it looks for it next.
    pub looks_at: Option<u64>,
    /// How many copies it has begun to get, whether the last one is cut short, and what a whole one asks for.
    pub rounds: u8,
    pub is_part: bool,
    pub copied: Option<Copied>,
    /// Of a standby that is to become the primary: when it has done so.
    promoted_at: Option<u64>,
}

/// What a run with faults knows.
pub(super) struct Broken {
    pub outage: Outage,
    pub seen: Vec<Seen>,
    /// Positions of commits that clients know of and some standby may not have; None: nobody is promoted.
    acknowledged: Option<VecDeque<u64>>,
    lost_updates: u64,
}

impl Broken {
    /// Servers that are well; `from`: when measuring begins.
    pub fn new(job: &SqlFaults, cluster: &Cluster, from: u64, seed: u64) -> Broken {
        Broken {
            seen: (0..cluster.nodes).map(|_| Seen::default()).collect(),
            acknowledged: job
                .events
                .iter()
                .any(|event| event.what == What::Promote)
                .then(VecDeque::new),
            lost_updates: 0,
            outage: Outage::new(job, &cluster.host, from, seed),
        }
    }

    fn is_up(&self, server: usize) -> bool {
        self.seen[server].life.is_up()
    }

    /// Copies that servers are getting.
    pub fn copies(&self) -> impl Iterator<Item = &Copying> {
        self.seen.iter().filter_map(|seen| match &seen.life.phase {
            Phase::Returning(Work::Copying(copy)) => Some(&**copy),
            _ => None,
        })
    }

    /// Whether some server is away.
    pub fn is_degraded(&self) -> bool {
        (0..self.seen.len()).any(|server| !self.is_up(server))
    }
}

impl Postgresql {
    /// Whether the primary takes statements.
    #[inline]
    pub(super) fn serves(&self) -> bool {
        self.broken
            .as_ref()
            .is_none_or(|one| one.is_up(self.primary))
    }

    /// Whether a server is the primary, or gets its log.
    #[inline]
    pub(super) fn follows(&self, index: usize) -> bool {
        self.broken
            .as_ref()
            .is_none_or(|one| one.is_up(index) && one.seen[index].looks_at.is_none())
    }

    /// Whether a server takes log that is on its way, whether or not its primary still lives.
    #[inline]
    pub(super) fn takes_log(&self, index: usize) -> bool {
        self.broken.as_ref().is_none_or(|one| one.is_up(index))
    }

    /// Whether a server has the primary's data on its disks, and changes them as the primary does.
    #[inline]
    pub(super) fn has_disks(&self, index: usize) -> bool {
        let is_without =
            |phase: &Phase<Work>| matches!(phase, Phase::Away | Phase::Returning(Work::Copying(_)));
        let broken = self.broken.as_ref();
        index == self.primary || broken.is_none_or(|one| !is_without(&one.seen[index].life.phase))
    }

    /// A client knows of a commit.
    #[inline]
    pub(super) fn note_acknowledged(&mut self, number: u32) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let Some(known) = &mut broken.acknowledged else {
            return;
        };
        known.push_back(self.sessions[number as usize].lsn);
        let standbys = self.servers.iter().enumerate();
        let standbys = standbys.filter(|&(index, _)| index != self.primary);
        let safe = standbys.map(|(_, one)| one.received).min().unwrap_or(0);
        while known.front().is_some_and(|&position| position <= safe) {
            known.pop_front();
        }
    }

    /// The server's end of every connection is gone. `known`: and its clients are told.
    fn drop_connections(&mut self, now: u64, known: bool) {
        self.close_connections(now, known);
        let files = self.files.count();
        self.files = Files::new(files);
        self.reads = self.reads.closed();
        self.extensions.fill(Extension::default());
        self.committing.clear();
    }

    /// Looks at the timetable.
    pub(super) fn look(&mut self, now: u64) {
        while let Some(broken) = &mut self.broken
            && let Some(event) = broken.outage.due(now)
        {
            let (node, what) = (event.node as usize, event.what);
            // From a data directory that is a part of a copy no server starts.
            let is_part = broken.seen[node].is_part;
            match what {
                What::Promote => self.promote(now, node),
                What::Replace => self.replace(now, node, what),
                What::Start if is_part => self.replace(now, node, what),
                _ => self.take_fault(now, node, &event),
            }
        }
        self.expire(now);
        for index in 0..self.servers.len() {
            self.advance(now, index);
            self.look_for_primary(now, index);
            self.end_promotion(now, index);
        }
    }

    /// A standby is to become the primary.
    fn promote(&mut self, now: u64, node: usize) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let seen = &mut broken.seen[node];
        seen.life.step = broken.outage.step(now, What::Promote, node, None);
        seen.promoted_at = Some(now + broken.outage.job.promote_ns);
    }

    /// A server is to get a copy of the primary's data.
    fn replace(&mut self, now: u64, node: usize, what: What) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let life = &mut broken.seen[node].life;
        life.step = broken.outage.step(now, what, node, None);
        life.lost_memory |= what == What::Replace;
        self.begin_copy(now, node);
    }

    fn take_fault(&mut self, now: u64, node: usize, event: &Event) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let is_primary = node == self.primary;
        let server = &mut self.servers[node];
        match broken.outage.take(now, event, &mut broken.seen[node].life) {
            Turn::Ends { lost, noticed } => {
                if lost {
                    server.machine.storage.drop_host_cache();
                    server.write_back.forget();
                }
                if lost && is_primary {
                    self.dirty.clear();
                }
                if is_primary {
                    self.buffers.empty();
                    self.is_gone(now, noticed);
                }
            }
            Turn::Stops if is_primary => {
                self.is_gone(now, true);
                self.write_all(now);
            }
            Turn::Stops | Turn::Starts => {}
            Turn::Breaks => {
                let storage = &mut server.machine.storage;
                storage.break_data(now, event, &mut self.course.ios);
            }
        }
    }

    /// The primary takes statements no more.
    fn is_gone(&mut self, now: u64, known: bool) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        if known {
            broken.outage.disconnect(now);
        }
        let every_ns = broken.outage.job.follow_ns;
        for (index, seen) in broken.seen.iter_mut().enumerate() {
            if index != self.primary {
                seen.looks_at = Some(now + every_ns);
            }
        }
        self.drop_connections(now, known);
        self.cut_copies_short(now);
    }

    /// A standby that is to become the primary has done so: it has replayed what it had, and writes.
    ///
    /// **Source:** `StartupXLOG` of PostgreSQL 15: a record of the end of recovery, and behind it a checkpoint that is spread.
    /// **Divergence:** what a standby has received it has replayed, and the log goes on where the old primary's ended.
    fn end_promotion(&mut self, now: u64, index: usize) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let is_up = broken.is_up(index);
        let seen = &mut broken.seen[index];
        if !is_up || seen.promoted_at.is_none_or(|at| at > now) {
            return;
        }
        (seen.promoted_at, seen.looks_at) = (None, None);
        broken.outage.story.end(seen.life.step, now);
        let received = self.servers[index].received;
        if let Some(known) = &mut broken.acknowledged {
            broken.lost_updates += known.iter().filter(|&&lsn| lsn > received).count() as u64;
            known.clear();
        }
        self.primary = index;
        let end = self.changes.log;
        for (other, server) in self.servers.iter_mut().enumerate() {
            // Who had as much goes on with the new primary; who had less is sent that.
            let missing = received.saturating_sub(server.received);
            server.log.begin_at(end - missing);
            server.received = end - missing;
            server.confirmed = 0;
            server.on_the_way.0.clear();
            server.on_the_way.1.clear();
            // Who promotes one tells the others.
            if other != index {
                broken.seen[other].looks_at = Some(now);
            }
        }
        self.changes.checkpoints.start(now, end);
        for record in self.history().records {
            if let Record::Change(page) | Record::Whole(page) = record {
                self.has_page(now, page);
            }
        }
        self.changes.begin_checkpoint(now, self.buffers.changed());
    }

    /// A standby that has lost its primary looks for it.
    fn look_for_primary(&mut self, now: u64, index: usize) {
        let serves = self.serves();
        let Some(broken) = &mut self.broken else {
            return;
        };
        let every_ns = broken.outage.job.follow_ns;
        let is_up = broken.is_up(index);
        let seen = &mut broken.seen[index];
        if seen.looks_at.is_none_or(|at| at > now) {
            return;
        }
        seen.looks_at = (!serves || !is_up).then_some(now + every_ns);
        if seen.looks_at.is_none() {
            self.send_log(now, index);
        }
    }

    /// Lets a server that is away go on with coming back.
    fn advance(&mut self, now: u64, index: usize) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let life = &mut broken.seen[index].life;
        let server = &mut self.servers[index];
        match life.phase {
            Phase::Stopping if server.write_back.is_idle() => {
                life.phase = Phase::Starting(now + broken.outage.job.start_ns);
                if index == self.primary {
                    self.buffers.empty();
                }
            }
            Phase::Starting(until) if until <= now => {
                if life.lost_memory && !server.machine.storage.drop_page_cache() {
                    return;
                }
                match life.crashed {
                    true => self.begin_replay(now, index),
                    false => self.comes_back(now, index),
                }
            }
            Phase::Returning(_) => self.return_on(now, index),
            _ => {}
        }
    }

    /// The replay of a server that is replaying its log.
    pub(super) fn replay_of(&mut self, index: usize) -> Option<&mut Replay> {
        match self.broken.as_mut()?.seen[index].life.work()? {
            Work::Replaying(replay) => Some(replay),
            Work::Copying(_) => None,
        }
    }

    /// The copy of a server that is getting one.
    pub(super) fn copy_at(&mut self, index: usize) -> Option<&mut Copying> {
        match self.broken.as_mut()?.seen[index].life.work()? {
            Work::Copying(copy) => Some(copy),
            Work::Replaying(_) => None,
        }
    }

    /// Takes the replay out of a server, so that it and the server can be used beside each other.
    pub(super) fn take_replay(&mut self, index: usize) -> Option<Box<Replay>> {
        self.replay_of(index)?;
        match self.broken.as_mut()?.seen[index].life.take_work()? {
            Work::Replaying(replay) => Some(replay),
            Work::Copying(_) => unreachable!("it replays its log"),
        }
    }

    /// Takes the copy out of a server, so that it and the servers can be used beside each other.
    pub(super) fn take_copy(&mut self, index: usize) -> Option<Box<Copying>> {
        self.copy_at(index)?;
        match self.broken.as_mut()?.seen[index].life.take_work()? {
            Work::Copying(copy) => Some(copy),
            Work::Replaying(_) => unreachable!("it gets a copy"),
        }
    }

    pub(super) fn put_replay(&mut self, index: usize, replay: Box<Replay>) {
        self.put_work(index, Work::Replaying(replay));
    }

    pub(super) fn put_copy(&mut self, index: usize, copy: Box<Copying>) {
        self.put_work(index, Work::Copying(copy));
    }

    fn put_work(&mut self, index: usize, work: Work) {
        if let Some(broken) = &mut self.broken {
            broken.seen[index].life.phase = Phase::Returning(work);
        }
    }

    /// A part of the log, of the data or of a copy has been read.
    pub(super) fn piece_read(&mut self, now: u64, index: usize, piece: u32) {
        match copy_of(piece) {
            Some((target, round)) => self.copy_read(now, target, round),
            None => self.replay_read(now, index, piece),
        }
    }

    /// Goes on with what brings a server back.
    pub(super) fn return_on(&mut self, now: u64, index: usize) {
        self.replay_on(now, index);
        self.copy_on(now, index);
    }

    /// A server has its data as its log says, and serves, or follows.
    pub(super) fn comes_back(&mut self, now: u64, index: usize) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let seen = &mut broken.seen[index];
        broken.outage.back(now, &mut seen.life);
        if index != self.primary {
            // It connects when it starts.
            seen.looks_at = Some(now);
            return self.look_for_primary(now, index);
        }
        self.changes.start(now);
        // Clients that still wait for the machine that vanished learn that it does not know their connections.
        self.drop_connections(now, true);
    }

    /// What the faults did; None: there were none.
    pub(super) fn fault_report(&mut self) -> Option<FaultReport> {
        let now = self.course.recorder.measured_to();
        for index in 0..self.servers.len() {
            self.tell_replay(now, index);
            self.tell_copy(now, index);
        }
        let broken = self.broken.as_ref()?;
        let left_ns = |node: usize| match &broken.seen[node].life.phase {
            Phase::Starting(until) => until.saturating_sub(now),
            Phase::Returning(Work::Replaying(replay)) => {
                let pages = self.servers[node].write_back.waiting();
                replay.left_ns(now, pages)
            }
            Phase::Returning(Work::Copying(copy)) => {
                let waiting = self.servers[node].write_back.unwritten();
                let most = self.rules.most_dirty as u64;
                copy.left_ns(now, waiting, most) + broken.outage.job.start_ns
            }
            _ => broken.outage.job.start_ns,
        };
        Some(FaultReport {
            lost_updates: broken.acknowledged.as_ref().map(|_| broken.lost_updates),
            ..broken.outage.story.report(now, |step| left_ns(step.node))
        })
    }

    /// What the log holds to be replayed.
    pub(super) fn history(&mut self) -> History {
        self.changes.history.clone().unwrap_or_default()
    }
}
