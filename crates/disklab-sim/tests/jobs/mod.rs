//! Small jobs that the tests vary.

pub mod faulty;
pub mod servers;

use disklab_disk::profile::{DiskProfile, Distribution, HostProfile, Latency, Limit, Scope, Unit};
use disklab_sim::cell::*;
use disklab_sim::{Report, simulate};
use serde_json::json;

/// A limit of I/Os or bytes a second, granted continuously.
pub fn limit(scope: Scope, unit: Unit, per_s: u64) -> Limit {
    json(json!({"scope": scope, "unit": unit, "per_s": per_s, "window_ns": 0}))
}

/// An open loop.
pub fn open(rate_per_ks: u64, arrivals: Arrivals, max_in_flight: u32) -> Load {
    Load::Open {
        rate_per_ks,
        arrivals,
        max_in_flight,
    }
}

/// One disk without limits, of constant latency.
pub fn host() -> HostProfile {
    let latency = Latency {
        read: Distribution::constant(1_000_000),
        write: Distribution::constant(1_000_000),
        flush: Distribution::constant(0),
    };
    HostProfile::of_one_disk("test", 1 << 40, latency)
}

/// A figure is another one, but for this share of it.
#[track_caller]
pub fn close(seen: f64, wanted: f64, within: f64) {
    assert!((seen / wanted - 1.0).abs() < within, "{seen} of {wanted}");
}

/// A figure is another one, but for so much.
#[track_caller]
pub fn near(seen: f64, wanted: f64, within: f64) {
    assert!((seen - wanted).abs() < within, "{seen}, not {wanted}");
}

/// The answer to a job, without the time that it took.
pub fn answer(job: &Job) -> String {
    told(simulate(job).expect("the job is valid"))
}

/// What a report says, but for the time that it took.
pub fn told(mut report: Report) -> String {
    report.wall_s = 0.0;
    serde_json::to_string(&report).expect("it is JSON")
}

/// The places of the rules that a job breaks.
#[track_caller]
pub fn broken(job: &Job) -> Vec<String> {
    let refusal = simulate(job).expect_err("it breaks a rule");
    let reasons = refusal.reasons.into_iter();
    reasons.map(|reason| reason.place).collect()
}

/// What a job has in this form, and the rest as usual.
pub fn json<T: serde::de::DeserializeOwned>(form: serde_json::Value) -> T {
    serde_json::from_value(form).expect("it is of that form")
}

fn job(seed: u64, kind: Kind) -> Job {
    Job {
        cell: 0,
        seed,
        fidelity: Fidelity::Full,
        ablate: Vec::new(),
        journal: None,
        kind,
        then: Vec::new(),
    }
}

/// Reads of one page each from one node, where nothing but the disk takes any time: one read I/O an
/// operation, since rows are pages and their number makes a second look at one rare.
pub fn reads(threads: u32, operations: u64, seed: u64) -> Job {
    let database = DatabaseJob {
        cluster: json(json!({
            "nodes": 1, "host": host(), "cores": 64, "page_cache_bytes": 4 << 20,
            "data_volume": "data", "read_ahead_bytes": 0,
        })),
        client: json(json!({"nodes": 1, "cores": 64})),
        network: network(0),
        database: json(json!({
            "engine": "cassandra", "replication_factor": 1, "consistency": "ONE",
            "concurrent_reads": 64, "concurrent_writes": 64, "memtable_bytes": 256 << 20,
            "table_write_bytes_per_s": 465 << 20, "trickle_fsync_bytes": 10 << 20,
            "speculative_percentile": 0,
        })),
        dataset: json(json!({
            "rows": 50_000_000, "columns": 1, "column_bytes": 4000, "stored_row_bytes": 4096,
        })),
        workload: reading(threads, operations),
        before: Before::default(),
        parameters: no_cost(),
        faults: None,
    };
    Job {
        ablate: vec![Mechanism::IndexPages],
        ..job(seed, Kind::Cassandra(database))
    }
}

/// A network whose messages always take the same time.
pub fn network(one_way_ns: u64) -> Network {
    json(json!({"one_way_ns": one_way_ns}))
}

/// Reads of rows, each as likely as the others.
fn reading(threads: u32, operations: u64) -> Workload {
    json(json!({
        "read_ppm": 1_000_000, "keys": "uniform", "load": {"closed": {"threads": threads}},
        "stop": {"operations": operations},
    }))
}

/// Parameters of a database that costs nothing.
pub fn no_cost() -> Parameters {
    Parameters {
        pause_every_requests: 1,
        ..Parameters::default()
    }
}

