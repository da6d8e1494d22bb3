//! Known answers of the SQL database: what can be worked out by hand must come out of a run.

use crate::jobs::{broken, close, selects, sql};
use disklab_sim::cell::*;
use disklab_sim::{Report, simulate};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn run(job: &Job) -> Report {
    simulate(job).expect("the job is valid")
}

/// Writes that everything is made of: rows of 1 KiB, each in a transaction of its own.
fn inserts(sessions: u32, duration_ns: u64, seed: u64) -> Job {
    let mut job = selects(sessions, duration_ns, seed);
    sql(&mut job).workload.transactions[0].statements[0].accesses[0].kind = AccessKind::Insert;
    job
}

#[test]
fn a_select_travels_to_its_node_and_two_of_three_times_on_to_a_leader() {
    let report = run(&selects(1, 30 * SECOND, 1));
    // 0.2 ms to the node and back, and two thirds of 0.2 ms more.
    let mean = 0.2 + 0.2 * 2.0 / 3.0;
    close(report.latency_ms.mean, mean, 0.01);
    assert!((report.ops_per_s * mean / 1e3 - 1.0).abs() < 0.01);
    assert_eq!(report.disk_ios, 0, "every block is in memory");
}

#[test]
fn a_node_caches_what_it_leads_and_no_more() {
    // A third of 3000 blocks is led by each node; half of that fits its block cache, and the page
    // cache holds its smallest size only: 1024 pages, 128 blocks.
    let mut job = selects(30, 20 * SECOND, 2);
    let database = sql(&mut job);
    database.tables[0].rows = 3 * 96_000 * 8;
    database.database.block_cache_bytes = 12_000 * (32 << 10);
    database.before = Before::default();
    database.workload.warm_up_ns = 10 * SECOND;
    let report = run(&job);
    let ratio = report.telemetry.block_cache_hit_ratio.expect("it has one");
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    let reads = report.telemetry.read_ios_per_operation;
    assert!((0.49..0.51).contains(&reads), "{reads}");
    let bytes = report.telemetry.read_bytes_per_operation / reads;
    assert!((bytes - 32_768.0).abs() < 1.0, "whole blocks: {bytes}");
}

#[test]
fn a_tablet_of_a_group_and_a_half_is_read_to_its_end() {
    // 24 tablets of 125 blocks, each read once: the rows beyond the last whole group too.
    let mut job = selects(30, 20 * SECOND, 5);
    let database = sql(&mut job);
    database.before = Before::default();
    database.workload.transactions[0].statements[0].accesses[0].draw =
        RowDraw::Nurand { a: 0, group: 2_600 };
    let report = run(&job);
    assert_eq!(report.disk_ios, 24 * 125);
}

#[test]
fn each_log_is_synced_once_a_second_however_many_rows_are_written() {
    for (sessions, seed) in [(4, 3), (16, 4)] {
        let mut job = inserts(sessions, 40 * SECOND, seed);
        // So small that no log grows by a megabyte within a second.
        sql(&mut job).tables[0].row_bytes = 16;
        sql(&mut job).workload.warm_up_ns = 20 * SECOND;
        let report = run(&job);
        let writes = report.telemetry.write_ios_per_operation * report.ops_per_s;
        // 24 tablets on each of three nodes.
        assert!((71.9..=72.1).contains(&writes), "{writes}");
    }
}

#[test]
fn a_write_waits_for_one_follower() {
    let mut job = inserts(1, 30 * SECOND, 5);
    let database = sql(&mut job);
    database.parameters.replication_overhead_ns = MS;
    let report = run(&job);
    // To the leader and back as a select, then to a follower and back, and a millisecond.
    let mean = 0.2 + 0.2 * 2.0 / 3.0 + 0.2 + 1.0;
    close(report.latency_ms.mean, mean, 0.01);
    let one = {
        sql(&mut job).database.replication_factor = 1;
        run(&job).latency_ms.mean
    };
    assert!((one - (mean - 0.2)).abs() < 0.02, "{one}");
}

#[test]
fn keying_and_thinking_set_the_rate_from_the_start() {
    let mut job = selects(10_000, 20 * SECOND, 6);
    let workload = &mut sql(&mut job).workload;
    workload.connections = Some(100);
    workload.transactions[0].keying_ns = 2 * SECOND;
    workload.transactions[0].think_ns = 3 * SECOND;
    let report = run(&job);
    close(report.ops_per_s, 2000.0, 0.02);
}

#[test]
fn a_log_that_is_being_synced_takes_nothing() {
    // A sync takes nearly as long as the time from one to the next: most logs are always being
    // synced, and writes wait for them; no request is lost in the wait (Little's law is asserted in each run).
    let mut job = inserts(24, 5 * SECOND, 7);
    let fast = run(&job).ops_per_s;
    sql(&mut job).workload.duration_ns = 300 * SECOND;
    let disk = &mut sql(&mut job).cluster.host.volumes[0].disks[0];
    disk.latency.write = disklab_disk::profile::Distribution::constant(900 * MS);
    let slow = run(&job);
    assert!(slow.ops_per_s < fast / 10.0, "{} {fast}", slow.ops_per_s);
    assert!((slow.mean_in_flight - 24.0).abs() < 0.1);
    let busy = slow.ops_per_s * slow.latency_ms.mean / 1e3;
    close(busy, 24.0, 0.05);
}

#[test]
fn every_broken_rule_is_named_at_once() {
    let mut job = selects(0, SECOND, 1);
    let database = sql(&mut job);
    database.database.replication_factor = 5;
    database.workload.transactions[0].statements[0].accesses[0].table = "nobody".to_owned();
    database.tables[0].rows = 1 << 40;
    let places = [
        "database.replication_factor",
        "workload.sessions",
        "tables",
        "workload.transactions.transaction",
    ];
    assert_eq!(broken(&job), places);
}
