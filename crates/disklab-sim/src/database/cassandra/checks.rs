//! What a job of Cassandra must keep.

use disklab_disk::Rules;
use disklab_units::sizes;

use super::job::{DatabaseJob, Follower};
use crate::check::{
    check_cluster, check_replicas, check_stop, check_timetable, check_under_way, check_volume,
    positive,
};
use crate::cluster::{MOST_ROWS, Ring, changes_of};
use crate::database::build::{layout, stored_row_bytes};
use crate::filelayout::PAGE_BYTES;
use crate::job::faults::{Faults, Peer, What};

/// Tables of a node: their places are looked for one after the other.
const MOST_TABLES: usize = 64;
/// Shares are in millionths.
const MILLION: u64 = 1_000_000;
/// Most rows of a scan, as the load generator has it.
const MOST_SCAN_ROWS: u32 = 10_000;

/// Cells that follow each other, and whether their rows have room.
pub fn check_cells(rules: &mut Rules, first: &DatabaseJob, then: &[Follower], seed: u64) {
    for follower in then {
        check(rules, &follower.database);
        check_follows(rules, first, &follower.database);
    }
    check_from_warm(rules, first, then);
    if rules.hold() {
        check_room(rules, first, seed);
    }
}

/// Cells that follow each other have one cluster and one set of data.
fn check_follows(rules: &mut Rules, first: &DatabaseJob, next: &DatabaseJob) {
    let parts = |job: &DatabaseJob| {
        let (cluster, data) = (&job.cluster, &job.dataset);
        let cache = cluster
            .host
            .cache
            .as_ref()
            .map(|cache| cache.capacity_bytes);
        [
            u64::from(cluster.nodes),
            cluster.page_cache_bytes,
            cache.unwrap_or(0),
            cluster.host.volumes.len() as u64,
            u64::from(job.database.replication_factor),
            u64::from(job.database.chunk_bytes.unwrap_or(0)),
            data.rows,
            u64::from(data.columns),
            u64::from(data.column_bytes),
        ]
    };
    rules.must(
        parts(first) == parts(next),
        "then",
        format!("{:?} after {:?}", parts(next), parts(first)),
        "cells that follow each other have the same nodes, memory, volumes, copies and rows",
        "give them as jobs of their own",
    );
}

/// Cells that go on from one warm-up differ in disks and nodes that break, and in when they end.
fn check_from_warm(rules: &mut Rules, first: &DatabaseJob, then: &[Follower]) {
    let like = |job: &DatabaseJob| {
        let mut job = job.clone();
        job.workload.stop.duration_ns = None;
        if let Some(faults) = &mut job.faults {
            faults.events.clear();
        }
        format!("{job:?}")
    };
    let count = then.iter().filter(|next| next.from_warm).count();
    if count == 0 {
        return;
    }
    let jobs = std::iter::once(first).chain(then.iter().map(|next| &next.database));
    let mut events = jobs
        .clone()
        .flat_map(|job| &job.faults)
        .flat_map(|f| &f.events);
    rules.must(
        count == then.len()
            && first.faults.is_some()
            && jobs.clone().all(|job| like(job) == like(first))
            && !events.any(|event| event.what.is_of_a_link() || event.what.needs_host()),
        "then.from_warm",
        count,
        "cells that go on from one warm-up are alike but for disks and nodes that break, and their end",
        "give them as jobs of their own",
    );
}

/// Checks everything that the disk model does not check itself.
pub fn check(rules: &mut Rules, job: &DatabaseJob) {
    let nodes = job.cluster.nodes;
    check_cluster(rules, &job.cluster, &job.client);
    check_sizes(rules, job);
    check_tables(rules, &job.dataset.tables_ppm);
    check_replicas(rules, "row", job.database.replication_factor, nodes);
    rules.must(
        (1..=nodes.max(1)).contains(&job.cluster.zones),
        "cluster.zones",
        job.cluster.zones,
        &format!("{nodes} nodes are in 1 to {nodes} zones"),
        "choose fewer zones or add nodes",
    );
    rules.must(
        job.database.speculative_percentile < 100,
        "database.speculative_percentile",
        job.database.speculative_percentile,
        "a percentile is below 100",
        "use 0 for NONE",
    );
    check_nodes(rules, job);
    check_faults(rules, job);
    check_load(rules, job);
    let (database, data) = (&job.database, &job.dataset);
    let all = [
        ("dataset.rows", data.rows),
        ("dataset.columns", u64::from(data.columns)),
        (
            "database.concurrent_reads",
            u64::from(database.concurrent_reads),
        ),
        (
            "database.concurrent_writes",
            u64::from(database.concurrent_writes),
        ),
    ];
    positive(rules, &all);
}

