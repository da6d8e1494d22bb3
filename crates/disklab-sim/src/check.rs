//! The rules of a job: every broken one is named at once.

use disklab_disk::profile::HostProfile;
use disklab_disk::{Refusal, Rules};
use disklab_units::sizes;

use crate::cluster::{MOST_REPLICAS, MOST_ROWS, Ring};
use crate::database::build::{layout, stored_row_bytes};
use crate::database::etcd;
use crate::filelayout::PAGE_BYTES;
use crate::job::faults::{Event, Faults, Peer, What};
use crate::job::{DatabaseJob, DeviceJob, FileJob, Fio, Job, Kind, Load, Mechanism, Stop, Trace};

mod mariadb;
mod postgresql;
mod sql;

/// Most nodes: their numbers fit a byte, with room.
const MOST_NODES: u32 = 64;
/// Most operations under way at a time.
const MOST_UNDER_WAY: u32 = 1 << 20;
/// Tables of a node: their places are looked for one after the other.
const MOST_TABLES: usize = 64;
/// Shares are in millionths.
const MILLION: u64 = 1_000_000;
/// Most rows of a scan, as the load generator has it.
const MOST_SCAN_ROWS: u32 = 10_000;
/// Most I/Os of a trace: their numbers fit an event's code, and a job of them some ten megabytes.
const MOST_TRACED: usize = 1 << 24;
/// Most I/Os that are told one by one: more than an eye follows.
const MOST_JOURNAL: u32 = 1_000;

