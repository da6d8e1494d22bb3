//! What happens in a simulated PostgreSQL.

use crate::database::sessions::SqlEvent;
use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What happens in every SQL database.
    Sql(SqlEvent),
    /// A backend has done the CPU work of a statement's pages, and of its commit.
    Ready(u32),
    /// An I/O has ended.
    Io(u32),
    /// A server's disk model is due.
    Due(u32),
    /// Log reaches a standby.
    Received(u32),
    /// A standby's confirmation reaches the primary.
    Confirmed(u32),
    /// The checkpointer looks how far it should be.
    Checkpointer,
    /// The background writer and the log's writer wake up.
    Background,
    /// A session has its turn with a file.
    Resume(u32),
    /// A server has done the CPU work of a part of its replay.
    Replayed(u32),
    /// A part of a copy of the primary's data has got to its next place.
    Copied(CopyStep),
}

/// Where a part of a copy has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyStep {
    /// The server that gets it.
    pub target: u8,
    /// Which try it belongs to: one that was cut short has none to go on with.
    pub round: u8,
    /// Where it is.
    pub at: CopyPlace,
}

/// Where a part of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// The primary's process has sent it.
    Sent,
    /// It has come to the new server.
    Come,
    /// The program there has written it into the page cache.
    Taken,
}

impl CopyStep {
    /// As a number below 2^19.
    fn number(self) -> u32 {
        let at = match self.at {
            CopyPlace::Sent => 0,
            CopyPlace::Come => 1,
            CopyPlace::Taken => 2,
        };
        at << 16 | u32::from(self.round) << 8 | u32::from(self.target)
    }

    fn of(number: u32) -> CopyStep {
        let [target, round, at, _] = number.to_le_bytes();
        CopyStep {
            target,
            round,
            at: match at {
                0 => CopyPlace::Sent,
                1 => CopyPlace::Come,
                _ => CopyPlace::Taken,
            },
        }
    }
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
            Event::Due(n) => (7, n),
            Event::Received(n) => (8, n),
            Event::Confirmed(n) => (9, n),
            Event::Checkpointer => (10, 0),
            Event::Background => (11, 0),
            Event::Resume(n) => (12, n),
            Event::Replayed(n) => (13, n),
            Event::Copied(step) => (14, step.number()),
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
            7 => Event::Due(number),
            8 => Event::Received(number),
            9 => Event::Confirmed(number),
            10 => Event::Checkpointer,
            11 => Event::Background,
            12 => Event::Resume(number),
            13 => Event::Replayed(number),
            _ => Event::Copied(CopyStep::of(number)),
        }
    }
}
