//! One node: its cores, slots, pauses, network and storage.

use disklab_units::random::Stream;

use crate::background::Background;
use crate::chance::{exponential, work};
use crate::job::Parameters;
use crate::network::Link;
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
    /// When the disk model is due next, as scheduled; `u64::MAX`: not at all.
    pub due: u64,
    /// Rows of the table that it stores.
    pub rows: u64,
}

/// Garbage collection as a server feels it: everything stands still for a while, once so many
/// requests have filled the young generation.
#[derive(Clone, Debug)]
pub struct Pauses {
    mean_ns: u64,
    every: u64,
    left: u64,
    until: u64,
    total_ns: u64,
    times: Stream,
}

impl Pauses {
    /// The pauses of node `number`; `none` switches them off.
    pub fn new(parameters: &Parameters, number: usize, seed: u64, none: bool) -> Pauses {
        let mut times = Stream::new(seed, &format!("node {number} pauses"));
        let every = parameters.pause_every_requests.max(1);
        // Nodes do not collect at the same time: each starts somewhere in its cycle.
        let left = times.below(every) + 1;
        Pauses {
            mean_ns: if none { 0 } else { parameters.pause_ns },
            every,
            left,
            until: 0,
            total_ns: 0,
            times,
        }
    }

    /// Counts a request; returns the length of the pause that begins with it, if one does.
    #[inline]
    pub fn count(&mut self, now: u64) -> Option<u64> {
        if self.mean_ns == 0 {
            return None;
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        // The young generation is as large every time, what a request allocates varies: the
        // number of requests between two pauses varies little, the live data that is copied more.
        self.left = (self.every * 9 / 10).max(1) + exponential(&mut self.times, self.every / 10);
        let span = work(&mut self.times, self.mean_ns);
        self.until = now + span;
        self.total_ns += span;
        Some(span)
    }

    /// When the present pause ends; in the past, if there is none.
    #[inline]
    pub fn until(&self) -> u64 {
        self.until
    }

    /// Time spent in pauses.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Counts anew from here.
    pub fn reset(&mut self) {
        self.total_ns = 0;
    }
}

impl Node {
    /// Begins a pause when a request fills the young generation.
    #[inline]
    pub fn take_request(&mut self, now: u64) {
        if let Some(span) = self.pauses.count(now) {
            self.cores.pause(now, span);
        }
    }
}