/// Checks everything that the disk model does not check itself.
pub fn check(job: &Job) -> Result<(), Refusal> {
    let mut rules = Rules::default();
    match &job.kind {
        Kind::Database(database) => {
            check_database(&mut rules, database, job.seed);
            for follower in &job.then {
                check_database(&mut rules, &follower.database, job.seed);
                check_follows(&mut rules, database, &follower.database);
            }
        }
        Kind::Sql(database) => sql::check(&mut rules, database),
        Kind::Postgresql(database) => postgresql::check(&mut rules, database),
        Kind::Mariadb(database) => mariadb::check(&mut rules, database),
        Kind::Etcd(database) => etcd::check(&mut rules, database),
        Kind::Device(device) => check_device(&mut rules, device),
        Kind::File(file) => check_file(&mut rules, file),
    }
    rules.must(
        job.then.is_empty() || matches!(job.kind, Kind::Database(_)),
        "then",
        job.then.len(),
        "only cells of a database follow each other",
        "leave it out",
    );
    let wanted = job.journal.map_or(0, |journal| journal.most);
    rules.must(
        wanted <= MOST_JOURNAL && (wanted == 0 || !matches!(job.kind, Kind::File(_))),
        "journal.most",
        wanted,
        &format!("up to {MOST_JOURNAL} I/Os of disks are told one by one; a file has no disk"),
        "ask for fewer, or leave it out",
    );
    rules.verdict()
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

fn check_database(rules: &mut Rules, job: &DatabaseJob, seed: u64) {
    let nodes = job.cluster.nodes;
    rules.must(
        (1..=MOST_NODES).contains(&nodes),
        "cluster.nodes",
        nodes,
        &format!("a simulated cluster has 1 to {MOST_NODES} nodes"),
        "choose another number",
    );
    check_sizes(rules, job);
    check_tables(rules, &job.dataset.tables_ppm);
    let replicas = job.database.replication_factor;
    let most = nodes.min(MOST_REPLICAS as u32);
    rules.must(
        (1..=most).contains(&replicas),
        "database.replication_factor",
        replicas,
        &format!("a row has at most {MOST_REPLICAS} copies, each on another of {nodes} nodes"),
        "add nodes or lower it",
    );
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
    let positive = [
        ("cluster.cores", u64::from(job.cluster.cores)),
        ("client.cores", u64::from(job.client.cores)),
        ("client.nodes", u64::from(job.client.nodes)),
        ("dataset.rows", job.dataset.rows),
        ("dataset.columns", u64::from(job.dataset.columns)),
        (
            "database.concurrent_reads",
            u64::from(job.database.concurrent_reads),
        ),
        (
            "database.concurrent_writes",
            u64::from(job.database.concurrent_writes),
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
    let host = &job.cluster.host;
    check_volume(rules, "cluster.data_volume", &job.cluster.data_volume, host);
    if let Some(commitlog) = &job.cluster.commitlog_volume {
        check_volume(rules, "cluster.commitlog_volume", commitlog, host);
    }
    if rules.hold() {
        check_room(rules, job, seed);
    }
}

/// The rules of a timetable beside any database.
fn check_timetable(rules: &mut Rules, stop: Stop, interval_ns: u64, events: &[Event]) {
    rules.must(
        stop.duration_ns.is_some() && stop.operations.is_none(),
        "workload.stop",
        "operations",
        "a run with faults ends after a time alone",
        "give duration_ns and no operations",
    );
    rules.must(
        (1_000_000..=3_600_000_000_000).contains(&interval_ns),
        "faults.interval_ns",
        interval_ns,
        "an interval of the course takes 1 ms to 1 h",
        "use 1000000000",
    );
    for event in events {
        rules.must(
            event.has_fair_slowness(),
            "faults.events.slow_permille",
            format!("{:?}", event.slow_permille),
            "I/Os of a slow volume take 1 to 1000000 permille of their service time, and of no other event",
            "use 10000 for ten times as slow, or a stall",
        );
    }
}

fn check_faults(rules: &mut Rules, job: &DatabaseJob) {
    let Some(faults) = &job.faults else {
        return;
    };
    check_timetable(rules, job.workload.stop, faults.interval_ns, &faults.events);
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

pub fn check_under_way(rules: &mut Rules, load: &Load) {
    if let Load::Open { rate_per_ks, .. } = *load {
        rules.must(
            rate_per_ks > 0,
            "workload.load.rate_per_ks",
            rate_per_ks,
            "an open loop has a rate",
            "give a positive one",
        );
    }
    let under_way = load.most_under_way();
    rules.must(
        (1..=MOST_UNDER_WAY).contains(&under_way),
        "workload.load",
        under_way,
        &format!("1 to {MOST_UNDER_WAY} operations are under way at a time"),
        "choose another number of threads",
    );
}

pub fn check_stop(rules: &mut Rules, stop: Stop, warm_up_ns: u64) {
    let Stop {
        operations,
        duration_ns,
    } = stop;
    rules.must(
        operations.is_some_and(|n| n > 0) || duration_ns.is_some_and(|n| n > warm_up_ns),
        "workload.stop",
        format!("{operations:?} operations, {duration_ns:?} ns"),
        "a run ends after some operations, or some time after its warm-up",
        "give one of the two",
    );
}

pub fn check_volume(rules: &mut Rules, place: &str, name: &str, host: &HostProfile) {
    let known = host.volumes.iter().any(|volume| volume.name == name);
    let names: Vec<&str> = host.volumes.iter().map(|v| v.name.as_str()).collect();
    rules.must(
        known,
        place,
        name,
        "the host has no such volume",
        &format!("its volumes are {}", names.join(", ")),
    );
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
        ring.plan(&faults.ring_changes(), job.cluster.nodes as usize);
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

fn check_device(rules: &mut Rules, job: &DeviceJob) {
    check_volume(rules, "device.volume", &job.volume, &job.host);
    let size = job.host.volumes.iter().find(|v| v.name == job.volume);
    let size = size.map_or(0, |volume| volume.size_bytes);
    match (&job.fio, &job.trace) {
        (Some(fio), None) => {
            for section in std::iter::once(fio).chain(&job.beside) {
                check_fio(rules, section, size);
            }
        }
        (None, Some(trace)) => check_trace(rules, trace, size),
        _ => rules.must(
            false,
            "device",
            "fio and trace",
            "a device has either fio or a trace",
            "give exactly one of them",
        ),
    }
}

fn check_trace(rules: &mut Rules, trace: &Trace, size: u64) {
    let count = trace.at_ns.len();
    let lengths = [
        trace.offset_bytes.len(),
        trace.len_bytes.len(),
        trace.is_write.len(),
    ];
    rules.must(
        (1..=MOST_TRACED).contains(&count) && lengths == [count; 3],
        "trace",
        count,
        &format!("a trace has 1 to {MOST_TRACED} I/Os, and its lists as many entries each"),
        "give fewer I/Os, or all four of each",
    );
    rules.must(
        trace.at_ns.is_sorted(),
        "trace.at_ns",
        "falling times",
        "I/Os are in the order of time",
        "sort them",
    );
    let places = trace.offset_bytes.iter().zip(&trace.len_bytes);
    let outside = places.enumerate().find(|(_, (offset, len))| {
        **len == 0
            || offset
                .checked_add(u64::from(**len))
                .is_none_or(|end| end > size)
    });
    rules.must(
        outside.is_none(),
        "trace.offset_bytes",
        outside.map_or(0, |(number, _)| number),
        &format!("each I/O has a byte at least and lies within the volume's {size} bytes"),
        "give other places, or a larger volume",
    );
    rules.must(
        trace
            .depth
            .is_none_or(|depth| (1..=MOST_UNDER_WAY).contains(&depth)),
        "trace.depth",
        trace.depth.unwrap_or(0),
        &format!("1 to {MOST_UNDER_WAY} I/Os are under way at a time"),
        "use another depth",
    );
}

fn check_fio(rules: &mut Rules, fio: &Fio, size: u64) {
    let each = size / u64::from(fio.jobs.max(1));
    let positive = [
        ("fio.jobs", u64::from(fio.jobs)),
        ("fio.depth", u64::from(fio.depth)),
        ("fio.runtime_ns", fio.runtime_ns),
        ("fio.block_bytes", u64::from(fio.block_bytes)),
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
    rules.must(
        fio.read_ppm <= 1_000_000,
        "fio.read_ppm",
        fio.read_ppm,
        "a share is at most 1000000 parts per million",
        "use 1000000 for reads only",
    );
    rules.must(
        u64::from(fio.block_bytes) <= fio.size_bytes.min(each),
        "fio.block_bytes",
        fio.block_bytes,
        "a block fits each job's part of the volume",
        "choose a larger file or smaller blocks",
    );
    check_fio_ways(rules, fio);
    let under_way = u64::from(fio.jobs) * u64::from(fio.depth);
    rules.must(
        under_way <= u64::from(MOST_UNDER_WAY),
        "fio.depth",
        under_way,
        &format!("at most {MOST_UNDER_WAY} I/Os are under way at a time"),
        "use fewer jobs or a smaller depth",
    );
}

/// Several block sizes, the page cache, and syncs.
fn check_fio_ways(rules: &mut Rules, fio: &Fio) {
    let shares: u64 = fio.split.iter().map(|size| u64::from(size.share_ppm)).sum();
    rules.must(
        fio.split.is_empty() || shares == 1_000_000,
        "fio.split",
        shares,
        "the shares of block sizes make a million",
        "give shares that add up",
    );
    let largest = fio.split.iter().map(|size| size.block_bytes).max();
    rules.must(
        largest.is_none_or(|largest| largest == fio.block_bytes)
            && fio.split.iter().all(|size| size.block_bytes > 0),
        "fio.split",
        format!("{largest:?}"),
        "block_bytes is the largest size, and none is 0",
        "give the largest size there",
    );
    let windows = fio
        .buffered
        .as_ref()
        .map(|buffered| buffered.read_ahead_bytes);
    rules.must(
        windows.is_none_or(|bytes| bytes % 4096 == 0 && bytes <= 1 << 24),
        "fio.buffered.read_ahead_bytes",
        format!("{windows:?}"),
        "a kernel reads whole pages ahead, and at most 16 MiB",
        "give a multiple of 4096",
    );
    rules.must(
        fio.sync
            .as_ref()
            .is_none_or(|sync| sync.every > 0 && sync.journal_writes <= 16),
        "fio.sync",
        format!("{:?}", fio.sync),
        "a sync follows one write at least, and has up to 16 writes of a journal",
        "give every: 1 or more",
    );
}

fn check_file(rules: &mut Rules, job: &FileJob) {
    let size = job.size_bytes;
    let outside = job.reads.iter().find(|(start, bytes)| {
        *bytes == 0 || start.checked_add(*bytes).is_none_or(|end| end > size)
    });
    rules.must(
        outside.is_none(),
        "file.reads",
        format!("{outside:?}"),
        &format!("each read has a byte at least and lies within the file's {size} bytes"),
        "give other places, or a larger file",
    );
    rules.must(
        !job.reads.is_empty(),
        "file.reads",
        "[]",
        "there is at least one read",
        "give first byte and length of each",
    );
}

/// Every mechanism, for the documentation of ablations.
pub const MECHANISMS: [Mechanism; 26] = [
    Mechanism::UnevenOwnership,
    Mechanism::ReadAround,
    Mechanism::IndexPages,
    Mechanism::ThrottleWindows,
    Mechanism::ChunkBorders,
    Mechanism::Pauses,
    Mechanism::ClientWarmUp,
    Mechanism::ClientCpu,
    Mechanism::ServerCpu,
    Mechanism::Slots,
    Mechanism::PageCacheHits,
    Mechanism::NetworkSpread,
    Mechanism::MessageOverhead,
    Mechanism::DynamicSnitch,
    Mechanism::SpeculativeRetry,
    Mechanism::CpuByBytes,
    Mechanism::DecompressionCpu,
    Mechanism::BackgroundIo,
    Mechanism::PacedTables,
    Mechanism::FileLocks,
    Mechanism::RelationExtension,
    Mechanism::FullPageImages,
    Mechanism::OwnReadAhead,
    Mechanism::FillOrder,
    Mechanism::IndexSplits,
    Mechanism::FilledTables,
];
