//! Operations in flight: each slot has at most one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use disklab_units::{Duration, Instant};

use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::pacing::Pacing;
use crate::record::Record;
use crate::workloads::{Failure, Workload};

/// A closed-loop slot waits so long after a failure: a database that refuses at once would else get, and this
/// process make, hundreds of thousands of failures a second.
const PAUSE_AFTER_FAILURE: std::time::Duration = std::time::Duration::from_millis(10);

/// What all slots of a generator share. One thread, so cells do.
pub struct Shared<W> {
    /// What the operations are.
    pub workload: W,
    /// When they start.
    pub pacing: Pacing,
    /// When each slot's operation began.
    pub deadlines: Vec<Deadline>,
    /// The longest that an operation may take.
    pub timeout: Duration,
    /// The clock of the run.
    pub clock: Clock,
    /// Whether intended starts are decided beforehand: by a rate, or by terminals.
    pub paced: bool,
    /// What happened since it was last taken away.
    pub record: RefCell<Record>,
    /// Operations under way.
    pub in_flight: Cell<u64>,
    /// When an operation last succeeded; the run's start before the first.
    pub last_success: Cell<Instant>,
    /// Failures since then.
    pub failed_since: Cell<u64>,
    /// When the last operation ended.
    pub last_end: Cell<Instant>,
}

impl<W: Workload> Shared<W> {
    /// Does operations one after another until the run ends.
    pub async fn slot(self: Rc<Shared<W>>, number: usize) {
        while let Some(start) = self.pacing.next().await {
            let step = self.workload.draw(start.terminal.unwrap_or(number));
            let kind = self.workload.kind(step);
            let intended = start.intended;
            let sent = if self.paced {
                self.clock.now()
            } else {
                intended
            };
            self.in_flight.set(self.in_flight.get() + 1);
            let operation = self.workload.perform(number, step);
            let outcome = self.deadlines[number].guard(sent, operation).await;
            let outcome = outcome.unwrap_or_else(|| Err(self.timed_out()));
            let end = self.clock.now();
            self.in_flight.set(self.in_flight.get() - 1);
            self.last_end.set(end);
            let failed = outcome.is_err();
            self.note(kind, outcome, [intended, sent, end]);
            if let Some(terminal) = start.terminal {
                let rest = self.workload.rest(terminal);
                self.pacing.rested(terminal, end.saturating_add(rest));
            }
            if failed && !self.paced {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }

    /// Gives up what has taken too long.
    pub fn expire(&self) {
        let spans = self.clock.now().saturating_since(Instant::EPOCH);
        let limit = Instant::EPOCH.saturating_add(spans.saturating_sub(self.timeout));
        for deadline in &self.deadlines {
            deadline.expire(limit);
        }
    }

    fn timed_out(&self) -> Failure {
        Failure {
            kind: "client_timeout".into(),
            text: format!("no answer within {}", self.timeout),
        }
    }

    fn note(&self, kind: usize, outcome: Result<(), Failure>, times: [Instant; 3]) {
        let [intended, sent, end] = times;
        let mut record = self.record.borrow_mut();
        if self.paced {
            record.lateness.record(sent.saturating_since(intended));
        }
        match outcome {
            Ok(()) => {
                self.last_success.set(end);
                self.failed_since.set(0);
                let kind = &mut record.kinds[kind];
                kind.response.record(end.saturating_since(intended));
                if self.paced {
                    kind.service.record(end.saturating_since(sent));
                }
            }
            Err(failure) => {
                self.failed_since.set(self.failed_since.get() + 1);
                record.fail(kind, failure.kind, failure.text);
            }
        }
    }

    /// How long nothing has succeeded though something was tried; zero when all is well.
    pub fn fruitless(&self) -> Duration {
        if self.failed_since.get() == 0 {
            return Duration::ZERO;
        }
        self.clock.now().saturating_since(self.last_success.get())
    }
}
