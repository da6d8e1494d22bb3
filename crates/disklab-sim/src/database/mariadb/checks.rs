//! What a job of MariaDB must keep, and how a smaller one is made of it.

use disklab_disk::Rules;

use super::job::{MariadbJob, Replication};
use super::{Laying, PAGE_BYTES, trees};
use crate::check::{check_outage, check_plain_servers, check_room, check_volume, positive};
use crate::job::Fidelity;
use crate::job::faults::What;
use crate::simulate::shrink_tables;

/// Largest row. **Source:** InnoDB keeps two in a page; what is longer lies beside the tree.
const MOST_ROW_BYTES: u32 = 8126;

/// Checks everything that the disk model does not check itself.
pub fn check(rules: &mut Rules, job: &MariadbJob) {
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
    let all = [
        ("database.log_file_bytes", job.database.log_file_bytes),
        ("database.buffer_pool_bytes", job.database.buffer_pool_bytes),
    ];
    positive(rules, &all);
    check_plain_servers(rules, job);
    rules.must(
        (1..=128).contains(&job.database.doublewrite_pages),
        "database.doublewrite_pages",
        job.database.doublewrite_pages,
        "the doublewrite buffer has 1 to 128 pages",
        "choose another number",
    );
    rules.must(
        (1..=64).contains(&job.database.doublewrite_batches),
        "database.doublewrite_batches",
        job.database.doublewrite_batches,
        "the doublewrite buffer has 1 to 64 batches",
        "choose another number",
    );
    rules.must(
        (5..=95).contains(&job.database.old_blocks_pct),
        "database.old_blocks_pct",
        job.database.old_blocks_pct,
        "it is 5 to 95",
        "choose another number",
    );
    if let Some(name) = &job.database.binlog_volume {
        check_volume(rules, "database.binlog_volume", name, &cluster.host);
    }
    check_tables(rules, job);
    check_faults(rules, job);
}

fn check_faults(rules: &mut Rules, job: &MariadbJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    check_outage(rules, faults, job);
    let is_galera = job.database.replication == Replication::Galera;
    for event in &faults.events {
        let follows = match event.what {
            What::Kill | What::Lose => event.node > 0 || !is_galera,
            What::Start | What::Restart => event.node == 0 && !is_galera,
            what => what.is_of_a_disk(),
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
    check_room(rules, &job.cluster, pages * PAGE_BYTES);
}

/// A smaller system with the same ratios: pool, redo log and the time of the pool's middle follow.
pub fn scaled(job: &MariadbJob, fidelity: Fidelity) -> (MariadbJob, u64) {
    job.shrunk(fidelity, |job, share| {
        let settings = &mut job.database;
        for size in [
            &mut settings.buffer_pool_bytes,
            &mut settings.log_file_bytes,
            &mut settings.old_blocks_time_ns,
        ] {
            *size = (*size / share).max(1);
        }
        settings.lru_scan_depth = (settings.lru_scan_depth / share as u32).max(1);
        shrink_tables(&mut job.tables, share);
    })
}
