//! Small jobs that the tests vary.

pub mod faulty;
pub mod servers;

use disklab_disk::profile::{
    Caching, DiskProfile, Distribution, HostProfile, Latency, Medium, PROFILE_VERSION,
    VolumeProfile,
};
use disklab_sim::job::*;

/// One disk without limits, of constant latency.
pub fn host() -> HostProfile {
    let latency = Latency {
        read: Distribution::constant(1_000_000),
        write: Distribution::constant(1_000_000),
        flush: Distribution::constant(0),
    };
    HostProfile {
        version: PROFILE_VERSION,
        name: "test".to_owned(),
        seed: 1,
        cached: Vec::new(),
        uncached: Vec::new(),
        cache: None,
        volumes: vec![VolumeProfile {
            name: "data".to_owned(),
            size_bytes: 1 << 40,
            caching: Caching::None,
            chunk_bytes: None,
            disks: vec![DiskProfile {
                name: "disk".to_owned(),
                medium: Medium::Remote,
                limits: Vec::new(),
                latency,
            }],
        }],
    }
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
        cluster: Cluster {
            nodes: 1,
            host: host(),
            cores: 64,
            page_cache_bytes: 4 << 20,
            collector: None,
            network_bytes_per_s: None,
            data_volume: "data".to_owned(),
            commitlog_volume: None,
            read_ahead_bytes: 0,
            kernel: Kernel::Linux3,
            pages_counted_every_ns: 2_000_000_000,
            ownership_ppm: None,
            locks_files: false,
            tokens_per_node: 256,
            zones: 1,
        },
        client: Client {
            nodes: 1,
            cores: 64,
            network_bytes_per_s: None,
            token_aware: true,
        },
        network: network(0),
        database: Database {
            engine: Engine::Cassandra,
            replication_factor: 1,
            consistency: Consistency::One,
            concurrent_reads: 64,
            concurrent_writes: 64,
            access: Access::Mmap,
            chunk_bytes: None,
            compressed_permille: 1000,
            decompress_byte_ps: 0,
            compaction: Compaction::SizeTiered,
            commitlog_sync_period_ns: 10_000_000_000,
            commitlog_segment_bytes: 32 << 20,
            memtable_bytes: 256 << 20,
            table_write_bytes_per_s: 465 << 20,
            trickle_fsync_bytes: Some(10 << 20),
            compaction_bytes_per_s: 16 << 20,
            read_repair_ppm: 0,
            speculative_percentile: 0,
            near_first: true,
            snitch_badness_permille: 100,
        },
        dataset: Dataset {
            rows: 50_000_000,
            columns: 1,
            column_bytes: 4000,
            sizes: None,
            stored_row_bytes: Some(4096),
            index_entry_bytes: None,
            tables_ppm: Vec::new(),
        },
        workload: reading(threads, operations),
        before: Before::default(),
        parameters: no_cost(),
        faults: None,
    };
    Job {
        ablate: vec![Mechanism::IndexPages],
        ..job(seed, Kind::Database(database))
    }
}

/// A network whose messages always take the same time.
pub fn network(one_way_ns: u64) -> Network {
    Network {
        one_way_ns,
        within_zone: None,
        between_zones: None,
    }
}

/// Reads of rows, each as likely as the others.
fn reading(threads: u32, operations: u64) -> Workload {
    Workload {
        read_ppm: 1_000_000,
        others: None,
        keys: Keys::Uniform,
        asked_rows: None,
        key_stream: None,
        load: Load::Closed { threads },
        stop: Stop {
            operations: Some(operations),
            duration_ns: None,
        },
        warm_up_ns: 0,
    }
}

/// Parameters of a database that costs nothing.
pub fn no_cost() -> Parameters {
    Parameters {
        overhead_ns: 0,
        client_read_cpu_ns: 0,
        client_write_cpu_ns: 0,
        coordinator_cpu_ns: 0,
        message_cpu_ns: 0,
        read_cpu_ns: 0,
        disk_read_cpu_ns: 0,
        write_cpu_ns: 0,
        client_cold_permille: 0,
        client_warm_operations: 0,
        read_pause_ns: 0,
        write_pause_ns: 0,
        pause_every_requests: 1,
        at_young_bytes: 0,
        at_collector_threads: 0,
        read_moved_permille: 0,
        collector_alone_permille: 0,
        read_allocated_bytes: 0,
        read_allocated_permille: 0,
        write_allocated_bytes: 0,
        write_allocated_permille: 0,
        write_kept_bytes: 0,
        write_kept_permille: 0,
        message_overhead_ns: 0,
        at_row_bytes: 0,
        client_byte_ps: 0,
        coordinator_byte_ps: 0,
        message_byte_ps: 0,
        read_byte_ps: 0,
        write_byte_ps: 0,
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
        database: SqlDatabase {
            engine: SqlEngine::Yugabytedb,
            replication_factor: 3,
            tls: false,
            block_bytes: 32 << 10,
            compressed_permille: 1000,
            block_cache_bytes: 1 << 40,
            extra_block_ppm: 0,
            wal_sync_period_ns: 1_000_000_000,
            memstore_bytes: 1 << 40,
            compaction_bytes_per_s: 0,
        },
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
        parameters: free_sql(),
    };
    job(seed, Kind::Sql(sql))
}

