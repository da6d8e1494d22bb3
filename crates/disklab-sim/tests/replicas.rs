//! Copies of rows: how many replicas each consistency level asks and waits for, where they are, and what a slow one costs.

use crate::jobs::{close, database, disk, near, network, reads};
use disklab_disk::profile::Distribution;
use disklab_sim::cell::*;
use disklab_sim::{Report, simulate};

const LEVELS: [Consistency; 7] = [
    Consistency::One,
    Consistency::LocalOne,
    Consistency::Two,
    Consistency::Three,
    Consistency::Quorum,
    Consistency::LocalQuorum,
    Consistency::All,
];

/// Reads of one page, or writes, of so many copies on six nodes.
fn job(copies: u32, level: Consistency, read_ppm: u32) -> Job {
    let mut job = reads(8, 6_000, 1);
    let database = database(&mut job);
    database.cluster.nodes = 6;
    database.dataset.rows = 2_000_000;
    database.database.replication_factor = copies;
    database.database.consistency = level;
    database.workload.read_ppm = read_ppm;
    database.network = network(100_000);
    job
}

fn run(job: &Job) -> Report {
    simulate(job).expect("the job is valid")
}

fn needed(copies: u32, level: Consistency) -> u32 {
    match level {
        Consistency::One | Consistency::LocalOne => 1,
        Consistency::Two => copies.min(2),
        Consistency::Three => copies.min(3),
        Consistency::Quorum | Consistency::LocalQuorum => copies / 2 + 1,
        Consistency::All => copies,
    }
}

#[test]
fn a_read_asks_as_many_replicas_as_its_level_needs() {
    for copies in 1..=6 {
        for level in LEVELS {
            let report = run(&job(copies, level, 1_000_000));
            let ios = report.telemetry.read_ios_per_operation;
            let asked = f64::from(needed(copies, level));
            close(ios, asked, 0.02);
            // There and back to the coordinator, and to a further replica from it: 0.1 ms each; the disk 1 ms.
            let ways = if asked > 1.0 { 4.0 } else { 2.0 };
            let p50 = report.latency_ms.p50;
            close(p50, 1.0 + 0.1 * ways, 0.01);
        }
    }
}

#[test]
fn a_write_waits_for_as_many_replicas_as_its_level_needs() {
    for copies in 1..=6 {
        for level in LEVELS {
            let report = run(&job(copies, level, 0));
            let ways = if needed(copies, level) > 1 { 4.0 } else { 2.0 };
            let p50 = report.latency_ms.p50;
            close(p50, 0.1 * ways, 0.02);
        }
    }
}

#[test]
fn copies_in_other_zones_cost_a_quorum_their_way_and_one_copy_nothing() {
    let in_zones = |level| {
        let mut job = job(3, level, 0);
        let database = database(&mut job);
        database.cluster.zones = 3;
        database.client.token_aware = true;
        database.network.between_zones = Some(Delay {
            fixed_ns: 400_000,
            spread_ns: 0,
        });
        run(&job).latency_ms
    };
    // A third of the coordinators is in the client's zone; from every one both other copies are elsewhere.
    let (one, quorum) = (in_zones(Consistency::One), in_zones(Consistency::Quorum));
    assert!((one.p50 - 0.8).abs() < 0.01, "{one:?}");
    assert!((quorum.p50 - 1.6).abs() < 0.01, "{quorum:?}");
    near(quorum.mean - one.mean, 0.8, 0.01);
}

/// Reads of three copies from disks of which one access in a hundred takes 50 ms.
fn with_tail(level: Consistency, ablate: &[Mechanism]) -> Report {
    let mut job = job(3, level, 1_000_000);
    job.fidelity = Fidelity::Full;
    job.ablate.extend(ablate);
    let database = database(&mut job);
    database.workload.stop.operations = Some(200_000);
    database.database.speculative_percentile = 95;
    let points = vec![
        (0, 1_000_000),
        (980_000, 1_000_000),
        (980_001, 50_000_000),
        (1_000_000, 50_000_000),
    ];
    disk(database).latency.read = Distribution {
        quantiles_ppm_ns: points,
        per_kib_ns: 0,
    };
    run(&job)
}

#[test]
fn a_further_replica_is_asked_when_a_read_takes_long() {
    let quorum = Consistency::Quorum;
    let (with, without) = (
        with_tail(quorum, &[]),
        with_tail(quorum, &[Mechanism::SpeculativeRetry]),
    );
    assert!(without.latency_ms.p99 > 40.0, "{:?}", without.latency_ms);
    assert!(with.latency_ms.p99 < 10.0, "{:?}", with.latency_ms);
    let ios = |report: &Report| report.telemetry.read_ios_per_operation;
    assert!(ios(&with) > ios(&without) * 1.01 && ios(&with) < ios(&without) * 1.1);
    // All three are asked anyway: nobody is left.
    assert!(with_tail(Consistency::All, &[]).latency_ms.p99 > 40.0);
}

#[test]
fn reads_leave_a_slow_replica_for_faster_ones() {
    let rate = |ablate: Vec<Mechanism>| {
        let mut job = job(3, Consistency::Quorum, 1_000_000);
        job.ablate.extend(ablate);
        let database = database(&mut job);
        // One read at a time takes long on the node that owns half of the ring and is asked first by all.
        database.cluster.ownership_ppm =
            Some(vec![500_000, 100_000, 100_000, 100_000, 100_000, 100_000]);
        database.database.concurrent_reads = 1;
        database.workload.load = Load::Closed { threads: 48 };
        database.workload.stop.operations = Some(40_000);
        run(&job).ops_per_s
    };
    let (with, without) = (rate(vec![]), rate(vec![Mechanism::DynamicSnitch]));
    assert!(with > without * 1.05, "{with} {without}");
}
