//! From a job to its report.

use std::collections::BTreeMap;

use disklab_disk::Refusal;
use disklab_disk::profile::HostProfile;
use disklab_units::Instant;

use crate::client::NAMES;
use crate::device::{Bench, Device, KINDS};
use crate::engine::Code;
use crate::job::{DeviceJob, Fidelity, FileJob, Fio, Load, Stop, Trace};
use crate::machine::limits;
use crate::model::{self, Model, Setting};
use crate::record::Recorder;
use crate::replay::Replay;
use crate::report::{Report, Telemetry, latencies, operation};
use crate::stopwatch::Stopwatch;
use tally::Tally;

mod sql;
pub mod tally;

pub use sql::{SqlParts, quick_ns, shrink_tables, sql_report};

/// Operations that a quick run keeps at least: enough for a p99 of some hundred samples, and for the
/// throttle windows to fill several times.
pub const QUICK_OPERATIONS: u64 = 60_000;
/// Smallest share of a quick run: index and page cache still have thousands of pages.
const QUICK_MOST: u64 = 50;
/// What a sketch is of a quick run: its operations are divided by this, and its share is multiplied.
const SKETCH: u64 = 5;

/// Operations that a run of less than full fidelity keeps at least, and by how much it is smaller at most.
pub fn bounds(fidelity: Fidelity) -> (u64, u64) {
    match fidelity {
        Fidelity::Sketch => (QUICK_OPERATIONS / SKETCH, QUICK_MOST * SKETCH),
        Fidelity::Full | Fidelity::Quick => (QUICK_OPERATIONS, QUICK_MOST),
    }
}

/// What findings of the 2019 study's prototype say about scaling rows and operations together. Reads beside writes: full
/// and quick of half writes, six nodes, 2026-11-26: 15 % (rows of 32 KiB, one copy) and 18 % (4 KiB, five copies) too
/// many with `trickle_fsync`, 62 % without (32 KiB, one copy).
const QUICK_NOTE: &str = "quick: ops/s within a few percent, p95 and p99 up to a fifth too high; reads beside writes \
     without what flushes and log cost them, up to three fifths too many (--fidelity full has it)";

const SKETCH_NOTE: &str =
    "sketch: a first look, from a fifth of the operations that a quick run has";

/// A device under fio, or under a trace.
pub fn device(setting: &Setting, device: &DeviceJob) -> Result<Vec<Report>, Refusal> {
    let clock = Stopwatch::start();
    let mut report = match (&device.fio, &device.trace) {
        (Some(fio), _) => fio_report(setting, device, fio)?,
        (None, Some(trace)) => trace_report(setting, device, trace)?,
        (None, None) => unreachable!("the job was checked"),
    };
    finish(&mut report, 1, clock, setting.fidelity);
    Ok(vec![report])
}

/// A cell that nothing follows.
pub fn simulate_one<M: Model>(setting: &Setting, whole: &M::Job) -> Result<Vec<Report>, Refusal> {
    let clock = Stopwatch::start();
    let (scaled, scale) = M::scaled(whole, setting.fidelity);
    let mut model = M::new(&scaled, &Setting { scale, ..*setting })?;
    model::run(&mut model);
    let mut report = model.report(&scaled, setting.cell);
    finish(&mut report, scale, clock, setting.fidelity);
    Ok(vec![report])
}

