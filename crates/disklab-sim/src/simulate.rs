//! From a job to its report.

use std::collections::BTreeMap;

use disklab_disk::profile::HostProfile;
use disklab_disk::{Host, Refusal, VolumeCounters, VolumeId};
use disklab_units::Instant;

use crate::check::check;
use crate::client::NAMES;
use crate::database::cassandra::Cassandra;
use crate::database::etcd::{self, Etcd};
use crate::database::mariadb::Mariadb;
use crate::database::postgresql::Postgresql;
use crate::database::yugabytedb::Yugabytedb;
use crate::device::{Device, KINDS};
use crate::job::{
    CacheState, DatabaseJob, DeviceJob, Fidelity, FileJob, Fio, Job, Kind, Load, Mechanism, Stop,
    Trace,
};
use crate::model::{self, Model, Setting};
use crate::pauses::requests_between;
use crate::record::Recorder;
use crate::replay::Replay;
use crate::report::{FLUSH_WRITERS, Report, Telemetry, latencies, operation};
use crate::stopwatch::Stopwatch;
use tally::{Reads, Tally};

mod sql;
mod tally;

pub use sql::{SqlParts, share_of_load, shrink_load, sql_report};
pub use tally::NodeParts;

/// Operations that a quick run keeps at least: enough for a p99 of some hundred samples, and for the
/// throttle windows to fill several times.
const QUICK_OPERATIONS: u64 = 60_000;
/// Smallest share of a quick run: index and page cache still have thousands of pages.
const QUICK_MOST: u64 = 50;
/// What a sketch is of a quick run: its operations are divided by this, and its share is multiplied.
const SKETCH: u64 = 5;

/// Operations that a run of less than full fidelity keeps at least, and by how much it is smaller at most.
fn bounds(fidelity: Fidelity) -> (u64, u64) {
    match fidelity {
        Fidelity::Sketch => (QUICK_OPERATIONS / SKETCH, QUICK_MOST * SKETCH),
        Fidelity::Full | Fidelity::Quick => (QUICK_OPERATIONS, QUICK_MOST),
    }
}

/// Pauses of each node that a quick run keeps at least.
const QUICK_PAUSES: u64 = 1;
/// Operations that a quick run has for the sake of pauses, at most: each node begins somewhere between two pauses, so
/// rarer ones come with the chance that they have, and take so little of the time that a rate does not know it.
const QUICK_MOST_FOR_PAUSES: u64 = 2 * QUICK_OPERATIONS;

/// What findings of the 2019 study's prototype say about scaling rows and operations together. Reads beside writes: full
/// and quick of half writes, six nodes, 2026-11-26: 15 % (rows of 32 KiB, one copy) and 18 % (4 KiB, five copies) too
/// many with `trickle_fsync`, 62 % without (32 KiB, one copy).
const QUICK_NOTE: &str = "quick: ops/s within a few percent, p95 and p99 up to a fifth too high; reads beside writes \
     without what flushes and log cost them, up to three fifths too many (--fidelity full has it)";

const SKETCH_NOTE: &str =
    "sketch: a first look, from a fifth of the operations that a quick run has";

/// Simulates a cell, the first one of a job. Refuses a job that breaks a rule, with every reason.
pub fn simulate(job: &Job) -> Result<Report, Refusal> {
    Ok(simulate_all(job)?.swap_remove(0))
}

