//! How many operations and disk I/Os a second the simulator does on one core.
//!
//! `cargo bench -p disklab-sim` prints operations and I/Os per second ("Mitem/s"); `cargo test
//! --benches` runs each case once over a small number of operations, so that none can rot.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

use disklab_sim::cell::{Job, Kind};
use disklab_sim::{Report, simulate};

fn main() {
    divan::main();
}

/// Operations of one sample: a few tenths of a second of work, or nearly none in a test.
fn operations() -> u64 {
    let measures = std::env::args().any(|argument| argument == "--bench");
    if measures { 300_000 } else { 3_000 }
}

/// The 2019 study's cluster: six DS14_v2, four P30 each without host cache, 150 M rows, reads.
fn cold_reads(operations: u64, read_ahead_kib: u64) -> Job {
    let text = include_str!("cold_reads.json");
    let mut job: Job = serde_json::from_str(text).expect("the file is a job");
    let Kind::Cassandra(database) = &mut job.kind else {
        unreachable!("it is a database cell");
    };
    database.workload.stop.operations = Some(operations);
    database.cluster.read_ahead_bytes = read_ahead_kib << 10;
    job
}

fn run(bencher: Bencher, read_ahead_kib: u64, count: impl Fn(&Report) -> u64) {
    let job = cold_reads(operations(), read_ahead_kib);
    let report = simulate(&job).expect("the job is valid");
    bencher
        .counter(ItemsCount::new(count(&report)))
        .bench_local(|| black_box(simulate(&job)));
}

/// Database operations per second.
#[divan::bench(args = [8, 64], sample_count = 7, sample_size = 1)]
fn database_operations(bencher: Bencher, read_ahead_kib: u64) {
    let operations = operations();
    run(bencher, read_ahead_kib, |_| operations);
}

/// Disk I/Os per second in the same runs.
#[divan::bench(args = [8, 64], sample_count = 7, sample_size = 1)]
fn disk_ios(bencher: Bencher, read_ahead_kib: u64) {
    run(bencher, read_ahead_kib, |report| report.disk_ios);
}
