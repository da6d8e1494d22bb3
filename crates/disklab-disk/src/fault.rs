//! What can be changed in a running volume, and what can go wrong with it.

use serde::{Deserialize, Serialize};

use crate::profile::{Caching, Latency, Limit};

/// A change of a running volume. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// New limits of each disk of the volume. Credits keep their level, cut to the new capacity.
    #[serde(default)]
    pub limits: Option<Vec<Limit>>,
    /// New service times of each disk.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// New host caching. Leaving ReadWrite holds the volume's I/Os until everything is destaged (the
    /// cloud detaches and attaches the disk again); leaving the cache empties the volume's part.
    #[serde(default)]
    pub caching: Option<Caching>,
    /// Credits left in each I/O bucket, in I/Os.
    #[serde(default)]
    pub credit_ios: Option<u64>,
    /// Credits left in each byte bucket, in bytes.
    #[serde(default)]
    pub credit_bytes: Option<u64>,
}

/// Something going wrong, or being mended.
///
/// Decisions that [`crate::Host`] has handed out stand: an I/O whose end was known before the fault
/// still ends at that time, unless the caller, who holds it, fails it (the emulator does so after a
/// host failure).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Fault {
    /// This share of the volume's I/Os fails, in parts per million. Zero mends it.
    ErrorRate {
        /// 0 to 1 000 000.
        ppm: u32,
    },
    /// Disk service times of one disk (or all) are multiplied by `permille / 1000`.
    Slow {
        /// 1000 is as promised.
        permille: u32,
        /// Which disk of the stripe; absent: all.
        #[serde(default)]
        disk: Option<u32>,
    },
    /// Nothing more is granted for this long; absent: until mended.
    Stall {
        /// Nanoseconds.
        #[serde(default)]
        for_ns: Option<u64>,
    },
    /// The host dies: every waiting I/O of every volume fails, caches and local data are gone, and
    /// every later I/O fails until `Recover`.
    HostFailure,
    /// The VM is stopped and deallocated after a clean flush: waiting and later I/Os fail until
    /// `Recover`, local data are gone, caches empty.
    Deallocate,
    /// Mends everything above: the VM runs again, on a new host when the old one died.
    Recover,
}
