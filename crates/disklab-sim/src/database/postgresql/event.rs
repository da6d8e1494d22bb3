//! What happens in a simulated PostgreSQL.

use crate::database::sessions::session_events;
use crate::event::Subject;

session_events! {
    /// What happens.
    pub enum Event {
        /// A backend has done the CPU work of a statement's pages, and of its commit.
        Ready(session: u32),
        /// Log reaches a standby.
        Received(server: u32),
        /// A standby's confirmation reaches the primary.
        Confirmed(server: u32),
        /// The checkpointer looks how far it should be.
        Checkpointer,
        /// The background writer and the log's writer wake up.
        Background,
        /// A session has its turn with a file.
        Resume(session: u32),
        /// A server has done the CPU work of a part of its replay.
        Replayed(server: u32),
        /// A part of a copy of the primary's data has got to its next place.
        Copied(step: CopyStep),
    }
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

impl Subject for CopyStep {
    /// Below 2^19.
    fn number(self) -> u32 {
        let at = match self.at {
            CopyPlace::Sent => 0,
            CopyPlace::Come => 1,
            CopyPlace::Taken => 2,
        };
        at << 16 | u32::from(self.round) << 8 | u32::from(self.target)
    }

    fn of_number(number: u32) -> CopyStep {
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
