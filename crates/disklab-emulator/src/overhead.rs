//! The emulator's own part in a latency: from a program's call to the driver and back.
//!
//! It grows with the wait. After 100 us the caches of the CPUs still hold the path, after some
//! milliseconds they do not: on a 2-core virtual machine 20 us became 60 us (2026-11-21).

use disklab_units::{Duration, Instant};

/// The waits at which the overhead is measured. Local disks lie at the low end, network disks
/// between the others; beyond the ends it hardly changes.
pub const WAITS: [Duration; 4] = [
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
];

/// The most that is believed at each of [`WAITS`]. An idle 2-core virtual machine needs 18, 25, 40 and 60 us
/// (2026-11-21); what is measured far above is other programs' time. With sixteen busy processes it came to 4 ms, and
/// subtracting that made a disk answer at once.
const MOST: [Duration; WAITS.len()] = [
    Duration::from_micros(25),
    Duration::from_micros(40),
    Duration::from_micros(60),
    Duration::from_micros(100),
];

/// What to subtract from a wait, by its length. The default subtracts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// At each of [`WAITS`].
    measured: [Duration; WAITS.len()],
}

impl Overhead {
    /// As measured at each of [`WAITS`].
    pub fn new(measured: [Duration; WAITS.len()]) -> Overhead {
        Overhead { measured }
    }

    /// As measured, as far as it can be the emulator's own part; and the most of a measurement that cannot. Other
    /// programs only add, and the overhead grows with the wait: so what was found at a longer wait bounds it too.
    pub fn believable(measured: [Duration; WAITS.len()]) -> (Overhead, Duration) {
        let mut believed = measured;
        let mut bound = Duration::MAX;
        for (most, overhead) in MOST.iter().zip(&mut believed).rev() {
            bound = bound.min(*overhead).min(*most);
            *overhead = bound;
        }
        let left = believed.iter().zip(&measured);
        let left = left.map(|(believed, measured)| measured.saturating_sub(*believed));
        (Overhead::new(believed), left.max().unwrap_or_default())
    }

    /// The overhead of a reply that waits this long, linear between the measured waits.
    pub fn after(&self, wait: Duration) -> Duration {
        let above = WAITS.partition_point(|&known| known < wait);
        let (Some(below), Some(&next)) = (above.checked_sub(1), WAITS.get(above)) else {
            return self.measured[above.min(WAITS.len() - 1)];
        };
        let (low, high) = (
            self.measured[below].as_nanos(),
            self.measured[above].as_nanos(),
        );
        let width = next.saturating_sub(WAITS[below]).as_nanos();
        let share = wait.saturating_sub(WAITS[below]).as_nanos();
        // Both products stay below 2^44: a wait and an overhead of at most some milliseconds.
        let between = (low * (width - share) + high * share) / width;
        Duration::from_nanos(between)
    }

    /// The most that is subtracted from any wait.
    pub fn most(&self) -> Duration {
        self.measured.into_iter().max().unwrap_or_default()
    }

    /// When a reply must leave so that the program has it at `due`.
    pub fn sends(&self, arrived: Instant, due: Instant) -> Instant {
        let wait = due.saturating_since(arrived);
        Instant::from_nanos(due.as_nanos().saturating_sub(self.after(wait).as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn is_linear_between_the_measured_waits_and_constant_beyond() {
        let overhead = Overhead::new([us(20), us(30), us(40), us(60)]);
        assert_eq!(overhead.after(Duration::ZERO), us(20));
        assert_eq!(overhead.after(us(100)), us(20));
        assert_eq!(overhead.after(us(200)), us(25));
        assert_eq!(overhead.after(us(300)), us(30));
        assert_eq!(overhead.after(us(2_000)), us(50));
        assert_eq!(overhead.after(us(50_000)), us(60));
    }

    #[test]
    fn a_falling_overhead_is_followed_too() {
        let overhead = Overhead::new([us(40), us(20), us(20), us(20)]);
        assert_eq!(overhead.after(us(200)), us(30));
    }

    #[test]
    fn other_programs_time_is_not_believed() {
        let quiet = [us(18), us(25), us(40), us(60)];
        assert_eq!(
            Overhead::believable(quiet),
            (Overhead::new(quiet), us(0)),
            "a quiet machine's figures stay as they are"
        );
        // As seen with sixteen busy processes.
        let (busy, left) = Overhead::believable([us(3_129), us(217), us(40), us(4_426)]);
        assert_eq!(busy, Overhead::new([us(25), us(40), us(40), us(100)]));
        assert_eq!(left, us(4_326));
    }

    #[test]
    fn a_reply_leaves_early_by_the_overhead() {
        let overhead = Overhead::new([us(20); 4]);
        let arrived = Instant::from_nanos(5_000);
        let due = arrived + us(300);
        assert_eq!(overhead.sends(arrived, due), arrived + us(280));
        assert_eq!(Overhead::default().sends(arrived, due), due);
    }
}
