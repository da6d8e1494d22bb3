//! What happens in a simulated cluster.

use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation reaches its coordinator.
    Arrive(u32),
    /// A request of a replica is ready for its slot.
    Enter(u32),
    /// A replica has done the CPU work of a request.
    Work(u32),
    /// An I/O has ended.
    Io(u32),
    /// A replica's answer reaches the coordinator.
    Answer(u32),
    /// An operation is back at its client.
    Done(u32),
    /// A node's disk model is due.
    Due(u32),
    /// An open loop's next operation arrives.
    Offer,
    /// A node's commit log is synced.
    Tick(u32),
    /// A node's background streams may write.
    Pump(u32),
    /// A coordinator looks for reads that take too long.
    Late(u32),
    /// The warm-up is over.
    Measure,
    /// A look at the timetable of faults: what is due, what has expired.
    Faults,
    /// A piece of a rebuild has come to its next place.
    Piece(u32),
}

impl Code for Event {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Event::Arrive(n) => (0, n),
            Event::Enter(n) => (1, n),
            Event::Work(n) => (2, n),
            Event::Io(n) => (3, n),
            Event::Answer(n) => (4, n),
            Event::Done(n) => (5, n),
            Event::Due(n) => (6, n),
            Event::Offer => (7, 0),
            Event::Tick(n) => (8, n),
            Event::Pump(n) => (9, n),
            Event::Late(n) => (11, n),
            Event::Measure => (10, 0),
            Event::Faults => (12, 0),
            Event::Piece(n) => (13, n),
        };
        debug_assert!(number < 1 << 28, "fewer things under way than 2^28");
        kind << 28 | number
    }

    #[inline]
    fn decode(code: u32) -> Event {
        let number = code & ((1 << 28) - 1);
        match code >> 28 {
            0 => Event::Arrive(number),
            1 => Event::Enter(number),
            2 => Event::Work(number),
            3 => Event::Io(number),
            4 => Event::Answer(number),
            5 => Event::Done(number),
            6 => Event::Due(number),
            7 => Event::Offer,
            8 => Event::Tick(number),
            9 => Event::Pump(number),
            11 => Event::Late(number),
            12 => Event::Faults,
            13 => Event::Piece(number),
            _ => Event::Measure,
        }
    }
}
