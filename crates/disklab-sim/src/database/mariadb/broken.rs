//! A server that goes away and comes back.
//!
//! It leaves what its disks hold: the tables as they were at its last checkpoint or later, and the redo log behind it. How it comes
//! back is in [`recovery`](super::recovery). One that is restarted writes all changed pages first, and has nothing to recover. Either
//! begins with an empty pool.

use super::Mariadb;
use super::applier::OTHER;
use super::job::MariadbJob;
use super::latch::Latch;
use super::peers::Peers;
use super::recovery::Recovery;
use crate::database::outage::Outage;
use crate::database::servers::{Life, Phase, Turn};
use crate::database::sessions::Sessions;
use crate::job::faults::{Event, What};
use crate::report::FaultReport;

/// What a run with faults knows.
pub(super) struct Broken {
    pub outage: Outage,
    pub life: Life<Box<Recovery>>,
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
            life: Life::default(),
            checkpoint: 0,
            changed: vec![0; pages as usize],
            peers: Peers::default(),
        }))
    }

    /// Whether some server is away.
    pub fn is_degraded(&self) -> bool {
        !self.life.is_up() || self.peers.is_one_away()
    }
}

impl Mariadb {
    /// Whether it takes statements.
    pub(super) fn is_up(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_none_or(|broken| broken.life.is_up())
    }

    /// Whether pages are written and logs synced.
    pub(super) fn runs(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_none_or(|broken| matches!(broken.life.phase, Phase::Up | Phase::Stopping))
    }

    /// Whether it reads pages for its redo log.
    pub(super) fn recovers(&self) -> bool {
        let broken = self.broken.as_ref();
        broken.is_some_and(|broken| matches!(broken.life.phase, Phase::Returning(_)))
    }

    /// Looks at the timetable.
    pub(super) fn look(&mut self, now: u64) {
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
        let broken = self.broken.as_mut().expect("there is a timetable");
        match broken.outage.take(now, event, &mut broken.life) {
            Turn::Ends { lost, noticed } => {
                if lost {
                    self.machine.storage.drop_host_cache();
                }
                self.flushing.forget(broken.checkpoint);
                self.is_gone(now, noticed);
                self.ends();
            }
            Turn::Stops => {
                self.is_gone(now, true);
                self.write_oldest(u64::MAX - 1);
                self.write_on(now);
            }
            Turn::Starts => {}
            Turn::Breaks => {
                let storage = &mut self.machine.storage;
                storage.break_data(now, event, &mut self.course.ios);
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
        applier
            .machine
            .storage
            .break_data(now, event, &mut self.course.ios);
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
        let storage = &mut self.machine.storage;
        storage.renumber(storage.number().max(OTHER) + 1);
        self.pool.empty();
        self.is_writing.fill(false);
        self.reading.clear();
        self.redo.end_life();
        self.binlog.end_life();
    }

    /// Goes on with coming back.
    fn advance(&mut self, now: u64) {
        let is_written = self.flushing.is_idle() && self.redo.is_idle() && self.binlog.is_idle();
        let age = self.flushing.age(self.redo.end);
        let Some(broken) = &mut self.broken else {
            return;
        };
        match broken.life.phase {
            Phase::Stopping if is_written && age > 0 => {
                self.write_oldest(u64::MAX - 1);
                self.write_on(now);
            }
            Phase::Stopping if is_written => {
                broken.life.phase = Phase::Starting(now + broken.outage.job.start_ns);
                broken.checkpoint = self.redo.end;
                self.ends();
            }
            Phase::Starting(until) if until <= now => match broken.life.crashed {
                true => self.begin_recovery(now),
                false => self.comes_back(now),
            },
            _ => {}
        }
    }

    /// The server takes work again.
    pub(super) fn comes_back(&mut self, now: u64) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        broken.outage.back(now, &mut broken.life);
        // Clients that still wait for the machine that vanished learn that it does not know their connections.
        self.close_connections(now, true);
    }

    /// What the faults did; None: there were none.
    pub(super) fn fault_report(&mut self) -> Option<FaultReport> {
        let now = self.course.recorder.measured_to();
        self.tell_recovery(now);
        let broken = self.broken.as_ref()?;
        let start_ns = broken.outage.job.start_ns;
        let left_ns = match &broken.life.phase {
            Phase::Starting(until) => until.saturating_sub(now),
            Phase::Returning(recovery) => recovery.left_ns(now),
            _ => start_ns,
        };
        Some(broken.outage.story.report(now, |_| left_ns))
    }
}
