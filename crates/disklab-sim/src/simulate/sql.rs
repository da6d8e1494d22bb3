//! From the run of a database under transactions to its report.

use disklab_disk::profile::HostProfile;

use super::tally::{NodeParts, Tally};
use super::{SKETCH, bounds, empty_report, share_of, shrink_host};
use crate::database::sessions::Clients;
use crate::job::{Fidelity, MariadbJob, PostgresqlJob, PostgresqlWorkload, SqlJob, Transaction};
use crate::record::Recorder;
use crate::report::{Report, operation};

/// Virtual time that a quick run keeps at least, warm-up included: some hundred throttle windows, and
/// tens of seconds for logs that are synced once a second.
const QUICK_NS: u64 = 40_000_000_000;

/// By how much shorter a run is that only reads: it has no log that is synced once a second.
const READS_ALONE: u64 = 4;

fn quick_ns(fidelity: Fidelity) -> u64 {
    match fidelity {
        Fidelity::Sketch => QUICK_NS / SKETCH,
        Fidelity::Full | Fidelity::Quick => QUICK_NS,
    }
}

/// What a run under transactions leaves for its report.
pub struct SqlParts<'a> {
    /// What was recorded; kinds are the names of the script.
    pub recorder: &'a Recorder,
    /// Who sent it.
    pub clients: &'a mut Clients,
    /// The nodes.
    pub nodes: Vec<NodeParts<'a>>,
    /// Blocks, or pages, wanted from the database's own cache, and found there.
    pub blocks: (u64, u64),
    /// Events scheduled.
    pub events: u64,
}

/// A smaller system with the same ratios, and by how much it is smaller: rows, caches, memstores,
/// burst credits and time together. Rates, tablets, keying and think times stay.
pub fn scaled(job: &SqlJob, fidelity: Fidelity) -> (SqlJob, u64) {
    let mut job = job.clone();
    let share = (job.workload.duration_ns / quick_ns(fidelity)).clamp(1, bounds(fidelity).1);
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

/// The same of PostgreSQL: buffers, the log between checkpoints and their time follow.
pub fn scaled_postgresql(job: &PostgresqlJob, fidelity: Fidelity) -> (PostgresqlJob, u64) {
    let mut job = job.clone();
    if job.faults.is_some() {
        // What is replayed takes the time that it takes: nothing of a timetable shrinks.
        return (job, 1);
    }
    let share = share_of_load(&job.workload, fidelity);
    if share == 1 {
        return (job, 1);
    }
    let fewer = |n: u64| (n / share).max(1);
    for table in &mut job.tables {
        table.rows = fewer(table.rows);
    }
    let settings = &mut job.database;
    for size in [
        &mut job.cluster.page_cache_bytes,
        &mut settings.shared_buffers_bytes,
        &mut settings.max_wal_bytes,
        &mut settings.checkpoint_timeout_ns,
    ] {
        *size = fewer(*size);
    }
    shrink_load(&mut job.workload, share);
    shrink_host(&mut job.cluster.host, share);
    (job, share)
}

/// By how much a load is smaller in a run of less than full fidelity.
pub fn share_of_load(work: &PostgresqlWorkload, fidelity: Fidelity) -> u64 {
    if fidelity == Fidelity::Full {
        return 1;
    }
    let shorter = if work.only_reads() { READS_ALONE } else { 1 };
    let least_ns = quick_ns(fidelity) / shorter;
    let by_time = work.stop.duration_ns.map(|ns| ns / least_ns);
    let by_operations = share_of(&work.load, work.stop, work.warm_up_ns, fidelity);
    match (by_operations, by_time) {
        (Some(share), Some(most)) => share.min(most.max(1)),
        (Some(share), None) => share,
        (None, most) => most.unwrap_or(1),
    }
    .clamp(1, bounds(fidelity).1)
}

/// Makes a load so many times shorter.
pub fn shrink_load(work: &mut PostgresqlWorkload, share: u64) {
    let fewer = |n: u64| (n / share).max(1);
    work.asked_rows = work.asked_rows.map(fewer);
    work.warm_up_ns /= share;
    work.stop.operations = work.stop.operations.map(fewer);
    work.stop.duration_ns = work.stop.duration_ns.map(fewer);
}

/// The same of MariaDB: pool, redo log and the time of the pool's middle follow.
pub fn scaled_mariadb(job: &MariadbJob, fidelity: Fidelity) -> (MariadbJob, u64) {
    let mut job = job.clone();
    let share = share_of_load(&job.workload, fidelity);
    if share == 1 {
        return (job, 1);
    }
    let fewer = |n: u64| (n / share).max(1);
    for table in &mut job.tables {
        table.rows = fewer(table.rows);
    }
    let settings = &mut job.database;
    for size in [
        &mut settings.buffer_pool_bytes,
        &mut settings.log_file_bytes,
        &mut settings.old_blocks_time_ns,
    ] {
        *size = fewer(*size);
    }
    settings.lru_scan_depth = (settings.lru_scan_depth / share as u32).max(1);
    shrink_load(&mut job.workload, share);
    shrink_host(&mut job.cluster.host, share);
    (job, share)
}

/// What became of a database under transactions.
pub fn sql_report(
    cell: u64,
    transactions: &[Transaction],
    host: &HostProfile,
    parts: SqlParts,
) -> Report {
    let recorder = parts.recorder;
    let counted: Vec<(usize, &str)> = transactions
        .iter()
        .enumerate()
        .filter(|(_, transaction)| transaction.counted)
        .map(|(kind, transaction)| (kind, transaction.name.as_str()))
        .collect();
    let mut report = empty_report(cell, recorder, &counted);
    let elapsed_ns = recorder.elapsed_ns();
    for (kind, name) in parts.clients.script.names.iter().enumerate() {
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
    report.events = parts.events;
    report.unsent = parts.clients.unsent.len() as u64;
    let mut tally = Tally::new([host], recorder);
    if let Some((count, used)) = parts.clients.connections(recorder.measured_to()) {
        tally.busy("connections", "", count, used.busy_ns, used.waited_ns);
    }
    for (number, (cores, link)) in parts.clients.machines.iter().enumerate() {
        let place = match parts.clients.machines.len() {
            1 => String::new(),
            _ => format!("client {number}"),
        };
        tally.machine("client", &place, cores, link);
    }
    for (number, node) in parts.nodes.iter().enumerate() {
        let reads = tally.node(&format!("node {number}"), node);
        // Compactions read too: what the disk did, not only what queries asked for.
        tally.reads(reads);
    }
    tally.report(operations, recorder.disk_waits(), &mut report);
    let (wanted, found) = parts.blocks;
    report.telemetry.block_cache_hit_ratio = (wanted > 0).then(|| found as f64 / wanted as f64);
    report
}
