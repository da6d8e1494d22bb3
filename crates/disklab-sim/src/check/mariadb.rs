//! The rules of a MariaDB job.

use super::postgresql::check_clients;
use super::{Rules, check_stop, check_timetable, check_under_way, check_volume};
use crate::database::mariadb::{Laying, PAGE_BYTES, trees};
use crate::job::faults::What;
use crate::job::{MariadbJob, Replication};

/// Most pages of all trees, two TiB: some forty bytes are kept for each.
const MOST_PAGES: u64 = 1 << 27;

/// Largest row. **Source:** InnoDB keeps two in a page; what is longer lies beside the tree.
const MOST_ROW_BYTES: u32 = 8126;

pub(super) fn check(rules: &mut Rules, job: &MariadbJob) {
    let cluster = &job.cluster;
    rules.must(
        match job.database.replication {
            Replication::Alone => cluster.nodes == 1,
            Replication::SemiSync => cluster.nodes == 2,
            Replication::Galera => cluster.nodes >= 3,
        },
        "cluster.nodes",
        cluster.nodes,
        "MariaDB is one server, two with a replica, three or more with Galera",
        "correct nodes or database.replication",
    );
    let positive = [
        ("cluster.cores", u64::from(cluster.cores)),
        ("client.cores", u64::from(job.client.cores)),
        ("client.nodes", u64::from(job.client.nodes)),
        ("tables", job.tables.len() as u64),
        ("database.log_file_bytes", job.database.log_file_bytes),
        ("database.buffer_pool_bytes", job.database.buffer_pool_bytes),
        (
            "workload.transactions",
            job.workload.transactions.len() as u64,
        ),
    ];
    for (place, value) in positive {
        let rule = "it is at least one";
        rules.must(value > 0, place, value, rule, "give a positive number");
    }
    rules.must(
        (1..=128).contains(&job.database.doublewrite_pages),
        "database.doublewrite_pages",
        job.database.doublewrite_pages,
        "the doublewrite buffer has 1 to 128 pages",
        "choose another number",
    );
    rules.must(
        (5..=95).contains(&job.database.old_blocks_pct),
        "database.old_blocks_pct",
        job.database.old_blocks_pct,
        "it is 5 to 95",
        "choose another number",
    );
    check_under_way(rules, &job.workload.load);
    check_stop(rules, job.workload.stop, job.workload.warm_up_ns);
    check_volume(
        rules,
        "cluster.data_volume",
        &cluster.data_volume,
        &cluster.host,
    );
    let logs = [
        ("cluster.commitlog_volume", &cluster.commitlog_volume),
        ("database.binlog_volume", &job.database.binlog_volume),
    ];
    for (place, name) in logs {
        if let Some(name) = name {
            check_volume(rules, place, name, &cluster.host);
        }
    }
    check_tables(rules, job);
    check_transactions(rules, job);
    check_faults(rules, job);
}

fn check_faults(rules: &mut Rules, job: &MariadbJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    check_timetable(rules, job.workload.stop, faults.interval_ns, &faults.events);
    check_clients(rules, faults, job.workload.connections);
    let is_galera = job.database.replication == Replication::Galera;
    for event in &faults.events {
        let of_disks = matches!(
            event.what,
            What::Slow | What::Stall | What::Mend | What::Credits
        );
        let follows = match event.what {
            What::Kill | What::Lose => event.node > 0 || !is_galera,
            What::Start | What::Restart => event.node == 0 && !is_galera,
            _ => of_disks,
        };
        rules.must(
            follows && event.node < job.cluster.nodes,
            "faults.events",
            format!("{:?} of {}", event.what, event.node),
            "disks of MariaDB's servers break; one is killed or lost, but not Galera's first; only a primary comes back",
            "use another event",
        );
    }
}

fn check_transactions(rules: &mut Rules, job: &MariadbJob) {
    for transaction in &job.workload.transactions {
        let place = format!("workload.transactions.{}", transaction.name);
        let statements = transaction.statements.len();
        rules.must(
            statements > 0,
            &place,
            statements,
            "a transaction has statements",
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
}

fn check_tables(rules: &mut Rules, job: &MariadbJob) {
    for table in &job.tables {
        rules.must(
            table.rows > 0 && table.row_bytes <= MOST_ROW_BYTES && table.sizes.is_none(),
            &format!("tables.{}", table.name),
            format!("{} rows of {} bytes", table.rows, table.row_bytes),
            &format!("a tree has rows, all of one size of at most {MOST_ROW_BYTES} bytes"),
            "use shorter rows",
        );
    }
    let (_, _, pages) = trees(&job.tables, Laying::default());
    let volumes = &job.cluster.host.volumes;
    let volume = volumes.iter().find(|v| v.name == job.cluster.data_volume);
    let size = volume.map_or(0, |volume| volume.size_bytes);
    rules.must(
        pages < MOST_PAGES && pages * PAGE_BYTES < size,
        "tables",
        format!("{} GB", pages * PAGE_BYTES / 1_000_000_000),
        &format!("the data volume has only {} GB", size / 1_000_000_000),
        "choose fewer rows or larger disks",
    );
}
