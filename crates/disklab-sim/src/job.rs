//! What jobs are made of: clusters, clients, loads, faults, devices and files. A database's own is in its folder.

use disklab_disk::profile::HostProfile;
use serde::{Deserialize, Serialize};

pub mod faults;
mod fio;
mod load;
mod transactions;

pub use faults::{Faults, SqlFaults};
pub use fio::{BlockShare, Buffered, Fio, Sync};
pub use load::{Arrivals, Load};
pub use transactions::{
    AccessKind, PostgresqlWorkload, Preference, Relation, RowAccess, RowDraw, RowSize, ServerJob,
    Statement, Transaction,
};

/// A list of I/Os, as they were at the disks of the first node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// From when on, in the time that is measured.
    pub from_ns: u64,
    /// How many at most.
    pub most: u32,
}

/// How much of a cell is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// All rows, all operations.
    #[default]
    Full,
    /// Rows, operations, time, memory and host cache scaled down together, at most to a fiftieth and not
    /// below 60 000 operations, or the whole of a cell that has fewer. Keeps ops/s; p95 and p99 come out somewhat high, because throttle
    /// windows and pauses do not scale (`error_note` in the answer).
    Quick,
    /// As quick, with a fifth of its operations and no wait for pauses: what a page shows while a knob is still turned.
    Sketch,
}

/// A mechanism that can be left out of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Every node owns the same share of the ring.
    UnevenOwnership,
    /// A miss reads its own page only.
    ReadAround,
    /// Index pages are in memory from the start.
    IndexPages,
    /// Limits refill continuously.
    ThrottleWindows,
    /// An I/O ends as one, not chunk by chunk.
    ChunkBorders,
    /// No node ever pauses.
    Pauses,
    /// A client's first operation costs no more CPU than a later one.
    ClientWarmUp,
    /// The client has a core for every thread.
    ClientCpu,
    /// The nodes have a core for every request.
    ServerCpu,
    /// Every request finds a read or write slot.
    Slots,
    /// Nothing that was read stays in the page cache.
    PageCacheHits,
    /// Every message takes the mean time of its way.
    NetworkSpread,
    /// A message between nodes waits for nobody at either end.
    MessageOverhead,
    /// Reads ask replicas in the order of the ring, however long they take.
    DynamicSnitch,
    /// No further replica is asked for a read that takes long.
    SpeculativeRetry,
    /// A row costs the CPU that one of the calibrated size does.
    CpuByBytes,
    /// Compressed chunks open by themselves.
    DecompressionCpu,
    /// Flush, compaction and commit log cost nothing.
    BackgroundIo,
    /// Flush and compaction write as fast as the disk takes it.
    PacedTables,
    /// No write of a file waits for its reads.
    FileLocks,
    /// Every row that finds no room in its page has an empty one at once.
    RelationExtension,
    /// The first change of a page after a checkpoint began puts no more into the log than a later one.
    FullPageImages,
    /// All backends read a file through one descriptor, whose order of reading is that of all.
    OwnReadAhead,
    /// Rows lie in the order of their keys, however many sessions wrote them.
    FillOrder,
    /// All rows of a node lie in one file, as after a major compaction.
    FilledTables,
    /// InnoDB writes a page to its place alone.
    Doublewrite,
    /// A page that InnoDB reads is as young as one that was just used again.
    MidpointInsertion,
    /// InnoDB writes pages only when room is needed, in its pool or in its redo log.
    AdaptiveFlushing,
    /// MariaDB's page cleaner waits for no write, and writes the pages alone that have to leave.
    LruPasses,
    /// InnoDB has as many batches of its doublewrite buffer on their way as it has pages for.
    DoublewriteBatches,
    /// InnoDB reads each leaf of a secondary index that gets an entry.
    ChangeBuffering,
    /// Leaves of an index that was built full do not split in MariaDB.
    IndexSplits,
    /// A row that finds its leaf full waits for no search in MariaDB.
    IndexLocks,
    /// Deleted rows of MariaDB cost nothing once they are committed.
    Purge,
    /// InnoDB reads no page to estimate how many rows a range has.
    RangeEstimates,
    /// Other nodes of a Galera cluster apply changes at once, and hold no commit up.
    FlowControl,
    /// MariaDB syncs its binary log with each group of commits.
    SyncPeriod,
    /// After a crash InnoDB has the pages of its redo log in its pool.
    RecoveryReads,
    /// The page cache has one list of pages: what was used goes round once more.
    ActiveList,
}

