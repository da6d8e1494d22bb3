//! What is told of a run in which nodes were away: its course, its steps, its rebuilds.

use hdrhistogram::Histogram;

use crate::job::faults::What;
use crate::record::histogram;
use crate::report::{CourseReport, FaultReport, RebuildReport, StepReport, latencies};

/// How often a timetable is looked at: events, time-outs and phases are as exact as that.
pub const LOOK_NS: u64 = 10_000_000;

/// Something that happened to a node.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub what: What,
    /// By which number the timetable names it.
    pub seat: usize,
    /// The node that ends it.
    pub node: usize,
    pub begun: u64,
    pub ended: Option<u64>,
}

/// What happened in a run with a timetable, since measuring began.
#[derive(Clone)]
pub struct Story {
    /// When that was.
    pub from: u64,
    pub steps: Vec<Step>,
    pub rebuilds: Vec<RebuildReport>,
    /// Operations that nobody took.
    pub refused: u64,
    interval_ns: u64,
    /// Operations by interval, and the latencies of those that ended while some node was away.
    completed: Vec<u64>,
    failed: Vec<u64>,
    degraded: Histogram<u64>,
    degraded_sum: u128,
}

impl Story {
    /// Nothing yet; `from`: when measuring begins.
    pub fn new(interval_ns: u64, from: u64) -> Story {
        Story {
            from,
            steps: Vec::new(),
            rebuilds: Vec::new(),
            refused: 0,
            interval_ns: interval_ns.max(1),
            completed: Vec::new(),
            failed: Vec::new(),
            degraded: histogram(),
            degraded_sum: 0,
        }
    }

    /// Notes a step of a node and its seat, and returns its number; `ended`: None where it goes on.
    pub fn step(
        &mut self,
        now: u64,
        what: What,
        (node, seat): (usize, usize),
        ended: Option<u64>,
    ) -> usize {
        self.steps.push(Step {
            what,
            seat,
            node,
            begun: now,
            ended,
        });
        self.steps.len() - 1
    }

    /// A step is over.
    pub fn end(&mut self, step: usize, now: u64) {
        self.steps[step].ended = Some(now);
    }

    /// An operation has succeeded; `degraded`: while some node was away.
    pub fn succeeded(&mut self, now: u64, started: u64, degraded: bool) {
        let Some(at) = now.checked_sub(self.from) else {
            return;
        };
        *entry(&mut self.completed, at / self.interval_ns) += 1;
        if degraded {
            self.degraded.saturating_record(now - started);
            self.degraded_sum += u128::from(now - started);
        }
    }

    /// An operation has failed.
    pub fn failed(&mut self, now: u64) {
        if let Some(at) = now.checked_sub(self.from) {
            *entry(&mut self.failed, at / self.interval_ns) += 1;
        }
    }

    /// What is told of it; `left_ns`: how long a step still takes that has not ended.
    pub fn report(&self, now: u64, left_ns: impl Fn(&Step) -> u64) -> FaultReport {
        let seconds = |at: u64| at.saturating_sub(self.from) as f64 / 1e9;
        let steps = self.steps.iter().map(|step| StepReport {
            what: step.what,
            node: step.seat as u32,
            begun_s: seconds(step.begun),
            ended_s: seconds(step.ended.unwrap_or_else(|| now + left_ns(step))),
            extrapolated: step.ended.is_none(),
        });
        // The last interval that is not whole is left out.
        let whole = (now.saturating_sub(self.from) / self.interval_ns) as usize;
        let padded = |counts: &[u64]| {
            let mut all = counts.to_vec();
            all.resize(whole, 0);
            all
        };
        let degraded = latencies(&self.degraded, self.degraded_sum);
        FaultReport {
            course: CourseReport {
                interval_s: self.interval_ns as f64 / 1e9,
                completed: padded(&self.completed),
                failed: padded(&self.failed),
            },
            failed_operations: self.failed.iter().sum(),
            unavailable: self.refused,
            degraded_latency_ms: (!self.degraded.is_empty()).then_some(degraded),
            steps: steps.collect(),
            rebuilds: self.rebuilds.clone(),
            hint_bytes: 0,
            lost_rows: 0,
            lost_updates: None,
        }
    }
}

fn entry(counts: &mut Vec<u64>, at: u64) -> &mut u64 {
    let at = at as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    &mut counts[at]
}
