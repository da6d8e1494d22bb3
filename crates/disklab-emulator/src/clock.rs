//! The emulator's clock, `CLOCK_MONOTONIC`, and what a thread has used of a CPU.

use disklab_units::{Duration, Instant};

/// Now. The epoch is the machine's boot, time asleep left out.
pub fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = simulated::NOW.get() {
        return now;
    }
    Instant::from_nanos(read(libc::CLOCK_MONOTONIC))
}

/// The CPU time that the calling thread has used.
pub fn thread_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// What one of this process's own clocks says, in nanoseconds. Both that are read here begin at zero.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for a timespec. These clocks always exist, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).expect("the clock starts at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("a timespec's nanoseconds are positive");
    seconds * 1_000_000_000 + nanos
}

/// A clock that stands still until it is set, for the thread that sets it.
#[cfg(test)]
pub mod simulated {
    use std::cell::Cell;

    use disklab_units::Instant;

    thread_local! {
        pub(super) static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// It is this time from now on.
    pub fn set(now: Instant) {
        NOW.set(Some(now));
    }
}