/// The nodes, all alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// How many; 1 to 64.
    pub nodes: u32,
    /// VM budgets, host cache and volumes of a node. Its `seed` is replaced for each node.
    pub host: HostProfile,
    /// vCPUs of a node.
    pub cores: u32,
    /// Memory that the page cache can use.
    pub page_cache_bytes: u64,
    /// What collects the garbage of a node; absent: what the parameters of pauses were found on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// Network bandwidth of a node; `null`: no limit.
    pub network_bytes_per_s: Option<u64>,
    /// Name of the volume with the data.
    pub data_volume: String,
    /// Name of the volume with the commit log; `null`: the data volume.
    #[serde(default)]
    pub commitlog_volume: Option<String>,
    /// `read_ahead_kb` of the data volume, in bytes.
    pub read_ahead_bytes: u64,
    /// Whose rules of reading ahead.
    #[serde(default)]
    pub kernel: Kernel,
    /// How often the kernel counts the lists of its pages, for its rules of taking them back.
    #[serde(default = "counted_every")]
    pub pages_counted_every_ns: u64,
    /// Whether the data volume's file system makes writes of a file wait for its reads, as XFS does; of PostgreSQL alone.
    #[serde(default)]
    pub locks_files: bool,
    /// Share of the ring that each node owns, in parts per million; absent: drawn as virtual nodes
    /// would draw it.
    #[serde(default)]
    pub ownership_ppm: Option<Vec<u32>>,
    /// Virtual nodes of a node (`num_tokens`), when the ownership is drawn.
    #[serde(default = "default_tokens")]
    pub tokens_per_node: u32,
    /// Zones (Cassandra's racks) over which nodes and clients are spread in turn; the copies of a row are in as many
    /// of them as there are copies.
    #[serde(default = "one")]
    pub zones: u32,
}

/// Once.
pub(crate) fn one() -> u32 {
    1
}

/// What collects the garbage of a JVM.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    /// Bytes that are allocated from one young collection to the next.
    pub young_bytes: u64,
    /// Threads that collect.
    pub threads: u32,
    /// Reads whose key is new to the key cache, in permille.
    #[serde(default = "whole")]
    pub new_keys_permille: u32,
}

/// All of it, in permille.
pub(crate) fn whole() -> u32 {
    1000
}

/// Which Linux a node runs, as far as the page cache differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kernel {
    /// As the studies of 2019 ran it.
    #[default]
    #[serde(rename = "3.10")]
    Linux3,
    /// As of 2025; 5.x and earlier 6.x differ from it less than from 3.10.
    #[serde(rename = "6.18")]
    Linux6,
}

/// **Source:** mm/memcontrol.c of Linux 6.18, `FLUSH_TIME`: 2 s.
fn counted_every() -> u64 {
    2_000_000_000
}

fn default_tokens() -> u32 {
    256
}

/// The load generators, all alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// How many machines.
    pub nodes: u32,
    /// vCPUs of each.
    pub cores: u32,
    /// Network bandwidth of each; `null`: no limit.
    pub network_bytes_per_s: Option<u64>,
    /// Whether a request goes straight to a node that has the data.
    #[serde(default = "yes")]
    pub token_aware: bool,
    /// Whether they run on the one server itself: a request then takes its client's CPU from that server's cores.
    #[serde(default)]
    pub on_server: bool,
}

pub(crate) fn yes() -> bool {
    true
}

