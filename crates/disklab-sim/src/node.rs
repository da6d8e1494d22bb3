//! One node: its cores, slots, network and storage.

use crate::background::Background;
use crate::network::Link;
use crate::pauses::{Garbage, Pauses};
use crate::permutation::Permutation;
use crate::station::{Servers, Slots};
use crate::storage::Storage;

/// A node of the cluster.
pub struct Node {
    /// vCPUs.
    pub cores: Servers,
    /// `concurrent_reads`.
    pub read_slots: Slots,
    /// `concurrent_writes`.
    pub write_slots: Slots,
    /// What it sends.
    pub link: Link,
    /// Disks and caches.
    pub storage: Storage,
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
            self.cores.pause(now, span);
        }
    }
}
