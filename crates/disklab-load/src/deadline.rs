//! Time-outs of operations, without a timer for each.
//!
//! The runtime's timers cost a twenty-fifth of the client's time at full speed (perf, 2026-11-21), for something that
//! nearly never happens. Here a watch looks through the slots now and then, and wakes what has been waiting for too long.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use disklab_units::Instant;

/// When the operation of one slot began, and whether it has been given up.
#[derive(Debug, Default)]
pub struct Deadline {
    begun: Cell<Option<Instant>>,
    expired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Deadline {
    /// Waits for an operation that begins now; none when it took too long and was dropped.
    pub async fn guard<F: Future>(&self, now: Instant, operation: F) -> Option<F::Output> {
        self.begun.set(Some(now));
        let mut operation = pin!(operation);
        let outcome = std::future::poll_fn(|context| self.poll(operation.as_mut(), context)).await;
        self.begun.set(None);
        self.waker.take();
        outcome
    }

    fn poll<F: Future>(
        &self,
        operation: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        if let Poll::Ready(outcome) = operation.poll(context) {
            return Poll::Ready(Some(outcome));
        }
        if self.expired.take() {
            return Poll::Ready(None);
        }
        // A slot is one task: its waker stays the same while the operation lasts.
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Gives the operation up if it began before `limit`.
    pub fn expire(&self, limit: Instant) {
        if self.begun.get().is_some_and(|begun| begun < limit)
            && let Some(waker) = self.waker.take()
        {
            self.expired.set(true);
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use disklab_units::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH.saturating_add(Duration::from_millis(ms))
    }

    fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn only_what_began_before_the_limit_is_given_up() {
        let deadline = Deadline::default();
        {
            let mut stuck = pin!(deadline.guard(at(5), pending::<()>()));
            assert!(poll_once(stuck.as_mut()).is_pending());
            deadline.expire(at(5));
            assert!(poll_once(stuck.as_mut()).is_pending());
            deadline.expire(at(6));
            assert_eq!(poll_once(stuck.as_mut()), Poll::Ready(None));
        }
        // Nothing of it is left for the next operation.
        deadline.expire(at(100));
        let mut next = pin!(deadline.guard(at(50), ready(1)));
        assert_eq!(poll_once(next.as_mut()), Poll::Ready(Some(1)));
    }
}