/// Simulates a cell and those that follow it, in order. Refuses a job that breaks a rule, with every reason.
pub fn simulate_all(job: &Job) -> Result<Vec<Report>, Refusal> {
    check(job)?;
    match &job.kind {
        Kind::Database(database) => simulate_databases(job, database),
        Kind::Sql(database) => simulate_one::<Yugabytedb>(job, sql::scaled(database, job.fidelity)),
        Kind::Postgresql(database) => {
            simulate_one::<Postgresql>(job, sql::scaled_postgresql(database, job.fidelity))
        }
        Kind::Mariadb(database) => {
            simulate_one::<Mariadb>(job, sql::scaled_mariadb(database, job.fidelity))
        }
        Kind::Etcd(database) => simulate_one::<Etcd>(job, etcd::scaled(database, job.fidelity)),
        Kind::Device(device) => {
            let clock = Stopwatch::start();
            let mut report = match (&device.fio, &device.trace) {
                (Some(fio), _) => fio_report(job, device, fio)?,
                (None, Some(trace)) => trace_report(job, device, trace)?,
                (None, None) => unreachable!("the job was checked"),
            };
            finish(&mut report, 1, clock, job.fidelity);
            Ok(vec![report])
        }
        Kind::File(file) => Ok(vec![file_report(job.cell, file, &job.ablate)?]),
    }
}

/// A cell that nothing follows, at the scale that it is given at.
fn simulate_one<M: Model>(
    job: &Job,
    (scaled, scale): (M::Job, u64),
) -> Result<Vec<Report>, Refusal> {
    let clock = Stopwatch::start();
    let setting = Setting {
        scale,
        seed: job.seed,
        pass: 0,
        off: &job.ablate,
        journal: job.journal,
    };
    let mut model = M::new(&scaled, &setting)?;
    model::run(&mut model);
    let mut report = model.report(&scaled, job.cell);
    finish(&mut report, scale, clock, job.fidelity);
    Ok(vec![report])
}

/// Says at which scale a report was made, and how long that took.
fn finish(report: &mut Report, scale: u64, clock: Stopwatch, fidelity: Fidelity) {
    report.scale = 1.0 / scale as f64;
    let own = report.error_note.take();
    let note = match fidelity {
        Fidelity::Sketch => SKETCH_NOTE,
        Fidelity::Full | Fidelity::Quick => QUICK_NOTE,
    };
    report.error_note = (scale > 1).then(|| match own {
        Some(own) => format!("{note}; {own}"),
        None => note.to_owned(),
    });
    report.wall_s = clock.seconds();
}

/// Cells on one cluster, each with the caches that it wants: all at the scale of the one that needs the largest part.
fn simulate_databases(job: &Job, first: &DatabaseJob) -> Result<Vec<Report>, Refusal> {
    let followers = job.then.iter().map(|next| (next.cell, &next.database));
    let cells: Vec<(u64, &DatabaseJob)> = std::iter::once((job.cell, first))
        .chain(followers)
        .collect();
    let shares = cells
        .iter()
        .map(|(_, cell)| database_share(cell, job.fidelity));
    let mut share = shares.min().unwrap_or(1);
    loop {
        let (reports, enough) = simulate_at(job, &cells, share)?;
        if enough == share {
            return Ok(reports);
        }
        share = enough;
    }
}

/// The same at one scale, and the share at which each cell has operations enough.
fn simulate_at(
    job: &Job,
    cells: &[(u64, &DatabaseJob)],
    share: u64,
) -> Result<(Vec<Report>, u64), Refusal> {
    let mut reports = Vec::new();
    let mut left = None;
    for (pass, &(number, cell)) in cells.iter().enumerate() {
        let clock = Stopwatch::start();
        let mut scaled = scaled(cell, share);
        if left.is_none() {
            // As after the fill, which is what comes before the first.
            for state in [&mut scaled.before.page_cache, &mut scaled.before.host_cache] {
                if *state == CacheState::AsLeft {
                    *state = CacheState::Written;
                }
            }
        }
        let setting = Setting {
            scale: share,
            seed: job.seed,
            pass: pass as u64,
            off: &job.ablate,
            journal: job.journal,
        };
        let mut cluster = Cassandra::new(&scaled, &setting)?;
        if let Some(left) = left.take() {
            cluster.take_caches(left, &scaled.before);
        }
        model::run(&mut cluster);
        let enough = larger_share(&cluster, cell, share, job.fidelity);
        if enough != share {
            return Ok((reports, enough));
        }
        let mut report = cluster.report(&scaled, number);
        finish(&mut report, share, clock, job.fidelity);
        reports.push(report);
        // What writes have changed is filled anew before the next cell.
        let only_read = scaled.workload.only_reads();
        left = (only_read && pass + 1 < cells.len()).then(|| cluster.into_caches());
    }
    Ok((reports, share))
}

