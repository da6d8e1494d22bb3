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

/// Buckets of the wheel.
const BUCKETS: u64 = 1024;

/// Width of a bucket at the start, as a power of two of nanoseconds: 4 us. It follows the events.
const FIRST_SHIFT: u32 = 12;

/// Widths that the wheel may choose: 64 ns to 17 s.
const SHIFTS: std::ops::RangeInclusive<u32> = 6..=34;

/// After so many events the wheel looks whether its width is right.
const LOOK_EVERY: u64 = 16_384;

/// Events of a bucket that is neither too wide (they have to be sorted) nor too narrow (far events
/// have to wait in a heap).
const GOOD_FILL: std::ops::RangeInclusive<u64> = 2..=8;

/// Events by time.
///
/// A wheel of buckets for what happens soon, a heap for what happens later. A bucket is sorted when its
/// time has come, so a push is an append, and a pop takes from the end of a short sorted list. Keys are
/// total: neither the width of the buckets nor its changes can alter the order.
///
/// **Lesson:** a binary heap of all events took a third of a run. Most events lie a few microseconds to
/// some milliseconds ahead, and a heap compares each of them ten times on its way in and out; terminals
/// that think for seconds made it deeper still.
#[derive(Clone, Debug)]
pub struct Queue<E> {
    buckets: Vec<Vec<u128>>,
    /// A bit for each bucket with events.
    occupied: [u64; (BUCKETS / 64) as usize],
    /// Events of the bucket whose time it is, the next one last.
    current: Vec<u128>,
    /// Its number since the beginning of time: a time shifted right.
    slot: u64,
    shift: u32,
    /// Events behind the wheel's horizon.
    far: BinaryHeap<Reverse<u128>>,
    /// Since the width was looked at: buckets whose time came, and events taken.
    emptied: u64,
    events: u64,
    sequence: u64,
    now: u64,
    kind: std::marker::PhantomData<E>,
}

impl<E: Code> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue {
            buckets: vec![Vec::new(); BUCKETS as usize],
            occupied: [0; (BUCKETS / 64) as usize],
            current: Vec::new(),
            slot: 0,
            shift: FIRST_SHIFT,
            far: BinaryHeap::new(),
            emptied: 0,
            events: 0,
            sequence: 0,
            now: 0,
            kind: std::marker::PhantomData,
        }
    }
}

