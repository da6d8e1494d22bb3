//! From a job to its report.

use std::collections::BTreeMap;
use std::time::Instant as WallClock;

use disklab_disk::profile::HostProfile;
use disklab_disk::{Refusal, VolumeCounters, VolumeId};
use disklab_units::Instant;

use crate::check::check;
use crate::client::Kind;
use crate::database::cassandra::Cassandra;
use crate::device::Device;
use crate::job::{DatabaseJob, Fidelity, Job};
use crate::record::Recorder;
use crate::report::{Report, Telemetry, Uses, credits, latencies, operation};

mod sql;

/// Operations that a quick run keeps at least: enough for a p99 of some hundred samples, and for the
/// throttle windows to fill several times.
const QUICK_OPERATIONS: u64 = 60_000;
/// Smallest share of a quick run: index and page cache still have thousands of pages.
const QUICK_MOST: u64 = 50;

/// Pauses of each node that a quick run keeps at least.
const QUICK_PAUSES: u64 = 1;

/// What findings of the 2019 study's prototype say about scaling rows and operations together.
const QUICK_NOTE: &str = "quick: ops/s within a few percent, p95 and p99 up to a fifth too high; reads beside writes \
     without what flushes and log cost them, up to a fifth too many";

/// Simulates a cell. Refuses a job that breaks a rule, with every reason.
pub fn simulate(job: &Job) -> Result<Report, Refusal> {
    check(job)?;
    let clock = WallClock::now();
    let mut report = match (&job.database, &job.sql, &job.device) {
        (None, Some(database), _) => sql::simulate(job.cell, database, job)?,
        (Some(database), ..) => {
            let (scaled, share) = scaled(database, job.fidelity);
            let mut cluster = Cassandra::new(&scaled, share, job.seed, &job.ablate)?;
            cluster.run();
            let mut report = cluster_report(job.cell, &scaled.cluster.host, &mut cluster);
            report.scale = 1.0 / share as f64;
            report.error_note = (share > 1).then(|| QUICK_NOTE.to_owned());
            report
        }
        (None, None, Some(given)) => {
            let mut device = Device::new(given, job.seed, &job.ablate)?;
            device.run();
            device_report(job.cell, &given.host, &device)
        }
        (None, None, None) => unreachable!("the job was checked"),
    };
    report.wall_s = clock.elapsed().as_secs_f64();
    Ok(report)
}

/// A smaller system with the same ratios, and by how much it is smaller.
fn scaled(job: &DatabaseJob, fidelity: Fidelity) -> (DatabaseJob, u64) {
    let mut job = job.clone();
    let operations = job.workload.stop.operations.unwrap_or(u64::MAX);
    let least = QUICK_OPERATIONS.max(operations_of_pauses(&job));
    let share = (operations / least).clamp(1, QUICK_MOST);
    if fidelity == Fidelity::Full || share == 1 {
        return (job, 1);
    }
    let fewer = |n: u64| (n / share).max(1);
    job.dataset.rows = fewer(job.dataset.rows);
    job.cluster.page_cache_bytes = fewer(job.cluster.page_cache_bytes);
    job.database.memtable_bytes = fewer(job.database.memtable_bytes);
    job.database.commitlog_segment_bytes = fewer(job.database.commitlog_segment_bytes);
    job.database.trickle_fsync_bytes = job.database.trickle_fsync_bytes.map(fewer);
    job.database.commitlog_sync_period_ns = fewer(job.database.commitlog_sync_period_ns);
    job.workload.warm_up_ns /= share;
    job.workload.stop.operations = job.workload.stop.operations.map(fewer);
    job.workload.stop.duration_ns = job.workload.stop.duration_ns.map(fewer);
    shrink_host(&mut job.cluster.host, share);
    (job, share)
}

/// Operations in which every node pauses some times: pauses do not scale, and a run without its share of
/// them would be too fast.
fn operations_of_pauses(job: &DatabaseJob) -> u64 {
    let parameters = &job.parameters;
    if parameters.read_pause_ns == 0 && parameters.write_pause_ns == 0 {
        return 0;
    }
    let replicas = u64::from(job.database.replication_factor);
    let requests = QUICK_PAUSES * parameters.pause_every_requests;
    requests.saturating_mul(u64::from(job.cluster.nodes)) / replicas.max(1)
}

