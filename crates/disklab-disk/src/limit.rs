//! One limit of a profile at work: what an I/O costs and whether it may be granted.

use crate::bucket::Bucket;
use crate::counters::Credits;
use crate::profile::{Limit, Unit};

/// A limit with its bucket, or its two buckets when it bursts on credits.
///
/// Bursting is two buckets in a row. The *credit* bucket fills at the baseline and holds the
/// credits; the *top* bucket lets the burst rate through. Credits then accrue at (baseline - used)
/// and are spent at (used - baseline) with no rule of their own, and an exhausted credit bucket is
/// an ordinary bucket at the baseline. Bursting for ever is one bucket at the burst rate.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The baseline with its credits; or the only bucket.
    main: Bucket,
    /// The burst rate, when credits pay for it. Boxed, as the promise is, so that the gates of a
    /// host without bursts lie close together: an I/O passes four of them.
    top: Option<Box<Top>>,
    unit: Unit,
    /// Bytes that one I/O of a limit in I/Os may carry at most.
    io_unit_bytes: u32,
    /// The promise.
    limit: Box<Limit>,
}

/// What a limit with credits has besides.
#[derive(Clone, Debug)]
struct Top {
    bucket: Bucket,
    /// The credits that the first I/O is to find, however late it comes; `None`: it came.
    kept: Option<u64>,
}

impl Meter {
    /// A full meter (credits as the profile says) whose windows start at `now`.
    pub fn new(limit: &Limit, now: u64) -> Meter {
        let (main, top) = match &limit.burst {
            None => (Bucket::new(limit.per_s, limit.window_ns, 0, now), None),
            Some(burst) => {
                let top = Bucket::new(burst.per_s, limit.window_ns, 0, now);
                match burst.credits {
                    None => (top, None),
                    Some(credits) => {
                        let mut main = Bucket::new(limit.per_s, limit.window_ns, credits, now);
                        main.set_units(burst.start.unwrap_or(credits));
                        let kept = None;
                        (main, Some(Box::new(Top { bucket: top, kept })))
                    }
                }
            }
        };
        Meter {
            main,
            top,
            unit: limit.unit,
            io_unit_bytes: limit.io_unit_bytes.unwrap_or(u32::MAX),
            limit: Box::new(limit.clone()),
        }
    }

    /// The limit as the profile states it.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What an I/O of this many bytes costs, in units.
    #[inline]
    pub fn cost(&self, bytes: u32) -> u64 {
        match self.unit {
            Unit::Bytes => u64::from(bytes),
            // The comparison spares the division, which most I/Os do not need.
            Unit::Ios if bytes <= self.io_unit_bytes => 1,
            Unit::Ios => u64::from(bytes.div_ceil(self.io_unit_bytes)),
        }
    }

    /// Whether the limit lets an I/O through at `now`, whatever it costs.
    #[inline]
    pub fn is_open(&mut self, now: u64) -> bool {
        self.main.refill(now);
        match &mut self.top {
            None => self.main.is_open(),
            Some(top) => {
                top.bucket.refill(now);
                if let Some(units) = top.kept.take() {
                    self.main.set_units(units);
                }
                self.main.is_open() && top.bucket.is_open()
            }
        }
    }

    /// Takes `units`. Right after [`Meter::is_open`] said yes.
    #[inline]
    pub fn take(&mut self, units: u64) {
        if let Some(top) = &mut self.top {
            top.bucket.take(units);
        }
        self.main.take(units);
    }

    /// Takes `units` when the limit lets an I/O through at `now`.
    #[inline]
    pub fn try_take(&mut self, now: u64, units: u64) -> bool {
        if self.top.is_some() {
            let open = self.is_open(now);
            if open {
                self.take(units);
            }
            return open;
        }
        self.main.refill(now);
        let open = self.main.is_open();
        if open {
            self.main.take(units);
        }
        open
    }

    /// When the limit lets the next I/O through. Right after [`Meter::is_open`] said no.
    #[inline]
    pub fn opens_at(&self) -> u64 {
        let main = self.main.opens_at();
        match &self.top {
            None => main,
            Some(top) => main.max(top.bucket.opens_at()),
        }
    }

    /// The credits at `now`.
    pub fn credits(&self, now: u64) -> Option<Credits> {
        let capacity = self.limit.burst.as_ref()?.credits?;
        let kept = self.top.as_ref().and_then(|top| top.kept);
        let left = kept.unwrap_or_else(|| {
            let mut main = self.main.clone();
            main.refill(now);
            main.units()
        });
        Some(Credits {
            left: left.min(capacity),
            capacity,
        })
    }

    /// Sets the credits, cut to the capacity. Without a credit bucket nothing happens.
    pub fn set_credits(&mut self, now: u64, units: u64) {
        if let Some(top) = &mut self.top {
            top.kept = None;
            self.main.refill(now);
            self.main.set_units(units);
        }
    }

