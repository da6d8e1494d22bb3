//! Servers of PostgreSQL that break.

use disklab_disk::profile::{Scope, Unit};
use disklab_sim::cell::faults::{Event, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, Report, simulate};

use super::{json, limit, open, postgresql, postgresql_job};

/// A millisecond.
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const RATE: u64 = 500;

pub fn at(second: u64, node: u32, what: What) -> Event {
    json(json!({"at_ns": second * SECOND, "node": node, "what": what}))
}

/// 500 updates a second for so long, and what breaks meanwhile; nothing but disks and network takes any time.
pub fn job(seconds: u64, events: Vec<Event>) -> Job {
    let mut job = postgresql_job(AccessKind::Update, 1, seconds * SECOND, 1);
    let servers = postgresql(&mut job);
    servers.workload.load = open(RATE * 1000, Arrivals::Even, 200);
    servers.cluster.read_ahead_bytes = 128 << 10;
    servers.faults = Some(SqlFaults { events, ..waits() });
    job
}

/// A timetable of nothing, and how long servers and clients wait.
pub fn waits() -> SqlFaults {
    json(json!({
        "events": [], "interval_ns": SECOND, "start_ns": 100 * MS, "timeout_ns": 12 * SECOND,
        "vanishes": false, "first_retry_ns": 100 * MS, "most_retry_ns": SECOND,
        "patience_ns": 5 * SECOND, "follow_ns": 5 * SECOND, "replay_record_cpu_ns": 0,
        "replay_byte_cpu_ps": 0, "replay_depth": 10, "promote_ns": 100 * MS,
    }))
}

pub fn run(job: &Job) -> (Report, FaultReport) {
    let mut report = simulate(job).expect("the job is valid");
    let faults = report.faults.take().expect("it has a timetable");
    (report, faults)
}

/// A disk that reads or writes so many bytes a second.
pub fn limited(job: &mut Job, scope: Scope, bytes_per_s: u64) {
    postgresql(job).cluster.host.volumes[0].disks[0].limits =
        vec![limit(scope, Unit::Bytes, bytes_per_s)];
}
