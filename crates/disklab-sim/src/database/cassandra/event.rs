//! What happens in a simulated cluster.

use crate::event::events;

events! {
    /// What happens.
    pub enum Event in 32 bits {
        /// An operation reaches its coordinator.
        Arrive(operation: u32),
        /// A request of a replica is ready for its slot.
        Enter(request: u32),
        /// A replica has done the CPU work of a request.
        Work(request: u32),
        /// A replica's answer reaches the coordinator.
        Answer(request: u32),
        /// An operation is back at its client.
        Done(operation: u32),
        /// An open loop's next operation arrives.
        Offer,
        /// A node's commit log is synced.
        Tick(node: u32),
        /// A node's background streams may write.
        Pump(node: u32),
        /// A coordinator looks for reads that take too long.
        Late(node: u32),
        /// The warm-up is over.
        Measure,
        /// A look at the timetable of faults: what is due, what has expired.
        Faults,
        /// A piece of a rebuild has come to its next place.
        Piece(piece: u32),
    }
}
