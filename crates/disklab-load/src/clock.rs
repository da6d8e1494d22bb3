//! The clocks of a run.

use disklab_units::{Duration, Instant};

/// The monotonic clock, counted from the start of the run.
#[derive(Clone, Copy)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        Clock {
            start: std::time::Instant::now(),
        }
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Instant {
        // 584 years fit.
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }
}

/// Nanoseconds since 1970.
pub fn unix_nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Processor time of this process so far, all threads, user and kernel.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid timespec; the clock exists since Linux 2.6.12 and cannot fail with a valid pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
