//! A server that goes away and comes back.
//!
//! What its clients make of it is in [`outage`](crate::database::outage). A killed server leaves what its disks hold: the tables as
//! they were at its last checkpoint or later, and the redo log behind it. How it comes back is in [`recovery`](super::recovery).
//! One that is restarted writes all changed pages first, and has nothing to recover. Either begins with an empty pool.

use super::Mariadb;
use super::applier::OTHER;
use super::latch::Latch;
use super::peers::Peers;
use super::recovery::Recovery;
use crate::database::outage::Outage;
use crate::database::sessions::Sessions;
use crate::faults::FaultReport;
use crate::job::MariadbJob;
use crate::job::faults::{Event, What};

/// What the server does.
#[derive(Debug)]
pub(super) enum Phase {
    /// It serves.
    Up,
    /// Nothing.
    Away,
    /// It writes what has changed before it ends.
    Stopping,
    /// Its process starts.
    Starting(u64),
    /// It brings its tables up to the end of its redo log.
    Recovering(Box<Recovery>),
}

/// What a run with faults knows.
pub(super) struct Broken {
    pub outage: Outage,
    pub phase: Phase,
    /// The step that brings it back.
    step: usize,
    /// Whether there is redo log to be applied: it did not end in order.
    pub crashed: bool,
    /// Where recovery begins.
    pub checkpoint: u64,
    /// By page: the end of its last record in the redo log; zero: it has none.
    pub changed: Vec<u64>,
    /// The other servers.
    pub peers: Peers,
}

impl Broken {
    /// A server that is well, of so many pages; None: nothing breaks.
    pub fn new(job: &MariadbJob, pages: u64, seed: u64) -> Option<Box<Broken>> {
        let faults = job.faults.as_ref()?;
        let from = job.workload.warm_up_ns;
        Some(Box::new(Broken {
            outage: Outage::new(faults, &job.cluster.host, from, seed),
            phase: Phase::Up,
            step: 0,
            crashed: false,
            checkpoint: 0,
            changed: vec![0; pages as usize],
            peers: Peers::default(),
        }))
    }

    /// Whether some server is away.
    pub fn is_degraded(&self) -> bool {
        !matches!(self.phase, Phase::Up) || self.peers.is_one_away()
    }
}

impl Mariadb {
    /// Whether it takes statements.
    pub(super) fn is_up(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_none_or(|broken| matches!(broken.phase, Phase::Up))
    }

    /// Whether pages are written and logs synced.
    pub(super) fn runs(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_none_or(|broken| matches!(broken.phase, Phase::Up | Phase::Stopping))
    }

    /// Whether it reads pages for its redo log.
    pub(super) fn recovers(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_some_and(|broken| matches!(broken.phase, Phase::Recovering(_)))
    }

    /// Looks at the timetable.
    pub(super) fn take_faults(&mut self, now: u64) {
        while let Some(broken) = &mut self.broken
            && let Some(event) = broken.outage.due(now)
        {
            match event.node {
                0 => self.take_fault(now, &event),
                _ => self.take_fault_elsewhere(now, &event),
            }
        }
        self.look_at_peers(now);
        self.expire(now);
        self.advance(now);
    }

    fn take_fault(&mut self, now: u64, event: &Event) {
        let what = event.what;
        let broken = self.broken.as_mut().expect("there is a timetable");
        match what {
            What::Kill | What::Lose => {
                broken.outage.step(now, what, 0, Some(now));
                let noticed = what == What::Kill || !broken.outage.job.vanishes;
                // Also while it stops, starts or recovers.
                broken.crashed |= !matches!(broken.phase, Phase::Away);
                broken.phase = Phase::Away;
                if what == What::Lose {
                    self.storage.drop_host_cache();
                }
                self.flushing.forget(broken.checkpoint);
                self.is_gone(now, noticed);
                self.ends();
            }
            What::Restart => {
                broken.step = broken.outage.step(now, what, 0, None);
                broken.phase = Phase::Stopping;
                self.is_gone(now, true);
                self.write_oldest(u64::MAX - 1);
                self.write_on(now);
            }
            What::Start => {
                broken.step = broken.outage.step(now, what, 0, None);
                broken.phase = Phase::Starting(now + broken.outage.job.start_ns);
            }
            _ => {
                broken.outage.step(now, what, 0, Some(now));
                self.storage.break_data(now, event, &mut self.course.ios);
            }
        }
    }

