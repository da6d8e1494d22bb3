//! What a host and its disks promise: plain data, fully resolved, every number explicit.
//!
//! The Python catalogue turns `azure/P30` on `azure/Standard_DS14_v2` into this; the model knows no
//! vendor's names. The JSON form is the contract between the two (see docs/contracts/1-host-profile.md), so field
//! names carry their unit.

use serde::{Deserialize, Serialize};

/// The version of the JSON form that this crate reads.
pub const PROFILE_VERSION: u32 = 1;

/// One emulated or simulated VM: its two budgets, its host cache and its volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// Always [`PROFILE_VERSION`].
    pub version: u32,
    /// What people call it, for messages only, such as `azure/Standard_DS14_v2`.
    pub name: String,
    /// Start of every random stream of this host.
    pub seed: u64,
    /// The budget of the host's own SSD, which host cache and temp disk share. Empty: no limit.
    pub cached: Vec<Limit>,
    /// The budget of the storage network. Empty: no limit. It adds to `cached`.
    pub uncached: Vec<Limit>,
    /// The host cache, shared by all volumes whose caching is not `None`.
    pub cache: Option<CacheProfile>,
    /// What is attached from the start; more can be attached later.
    pub volumes: Vec<VolumeProfile>,
}

impl HostProfile {
    /// A host whose only volume is one remote disk without limits, `data`.
    pub fn of_one_disk(name: &str, size_bytes: u64, latency: Latency) -> HostProfile {
        HostProfile {
            version: PROFILE_VERSION,
            name: name.to_owned(),
            seed: 1,
            cached: Vec::new(),
            uncached: Vec::new(),
            cache: None,
            volumes: vec![VolumeProfile {
                name: "data".to_owned(),
                size_bytes,
                caching: Caching::None,
                chunk_bytes: None,
                disks: vec![DiskProfile {
                    name: "disk".to_owned(),
                    medium: Medium::Remote,
                    limits: Vec::new(),
                    shared: Vec::new(),
                    latency,
                }],
            }],
        }
    }
}

/// The host cache of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheProfile {
    /// Bytes of data it holds.
    pub capacity_bytes: u64,
    /// Unit of lookup and eviction in bytes, a power of two from 4 KiB to 64 KiB. No vendor
    /// documents it. Validity is kept for each 4 KiB sector inside a block, so that a miss fetches
    /// only what was asked for.
    pub block_bytes: u32,
    /// Service time of a hit (reads) and of a write that the cache acknowledges (ReadWrite).
    pub latency: Latency,
    /// Whether the limits of disk and network count a ReadWrite cache's writes when it acknowledges them, each as it
    /// came, and what it destages no more.
    ///
    /// **Source:** two sizes of Premium SSD as data disks of Dsv3 (github.com/mkyc/k8s-pv, December 2021): writes of
    /// 4 KiB and 128 KiB, at random and in order, at depth 4 and 64, did the disk's own rates (3,541 to 3,556 of 3,500
    /// IOPS, 7,508), whatever would have been gathered, and sooner than the disk serves one. Microsoft's page on VM and
    /// disk limits has writes of a cached disk on the miss path. OS disks of 2019 and 2020 did not count them: tens of
    /// thousands a second until gigabytes were dirty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub charges_writes: bool,
}

/// One volume: one disk, or a RAID 0 stripe over several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeProfile {
    /// The name by which it is attached, unique on its host.
    pub name: String,
    /// Usable bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Host caching.
    pub caching: Caching,
    /// Bytes per stripe chunk; required exactly when there is more than one disk.
    pub chunk_bytes: Option<u32>,
    /// The disks, in stripe order; at least one, all with the same medium.
    pub disks: Vec<DiskProfile>,
}

/// Host caching of a volume, in Azure's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caching {
    /// Every I/O goes to the disk.
    #[default]
    None,
    /// Reads may hit; writes go through and fill the cache.
    ReadOnly,
    /// Writes are acknowledged by the cache and destaged later; FLUSH forces destage.
    ReadWrite,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskProfile {
    /// What people call it, for messages only, such as `azure/P30`.
    pub name: String,
    /// Where the data live, which decides the VM budget that pays and what a host failure erases.
    pub medium: Medium,
    /// Caps of the disk itself. An I/O waits until every limit that applies to it has tokens.
    pub limits: Vec<Limit>,
    /// What volumes with disks of its name share instead, once their host has several of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedLimit>,
    /// Service time without any wait.
    pub latency: Latency,
}

/// What all disks of a name on a host have together: something of the host's, once, and the parts of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedLimit {
    /// Which I/Os pay.
    pub scope: Scope,
    /// What is counted.
    pub unit: Unit,
    /// What the host has, however many disks there are, in units per second.
    pub of_host: u64,
    /// What this disk adds.
    pub part: u64,
    /// The most that all of them may have; positive.
    pub most: u64,
}

/// Where a disk's data live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Network storage: pays the uncached budget, survives the host.
    Remote,
    /// The VM's temp or ephemeral OS disk on the host SSD: pays the cached budget, dies with the
    /// host.
    Temp,
    /// A local NVMe disk: pays no VM budget, dies with the host.
    Nvme,
}

/// One token bucket, or a pair of them when it bursts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Which I/Os pay.
    pub scope: Scope,
    /// What is counted: `ios` or `bytes`.
    pub unit: Unit,
    /// Baseline, in units per second; positive.
    pub per_s: u64,
    /// For `ios`: an I/O of n bytes counts as ceil(n / io_unit_bytes), at least one. Absent: one.
    #[serde(default)]
    pub io_unit_bytes: Option<u32>,
    /// Refill period: tokens arrive in lumps of `per_s * window_ns`. Zero: continuously.
    pub window_ns: u64,
    /// Credit bursting. Absent: none.
    #[serde(default)]
    pub burst: Option<Burst>,
}

/// Which I/Os a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reads and writes share one budget.
    All,
    /// Reads only.
    Read,
    /// Writes only.
    Write,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// I/O operations.
    Ios,
    /// Bytes.
    Bytes,
}

/// Credits: they accrue at (baseline - used) and are spent at (used - baseline).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Top rate while credits last, in units per second, at least the baseline.
    pub per_s: u64,
    /// Credits of a full bucket, in units. `null`: burst for ever (on-demand bursting).
    pub credits: Option<u64>,
    /// Credits at the start, in units; absent: full.
    #[serde(default)]
    pub start: Option<u64>,
}

/// Service times by operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Of a read.
    pub read: Distribution,
    /// Of a write.
    pub write: Distribution,
    /// Of a FLUSH that finds nothing to destage.
    pub flush: Distribution,
}

/// A distribution of service times as its quantiles, plus a term that grows with the size.
///
/// A sample is drawn by linear interpolation between neighbouring points, in integer arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Pairs (parts per million, nanoseconds), both non-decreasing, from 0 to 1 000 000. One pair
    /// alone means a constant.
    pub quantiles_ppm_ns: Vec<(u32, u64)>,
    /// Nanoseconds for each KiB beyond the first 4.
    #[serde(default)]
    pub per_kib_ns: u64,
}

impl Distribution {
    /// The same time for every I/O.
    pub fn constant(ns: u64) -> Distribution {
        Distribution {
            quantiles_ppm_ns: vec![(1_000_000, ns)],
            per_kib_ns: 0,
        }
    }
}
