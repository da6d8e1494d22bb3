//! Pieces that the unit tests share.

use disklab_disk::profile::{Distribution, HostProfile, Latency};

use crate::job::Cluster;

/// A host with one unlimited disk of constant latency.
pub fn host(latency_ns: u64) -> HostProfile {
    let latency = Latency {
        read: Distribution::constant(latency_ns),
        write: Distribution::constant(latency_ns),
        flush: Distribution::constant(0),
    };
    HostProfile::of_one_disk("test", 1 << 40, latency)
}

/// A cluster of such hosts.
pub fn cluster(nodes: u32, ownership_ppm: Option<Vec<u32>>) -> Cluster {
    Cluster {
        nodes,
        host: host(1_000_000),
        cores: 16,
        page_cache_bytes: 1 << 30,
        collector: None,
        network_bytes_per_s: None,
        data_volume: "data".to_owned(),
        commitlog_volume: None,
        read_ahead_bytes: 0,
        kernel: crate::job::Kernel::Linux3,
        pages_counted_every_ns: 2_000_000_000,
        ownership_ppm,
        locks_files: false,
        tokens_per_node: 256,
        zones: 1,
    }
}
