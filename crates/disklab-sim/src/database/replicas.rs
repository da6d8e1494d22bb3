//! Which replicas a coordinator asks for a read, in which order, and when it asks one more.

use std::collections::VecDeque;

use crate::cluster::MOST_REPLICAS;

const MS: u64 = 1_000_000;

/// How often scores are recomputed. **Source:** `dynamic_snitch_update_interval_in_ms`.
const UPDATE_NS: u64 = 100 * MS;

/// Milliseconds that answers are told apart by; slower ones count as this slow.
const SLOWEST_MS: usize = 255;

/// What is left of an answer's weight at the next update, in permille. **Source:** the reservoir of the dynamic snitch
/// forgets by e^-0.75 a second, by 7.2 % in a tenth of one.
const KEPT_PERMILLE: u64 = 928;

/// A coordinator's answers of one replica: how many took so many whole milliseconds, times a thousand.
#[derive(Clone, Debug)]
struct Answers([u64; SLOWEST_MS + 1]);

impl Answers {
    /// The median in whole milliseconds; none yet: zero.
    fn median_ms(&self) -> u64 {
        let all: u64 = self.0.iter().sum();
        let mut seen = 0;
        let at = self.0.iter().position(|&count| {
            seen += count;
            2 * seen > all
        });
        at.unwrap_or(0) as u64
    }
}

/// Cassandra's dynamic snitch, one for each coordinator: replicas in the order of the snitch beneath, unless one of them
/// has lately been slower than it should be in its place; then in the order of how long they took.
///
/// **Source:** `DynamicEndpointSnitch` of 3.11 to 5.0: medians of whole milliseconds, over the largest of them and one;
/// `sortedByProximityWithBadness`. **Divergence:** all answers count, where the real one keeps a sample of a hundred;
/// nothing is forgotten after ten minutes at once (`dynamic_snitch_reset_interval_in_ms`), and nobody sets a severity.
#[derive(Clone, Debug)]
pub struct Snitch {
    nodes: usize,
    badness_permille: u64,
    answers: Vec<Answers>,
    /// Medians by coordinator and replica.
    medians: Vec<u64>,
    /// Coordinators of which all medians are the same.
    level: Vec<bool>,
    due: u64,
}

impl Snitch {
    /// A snitch that has seen nothing. `share`: by how much a run is shorter than the real one.
    pub fn new(nodes: usize, badness_permille: u32, share: u64) -> Snitch {
        Snitch {
            nodes,
            badness_permille: u64::from(badness_permille),
            answers: vec![Answers([0; SLOWEST_MS + 1]); nodes * nodes],
            medians: vec![0; nodes * nodes],
            level: vec![true; nodes],
            due: UPDATE_NS / share,
        }
    }

    /// Notes a replica's answer to a read.
    #[inline]
    pub fn note(&mut self, coordinator: usize, replica: usize, span_ns: u64) {
        let ms = ((span_ns / MS) as usize).min(SLOWEST_MS);
        self.answers[coordinator * self.nodes + replica].0[ms] += 1000;
    }

    /// Puts replicas that stand in the order of the snitch beneath into the order of this one.
    #[inline]
    pub fn sort(&mut self, now: u64, coordinator: usize, replicas: &mut [u8]) {
        if now >= self.due {
            self.update(now);
        }
        if self.level[coordinator] || replicas.len() < 2 {
            return;
        }
        let medians = &self.medians[coordinator * self.nodes..];
        let of = |&node: &u8| medians[usize::from(node)];
        let mut sorted = [0; MOST_REPLICAS];
        let sorted = &mut sorted[..replicas.len()];
        for (place, node) in sorted.iter_mut().zip(replicas.iter()) {
            *place = of(node);
        }
        sorted.sort_unstable();
        let worst = 1000 + self.badness_permille;
        let mut both = replicas.iter().zip(sorted.iter());
        if both.any(|(node, &best)| of(node) * 1000 > best * worst) {
            replicas.sort_by_key(of);
        }
    }

    fn update(&mut self, now: u64) {
        self.due = now + UPDATE_NS;
        for (answers, median) in self.answers.iter_mut().zip(&mut self.medians) {
            *median = answers.median_ms();
            for count in &mut answers.0 {
                *count = *count * KEPT_PERMILLE / 1000;
            }
        }
        for (level, medians) in self.level.iter_mut().zip(self.medians.chunks(self.nodes)) {
            *level = medians.iter().all(|&median| median == medians[0]);
        }
    }
}

/// How often a threshold is recomputed. **Source:** Cassandra 3.11 to 5.0, `ColumnFamilyStore`: once in
/// `read_request_timeout`, 5 s by default; half of that is the first threshold.
const THRESHOLD_NS: u64 = 5_000 * MS;

/// Bounds of Cassandra's histograms of latencies, from 1 us up, each a fifth above the one before.
/// **Source:** `DecayingEstimatedHistogramReservoir`.
const BOUNDS: usize = 90;

/// A read that may take too long.
#[derive(Clone, Copy, Debug)]
struct Watched {
    deadline: u64,
    operation: u32,
    serial: u32,
}

/// What one coordinator knows of its reads.
#[derive(Clone, Debug)]
struct Reads {
    counts: [u32; BOUNDS],
    threshold_ns: u64,
    /// In the order of their deadlines, as long as the threshold stays.
    watched: VecDeque<Watched>,
}

/// `speculative_retry`: a read that takes longer than a percentile of its coordinator's reads asks one replica more.
///
/// **Source:** `AbstractReadExecutor.SpeculatingReadExecutor`. **Divergence:** old reads are not forgotten.
#[derive(Clone, Debug)]
pub struct Speculation {
    percentile: u64,
    every: u64,
    due: u64,
    bounds_ns: [u64; BOUNDS],
    nodes: Vec<Reads>,
}

