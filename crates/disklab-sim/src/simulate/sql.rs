//! From a SQL cluster's run to its report.

use disklab_disk::Refusal;

use super::tally::{NodeParts, Tally};
use super::{QUICK_MOST, QUICK_NOTE, empty_report, shrink_host};
use crate::database::yugabytedb::Yugabytedb;
use crate::job::{Fidelity, Job, SqlJob};
use crate::report::{Report, operation};

/// Virtual time that a quick run keeps at least, warm-up included: some hundred throttle windows, and
/// tens of seconds for logs that are synced once a second.
const QUICK_NS: u64 = 40_000_000_000;

/// Simulates a SQL cell.
pub fn simulate(cell: u64, given: &SqlJob, job: &Job) -> Result<Report, Refusal> {
    let (scaled, share) = scaled(given, job.fidelity);
    let mut cluster = Yugabytedb::new(&scaled, job.seed, &job.ablate)?;
    cluster.run();
    let mut report = report(cell, &scaled, &mut cluster);
    report.scale = 1.0 / share as f64;
    report.error_note = (share > 1).then(|| QUICK_NOTE.to_owned());
    Ok(report)
}

/// A smaller system with the same ratios, and by how much it is smaller: rows, caches, memstores,
/// burst credits and time together. Rates, tablets, keying and think times stay.
fn scaled(job: &SqlJob, fidelity: Fidelity) -> (SqlJob, u64) {
    let mut job = job.clone();
    let share = (job.workload.duration_ns / QUICK_NS).clamp(1, QUICK_MOST);
    if fidelity == Fidelity::Full || share == 1 {
        return (job, 1);
    }
    let fewer = |n: u64| (n / share).max(1);
    for table in &mut job.tables {
        table.rows = fewer(table.rows);
    }
    job.cluster.page_cache_bytes = fewer(job.cluster.page_cache_bytes);
    job.database.block_cache_bytes = fewer(job.database.block_cache_bytes);
    job.database.memstore_bytes = fewer(job.database.memstore_bytes);
    job.workload.warm_up_ns /= share;
    job.workload.duration_ns = fewer(job.workload.duration_ns);
    shrink_host(&mut job.cluster.host, share);
    (job, share)
}

fn report(cell: u64, job: &SqlJob, cluster: &mut Yugabytedb) -> Report {
    let recorder = cluster.recorder();
    let counted: Vec<(usize, &str)> = job
        .workload
        .transactions
        .iter()
        .enumerate()
        .filter(|(_, transaction)| transaction.counted)
        .map(|(kind, transaction)| (kind, transaction.name.as_str()))
        .collect();
    let mut report = empty_report(cell, recorder, &counted);
    let elapsed_ns = recorder.elapsed_ns();
    for (kind, name) in cluster.names().iter().enumerate() {
        let histogram = recorder.latencies(kind);
        if !histogram.is_empty() {
            let one = operation(histogram, recorder.latency_sum(kind), elapsed_ns);
            report.per_operation.entry(name.clone()).or_insert(one);
        }
    }
    let operations: u64 = counted
        .iter()
        .map(|&(kind, _)| recorder.latencies(kind).len())
        .sum();
    let (now, disk_waits) = (recorder.measured_to(), recorder.disk_waits());
    report.events = cluster.events();
    let mut tally = Tally::new(&job.cluster.host, recorder);
    if job.workload.connections.is_some() {
        let (count, used) = cluster.connections(now);
        tally.busy("connections", "", count, used.busy_ns, used.waited_ns);
    }
    let machines = cluster.machines();
    for (number, (cores, link)) in machines.iter().enumerate() {
        let place = match machines.len() {
            1 => String::new(),
            _ => format!("client {number}"),
        };
        tally.machine("client", &place, cores, link);
    }
    for (number, server) in cluster.servers().iter().enumerate() {
        let reads = tally.node(
            &format!("node {number}"),
            &NodeParts {
                cores: &server.cores,
                link: &server.link,
                storage: &server.storage,
                pending_compaction_bytes: server.lsm.pending_compaction_bytes(),
                before: cluster.before(number),
            },
        );
        // Compactions read too: what the disk did, not only what queries asked for.
        tally.reads(reads);
    }
    tally.report(operations, disk_waits, &mut report);
    let (wanted, found) = cluster.servers().iter().fold((0, 0), |sum, server| {
        let counts = server.block_counts;
        (sum.0 + counts.0, sum.1 + counts.1)
    });
    report.telemetry.block_cache_hit_ratio = (wanted > 0).then(|| found as f64 / wanted as f64);
    report
}
