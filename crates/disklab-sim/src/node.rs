//! One node: its cores, slots, network and storage.

use crate::background::Background;
use crate::machine::Machine;
use crate::pauses::{Garbage, Pauses};
use crate::permutation::Permutation;
use crate::station::Slots;

/// A node of the cluster.
#[derive(Clone)]
pub struct Node {
    /// vCPUs, network, disks and caches.
    pub machine: Machine,
    /// `concurrent_reads`.
    pub read_slots: Slots,
    /// `concurrent_writes`.
    pub write_slots: Slots,
    /// Flush, compaction, commit log.
    pub background: Background,
    /// Its pauses.
    pub pauses: Pauses,
    /// Rows of the table that it stores at first.
    pub rows: Permutation,
    /// Those that its files have room for: what it gets later as well.
    pub room_rows: u64,
}

impl Node {
    /// How long what comes now waits for the end of a pause.
    #[inline]
    pub fn paused(&self, now: u64) -> u64 {
        self.pauses.until().saturating_sub(now)
    }

    /// Begins a pause when a request fills the young generation.
    #[inline]
    pub fn take_request(&mut self, now: u64, garbage: Garbage) {
        if let Some(span) = self.pauses.count(now, garbage) {
            self.machine.cores.pause(now, span);
        }
    }

    /// Comes to a safepoint, if one is due for which a thread does not stop.
    pub fn reach_safepoint(&mut self, now: u64) {
        if let Some(span) = self.pauses.safepoint(now) {
            self.machine.cores.pause(now, span);
        }
    }
}
