//! One node: its cores, slots, pauses, network and storage.

use disklab_units::random::Stream;

use crate::background::Background;
use crate::chance::{exponential, work};
use crate::client::Kind;
use crate::job::Parameters;
use crate::network::Link;
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

/// Garbage collection as a server feels it: everything stands still for a while, once so many
/// requests have filled the young generation.
///
/// A pause is as long as what survives takes to be copied. What a read allocates is dead when it has
/// been answered; what a write leaves in the memtable lives until the flush. So the length of a pause
/// follows the writes among the requests before it.
///
/// **Source** of how much pauses vary: in our own rehearsals of 2026-11-21 and 22 (Cassandra 5.0, JDK 17, G1;
/// six runs with 19 to 381 young collections each) they deviate by 0.3 to 0.9 of their mean, by 0.6 in the
/// median run, and what fills the heap between two of them by up to 0.2. Exponential lengths, which deviate by
/// all of their mean, made the 99th percentile of writes half as long again.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// Mean length after reads alone, and after writes alone.
    mean_ns: [u64; 2],
    every: u64,
    left: u64,
    /// Requests since the last pause, by kind.
    seen: [u64; 2],
    until: u64,
    total_ns: u64,
    times: Stream,
}

impl Pauses {
    /// The pauses of node `number`; `none` switches them off.
    pub fn of_node(parameters: &Parameters, number: usize, seed: u64, none: bool) -> Pauses {
        let mean_ns = [parameters.read_pause_ns, parameters.write_pause_ns];
        let every = parameters.pause_every_requests;
        Pauses::new(mean_ns, every, &format!("node {number} pauses"), seed, none)
    }

    fn new(mean_ns: [u64; 2], every: u64, name: &str, seed: u64, none: bool) -> Pauses {
        let mut times = Stream::new(seed, name);
        let every = every.max(1);
        // Machines do not collect at the same time: each starts somewhere in its cycle.
        let left = times.below(every) + 1;
        Pauses {
            mean_ns: if none { [0, 0] } else { mean_ns },
            every,
            left,
            seen: [0, 0],
            until: 0,
            total_ns: 0,
            times,
        }
    }

    /// Counts a request; returns the length of the pause that begins with it, if one does.
    #[inline]
    pub fn count(&mut self, now: u64, kind: Kind) -> Option<u64> {
        if self.mean_ns == [0, 0] {
            return None;
        }
        self.seen[kind as usize] += 1;
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        // The young generation is as large every time, what a request allocates varies: the
        // number of requests between two pauses varies little, the live data that is copied more.
        self.left = (self.every * 9 / 10).max(1) + exponential(&mut self.times, self.every / 10);
        let [reads, writes] = std::mem::take(&mut self.seen).map(u128::from);
        let [after_reads, after_writes] = self.mean_ns.map(u128::from);
        let mean_ns = (reads * after_reads + writes * after_writes) / (reads + writes);
        let span = work(&mut self.times, mean_ns as u64);
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
    /// How long what comes now waits for the end of a pause.
    #[inline]
    pub fn paused(&self, now: u64) -> u64 {
        self.pauses.until().saturating_sub(now)
    }

    /// Begins a pause when a request fills the young generation.
    #[inline]
    pub fn take_request(&mut self, now: u64, kind: Kind) {
        if let Some(span) = self.pauses.count(now, kind) {
            self.cores.pause(now, span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time in pauses of a node with a pause of 1 ms after reads and 10 ms after writes, one each
    /// 1000 requests.
    fn paused_ns(kinds: impl Iterator<Item = Kind>) -> u64 {
        let mut pauses = Pauses::new([1_000_000, 10_000_000], 1_000, "test", 7, false);
        for kind in kinds {
            pauses.count(0, kind);
        }
        pauses.total_ns()
    }

    #[test]
    fn writes_make_pauses_longer() {
        let count = 2_000_000;
        let reads = paused_ns(std::iter::repeat_n(Kind::Read, count));
        let writes = paused_ns(std::iter::repeat_n(Kind::Write, count));
        let both = paused_ns((0..count).map(|n| if n % 2 == 0 { Kind::Read } else { Kind::Write }));
        // 2000 exponential times: their mean is known to 2 %, four of these deviations are allowed.
        for (seen, mean_ns) in [(reads, 1e6), (writes, 1e7), (both, 5.5e6)] {
            let ratio = seen as f64 / (mean_ns * 2000.0);
            assert!((ratio - 1.0).abs() < 0.1, "{ratio} of {mean_ns}");
        }
    }

    #[test]
    fn pauses_that_are_off_never_begin() {
        let mut pauses = Pauses::new([1, 1], 1, "test", 7, true);
        assert!((0..100).all(|now| pauses.count(now, Kind::Write).is_none()));
    }
}
