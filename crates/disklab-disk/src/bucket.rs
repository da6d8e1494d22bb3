//! A token bucket in exact integers.
//!
//! The level is counted in nano-units (10^-9 of an I/O or a byte): `per_s` units a second are
//! exactly `per_s` nano-units a nanosecond, so no refill is ever rounded. A bucket that rounded at
//! each refill and reset its clock once granted 6,000 I/Os where 36,000 were due.
//!
//! **Rule.** Whatever is asked for is granted while the level is above zero, and its whole cost is
//! taken, perhaps leaving a debt that must be repaid first. An I/O dearer than the capacity is
//! therefore granted in its turn, and no token is lost while somebody waits: the level of a bucket
//! that is waited for is at most zero, so the next refill fits. Within any span of `t` seconds a
//! bucket grants at most `capacity + per_s * t` units and one I/O more (for a bucket with windows,
//! `t` counts from the start of the window in which the span begins).

/// Nano-units in a unit.
const NANO: i128 = 1_000_000_000;

/// Capacity of a bucket without windows, as time at its rate. Small against every latency that a
/// disk promises, so that such a bucket spaces I/Os evenly, and large enough for requests that
/// arrive in small groups.
const CONTINUOUS_CAPACITY_NS: u64 = 1_000_000;

/// Tokens that arrive at a rate, in lumps or continuously.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Units per second, which is nano-units per nanosecond.
    per_s: u64,
    /// Nanoseconds between two refills; zero: tokens arrive continuously.
    window_ns: u64,
    /// Most nano-units that it holds.
    capacity: i128,
    /// Nano-units held; negative: a debt.
    level: i128,
    /// Time up to which the level is right, in nanoseconds; with windows, start of the current one.
    refilled: u64,
}

impl Bucket {
    /// A full bucket whose first window starts at `now` (in nanoseconds).
    ///
    /// Its capacity is one window's worth, a millisecond's worth without windows, but at least
    /// `reserve` units. `per_s` is positive.
    pub fn new(per_s: u64, window_ns: u64, reserve: u64, now: u64) -> Bucket {
        let lump_ns = if window_ns == 0 {
            CONTINUOUS_CAPACITY_NS
        } else {
            window_ns
        };
        let lump = i128::from(per_s) * i128::from(lump_ns);
        let capacity = lump.max(i128::from(reserve) * NANO);
        Bucket {
            per_s,
            window_ns,
            capacity,
            level: capacity,
            refilled: now,
        }
    }

    /// Lets time pass up to `now`. Two refills in a row are the same as one over the whole span.
    #[inline]
    pub fn refill(&mut self, now: u64) {
        let mut span = now.saturating_sub(self.refilled);
        if span == 0 {
            return;
        }
        if self.window_ns != 0 {
            if span < self.window_ns {
                return;
            }
            span -= span % self.window_ns;
        }
        self.refilled += span;
        let level = self.level + i128::from(self.per_s) * i128::from(span);
        self.level = level.min(self.capacity);
    }

    /// Whether something would be granted now. Right after [`Bucket::refill`].
    #[inline]
    pub fn is_open(&self) -> bool {
        self.level > 0
    }

    /// Takes `units`, whether or not they are there.
    #[inline]
    pub fn take(&mut self, units: u64) {
        self.level -= i128::from(units) * NANO;
    }

    /// When the bucket is open next if nobody takes anything: the last refill or later.
    #[inline]
    pub fn opens_at(&self) -> u64 {
        if self.level > 0 {
            return self.refilled;
        }
        // One nano-unit above zero is enough.
        let lacking = u128::try_from(1 - self.level).expect("a level at or below zero");
        let wait = if self.window_ns == 0 {
            div_ceil(lacking, u128::from(self.per_s))
        } else {
            let lump = u128::from(self.per_s) * u128::from(self.window_ns);
            let windows = if lacking <= lump {
                1
            } else {
                div_ceil(lacking, lump)
            };
            windows.saturating_mul(self.window_ns)
        };
        self.refilled.saturating_add(wait)
    }

    /// Whole units held, zero for a debt.
    pub fn units(&self) -> u64 {
        u64::try_from(self.level.max(0) / NANO).unwrap_or(u64::MAX)
    }

    /// Sets what it holds, cut to the capacity.
    pub fn set_units(&mut self, units: u64) {
        self.level = (i128::from(units) * NANO).min(self.capacity);
    }

    /// Takes over the level and the clock of the bucket that it replaces, as far as they fit.
    pub fn inherit(&mut self, old: &Bucket) {
        self.level = old.level.min(self.capacity);
        if self.window_ns == old.window_ns {
            self.refilled = old.refilled;
        }
    }
}

