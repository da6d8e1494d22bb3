//! What the driver keeps about each volume.

use std::collections::BTreeMap;

use disklab_disk::{Op, Operations, VolumeId};
use disklab_units::Duration;

use crate::backing::Backing;
use crate::command::LatenessSummary;
use crate::issue_times::DeviceNumber;
use crate::lateness::Lateness;

/// A reply later than the model's time by more than this counts as late: half of the smallest latency that
/// the emulator promises to keep (100 us).
const TOLERANCE: Duration = Duration::from_micros(50);

/// Who decides when an I/O ends.
#[derive(Clone, Copy, Debug)]
pub enum Timed {
    /// The model, which knows the volume by this number.
    Model(VolumeId),
    /// Nobody: each takes this long.
    Constant(Duration),
}

/// One volume.
pub struct Volume {
    pub timed: Timed,
    pub size: u64,
    pub backing: Backing,
    /// Whose issue times are recorded.
    pub device: Option<DeviceNumber>,
    pub timed_from_issue: u64,
    pub replies: u64,
    pub late_replies: u64,
    pub lateness: Lateness,
    /// From issue to reply, by kind of I/O.
    pub latencies: [Lateness; 4],
    pub backing_reads: u64,
    pub backing_writes: u64,
    /// I/Os that ended well for the model and failed here.
    failed: [u64; 4],
    /// That this machine failed some of its data has been reported.
    pub told: bool,
}

impl Volume {
    pub fn new(timed: Timed, size: u64, backing: Backing) -> Volume {
        Volume {
            timed,
            size,
            backing,
            device: None,
            timed_from_issue: 0,
            replies: 0,
            late_replies: 0,
            lateness: Lateness::default(),
            latencies: Default::default(),
            backing_reads: 0,
            backing_writes: 0,
            failed: [0; 4],
            told: false,
        }
    }

    /// Counts an I/O as failed that the model counts as done.
    pub fn failed_here(&mut self, op: Op) {
        self.failed[op as usize] += 1;
    }

    /// Adds to the model's counts what failed here.
    pub fn add_failed(&self, operations: &mut Operations) {
        operations.read.failed += self.failed[Op::Read as usize];
        operations.write.failed += self.failed[Op::Write as usize];
        operations.flush.failed += self.failed[Op::Flush as usize];
        operations.discard.failed += self.failed[Op::Discard as usize];
    }

    /// What I/Os took, by their kind; a kind that did not occur is left out.
    pub fn latency_summaries(&self) -> BTreeMap<&'static str, LatenessSummary> {
        let kinds = [
            (Op::Read, "read"),
            (Op::Write, "write"),
            (Op::Flush, "flush"),
            (Op::Discard, "discard"),
        ];
        kinds
            .into_iter()
            .map(|(op, name)| (name, &self.latencies[op as usize]))
            .filter(|(_, counted)| counted.buckets().next().is_some())
            .map(|(name, counted)| (name, LatenessSummary::of(counted)))
            .collect()
    }

    /// Counts by how much a reply was late that had to wait, in the described system's time.
    pub fn waited(&mut self, late: Duration) {
        self.lateness.record(late);
        self.late_replies += u64::from(late > TOLERANCE);
    }
}