fn check_tables(rules: &mut Rules, tables: &[u32]) {
    let whole: u64 = tables.iter().map(|&share| u64::from(share)).sum();
    rules.must(
        tables.is_empty() || tables.len() <= MOST_TABLES && whole == MILLION,
        "dataset.tables_ppm",
        format!("{tables:?}"),
        &format!("up to {MOST_TABLES} tables have all rows, which are a million millionths"),
        "give shares that come to 1000000",
    );
}

fn check_collector(rules: &mut Rules, job: &DatabaseJob) {
    let Some(collector) = job.cluster.collector else {
        return;
    };
    rules.must(
        collector.young_bytes > 0 && collector.threads > 0,
        "cluster.collector",
        format!("{collector:?}"),
        "a collector has a young generation and threads",
        "give positive numbers, or leave it out",
    );
}

fn check_faults(rules: &mut Rules, job: &DatabaseJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    let timetable = (faults.interval_ns, &faults.events[..]);
    check_timetable(rules, job.workload.stop, timetable, &job.cluster.host);
    check_events(rules, job, faults);
    check_hosts(rules, job, faults);
}

/// The rules of what happens to which node.
fn check_events(rules: &mut Rules, job: &DatabaseJob, faults: &Faults) {
    let added = faults.events.iter().filter(|one| one.what == What::Add);
    let all = job.cluster.nodes + added.clone().count() as u32;
    for event in &faults.events {
        rules.must(
            event.node < all && (event.what != What::Add || event.node >= job.cluster.nodes),
            "faults.events.node",
            event.node,
            &format!(
                "the cluster has nodes 0 to {}, and what is added comes behind them",
                job.cluster.nodes.max(1) - 1
            ),
            "choose one of them",
        );
        rules.must(
            event.what != What::Promote,
            "faults.events.what",
            format!("{:?}", event.what),
            "nodes of Cassandra are alike: none is promoted",
            "use another event",
        );
        let hosts = faults.hosts.len();
        rules.must(
            event.host.is_some_and(|host| (host as usize) < hosts) == event.what.needs_host()
                && event.host.is_none_or(|_| event.what.needs_host()),
            "faults.events.host",
            format!("{:?}", event.host),
            &format!("migrate, move and add name one of {hosts} hosts, and nothing else does"),
            "give its number, from zero",
        );
        let peer = match event.peer {
            Some(Peer::Node(peer)) => Some(peer),
            _ => None,
        };
        rules.must(
            peer.is_none_or(|peer| peer < all && peer != event.node),
            "faults.events.peer",
            format!("{peer:?}"),
            "a way is between two nodes of the cluster",
            "give the number of another node",
        );
    }
}

/// The rules of what nodes move to.
fn check_hosts(rules: &mut Rules, job: &DatabaseJob, faults: &Faults) {
    let moves = faults.events.iter().filter(|event| event.host.is_some());
    rules.must(
        job.cluster.nodes as usize + moves.clone().count() <= usize::from(u8::MAX),
        "faults.events",
        moves.count(),
        "nodes, and hosts that some move to, are 255 at most",
        "leave some out",
    );
    for other in &faults.hosts {
        let cluster = &job.cluster;
        let has_same = (&other.data_volume, &other.commitlog_volume)
            == (&cluster.data_volume, &cluster.commitlog_volume);
        rules.must(
            has_same,
            "faults.hosts.data_volume",
            &other.data_volume,
            "data and commit log are on the same volumes as in the cluster",
            &format!("name the data volume {}", cluster.data_volume),
        );
        for name in std::iter::once(&other.data_volume).chain(&other.commitlog_volume) {
            check_volume(rules, "faults.hosts.host.volumes", name, &other.host);
        }
        rules.must(
            other.cores > 0,
            "faults.hosts.cores",
            other.cores,
            "it is at least one",
            "give a positive number",
        );
    }
}

