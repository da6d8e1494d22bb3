//! The disk model: a pure, exact state machine for cloud disks.
//!
//! No clock, no thread, no I/O, no float: time is an argument and chance a seeded stream, so the
//! simulator (virtual time) and the emulator (real time) run the very same code.

mod host;
mod io;
pub mod profile;

pub use host::{Change, Fault, Host, Refusal};
pub use io::{Completion, Destaged, Io, Op, Outcome, VolumeId};
