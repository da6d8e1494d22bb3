//! What happens in a simulated MariaDB.

use crate::database::sessions::session_events;

session_events! {
    /// What happens.
    pub enum Event {
        /// It has done the CPU work of its pages, and of its commit.
        Ready(session: u32),
        /// The other servers have its commit.
        Confirmed(session: u32),
        /// Logs that nobody waits for are synced, and written back.
        Logs,
        /// The page cleaner wakes up.
        Cleaner,
        /// A thread of another node has applied a commit's changes.
        Applied(thread: u32),
        /// A part of the redo log is parsed after a crash, or this page has its records.
        Recovered(piece: u32),
    }
}
