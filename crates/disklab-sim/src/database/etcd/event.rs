//! What happens in a simulated etcd.

use crate::database::sessions::session_events;

session_events! {
    /// What happens.
    pub enum Event {
        /// A request that another member took reaches the leader.
        Asked(session: u32),
        /// A majority has confirmed the leader to a read.
        Confirmed(session: u32),
        /// A request can be answered.
        Ready(session: u32),
        /// Entries of the log reach a follower.
        Received(member: u32),
        /// A follower's answer to entries reaches the leader.
        Acked(member: u32),
        /// What is committed reaches a follower.
        Learned(member: u32),
        /// Heartbeats are due.
        Heartbeat,
        /// A member's puts are due for its database file.
        Batch(member: u32),
    }
}