/// The network between any two machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Delay from one machine to another, without waiting, in nanoseconds: where a way has no distribution of its own.
    pub one_way_ns: u64,
    /// Between machines of one zone; absent: `one_way_ns`, always.
    #[serde(default)]
    pub within_zone: Option<Delay>,
    /// Between machines of different zones; absent: as within one.
    #[serde(default)]
    pub between_zones: Option<Delay>,
}

/// How long a message is on its way, in nanoseconds: never less than the fixed part, and longer by an
/// exponential time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// What every message takes.
    pub fixed_ns: u64,
    /// Mean of what it takes beyond that.
    pub spread_ns: u64,
}

/// Which keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// Each as likely as the others.
    Uniform,
    /// One after the other.
    Sequential,
    /// Those in the middle of a range often, as the load generator and cassandra-stress draw them.
    Gaussian,
    /// Few of them often, with YCSB's exponent, as the load generator draws them.
    Zipfian,
    /// Writes add rows, reads prefer the newest, with the same exponent.
    Latest,
}

/// A random stream of a load that was run: the same keys come in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyStream {
    /// The load's seed.
    pub seed: u64,
    /// What the load calls it.
    pub name: String,
}

/// When a run ends: whichever comes first. At least one is given.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// After so many operations.
    #[serde(default)]
    pub operations: Option<u64>,
    /// After so much virtual time, in nanoseconds.
    #[serde(default)]
    pub duration_ns: Option<u64>,
}

/// What a cache holds at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// Nothing.
    #[default]
    Cold,
    /// What the fill wrote through it last, up to its capacity.
    Written,
    /// What fits of the data, read before.
    Warm,
    /// What the cell before left there; with none before, or one that wrote, as after a fill.
    #[serde(rename = "as-left")]
    AsLeft,
}

/// State at the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// Of the nodes' page caches.
    #[serde(default)]
    pub page_cache: CacheState,
    /// Of the hosts' caches.
    #[serde(default)]
    pub host_cache: CacheState,
    /// Whether the table is empty.
    #[serde(default)]
    pub empty: bool,
}

/// A file that is read through the page cache, as Linux reads ahead.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileJob {
    /// Its size.
    pub size_bytes: u64,
    /// `read_ahead_kb` of its device, in bytes.
    pub read_ahead_bytes: u64,
    /// Whose rules of reading ahead.
    pub kernel: Kernel,
    /// Whether it is mapped, so that page faults read it; else it is read by pread.
    pub mapped: bool,
    /// Memory for the page cache.
    pub page_cache_bytes: u64,
    /// First byte and length of each read, in order.
    pub reads: Vec<(u64, u64)>,
    /// After so many reads the kernel counts the lists of its pages again; zero: before each I/O.
    #[serde(default)]
    pub counted_every: u64,
    /// Readers that take turns, each of which has opened the file for itself; zero: one.
    #[serde(default)]
    pub readers: u32,
}

/// One device under fio, or under a recorded trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceJob {
    /// The host with the volume.
    pub host: HostProfile,
    /// Name of the volume.
    pub volume: String,
    /// The load of fio. Exactly one of this and `trace` is given.
    #[serde(default)]
    pub fio: Option<Fio>,
    /// Sections of fio that run at the same time on files of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Fio>,
    /// The I/Os of a trace.
    #[serde(default)]
    pub trace: Option<Trace>,
    /// Whether the host cache holds the file at the start. Of a trace: `warm` is what it touches, everything else an
    /// empty cache, since no fill came before it.
    #[serde(default)]
    pub host_cache: CacheState,
}

/// I/Os as they were recorded, in order of time; the lists are of the same length.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Intended starts, in nanoseconds from the first; never falling.
    pub at_ns: Vec<u64>,
    /// First byte on the volume.
    pub offset_bytes: Vec<u64>,
    /// Length.
    pub len_bytes: Vec<u32>,
    /// Whether it writes.
    pub is_write: Vec<bool>,
    /// Closed loop: so many under way at a time, whatever the times say. Absent: an open loop at the times.
    #[serde(default)]
    pub depth: Option<u32>,
}
