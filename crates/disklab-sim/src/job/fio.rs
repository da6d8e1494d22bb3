//! A load as fio's options name it.

use serde::{Deserialize, Serialize};

/// A load as fio's options name it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    /// What its figures are called, where several sections run at the same time.
    #[serde(default)]
    pub name: String,
    /// Whether places are drawn, or follow each other: `randread` or `read` of `rw`.
    pub random: bool,
    /// Share of reads in parts per million, the rest are writes: `rwmixread`, or all or none.
    pub read_ppm: u32,
    /// `bs`.
    pub block_bytes: u32,
    /// `bssplit`: other sizes and their shares; the largest is `block_bytes`. None: all I/Os are alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<BlockShare>,
    /// `numjobs`.
    pub jobs: u32,
    /// `iodepth`.
    pub depth: u32,
    /// `size` of each job's file.
    pub size_bytes: u64,
    /// A job ends when it has done so many bytes: fio without `time_based`.
    #[serde(default)]
    pub once: bool,
    /// `runtime`, in nanoseconds: what is measured.
    pub runtime_ns: u64,
    /// Load before it, which is not counted.
    #[serde(default)]
    pub warm_up_ns: u64,
    /// Time of a job's own thread for each I/O: it submits and reaps them one after the other.
    pub submit_ns: u64,
    /// I/Os a second of each job at most: `rate_iops`. 0: as many as there can be.
    #[serde(default)]
    pub rate_iops: u64,
    /// `fsync` or `fdatasync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// `direct=0`: through the page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered: Option<Buffered>,
}

/// One size of a `bssplit`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockShare {
    /// Bytes of these I/Os.
    pub block_bytes: u32,
    /// Their share of all I/Os.
    pub share_ppm: u32,
}

/// When a job makes what it wrote durable, and what that takes beside the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// After so many writes of a job.
    pub every: u32,
    /// `fdatasync`: without the file system's journal once the file's blocks have all been written.
    pub data_only: bool,
    /// Writes of the journal, one after the other: 1 of XFS (its log), 2 of ext4 (the transaction, then its commit
    /// record). **Source:** `xfs_log_force`, `jbd2_journal_commit_transaction`. etcd's test counted 2.1 to 2.3 writes of
    /// the disk a sync on XFS (the catalogue's evidence of `besthub` and `mtulio`): one of data, one of the log.
    pub journal_writes: u32,
}

/// Through the page cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffered {
    /// What the kernel reads ahead of a sequential reader.
    pub read_ahead_bytes: u32,
}
