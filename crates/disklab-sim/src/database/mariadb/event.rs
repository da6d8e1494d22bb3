//! What happens in a simulated MariaDB.

use crate::engine::Code;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session has its next transaction ready.
    Begin(u32),
    /// Its statement reaches its thread of the server.
    Arrive(u32),
    /// The thread has parsed it and goes for its rows.
    Plan(u32),
    /// It has done the CPU work of its pages, and of its commit.
    Ready(u32),
    /// The other servers have its commit.
    Confirmed(u32),
    /// Logs that nobody waits for are synced, and written back.
    Logs,
    /// The session has the answer.
    Done(u32),
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
    /// An open loop's next transaction arrives.
    Offer,
    /// The warm-up is over.
    Measure,
    /// The timetable is looked at.
    Faults,
    /// A part of the redo log is parsed after a crash, or this page has its records.
    Recovered(u32),
}

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
            Event::Due => (6, 0),
            Event::Cleaner => (7, 0),
            Event::Offer => (8, 0),
            Event::Measure => (9, 0),
            Event::Confirmed(n) => (10, n),
            Event::Logs => (11, 0),
            Event::Applied(n) => (12, n),
            Event::OtherDue => (13, 0),
            Event::Faults => (14, 0),
            Event::Recovered(n) => (15, n),
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
            6 => Event::Due,
            7 => Event::Cleaner,
            8 => Event::Offer,
            9 => Event::Measure,
            10 => Event::Confirmed(number),
            11 => Event::Logs,
            12 => Event::Applied(number),
            13 => Event::OtherDue,
            14 => Event::Faults,
            _ => Event::Recovered(number),
        }
    }
}
