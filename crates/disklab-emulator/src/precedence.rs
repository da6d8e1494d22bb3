//! Gets the CPU as soon as something is to do, on a machine whose CPUs a database keeps busy.
//!
//! What each step is worth, by the lateness of replies beside 48 busy processes on two CPUs (Linux 6.18,
//! depth 16, medians of four to eight times 3 s): a nice value alone p90 2.8 ms, p99 4.6 ms; with its session first
//! 2 us, 2.0 ms; with short slices too 1 us, 0.1 ms.
//!
//! **The real-time class comes on top where that is not enough** ([`Urgency`]). The kernel does not always let the
//! highest nice value in at once: beside Java machines that start, 107 to 161 of 3,600 replies were more than 50 us late
//! (nine runs), and 38 to 61 with this (six runs). A driver that is busy must not have it: it would starve the loop
//! device's own workers, which pass every I/O on (65k IOPS instead of 174k). So it has it for a while after a reply was
//! late, while it leaves much of a CPU to others; where no reply is late, nothing changes.

use std::fs;
use std::io;

use disklab_units::{Duration, Instant};

use crate::clock::thread_time;

/// The nice value that gets the CPU first.
const HIGHEST: i32 = -20;
/// The shortest slice that Linux gives (6.12 and later; earlier ones have one for all). Who asks for a short one is let
/// in before a longer one has ended.
const SLICE_NS: u64 = 100_000;

/// Takes every step for this process; returns what this machine refused. Before other threads are started: they
/// inherit it.
#[must_use]
pub fn take() -> Vec<String> {
    let steps = [
        ("the process", raise_thread()),
        ("the process's session", raise_session()),
    ];
    let refused = steps
        .into_iter()
        .filter_map(|(what, done)| Some((what, done.err()?)));
    refused
        .map(|(what, error)| {
            format!("{what} keeps its usual priority ({error}): on a busy machine it is late")
        })
        .collect()
}

/// How often the driver's share of a CPU is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Up to this share of a CPU, in percent, the driver gets the real-time class.
const CALM_PERCENT: u64 = 40;
/// From this share on it gives it back; between the two it stays what it is.
const BUSY_PERCENT: u64 = 60;

/// From this lateness on a reply has waited for a CPU: the shortest slice of others is 0.7 ms (`base_slice_ns` of Linux
/// 6.18), and a wake-up takes less than half of it.
const WAITED: Duration = Duration::from_micros(500);
/// How long a reply that waited for a CPU counts: as long as a database takes to start.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Keeps the calling thread in the real-time class for as long as it needs that, and leaves much of a CPU to others.
pub struct Urgency {
    looked: Instant,
    used: Duration,
    /// Until when a reply that was late counts.
    wanted_until: Option<Instant>,
    is_urgent: bool,
    /// Whether this machine lets us: it needs `CAP_SYS_NICE`, and real-time bandwidth in its control group.
    may: bool,
}

impl Urgency {
    /// Of a thread that has just begun to serve.
    pub fn new(now: Instant) -> Urgency {
        Urgency {
            looked: now,
            used: thread_time(),
            wanted_until: None,
            is_urgent: false,
            may: true,
        }
    }

    /// A reply was so late, in the time of this machine.
    pub fn replied(&mut self, now: Instant, late: Duration) {
        if late >= WAITED {
            self.wanted_until = Some(now + REMEMBERED);
        }
    }

    /// Looks, at most once in 50 ms, how much of a CPU the thread has used, and changes its class accordingly.
    pub fn look(&mut self, now: Instant) {
        let passed = now.saturating_since(self.looked);
        if passed < LOOK_EVERY || !self.may {
            return;
        }
        self.looked = now;
        let wanted = self.wanted_until.is_some_and(|until| now < until);
        if !wanted && !self.is_urgent {
            return;
        }
        let used = thread_time();
        let percent = share_percent(used.saturating_sub(self.used), passed);
        self.used = used;
        let shall = wanted && is_calm(self.is_urgent, percent);
        if shall == self.is_urgent {
            return;
        }
        self.is_urgent = shall;
        if shall {
            self.may = become_urgent().is_ok();
        } else {
            calm_all_threads();
        }
    }
}

