//! What happens in a simulated SQL cluster.

use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session has its next transaction ready.
    Begin(u32),
    /// A session's statement reaches its node.
    Arrive(u32),
    /// The SQL layer has planned a session's statement.
    Plan(u32),
    /// A request reaches its tablet.
    Enter(u32),
    /// The CPU work of a request is done.
    Work(u32),
    /// The blocks that a request loaded are decompressed.
    Loaded(u32),
    /// A follower's acknowledgement reaches the leader of this request.
    Acked(u32),
    /// A majority has a request's rows.
    Committed(u32),
    /// A request's answer reaches the SQL layer.
    Answer(u32),
    /// A session has the answer to its statement.
    Done(u32),
    /// An I/O has ended.
    Io(u32),
    /// A node's disk model is due.
    Due(u32),
    /// A node looks at the log of its next tablet.
    Tick(u32),
    /// A node may flush and compact.
    Pump(u32),
    /// The warm-up is over.
    Measure,
}

impl Code for Event {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Event::Begin(n) => (0, n),
            Event::Arrive(n) => (1, n),
            Event::Plan(n) => (2, n),
            Event::Enter(n) => (3, n),
            Event::Work(n) => (4, n),
            Event::Loaded(n) => (5, n),
            Event::Acked(n) => (6, n),
            Event::Committed(n) => (7, n),
            Event::Answer(n) => (8, n),
            Event::Done(n) => (9, n),
            Event::Io(n) => (10, n),
            Event::Due(n) => (11, n),
            Event::Tick(n) => (12, n),
            Event::Pump(n) => (13, n),
            Event::Measure => (14, 0),
        };
        debug_assert!(number < 1 << 28, "fewer things under way than 2^28");
        kind << 28 | number
    }

    #[inline]
    fn decode(code: u32) -> Event {
        let number = code & ((1 << 28) - 1);
        match code >> 28 {
            0 => Event::Begin(number),
            1 => Event::Arrive(number),
            2 => Event::Plan(number),
            3 => Event::Enter(number),
            4 => Event::Work(number),
            5 => Event::Loaded(number),
            6 => Event::Acked(number),
            7 => Event::Committed(number),
            8 => Event::Answer(number),
            9 => Event::Done(number),
            10 => Event::Io(number),
            11 => Event::Due(number),
            12 => Event::Tick(number),
            13 => Event::Pump(number),
            _ => Event::Measure,
        }
    }
}
