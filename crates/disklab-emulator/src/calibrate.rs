//! What this machine can do through the whole path.

use serde::{Deserialize, Serialize};

/// Measured through the loop device with no delay and memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Median latency of a 4 KiB read at queue depth 1.
    pub p50_ns: u64,
    /// 99th percentile of the same.
    pub p99_ns: u64,
    /// 4 KiB reads per second at queue depth 64.
    pub iops: u64,
    /// 1 MiB reads, bytes per second.
    pub bytes_per_s: u64,
}