fn shrink_host(host: &mut HostProfile, share: u64) {
    if let Some(cache) = &mut host.cache {
        let block = u64::from(cache.block_bytes);
        cache.capacity_bytes = (cache.capacity_bytes / share / block * block).max(block);
    }
    let disks = host.volumes.iter_mut().flat_map(|volume| &mut volume.disks);
    let disk_limits = disks.flat_map(|disk| &mut disk.limits);
    let limits = host
        .cached
        .iter_mut()
        .chain(&mut host.uncached)
        .chain(disk_limits);
    for burst in limits.filter_map(|limit| limit.burst.as_mut()) {
        burst.credits = burst.credits.map(|credits| credits / share);
        burst.start = burst.start.map(|credits| credits / share);
    }
}

fn empty_report<K: Into<usize> + Copy>(
    cell: u64,
    recorder: &Recorder,
    names: &[(K, &str)],
) -> Report {
    let elapsed_ns = recorder.elapsed_ns();
    let mut all = crate::record::histogram();
    let mut sum = 0;
    let mut per_operation = BTreeMap::new();
    for &(kind, name) in names {
        let histogram = recorder.latencies(kind);
        if histogram.is_empty() {
            continue;
        }
        all.add(histogram).expect("all have the same bounds");
        sum += recorder.latency_sum(kind);
        let one = operation(histogram, recorder.latency_sum(kind), elapsed_ns);
        per_operation.insert(name.to_owned(), one);
    }
    Report {
        cell,
        ops_per_s: all.len() as f64 * 1e9 / elapsed_ns as f64,
        latency_ms: latencies(&all, sum),
        per_operation,
        bottleneck: crate::report::Resource::none(),
        resources: Vec::new(),
        telemetry: Telemetry::default(),
        credits: Vec::new(),
        mean_in_flight: recorder.mean_under_way(),
        elapsed_s: elapsed_ns as f64 / 1e9,
        scale: 1.0,
        error_note: None,
        unsent: 0,
        events: 0,
        disk_ios: 0,
        wall_s: 0.0,
    }
}