/// By how much a cell is simulated smaller than it is.
fn database_share(job: &DatabaseJob, fidelity: Fidelity) -> u64 {
    // What comes back to a node takes the time that it takes: nothing of a timetable shrinks.
    if fidelity == Fidelity::Full || job.faults.is_some() {
        return 1;
    }
    let work = &job.workload;
    let operations = operations_of(&work.load, work.stop, work.warm_up_ns);
    (operations / least_operations(job, fidelity)).clamp(1, bounds(fidelity).1)
}

/// By how much a load can be smaller and still have its operations; None: nobody knows how many it has.
fn share_of(load: &Load, stop: Stop, warm_up_ns: u64, fidelity: Fidelity) -> Option<u64> {
    let operations = operations_of(load, stop, warm_up_ns);
    let (least, most) = bounds(fidelity);
    (operations < u64::MAX).then(|| (operations / least).clamp(1, most))
}

/// Operations of a load; the largest number where it ends after a time and nobody knows its rate.
fn operations_of(load: &Load, stop: Stop, warm_up_ns: u64) -> u64 {
    let offered = match (load, stop.duration_ns) {
        (&Load::Open { rate_per_ks, .. }, Some(ns)) => {
            let measured = ns.saturating_sub(warm_up_ns);
            (u128::from(rate_per_ks) * u128::from(measured) / 1_000_000_000_000) as u64
        }
        _ => u64::MAX,
    };
    stop.operations.unwrap_or(u64::MAX).min(offered)
}

/// Operations that a quick run keeps at least.
fn least_operations(job: &DatabaseJob, fidelity: Fidelity) -> u64 {
    let (least, _) = bounds(fidelity);
    match fidelity {
        Fidelity::Sketch => least,
        Fidelity::Full | Fidelity::Quick => least.max(operations_of_pauses(job)),
    }
}

/// The same share, or a larger part of the cell when its time was over before the run had its operations: nobody knows
/// beforehand how many a closed loop does in a time. A part so large that it has them with a tenth to spare.
fn larger_share(cluster: &Cassandra, job: &DatabaseJob, share: u64, fidelity: Fidelity) -> u64 {
    let (done, least) = (
        cluster.recorder().operations(),
        least_operations(job, fidelity),
    );
    let by_time = job.workload.stop.duration_ns.is_some() && !cluster.did_all();
    if share == 1 || !by_time || done >= least {
        return share;
    }
    (share * done * 9 / (least * 10)).clamp(1, share - 1)
}

/// A system with the same ratios, `share` times smaller.
///
/// What a table's writer syncs at a time stays: each sync also takes the latency of a write, which does not shrink, so
/// smaller ones would make flushes slower than they are.
fn scaled(job: &DatabaseJob, share: u64) -> DatabaseJob {
    let mut job = job.clone();
    if share == 1 {
        return job;
    }
    let fewer = |n: u64| (n / share).max(1);
    job.dataset.rows = fewer(job.dataset.rows);
    job.workload.asked_rows = job.workload.asked_rows.map(fewer);
    job.cluster.page_cache_bytes = fewer(job.cluster.page_cache_bytes);
    job.database.memtable_bytes = fewer(job.database.memtable_bytes);
    job.database.commitlog_segment_bytes = fewer(job.database.commitlog_segment_bytes);
    job.database.commitlog_sync_period_ns = fewer(job.database.commitlog_sync_period_ns);
    job.workload.warm_up_ns /= share;
    job.parameters.client_warm_operations /= share;
    job.workload.stop.operations = job.workload.stop.operations.map(fewer);
    job.workload.stop.duration_ns = job.workload.stop.duration_ns.map(fewer);
    shrink_host(&mut job.cluster.host, share);
    job
}

