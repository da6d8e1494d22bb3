//! Which files rows lie in, and the calls in which they are read, where the answer is known.

use crate::jobs;
use crate::jobs::{broken, close};
use disklab_sim::cell::{Access, Job, Kernel, Keys, Mechanism};
use disklab_sim::{Report, simulate};

const ROWS: u64 = 20_000;

/// Half of the rows of a table that two files have, read in the order of their keys.
fn in_order(off: &[Mechanism]) -> Report {
    let mut job: Job = jobs::reads(4, ROWS / 2, 3);
    job.ablate.extend_from_slice(off);
    let database = jobs::database(&mut job);
    database.dataset.rows = ROWS;
    database.dataset.tables_ppm = vec![500_000, 500_000];
    database.workload.keys = Keys::Sequential;
    database.cluster.page_cache_bytes = 1 << 30;
    database.cluster.read_ahead_bytes = 64 << 10;
    database.cluster.kernel = Kernel::Linux6;
    simulate(&job).expect("the job is valid")
}

#[test]
fn keys_that_were_written_together_lie_in_one_file() {
    let pages =
        |report: &Report| report.telemetry.read_bytes_per_operation * (ROWS / 2) as f64 / 4096.0;
    // A row has a page. The first file is read once; windows at its end go no further.
    let read = pages(&in_order(&[]));
    close(read, (ROWS / 2) as f64, 0.01);
    // In one file those rows lie everywhere, and reading around them reads nearly all of it.
    let read = pages(&in_order(&[Mechanism::FilledTables]));
    assert!(read > 0.98 * ROWS as f64, "{read} pages");
}

#[test]
fn shares_of_tables_come_to_the_whole() {
    let mut job: Job = jobs::reads(4, 100, 3);
    jobs::database(&mut job).dataset.tables_ppm = vec![500_000, 400_000];
    assert_eq!(broken(&job), ["dataset.tables_ppm"]);
}

/// A row of 4,136 B begins in a buffer of 8 KiB and ends in the next one with a chance of 4,135 of 8,192. The second call
/// goes on where the first ended, so that it reads ahead: twice as much as it wants.
#[test]
fn a_row_in_two_buffers_is_read_by_two_calls() {
    let mut job: Job = jobs::reads(1, 20_000, 3);
    let database = jobs::database(&mut job);
    database.dataset.rows = 40_000_000;
    database.dataset.stored_row_bytes = Some(4_136);
    database.database.access = Access::MmapIndexOnly;
    database.database.chunk_bytes = Some(8_192);
    database.cluster.page_cache_bytes = 1 << 20;
    database.cluster.read_ahead_bytes = 64 << 10;
    database.cluster.kernel = Kernel::Linux6;
    let told = simulate(&job).expect("the job is valid").telemetry;
    let both = 4_135.0 / 8_192.0;
    assert!((told.read_ios_per_operation / (1.0 + both) - 1.0).abs() < 0.01);
    let pages = told.read_bytes_per_operation / 4096.0;
    assert!((pages / (2.0 + 4.0 * both) - 1.0).abs() < 0.01, "{pages}");
}
