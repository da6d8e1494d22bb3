//! Small jobs that the tests vary.

#![allow(dead_code, reason = "each test program uses some of them")]

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

fn job(seed: u64) -> Job {
    Job {
        cell: 0,
        seed,
        fidelity: Fidelity::Full,
        ablate: Vec::new(),
        database: None,
        device: None,
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
            network_bytes_per_s: None,
            data_volume: "data".to_owned(),
            commitlog_volume: None,
            read_ahead_bytes: 0,
            ownership_ppm: None,
            tokens_per_node: 256,
        },
        client: Client {
            nodes: 1,
            cores: 64,
            network_bytes_per_s: None,
            token_aware: true,
        },
        network: Network { one_way_ns: 0 },
        database: Database {
            engine: Engine::Cassandra,
            replication_factor: 1,
            consistency: Consistency::One,
            concurrent_reads: 64,
            concurrent_writes: 64,
            access: Access::Mmap,
            chunk_bytes: None,
            compressed_permille: 1000,
            commitlog_sync_period_ns: 10_000_000_000,
            memtable_bytes: 256 << 20,
            compaction_bytes_per_s: 16 << 20,
            read_repair_ppm: 0,
        },
        dataset: Dataset {
            rows: 50_000_000,
            columns: 1,
            column_bytes: 4000,
            stored_row_bytes: Some(4096),
        },
        workload: Workload {
            read_ppm: 1_000_000,
            keys: Keys::Uniform,
            load: Load::Closed { threads },
            stop: Stop {
                operations: Some(operations),
                duration_ns: None,
            },
            warm_up_ns: 0,
        },
        before: Before::default(),
        parameters: no_cost(),
    };
    Job {
        ablate: vec![Mechanism::IndexPages],
        database: Some(database),
        ..job(seed)
    }
}

/// Parameters of a database that costs nothing.
pub fn no_cost() -> Parameters {
    Parameters {
        overhead_ns: 0,
        throttle_window_ns: None,
        client_read_cpu_ns: 0,
        client_write_cpu_ns: 0,
        coordinator_cpu_ns: 0,
        message_cpu_ns: 0,
        read_cpu_ns: 0,
        write_cpu_ns: 0,
        pause_ns: 0,
        pause_every_requests: 1,
        remote_tail_ppm: 0,
        remote_tail_ns: 0,
    }
}

/// The database of a job.
pub fn database(job: &mut Job) -> &mut DatabaseJob {
    job.database.as_mut().expect("a database job")
}

/// The only disk of a job's nodes.
pub fn disk(database: &mut DatabaseJob) -> &mut DiskProfile {
    &mut database.cluster.host.volumes[0].disks[0]
}

/// Direct I/Os of 4 KiB on one disk.
pub fn fio(rw: Pattern, jobs: u32, depth: u32, runtime_ns: u64) -> Job {
    Job {
        device: Some(DeviceJob {
            host: host(),
            volume: "data".to_owned(),
            fio: Fio {
                rw,
                block_bytes: 4096,
                jobs,
                depth,
                size_bytes: 1 << 30,
                runtime_ns,
                submit_ns: 1_000,
            },
            host_cache: CacheState::Cold,
        }),
        ..job(1)
    }
}
