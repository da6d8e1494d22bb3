//! What is told of a run in which nodes were away: its course, its steps, its rebuilds.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::job::faults::What;
use crate::record::histogram;
use crate::report::{Latencies, Resource, latencies};

/// How often a timetable is looked at: events, time-outs and phases are as exact as that.
pub const LOOK_NS: u64 = 10_000_000;

/// Operations by interval, and the latencies of those that ended while some node was away.
pub struct Course {
    interval_ns: u64,
    completed: Vec<u64>,
    failed: Vec<u64>,
    degraded: Histogram<u64>,
    degraded_sum: u128,
}

impl Course {
    /// Nothing yet.
    pub fn new(interval_ns: u64) -> Course {
        Course {
            interval_ns: interval_ns.max(1),
            completed: Vec::new(),
            failed: Vec::new(),
            degraded: histogram(),
            degraded_sum: 0,
        }
    }

    /// An operation has ended at `at`, counted from the beginning of what is measured.
    pub fn ended(&mut self, at: u64) {
        *entry(&mut self.completed, at / self.interval_ns) += 1;
    }

    /// One has failed.
    pub fn failed(&mut self, at: u64) {
        *entry(&mut self.failed, at / self.interval_ns) += 1;
    }

    /// One that took so long has ended while a node was away.
    pub fn degraded(&mut self, time_ns: u64) {
        self.degraded.saturating_record(time_ns);
        self.degraded_sum += u128::from(time_ns);
    }

    /// What is told of it, for a run that measured so long.
    pub fn report(&self, elapsed_ns: u64) -> CourseReport {
        // The last interval that is not whole is left out.
        let whole = (elapsed_ns / self.interval_ns) as usize;
        let padded = |counts: &[u64]| {
            let mut all = counts.to_vec();
            all.resize(whole, 0);
            all
        };
        CourseReport {
            interval_s: self.interval_ns as f64 / 1e9,
            completed: padded(&self.completed),
            failed: padded(&self.failed),
        }
    }

    /// Operations that failed.
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Latencies while some node was away; none: none ended then.
    pub fn degraded_latencies(&self) -> Option<Latencies> {
        let found = latencies(&self.degraded, self.degraded_sum);
        (!self.degraded.is_empty()).then_some(found)
    }
}

fn entry(counts: &mut Vec<u64>, at: u64) -> &mut u64 {
    let at = at as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    &mut counts[at]
}

/// What the faults of a timetable did.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// Operations by interval.
    pub course: CourseReport,
    /// All operations that failed.
    pub failed_operations: u64,
    /// Of these: those that found too few replicas alive, and were told so at once.
    pub unavailable: u64,
    /// Latencies of what succeeded while some node was away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded_latency_ms: Option<Latencies>,
    /// The timetable's steps, in the order of their beginning.
    pub steps: Vec<StepReport>,
    /// What was streamed or replayed.
    pub rebuilds: Vec<RebuildReport>,
    /// Bytes of mutations that coordinators kept for nodes that were away.
    pub hint_bytes: u64,
    /// Rows of which no copy is left.
    pub lost_rows: u64,
    /// Updates that clients know of and a standby that became the primary had not; absent: none became one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_updates: Option<u64>,
}

/// Operations by interval.
#[derive(Clone, Debug, Serialize)]
pub struct CourseReport {
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Those that succeeded, by interval.
    pub completed: Vec<u64>,
    /// Those that failed.
    pub failed: Vec<u64>,
}

/// A step of a timetable, in seconds from the beginning of what is measured.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// What happened.
    pub what: What,
    /// To which node, from zero.
    pub node: u32,
    /// When.
    pub begun_s: f64,
    /// When it was over: the node serves again.
    pub ended_s: f64,
    /// Whether the run ended before, so that `ended_s` goes on with the rate that was seen.
    pub extrapolated: bool,
}

/// Data that came back to a node.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildReport {
    /// Which node, from zero.
    pub node: u32,
    /// `stream` from other nodes or `replay` of its own log.
    pub kind: &'static str,
    /// Bytes in all.
    pub bytes: u64,
    /// Of these, what came during the run.
    pub done_bytes: u64,
    /// Rate over that time.
    pub bytes_per_s: f64,
    /// How long all of it takes.
    pub seconds: f64,
    /// How many nodes sent it.
    pub sources: u32,
    /// What bound it.
    pub bound: Resource,
}