    /// Sets the credits that the next I/O finds, however late it comes, to a share of the capacity, in
    /// parts per million, at most all of it. Without a credit bucket nothing happens.
    ///
    /// A load begins with these credits: a disk of 500 IOPS would earn 500 more in each second that
    /// its programs take to start.
    pub fn set_credit_share(&mut self, ppm: u32) {
        let capacity = self.limit.burst.as_ref().and_then(|burst| burst.credits);
        let share = u128::from(capacity.unwrap_or(0)) * u128::from(ppm.min(1_000_000)) / 1_000_000;
        if let Some(top) = &mut self.top {
            top.kept = Some(u64::try_from(share).expect("at most the capacity"));
        }
    }

    /// Follows another limit from `now` on. Levels and debts stay, cut to the new capacities; a
    /// credit bucket that was not there before starts as the limit says.
    pub fn change(&mut self, limit: &Limit, now: u64) {
        self.main.refill(now);
        if let Some(top) = &mut self.top {
            top.bucket.refill(now);
        }
        let mut new = Meter::new(limit, now);
        match (&mut new.top, &self.top) {
            (None, None) => new.main.inherit(&self.main),
            (None, Some(top)) => new.main.inherit(&top.bucket),
            (Some(top), None) => top.bucket.inherit(&self.main),
            (Some(top), Some(old)) => {
                top.bucket.inherit(&old.bucket);
                top.kept = old.kept;
                new.main.inherit(&self.main);
            }
        }
        *self = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Burst, Scope};

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn iops(per_s: u64, burst: Option<Burst>) -> Limit {
        Limit {
            scope: Scope::All,
            unit: Unit::Ios,
            per_s,
            io_unit_bytes: Some(256 << 10),
            window_ns: 0,
            burst,
        }
    }

    /// Grants one-unit I/Os as early as possible; returns how many were granted up to `end`.
    fn saturate(meter: &mut Meter, start: u64, end: u64) -> u64 {
        let (mut now, mut granted) = (start, 0);
        while now <= end {
            if meter.try_take(now, 1) {
                granted += 1;
            } else {
                now = meter.opens_at();
            }
        }
        granted
    }

    #[test]
    fn counts_units_of_256_kib() {
        let meter = Meter::new(&iops(5_000, None), 0);
        for (bytes, units) in [
            (0, 1),
            (512, 1),
            (256 << 10, 1),
            ((256 << 10) + 1, 2),
            (1 << 20, 4),
        ] {
            assert_eq!(meter.cost(bytes), units, "{bytes} bytes");
        }
    }

    #[test]
    fn bursts_exactly_as_long_as_the_credits_last() {
        let burst = Burst {
            per_s: 3_500,
            credits: Some(6_000),
            start: None,
        };
        let mut meter = Meter::new(&iops(500, Some(burst)), 0);
        // 6000 / (3500 - 500) = 2 s at the top rate, then the baseline.
        let burst_ios = saturate(&mut meter, 0, 2 * SECOND);
        assert!((6_997..=7_004).contains(&burst_ios), "{burst_ios}");
        assert_eq!(meter.credits(2 * SECOND).unwrap().left, 0);
        let later = saturate(&mut meter, 2 * SECOND, 12 * SECOND);
        assert!((4_998..=5_004).contains(&later), "{later}");
    }

    #[test]
    fn credits_accrue_at_the_unused_baseline() {
        let burst = Burst {
            per_s: 3_500,
            credits: Some(6_000),
            start: Some(0),
        };
        let mut meter = Meter::new(&iops(500, Some(burst)), 0);
        for ms in (0..4_000).step_by(10) {
            // 100 I/Os a second of 500.
            assert!(ms == 0 || meter.try_take(ms * MS, 1));
        }
        let left = meter.credits(4 * SECOND).unwrap().left;
        assert!((1_599..=1_601).contains(&left), "{left}");
        assert_eq!(meter.credits(60 * SECOND).unwrap().left, 6_000);
    }

    #[test]
    fn without_a_credit_bucket_the_burst_lasts() {
        let burst = Burst {
            per_s: 30_000,
            credits: None,
            start: None,
        };
        let mut meter = Meter::new(&iops(5_000, Some(burst)), 0);
        let granted = saturate(&mut meter, 0, 10 * SECOND);
        assert!((300_000..=300_040).contains(&granted), "{granted}");
        assert_eq!(meter.credits(0), None);
    }

    #[test]
    fn a_change_keeps_debts_and_cuts_credits() {
        let burst = |credits| Burst {
            per_s: 3_500,
            credits: Some(credits),
            start: None,
        };
        let mut meter = Meter::new(&iops(500, Some(burst(6_000))), 0);
        meter.change(&iops(500, Some(burst(1_000))), SECOND);
        assert_eq!(meter.credits(SECOND).unwrap().left, 1_000);
        meter.set_credits(SECOND, 10);
        meter.change(&iops(500, Some(burst(9_000))), SECOND);
        assert_eq!(meter.credits(SECOND).unwrap().left, 10);
    }
}