fn share_percent(used: Duration, passed: Duration) -> u64 {
    used.as_nanos().saturating_mul(100) / passed.as_nanos().max(1)
}

/// Whether a thread that uses so much of a CPU leaves enough of it to be in the real-time class.
fn is_calm(is_urgent: bool, percent: u64) -> bool {
    if is_urgent {
        percent < BUSY_PERCENT
    } else {
        percent <= CALM_PERCENT
    }
}

/// Puts the calling thread, and those that it will start, into the real-time class, at its lowest priority.
///
/// # Errors
///
/// The kernel refuses: `CAP_SYS_NICE` is missing, or the control group has no real-time bandwidth.
pub fn become_urgent() -> io::Result<()> {
    let wanted = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter outlives the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the real-time class back: this thread's, and that of the kernel's workers for its ring, which inherit it. One
/// that ends meanwhile needs nothing.
fn calm_all_threads() {
    let _own = raise(0);
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return;
    };
    for thread in threads.flatten() {
        if let Some(number) = thread
            .file_name()
            .to_str()
            .and_then(|text| text.parse().ok())
        {
            let _ended = raise(number);
        }
    }
}

/// Gives this thread, and those that it will start, the highest nice value and a short slice.
fn raise_thread() -> io::Result<()> {
    raise(0)
}

/// The same for the thread with this number; zero: the calling one.
fn raise(thread: libc::pid_t) -> io::Result<()> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).expect("a few bytes");
    attributes.sched_policy = u32::try_from(libc::SCHED_OTHER).expect("0");
    attributes.sched_nice = HIGHEST;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the structure outlives the call, and says how long it is.
    let code = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives this process's session the CPU first, where the kernel shares CPUs out by session: then a nice value only
/// counts among the threads of one (sched(7), "The autogroup feature"). A session that others are in too, such as a
/// shell's, is left alone.
fn raise_session() -> io::Result<()> {
    // SAFETY: no memory involved.
    let leads = unsafe { libc::getsid(0) == libc::getpid() };
    let by_session = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    if !leads || !by_session.is_ok_and(|text| text.trim() == "1") {
        return Ok(());
    }
    fs::write("/proc/self/autogroup", HIGHEST.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_gives_the_real_time_class_back() {
        assert!(is_calm(false, 0) && is_calm(false, CALM_PERCENT));
        assert!(!is_calm(false, CALM_PERCENT + 1) && is_calm(true, BUSY_PERCENT - 1));
        assert!(!is_calm(true, BUSY_PERCENT) && !is_calm(false, 100));
    }

    #[test]
    fn the_share_is_that_of_one_cpu() {
        let passed = Duration::from_millis(50);
        assert_eq!(share_percent(Duration::from_millis(20), passed), 40);
        assert_eq!(share_percent(passed, passed), 100);
        assert_eq!(share_percent(Duration::ZERO, Duration::ZERO), 0);
    }

    #[test]
    fn the_class_of_a_thread_follows_what_it_does() {
        let class = || {
            // SAFETY: no memory involved.
            unsafe { libc::sched_getscheduler(0) }
        };
        let begin = crate::clock::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let mut urgency = Urgency::new(begin);
        urgency.replied(begin, Duration::from_micros(499));
        urgency.look(after(1_000));
        assert_eq!(class(), libc::SCHED_OTHER, "no reply waited for a CPU");
        urgency.replied(after(1_000), WAITED);
        urgency.look(after(1_049));
        assert_eq!(class(), libc::SCHED_OTHER, "it was looked at 49 ms ago");
        // It has used none of what is taken for a second.
        urgency.look(after(2_000));
        if !urgency.may {
            eprintln!("not shown: this machine refuses the real-time class");
            return;
        }
        assert_eq!(class(), libc::SCHED_FIFO);
        let used = thread_time();
        while thread_time().saturating_sub(used) < Duration::from_millis(60) {}
        urgency.look(after(2_060));
        assert_eq!(class(), libc::SCHED_OTHER, "it was busy all the time");
        urgency.look(after(3_000));
        assert_eq!(class(), libc::SCHED_FIFO);
        urgency.look(after(11_001));
        assert_eq!(
            class(),
            libc::SCHED_OTHER,
            "no reply waited for ten seconds"
        );
    }
}
