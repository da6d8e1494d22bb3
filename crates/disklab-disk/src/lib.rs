//! The disk model: a pure, exact state machine for cloud disks.
//!
//! No clock, no thread, no I/O, no float: time is an argument and chance a seeded stream, so the
//! simulator (virtual time) and the emulator (real time) run the very same code.

mod counters;
mod fault;
mod host;
mod io;
pub mod profile;
mod refusal;

pub use counters::{
    CacheCounters, Credits, LimitCounters, OperationCounters, Operations, VolumeCounters,
};
pub use fault::{Change, Fault};
pub use host::Host;
pub use io::{Completion, Destaged, Io, Op, Outcome, VolumeId};
pub use refusal::{Reason, Refusal};
