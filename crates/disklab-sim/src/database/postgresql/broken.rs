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
use super::basebackup::{Copied, Copying};
use super::changes::{History, Record};
use super::extension::Extension;
use super::files::Files;
use super::replay::Replay;
use crate::database::outage::Outage;
use crate::database::sessions::Sessions;
use crate::faults::FaultReport;
use crate::job::faults::{Event, What};
use crate::job::{Cluster, SqlFaults};

/// What a server does.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// It serves, or follows.
    Up,
    /// Nothing.
    Away,
    /// It writes what has changed before it ends.
    Stopping,
    /// It gets a copy of the primary's data.
    Copying(Box<Copying>),
    /// Its process starts.
    Starting(u64),
    /// It brings its data up to the end of its log.
    Replaying(Box<Replay>),
}

/// A server.
#[derive(Debug)]
pub(super) struct Seen {
    pub phase: Phase,
    /// The step that brings it back.
    step: usize,
    pub lost_memory: bool,
    /// Whether there is a log to be replayed: it did not end in order.
    pub crashed: bool,
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
        let up = || Seen {
            phase: Phase::Up,
            step: 0,
            lost_memory: false,
            crashed: false,
            looks_at: None,
            rounds: 0,
            is_part: false,
            copied: None,
            promoted_at: None,
        };
        Broken {
            seen: (0..cluster.nodes).map(|_| up()).collect(),
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
        matches!(self.seen[server].phase, Phase::Up)
    }

    /// Whether some server is away.
    pub fn is_degraded(&self) -> bool {
        (0..self.seen.len()).any(|server| !self.is_up(server))
    }

    /// A server is back.
    pub fn returns(&mut self, now: u64, server: usize) {
        let seen = &mut self.seen[server];
        seen.phase = Phase::Up;
        seen.crashed = false;
        self.outage.end(seen.step, now);
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
        let is_without = |phase: &Phase| matches!(phase, Phase::Away | Phase::Copying(_));
        let broken = self.broken.as_ref();
        index == self.primary || broken.is_none_or(|one| !is_without(&one.seen[index].phase))
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
    pub(super) fn take_faults(&mut self, now: u64) {
        while let Some(broken) = &mut self.broken
            && let Some(event) = broken.outage.due(now)
        {
            self.take_fault(now, &event);
        }
        self.expire(now);
        for index in 0..self.servers.len() {
            self.advance(now, index);
            self.look_for_primary(now, index);
            self.end_promotion(now, index);
        }
    }

    fn take_fault(&mut self, now: u64, event: &Event) {
        let (node, what) = (event.node as usize, event.what);
        let broken = self.broken.as_mut().expect("there is a timetable");
        let known = what != What::Lose || !broken.outage.job.vanishes;
        let starts_at = now + broken.outage.job.start_ns;
        match what {
            What::Kill | What::Lose => {
                broken.outage.step(now, what, node, Some(now));
                let seen = &mut broken.seen[node];
                // Also while it stops, starts or replays.
                seen.crashed |= !matches!(seen.phase, Phase::Away);
                seen.phase = Phase::Away;
                if what == What::Lose {
                    seen.lost_memory = true;
                    self.servers[node].storage.drop_host_cache();
                    self.servers[node].write_back.forget();
                    if node == self.primary {
                        self.dirty.clear();
                    }
                }
                if node == self.primary {
                    self.buffers.empty();
                    self.is_gone(now, known);
                }
            }
            What::Restart => {
                let step = broken.outage.step(now, what, node, None);
                let seen = &mut broken.seen[node];
                (seen.step, seen.phase, seen.lost_memory) = (step, Phase::Stopping, true);
                if node == self.primary {
                    self.is_gone(now, true);
                    self.write_all(now);
                }
            }
            What::Replace => {
                let step = broken.outage.step(now, what, node, None);
                let seen = &mut broken.seen[node];
                (seen.step, seen.lost_memory) = (step, true);
                self.begin_copy(now, node);
            }
            What::Promote => {
                let step = broken.outage.step(now, what, node, None);
                let at = now + broken.outage.job.promote_ns;
                let seen = &mut broken.seen[node];
                (seen.step, seen.promoted_at) = (step, Some(at));
            }
            What::Start if broken.seen[node].is_part => {
                // Its data directory is a part of a copy, from which no server starts.
                let step = broken.outage.step(now, what, node, None);
                broken.seen[node].step = step;
                self.begin_copy(now, node);
            }
            What::Start => {
                let step = broken.outage.step(now, what, node, None);
                let seen = &mut broken.seen[node];
                (seen.step, seen.phase) = (step, Phase::Starting(starts_at));
            }
            _ => {
                broken.outage.step(now, what, node, Some(now));
                self.servers[node]
                    .storage
                    .break_data(now, event, &mut self.course.ios);
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
        broken.outage.end(seen.step, now);
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

    /// A server has its data as its log says, and serves, or follows.
    pub(super) fn comes_back(&mut self, now: u64, index: usize) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        broken.returns(now, index);
        if index != self.primary {
            // It connects when it starts.
            broken.seen[index].looks_at = Some(now);
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
        let left_ns = |node: usize| match &broken.seen[node].phase {
            Phase::Starting(until) => until.saturating_sub(now),
            Phase::Replaying(replay) => {
                let pages = self.servers[node].write_back.waiting();
                replay.left_ns(now, pages)
            }
            Phase::Copying(copy) => {
                let waiting = self.servers[node].write_back.unwritten();
                let most = self.rules.most_dirty as u64;
                copy.left_ns(now, waiting, most) + broken.outage.job.start_ns
            }
            _ => broken.outage.job.start_ns,
        };
        Some(FaultReport {
            lost_updates: broken.acknowledged.as_ref().map(|_| broken.lost_updates),
            ..broken.outage.report(now, left_ns)
        })
    }

    /// What the log holds to be replayed.
    pub(super) fn history(&mut self) -> History {
        self.changes.history.clone().unwrap_or_default()
    }
}
