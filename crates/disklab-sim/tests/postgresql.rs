//! Known answers of PostgreSQL: what can be worked out by hand must come out of a run.

mod jobs;

use disklab_disk::profile::Distribution;
use disklab_sim::job::*;
use disklab_sim::{Report, simulate};
use jobs::{postgresql, postgresql_job};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn run(job: &Job) -> Report {
    simulate(job).expect("the job is valid")
}

/// The same with a disk whose sync takes a millisecond, as its writes do.
fn updates(sessions: u32, duration_ns: u64, seed: u64) -> Job {
    let mut job = postgresql_job(AccessKind::Update, sessions, duration_ns, seed);
    let disks = &mut postgresql(&mut job).cluster.host.volumes[0].disks;
    disks[0].latency.flush = Distribution::constant(MS);
    job
}

fn close(seen: f64, wanted: f64, within: f64) {
    assert!((seen / wanted - 1.0).abs() < within, "{seen} of {wanted}");
}

#[test]
fn a_row_in_a_buffer_takes_the_way_there_and_back() {
    let report = run(&postgresql_job(AccessKind::Read, 4, 20 * SECOND, 1));
    close(report.latency_ms.mean, 0.2, 0.01);
    assert_eq!(report.disk_ios, 0);
    let tail = report.tail.expect("it is told");
    assert_eq!(tail.p99.keys().collect::<Vec<_>>(), [&"network"]);
}

#[test]
fn a_commit_waits_for_a_write_and_a_sync() {
    let report = run(&updates(1, 20 * SECOND, 2));
    close(report.latency_ms.mean, 2.2, 0.01);
    let tail = report.tail.expect("it is told");
    close(tail.p50["disk"], 2.0, 0.02);
}

#[test]
fn commits_that_come_during_a_sync_share_the_next_one() {
    let alone = run(&updates(1, 20 * SECOND, 3));
    let many = run(&updates(64, 20 * SECOND, 3));
    // A sync takes 2 ms, whoever shares it; what comes back 0.2 ms later has to wait for the next but one.
    assert!(many.ops_per_s > 0.9 * 64.0 / 0.0042, "{}", many.ops_per_s);
    assert!(many.latency_ms.p99 < 4.5, "{}", many.latency_ms.p99);
    assert!(alone.ops_per_s < 500.0);
    let tail = many.tail.expect("it is told");
    assert!(
        tail.p50["held"] > 1.5,
        "behind another sync: {:?}",
        tail.p50
    );
}

#[test]
fn a_commit_that_does_not_wait_takes_no_disk() {
    let mut job = updates(1, 20 * SECOND, 4);
    postgresql(&mut job).database.synchronous_commit = false;
    close(run(&job).latency_ms.mean, 0.2, 0.01);
}

#[test]
fn a_quorum_waits_for_the_first_standby() {
    let mut job = updates(1, 20 * SECOND, 5);
    let servers = postgresql(&mut job);
    servers.cluster.nodes = 3;
    servers.database.synchronous_standbys = 1;
    let report = run(&job);
    // Its own write and sync, the way there, the same again, the way back.
    close(report.latency_ms.mean, 2.2 + 0.2 + 2.0, 0.01);
}

#[test]
fn the_first_change_of_a_page_writes_all_of_it_into_the_log() {
    let bytes = |images| {
        let mut job = updates(1, 20 * SECOND, 6);
        postgresql(&mut job).database.full_page_writes = images;
        run(&job).telemetry.write_bytes_per_operation
    };
    // Some 9,000 changes meet 5,900 of 10,000 pages for the first time, and 191 leaves once each. What the log has of a
    // change is rounded to pages of 8 KiB, and the last one is written again.
    let (with, without) = (bytes(true), bytes(false));
    let images = (5_900.0 * 7_388.0 + 191.0 * 7_300.0) / 9_000.0;
    close(with - without, images, 0.1);
}

