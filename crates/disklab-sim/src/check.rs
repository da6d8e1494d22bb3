//! The rules of a job: every broken one is named at once. Those of a database are in its folder; here are the rules that
//! several share, and those of devices and files.

use disklab_disk::Rules;
use disklab_disk::profile::HostProfile;

use crate::cluster::MOST_REPLICAS;
use crate::job::faults::{Event, What};
use crate::job::{
    Client, Cluster, DeviceJob, FileJob, Fio, Load, PostgresqlWorkload, ServerJob, SqlFaults, Stop,
    Trace, Transaction,
};

/// Most nodes: their numbers fit a byte, with room.
const MOST_NODES: u32 = 64;
/// Most operations under way at a time.
pub const MOST_UNDER_WAY: u32 = 1 << 20;
/// Most I/Os of a trace: their numbers fit an event's code, and a job of them some ten megabytes.
const MOST_TRACED: usize = 1 << 24;
/// Largest tables of a server: some bytes are kept for each page of them.
const MOST_TABLE_BYTES: u64 = 2 << 40;

/// Numbers that are at least one, by their places.
pub fn positive(rules: &mut Rules, all: &[(&str, u64)]) {
    for &(place, value) in all {
        let rule = "it is at least one";
        rules.must(value > 0, place, value, rule, "give a positive number");
    }
}

/// A cluster of nodes, and its clients.
pub fn check_cluster(rules: &mut Rules, cluster: &Cluster, client: &Client) {
    rules.must(
        (1..=MOST_NODES).contains(&cluster.nodes),
        "cluster.nodes",
        cluster.nodes,
        &format!("a simulated cluster has 1 to {MOST_NODES} nodes"),
        "choose another number",
    );
    let all = [
        ("cluster.cores", cluster.cores),
        ("client.cores", client.cores),
        ("client.nodes", client.nodes),
    ];
    positive(rules, &all.map(|(place, value)| (place, u64::from(value))));
    let log = cluster.commitlog_volume.as_ref();
    let log = log.map(|name| ("cluster.commitlog_volume", name));
    for (place, name) in [("cluster.data_volume", &cluster.data_volume)]
        .into_iter()
        .chain(log)
    {
        check_volume(rules, place, name, &cluster.host);
    }
}

/// Copies of a row or tablet, each on another node.
pub fn check_replicas(rules: &mut Rules, what: &str, replicas: u32, nodes: u32) {
    let most = nodes.min(MOST_REPLICAS as u32);
    rules.must(
        (1..=most).contains(&replicas),
        "database.replication_factor",
        replicas,
        &format!("a {what} has at most {MOST_REPLICAS} copies, each on another of {nodes} nodes"),
        "add nodes or lower it",
    );
}

/// Servers, their clients and their transactions.
pub fn check_servers<S, P, T, W>(
    rules: &mut Rules,
    job: &ServerJob<S, P, T, W>,
    (transactions, connections): (&[Transaction], Option<u32>),
    name_of: impl Fn(&T) -> &str,
) {
    check_cluster(rules, &job.cluster, &job.client);
    let all = [
        ("tables", job.tables.len()),
        ("workload.transactions", transactions.len()),
        ("workload.connections", connections.unwrap_or(1) as usize),
    ];
    positive(rules, &all.map(|(place, value)| (place, value as u64)));
    for transaction in transactions {
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
                job.tables
                    .iter()
                    .any(|table| name_of(table) == access.table),
                &place,
                &access.table,
                "there is no such table",
                "name one of the tables",
            );
        }
    }
}

/// Servers whose tables and load are of the common form.
pub fn check_plain_servers<S, P>(rules: &mut Rules, job: &ServerJob<S, P>) {
    let PostgresqlWorkload {
        transactions,
        connections,
        ..
    } = &job.workload;
    check_servers(rules, job, (transactions, *connections), |table| {
        &table.name
    });
    check_under_way(rules, &job.workload.load);
    check_stop(rules, job.workload.stop, job.workload.warm_up_ns);
}

/// Tables of so many bytes fit the data volume.
pub fn check_room(rules: &mut Rules, cluster: &Cluster, bytes: u64) {
    let size = cluster.data_volume_bytes();
    rules.must(
        bytes < MOST_TABLE_BYTES.min(size),
        "tables",
        format!("{} GB", bytes / 1_000_000_000),
        &format!(
            "the data volume has only {} GB, and at most {} GB are simulated",
            size / 1_000_000_000,
            MOST_TABLE_BYTES / 1_000_000_000
        ),
        "choose fewer rows or larger disks",
    );
}

/// The timetable of servers, and their clients.
pub fn check_outage<S, P>(rules: &mut Rules, faults: &SqlFaults, job: &ServerJob<S, P>) {
    let work = &job.workload;
    let timetable = (faults.interval_ns, &faults.events[..]);
    check_timetable(rules, work.stop, timetable, &job.cluster.host);
    rules.must(
        work.connections.is_none(),
        "workload.connections",
        work.connections.unwrap_or(0),
        "under a timetable each session has a connection of its own",
        "leave it out",
    );
    let all = [
        ("faults.timeout_ns", faults.timeout_ns),
        ("faults.first_retry_ns", faults.first_retry_ns),
        ("faults.most_retry_ns", faults.most_retry_ns),
        ("faults.follow_ns", faults.follow_ns),
        ("faults.replay_depth", u64::from(faults.replay_depth)),
    ];
    positive(rules, &all);
}

/// What happens to nodes that have each other's data.
pub fn check_members(rules: &mut Rules, events: &[Event], nodes: u32) {
    for event in events {
        let comes_or_goes = matches!(
            event.what,
            What::Kill | What::Lose | What::Start | What::Restart | What::Replace
        );
        rules.must(
            event.node < nodes && (event.what.is_of_a_disk() || comes_or_goes),
            "faults.events",
            format!("{:?} of {}", event.what, event.node),
            "disks of the nodes break; a node is killed, lost, started, restarted or replaced",
            "use another event",
        );
    }
}

/// The rules of a timetable beside any database.
pub fn check_timetable(
    rules: &mut Rules,
    stop: Stop,
    (interval_ns, events): (u64, &[Event]),
    host: &HostProfile,
) {
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
        let count = host.volumes.len();
        rules.must(
            event.volume.is_none_or(|volume| (volume as usize) < count),
            "faults.events.volume",
            event.volume.unwrap_or(0),
            &format!("the host has volumes 0 to {}", count.max(1) - 1),
            "give the number of one of them",
        );
    }
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

pub fn check_device(rules: &mut Rules, job: &DeviceJob) {
    check_volume(rules, "device.volume", &job.volume, &job.host);
    let mut volumes = job.host.volumes.iter();
    let volume = volumes.find(|volume| volume.name == job.volume);
    let size = volume.map_or(0, |volume| volume.size_bytes);
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
    let all = [
        ("fio.jobs", u64::from(fio.jobs)),
        ("fio.depth", u64::from(fio.depth)),
        ("fio.runtime_ns", fio.runtime_ns),
        ("fio.block_bytes", u64::from(fio.block_bytes)),
    ];
    positive(rules, &all);
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

pub fn check_file(rules: &mut Rules, job: &FileJob) {
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
