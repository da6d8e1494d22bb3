//! Cells of Cassandra, at the scale that each needs.

use disklab_disk::Refusal;

use super::Cassandra;
use super::job::{DatabaseJob, Follower};
use crate::job::{CacheState, Fidelity};
use crate::model::{self, Model, Setting};
use crate::pauses::requests_between;
use crate::report::Report;
use crate::simulate::{QUICK_OPERATIONS, bounds, finish, operations_of, shrink_host};
use crate::stopwatch::Stopwatch;

/// Pauses of each node that a quick run keeps at least.
const QUICK_PAUSES: u64 = 1;
/// Operations that a quick run has for the sake of pauses, at most: each node begins somewhere between two pauses, so
/// rarer ones come with the chance that they have, and take so little of the time that a rate does not know it.
const QUICK_MOST_FOR_PAUSES: u64 = 2 * QUICK_OPERATIONS;

/// Cells on one cluster, each with the caches that it wants: all at the scale of the one that needs the largest part.
pub fn simulate(
    setting: &Setting,
    first: &DatabaseJob,
    then: &[Follower],
) -> Result<Vec<Report>, Refusal> {
    let followers = then.iter().map(|next| (next.cell, &next.database));
    let cells: Vec<(u64, &DatabaseJob)> = std::iter::once((setting.cell, first))
        .chain(followers)
        .collect();
    if then.iter().any(|next| next.from_warm) {
        return simulate_from_warm(setting, &cells);
    }
    let shares = cells
        .iter()
        .map(|(_, cell)| database_share(cell, setting.fidelity));
    let mut share = shares.min().unwrap_or(1);
    loop {
        let (reports, enough) = simulate_at(setting, &cells, share)?;
        if enough == share {
            return Ok(reports);
        }
        share = enough;
    }
}

/// Cells that differ in what breaks and when they end: the cluster is made, and warmed up, once for all of them.
fn simulate_from_warm(
    setting: &Setting,
    cells: &[(u64, &DatabaseJob)],
) -> Result<Vec<Report>, Refusal> {
    let mut quiet = cells[0].1.clone();
    if let Some(faults) = &mut quiet.faults {
        faults.events.clear();
    }
    let mut warm = Cassandra::new(&quiet, setting)?;
    model::begin(&mut warm, quiet.workload.warm_up_ns);
    let reports = cells.iter().map(|&(number, cell)| {
        let clock = Stopwatch::start();
        let mut cluster = warm.clone();
        cluster.goes_on_as(cell);
        model::end(&mut cluster);
        let mut report = cluster.report(cell, number);
        finish(&mut report, 1, clock, setting.fidelity);
        report
    });
    Ok(reports.collect())
}

/// The same at one scale, and the share at which each cell has operations enough.
fn simulate_at(
    setting: &Setting,
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
            cell: number,
            scale: share,
            pass: pass as u64,
            ..*setting
        };
        let mut cluster = Cassandra::new(&scaled, &setting)?;
        if let Some(left) = left.take() {
            cluster.take_caches(left, &scaled.before);
        }
        model::run(&mut cluster);
        let enough = larger_share(&cluster, cell, share, setting.fidelity);
        if enough != share {
            return Ok((reports, enough));
        }
        let mut report = cluster.report(&scaled, number);
        finish(&mut report, share, clock, setting.fidelity);
        reports.push(report);
        // Rows that writes have changed are filled again before the next cell.
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
        cluster.course.recorder.operations(),
        least_operations(job, fidelity),
    );
    let by_time = job.workload.stop.duration_ns.is_some() && !cluster.course.did_all();
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
