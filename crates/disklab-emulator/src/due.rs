//! Replies that wait for their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use disklab_units::Instant;

use crate::transport::Slot;

/// A heap of (time, slot), earliest first; ties go to the slot with the lower number.
#[derive(Default)]
pub struct DueHeap {
    heap: BinaryHeap<Reverse<(Instant, Slot)>>,
}

impl DueHeap {
    /// Makes room for so many replies, so that no push allocates.
    pub fn reserve(&mut self, slots: usize) {
        self.heap.reserve(slots.saturating_sub(self.heap.len()));
    }

    /// Holds a reply until `at`.
    pub fn push(&mut self, at: Instant, slot: Slot) {
        self.heap.push(Reverse((at, slot)));
    }

    /// When the earliest reply is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest reply if it is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<Slot> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, slot))| slot)
    }

    /// Forgets the replies for which `keep` says no.
    pub fn retain(&mut self, mut keep: impl FnMut(Slot) -> bool) {
        self.heap.retain(|Reverse((_, slot))| keep(*slot));
    }

    /// Takes any reply, due or not.
    pub fn pop(&mut self) -> Option<Slot> {
        self.heap.pop().map(|Reverse((_, slot))| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_by_time_and_not_before() {
        let mut heap = DueHeap::default();
        for (at, slot) in [(30, 0), (10, 1), (20, 2), (10, 3)] {
            heap.push(Instant::from_nanos(at), Slot(slot));
        }
        assert_eq!(heap.pop_due(Instant::from_nanos(9)), None);
        assert_eq!(heap.pop_due(Instant::from_nanos(20)), Some(Slot(1)));
        assert_eq!(heap.pop_due(Instant::from_nanos(20)), Some(Slot(3)));
        assert_eq!(heap.pop_due(Instant::from_nanos(20)), Some(Slot(2)));
        assert_eq!(heap.pop_due(Instant::from_nanos(20)), None);
        assert_eq!(heap.next(), Some(Instant::from_nanos(30)));
        assert_eq!(heap.pop(), Some(Slot(0)));
        assert_eq!(heap.next(), None);
    }
}
