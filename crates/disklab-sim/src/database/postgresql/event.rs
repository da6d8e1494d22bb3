//! What happens in a simulated PostgreSQL.

use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session has its next transaction ready.
    Begin(u32),
    /// A session's statement reaches its backend.
    Arrive(u32),
    /// A backend has planned a statement and goes for its rows.
    Plan(u32),
    /// A backend has done the CPU work of a statement's pages, and of its commit.
    Ready(u32),
    /// A session has the answer to its statement.
    Done(u32),
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
    /// An open loop's next transaction arrives.
    Offer,
    /// A session has its turn with a file.
    Resume(u32),
    /// The warm-up is over.
    Measure,
    /// A look at the timetable of faults: what is due, what has expired.
    Faults,
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

/// Kinds of events have four bits, and all are used: a step of a copy is told from a server's number by this one.
const IS_COPY: u32 = 1 << 27;

impl Code for Event {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Event::Begin(n) => (0, n),
            Event::Arrive(n) => (1, n),
            Event::Plan(n) => (2, n),
            Event::Ready(n) => (3, n),
            Event::Done(n) => (4, n),
            Event::Io(n) => (5, n),
            Event::Due(n) => (6, n),
            Event::Received(n) => (7, n),
            Event::Confirmed(n) => (8, n),
            Event::Checkpointer => (9, 0),
            Event::Background => (10, 0),
            Event::Offer => (11, 0),
            Event::Measure => (12, 0),
            Event::Resume(n) => (13, n),
            Event::Faults => (14, 0),
            Event::Replayed(n) => (15, n),
            Event::Copied(step) => (15, IS_COPY | step.number()),
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
            3 => Event::Ready(number),
            4 => Event::Done(number),
            5 => Event::Io(number),
            6 => Event::Due(number),
            7 => Event::Received(number),
            8 => Event::Confirmed(number),
            9 => Event::Checkpointer,
            10 => Event::Background,
            11 => Event::Offer,
            13 => Event::Resume(number),
            14 => Event::Faults,
            15 if number & IS_COPY != 0 => Event::Copied(CopyStep::of(number & (IS_COPY - 1))),
            15 => Event::Replayed(number),
            _ => Event::Measure,
        }
    }
}