/// Operations in which every node pauses some times: pauses do not scale, and a run without its share of
/// them would be too fast.
fn operations_of_pauses(job: &DatabaseJob) -> u64 {
    let parameters = &job.parameters;
    if parameters.read_pause_ns == 0 && parameters.write_pause_ns == 0 {
        return 0;
    }
    let replicas = u64::from(job.database.replication_factor);
    let requests = QUICK_PAUSES * requests_between(parameters, job.cluster.collector);
    let operations = requests.saturating_mul(u64::from(job.cluster.nodes)) / replicas.max(1);
    operations.min(QUICK_MOST_FOR_PAUSES)
}

/// Makes what a host remembers so many times smaller: its cache and its credits.
pub fn shrink_host(host: &mut HostProfile, share: u64) {
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
    let kinds: Vec<usize> = names.iter().map(|&(kind, _)| kind.into()).collect();
    let mut per_operation = BTreeMap::new();
    for &(kind, name) in names {
        let histogram = recorder.latencies(kind);
        if histogram.is_empty() {
            continue;
        }
        all.add(histogram).expect("all have the same bounds");
        sum += recorder.latency_sum(kind);
        let mut one = operation(histogram, recorder.latency_sum(kind), elapsed_ns);
        one.tail = recorder.tail().report(&[kind.into()], histogram);
        per_operation.insert(name.to_owned(), one);
    }
    Report {
        cell,
        ops_per_s: all.len() as f64 * 1e9 / elapsed_ns as f64,
        latency_ms: latencies(&all, sum),
        tail: recorder.tail().report(&kinds, &all),
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
        faults: None,
        log: None,
        journal: None,
    }
}

/// What became of a cluster of Cassandra.
pub fn cluster_report(cell: u64, host: &HostProfile, cluster: &mut Cassandra) -> Report {
    let recorder = cluster.recorder();
    let mut report = empty_report(cell, recorder, &NAMES[..recorder.kinds()]);
    report.events = cluster.events();
    report.unsent = cluster.unsent();
    let others = cluster.other_hosts().iter().map(|other| &other.host);
    let mut tally = Tally::new(std::iter::once(host).chain(others), recorder);
    let (operations, disk_waits) = (recorder.operations(), recorder.disk_waits());
    let now = recorder.measured_to();
    let (cores, usage) = cluster.clients().cpu();
    tally.busy("client CPU", "", cores, usage.busy_ns, usage.waited_ns);
    let (bytes, rate) = cluster.clients().link();
    tally.sent("client network", "", bytes, rate);
    for number in 0..cluster.nodes_mut().len() {
        let name = format!("node {number}");
        let before = cluster.before(number).to_vec();
        let node = &mut cluster.nodes_mut()[number];
        for (kind, slots) in [
            ("read slots", &mut node.read_slots),
            ("write slots", &mut node.write_slots),
        ] {
            let usage = slots.usage(now);
            if usage.served > 0 {
                tally.busy(kind, &name, slots.count(), usage.busy_ns, usage.waited_ns);
            }
        }
        let (writers, busy_ns) = node.background.flush_usage(now);
        if busy_ns > 0 {
            tally.busy(FLUSH_WRITERS, &name, writers, busy_ns, 0);
        }
        tally.node(
            &name,
            &NodeParts {
                cores: &node.cores,
                link: &node.link,
                storage: &node.storage,
                pending_compaction_bytes: node.background.pending_compaction_bytes(),
                before: &before,
            },
        );
        // Those that operations wait for; a compaction's reads are none.
        let pages = node.storage.counters();
        tally.reads(Reads {
            ios: pages.read_ios,
            bytes: pages.read_bytes,
        });
        tally.paused(node.pauses.total_ns());
    }
    tally.report(operations, disk_waits, &mut report);
    report.faults = cluster.fault_report();
    report
}