/// The time of a key.
#[inline]
fn time_of(key: u128) -> u64 {
    (key >> (CODE_BITS + SEQUENCE_BITS)) as u64
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
    pub fn push(&mut self, at: u64, event: impl Into<E>) {
        let at = at.max(self.now);
        assert!(at <= LATEST, "a run ends within two years");
        let low = u128::from(self.sequence) << CODE_BITS | u128::from(event.into().encode());
        self.sequence += 1;
        self.place(u128::from(at) << (CODE_BITS + SEQUENCE_BITS) | low);
    }

    /// The number of a key's bucket. The first is one, so that what is scheduled before the first
    /// event was taken lies in a bucket too, and is sorted once.
    #[inline]
    fn slot_of(&self, key: u128) -> u64 {
        (time_of(key) >> self.shift) + 1
    }

    #[inline]
    fn place(&mut self, key: u128) {
        let slot = self.slot_of(key);
        if slot <= self.slot {
            let at = self.current.partition_point(|&other| other > key);
            self.current.insert(at, key);
        } else if slot - self.slot < BUCKETS {
            let index = slot % BUCKETS;
            self.buckets[index as usize].push(key);
            self.occupied[(index / 64) as usize] |= 1 << (index % 64);
        } else {
            self.far.push(Reverse(key));
        }
    }

    /// Takes the next event and moves the clock to it.
    #[inline]
    pub fn pop(&mut self) -> Option<E> {
        self.pop_before(u64::MAX)
    }

    /// The same, if it comes before a time.
    #[inline]
    pub fn pop_before(&mut self, until: u64) -> Option<E> {
        if self.current.is_empty() {
            self.turn()?;
        }
        let key = *self.current.last()?;
        if time_of(key) >= until {
            return None;
        }
        self.current.pop();
        self.events += 1;
        self.now = time_of(key);
        Some(E::decode(key as u32))
    }

    /// Turns the wheel to the next bucket with events; none: there are no events.
    fn turn(&mut self) -> Option<()> {
        if self.events >= LOOK_EVERY {
            self.look();
            if !self.current.is_empty() {
                return Some(());
            }
        }
        let far = self.far.peek().map(|key| self.slot_of(key.0));
        let near = self.next_occupied();
        self.slot = near.into_iter().chain(far).min()?;
        let index = (self.slot % BUCKETS) as usize;
        std::mem::swap(&mut self.current, &mut self.buckets[index]);
        self.occupied[index / 64] &= !(1 << (index % 64));
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        while let Some(key) = self.far.peek()
            && self.slot_of(key.0) - self.slot < BUCKETS
        {
            let key = key.0;
            self.far.pop();
            self.place(key);
        }
        self.emptied += 1;
        Some(())
    }

    /// Number of the next bucket with events behind the current one.
    #[inline]
    fn next_occupied(&self) -> Option<u64> {
        let words = self.occupied.len() as u64;
        let start = (self.slot + 1) % BUCKETS;
        let first = self.occupied[(start / 64) as usize] & (u64::MAX << (start % 64));
        let rest = (1..=words).map(|step| {
            let word = (start / 64 + step) % words;
            (step, self.occupied[word as usize])
        });
        let (step, bits) = std::iter::once((0, first))
            .chain(rest)
            .find(|&(_, bits)| bits != 0)?;
        let index = (start / 64 + step) % words * 64 + u64::from(bits.trailing_zeros());
        // All buckets lie less than a turn behind the current one.
        let distance = (index + BUCKETS - self.slot % BUCKETS) % BUCKETS;
        Some(self.slot + distance)
    }

    /// Makes buckets narrower or wider, so that each has a handful of events. Only between buckets.
    fn look(&mut self) {
        let fill = self.events / self.emptied.max(1);
        (self.emptied, self.events) = (0, 0);
        let shift = match fill {
            _ if fill > *GOOD_FILL.end() => self.shift - 1,
            _ if fill < *GOOD_FILL.start() => self.shift + 1,
            _ => return,
        };
        if !SHIFTS.contains(&shift) {
            return;
        }
        let mut keys: Vec<u128> = self.buckets.iter_mut().flat_map(|b| b.drain(..)).collect();
        keys.extend(self.far.drain().map(|key| key.0));
        self.occupied.fill(0);
        self.shift = shift;
        self.slot = (self.now >> shift) + 1;
        keys.into_iter().for_each(|key| self.place(key));
    }
}

/// Things by number; numbers are used again, the last one freed first.
#[derive(Clone, Debug)]
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
    use proptest::prelude::*;

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

    proptest! {
        /// Times of every size, pushed while events are taken, come in the order of a sorted list.
        #[test]
        fn the_wheel_orders_as_a_heap_does(
            steps in prop::collection::vec((0..50_u32, any::<u64>(), 0..4_u8), 1..3_000),
        ) {
            let mut queue = Queue::default();
            let mut heap = BinaryHeap::new();
            for (number, (bits, draw, pops)) in steps.into_iter().enumerate() {
                let at = queue.now() + (draw & ((1 << bits) - 1));
                queue.push(at, number as u32);
                heap.push(Reverse((at, number)));
                for _ in 0..pops / 2 {
                    let taken = queue.pop().map(|event: u32| (queue.now(), event as usize));
                    prop_assert_eq!(taken, heap.pop().map(|entry| entry.0));
                }
            }
            while let Some(event) = queue.pop() {
                let taken = Some((queue.now(), event as usize));
                prop_assert_eq!(taken, heap.pop().map(|entry| entry.0));
            }
            prop_assert!(heap.is_empty());
        }
    }

    #[test]
    fn the_width_of_the_buckets_follows_the_events() {
        for distance in [1, 100_000_000] {
            let mut queue = Queue::default();
            let mut at = 0;
            for _ in 0..100 {
                queue.push(at, 7_u32);
                at += distance;
            }
            let mut last = 0;
            for _ in 0..1_000_000 {
                assert_eq!(queue.pop(), Some(7));
                assert!(queue.now() >= last);
                last = queue.now();
                queue.push(last + 100 * distance, 7_u32);
            }
            assert!(
                (queue.shift < FIRST_SHIFT) == (distance == 1),
                "{}",
                queue.shift
            );
        }
    }

    #[test]
    fn the_past_happens_now() {
        let mut queue = Queue::default();
        queue.push(10, 1_u32);
        assert_eq!(queue.pop(), Some(1));
        queue.push(4, 2_u32);
        assert_eq!((queue.pop(), queue.now()), (Some(2), 10));
    }
}
