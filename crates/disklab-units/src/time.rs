//! Points in time and spans of time, in whole nanoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A span of time in whole nanoseconds, never negative. Range: 0 to about 584 years.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// The longest span.
    pub const MAX: Duration = Duration(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Duration {
        Duration(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us * 1_000)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms * 1_000_000)
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s * 1_000_000_000)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The difference, or zero when `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }

    /// The sum, or the longest span when it would not fit.
    pub const fn saturating_add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0 + other.0)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        self.0 += other.0;
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        // Three decimals in integer arithmetic, so that the text is the same on every machine.
        let thousandths = u128::from(self.0) * 1_000 / unit;
        write!(
            f,
            "{}.{:03} {name}",
            thousandths / 1_000,
            thousandths % 1_000
        )
    }
}

/// A point in time: nanoseconds since an epoch that the clock's owner chose.
///
/// The simulator starts at [`Instant::EPOCH`]; the emulator passes `CLOCK_MONOTONIC`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The start of time.
    pub const EPOCH: Instant = Instant(0);
    /// The end of time: later than any event.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The point `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to here, or zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` later, or the end of time.
    pub const fn saturating_add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0 + span.0)
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    /// Panics in debug builds when `earlier` is later: a clock that runs backwards is a bug.
    fn sub(self, earlier: Instant) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_with_the_unit_that_fits() {
        assert_eq!(Duration::from_nanos(7).to_string(), "7 ns");
        assert_eq!(Duration::from_nanos(43_210).to_string(), "43.210 us");
        assert_eq!(Duration::from_micros(3_300).to_string(), "3.300 ms");
        assert_eq!(Duration::from_secs(1_800).to_string(), "1800.000 s");
    }

    #[test]
    fn saturates_at_both_ends() {
        assert_eq!(
            Instant::EPOCH.saturating_since(Instant::MAX),
            Duration::ZERO
        );
        assert_eq!(
            Instant::MAX.saturating_add(Duration::from_secs(1)),
            Instant::MAX
        );
    }
}