impl Speculation {
    /// Nothing known of any coordinator's reads; `percentile` zero: nothing is ever asked twice.
    pub fn new(nodes: usize, percentile: u32, share: u64) -> Speculation {
        let mut bounds_ns = [1000; BOUNDS];
        for at in 1..BOUNDS {
            let last: u64 = bounds_ns[at - 1] / 1000;
            bounds_ns[at] = 1000 * ((last * 12 + 5) / 10).max(last + 1);
        }
        let reads = Reads {
            counts: [0; BOUNDS],
            threshold_ns: THRESHOLD_NS / 2,
            watched: VecDeque::new(),
        };
        Speculation {
            percentile: u64::from(percentile),
            every: THRESHOLD_NS / share,
            due: THRESHOLD_NS / share,
            bounds_ns,
            nodes: vec![reads; nodes],
        }
    }

    /// Watches a read that could ask a further replica; returns when to look, if nobody would otherwise.
    #[inline]
    pub fn watch(&mut self, now: u64, node: usize, operation: u32, serial: u32) -> Option<u64> {
        if self.percentile == 0 {
            return None;
        }
        if now >= self.due {
            self.update(now);
        }
        let reads = &mut self.nodes[node];
        let deadline = now + reads.threshold_ns;
        let first = reads.watched.is_empty();
        reads.watched.push_back(Watched {
            deadline,
            operation,
            serial,
        });
        first.then_some(deadline)
    }

    /// Takes the next read out that is late at `now`, if `waits` says that it still waits; else returns when to look again.
    pub fn late(
        &mut self,
        now: u64,
        node: usize,
        waits: impl Fn(u32, u32) -> bool,
    ) -> Result<u32, Option<u64>> {
        let watched = &mut self.nodes[node].watched;
        while let Some(&first) = watched.front() {
            let waiting = waits(first.operation, first.serial);
            if waiting && first.deadline > now {
                return Err(Some(first.deadline));
            }
            watched.pop_front();
            if waiting {
                return Ok(first.operation);
            }
        }
        Err(None)
    }

    /// Notes how long a coordinator took for a read.
    #[inline]
    pub fn note(&mut self, node: usize, span_ns: u64) {
        let at = self.bounds_ns.partition_point(|&bound| bound < span_ns);
        self.nodes[node].counts[at.min(BOUNDS - 1)] += 1;
    }

    fn update(&mut self, now: u64) {
        self.due = now + self.every;
        for reads in &mut self.nodes {
            // Whoever is under way now is watched no longer: with the old threshold he would stand in the way of
            // those with the new one.
            reads.watched.clear();
            let all: u64 = reads.counts.iter().map(|&count| u64::from(count)).sum();
            let mut seen = 0;
            let at = reads.counts.iter().position(|&count| {
                seen += u64::from(count);
                seen * 100 >= all * self.percentile
            });
            if let (Some(at), true) = (at, all > 0) {
                reads.threshold_ns = self.bounds_ns[at];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_loses_its_place_when_it_is_slower_by_more_than_the_threshold() {
        let mut snitch = Snitch::new(3, 100, 1);
        for _ in 0..100 {
            snitch.note(0, 0, 10 * MS);
            snitch.note(0, 1, 10 * MS);
            snitch.note(0, 2, 5 * MS);
        }
        let mut replicas = [0, 1, 2];
        snitch.sort(0, 0, &mut replicas);
        assert_eq!(replicas, [0, 1, 2], "scores are made each 100 ms");
        snitch.sort(UPDATE_NS, 0, &mut replicas);
        assert_eq!(replicas, [2, 0, 1]);
        let mut replicas = [0, 1, 2];
        snitch.sort(UPDATE_NS, 1, &mut replicas);
        assert_eq!(replicas, [0, 1, 2], "each coordinator knows its own");
    }

    #[test]
    fn answers_within_one_millisecond_are_alike() {
        let mut snitch = Snitch::new(2, 100, 1);
        for _ in 0..100 {
            snitch.note(0, 0, MS - 1);
            snitch.note(0, 1, 1);
        }
        let mut replicas = [0, 1];
        snitch.sort(UPDATE_NS, 0, &mut replicas);
        assert_eq!(replicas, [0, 1]);
        let mut tolerant = Snitch::new(2, 1000, 1);
        for _ in 0..100 {
            tolerant.note(0, 0, 9 * MS);
            tolerant.note(0, 1, 5 * MS);
        }
        tolerant.sort(UPDATE_NS, 0, &mut replicas);
        assert_eq!(replicas, [0, 1], "below twice as slow, as in 4.0");
    }

    #[test]
    fn the_slowest_hundredth_is_asked_again() {
        let mut speculation = Speculation::new(1, 99, 1);
        for n in 1..=1000 {
            speculation.note(0, n * 10_000);
        }
        let start = THRESHOLD_NS;
        let first = speculation.watch(start, 0, 7, 1).expect("it is the first");
        // 9.9 ms, and the bound above it.
        let threshold = first - start;
        assert!(
            (9_900_000..=9_900_000 * 12 / 10).contains(&threshold),
            "{threshold}"
        );
        assert_eq!(speculation.watch(start + 5, 0, 8, 2), None);
        assert_eq!(speculation.late(first, 0, |_, _| true), Ok(7));
        assert_eq!(
            speculation.late(first, 0, |_, _| true),
            Err(Some(first + 5))
        );
        assert_eq!(speculation.late(first + 5, 0, |_, _| false), Err(None));
        assert_eq!(Speculation::new(1, 0, 1).watch(start, 0, 7, 1), None);
    }
}
