//! Who starts the next operation, and when.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use disklab_units::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::arrivals::Arrivals;
use crate::clock::Clock;
use crate::job::Job;

/// An arrival shortly before the end is still sent by a timer that is late by less than this.
const LATE_AT_THE_END: Duration = Duration::from_millis(10);

/// When an operation is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When it should; it may be later by now.
    pub intended: Instant,
    /// For whom, where terminals rest between operations.
    pub terminal: Option<usize>,
}

/// Intended starts, in order.
pub enum Schedule {
    /// Decided beforehand, whatever the database does.
    Arrivals(Arrivals),
    /// Decided beforehand for threads that start no sooner, and are not late when they start later: the ceiling of a
    /// closed loop. What they fall behind they catch up with.
    ///
    /// **Source:** `StressAction` of cassandra-stress 4.1 with `throttle=`, `ClientThread` of YCSB with `-target`.
    Ceiling(Arrivals),
    /// Those of terminals, each of which starts anew when it has rested.
    Terminals(Terminals),
}

/// Terminals that rest. One whose operation is under way is not among them.
#[derive(Debug)]
pub struct Terminals {
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Terminals {
    /// Terminals that start for the first time so long after the beginning.
    pub fn new(first: &[Duration]) -> Terminals {
        let starts = first.iter().enumerate();
        Terminals {
            resting: starts
                .map(|(terminal, wait)| Reverse((Instant::EPOCH.saturating_add(*wait), terminal)))
                .collect(),
        }
    }
}

impl Schedule {
    /// The next intended start; the end of time while every terminal is busy.
    fn peek(&self) -> Instant {
        match self {
            Schedule::Arrivals(arrivals) | Schedule::Ceiling(arrivals) => arrivals.peek(),
            Schedule::Terminals(terminals) => terminals
                .resting
                .peek()
                .map_or(Instant::MAX, |Reverse((start, _))| *start),
        }
    }

    /// Takes the next start, which is due; there is one.
    fn take(&mut self, now: Instant) -> Start {
        match self {
            Schedule::Ceiling(arrivals) => {
                arrivals.take();
                Start {
                    intended: now,
                    terminal: None,
                }
            }
            Schedule::Arrivals(arrivals) => Start {
                intended: arrivals.take(),
                terminal: None,
            },
            Schedule::Terminals(terminals) => {
                let first = terminals.resting.pop();
                let Reverse((intended, terminal)) = first.expect("peek has seen it");
                Start {
                    intended,
                    terminal: Some(terminal),
                }
            }
        }
    }

    /// Whether no start before `end` will come.
    fn over(&self, end: Instant, now: Instant) -> bool {
        match self {
            Schedule::Arrivals(arrivals) => {
                arrivals.peek() >= end || now >= end.saturating_add(LATE_AT_THE_END)
            }
            Schedule::Ceiling(arrivals) => arrivals.peek() >= end || now >= end,
            // A terminal whose operation ends may be there again at once.
            Schedule::Terminals(_) => now >= end,
        }
    }

    /// Takes every start before `end` that was offered; returns how many.
    fn skip_until(&mut self, end: Instant) -> u64 {
        match self {
            Schedule::Arrivals(arrivals) => arrivals.skip_until(end),
            // Nothing was offered: a ceiling only holds back.
            Schedule::Ceiling(_) => 0,
            Schedule::Terminals(terminals) => {
                let waiting = terminals.resting.drain();
                waiting.filter(|Reverse((start, _))| *start < end).count() as u64
            }
        }
    }
}

/// Hands out starts of operations until the run's end.
pub struct Pacing {
    clock: Clock,
    /// Operations that are still to be started; none: as many as the time allows.
    left: Cell<Option<u64>>,
    end: Cell<Instant>,
    paced: Option<Paced>,
}

struct Paced {
    schedule: RefCell<Schedule>,
    timer: AsyncFd<OwnedFd>,
    /// Slots that wait for the next start. The last to come is the first to go: its memory is warm.
    idle: RefCell<Vec<Waker>>,
}

impl Pacing {
    /// The pacing of a job of so many operations whose clock has just been started. Without a schedule an operation
    /// starts when a slot is free.
    pub fn new(
        job: &Job,
        operations: Option<u64>,
        clock: Clock,
        schedule: Option<Schedule>,
    ) -> io::Result<Pacing> {
        let end = job.stop.duration_s.map_or(Instant::MAX, |s| {
            Instant::EPOCH.saturating_add(Duration::from_nanos((s * 1e9) as u64))
        });
        let paced = match schedule {
            Some(schedule) => {
                // SAFETY: the AsyncFd owns the descriptor, and nobody reopens or replaces it.
                let timer =
                    unsafe { AsyncFd::register_with_interest(timer()?, Interest::READABLE) };
                let paced = Paced {
                    timer: timer?,
                    idle: RefCell::default(),
                    schedule: RefCell::new(schedule),
                };
                paced.set_timer(&clock, end);
                Some(paced)
            }
            None => None,
        };
        Ok(Pacing {
            clock,
            left: Cell::new(operations),
            end: Cell::new(end),
            paced,
        })
    }

