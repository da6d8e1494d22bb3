//! What goes into the model and what comes out.

use disklab_units::{Bytes, Instant};
use serde::{Deserialize, Serialize};

/// A volume of a host, as [`crate::Host`] numbered it when it was attached. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u32);

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes everything acknowledged before it durable. `offset` and `len` are zero.
    Flush,
    /// Gives blocks back. Costs no tokens; cached copies are dropped.
    Discard,
}

/// One I/O as it arrives at a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The caller's own name for it; comes back in [`Completion`].
    pub tag: u64,
    /// Where it goes.
    pub volume: VolumeId,
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: Bytes,
    /// Number of bytes; at most 4 GiB, and offset + len lies within the volume.
    pub len: u32,
}

/// How an I/O ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Done,
    /// As an I/O error (EIO): an injected error rate, a failed host, a deallocated disk.
    Failed,
}

/// The model's decision about an I/O: made once, as soon as its end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag it was submitted with.
    pub tag: u64,
    /// When it completes; never before the `now` of the call that returned it.
    pub at: Instant,
    /// How it ends.
    pub outcome: Outcome,
}

/// Blocks that became durable on their disk: a ReadWrite cache has destaged them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destaged {
    /// The volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: Bytes,
    /// Number of bytes.
    pub len: u32,
}
