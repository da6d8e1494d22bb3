//! How late replies left: a fixed histogram, so that recording never allocates.

use disklab_units::Duration;

/// Each power of two is cut into this many equal parts: values are off by at most 1/16.
const PARTS: usize = 16;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Enough powers of two for every u64.
const BUCKETS: usize = PARTS * 61;

/// A histogram of durations with about 6 % resolution.
pub struct Lateness {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness {
            counts: Box::new([0; BUCKETS]),
            total: 0,
            max: Duration::ZERO,
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let part = (ns >> (power - PART_BITS)) as usize - PARTS;
    (power - PART_BITS + 1) as usize * PARTS + part
}

/// The largest value that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let shift = (bucket / PARTS - 1) as u32;
    let base = (PARTS + bucket % PARTS) as u64;
    (base << shift) + ((1 << shift) - 1)
}

impl Lateness {
    /// Counts one reply.
    pub fn record(&mut self, late: Duration) {
        self.counts[bucket(late.as_nanos())] += 1;
        self.total += 1;
        self.max = self.max.max(late);
    }

    /// The largest value, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// What was counted: the largest value of each bucket that is not empty, and its count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counted = self.counts.iter().enumerate();
        counted
            .filter(|&(_, &count)| count > 0)
            .map(|(index, &count)| (upper(index), count))
    }

    /// The value that `ppm` of a million replies do not exceed, rounded up to the bucket's end; zero
    /// when nothing was counted.
    pub fn quantile(&self, ppm: u64) -> Duration {
        let rank = (u128::from(self.total) * u128::from(ppm)).div_ceil(1_000_000) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Duration::from_nanos(upper(index)).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_in_order() {
        let mut last = 0;
        for ns in (0..200)
            .chain((8..64).map(|power| (1u64 << power) - 1))
            .chain([u64::MAX])
        {
            let index = bucket(ns);
            assert!(
                index >= last && index < BUCKETS,
                "{ns} fell into {index} after {last}"
            );
            assert!(
                upper(index) >= ns,
                "{ns} is above its bucket's end {}",
                upper(index)
            );
            assert!(
                upper(index) - ns <= ns / PARTS as u64,
                "{ns} is off by more than 1/16"
            );
            last = index;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(500_000), Duration::ZERO);
        for us in 1..=1_000 {
            lateness.record(Duration::from_micros(us));
        }
        let p50 = lateness.quantile(500_000).as_nanos();
        assert!((500_000..=532_000).contains(&p50), "p50 {p50}");
        assert_eq!(lateness.quantile(1_000_000), Duration::from_micros(1_000));
        assert_eq!(lateness.max(), Duration::from_micros(1_000));
        let total: u64 = lateness.buckets().map(|(_, count)| count).sum();
        assert_eq!(total, 1_000);
        assert!(lateness.buckets().is_sorted());
    }
}
