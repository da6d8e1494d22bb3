//! What latencies consist of: the times of an operation on its way, added up by how long it took in all.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Where an operation spends its time. Its way is that of the answer that it waited for; what other replicas did
/// meanwhile is not on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// An open loop could not send it in time: too many were under way.
    Unsent,
    /// CPU and link of the load generator, and waiting for them.
    Client,
    /// On the way between client, coordinator and replica, and waiting for their links.
    Network,
    /// CPU of coordinator and replica, and waiting for it.
    Cpu,
    /// Everything stood still for garbage collection.
    Pause,
    /// Waiting for one of `concurrent_reads` or `concurrent_writes`.
    Slots,
    /// I/Os that waited for a limit of disk, VM or host cache.
    Limits,
    /// I/Os being served.
    Disk,
    /// Writes held back by commit log or memtables.
    Held,
    /// One replica had not answered when another was asked.
    Retry,
    /// What no queue explains: `overhead_ns` of the calibration.
    Overhead,
}

/// How many stretches there are.
pub const STRETCHES: usize = 11;

const NAMES: [&str; STRETCHES] = [
    "unsent", "client", "network", "cpu", "pause", "slots", "limits", "disk", "held", "retry",
    "overhead",
];

/// Nanoseconds of an operation by stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split([u64; STRETCHES]);

impl Split {
    /// Adds to a stretch.
    #[inline]
    pub fn add(&mut self, stretch: Stretch, span_ns: u64) {
        self.0[stretch as usize] += span_ns;
    }

    /// Adds what another part of the same operation was.
    pub fn join(&mut self, other: &Split) {
        for (sum, span) in self.0.iter_mut().zip(other.0) {
            *sum += span;
        }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Where the time of something under way went, up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// By stretch.
    pub split: Split,
    /// The moment.
    pub until: u64,
}

impl Spent {
    /// Of something that begins.
    pub fn from(now: u64) -> Spent {
        Spent {
            split: Split::default(),
            until: now,
        }
    }

    /// Counts the time since it was last counted.
    #[inline]
    pub fn on(&mut self, now: u64, stretch: Stretch) {
        self.split.add(stretch, now - self.until);
        self.until = now;
    }

    /// Counts the time that an I/O was waited for, which had passed all limits at `passed`.
    #[inline]
    pub fn waited(&mut self, now: u64, passed: u64) {
        self.on(passed.clamp(self.until, now), Stretch::Limits);
        self.on(now, Stretch::Disk);
    }
}

/// Buckets of an octave: latencies of one bucket differ by at most 3 %.
const IN_OCTAVE: usize = 32;
/// From one microsecond (1024 ns) to beyond the longest latency of a histogram, an hour.
const OCTAVES: usize = 28;
const BUCKETS: usize = IN_OCTAVE * OCTAVES;

/// The stretches of all operations of one kind, by how long these took.
#[derive(Clone, Debug)]
struct Kind {
    counts: Vec<u64>,
    sums: Vec<Split>,
}

/// What the latencies of each kind of operation consist of.
#[derive(Clone, Debug, Default)]
pub struct Tail(Vec<Kind>);

/// Milliseconds by stretch; together they are the percentile.
pub type Stretches = BTreeMap<&'static str, f64>;

/// The stretches of the 50th, 95th and 99th percentile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TailReport {
    /// Of the median.
    pub p50: Stretches,
    /// Of the 95th percentile.
    pub p95: Stretches,
    /// Of the 99th percentile.
    pub p99: Stretches,
}

impl Tail {
    /// Nothing noted of so many kinds of operation.
    pub fn new(kinds: usize) -> Tail {
        let empty = Kind {
            counts: vec![0; BUCKETS],
            sums: vec![Split::default(); BUCKETS],
        };
        Tail(vec![empty; kinds])
    }

