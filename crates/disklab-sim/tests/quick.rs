//! What a quick run keeps of the whole.

use crate::jobs;
use disklab_sim::cell::{Fidelity, Mechanism};
use disklab_sim::{Report, simulate};

/// Writes of 32 KiB that cost nothing but the room in the memtable, which the flushes of one node give back.
fn writes(fidelity: Fidelity) -> Report {
    let mut job = jobs::reads(64, 600_000, 3);
    job.fidelity = fidelity;
    job.ablate = vec![Mechanism::IndexPages];
    let database = jobs::database(&mut job);
    database.dataset.rows = 1_000_000;
    database.dataset.column_bytes = 32 << 10;
    database.dataset.stored_row_bytes = Some(32 << 10);
    database.workload.read_ppm = 0;
    let report = simulate(&job).expect("the job is valid");
    assert_eq!(fidelity == Fidelity::Quick, report.scale < 0.2);
    report
}

/// A piece that is synced takes the latency of a write beside its time in the page cache, so smaller ones would cost
/// flushes a third of their rate.
#[test]
fn flushes_of_a_quick_run_are_as_fast_as_those_of_the_whole() {
    let (whole, quick) = (
        writes(Fidelity::Full).ops_per_s,
        writes(Fidelity::Quick).ops_per_s,
    );
    assert!((quick / whole - 1.0).abs() < 0.1, "{quick} for {whole}");
}

/// No limit of a disk is used up: a writer fills the page cache, waits for the disk, and fills on.
#[test]
fn writes_that_wait_for_memtable_room_are_held_by_the_flush_writers() {
    let bottleneck = writes(Fidelity::Full).bottleneck;
    assert_eq!(bottleneck.resource, "flush writers");
    assert!(
        (0.95..=1.0).contains(&bottleneck.utilisation),
        "{bottleneck:?}"
    );
}
