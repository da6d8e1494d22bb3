//! What a job of PostgreSQL must keep, and how a smaller one is made of it.

use disklab_disk::Rules;
use disklab_units::sizes::{self, Size};

use super::job::PostgresqlJob;
use super::{PAGE_BYTES, layouts};
use crate::check::{check_outage, check_plain_servers, check_room};
use crate::job::faults::{What, in_order};
use crate::job::{Fidelity, Relation, RowSize};
use crate::simulate::shrink_tables;

/// Largest row: it fills a page. Longer ones are stored beside the table.
const MOST_ROW_BYTES: u32 = 8168;

/// Checks everything that the disk model does not check itself.
pub fn check(rules: &mut Rules, job: &PostgresqlJob) {
    let nodes = job.cluster.nodes;
    rules.must(
        job.database.synchronous_standbys < nodes.max(1),
        "database.synchronous_standbys",
        job.database.synchronous_standbys,
        &format!("the primary is one of {nodes} servers, the others are its standbys"),
        "add nodes or lower it",
    );
    check_plain_servers(rules, job);
    for table in &job.tables {
        check_table(rules, table);
    }
    if rules.hold() {
        let (_, pages) = layouts(&job.tables);
        check_room(rules, &job.cluster, pages * PAGE_BYTES);
    }
    check_faults(rules, job);
}

fn check_faults(rules: &mut Rules, job: &PostgresqlJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    check_outage(rules, faults, job);
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

/// A smaller system with the same ratios: buffers, the log between checkpoints and their time follow.
pub fn scaled(job: &PostgresqlJob, fidelity: Fidelity) -> (PostgresqlJob, u64) {
    // What is replayed takes the time that it takes: nothing of a timetable shrinks.
    let fidelity = job.faults.as_ref().map_or(fidelity, |_| Fidelity::Full);
    job.shrunk(fidelity, |job, share| {
        let settings = &mut job.database;
        for size in [
            &mut job.cluster.page_cache_bytes,
            &mut settings.shared_buffers_bytes,
            &mut settings.max_wal_bytes,
            &mut settings.checkpoint_timeout_ns,
        ] {
            *size = (*size / share).max(1);
        }
        shrink_tables(&mut job.tables, share);
    })
}
