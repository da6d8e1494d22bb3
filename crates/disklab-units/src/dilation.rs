//! Time dilation: a slow motion in which a small machine is as fast as a large one.
//!
//! Where a second of the described system takes `factor` seconds of this machine, two cores do in it what
//! `2 x factor` cores would do, while disks that keep the described system's time keep their proportions to it.
//! Whoever keeps time converts at one place: what he reads from the machine's clock, and what he waits for.
//!
//! **Source:** D. Gupta et al., "To Infinity and Beyond: Time-Warped Network Emulation", NSDI 2006; "DieCast: Testing
//! Distributed Systems with an Accurate Scale Model", NSDI 2008.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{Duration, Instant};

/// How many seconds of this machine a second of the described system takes. 1: both clocks are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dilation(NonZeroU32);

impl Default for Dilation {
    fn default() -> Dilation {
        Dilation(NonZeroU32::MIN)
    }
}

impl Dilation {
    /// A dilation by `factor`.
    pub const fn new(factor: NonZeroU32) -> Dilation {
        Dilation(factor)
    }

    fn factor(self) -> u64 {
        u64::from(self.0.get())
    }

    /// The described system's time at a time of this machine, rounded down: it never runs ahead.
    pub fn of_system(self, machine: Instant) -> Instant {
        Instant::from_nanos(machine.as_nanos() / self.factor())
    }

    /// The first time of this machine at which the described system has this time.
    pub fn of_machine(self, system: Instant) -> Instant {
        Instant::from_nanos(system.as_nanos().saturating_mul(self.factor()))
    }

    /// What a span of this machine's time is for the described system, rounded down.
    pub fn span_of_system(self, machine: Duration) -> Duration {
        Duration::from_nanos(machine.as_nanos() / self.factor())
    }

    /// How long a span of the described system takes here.
    pub fn span_of_machine(self, system: Duration) -> Duration {
        Duration::from_nanos(system.as_nanos().saturating_mul(self.factor()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(factor: u32) -> Dilation {
        Dilation::new(NonZeroU32::new(factor).expect("not zero"))
    }

    #[test]
    fn without_dilation_both_clocks_are_one() {
        let at = Instant::from_nanos(12_345);
        assert_eq!(Dilation::default().of_system(at), at);
        assert_eq!(Dilation::default().of_machine(at), at);
    }

    #[test]
    fn a_due_time_is_reached_exactly_when_the_machine_reaches_it() {
        let due = Instant::from_nanos(1_000);
        let here = by(8).of_machine(due);
        assert_eq!(here, Instant::from_nanos(8_000));
        assert_eq!(by(8).of_system(here), due);
        assert!(by(8).of_system(Instant::from_nanos(7_999)) < due);
    }

    #[test]
    fn the_end_of_time_stays_the_end() {
        assert_eq!(by(8).of_machine(Instant::MAX), Instant::MAX);
        assert_eq!(by(8).span_of_machine(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn spans_shrink_and_grow() {
        let second = Duration::from_secs(1);
        assert_eq!(by(4).span_of_system(second), Duration::from_millis(250));
        assert_eq!(by(4).span_of_machine(second), Duration::from_secs(4));
    }
}
