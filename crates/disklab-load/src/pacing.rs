//! Who starts the next operation, and when.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use disklab_units::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::arrivals::Arrivals;
use crate::clock::Clock;
use crate::job::{Job, Load};

/// An arrival shortly before the end is still sent by a timer that is late by less than this.
const LATE_AT_THE_END: Duration = Duration::from_millis(10);

/// Hands out starts of operations until the run's end.
pub struct Pacing {
    clock: Clock,
    /// Operations that are still to be started; none: as many as the time allows.
    left: Cell<Option<u64>>,
    end: Cell<Instant>,
    open: Option<OpenLoop>,
}

struct OpenLoop {
    arrivals: RefCell<Arrivals>,
    timer: AsyncFd<OwnedFd>,
    /// Slots that wait for the next arrival. The last to come is the first to go: its memory is warm.
    idle: RefCell<Vec<Waker>>,
}

impl Pacing {
    /// The pacing of a job whose clock has just been started. `arrivals` is used in the open loop.
    pub fn new(job: &Job, clock: Clock, arrivals: Option<Arrivals>) -> io::Result<Pacing> {
        let end = job.stop.duration_s.map_or(Instant::MAX, |s| {
            Instant::EPOCH.saturating_add(Duration::from_nanos((s * 1e9) as u64))
        });
        let open = match (job.load, arrivals) {
            (Load::Open(_), Some(arrivals)) => {
                // SAFETY: the AsyncFd owns the descriptor, and nobody reopens or replaces it.
                let timer =
                    unsafe { AsyncFd::register_with_interest(timer()?, Interest::READABLE) };
                let open = OpenLoop {
                    timer: timer?,
                    idle: RefCell::default(),
                    arrivals: RefCell::new(arrivals),
                };
                open.set_timer(&clock);
                Some(open)
            }
            _ => None,
        };
        Ok(Pacing {
            clock,
            left: Cell::new(job.stop.operations.map(|all| job.generator.part(all))),
            end: Cell::new(end),
            open,
        })
    }

    /// Waits until an operation is to start; returns its intended start. None: the run is over.
    pub async fn next(&self) -> Option<Instant> {
        match &self.open {
            None => self.take_at_once(),
            Some(open) => poll_fn(|context| self.poll_arrival(open, context)).await,
        }
    }

    fn take_at_once(&self) -> Option<Instant> {
        let now = self.clock.now();
        (now < self.end.get() && self.count_down()).then_some(now)
    }

    fn poll_arrival(&self, open: &OpenLoop, context: &mut Context<'_>) -> Poll<Option<Instant>> {
        let now = self.clock.now();
        let mut arrivals = open.arrivals.borrow_mut();
        let end = self.end.get();
        let over = arrivals.peek() >= end || now >= end.saturating_add(LATE_AT_THE_END);
        if over || self.left.get() == Some(0) {
            drop(arrivals);
            open.wake_all();
            return Poll::Ready(None);
        }
        if arrivals.peek() > now {
            open.idle.borrow_mut().push(context.waker().clone());
            return Poll::Pending;
        }
        self.count_down();
        let intended = arrivals.take();
        let another = arrivals.peek() <= now;
        drop(arrivals);
        if another {
            open.wake_one();
        } else {
            open.set_timer(&self.clock);
        }
        Poll::Ready(Some(intended))
    }

    fn count_down(&self) -> bool {
        match self.left.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                self.left.set(Some(left - 1));
                true
            }
        }
    }

    /// Wakes slots when arrivals are due, for ever. Does nothing in the closed loop.
    ///
    /// A timerfd and not tokio's timers, which count milliseconds. Each arrival sets it for the next one; a slot that
    /// ends its operation looks for itself whether one is due, so that a lost race costs nothing.
    pub async fn pace(&self) -> io::Result<()> {
        let Some(open) = &self.open else {
            return std::future::pending().await;
        };
        loop {
            // The count of expirations is not read: setting the timer again resets it.
            open.timer.readable().await?.clear_ready();
            open.wake_one();
        }
    }

    /// Ends the run: nothing more is started.
    pub fn stop(&self) {
        let now = self.clock.now();
        // An end in the past lets nothing through, not even what is due.
        self.end.set(now.min(self.end.get()));
        if let Some(open) = &self.open {
            open.wake_all();
        }
    }

    /// Arrivals before the end that were not taken.
    pub fn unsent(&self) -> u64 {
        let Some(open) = &self.open else { return 0 };
        let left = self.left.get().unwrap_or(u64::MAX);
        if left == 0 {
            return 0;
        }
        let until = self.end.get().min(self.clock.now());
        open.arrivals.borrow_mut().skip_until(until).min(left)
    }
}

impl OpenLoop {
    fn wake_one(&self) {
        let idle = self.idle.borrow_mut().pop();
        if let Some(waker) = idle {
            waker.wake();
        }
    }

    fn wake_all(&self) {
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        idle.into_iter().for_each(Waker::wake);
    }

    /// Sets the timer to the next arrival, which lies ahead.
    fn set_timer(&self, clock: &Clock) {
        let wait = self.arrivals.borrow().peek().saturating_since(clock.now());
        // Zero would stop the timer.
        let wait = wait.as_nanos().max(1);
        let at = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: (wait / 1_000_000_000) as libc::time_t,
                tv_nsec: (wait % 1_000_000_000) as libc::c_long,
            },
        };
        let timer = self.timer.get_ref().as_raw_fd();
        // SAFETY: a timerfd of ours and a valid time; it cannot fail with these.
        unsafe { libc::timerfd_settime(timer, 0, &raw const at, std::ptr::null_mut()) };
    }
}

fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: no memory involved.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
    if timer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(timer) })
}
