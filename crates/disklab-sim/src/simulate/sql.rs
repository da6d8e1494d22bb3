//! From a SQL cluster's run to its report.

use disklab_disk::{Refusal, VolumeId};
use disklab_units::Instant;

use super::{QUICK_MOST, QUICK_NOTE, Sums, empty_report, shrink_host};
use crate::database::yugabytedb::Yugabytedb;
use crate::job::{Fidelity, Job, SqlJob};
use crate::report::{Report, Uses, credits, operation};

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
    let now = recorder.measured_to();
    let disk_wait = recorder.disk_waits() as f64 / 1e6 / operations.max(1) as f64;
    report.events = cluster.events();
    let mut uses = Uses::new(&job.cluster.host);
    let (count, used) = cluster.connections(now);
    if job.workload.connections.is_some() {
        let share = used.busy_ns as f64 / elapsed_ns as f64 / count as f64;
        uses.add(
            "connections",
            String::new(),
            share,
            u128::from(used.waited_ns),
        );
    }
    client_uses(cluster, elapsed_ns, &mut uses);
    let mut sums = Sums::default();
    for number in 0..cluster.servers().len() {
        node_uses(
            cluster,
            number,
            now,
            elapsed_ns,
            &mut uses,
            &mut sums,
            &mut report,
        );
    }
    report.telemetry = sums.telemetry(operations, cluster.servers().len(), elapsed_ns);
    report.telemetry.disk_wait_ms_per_operation = disk_wait;
    let (wanted, found) = cluster.servers().iter().fold((0, 0), |sum, server| {
        let counts = server.block_counts;
        (sum.0 + counts.0, sum.1 + counts.1)
    });
    report.telemetry.block_cache_hit_ratio = (wanted > 0).then(|| found as f64 / wanted as f64);
    report.disk_ios = sums.all_ios;
    report.resources = uses.resources(operations);
    report.name_bottleneck();
    report
}

fn client_uses(cluster: &Yugabytedb, elapsed_ns: u64, uses: &mut Uses) {
    for (number, (cores, link)) in cluster.machines().iter().enumerate() {
        let place = if cluster.machines().len() > 1 {
            format!("client {number}")
        } else {
            String::new()
        };
        let usage = cores.usage();
        let share = usage.busy_ns as f64 / elapsed_ns as f64 / cores.count() as f64;
        uses.add(
            "client CPU",
            place.clone(),
            share,
            u128::from(usage.waited_ns),
        );
        if let Some(rate) = link.bytes_per_s() {
            let share = link.sent_bytes() as f64 * 1e9 / elapsed_ns as f64 / rate as f64;
            uses.add("client network", place, share, 0);
        }
    }
}

fn node_uses(
    cluster: &Yugabytedb,
    number: usize,
    now: u64,
    elapsed_ns: u64,
    uses: &mut Uses,
    sums: &mut Sums,
    report: &mut Report,
) {
    let server = &cluster.servers()[number];
    let before = cluster.before(number);
    let name = format!("node {number}");
    let elapsed = elapsed_ns as f64;
    let cores = server.cores.usage();
    let cpu = cores.busy_ns as f64 / elapsed / server.cores.count() as f64;
    uses.add("node CPU", name.clone(), cpu, u128::from(cores.waited_ns));
    if let Some(rate) = server.link.bytes_per_s() {
        let used = server.link.sent_bytes() as f64 * 1e9 / elapsed / rate as f64;
        uses.add("node network", name.clone(), used, 0);
    }
    let pages = server.storage.counters();
    sums.page_hits += pages.hits;
    sums.page_misses += pages.misses;
    let pending = server.lsm.pending_compaction_bytes();
    sums.pending_compaction = sums.pending_compaction.max(pending);
    let at = Instant::from_nanos(now);
    let host = server.storage.host();
    let volumes: Vec<(VolumeId, String)> = host
        .volumes()
        .map(|(id, volume)| (id, volume.name.clone()))
        .collect();
    for (index, (id, volume)) in volumes.iter().enumerate() {
        let counters = host.counters(at, *id);
        let old = before.get(index);
        uses.add_limits(&name, volume, &counters, old, elapsed_ns);
        sums.add_volume(&counters, old);
        let earlier = old.map(|before| before.operations).unwrap_or_default();
        // Compactions read too: what the disk did, not only what queries asked for.
        sums.read_ios += counters.operations.read.ios - earlier.read.ios;
        sums.read_bytes += counters.operations.read.bytes - earlier.read.bytes;
        let place = format!("{name} {volume}");
        report
            .credits
            .extend(credits(&place, &counters, old, elapsed_ns));
    }
}
