//! A host as its conductor sees it: `disklab-engine node`.
//!
//! The conductor (Python, over SSH) sends requests as JSON lines and gets answers as they are done. Whatever must outlive
//! the connection is a **job**: a keeper process of its own starts it, spools what it says and ends it when its lease is
//! over, so that the agent itself keeps no state and may die at any moment.

mod block;
mod bytes;
mod disks;
mod failure;
mod files;
mod folder;
mod jobs;
mod keeper;
mod lease;
mod lines;
mod mounts;
mod pages;
mod processes;
mod protocol;
mod session;
mod signatures;
mod system;
mod upload;
mod watch;

pub use failure::Failure;
pub use keeper::keep;
pub use session::{Patient, Settings, serve};
pub use watch::watch;

/// The number of the protocol: a conductor speaks to this one only.
pub const PROTOCOL: u32 = 1;

/// The variable that marks the processes of a job: `CONDUCTOR/JOB`.
pub const MARK: &str = "DISKLAB_JOB";
