//! What a job of YugabyteDB must keep, and how a smaller one is made of it.

use disklab_disk::Rules;

use super::job::SqlJob;
use crate::check::{
    MOST_UNDER_WAY, check_members, check_replicas, check_servers, check_timetable, positive,
};
use crate::job::{AccessKind, Fidelity, RowDraw, Stop};
use crate::simulate::{bounds, quick_ns, shrink_host};

/// Most tablets: a node keeps a log for each.
const MOST_TABLETS: u64 = 1 << 20;

/// Checks everything that the disk model does not check itself.
pub fn check(rules: &mut Rules, job: &SqlJob) {
    let (work, database) = (&job.workload, &job.database);
    let nodes = job.cluster.nodes;
    check_replicas(rules, "tablet", database.replication_factor, nodes);
    let all = [
        ("database.block_bytes", u64::from(database.block_bytes)),
        ("database.wal_sync_period_ns", database.wal_sync_period_ns),
    ];
    positive(rules, &all);
    rules.must(
        (1..=MOST_UNDER_WAY).contains(&work.sessions),
        "workload.sessions",
        work.sessions,
        &format!("1 to {MOST_UNDER_WAY} sessions"),
        "choose another number",
    );
    rules.must(
        work.duration_ns > work.warm_up_ns,
        "workload.duration_ns",
        work.duration_ns,
        "a run ends some time after its warm-up",
        "give a longer one",
    );
    check_tables(rules, job);
    let load = (&work.transactions[..], work.connections);
    check_servers(rules, job, load, |table| &table.name);
    check_accesses(rules, job);
    if let Some(faults) = &job.faults {
        let stop = Stop {
            operations: None,
            duration_ns: Some(work.duration_ns),
        };
        let timetable = (faults.interval_ns, &faults.events[..]);
        check_timetable(rules, stop, timetable, &job.cluster.host);
        check_members(rules, &faults.events, nodes);
    }
}

fn check_tables(rules: &mut Rules, job: &SqlJob) {
    for table in &job.tables {
        let place = format!("tables.{}", table.name);
        rules.must(
            table.rows > 0 && table.row_bytes > 0 && table.tablets > 0,
            &place,
            format!(
                "{} rows of {} bytes, {} tablets",
                table.rows, table.row_bytes, table.tablets
            ),
            "a table has rows, bytes and tablets",
            "give positive numbers",
        );
    }
    let tablets: u64 = job
        .tables
        .iter()
        .map(|table| u64::from(table.tablets))
        .sum();
    rules.must(
        tablets <= MOST_TABLETS,
        "tables",
        format!("{tablets} tablets"),
        &format!("at most {MOST_TABLETS} of them"),
        "use fewer tables, or fewer tablets for each",
    );
    let plain: u128 = job
        .tables
        .iter()
        .map(|table| u128::from(table.rows) * u128::from(table.row_bytes))
        .sum();
    let copies = u128::from(job.database.replication_factor);
    let permille = u128::from(job.database.compressed_permille);
    let each = plain * permille / 1000 * copies / u128::from(job.cluster.nodes.max(1));
    let size = job.cluster.data_volume_bytes();
    rules.must(
        each <= u128::from(size),
        "tables",
        format!("{} GB on each node", each / 1_000_000_000),
        &format!("its data volume has only {} GB", size / 1_000_000_000),
        "choose fewer rows, more nodes or larger disks",
    );
}

fn check_accesses(rules: &mut Rules, job: &SqlJob) {
    let transactions = job.workload.transactions.iter();
    let accesses = transactions.flat_map(|transaction| {
        let statements = transaction.statements.iter();
        statements.flat_map(|s| s.accesses.iter().map(|access| (&transaction.name, access)))
    });
    for (name, access) in accesses {
        rules.must(
            matches!(
                access.draw,
                RowDraw::Uniform | RowDraw::Nurand { .. } | RowDraw::Run | RowDraw::Recent
            ) && !matches!(access.kind, AccessKind::Lock | AccessKind::Delete),
            &format!("workload.transactions.{name}"),
            format!("{:?} of {:?}", access.kind, access.draw),
            "preferred rows, locks and deletes are simulated for PostgreSQL alone",
            "use update, and uniform",
        );
    }
}

/// A smaller system with the same ratios, and by how much it is smaller: rows, caches, memstores,
/// burst credits and time together. Rates, tablets, keying and think times stay.
pub fn scaled(job: &SqlJob, fidelity: Fidelity) -> (SqlJob, u64) {
    let mut job = job.clone();
    let share = (job.workload.duration_ns / quick_ns(fidelity)).clamp(1, bounds(fidelity).1);
    if fidelity == Fidelity::Full || share == 1 || job.faults.is_some() {
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
