//! What percentiles consist of, where the answer is known: one queue, one station, one pause at a time.
//!
//! That the stretches of each operation add up to its time, in whole nanoseconds, is asserted by the simulator itself.

use crate::jobs;
use crate::jobs::{limit, near};
use std::collections::BTreeMap;

use disklab_disk::profile::{Scope, Unit};
use disklab_sim::cell::{CacheState, Consistency, Job};
use disklab_sim::{Report, simulate};

/// Reads that nothing but `change` makes slow.
fn run(threads: u32, change: impl Fn(&mut disklab_sim::cell::DatabaseJob)) -> Report {
    let mut job = jobs::reads(threads, 40_000, 3);
    change(jobs::database(&mut job));
    simulate(&job).expect("the job is valid")
}

/// A run whose pages are all in memory.
fn in_memory(database: &mut disklab_sim::cell::DatabaseJob) {
    database.dataset.rows = 1_000;
    database.cluster.page_cache_bytes = 1 << 30;
    database.before.page_cache = CacheState::Warm;
}

fn p99(report: &Report) -> &BTreeMap<&'static str, f64> {
    &report.tail.as_ref().expect("a database tells").p99
}

fn share(report: &Report, stretch: &str) -> f64 {
    let all: f64 = p99(report).values().sum();
    assert!((all - report.latency_ms.p99).abs() < 1e-6, "{all}");
    p99(report).get(stretch).unwrap_or(&0.0) / all
}

#[test]
fn a_disk_without_a_limit_serves() {
    let report = run(8, |_| ());
    assert!(share(&report, "disk") > 0.999, "{:?}", p99(&report));
}

/// 64 threads at a disk of 1,000 I/Os a second that each take 1 ms: of each 64 ms, 63 are the limit's.
#[test]
fn a_limit_makes_ios_wait() {
    let report = run(64, |database| {
        let limit = limit(Scope::All, Unit::Ios, 1_000);
        database.cluster.host.volumes[0].disks[0].limits = vec![limit];
    });
    let tail = report.tail.as_ref().expect("a database tells");
    let (limits, disk) = (tail.p50["limits"], tail.p50["disk"]);
    // A read takes one I/O, or two where a row crosses a page.
    assert!((limits / disk / 63.0 - 1.0).abs() < 0.05, "{limits} {disk}");
}

#[test]
fn one_slot_makes_reads_wait() {
    let report = run(10, |database| database.database.concurrent_reads = 1);
    // Nine of ten are before it.
    near(share(&report, "slots"), 0.9, 0.03);
}

#[test]
fn cpu_is_cpu() {
    let report = run(16, |database| {
        in_memory(database);
        database.cluster.cores = 1;
        database.parameters.read_cpu_ns = 100_000;
    });
    assert!(share(&report, "cpu") > 0.999, "{:?}", p99(&report));
}

#[test]
fn the_client_is_the_client() {
    let report = run(16, |database| {
        in_memory(database);
        database.client.cores = 1;
        database.parameters.client_read_cpu_ns = 100_000;
    });
    assert!(share(&report, "client") > 0.999, "{:?}", p99(&report));
}

/// A pause of 20 ms each 500 reads of 0.1 ms: one read in thirty or so meets one.
#[test]
fn a_pause_is_in_the_tail_and_not_in_the_median() {
    let report = run(16, |database| {
        in_memory(database);
        database.parameters.read_cpu_ns = 100_000;
        database.parameters.read_pause_ns = 20_000_000;
        database.parameters.pause_every_requests = 500;
    });
    assert!(share(&report, "pause") > 0.9, "{:?}", p99(&report));
    let median = &report.tail.as_ref().expect("a database tells").p50;
    assert!(median.get("pause").unwrap_or(&0.0) < &0.01, "{median:?}");
}

/// Three replicas, all of them asked, 2 ms away from each other and from the client.
#[test]
fn the_network_is_the_network() {
    let report = run(4, |database| {
        in_memory(database);
        database.network = jobs::network(2_000_000);
        database.cluster.nodes = 3;
        database.database.replication_factor = 3;
        database.database.consistency = Consistency::All;
        database.client.token_aware = true;
    });
    assert!(share(&report, "network") > 0.999, "{:?}", p99(&report));
}

/// Everything at once, on three nodes with reads and writes: no time is lost or counted twice.
#[test]
fn everything_adds_up() {
    let mut job: Job = jobs::reads(64, 40_000, 5);
    let database = jobs::database(&mut job);
    database.workload.read_ppm = 500_000;
    database.network = jobs::network(100_000);
    database.cluster.nodes = 3;
    database.cluster.cores = 4;
    database.database.replication_factor = 3;
    database.database.consistency = Consistency::Quorum;
    let parameters = &mut database.parameters;
    (parameters.overhead_ns, parameters.message_overhead_ns) = (50_000, 100_000);
    (
        parameters.coordinator_cpu_ns,
        parameters.message_cpu_ns,
        parameters.read_cpu_ns,
        parameters.write_cpu_ns,
    ) = (60_000, 50_000, 120_000, 150_000);
    (parameters.read_pause_ns, parameters.write_pause_ns) = (8_000_000, 18_000_000);
    parameters.pause_every_requests = 2_000;
    let report = simulate(&job).expect("the job is valid");
    assert!(share(&report, "pause") > 0.1);
    for kind in ["read", "write"] {
        let one = &report.per_operation[kind];
        let tail = one.tail.as_ref().expect("a database tells");
        for (stretches, value) in [
            (&tail.p50, one.latency_ms.p50),
            (&tail.p95, one.latency_ms.p95),
            (&tail.p99, one.latency_ms.p99),
        ] {
            assert!((stretches.values().sum::<f64>() - value).abs() < 1e-6);
        }
    }
    let writes = &report.per_operation["write"].tail;
    assert!(!writes.as_ref().expect("it tells").p99.contains_key("disk"));
}
