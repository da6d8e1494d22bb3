//! Known answers of PostgreSQL: what can be worked out by hand must come out of a run.

use crate::jobs::{broken, close, open, postgresql, postgresql_job};
use disklab_disk::profile::{CacheProfile, Caching, Distribution};
use disklab_sim::cell::*;
use disklab_sim::{Report, simulate};

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

#[test]
fn a_row_in_a_buffer_takes_the_way_there_and_back() {
    let report = run(&postgresql_job(AccessKind::Read, 4, 20 * SECOND, 1));
    close(report.latency_ms.mean, 0.2, 0.01);
    assert_eq!(report.disk_ios, 0);
    let tail = report.tail.expect("it is told");
    assert_eq!(tail.p99.keys().collect::<Vec<_>>(), [&"network"]);
}

#[test]
fn rows_that_follow_a_found_one_cost_less_than_it() {
    let of = |rows: u32, draw: RowDraw| {
        let mut job = postgresql_job(AccessKind::Read, 1, 20 * SECOND, 1);
        let server = postgresql(&mut job);
        server.parameters.row_read_cpu_ns = 12_000;
        server.parameters.scan_row_cpu_ns = 400;
        let access = &mut server.workload.transactions[0].statements[0].accesses[0];
        (access.rows, access.draw) = (rows, draw);
        run(&job).latency_ms.mean
    };
    let one = of(1, RowDraw::Uniform);
    close(of(101, RowDraw::Run) - one, 0.04, 0.02);
    let rows = of(101, RowDraw::Uniform);
    close(rows - one, 1.2, 0.02);
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

/// Reads of rows in the order of their keys, each of which has a page; more rows than are asked for.
fn in_order(sessions: u32, ablate: Vec<Mechanism>) -> Job {
    let mut job = postgresql_job(AccessKind::Read, sessions, 10 * SECOND, 13);
    job.ablate = ablate;
    let server = postgresql(&mut job);
    server.before = Before::default();
    server.workload.keys = Keys::Sequential;
    for access in &mut server.workload.transactions[0].statements[0].accesses {
        access.draw = RowDraw::Keys;
    }
    server.tables[0].row_bytes = 4_132;
    server.workload.stop = Stop {
        operations: Some(20_000),
        duration_ns: None,
    };
    server.cluster.read_ahead_bytes = 64 << 10;
    server.cluster.kernel = Kernel::Linux6;
    job
}

#[test]
fn each_backend_reads_ahead_for_itself() {
    let reads = |sessions, ablate| {
        let report = run(&in_order(sessions, ablate));
        report.telemetry.read_ios_per_operation
    };
    // A window of 16 pages serves eight rows.
    close(reads(1, Vec::new()), 0.127, 0.05);
    let (own, shared) = (
        reads(16, Vec::new()),
        reads(16, vec![Mechanism::OwnReadAhead]),
    );
    assert!(own > 1.1 * shared, "{own} {shared}");
}

#[test]
fn rows_that_many_sessions_wrote_are_read_in_smaller_pieces() {
    let reads = |fill_sessions, ablate| {
        let mut job = in_order(16, ablate);
        postgresql(&mut job).tables[0].fill_sessions = fill_sessions;
        let report = run(&job);
        close(report.telemetry.read_bytes_per_operation, 8_192.0, 0.05);
        report.telemetry.read_ios_per_operation
    };
    let (many, one) = (reads(16, Vec::new()), reads(1, Vec::new()));
    // A rehearsal of a real server had 0.67 of rows of a page each.
    assert!(many > 2.5 * one && many > 0.4, "{many} {one}");
    close(reads(16, vec![Mechanism::FillOrder]), one, 0.001);
}

/// Updates of rows that have a page each, most of which have to be read, on a file system that locks files.
fn growing(sessions: u32, ablate: Vec<Mechanism>) -> Job {
    let mut job = updates(sessions, 20 * SECOND, 11);
    job.ablate = ablate;
    let server = postgresql(&mut job);
    server.tables[0].rows = 10_000;
    server.tables[0].row_bytes = 4_132;
    server.cluster.locks_files = true;
    server.cluster.read_ahead_bytes = 128 << 10;
    server.cluster.kernel = Kernel::Linux6;
    server.cluster.page_cache_bytes = 0;
    server.database.synchronous_commit = false;
    server.database.shared_buffers_bytes = 1_000 * 8_192;
    job
}

#[test]
fn pages_are_added_one_after_the_other_however_many_wait() {
    let rate = |sessions, ablate| {
        let mut job = growing(sessions, ablate);
        let server = postgresql(&mut job);
        server.database.shared_buffers_bytes = 1 << 30;
        server.parameters.page_read_cpu_ns = MS;
        run(&job).ops_per_s
    };
    // An update is a page, and a page a millisecond, alone or for twenty that wait; what is left over at the end is lost.
    let many = rate(32, Vec::new());
    assert!((960.0..1_020.0).contains(&many), "{many}");
    // With the way to and fro.
    close(rate(1, Vec::new()), 1.0 / 0.0012, 0.02);
    let without = rate(32, vec![Mechanism::RelationExtension]);
    assert!(without > 100.0 * many, "{without} {many}");
}

#[test]
fn a_page_that_is_added_waits_for_the_reads_of_its_file() {
    let mean = |ablate| {
        let mut job = growing(8, ablate);
        let server = postgresql(&mut job);
        let mut read = server.workload.transactions[0].clone();
        "read".clone_into(&mut read.name);
        read.share_ppm = 900_000;
        read.statements[0].accesses[0].kind = AccessKind::Read;
        let write = &mut server.workload.transactions[0];
        "write".clone_into(&mut write.name);
        write.share_ppm = 100_000;
        server.workload.transactions.push(read);
        run(&job).per_operation["write"].latency_ms.mean
    };
    // Its own page first, which takes a read as everybody's does; then the new one, which waits for the reads under way.
    let (with, without) = (mean(Vec::new()), mean(vec![Mechanism::RelationExtension]));
    assert!(with > without + 0.5, "{with} {without}");
}

/// Half reads and half updates by so many sessions.
fn mixed(sessions: u32, row_bytes: u32, ablate: Vec<Mechanism>) -> Job {
    let mut job = growing(sessions, ablate);
    let server = postgresql(&mut job);
    server.tables[0].row_bytes = row_bytes;
    let mut read = server.workload.transactions[0].clone();
    "read".clone_into(&mut read.name);
    read.statements[0].accesses[0].kind = AccessKind::Read;
    server.workload.transactions[0].share_ppm = 500_000;
    read.share_ppm = 500_000;
    server.workload.transactions.push(read);
    job
}

#[test]
fn who_finds_each_new_page_holds_up_the_many_who_wait_for_all() {
    let p99 = |ablate| run(&mixed(32, 4_132, ablate)).latency_ms.p99;
    let (with, without) = (p99(Vec::new()), p99(vec![Mechanism::RelationExtension]));
    // Twenty pages for each that waits, and a good many of them behind reads of a millisecond.
    assert!(with > 20.0, "{with}");
    assert!(without < 4.0, "{without}");
}

#[test]
fn sessions_put_rows_into_the_same_page() {
    // One row of a page, or seven: a page is written to the file for each, or for seven.
    let rate = |row_bytes| {
        let mut job = growing(32, Vec::new());
        let server = postgresql(&mut job);
        server.tables[0].row_bytes = row_bytes;
        server.database.shared_buffers_bytes = 1 << 30;
        server.parameters.page_read_cpu_ns = MS;
        run(&job).ops_per_s
    };
    // Those that stay in the page where they are, as most do once a version there is dead, need none.
    let (alone, shared) = (rate(4_132), rate(1_100));
    assert!(shared > 6.0 * alone, "{shared} {alone}");
}

#[test]
fn what_adds_no_page_waits_for_nobody_who_does() {
    for kind in [AccessKind::Read, AccessKind::Delete, AccessKind::Lock] {
        let answer = |ablate| {
            let mut job = growing(8, ablate);
            let server = postgresql(&mut job);
            server.workload.transactions[0].statements[0].accesses[0].kind = kind;
            crate::jobs::answer(&job)
        };
        let (with, without) = (
            answer(Vec::new()),
            answer(vec![Mechanism::RelationExtension]),
        );
        assert_eq!(with, without, "{kind:?}");
    }
}

#[test]
fn a_row_moves_unless_its_page_has_room_for_another_version() {
    let bytes = |rows, row_bytes| {
        let mut job = updates(1, 60 * SECOND, 12);
        let server = postgresql(&mut job);
        server.tables[0].rows = rows;
        server.tables[0].row_bytes = row_bytes;
        server.database.full_page_writes = false;
        server.workload.transactions[0].statements[0].accesses[0].written_bytes = Some(0);
        run(&job).telemetry.write_bytes_per_operation
    };
    // Some 27,000 changes. The log's last page is written again with each: 8 KiB, and what the change adds.
    // Seven rows of a page: all but the first change of each of the 100 pages, and of those the moved rows fill, stay.
    let stays = bytes(700, 1_052);
    assert!((8_192.0..8_700.0).contains(&stays), "{stays}");
    // A row of more than half a page never stays, however often it has changed: the log has all of it each time.
    let moves = bytes(100, 4_132);
    assert!((12_300.0..13_000.0).contains(&moves), "{moves}");
}

#[test]
fn rows_of_one_size_in_a_list_are_rows_of_that_size() {
    let answer = |sizes| {
        let mut job = growing(8, Vec::new());
        let server = postgresql(&mut job);
        server.tables[0].row_bytes = 1_052;
        server.tables[0].sizes = sizes;
        crate::jobs::answer(&job)
    };
    let listed = RowSize {
        row_bytes: 1_052,
        share_ppm: 1_000_000,
    };
    assert_eq!(answer(None), answer(Some(vec![listed])));
}

#[test]
fn large_rows_of_a_table_take_pages_that_a_mean_row_does_not() {
    let reads = |sizes| {
        let mut job = postgresql_job(AccessKind::Read, 8, 30 * SECOND, 13);
        let server = postgresql(&mut job);
        server.tables[0].rows = 25_000;
        server.tables[0].row_bytes = 1_797;
        server.tables[0].sizes = sizes;
        server.cluster.page_cache_bytes = 0;
        server.cluster.read_ahead_bytes = 128 << 10;
        server.cluster.kernel = Kernel::Linux6;
        server.database.shared_buffers_bytes = 7_000 * 8_192;
        server.workload.warm_up_ns = 15 * SECOND;
        run(&job).telemetry.read_ios_per_operation
    };
    // Four of the mean size fit a page: 6,250 pages and 69 leaves, all in the buffers.
    assert_eq!(reads(None), 0.0);
    // Two rows of 4,132 bytes do not fit one, and the small ones lie beside them: 10,000 pages, of which 6,931 are in the
    // buffers and up to 512 in the page cache; pages with more of the small ones are asked for more often, and stay.
    let size = |row_bytes, share_ppm| RowSize {
        row_bytes,
        share_ppm,
    };
    let seen = reads(Some(vec![size(240, 600_000), size(4_132, 400_000)]));
    assert!((0.12..0.26).contains(&seen), "{seen}");
}

#[test]
fn a_host_cache_as_large_as_the_tables_has_all_of_them_after_a_fill() {
    let mut job = postgresql_job(AccessKind::Read, 8, 20 * SECOND, 14);
    let server = postgresql(&mut job);
    // 10,000 pages of rows and 191 leaves; behind them is room for 16,384 more, which nothing has written.
    let host = &mut server.cluster.host;
    host.volumes[0].caching = Caching::ReadOnly;
    host.cache = Some(CacheProfile {
        capacity_bytes: 10_191 * 8_192,
        block_bytes: 8_192,
        latency: host.volumes[0].disks[0].latency.clone(),
        charges_writes: false,
    });
    server.database.shared_buffers_bytes = 1 << 20;
    server.before.host_cache = CacheState::Warm;
    server.before.page_cache = CacheState::Cold;
    server.cluster.page_cache_bytes = 0;
    let hits = run(&job).telemetry.host_cache_hit_ratio;
    // All but a read ahead behind the last page.
    assert!(hits > Some(0.999), "{hits:?}");
}

#[test]
fn sizes_of_rows_that_cannot_be_are_refused() {
    for (row_bytes, share_ppm, rule) in [
        (8_169, 1, "each takes at most 8168 bytes"),
        (100, 0, "a share above 0"),
    ] {
        let mut job = growing(1, Vec::new());
        let listed = RowSize {
            row_bytes,
            share_ppm,
        };
        postgresql(&mut job).tables[0].sizes = Some(vec![listed]);
        let refusal = simulate(&job).expect_err("it is refused").to_string();
        assert!(refusal.contains(rule), "{refusal}");
    }
}

#[test]
fn an_open_loop_answers_what_is_offered() {
    let mut job = updates(1, 20 * SECOND, 9);
    postgresql(&mut job).workload.load = open(200_000, Arrivals::Poisson, 16);
    let report = run(&job);
    close(report.ops_per_s, 200.0, 0.05);
    assert_eq!(report.unsent, 0);
}

#[test]
fn broken_rules_are_all_named() {
    let mut job = updates(0, SECOND, 1);
    let server = postgresql(&mut job);
    server.database.synchronous_standbys = 1;
    server.tables[0].row_bytes = 9_000;
    let places = [
        "database.synchronous_standbys",
        "workload.load",
        "tables.rows",
    ];
    assert_eq!(broken(&job), places);
}
