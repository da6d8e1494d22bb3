//! Jobs in which something breaks.

use disklab_sim::cell::faults::{Event, Faults, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, simulate};

use super::{database, json, open, reads};

pub const SECOND: u64 = 1_000_000_000;
pub const MB: u64 = 1_000_000;

/// `nodes` nodes with all rows on each `copies` of them, 1 GB of rows in all, under 100 operations a second for
/// `seconds`; node 1 is lost after a second and replaced after two. Nothing but disks and links takes any time.
pub fn job(nodes: u32, copies: u32, seconds: u64) -> Job {
    let mut job = reads(1, 1, 1);
    let database = database(&mut job);
    database.cluster.nodes = nodes;
    database.cluster.ownership_ppm = Some(vec![1; nodes as usize]);
    database.cluster.page_cache_bytes = 4 << 20;
    database.database.replication_factor = copies;
    database.database.consistency = Consistency::One;
    database.database.table_write_bytes_per_s = 0;
    database.dataset.rows = 1_000 * MB / 4096;
    database.workload.load = open(100_000, Arrivals::Even, 4096);
    database.workload.stop = Stop {
        operations: None,
        duration_ns: Some(seconds * SECOND),
    };
    database.faults = json(json!({
        "events": [at(1, What::Lose), at(2, What::Replace)], "interval_ns": SECOND, "detect_ns": 0,
        "notice_ns": 0, "timeout_ns": 12 * SECOND, "read_timeout_ns": 5 * SECOND, "write_timeout_ns": 2 * SECOND,
        "start_ns": 0, "join_ns": 0, "stream_bytes_per_s": 0,
    }));
    job
}

pub fn at(second: u64, what: What) -> Event {
    super::servers::at(second, 1, what)
}

pub fn run(job: &Job) -> FaultReport {
    let report = simulate(job).expect("the job is valid");
    report.faults.expect("it has a timetable")
}

/// What breaks in a job.
pub fn faults(job: &mut Job) -> &mut Faults {
    database(job).faults.as_mut().expect("there are some")
}