fn check_nodes(rules: &mut Rules, job: &DatabaseJob) {
    check_collector(rules, job);
    let Some(shares) = &job.cluster.ownership_ppm else {
        return;
    };
    rules.must(
        shares.len() == job.cluster.nodes as usize && shares.iter().all(|&share| share > 0),
        "cluster.ownership_ppm",
        format!("{shares:?}"),
        "every node has a positive share",
        "give one number for each node, or leave it out",
    );
}

fn check_load(rules: &mut Rules, job: &DatabaseJob) {
    check_under_way(rules, &job.workload.load);
    rules.must(
        job.workload.read_ppm <= 1_000_000,
        "workload.read_ppm",
        job.workload.read_ppm,
        "a share is at most 1000000 parts per million",
        "use 1000000 for reads only",
    );
    if let Some(others) = &job.workload.others {
        let all = job.workload.read_ppm.saturating_add(others.sum());
        rules.must(
            all <= 1_000_000,
            "workload.others",
            all,
            "all shares together are at most 1000000 parts per million",
            "make them smaller; what is left are writes",
        );
        rules.must(
            others.scan_ppm == 0 || (1..=MOST_SCAN_ROWS).contains(&others.scan_rows),
            "workload.others.scan_rows",
            others.scan_rows,
            "a scan reads 1 to 10000 rows",
            "use 100, as YCSB does",
        );
    }
    check_stop(rules, job.workload.stop, job.workload.warm_up_ns);
}

/// Sizes of rows are a distribution.
fn check_sizes(rules: &mut Rules, job: &DatabaseJob) {
    let rule = job.dataset.sizes.as_deref().and_then(sizes::problem);
    rules.must(
        rule.is_none(),
        "dataset.sizes",
        job.dataset.sizes.as_ref().map_or(0, Vec::len),
        rule.unwrap_or_default(),
        "give bytes and a share of each",
    );
}

/// The fullest node's table fits its data volume.
fn check_room(rules: &mut Rules, job: &DatabaseJob, seed: u64) {
    rules.must(
        job.dataset.rows <= MOST_ROWS,
        "dataset.rows",
        job.dataset.rows,
        &format!("a simulated table has at most {MOST_ROWS} rows"),
        "choose fewer rows",
    );
    if job.dataset.rows > MOST_ROWS {
        return;
    }
    let replicas = job.database.replication_factor as usize;
    let mut ring = Ring::new(&job.cluster, replicas, false, job.dataset.rows, seed);
    if let Some(faults) = &job.faults {
        ring.plan(&changes_of(faults), job.cluster.nodes as usize);
    }
    let stored = job.dataset.stored_row_bytes.map_or_else(
        || stored_row_bytes(job.dataset.columns, job.dataset.column_bytes),
        u64::from,
    );
    let nodes = 0..ring.seats();
    let rows = nodes
        .map(|node| ring.most_rows_of(node, job.dataset.rows))
        .max();
    let table = layout(job, rows.unwrap_or(0), stored).all_pages() * PAGE_BYTES;
    let others = job.faults.iter().flat_map(|faults| &faults.hosts);
    let sizes = std::iter::once(&job.cluster).chain(others).map(|cluster| {
        let mut volumes = cluster.host.volumes.iter();
        let volume = volumes.find(|v| v.name == cluster.data_volume);
        volume.map_or(0, |volume| volume.size_bytes)
    });
    let size = sizes.min().unwrap_or(0);
    rules.must(
        table <= size,
        "dataset.rows",
        job.dataset.rows,
        &format!(
            "the fullest node has {} GB of rows and index, its data volume only {} GB",
            table / 1_000_000_000,
            size / 1_000_000_000
        ),
        "choose fewer rows, more nodes or larger disks",
    );
}