/// Says at which scale a report was made, and how long that took.
pub fn finish(report: &mut Report, scale: u64, clock: Stopwatch, fidelity: Fidelity) {
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

/// By how much a load can be smaller and still have its operations; None: nobody knows how many it has.
fn share_of(load: &Load, stop: Stop, warm_up_ns: u64, fidelity: Fidelity) -> Option<u64> {
    let operations = operations_of(load, stop, warm_up_ns);
    let (least, most) = bounds(fidelity);
    (operations < u64::MAX).then(|| (operations / least).clamp(1, most))
}

/// Operations of a load; the largest number where it ends after a time and nobody knows its rate.
pub fn operations_of(load: &Load, stop: Stop, warm_up_ns: u64) -> u64 {
    let offered = match (load, stop.duration_ns) {
        (&Load::Open { rate_per_ks, .. }, Some(ns)) => {
            let measured = ns.saturating_sub(warm_up_ns);
            (u128::from(rate_per_ks) * u128::from(measured) / 1_000_000_000_000) as u64
        }
        _ => u64::MAX,
    };
    stop.operations.unwrap_or(u64::MAX).min(offered)
}

/// Makes what a host remembers so many times smaller: its cache and its credits.
pub fn shrink_host(host: &mut HostProfile, share: u64) {
    if let Some(cache) = &mut host.cache {
        let block = u64::from(cache.block_bytes);
        cache.capacity_bytes = (cache.capacity_bytes / share / block * block).max(block);
    }
    for burst in limits(host).filter_map(|limit| limit.burst.as_mut()) {
        burst.credits = burst.credits.map(|credits| credits / share);
        burst.start = burst.start.map(|credits| credits / share);
    }
}

/// The report of what was recorded of operations with these names.
pub fn empty_report<K: Into<usize> + Copy>(
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

/// A file that is read.
pub fn file(setting: &Setting, file: &FileJob) -> Result<Vec<Report>, Refusal> {
    let counters = crate::filereads::read(file, setting.off)?;
    let mut report = empty_report::<usize>(setting.cell, &Recorder::new(), &[]);
    let reads = file.reads.len() as f64;
    report.telemetry.read_ios_per_operation = counters.read_ios as f64 / reads;
    report.telemetry.read_bytes_per_operation = counters.read_bytes as f64 / reads;
    report.disk_ios = counters.read_ios;
    Ok(vec![report])
}

fn fio_report(setting: &Setting, given: &DeviceJob, fio: &Fio) -> Result<Report, Refusal> {
    let mut device = Device::new(given, fio, setting)?;
    setting.keep_journal(&mut device.bench.disks.host, fio.warm_up_ns);
    device.run();
    let (recorder, usage) = (&device.bench.recorder, device.thread_usage());
    let sections: Vec<(&str, u64)> = device.sections().collect();
    let named: Vec<String> = (sections.iter())
        .flat_map(|(name, _)| KINDS.map(|kind| format!("{name} {kind}").trim().to_owned()))
        .collect();
    let kinds: Vec<(usize, &str)> = named.iter().map(String::as_str).enumerate().collect();
    let mut report = device_report(
        setting.cell,
        &given.host,
        &device.bench,
        &kinds,
        Some(usage),
    );
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
    Ok(report)
}

fn trace_report(setting: &Setting, given: &DeviceJob, trace: &Trace) -> Result<Report, Refusal> {
    let mut replay = Replay::new(given, trace, setting)?;
    setting.keep_journal(&mut replay.bench.disks.host, 0);
    replay.run();
    let mut report = device_report(setting.cell, &given.host, &replay.bench, &NAMES[..2], None);
    if let Some(rate) = replay.rate() {
        report.ops_per_s = rate;
    }
    Ok(report)
}

/// What a device did. `threads`: those that submit, and their busy time, where they take any.
fn device_report<E: Code, K: Into<usize> + Copy>(
    cell: u64,
    host: &HostProfile,
    bench: &Bench<E>,
    names: &[(K, &str)],
    threads: Option<(u64, u64)>,
) -> Report {
    let (recorder, model) = (&bench.recorder, &bench.disks.host);
    let mut report = empty_report(cell, recorder, names);
    report.events = bench.queue.scheduled();
    let mut tally = Tally::new([host], recorder);
    let now = Instant::from_nanos(recorder.measured_to());
    let reads = tally.volume("", "", &model.counters(now, bench.volume), &bench.before);
    tally.reads(reads);
    tally.journal(model);
    if let Some((threads, busy_ns)) = threads {
        tally.busy("fio CPU", "", threads, busy_ns, 0);
    }
    tally.report(recorder.operations(), 0, &mut report);
    report
}