/// Point selects from three nodes where nothing but the network and the disks takes any time: a
/// table of 3000 blocks of 8 pages, 24 tablets.
pub fn selects(sessions: u32, duration_ns: u64, seed: u64) -> Job {
    let template = database(&mut reads(1, 1, seed)).clone();
    let sql = SqlJob {
        cluster: Cluster {
            nodes: 3,
            ..template.cluster
        },
        client: template.client,
        network: network(100_000),
        database: json(json!({
            "engine": "yugabytedb", "replication_factor": 3, "tls": false, "block_bytes": 32 << 10,
            "compressed_permille": 1000, "block_cache_bytes": 1_u64 << 40, "extra_block_ppm": 0,
            "wal_sync_period_ns": 1_000_000_000, "memstore_bytes": 1_u64 << 40,
            "compaction_bytes_per_s": 0,
        })),
        tables: vec![Table {
            name: "rows".to_owned(),
            rows: 96_000,
            row_bytes: 1 << 10,
            tablets: 24,
        }],
        workload: SqlWorkload {
            transactions: vec![one_select()],
            sessions,
            connections: None,
            duration_ns,
            warm_up_ns: 0,
        },
        before: Before {
            page_cache: CacheState::Warm,
            ..Before::default()
        },
        parameters: SqlParameters::default(),
        faults: None,
    };
    job(seed, Kind::Yugabytedb(sql))
}

fn one_select() -> Transaction {
    json(json!({
        "name": "transaction", "share_ppm": 1_000_000,
        "statements": [{
            "reported_as": "select", "bytes": 0, "accesses": [{"table": "rows", "kind": "read"}],
        }],
    }))
}

/// PostgreSQL on one server where nothing but the network and the disks takes any time: 70,000 rows, seven of a page,
/// each statement in a transaction of its own. Everything is in `shared_buffers`.
pub fn postgresql_job(kind: AccessKind, sessions: u32, duration_ns: u64, seed: u64) -> Job {
    let template = database(&mut reads(1, 1, seed)).clone();
    let mut transaction = one_select();
    transaction.statements[0].commits = true;
    transaction.statements[0].accesses[0].kind = kind;
    let servers = PostgresqlJob {
        cluster: template.cluster,
        client: template.client,
        network: network(100_000),
        database: json(json!({
            "synchronous_standbys": 0, "tls": false, "shared_buffers_bytes": 1 << 30,
            "max_wal_bytes": 1_u64 << 40, "checkpoint_timeout_ns": 3_600_000_000_000_u64,
            "checkpoint_completion_permille": 900, "full_page_writes": true,
            "synchronous_commit": true, "bgwriter_delay_ns": 200_000_000, "bgwriter_most_pages": 100,
        })),
        tables: vec![Relation {
            name: "rows".to_owned(),
            rows: 70_000,
            row_bytes: 1_052,
            entry_bytes: 20,
            ..Relation::default()
        }],
        workload: json(json!({
            "transactions": [transaction], "load": {"closed": {"threads": sessions}},
            "keys": "uniform", "stop": {"duration_ns": duration_ns},
        })),
        before: Before {
            page_cache: CacheState::Warm,
            ..Before::default()
        },
        parameters: PostgresqlParameters::default(),
        faults: None,
    };
    job(seed, Kind::Postgresql(servers))
}

/// What a job has to be.
macro_rules! kind {
    ($name:ident, $kind:ident, $job:ty) => {
        /// What is simulated in a job.
        pub fn $name(job: &mut Job) -> &mut $job {
            match &mut job.kind {
                Kind::$kind(own) => own,
                other => panic!("another job than this: {other:?}"),
            }
        }
    };
}

kind!(postgresql, Postgresql, PostgresqlJob);
kind!(mariadb, Mariadb, MariadbJob);
kind!(sql, Yugabytedb, SqlJob);
kind!(database, Cassandra, DatabaseJob);
kind!(device, Device, DeviceJob);

/// The only disk of a job's nodes.
pub fn disk(database: &mut DatabaseJob) -> &mut DiskProfile {
    &mut database.cluster.host.volumes[0].disks[0]
}

/// Of a fio job that only reads.
pub const ALL_READS: u32 = 1_000_000;

/// Direct I/Os of 4 KiB at random places of one disk, this share of them reads.
pub fn fio(read_ppm: u32, jobs: u32, depth: u32, runtime_ns: u64) -> Job {
    let device = DeviceJob {
        host: host(),
        volume: "data".to_owned(),
        fio: json(json!({
            "random": true, "read_ppm": read_ppm, "block_bytes": 4096, "jobs": jobs, "depth": depth,
            "size_bytes": 1 << 30, "runtime_ns": runtime_ns, "submit_ns": 1_000,
        })),
        beside: Vec::new(),
        trace: None,
        host_cache: CacheState::Cold,
    };
    job(1, Kind::Device(device))
}