    /// Waits until an operation is to start. None: the run is over.
    pub async fn next(&self) -> Option<Start> {
        match &self.paced {
            None => self.take_at_once(),
            Some(paced) => poll_fn(|context| self.poll_start(paced, context)).await,
        }
    }

    /// A terminal's operation has ended; its next one is to start then.
    pub fn rested(&self, terminal: usize, start: Instant) {
        let Some(paced) = &self.paced else { return };
        if let Schedule::Terminals(terminals) = &mut *paced.schedule.borrow_mut() {
            let first = terminals.resting.peek();
            let sooner = first.is_none_or(|Reverse((earliest, _))| start < *earliest);
            terminals.resting.push(Reverse((start, terminal)));
            if !sooner {
                return;
            }
        }
        paced.set_timer(&self.clock, self.end.get());
    }

    fn take_at_once(&self) -> Option<Start> {
        let now = self.clock.now();
        (now < self.end.get() && self.count_down()).then_some(Start {
            intended: now,
            terminal: None,
        })
    }

    fn poll_start(&self, paced: &Paced, context: &mut Context<'_>) -> Poll<Option<Start>> {
        let now = self.clock.now();
        let mut schedule = paced.schedule.borrow_mut();
        let end = self.end.get();
        if schedule.over(end, now) || self.left.get() == Some(0) {
            drop(schedule);
            paced.wake_all();
            return Poll::Ready(None);
        }
        if schedule.peek() > now {
            paced.idle.borrow_mut().push(context.waker().clone());
            return Poll::Pending;
        }
        self.count_down();
        let start = schedule.take(now);
        let another = schedule.peek() <= now;
        drop(schedule);
        if another {
            paced.wake_one();
        } else {
            paced.set_timer(&self.clock, end);
        }
        Poll::Ready(Some(start))
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

    /// Wakes slots when starts are due, for ever. Does nothing without a schedule.
    ///
    /// A timerfd and not tokio's timers, which count milliseconds. Each start sets it for the next one; a slot that
    /// ends its operation looks for itself whether one is due, so that a lost race costs nothing.
    pub async fn pace(&self) -> io::Result<()> {
        let Some(paced) = &self.paced else {
            return std::future::pending().await;
        };
        loop {
            // The count of expirations is not read: setting the timer again resets it.
            paced.timer.readable().await?.clear_ready();
            paced.wake_one();
        }
    }

    /// Ends the run: nothing more is started.
    pub fn stop(&self) {
        let now = self.clock.now();
        // An end in the past lets nothing through, not even what is due.
        self.end.set(now.min(self.end.get()));
        if let Some(paced) = &self.paced {
            paced.wake_all();
        }
    }

    /// Starts before the end that were not taken.
    pub fn unsent(&self) -> u64 {
        let Some(paced) = &self.paced else { return 0 };
        let left = self.left.get().unwrap_or(u64::MAX);
        if left == 0 {
            return 0;
        }
        let until = self.end.get().min(self.clock.now());
        paced.schedule.borrow_mut().skip_until(until).min(left)
    }
}

impl Paced {
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

    /// Sets the timer to the next start, which lies ahead, or to the end of the run.
    fn set_timer(&self, clock: &Clock, end: Instant) {
        let next = self.schedule.borrow().peek().min(end);
        let wait = next.saturating_since(clock.now());
        // Zero would stop the timer.
        let wait = clock.to_wait(wait).as_nanos().max(1);
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
