//! The event queue: virtual time in whole nanoseconds, ties in the order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bits of a scheduled event's key: time above, then the order of scheduling, then the event. One
/// comparison of integers orders all of it, and nothing depends on the history of the heap.
const CODE_BITS: u32 = 32;
const SEQUENCE_BITS: u32 = 40;
/// Two years and three months in nanoseconds: longer than any run.
const LATEST: u64 = (1 << (128 - CODE_BITS - SEQUENCE_BITS)) - 1;

/// An event that fits 32 bits: what happens, and to whom.
pub trait Code: Copy {
    /// The event as a number.
    fn encode(self) -> u32;
    /// The event of a number that [`Code::encode`] made.
    fn decode(code: u32) -> Self;
}

/// Events by time.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<u128>>,
    sequence: u64,
    now: u64,
    kind: std::marker::PhantomData<E>,
}

impl<E: Code> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue {
            heap: BinaryHeap::with_capacity(4096),
            sequence: 0,
            now: 0,
            kind: std::marker::PhantomData,
        }
    }
}

impl<E: Code> Queue<E> {
    /// The time of the latest event taken, in nanoseconds.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Events scheduled so far.
    pub fn scheduled(&self) -> u64 {
        self.sequence
    }

    /// Schedules an event; one in the past happens now.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        let at = at.max(self.now);
        assert!(at <= LATEST, "a run ends within two years");
        let low = u128::from(self.sequence) << CODE_BITS | u128::from(event.encode());
        self.heap
            .push(Reverse(u128::from(at) << (CODE_BITS + SEQUENCE_BITS) | low));
        self.sequence += 1;
    }

    /// Takes the next event and moves the clock to it.
    #[inline]
    pub fn pop(&mut self) -> Option<E> {
        let key = self.heap.pop()?.0;
        self.now = (key >> (CODE_BITS + SEQUENCE_BITS)) as u64;
        Some(E::decode(key as u32))
    }
}

/// Things by number; numbers are used again, the last one freed first.
#[derive(Debug)]
pub struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Adds a thing and returns its number.
    #[inline]
    pub fn add(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = thing;
            return number;
        }
        self.all.push(thing);
        u32::try_from(self.all.len() - 1).expect("fewer things under way than 2^32")
    }

    /// Gives a number back; the thing stays readable until the number is used again.
    #[inline]
    pub fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many are in use.
    pub fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.all[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Code for u32 {
        fn encode(self) -> u32 {
            self
        }
        fn decode(code: u32) -> u32 {
            code
        }
    }

    #[test]
    fn events_come_by_time_and_ties_in_the_order_of_scheduling() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 9), (3, 1), (5, 2), (0, 7), (5, u32::MAX)] {
            queue.push(at, event);
        }
        let order: Vec<(u32, u64)> =
            std::iter::from_fn(|| queue.pop().map(|event| (event, queue.now()))).collect();
        assert_eq!(order, [(7, 0), (1, 3), (9, 5), (2, 5), (u32::MAX, 5)]);
    }

    #[test]
    fn the_past_happens_now() {
        let mut queue = Queue::default();
        queue.push(10, 1);
        assert_eq!(queue.pop(), Some(1));
        queue.push(4, 2);
        assert_eq!((queue.pop(), queue.now()), (Some(2), 10));
    }
}
