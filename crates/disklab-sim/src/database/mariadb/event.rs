//! What happens in a simulated MariaDB.

use crate::database::sessions::SqlEvent;
use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What happens in every SQL database.
    Sql(SqlEvent),
    /// It has done the CPU work of its pages, and of its commit.
    Ready(u32),
    /// The other servers have its commit.
    Confirmed(u32),
    /// Logs that nobody waits for are synced, and written back.
    Logs,
    /// An I/O has ended.
    Io(u32),
    /// The disk model is due.
    Due,
    /// The page cleaner wakes up.
    Cleaner,
    /// A thread of another node has applied a commit's changes.
    Applied(u32),
    /// The disk model of the other node is due.
    OtherDue,
    /// A part of the redo log is parsed after a crash, or this page has its records.
    Recovered(u32),
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
            Event::Ready(n) => (5, n),
            Event::Io(n) => (6, n),
            Event::Due => (7, 0),
            Event::Cleaner => (8, 0),
            Event::Confirmed(n) => (9, n),
            Event::Logs => (10, 0),
            Event::Applied(n) => (11, n),
            Event::OtherDue => (12, 0),
            Event::Recovered(n) => (13, n),
        };
        debug_assert!(number < 1 << 28, "fewer things under way than 2^28");
        kind << 28 | number
    }

    #[inline]
    fn decode(code: u32) -> Event {
        let number = code & ((1 << 28) - 1);
        match code >> 28 {
            kind @ 0..SqlEvent::KINDS => Event::Sql(SqlEvent::of(kind, number)),
            5 => Event::Ready(number),
            6 => Event::Io(number),
            7 => Event::Due,
            8 => Event::Cleaner,
            9 => Event::Confirmed(number),
            10 => Event::Logs,
            11 => Event::Applied(number),
            12 => Event::OtherDue,
            _ => Event::Recovered(number),
        }
    }
}