fn one_select() -> Transaction {
    let access = RowAccess {
        table: "rows".to_owned(),
        kind: AccessKind::Read,
        rows: 1,
        draw: RowDraw::Uniform,
        written_bytes: None,
    };
    Transaction {
        name: "transaction".to_owned(),
        share_ppm: 1_000_000,
        counted: true,
        keying_ns: 0,
        think_ns: 0,
        statements: vec![Statement {
            times: 1,
            inside: false,
            commits: false,
            reported_as: Some("select".to_owned()),
            bytes: 0,
            accesses: vec![access],
        }],
    }
}

/// Parameters of a SQL database that costs nothing.
fn free_sql() -> SqlParameters {
    SqlParameters {
        overhead_ns: 0,
        replication_overhead_ns: 0,
        client_cpu_ns: 0,
        statement_cpu_ns: 0,
        message_cpu_ns: 0,
        tls_cpu_ns: 0,
        row_read_cpu_ns: 0,
        write_cpu_ns: 0,
        row_write_cpu_ns: 0,
        block_cpu_ns: 0,
        rewrites_permille: 0,
    }
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
        database: PostgresqlSettings {
            synchronous_standbys: 0,
            tls: false,
            shared_buffers_bytes: 1 << 30,
            max_wal_bytes: 1 << 40,
            checkpoint_timeout_ns: 3_600_000_000_000,
            checkpoint_completion_permille: 900,
            full_page_writes: true,
            synchronous_commit: true,
            bgwriter_delay_ns: 200_000_000,
            bgwriter_most_pages: 100,
        },
        tables: vec![Relation {
            sizes: None,
            fill_sessions: 0,
            ends: 0,
            built_full: false,
            name: "rows".to_owned(),
            rows: 70_000,
            row_bytes: 1_052,
            entry_bytes: 20,
        }],
        workload: PostgresqlWorkload {
            transactions: vec![transaction],
            load: Load::Closed { threads: sessions },
            connections: None,
            keys: Keys::Uniform,
            asked_rows: None,
            key_stream: None,
            stop: Stop {
                operations: None,
                duration_ns: Some(duration_ns),
            },
            warm_up_ns: 0,
        },
        before: Before {
            page_cache: CacheState::Warm,
            ..Before::default()
        },
        parameters: PostgresqlParameters {
            overhead_ns: 0,
            client_cpu_ns: 0,
            statement_cpu_ns: 0,
            tls_cpu_ns: 0,
            row_read_cpu_ns: 0,
            row_write_cpu_ns: 0,
            scan_row_cpu_ns: 0,
            page_read_cpu_ns: 0,
            commit_cpu_ns: 0,
        },
        faults: None,
    };
    job(seed, Kind::Postgresql(servers))
}

/// The PostgreSQL of a job.
pub fn postgresql(job: &mut Job) -> &mut PostgresqlJob {
    match &mut job.kind {
        Kind::Postgresql(found) => found,
        other => panic!("a PostgreSQL job, not {other:?}"),
    }
}

/// The SQL database of a job.
pub fn sql(job: &mut Job) -> &mut SqlJob {
    match &mut job.kind {
        Kind::Sql(found) => found,
        other => panic!("a SQL job, not {other:?}"),
    }
}

/// The database of a job.
pub fn database(job: &mut Job) -> &mut DatabaseJob {
    match &mut job.kind {
        Kind::Database(found) => found,
        other => panic!("a database job, not {other:?}"),
    }
}

/// The device of a job.
pub fn device(job: &mut Job) -> &mut DeviceJob {
    match &mut job.kind {
        Kind::Device(found) => found,
        other => panic!("a device, not {other:?}"),
    }
}

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
        fio: Some(Fio {
            name: String::new(),
            random: true,
            read_ppm,
            block_bytes: 4096,
            split: Vec::new(),
            jobs,
            depth,
            size_bytes: 1 << 30,
            once: false,
            runtime_ns,
            warm_up_ns: 0,
            submit_ns: 1_000,
            rate_iops: 0,
            sync: None,
            buffered: None,
        }),
        beside: Vec::new(),
        trace: None,
        host_cache: CacheState::Cold,
    };
    job(1, Kind::Device(device))
}
