//! From the run of a database under transactions to its report.

use disklab_disk::profile::HostProfile;

use super::tally::Tally;
use super::{SKETCH, bounds, empty_report, share_of, shrink_host};
use crate::database::sessions::Clients;
use crate::job::{Fidelity, PostgresqlWorkload, Relation, ServerJob, Transaction};
use crate::machine::Machine;
use crate::record::Recorder;
use crate::report::{Report, operation};

/// Virtual time that a quick run keeps at least, warm-up included: some hundred throttle windows, and
/// tens of seconds for logs that are synced once a second.
const QUICK_NS: u64 = 40_000_000_000;

/// By how much shorter a run is that only reads: it has no log that is synced once a second.
const READS_ALONE: u64 = 4;

/// Virtual time that a run of less than full fidelity keeps at least.
pub fn quick_ns(fidelity: Fidelity) -> u64 {
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
    /// The nodes, and the bytes of each that wait for compaction.
    pub nodes: Vec<(&'a Machine, u64)>,
    /// Blocks, or pages, wanted from the database's own cache, and found there.
    pub blocks: (u64, u64),
    /// Events scheduled.
    pub events: u64,
}

/// By how much a load is smaller in a run of less than full fidelity.
fn share_of_load(work: &PostgresqlWorkload, fidelity: Fidelity) -> u64 {
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
fn shrink_load(work: &mut PostgresqlWorkload, share: u64) {
    let fewer = |n: u64| (n / share).max(1);
    work.asked_rows = work.asked_rows.map(fewer);
    work.warm_up_ns /= share;
    work.stop.operations = work.stop.operations.map(fewer);
    work.stop.duration_ns = work.stop.duration_ns.map(fewer);
}

/// Makes tables so many times smaller.
pub fn shrink_tables(tables: &mut [Relation], share: u64) {
    for table in tables {
        table.rows = (table.rows / share).max(1);
    }
}

impl<S: Clone, P: Clone> ServerJob<S, P> {
    /// A smaller system with the same ratios, and by how much it is smaller: load and host here, the database's own by `shrink`.
    pub fn shrunk(&self, fidelity: Fidelity, shrink: impl Fn(&mut Self, u64)) -> (Self, u64) {
        let mut job = self.clone();
        let share = share_of_load(&job.workload, fidelity);
        if share > 1 {
            shrink(&mut job, share);
            shrink_load(&mut job.workload, share);
            shrink_host(&mut job.cluster.host, share);
        }
        (job, share)
    }
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
    for (number, &(node, pending)) in parts.nodes.iter().enumerate() {
        let reads = tally.node(&format!("node {number}"), node, pending);
        // Compactions read too: what the disk did, not only what queries asked for.
        tally.reads(reads);
    }
    tally.report(operations, recorder.disk_waits(), &mut report);
    let (wanted, found) = parts.blocks;
    report.telemetry.block_cache_hit_ratio = (wanted > 0).then(|| found as f64 / wanted as f64);
    report
}
