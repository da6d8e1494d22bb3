//! The simulator: clients, cluster, caches and disks in virtual time.
//!
//! One event queue in whole nanoseconds, named random streams, and the disk model of
//! `disklab-disk` beneath. The same job gives the same figures on every machine.

mod answer;
mod background;
mod bound;
pub mod cell;
mod chance;
mod check;
mod client;
mod cluster;
mod database;
mod device;
mod disks;
pub mod engine;
mod event;
mod faults;
mod filelayout;
mod filereads;
mod groups;
mod job;
mod machine;
mod model;
mod network;
mod node;
mod pagecache;
mod pagelists;
mod pauses;
mod permutation;
mod readahead;
mod record;
mod replay;
mod report;
mod simulate;
pub mod station;
mod stopwatch;
mod storage;
mod tail;
#[cfg(test)]
mod tests;

pub use answer::answers;
pub use cell::{check, simulate, simulate_all};
pub use report::{
    CourseReport, CreditReport, FaultReport, Latencies, OperationReport, RebuildReport, Report,
    Resource, StepReport, Telemetry,
};
