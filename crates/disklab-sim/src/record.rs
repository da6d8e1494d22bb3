//! What is measured of a run: latencies, counts, and Little's law as its proof.

use hdrhistogram::Histogram;

use crate::tail::{Split, Tail};

/// Range and precision of every histogram: nanoseconds, three digits, one microsecond to one hour, as
/// the load generator records.
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("the bounds are valid")
}

/// Latencies and counts of a run.
#[derive(Clone, Default)]
pub struct Recorder {
    /// By kind of operation.
    latencies: Vec<Histogram<u64>>,
    latency_sums: Vec<u128>,
    tail: Tail,
    measured_from: u64,
    measured_to: u64,
    last_end: u64,
    disk_waits: u128,
    /// For Little's law, over the whole run: operations under way, the integral of their number
    /// over time, the sum of the times of those that ended, and of the starts of those under way.
    under_way: u64,
    area: u128,
    changed_at: u64,
    times: u128,
    starts: u128,
}

impl Recorder {
    /// Nothing recorded of reads and writes.
    pub fn new() -> Recorder {
        Recorder::of_kinds(2)
    }

    /// Nothing recorded of so many kinds of operation.
    pub fn of_kinds(kinds: usize) -> Recorder {
        Recorder {
            latencies: vec![histogram(); kinds],
            latency_sums: vec![0; kinds],
            tail: Tail::new(kinds),
            ..Recorder::default()
        }
    }

    /// How many kinds of operation are recorded.
    pub fn kinds(&self) -> usize {
        self.latencies.len()
    }

    #[inline]
    fn integrate(&mut self, now: u64) {
        self.area += u128::from(self.under_way) * u128::from(now - self.changed_at);
        self.changed_at = now;
    }

    /// An operation starts.
    #[inline]
    pub fn started(&mut self, now: u64) {
        self.integrate(now);
        self.under_way += 1;
        self.starts += u128::from(now);
    }

    /// An operation that started at `start` ends.
    #[inline]
    pub fn ended(&mut self, now: u64, kind: impl Into<usize>, start: u64) {
        self.integrate(now);
        self.under_way -= 1;
        self.starts -= u128::from(start);
        let time = now - start;
        self.times += u128::from(time);
        self.note(kind, time);
        self.last_end = now;
    }

    /// An operation that started at `start` ends without an answer that counts.
    pub fn failed(&mut self, now: u64, start: u64) {
        self.integrate(now);
        self.under_way -= 1;
        self.starts -= u128::from(start);
        self.times += u128::from(now - start);
        self.last_end = now;
    }

    /// Notes a latency: of an operation, or of a part of one.
    #[inline]
    pub fn note(&mut self, kind: impl Into<usize>, time: u64) {
        let kind = kind.into();
        self.latencies[kind].saturating_record(time);
        self.latency_sums[kind] += u128::from(time);
    }

    /// Notes what the latency of an operation consists of.
    #[inline]
    pub fn split(&mut self, kind: impl Into<usize>, split: &Split) {
        self.tail.note(kind.into(), split);
    }

    /// What latencies consist of.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// A request waited so long for an I/O.
    #[inline]
    pub fn waited_for_disk(&mut self, span_ns: u64) {
        self.disk_waits += u128::from(span_ns);
    }

    /// The warm-up is over: what ended before does not count.
    pub fn measure(&mut self, now: u64) {
        self.measured_from = now;
        self.latencies.iter_mut().for_each(Histogram::reset);
        self.latency_sums.fill(0);
        self.tail.reset();
        self.disk_waits = 0;
    }

    /// The run is over.
    pub fn end(&mut self, now: u64) {
        self.integrate(now);
        // A run that ends with its last operation is as long as that took; background events that
        // follow do not stretch it.
        self.measured_to = if self.under_way == 0 {
            self.last_end
        } else {
            now
        };
    }

    /// Operations under way.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Whether the number of operations under way, integrated over time, is the sum of their times:
    /// exactly, in integers. An operation that was lost, or ended twice, breaks it.
    pub fn littles_law_holds(&self) -> bool {
        let unfinished = u128::from(self.under_way) * u128::from(self.changed_at) - self.starts;
        self.area == self.times + unfinished
    }

    /// Mean number of operations under way over the whole run.
    pub fn mean_under_way(&self) -> f64 {
        self.area as f64 / (self.changed_at.max(1)) as f64
    }

    /// Whether more is under way at the end than chance makes of the mean: it has been growing, and a longer run would
    /// wait longer. Twice as many, and ten, are further off than that for a few operations or for many.
    pub fn grew(&self) -> bool {
        self.under_way as f64 > 2.0 * self.mean_under_way() + 10.0
    }

    /// Measured time in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.measured_to.saturating_sub(self.measured_from).max(1)
    }

    /// When measuring ended.
    pub fn measured_to(&self) -> u64 {
        self.measured_to
    }

    /// Latencies of one kind of operation.
    pub fn latencies(&self, kind: impl Into<usize>) -> &Histogram<u64> {
        &self.latencies[kind.into()]
    }

    /// Sum of those latencies.
    pub fn latency_sum(&self, kind: impl Into<usize>) -> u128 {
        self.latency_sums[kind.into()]
    }

    /// Operations measured.
    pub fn operations(&self) -> u64 {
        self.latencies.iter().map(|h| h.len()).sum()
    }

    /// Time that requests waited for I/Os, added up.
    pub fn disk_waits(&self) -> u128 {
        self.disk_waits
    }
}