fn cluster_report(cell: u64, host: &HostProfile, cluster: &mut Cassandra) -> Report {
    let recorder = cluster.recorder();
    let mut report = empty_report(
        cell,
        recorder,
        &[(Kind::Read, "read"), (Kind::Write, "write")],
    );
    let elapsed_ns = recorder.elapsed_ns();
    let (now, operations) = (recorder.measured_to(), recorder.operations());
    let disk_wait = recorder.disk_waits() as f64 / 1e6 / operations.max(1) as f64;
    report.events = cluster.events();
    report.unsent = cluster.unsent();
    let mut uses = Uses::new(host);
    client_uses(cluster, &mut uses, elapsed_ns);
    let mut sums = Sums::default();
    let count = cluster.nodes_mut().len();
    for number in 0..count {
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
    report.telemetry = sums.telemetry(operations, count, elapsed_ns);
    report.telemetry.disk_wait_ms_per_operation = disk_wait;
    report.disk_ios = sums.all_ios;
    report.resources = uses.resources(operations);
    report.name_bottleneck();
    report
}

fn client_uses(cluster: &Cassandra, uses: &mut Uses, elapsed_ns: u64) {
    let (cores, usage) = cluster.clients().cpu();
    let share = usage.busy_ns as f64 / elapsed_ns as f64 / cores as f64;
    uses.add(
        "client CPU",
        String::new(),
        share,
        u128::from(usage.waited_ns),
    );
    if let (bytes, Some(rate)) = cluster.clients().link() {
        let share = bytes as f64 * 1e9 / elapsed_ns as f64 / rate as f64;
        uses.add("client network", String::new(), share, 0);
    }
}

/// What all nodes did together.
#[derive(Default)]
struct Sums {
    page_hits: u64,
    page_misses: u64,
    read_ios: u64,
    read_bytes: u64,
    write_ios: u64,
    write_bytes: u64,
    cache_hits: u64,
    cache_misses: u64,
    all_ios: u64,
    paused_ns: u64,
    pending_compaction: u64,
}

impl Sums {
    fn telemetry(&self, operations: u64, nodes: usize, elapsed_ns: u64) -> Telemetry {
        let each = |n: u64| n as f64 / operations.max(1) as f64;
        let ratio = |hits: u64, misses: u64| {
            (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
        };
        Telemetry {
            page_cache_hit_ratio: ratio(self.page_hits, self.page_misses),
            host_cache_hit_ratio: ratio(self.cache_hits, self.cache_misses),
            read_ios_per_operation: each(self.read_ios),
            read_bytes_per_operation: each(self.read_bytes),
            write_ios_per_operation: each(self.write_ios),
            write_bytes_per_operation: each(self.write_bytes),
            disk_wait_ms_per_operation: 0.0,
            pause_ratio: self.paused_ns as f64 / elapsed_ns as f64 / nodes as f64,
            pending_compaction_bytes: self.pending_compaction,
            block_cache_hit_ratio: None,
        }
    }

    fn add_volume(&mut self, now: &VolumeCounters, before: Option<&VolumeCounters>) {
        let earlier = before.map(|before| before.operations).unwrap_or_default();
        self.write_ios += now.operations.write.ios - earlier.write.ios;
        self.write_bytes += now.operations.write.bytes - earlier.write.bytes;
        self.all_ios += now.operations.read.ios + now.operations.write.ios;
        if let Some(cache) = now.cache {
            let old = before.and_then(|before| before.cache).unwrap_or_default();
            self.cache_hits += cache.hit_ios - old.hit_ios;
            self.cache_misses += cache.miss_ios - old.miss_ios;
        }
    }
}

fn node_uses(
    cluster: &mut Cassandra,
    number: usize,
    now: u64,
    elapsed_ns: u64,
    uses: &mut Uses,
    sums: &mut Sums,
    report: &mut Report,
) {
    let before = cluster.before(number);
    let node = &mut cluster.nodes_mut()[number];
    let name = format!("node {number}");
    let elapsed = elapsed_ns as f64;
    let cores = node.cores.usage();
    let share = |busy_ns: u64, count: u64| busy_ns as f64 / elapsed / count as f64;
    let cpu = share(cores.busy_ns, node.cores.count());
    uses.add("node CPU", name.clone(), cpu, u128::from(cores.waited_ns));
    for (kind, slots) in [
        ("read slots", &mut node.read_slots),
        ("write slots", &mut node.write_slots),
    ] {
        let usage = slots.usage(now.max(slots.changed_at()));
        if usage.served > 0 {
            let used = share(usage.busy_ns, slots.count());
            uses.add(kind, name.clone(), used, u128::from(usage.waited_ns));
        }
    }
    if let Some(rate) = node.link.bytes_per_s() {
        let used = node.link.sent_bytes() as f64 * 1e9 / elapsed / rate as f64;
        uses.add("node network", name.clone(), used, 0);
    }
    let pages = node.storage.counters();
    sums.page_hits += pages.hits;
    sums.page_misses += pages.misses;
    sums.read_ios += pages.read_ios;
    sums.read_bytes += pages.read_bytes;
    sums.paused_ns += node.pauses.total_ns();
    let pending = node.background.pending_compaction_bytes();
    sums.pending_compaction = sums.pending_compaction.max(pending);
    let at = Instant::from_nanos(now);
    let host = node.storage.host();
    let volumes: Vec<(VolumeId, String)> = host
        .volumes()
        .map(|(id, volume)| (id, volume.name.clone()))
        .collect();
    for (index, (id, volume)) in volumes.iter().enumerate() {
        let counters = host.counters(at, *id);
        let old = before.get(index);
        uses.add_limits(&name, volume, &counters, old, elapsed_ns);
        sums.add_volume(&counters, old);
        let place = format!("{name} {volume}");
        report
            .credits
            .extend(credits(&place, &counters, old, elapsed_ns));
    }
}

fn device_report(cell: u64, host: &HostProfile, device: &Device) -> Report {
    let recorder = device.recorder();
    let mut report = empty_report(
        cell,
        recorder,
        &[(Kind::Read, "read"), (Kind::Write, "write")],
    );
    let elapsed_ns = recorder.elapsed_ns();
    let mut uses = Uses::new(host);
    let (model, volume) = device.host();
    let counters = model.counters(Instant::from_nanos(recorder.measured_to()), volume);
    uses.add_limits("", "", &counters, None, elapsed_ns);
    let (threads, busy_ns) = device.thread_usage();
    let share = busy_ns as f64 / elapsed_ns as f64 / threads as f64;
    uses.add("fio CPU", String::new(), share, 0);
    report.resources = uses.resources(recorder.operations());
    report.credits = credits("", &counters, None, elapsed_ns);
    let mut sums = Sums::default();
    sums.add_volume(&counters, None);
    sums.read_ios = counters.operations.read.ios;
    sums.read_bytes = counters.operations.read.bytes;
    report.telemetry = sums.telemetry(recorder.operations(), 1, elapsed_ns);
    report.telemetry.page_cache_hit_ratio = None;
    report.disk_ios = sums.all_ios;
    report.events = device.events();
    report.name_bottleneck();
    report
}
