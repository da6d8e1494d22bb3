//! The disk model: a pure, exact state machine for cloud disks.
//!
//! No clock, no thread, no I/O, no float: time is an argument and chance a seeded stream, so the
//! simulator (virtual time) and the emulator (real time) run the very same code.

mod agenda;
mod attach;
mod bucket;
mod cache;
mod change;
mod counters;
mod destage;
mod dirty;
mod explain;
mod fault;
mod flow;
mod gate;
mod host;
mod io;
mod lane;
mod latency;
mod limit;
mod parents;
mod part;
pub mod profile;
mod refusal;
mod stripe;
mod table;
mod validate;
mod volume;

pub use counters::{
    CacheCounters, Credits, LimitCounters, OperationCounters, Operations, VolumeCounters,
};
pub use fault::{Change, Fault};
pub use host::journal::{JournalEntry, JournalSpan, JournalWait};
pub use host::{CacheContents, Host};
pub use io::{Completion, Destaged, Io, Op, Outcome, VolumeId};
pub use part::Route;
pub use refusal::{Reason, Refusal, Rules};
pub use table::prefetch;
