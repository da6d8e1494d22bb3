//! Cassandra under rows.

use disklab_units::sizes::Size;
use serde::{Deserialize, Serialize};

use super::operations::OtherOperations;
use super::parameters::Parameters;
use crate::job::{
    Before, Client, Cluster, Faults, KeyStream, Keys, Load, Network, Stop, whole, yes,
};

/// A cluster, its clients and their load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseJob {
    /// The database's nodes.
    pub cluster: Cluster,
    /// Who sends the load.
    pub client: Client,
    /// What lies between them.
    pub network: Network,
    /// The database and its settings.
    pub database: Database,
    /// The data.
    pub dataset: Dataset,
    /// The load.
    pub workload: Workload,
    /// State of the caches at the start.
    #[serde(default)]
    pub before: Before,
    /// What cannot be looked up and is fitted to measurements.
    pub parameters: Parameters,
    /// What breaks during the run; absent: nothing.
    #[serde(default)]
    pub faults: Option<Faults>,
}

/// A cell that follows another one on the same cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follower {
    /// The caller's number for it.
    pub cell: u64,
    /// What differs in it are load, caching, read-ahead and what was before.
    pub database: DatabaseJob,
    /// Whether it goes on from the end of the first one's warm-up, from which it differs in what breaks and when it ends.
    #[serde(default)]
    pub from_warm: bool,
}

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Apache Cassandra.
    Cassandra,
}

/// How many replicas must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Consistency {
    /// One.
    One,
    /// Two.
    Two,
    /// Three.
    Three,
    /// More than half of them.
    Quorum,
    /// The same: the cluster is in one data centre.
    LocalQuorum,
    /// One of this data centre.
    LocalOne,
    /// All of them.
    All,
}

/// How table files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Data and index are mapped: page faults read them.
    #[default]
    Mmap,
    /// Only the index is mapped, the data are read with pread.
    MmapIndexOnly,
    /// Both are read with pread.
    Standard,
}

/// How tables are compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compaction {
    /// Four tables of about one size become one.
    #[default]
    SizeTiered,
    /// Tables move down levels, each ten times as large as the one above.
    Leveled,
}

/// The database and the settings that matter here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Which one.
    pub engine: Engine,
    /// Copies of each row; at most the number of nodes.
    pub replication_factor: u32,
    /// How many of them a request waits for.
    pub consistency: Consistency,
    /// `concurrent_reads`: reads that a node works on at a time.
    pub concurrent_reads: u32,
    /// `concurrent_writes`: writes that a node works on at a time.
    pub concurrent_writes: u32,
    /// `disk_access_mode`.
    #[serde(default)]
    pub access: Access,
    /// `chunk_length_in_kb` of a compressed table, in bytes; absent: not compressed.
    #[serde(default)]
    pub chunk_bytes: Option<u32>,
    /// Compressed size in permille of the plain size.
    #[serde(default = "whole")]
    pub compressed_permille: u32,
    /// CPU that opens a byte of a chunk, in picoseconds.
    #[serde(default)]
    pub decompress_byte_ps: u64,
    /// How tables are compacted.
    #[serde(default)]
    pub compaction: Compaction,
    /// `commitlog_sync_period_in_ms`, in nanoseconds.
    #[serde(default = "ten_seconds")]
    pub commitlog_sync_period_ns: u64,
    /// `commitlog_segment_size_in_mb`, in bytes: a commit log that has grown by so much is synced at once.
    #[serde(default = "default_segment")]
    pub commitlog_segment_bytes: u64,
    /// Bytes of rows that a memtable takes before it is flushed.
    #[serde(default = "default_memtable")]
    pub memtable_bytes: u64,
    /// Rate at which one thread writes a table into the page cache: serialisation and checksums; zero:
    /// it takes no time.
    #[serde(default)]
    pub table_write_bytes_per_s: u64,
    /// `trickle_fsync_interval_in_kb`, in bytes: a table that has grown by so much is synced; absent:
    /// `trickle_fsync` is off, and it is synced at its end.
    #[serde(default)]
    pub trickle_fsync_bytes: Option<u64>,
    /// `compaction_throughput_mb_per_sec`, in bytes per second; zero: no limit.
    #[serde(default = "default_compaction")]
    pub compaction_bytes_per_s: u64,
    /// `dclocal_read_repair_chance` in parts per million: reads that go to every replica.
    #[serde(default)]
    pub read_repair_ppm: u32,
    /// Percentile of `speculative_retry`: a read that takes longer than so many of a hundred asks one replica more;
    /// zero: `NONE`.
    #[serde(default = "default_speculation")]
    pub speculative_percentile: u32,
    /// Whether a coordinator asks itself first, then replicas of its zone, as every snitch does but `SimpleSnitch`.
    #[serde(default = "yes")]
    pub near_first: bool,
    /// `dynamic_snitch_badness_threshold` in permille: by how much slower a replica must be to lose its place.
    #[serde(default = "default_badness")]
    pub snitch_badness_permille: u32,
}

/// `99PERCENTILE` of Cassandra 3.11, `99p` of 4.0 and later.
fn default_speculation() -> u32 {
    99
}

/// Cassandra 3.11's 0.1; 4.0 and later have 1.0.
fn default_badness() -> u32 {
    100
}

fn ten_seconds() -> u64 {
    10_000_000_000
}

/// Cassandra 3.11's default.
fn default_segment() -> u64 {
    32 << 20
}

/// A third of an 8 GiB heap's quarter for memtables is flushed at a time (Cassandra 3.11:
/// `memtable_cleanup_threshold` 1 / (1 + two flush writers), `memtable_heap_space_in_mb` a quarter of
/// the heap).
fn default_memtable() -> u64 {
    (2 << 30) / 3
}

/// Cassandra 3.11's default of 16 MB/s.
fn default_compaction() -> u64 {
    16 << 20
}

/// The rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// How many there are, without copies; the keys of all operations.
    pub rows: u64,
    /// Columns of a row.
    pub columns: u32,
    /// Bytes of each column's value; where rows have several sizes, their mean.
    pub column_bytes: u32,
    /// How many rows have columns of which size; absent: all have one.
    #[serde(default)]
    pub sizes: Option<Vec<Size>>,
    /// Bytes of a row in a table file; absent: the database's own overhead is added to the values.
    #[serde(default)]
    pub stored_row_bytes: Option<u32>,
    /// Bytes of a row's entry in the index; absent: as in the table of the 2019 study.
    #[serde(default)]
    pub index_entry_bytes: Option<u32>,
    /// Tables that the fill left on each node, in the order in which they were written, each with its share of the rows
    /// in millionths; empty: one table.
    #[serde(default)]
    pub tables_ppm: Vec<u32>,
}

/// The load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Share of reads in parts per million; what is left beside them and `others` are writes.
    pub read_ppm: u32,
    /// Other operations; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherOperations>,
    /// Which keys.
    pub keys: Keys,
    /// Of how many rows; the others are never asked for. Absent: of all.
    #[serde(default)]
    pub asked_rows: Option<u64>,
    /// Which stream keys are drawn from; absent: one of the run's seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_stream: Option<KeyStream>,
    /// Closed or open loop.
    pub load: Load,
    /// Ends the run.
    pub stop: Stop,
    /// Operations before this are not counted, nor do they count towards those that end the run, in nanoseconds.
    #[serde(default)]
    pub warm_up_ns: u64,
}

impl Workload {
    /// Whether nothing is written.
    pub fn only_reads(&self) -> bool {
        let scans = self.others.as_ref().map_or(0, |others| others.scan_ppm);
        self.read_ppm.saturating_add(scans) == 1_000_000
    }
}
