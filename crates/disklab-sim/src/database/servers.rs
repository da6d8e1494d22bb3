//! Servers of a database that go away and come back.
//!
//! What clients make of it is in [`outage`](super::outage). A killed server leaves what its disks hold. It comes back when its
//! process has started and its data are as its log says; one that was restarted in order has written all of it before.

use super::outage::Outage;
use crate::job::ServerJob;
use crate::job::faults::{Event, What};
use crate::report::FaultReport;

/// What a server does; `W`: what it comes back by.
#[derive(Debug)]
pub enum Phase<W> {
    /// It serves, or follows.
    Up,
    /// Nothing.
    Away,
    /// It writes what has changed before it ends.
    Stopping,
    /// Its process starts.
    Starting(u64),
    /// It gets its data, or brings them up to the end of its log.
    Returning(W),
}

/// A server.
#[derive(Debug)]
pub struct Life<W> {
    pub phase: Phase<W>,
    /// The step that brings it back.
    pub step: usize,
    /// Whether there is a log to be replayed: it did not end in order.
    pub crashed: bool,
    pub lost_memory: bool,
}

impl<W> Default for Life<W> {
    fn default() -> Life<W> {
        Life {
            phase: Phase::Up,
            step: 0,
            crashed: false,
            lost_memory: false,
        }
    }
}

impl<W> Life<W> {
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }

    /// What it comes back by.
    pub fn work(&mut self) -> Option<&mut W> {
        match &mut self.phase {
            Phase::Returning(work) => Some(work),
            _ => None,
        }
    }

    /// The same, out of it, so that it and the server can be used beside each other.
    pub fn take_work(&mut self) -> Option<W> {
        match std::mem::replace(&mut self.phase, Phase::Away) {
            Phase::Returning(work) => Some(work),
            other => {
                self.phase = other;
                None
            }
        }
    }
}

/// What is left to be done for an event.
pub enum Turn {
    /// The server ends at once: with its machine if it is `lost`, and its clients know if that is `noticed`.
    Ends { lost: bool, noticed: bool },
    /// It takes nothing any more, and writes what has changed.
    Stops,
    /// Its process starts.
    Starts,
    /// Its disks break, or mend.
    Breaks,
}

impl Outage {
    /// Lets something happen to a server.
    pub fn take<W>(&mut self, now: u64, event: &Event, life: &mut Life<W>) -> Turn {
        let what = event.what;
        let returns = matches!(what, What::Start | What::Restart | What::Replace);
        let step = self.step(now, what, event.node as usize, (!returns).then_some(now));
        if returns {
            life.step = step;
        }
        match what {
            What::Kill | What::Lose => {
                let lost = what == What::Lose;
                // Also while it stops, starts or recovers.
                life.crashed |= !matches!(life.phase, Phase::Away);
                life.phase = Phase::Away;
                life.lost_memory |= lost;
                let noticed = !(lost && self.job.vanishes);
                Turn::Ends { lost, noticed }
            }
            What::Restart => {
                (life.phase, life.lost_memory) = (Phase::Stopping, true);
                Turn::Stops
            }
            What::Start | What::Replace => {
                life.phase = Phase::Starting(now + self.job.start_ns);
                Turn::Starts
            }
            _ => Turn::Breaks,
        }
    }

    /// A server has its data as its log says: it serves, or follows.
    pub fn back<W>(&mut self, now: u64, life: &mut Life<W>) {
        (life.phase, life.crashed, life.lost_memory) = (Phase::Up, false, false);
        self.story.end(life.step, now);
    }
}

/// Servers that have each other's data, and which of them are there.
///
/// **Divergence:** one that comes back has what the others have as soon as its process answers.
pub struct Members {
    pub outage: Outage,
    lives: Vec<Life<()>>,
}

impl Members {
    /// Those of a job, which are well; `from`: when measuring begins. None: nothing breaks.
    pub fn new<S, P, T, W>(
        job: &ServerJob<S, P, T, W>,
        from: u64,
        seed: u64,
    ) -> Option<Box<Members>> {
        let faults = job.faults.as_ref()?;
        Some(Box::new(Members {
            outage: Outage::new(faults, &job.cluster.host, from, seed),
            lives: (0..job.cluster.nodes).map(|_| Life::default()).collect(),
        }))
    }

    /// Whether a member is there.
    #[inline]
    pub fn has(&self, member: usize) -> bool {
        self.lives[member].is_up()
    }

    /// Whether some member is away.
    pub fn is_degraded(&self) -> bool {
        !self.lives.iter().all(Life::is_up)
    }

    /// Lets something happen to a member.
    pub fn take(&mut self, now: u64, event: &Event) -> Turn {
        let life = &mut self.lives[event.node as usize];
        let turn = self.outage.take(now, event, life);
        if matches!(turn, Turn::Stops) {
            life.phase = Phase::Starting(now + self.outage.job.start_ns);
        }
        turn
    }

    /// Those whose processes have started are there again.
    pub fn bring_back(&mut self, now: u64) {
        for life in &mut self.lives {
            if matches!(life.phase, Phase::Starting(at) if at <= now) {
                self.outage.back(now, life);
            }
        }
    }

    /// What the faults did.
    pub fn report(&self, now: u64) -> FaultReport {
        let start_ns = self.outage.job.start_ns;
        self.outage.story.report(now, |_| start_ns)
    }
}
