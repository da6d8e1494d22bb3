//! What the model has to do later, ordered by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A gate may open.
    Gate(u32),
    /// A volume may go on with what it held back.
    Resume(u32),
    /// Dirty blocks of a lane have waited long enough to be destaged.
    DestageDue(u32),
    /// A destage write of a lane has reached its disk.
    Destaged(u32),
    /// The cache has dirty room for writes that wait.
    Room,
}

/// Events by time; of two at the same time the one with the lower kind and number comes first, so
/// that the order never depends on the history of the heap.
///
/// The next event stands outside of the heap. A saturated disk has one event, which comes and goes
/// with each I/O and then never touches the heap.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The earliest event: time in the upper half, kind and number below, so that one comparison
    /// orders all of it; `NONE` when there is none.
    first: u128,
    /// The others.
    later: BinaryHeap<Reverse<u128>>,
}

/// After everything.
const NONE: u128 = u128::MAX;

impl Agenda {
    /// Nothing to do.
    pub fn new() -> Agenda {
        Agenda {
            first: NONE,
            later: BinaryHeap::new(),
        }
    }

    /// Notes an event for a time in nanoseconds.
    #[inline]
    pub fn push(&mut self, at: u64, event: Event) {
        let (kind, number) = match event {
            Event::Gate(gate) => (0_u64, gate),
            Event::Resume(volume) => (1, volume),
            Event::DestageDue(lane) => (2, lane),
            Event::Destaged(lane) => (3, lane),
            Event::Room => (4, 0),
        };
        let low = kind << 32 | u64::from(number);
        let mut key = u128::from(at) << 64 | u128::from(low);
        if key < self.first {
            std::mem::swap(&mut key, &mut self.first);
        }
        if key != NONE {
            self.later.push(Reverse(key));
        }
    }

    /// The time of the next event; the end of time when there is none.
    #[inline]
    pub fn next_at(&self) -> u64 {
        (self.first >> 64) as u64
    }

    /// Takes the next event, with its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let key = self.first;
        if key == NONE {
            return None;
        }
        self.first = self.later.pop().map_or(NONE, |next| next.0);
        let number = key as u32;
        let event = match (key >> 32) as u32 {
            0 => Event::Gate(number),
            1 => Event::Resume(number),
            2 => Event::DestageDue(number),
            3 => Event::Destaged(number),
            _ => Event::Room,
        };
        Some(((key >> 64) as u64, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_out_by_time_then_kind_then_number() {
        let mut agenda = Agenda::new();
        agenda.push(5, Event::Destaged(1));
        agenda.push(5, Event::Gate(9));
        agenda.push(u64::MAX - 1, Event::Resume(u32::MAX));
        agenda.push(5, Event::Gate(2));
        agenda.push(3, Event::DestageDue(7));
        assert_eq!(agenda.next_at(), 3);
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        let expected = [
            (3, Event::DestageDue(7)),
            (5, Event::Gate(2)),
            (5, Event::Gate(9)),
            (5, Event::Destaged(1)),
            (u64::MAX - 1, Event::Resume(u32::MAX)),
        ];
        assert_eq!(order, expected);
        assert_eq!(agenda.next_at(), u64::MAX);
    }
}
