//! Rows of several sizes in one table, where the answer is known.

use crate::jobs;
use disklab_sim::cell::{Job, Mechanism};
use disklab_sim::{Report, simulate};
use disklab_units::sizes::Size;

/// A cold table of rows of these bytes in shares of a million, read at random without reading ahead.
fn run(sizes: Option<&[(u32, u32)]>, column_bytes: u32, byte_ps: u64) -> Report {
    let mut job: Job = jobs::reads(4, 20_000, 3);
    job.ablate = vec![Mechanism::IndexPages];
    let database = jobs::database(&mut job);
    database.dataset.rows = 4_000_000;
    database.dataset.column_bytes = column_bytes;
    database.dataset.stored_row_bytes = Some(column_bytes);
    database.cluster.page_cache_bytes = 1 << 20;
    database.parameters.read_byte_ps = byte_ps;
    let size = |&(column_bytes, share_ppm): &(u32, u32)| Size {
        column_bytes,
        share_ppm,
    };
    database.dataset.sizes = sizes.map(|sizes| sizes.iter().map(size).collect());
    simulate(&job).expect("the job is valid")
}

#[test]
fn rows_of_one_size_in_a_list_are_rows_of_that_size() {
    let mut alone = run(None, 1_000, 10_000);
    let mut listed = run(Some(&[(1_000, 1_000_000)]), 1_000, 10_000);
    (alone.wall_s, listed.wall_s) = (0.0, 0.0);
    assert_eq!(format!("{alone:?}"), format!("{listed:?}"));
}

/// A row of n bytes lies in (n - 1) / 4,096 + 1 pages on average, wherever it begins.
#[test]
fn each_row_costs_the_pages_of_its_own_size() {
    let shares = [(200, 600_000), (4_096, 300_000), (32_768, 100_000)];
    let mean = 120 + 1_229 + 3_277;
    let report = run(Some(&shares), mean, 0);
    let pages = |bytes: u32| f64::from(bytes - 1) / 4_096.0 + 1.0;
    let expected: f64 = shares
        .iter()
        .map(|&(bytes, share)| f64::from(share) / 1e6 * pages(bytes))
        .sum();
    let ios = report.telemetry.read_ios_per_operation;
    assert!((ios / expected - 1.0).abs() < 0.03, "{ios} for {expected}");
    // Rows of the mean size cost as many on average, and never eight.
    let alike = run(None, mean, 0);
    assert!((alike.telemetry.read_ios_per_operation / expected - 1.0).abs() < 0.03);
    let ratio = report.latency_ms.p99 / alike.latency_ms.p99;
    assert!(ratio > 2.0, "{ratio}");
    assert!(report.latency_ms.p50 < alike.latency_ms.p50);
}
