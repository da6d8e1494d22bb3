//! How long the driver sleeps before something is due.
//!
//! Whoever sleeps wakes up late, so the last stretch is spun; and whoever has slept long on a CPU that halted wakes up
//! later still, for its host has given the processor to somebody else. So the driver sleeps in two steps: the first
//! ends early, whatever is late then is over, and the second is short. On a 2-core virtual machine without idle states
//! (see [`crate::awake`]) the 99th percentile of 300 us went from 340 us to 320 us by that (medians of eight runs of 1 s, taken
//! in turns, 2026-11-22), and stayed at 309 us beside two busy processes.
//!
//! What did not pay there. Threads at the idle policy that were woken at the first step, to have the other CPUs awake
//! too, brought 309 us; but beside two busy processes 10 of 16 runs came to 3 ms, without them 3 of 11. Spinning
//! instead of the second sleep brought nothing (321 us), for 0.15 of a core.

use disklab_units::Duration;

/// When the first step ends, before something is due. Of 50 us the driver was still late: 336 us instead of 320 us.
const LAST: Duration = Duration::from_micros(100);

/// How long to sleep when something is due in `left`, before asking again; zero: not any more. The last `spin` is not
/// slept.
#[inline]
pub fn nap(left: Duration, spin: Duration) -> Duration {
    let awake = if left > LAST { LAST.max(spin) } else { spin };
    left.saturating_sub(awake)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn a_long_sleep_has_two_steps_and_a_short_one_has_one() {
        assert_eq!(nap(us(300), us(8)), us(200));
        assert_eq!(nap(us(100), us(8)), us(92));
        assert_eq!(nap(us(8), us(8)), Duration::ZERO);
        assert_eq!(nap(us(3), us(8)), Duration::ZERO);
        // A first step that ended late.
        assert_eq!(nap(us(60), us(8)), us(52));
    }

    #[test]
    fn what_is_spun_is_never_slept() {
        for left in 0..400 {
            let (left, spin) = (us(left), us(100));
            assert!(nap(left, spin) <= left.saturating_sub(spin), "{left:?}");
        }
    }
}