#[test]
fn a_page_outside_the_buffers_is_one_read_of_8_kib() {
    let mut job = postgresql_job(AccessKind::Read, 8, 30 * SECOND, 7);
    let server = postgresql(&mut job);
    // Half of the pages of rows, and all leaves, which are used more often.
    server.database.shared_buffers_bytes = 5_191 * 8_192;
    server.before = Before::default();
    server.workload.warm_up_ns = 15 * SECOND;
    // The page cache has its smallest size: 512 of the server's pages.
    server.cluster.page_cache_bytes = 0;
    // Without any read-ahead Linux reads four KiB at a time, and each page is two reads.
    server.cluster.read_ahead_bytes = 128 << 10;
    server.cluster.kernel = Kernel::Linux6;
    let report = run(&job);
    let reads = report.telemetry.read_ios_per_operation;
    assert!((0.40..0.52).contains(&reads), "{reads}");
    close(
        report.telemetry.read_bytes_per_operation / reads,
        8192.0,
        0.01,
    );
    let found = report.telemetry.block_cache_hit_ratio.expect("it is told");
    close(found, 1.0 - reads / 2.0, 0.05);
}

#[test]
fn a_checkpoint_writes_the_pages_that_changed_and_spreads_them() {
    let mut job = updates(1, 20 * SECOND, 8);
    let server = postgresql(&mut job);
    server.database.full_page_writes = false;
    server.database.checkpoint_timeout_ns = 4 * SECOND;
    let with = run(&job).telemetry.write_ios_per_operation;
    job.ablate = vec![Mechanism::BackgroundIo];
    assert_eq!(run(&job).disk_ios, 0, "neither log nor pages");
    // Each second some 450 changes of 10,000 pages and 191 leaves; one write of the log for each.
    assert!((1.6..2.1).contains(&with), "{with}");
}

#[test]
fn a_write_that_makes_room_waits_for_the_reads_of_its_file() {
    let rate = |locks| {
        let mut job = updates(32, 20 * SECOND, 10);
        let server = postgresql(&mut job);
        server.cluster.locks_files = locks;
        server.cluster.read_ahead_bytes = 128 << 10;
        server.cluster.kernel = Kernel::Linux6;
        server.cluster.page_cache_bytes = 0;
        server.database.synchronous_commit = false;
        // A tenth of the pages: nearly every change reads a page and writes another one.
        server.database.shared_buffers_bytes = 1_000 * 8_192;
        run(&job).ops_per_s
    };
    let (with, without) = (rate(true), rate(false));
    assert!(with < 0.7 * without, "{with} {without}");
}

#[test]
fn an_open_loop_answers_what_is_offered() {
    let mut job = updates(1, 20 * SECOND, 9);
    postgresql(&mut job).workload.load = Load::Open {
        rate_per_ks: 200_000,
        arrivals: Arrivals::Poisson,
        max_in_flight: 16,
    };
    let report = run(&job);
    close(report.ops_per_s, 200.0, 0.05);
    assert_eq!(report.unsent, 0);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let answer = |seed| {
        let mut report = run(&updates(16, 3 * SECOND, seed));
        report.wall_s = 0.0;
        serde_json::to_string(&report).expect("it is JSON")
    };
    assert_eq!(answer(1), answer(1));
    assert_ne!(answer(1), answer(2));
}

#[test]
fn broken_rules_are_all_named() {
    let mut job = updates(0, SECOND, 1);
    let server = postgresql(&mut job);
    server.database.synchronous_standbys = 1;
    server.tables[0].row_bytes = 9_000;
    let refusal = simulate(&job).expect_err("it breaks three rules");
    let places: Vec<&str> = refusal.reasons.iter().map(|r| r.place.as_str()).collect();
    assert_eq!(
        places,
        [
            "database.synchronous_standbys",
            "workload.load",
            "tables.rows"
        ]
    );
}
