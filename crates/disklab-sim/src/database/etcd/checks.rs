//! What a job of etcd must keep, and how a smaller one is made of it.

use disklab_disk::Rules;

use super::EtcdJob;
use super::backend::Backend;
use crate::check::{check_members, check_outage, check_plain_servers, positive};
use crate::job::Fidelity;

/// Most members. **Source:** etcd's FAQ: no cluster should have more than seven.
const MOST_MEMBERS: u32 = 7;

/// Checks everything that the disk model does not check itself.
pub fn check(rules: &mut Rules, job: &EtcdJob) {
    let (cluster, settings) = (&job.cluster, &job.database);
    rules.must(
        cluster.nodes % 2 == 1 && cluster.nodes <= MOST_MEMBERS,
        "cluster.nodes",
        cluster.nodes,
        &format!("a simulated etcd has an odd number of members, at most {MOST_MEMBERS}"),
        "use 1, 3 or 5",
    );
    let all = [
        ("database.heartbeat_ns", settings.heartbeat_ns),
        ("database.election_ns", settings.election_ns),
        ("database.batch_interval_ns", settings.batch_interval_ns),
        ("database.batch_puts", settings.batch_puts),
        ("database.snapshot_entries", settings.snapshot_entries),
    ];
    positive(rules, &all);
    check_plain_servers(rules, job);
    if let Some(faults) = &job.faults {
        check_outage(rules, faults, job);
        check_members(rules, &faults.events, cluster.nodes);
    }
    check_keys(rules, job);
}

/// One table, whose keys fit the volume; a statement takes one of them.
fn check_keys(rules: &mut Rules, job: &EtcdJob) {
    let [table] = &job.tables[..] else {
        let (rule, way_out) = ("etcd has one set of keys", "give one table");
        return rules.must(false, "tables", job.tables.len(), rule, way_out);
    };
    let size = job.cluster.data_volume_bytes();
    let bytes = Backend::leaf_bytes(u64::from(table.row_bytes), table.rows);
    rules.must(
        table.rows > 0 && table.sizes.is_none() && bytes < size,
        "tables",
        format!("{} keys of {} bytes", table.rows, table.row_bytes),
        &format!("there are keys, all of one size, and the data volume has {size} bytes"),
        "choose fewer keys or a larger disk",
    );
    let statements = job.workload.transactions.iter().flat_map(|t| &t.statements);
    for statement in statements {
        rules.must(
            statement.accesses.len() == 1 && !statement.inside,
            "workload.transactions",
            statement.accesses.len(),
            "a request gets or puts one key",
            "give each key a statement of its own",
        );
    }
}

/// A shorter run of the same members, and by how much it is shorter: nothing of etcd hangs on how many keys it has.
pub fn scaled(job: &EtcdJob, fidelity: Fidelity) -> (EtcdJob, u64) {
    let fidelity = job.faults.as_ref().map_or(fidelity, |_| Fidelity::Full);
    job.shrunk(fidelity, |_, _| ())
}
