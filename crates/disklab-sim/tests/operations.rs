//! Operations beyond reading and writing whole rows, where the answer is known.

use crate::jobs;
use crate::jobs::broken;
use disklab_sim::cell::{Job, OtherOperations, Stop};
use disklab_sim::{Report, simulate};

const ROWS: u64 = 40_000;

/// A cold table of 1,000-byte rows on a disk whose I/Os take a millisecond, under one kind of operation.
fn run(others: OtherOperations, change: impl Fn(&mut disklab_sim::cell::DatabaseJob)) -> Report {
    let mut job: Job = jobs::reads(4, 4_000, 3);
    let database = jobs::database(&mut job);
    database.workload.read_ppm = 0;
    database.workload.others = Some(others);
    database.dataset.rows = ROWS;
    database.dataset.columns = 5;
    database.dataset.column_bytes = 167;
    database.dataset.stored_row_bytes = Some(1_000);
    change(database);
    simulate(&job).expect("the job is valid")
}

fn scans(scan_rows: u32) -> OtherOperations {
    OtherOperations {
        scan_ppm: 1_000_000,
        scan_rows,
        ..OtherOperations::default()
    }
}

/// Without reading ahead a scan of n rows of 1,000 bytes reads each page from its first to its last once, where next to
/// nothing stays in memory: on average (50.5 rows x 1,000 bytes + a page) / 4,096.
#[test]
fn a_scan_reads_each_of_its_pages_once() {
    let report = run(scans(100), |database| {
        database.cluster.page_cache_bytes = 1 << 20;
    });
    let names: Vec<&String> = report.per_operation.keys().collect();
    assert_eq!(names, ["scan"]);
    let expected = (50.5 * 1_000.0 + 4_095.0) / 4_096.0;
    let ios = report.telemetry.read_ios_per_operation;
    // The index adds a page or two, and pages that others have just read are there.
    assert!(
        ios > expected * 0.9 && ios < expected + 2.5,
        "{ios} for {expected}"
    );
    let single = run(scans(1), |database| {
        database.cluster.page_cache_bytes = 1 << 20;
    });
    assert!(single.telemetry.read_ios_per_operation < 3.0);
    assert!(report.latency_ms.p50 > 10.0 * single.latency_ms.p50);
}

#[test]
fn reading_ahead_makes_a_scan_few_ios() {
    let report = run(scans(100), |database| {
        database.cluster.page_cache_bytes = 1 << 20;
        database.cluster.read_ahead_bytes = 128 << 10;
    });
    assert!(report.telemetry.read_ios_per_operation < 5.0);
}

/// The time of a read that a write follows is that of both: here the read's I/Os.
#[test]
fn a_read_and_its_write_are_one_operation() {
    let both = |read_modify_write_ppm| OtherOperations {
        read_modify_write_ppm,
        ..OtherOperations::default()
    };
    let report = run(both(1_000_000), |database| {
        database.network.one_way_ns = 100_000;
        database.cluster.page_cache_bytes = 1 << 20;
    });
    let alone = run(both(0), |database| {
        database.workload.read_ppm = 1_000_000;
        database.network.one_way_ns = 100_000;
        database.cluster.page_cache_bytes = 1 << 20;
    });
    let more_ms = report.latency_ms.p50 - alone.latency_ms.p50;
    // Two ways of 0.1 ms more.
    assert!((more_ms - 0.2).abs() < 0.05, "{more_ms}");
    let tail = report.tail.as_ref().expect("a database tells");
    let sum: f64 = tail.p99.values().sum();
    assert!((sum - report.latency_ms.p99).abs() < 1e-6, "{sum}");
    assert_eq!(report.per_operation["read_modify_write"].operations, 4_000);
}

/// What a column or nothing at all of a row leaves in the log is less than a whole row.
#[test]
fn updates_and_deletes_write_what_they_change() {
    let written = |others: OtherOperations| {
        let report = run(others, |database| {
            database.workload.stop = Stop {
                operations: Some(200_000),
                duration_ns: None,
            };
            database.database.commitlog_segment_bytes = 1 << 20;
            database.database.memtable_bytes = 1 << 20;
        });
        assert_eq!(report.telemetry.read_ios_per_operation, 0.0);
        report.telemetry.write_bytes_per_operation
    };
    let none = OtherOperations::default();
    let insert = written(OtherOperations {
        insert_ppm: 1_000_000,
        ..none.clone()
    });
    let update = written(OtherOperations {
        update_ppm: 1_000_000,
        ..none.clone()
    });
    let delete = written(OtherOperations {
        delete_ppm: 1_000_000,
        ..none
    });
    // Log, table and compaction alike: 15 + 30 + 167 bytes, and 27, of 1,000.
    let (update, delete) = (update / insert, delete / insert);
    assert!((0.15..0.30).contains(&update), "{update}");
    assert!((0.01..0.08).contains(&delete), "{delete} of {insert}");
}

#[test]
fn shares_beyond_the_whole_and_scans_of_nothing_are_refused() {
    let mut job = jobs::reads(4, 100, 3);
    jobs::database(&mut job).workload.others = Some(scans(0));
    assert_eq!(
        broken(&job),
        ["workload.others", "workload.others.scan_rows"]
    );
}
