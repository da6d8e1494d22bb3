//! The rules of a SQL job.

use super::{MOST_NODES, MOST_UNDER_WAY, Rules, check_volume};
use crate::cluster::MOST_REPLICAS;
use crate::job::{AccessKind, RowDraw, SqlJob, Transaction};

/// Most tablets: a node keeps a log for each.
const MOST_TABLETS: u64 = 1 << 20;

pub(super) fn check(rules: &mut Rules, job: &SqlJob) {
    let nodes = job.cluster.nodes;
    rules.must(
        (1..=MOST_NODES).contains(&nodes),
        "cluster.nodes",
        nodes,
        &format!("a simulated cluster has 1 to {MOST_NODES} nodes"),
        "choose another number",
    );
    let replicas = job.database.replication_factor;
    let most = nodes.min(MOST_REPLICAS as u32);
    rules.must(
        (1..=most).contains(&replicas),
        "database.replication_factor",
        replicas,
        &format!("a tablet has at most {MOST_REPLICAS} copies, each on another of {nodes} nodes"),
        "add nodes or lower it",
    );
    let positive = [
        ("cluster.cores", u64::from(job.cluster.cores)),
        ("client.cores", u64::from(job.client.cores)),
        ("client.nodes", u64::from(job.client.nodes)),
        ("database.block_bytes", u64::from(job.database.block_bytes)),
        (
            "database.wal_sync_period_ns",
            job.database.wal_sync_period_ns,
        ),
        ("tables", job.tables.len() as u64),
        (
            "workload.transactions",
            job.workload.transactions.len() as u64,
        ),
        (
            "workload.connections",
            u64::from(job.workload.connections.unwrap_or(1)),
        ),
    ];
    for (place, value) in positive {
        rules.must(
            value > 0,
            place,
            value,
            "it is at least one",
            "give a positive number",
        );
    }
    check_load(rules, job);
    check_tables(rules, job);
    for transaction in &job.workload.transactions {
        check_transaction(rules, job, transaction);
    }
}

fn check_load(rules: &mut Rules, job: &SqlJob) {
    let sessions = job.workload.sessions;
    rules.must(
        (1..=MOST_UNDER_WAY).contains(&sessions),
        "workload.sessions",
        sessions,
        &format!("1 to {MOST_UNDER_WAY} sessions"),
        "choose another number",
    );
    rules.must(
        job.workload.duration_ns > job.workload.warm_up_ns,
        "workload.duration_ns",
        job.workload.duration_ns,
        "a run ends some time after its warm-up",
        "give a longer one",
    );
    check_volume(
        rules,
        "cluster.data_volume",
        &job.cluster.data_volume,
        &job.cluster.host,
    );
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
    let volumes = &job.cluster.host.volumes;
    let volume = volumes.iter().find(|v| v.name == job.cluster.data_volume);
    let size = volume.map_or(0, |volume| volume.size_bytes);
    rules.must(
        each <= u128::from(size),
        "tables",
        format!("{} GB on each node", each / 1_000_000_000),
        &format!("its data volume has only {} GB", size / 1_000_000_000),
        "choose fewer rows, more nodes or larger disks",
    );
}

fn check_transaction(rules: &mut Rules, job: &SqlJob, transaction: &Transaction) {
    let place = format!("workload.transactions.{}", transaction.name);
    let statements: u64 = transaction
        .statements
        .iter()
        .map(|s| u64::from(s.times))
        .sum();
    rules.must(
        (1..=u64::from(u16::MAX)).contains(&statements),
        &place,
        format!("{statements} statements"),
        "a transaction has 1 to 65535 statements",
        "give some",
    );
    let accesses = transaction.statements.iter().flat_map(|s| &s.accesses);
    for access in accesses {
        rules.must(
            job.tables.iter().any(|table| table.name == access.table),
            &place,
            &access.table,
            "there is no such table",
            "name one of the tables",
        );
        rules.must(
            matches!(
                access.draw,
                RowDraw::Uniform | RowDraw::Nurand { .. } | RowDraw::Run | RowDraw::Recent
            ) && !matches!(access.kind, AccessKind::Lock | AccessKind::Delete),
            &place,
            format!("{:?} of {:?}", access.kind, access.draw),
            "preferred rows, locks and deletes are simulated for PostgreSQL alone",
            "use update, and uniform",
        );
    }
}