    /// Something happens to another server than the one that takes transactions.
    fn take_fault_elsewhere(&mut self, now: u64, event: &Event) {
        let (server, what) = (event.node as usize, event.what);
        let broken = self.broken.as_mut().expect("there is a timetable");
        broken.outage.step(now, what, server, Some(now));
        if matches!(what, What::Kill | What::Lose) {
            return self.peer_ends(now, server);
        }
        let Some(applier) = &mut self.applier else {
            return;
        };
        applier.storage.break_data(now, event, &mut self.course.ios);
    }

    /// It takes statements no more.
    fn is_gone(&mut self, now: u64, noticed: bool) {
        if let Some(broken) = &mut self.broken
            && noticed
        {
            broken.outage.disconnect(now);
        }
        self.close_connections(now, noticed);
        if let Some(broken) = &mut self.broken {
            broken.peers.forget();
        }
        self.pageless.clear();
        self.stalled.clear();
        self.latches.fill_with(Latch::default);
        if let Some(purge) = &mut self.purge {
            purge.is_gone();
        }
        self.held.clear();
        self.redo.waiting.clear();
        self.binlog.waiting.clear();
        for waiting in self.reading.values_mut() {
            waiting.clear();
        }
    }

    /// Its process has ended: its pool is gone, and nobody looks at I/Os that are under way.
    fn ends(&mut self) {
        // 1 is the number of Galera's other node.
        self.life = self.life.max(OTHER) + 1;
        self.pool.empty();
        self.is_writing.fill(false);
        self.reading.clear();
        self.redo.end_life(self.life);
        self.binlog.end_life(self.life);
    }

    /// Goes on with coming back.
    fn advance(&mut self, now: u64) {
        let is_written = self.flushing.is_idle() && self.redo.is_idle() && self.binlog.is_idle();
        let age = self.flushing.age(self.redo.end);
        let Some(broken) = &mut self.broken else {
            return;
        };
        match broken.phase {
            Phase::Stopping if is_written && age > 0 => {
                self.write_oldest(u64::MAX - 1);
                self.write_on(now);
            }
            Phase::Stopping if is_written => {
                broken.phase = Phase::Starting(now + broken.outage.job.start_ns);
                broken.checkpoint = self.redo.end;
                self.ends();
            }
            Phase::Starting(until) if until <= now => {
                if broken.crashed {
                    return self.begin_recovery(now);
                }
                self.comes_back(now);
            }
            _ => {}
        }
    }

    /// The server takes work again.
    pub(super) fn comes_back(&mut self, now: u64) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        broken.phase = Phase::Up;
        broken.crashed = false;
        broken.outage.end(broken.step, now);
        // Clients that still wait for the machine that vanished learn that it does not know their connections.
        self.close_connections(now, true);
    }

    /// What the faults did; None: there were none.
    pub(super) fn fault_report(&mut self) -> Option<FaultReport> {
        let now = self.course.recorder.measured_to();
        self.tell_recovery(now);
        let broken = self.broken.as_ref()?;
        let start_ns = broken.outage.job.start_ns;
        let left_ns = match &broken.phase {
            Phase::Starting(until) => until.saturating_sub(now),
            Phase::Recovering(recovery) => recovery.left_ns(now),
            _ => start_ns,
        };
        Some(broken.outage.report(now, |_| left_ns))
    }
}
