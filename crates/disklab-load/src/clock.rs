//! The clocks of a run.

use disklab_units::{Dilation, Duration, Instant};

/// The described system's clock, counted from the start of the run: the monotonic clock, slowed by the dilation.
#[derive(Clone, Copy)]
pub struct Clock {
    start: std::time::Instant,
    dilation: Dilation,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start(dilation: Dilation) -> Clock {
        Clock {
            start: std::time::Instant::now(),
            dilation,
        }
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Instant {
        // 584 years fit.
        let machine = Instant::from_nanos(self.start.elapsed().as_nanos() as u64);
        self.dilation.of_system(machine)
    }

    /// How long a timer of this machine must run for this span.
    pub fn to_wait(self, span: Duration) -> Duration {
        self.dilation.span_of_machine(span)
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
