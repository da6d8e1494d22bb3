//! What happens in a simulated SQL cluster.

use crate::database::sessions::session_events;

session_events! {
    /// What happens.
    pub enum Event {
        /// A request reaches its tablet.
        Enter(request: u32),
        /// The CPU work of a request is done.
        Work(request: u32),
        /// The blocks that a request loaded are decompressed.
        Loaded(request: u32),
        /// A follower's acknowledgement reaches the leader of this request.
        Acked(request: u32),
        /// A majority has a request's rows.
        Committed(request: u32),
        /// A request's answer reaches the SQL layer.
        Answer(request: u32),
        /// A node looks at the log of its next tablet.
        Tick(node: u32),
        /// A node may flush and compact.
        Pump(node: u32),
    }
}