/// Division rounding up, cut to 64 bits. A debt of up to 18 units of 10^9 fits 64 bits, whose division
/// is several times faster than that of 128 bits, and a saturated disk divides once for each I/O.
#[inline]
fn div_ceil(dividend: u128, divisor: u128) -> u64 {
    match (u64::try_from(dividend), u64::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => dividend.div_ceil(divisor),
        _ => u64::try_from(dividend.div_ceil(divisor)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    /// Takes `units` as often as the bucket lets it, up to and including `end`; returns how often.
    fn saturate(bucket: &mut Bucket, units: u64, end: u64) -> u64 {
        let mut count = 0;
        loop {
            let at = bucket.opens_at();
            if at > end {
                return count;
            }
            bucket.refill(at);
            bucket.take(units);
            count += 1;
        }
    }

    #[test]
    fn no_fraction_is_lost_when_a_window_holds_less_than_one_io() {
        // 120 IOPS with windows of 1 ms: 0.12 I/Os each.
        let mut bucket = Bucket::new(120, MS, 0, 0);
        let granted = saturate(&mut bucket, 1, 10 * SECOND);
        assert!((1200..=1201).contains(&granted), "{granted}");
    }

    #[test]
    fn no_token_is_lost_when_ios_do_not_divide_a_window() {
        // 512 MiB/s in windows of 50 ms, 1 MiB each: 25.6 I/Os a window.
        let mut bucket = Bucket::new(512 << 20, 50 * MS, 0, 0);
        let granted = saturate(&mut bucket, 1 << 20, 10 * SECOND);
        // Ten seconds' worth, the full bucket at the start, and one I/O on debt.
        assert!((5145..=5147).contains(&granted), "{granted}");
    }

    #[test]
    fn tokens_arrive_in_lumps() {
        let mut bucket = Bucket::new(1_000, 50 * MS, 0, 0);
        bucket.take(50);
        assert_eq!(bucket.opens_at(), 50 * MS);
        bucket.refill(50 * MS - 1);
        assert!(!bucket.is_open());
        bucket.refill(50 * MS);
        assert_eq!(bucket.units(), 50);
        bucket.refill(500 * MS);
        assert_eq!(bucket.units(), 50, "unused windows do not pile up");
    }

    #[test]
    fn an_io_dearer_than_the_capacity_is_granted_and_repaid() {
        let mut bucket = Bucket::new(1_000, 0, 0, 0);
        bucket.take(100);
        // Debt of 99 I/Os (the capacity is one), and a first nano-unit on top.
        assert_eq!(bucket.opens_at(), 99 * MS + 1);
    }

    proptest! {
        #[test]
        fn refill_is_additive(
            per_s in 1..20_000_000_000_u64, window in 0..100_000_000_u64, debt in 0..5_000_000_000_u64,
            first in 0..10_000_000_000_u64, second in 0..10_000_000_000_u64,
        ) {
            let mut once = Bucket::new(per_s, window, 0, 0);
            once.take(debt);
            let mut twice = once.clone();
            once.refill(first + second);
            twice.refill(first);
            twice.refill(first + second);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn never_grants_more_than_capacity_and_rate_and_one_io(
            per_s in 1..1_000_000_000_u64, window in 0..100_000_000_u64, reserve in 0..1_000_u64,
            asks in prop::collection::vec((0..20_000_000_u64, 1..5_000_000_u64), 1..200),
        ) {
            let mut bucket = Bucket::new(per_s, window, reserve, 0);
            let capacity = bucket.capacity;
            let (mut now, mut granted, mut largest) = (0, 0_i128, 0_i128);
            for (pause, units) in asks {
                now += pause;
                bucket.refill(now);
                if bucket.is_open() {
                    bucket.take(units);
                    granted += i128::from(units) * NANO;
                    largest = largest.max(i128::from(units) * NANO);
                }
                prop_assert!(granted < capacity + i128::from(per_s) * i128::from(now) + largest);
            }
        }

        #[test]
        fn opens_exactly_when_it_says(
            per_s in 1..20_000_000_000_u64, window in 0..100_000_000_u64, debt in 0..5_000_000_000_u64,
        ) {
            let mut bucket = Bucket::new(per_s, window, 0, 7);
            bucket.take(debt);
            let at = bucket.opens_at();
            let mut before = bucket.clone();
            before.refill(at.saturating_sub(1));
            prop_assert!(at == 7 || !before.is_open());
            bucket.refill(at);
            prop_assert!(bucket.is_open());
        }

        #[test]
        fn saturated_it_gives_its_rate(
            per_s in 1..1_000_000_u64, window in 0..60_000_000_u64, units in 1..1_000_u64,
        ) {
            let mut bucket = Bucket::new(per_s, window, 0, 0);
            let granted = saturate(&mut bucket, units, 20 * SECOND) * units;
            prop_assert!(granted + units + per_s * window / SECOND >= 20 * per_s);
        }
    }
}
