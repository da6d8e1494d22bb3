//! What a quick run keeps of the whole.

mod jobs;

use disklab_sim::job::{Fidelity, Mechanism};
use disklab_sim::simulate;

/// Writes of 32 KiB that cost nothing but the room in the memtable, which the flushes of one node give back.
fn writes_a_second(fidelity: Fidelity) -> f64 {
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
    report.ops_per_s
}

/// A piece that is synced takes the latency of a write beside its time in the page cache, so smaller ones would cost
/// flushes a third of their rate.
#[test]
fn flushes_of_a_quick_run_are_as_fast_as_those_of_the_whole() {
    let (whole, quick) = (
        writes_a_second(Fidelity::Full),
        writes_a_second(Fidelity::Quick),
    );
    assert!((quick / whole - 1.0).abs() < 0.1, "{quick} for {whole}");
}
