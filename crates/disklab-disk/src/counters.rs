//! Why the model decided as it did, in numbers.
//!
//! The serde form is the `counters` of the control socket (docs/contracts/3-control-socket.md). Counts
//! only grow, unless a field says that it is of now.

use serde::{Deserialize, Serialize};

use crate::profile::{Scope, Unit};

/// What one volume did and what held it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCounters {
    /// By kind of I/O.
    pub operations: Operations,
    /// I/Os whose end is decided but lies in the future, now.
    pub in_flight: u64,
    /// I/Os that wait for a limit, a stall, the cache or a destage, now.
    pub queued: u64,
    /// The volume's part of the host cache; absent without host caching.
    pub cache: Option<CacheCounters>,
    /// Every limit that some I/O of this volume can meet: its disks' first, then the VM's. Those of
    /// the VM count only what this volume was granted and waited.
    pub limits: Vec<LimitCounters>,
}

/// Counters by kind of I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Reads.
    pub read: OperationCounters,
    /// Writes.
    pub write: OperationCounters,
    /// Flushes.
    pub flush: OperationCounters,
    /// Discards.
    pub discard: OperationCounters,
}

/// Decided I/Os of one kind, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCounters {
    /// How many.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them failed.
    pub failed: u64,
}

/// One volume's use of the host cache. A stripe counts each member's share of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounters {
    /// Reads that the cache served whole.
    pub hit_ios: u64,
    /// Reads that needed the disk.
    pub miss_ios: u64,
    /// Bytes that reads found in the cache, those of partial hits included.
    pub hit_bytes: u64,
    /// Bytes that reads fetched from the disk.
    pub miss_bytes: u64,
    /// Writes that went into the cache.
    pub write_ios: u64,
    /// Bytes of dirty data that became durable.
    pub destaged_bytes: u64,
    /// Bytes that newer data pushed out.
    pub evicted_bytes: u64,
    /// Bytes acknowledged but not yet durable, now.
    pub dirty_bytes: u64,
    /// Bytes held, now.
    pub cached_bytes: u64,
}

/// One limit: what it granted, whom it delayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitCounters {
    /// `disk 0`, `vm shared` (by all disks of its name), `vm cached` or `vm uncached`.
    pub place: String,
    /// What it counts.
    pub unit: Unit,
    /// Which I/Os pay.
    pub scope: Scope,
    /// Its baseline, in units per second.
    pub per_s: u64,
    /// Units granted.
    pub granted: u64,
    /// I/Os that had to wait for it.
    pub delayed_ios: u64,
    /// For how long, in nanoseconds, added up over the I/Os. Each nanosecond that an I/O waits is
    /// charged to one limit only: the one that it waits for at that time.
    pub delayed_ns: u64,
    /// Burst credits; absent without a credit bucket.
    pub credits: Option<Credits>,
    /// Whether some I/O waits for it now.
    pub binding: bool,
}

/// The credit bucket of a limit, in its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credits {
    /// What is left, now.
    pub left: u64,
    /// A full bucket.
    pub capacity: u64,
}