    /// Notes an operation.
    #[inline]
    pub fn note(&mut self, kind: usize, split: &Split) {
        let bucket = bucket(split.total());
        let entry = &mut self.0[kind];
        entry.counts[bucket] += 1;
        for (sum, span) in entry.sums[bucket].0.iter_mut().zip(split.0) {
            *sum += span;
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        *self = Tail::new(self.0.len());
    }

    /// What the percentiles of some kinds of operation together consist of; `latencies` has their values. None: nothing
    /// was noted.
    pub fn report(&self, kinds: &[usize], latencies: &Histogram<u64>) -> Option<TailReport> {
        let mut all = Kind {
            counts: vec![0; BUCKETS],
            sums: vec![Split::default(); BUCKETS],
        };
        for kind in kinds.iter().map(|&number| &self.0[number]) {
            for (bucket, count) in kind.counts.iter().enumerate() {
                all.counts[bucket] += count;
                for (sum, span) in all.sums[bucket].0.iter_mut().zip(kind.sums[bucket].0) {
                    *sum += span;
                }
            }
        }
        let at = |share: f64| all.around(share, latencies.value_at_quantile(share));
        Some(TailReport {
            p50: at(0.50)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
        })
    }
}

impl Kind {
    /// The stretches of operations near a quantile, stretched to its value.
    fn around(&self, share: f64, value_ns: u64) -> Option<Stretches> {
        let count: u64 = self.counts.iter().sum();
        // A hundredth of the operations on either side, and in the tail a quarter of what lies beyond.
        let width = 0.01_f64.min((1.0 - share) / 4.0);
        let rank = |share: f64| (share * count as f64) as u64;
        let (from, to) = (rank(share - width), rank(share + width));
        let (mut seen, mut sums) = (0, Split::default());
        for (&count, split) in self.counts.iter().zip(&self.sums) {
            let before = seen;
            seen += count;
            if count > 0 && seen > from && before <= to {
                for (sum, span) in sums.0.iter_mut().zip(split.0) {
                    *sum += span;
                }
            }
        }
        let total = sums.total();
        if total == 0 {
            return None;
        }
        let of = |span: u64| span as f64 / total as f64 * value_ns as f64 / 1e6;
        let parts = NAMES.iter().zip(sums.0).filter(|(_, span)| *span > 0);
        Some(parts.map(|(&name, span)| (name, of(span))).collect())
    }
}

#[inline]
fn bucket(span_ns: u64) -> usize {
    let micros = (span_ns >> 10).max(1);
    let octave = micros.ilog2() as usize;
    // The five bits after the first one.
    let within = if octave >= 5 {
        micros >> (octave - 5)
    } else {
        micros << (5 - octave)
    };
    (octave * IN_OCTAVE + (within as usize & (IN_OCTAVE - 1))).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::histogram;

    #[test]
    fn buckets_rise_and_are_narrow() {
        let mut last = 0;
        let mut begins = 1 << 15;
        for span in (1 << 15)..(1 << 18) {
            let now = bucket(span);
            assert!(now == last || now == last + 1 || last == 0);
            if now != last {
                assert!(
                    last == 0 || (span - begins) * 31 <= begins,
                    "{begins} {span}"
                );
                (last, begins) = (now, span);
            }
        }
        assert_eq!(bucket(0), bucket(1023));
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn a_percentile_is_told_by_the_operations_around_it() {
        // A tenth waits for a pause of 10 ms, the others for a disk of 1 ms.
        let (mut tail, mut latencies) = (Tail::new(2), histogram());
        for number in 0..10_000 {
            let mut split = Split::default();
            split.add(Stretch::Disk, 1_000_000);
            if number % 10 == 0 {
                split.add(Stretch::Pause, 9_000_000);
            }
            tail.note(0, &split);
            latencies.saturating_record(split.total());
        }
        let report = tail.report(&[0, 1], &latencies).expect("it was noted");
        let close = |seen: f64, wanted: f64| assert!((seen / wanted - 1.0).abs() < 0.01, "{seen}");
        assert_eq!(report.p50.keys().collect::<Vec<_>>(), [&"disk"]);
        close(report.p50["disk"], 1.0);
        close(report.p99["pause"], 9.0);
        close(report.p99["disk"], 1.0);
        close(report.p95["pause"], 9.0);
        assert_eq!(tail.report(&[1], &histogram()), None);
    }
}
