//! The rules of a PostgreSQL job.

use disklab_units::sizes::{self, Size};

use super::{MOST_NODES, Rules, check_stop, check_timetable, check_under_way, check_volume};
use crate::database::postgresql::{PAGE_BYTES, layouts};
use crate::job::faults::{What, in_order};
use crate::job::{PostgresqlJob, Relation, RowSize, SqlFaults, Transaction};

/// Most pages of all relations, two TiB: four bytes are kept for each.
const MOST_PAGES: u64 = 1 << 28;

/// Largest row: it fills a page. Longer ones are stored beside the table.
const MOST_ROW_BYTES: u32 = 8168;

pub(super) fn check(rules: &mut Rules, job: &PostgresqlJob) {
    let nodes = job.cluster.nodes;
    rules.must(
        (1..=MOST_NODES).contains(&nodes),
        "cluster.nodes",
        nodes,
        &format!("a simulated cluster has 1 to {MOST_NODES} nodes"),
        "choose another number",
    );
    rules.must(
        job.database.synchronous_standbys < nodes.max(1),
        "database.synchronous_standbys",
        job.database.synchronous_standbys,
        &format!("the primary is one of {nodes} servers, the others are its standbys"),
        "add nodes or lower it",
    );
    let positive = [
        ("cluster.cores", u64::from(job.cluster.cores)),
        ("client.cores", u64::from(job.client.cores)),
        ("client.nodes", u64::from(job.client.nodes)),
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
    check_under_way(rules, &job.workload.load);
    check_stop(rules, job.workload.stop, job.workload.warm_up_ns);
    let host = &job.cluster.host;
    check_volume(rules, "cluster.data_volume", &job.cluster.data_volume, host);
    if let Some(log) = &job.cluster.commitlog_volume {
        check_volume(rules, "cluster.commitlog_volume", log, host);
    }
    for table in &job.tables {
        check_table(rules, table);
    }
    if rules.hold() {
        check_room(rules, job);
    }
    for transaction in &job.workload.transactions {
        check_transaction(rules, job, transaction);
    }
    check_faults(rules, job);
}

fn check_faults(rules: &mut Rules, job: &PostgresqlJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    check_timetable(rules, job.workload.stop, faults.interval_ns, &faults.events);
    let nodes = job.cluster.nodes;
    let mut primary = 0;
    for event in &in_order(&faults.events) {
        rules.must(
            event.node != primary || !matches!(event.what, What::Replace | What::Promote),
            "faults.events.node",
            event.node,
            "it is the primary: standbys are copies of it, and one of them is promoted",
            "choose another server, or promote one before",
        );
        if event.what == What::Promote {
            primary = event.node;
        }
        rules.must(
            event.node < nodes,
            "faults.events.node",
            event.node,
            &format!("the servers are 0 to {}", nodes.max(1) - 1),
            "choose one of them",
        );
        rules.must(
            matches!(
                event.what,
                What::Kill
                    | What::Lose
                    | What::Start
                    | What::Restart
                    | What::Replace
                    | What::Promote
                    | What::Slow
                    | What::Stall
                    | What::Mend
                    | What::Credits
            ),
            "faults.events.what",
            format!("{:?}", event.what),
            "servers of PostgreSQL are killed, lost, started, restarted, replaced and promoted, and their disks break",
            "use another event",
        );
    }
    check_clients(rules, faults, job.workload.connections);
}

/// The rules of clients that lose their server.
pub(super) fn check_clients(rules: &mut Rules, faults: &SqlFaults, connections: Option<u32>) {
    rules.must(
        connections.is_none(),
        "workload.connections",
        connections.unwrap_or(0),
        "under a timetable each session has a connection of its own",
        "leave it out",
    );
    let positive = [
        ("faults.timeout_ns", faults.timeout_ns),
        ("faults.first_retry_ns", faults.first_retry_ns),
        ("faults.most_retry_ns", faults.most_retry_ns),
        ("faults.follow_ns", faults.follow_ns),
        ("faults.replay_depth", u64::from(faults.replay_depth)),
    ];
    for (place, value) in positive {
        let rule = "it is at least one";
        rules.must(value > 0, place, value, rule, "give a positive number");
    }
}

fn check_table(rules: &mut Rules, table: &Relation) {
    let place = format!("tables.{}", table.name);
    check_sizes(rules, &place, table);
    rules.must(
        table.rows > 0 && table.entry_bytes > 0,
        &place,
        format!(
            "{} rows, entries of {} bytes",
            table.rows, table.entry_bytes
        ),
        "a relation has rows, and an index with an entry for each",
        "give positive numbers",
    );
    rules.must(
        table.row_bytes <= MOST_ROW_BYTES,
        &place,
        table.row_bytes,
        &format!("a row takes at most {MOST_ROW_BYTES} bytes of its page; longer ones (TOAST) are not simulated"),
        "use shorter rows",
    );
}

/// Sizes of a table's rows are a distribution, each fits a page, and their mean is the table's.
fn check_sizes(rules: &mut Rules, place: &str, table: &Relation) {
    let Some(listed) = &table.sizes else {
        return;
    };
    let as_size = |size: &RowSize| Size {
        column_bytes: size.row_bytes,
        share_ppm: size.share_ppm,
    };
    let as_sizes: Vec<Size> = listed.iter().map(as_size).collect();
    let rule = sizes::problem(&as_sizes);
    let most = listed.iter().map(|size| size.row_bytes).max().unwrap_or(0);
    rules.must(
        rule.is_none() && most <= MOST_ROW_BYTES && table.row_bytes > 0,
        &format!("{place}.sizes"),
        format!(
            "{} sizes of at most {most} bytes, {} on average",
            listed.len(),
            table.row_bytes
        ),
        rule.unwrap_or("rows have a mean size, and each takes at most 8168 bytes of its page"),
        "give bytes and a share of each, and their mean as row_bytes",
    );
}

fn check_room(rules: &mut Rules, job: &PostgresqlJob) {
    let (_, pages) = layouts(&job.tables);
    let volumes = &job.cluster.host.volumes;
    let volume = volumes.iter().find(|v| v.name == job.cluster.data_volume);
    let size = volume.map_or(0, |volume| volume.size_bytes);
    rules.must(
        pages < MOST_PAGES && pages * PAGE_BYTES < size,
        "tables",
        format!("{} GB", pages * PAGE_BYTES / 1_000_000_000),
        &format!(
            "the data volume has only {} GB, and at most {} GB are simulated",
            size / 1_000_000_000,
            MOST_PAGES * PAGE_BYTES / 1_000_000_000
        ),
        "choose fewer rows or larger disks",
    );
}

fn check_transaction(rules: &mut Rules, job: &PostgresqlJob, transaction: &Transaction) {
    let place = format!("workload.transactions.{}", transaction.name);
    let times = transaction.statements.iter().map(|s| u64::from(s.times));
    let statements: u64 = times.sum();
    rules.must(
        (1..=u64::from(u16::MAX)).contains(&statements),
        &place,
        format!("{statements} statements"),
        "a transaction has 1 to 65535 statements",
        "give some",
    );
    for access in transaction.statements.iter().flat_map(|s| &s.accesses) {
        rules.must(
            job.tables.iter().any(|table| table.name == access.table),
            &place,
            &access.table,
            "there is no such table",
            "name one of the tables",
        );
    }
}
