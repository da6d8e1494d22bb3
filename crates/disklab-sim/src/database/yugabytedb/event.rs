//! What happens in a simulated SQL cluster.

use crate::database::sessions::SqlEvent;
use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What happens in every SQL database.
    Sql(SqlEvent),
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
    /// An I/O has ended.
    Io(u32),
    /// A node's disk model is due.
    Due(u32),
    /// A node looks at the log of its next tablet.
    Tick(u32),
    /// A node may flush and compact.
    Pump(u32),
}

impl From<SqlEvent> for Event {
    #[inline]
    fn from(event: SqlEvent) -> Event {
        Event::Sql(event)
    }
}

impl Code for Event {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Event::Sql(event) => event.parts(),
            Event::Enter(n) => (5, n),
            Event::Work(n) => (6, n),
            Event::Loaded(n) => (7, n),
            Event::Acked(n) => (8, n),
            Event::Committed(n) => (9, n),
            Event::Answer(n) => (10, n),
            Event::Io(n) => (11, n),
            Event::Due(n) => (12, n),
            Event::Tick(n) => (13, n),
            Event::Pump(n) => (14, n),
        };
        debug_assert!(number < 1 << 28, "fewer things under way than 2^28");
        kind << 28 | number
    }

    #[inline]
    fn decode(code: u32) -> Event {
        let number = code & ((1 << 28) - 1);
        match code >> 28 {
            kind @ 0..SqlEvent::KINDS => Event::Sql(SqlEvent::of(kind, number)),
            5 => Event::Enter(number),
            6 => Event::Work(number),
            7 => Event::Loaded(number),
            8 => Event::Acked(number),
            9 => Event::Committed(number),
            10 => Event::Answer(number),
            11 => Event::Io(number),
            12 => Event::Due(number),
            13 => Event::Tick(number),
            _ => Event::Pump(number),
        }
    }
}