fn file_report(cell: u64, job: &FileJob, off: &[Mechanism]) -> Result<Report, Refusal> {
    let counters = crate::filereads::read(job, off)?;
    let mut report = empty_report::<usize>(cell, &Recorder::new(), &[]);
    let reads = job.reads.len() as f64;
    report.telemetry.read_ios_per_operation = counters.read_ios as f64 / reads;
    report.telemetry.read_bytes_per_operation = counters.read_bytes as f64 / reads;
    report.disk_ios = counters.read_ios;
    Ok(report)
}

fn fio_report(job: &Job, given: &DeviceJob, fio: &Fio) -> Result<Report, Refusal> {
    let mut device = Device::new(given, fio, job.seed, &job.ablate)?;
    model::keep_journal(job.journal, device.host_mut(), fio.warm_up_ns);
    device.run();
    let (recorder, usage) = (device.recorder(), device.thread_usage());
    let parts = (recorder, device.host(), device.before());
    let sections: Vec<(&str, u64)> = device.sections().collect();
    let named: Vec<String> = (sections.iter())
        .flat_map(|(name, _)| KINDS.map(|kind| format!("{name} {kind}").trim().to_owned()))
        .collect();
    let kinds: Vec<(usize, &str)> = named.iter().map(String::as_str).enumerate().collect();
    let mut report = device_report(job.cell, &given.host, parts, &kinds, Some(usage));
    let mut rate = 0.0;
    for (kind, name) in kinds {
        if let Some(own) = report.per_operation.get_mut(name) {
            let span_ns = sections[kind / KINDS.len()].1;
            own.ops_per_s = own.operations as f64 * 1e9 / span_ns as f64;
            if !name.ends_with(KINDS[2]) {
                rate += own.ops_per_s;
            }
        }
    }
    // fio counts I/Os and reports syncs separately; a job that syncs waits for each sync.
    report.ops_per_s = rate;
    let mut syncs = crate::record::histogram();
    let mut sum = 0;
    for kind in (KINDS.len() - 1..recorder.kinds()).step_by(KINDS.len()) {
        let histogram = recorder.latencies(kind);
        syncs.add(histogram).expect("all have the same bounds");
        sum += recorder.latency_sum(kind);
    }
    if !syncs.is_empty() {
        report.latency_ms = latencies(&syncs, sum);
    }
    report.events = device.events();
    Ok(report)
}

fn trace_report(job: &Job, given: &DeviceJob, trace: &Trace) -> Result<Report, Refusal> {
    let mut replay = Replay::new(given, trace, job.seed, &job.ablate)?;
    model::keep_journal(job.journal, replay.host_mut(), 0);
    replay.run();
    let parts = (replay.recorder(), replay.host(), replay.before());
    let mut report = device_report(job.cell, &given.host, parts, &NAMES[..2], None);
    report.events = replay.events();
    if let Some(rate) = replay.rate() {
        report.ops_per_s = rate;
    }
    Ok(report)
}

/// What a device did. `threads`: those that submit, and their busy time, where they take any.
fn device_report<K: Into<usize> + Copy>(
    cell: u64,
    host: &HostProfile,
    (recorder, (model, volume), before): (&Recorder, (&Host, VolumeId), &VolumeCounters),
    names: &[(K, &str)],
    threads: Option<(u64, u64)>,
) -> Report {
    let mut report = empty_report(cell, recorder, names);
    let mut tally = Tally::new([host], recorder);
    let counters = model.counters(Instant::from_nanos(recorder.measured_to()), volume);
    let reads = tally.volume("", "", &counters, before);
    tally.reads(reads);
    tally.journal(model);
    if let Some((threads, busy_ns)) = threads {
        tally.busy("fio CPU", "", threads, busy_ns, 0);
    }
    tally.report(recorder.operations(), 0, &mut report);
    report
}
