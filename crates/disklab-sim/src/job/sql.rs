//! A distributed SQL database under transactions.
//!
//! A transaction is a list of statements, a statement a list of accesses to rows of tables. What
//! sysbench or TPC-C send is data in that form, so that the simulator knows neither.

use disklab_units::popularity::Preferred;
use serde::{Deserialize, Serialize};

use super::{Before, Client, Cluster, Network};

/// A cluster, its clients and their transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlJob {
    /// The database's nodes. `tokens_per_node` and `ownership_ppm` mean nothing here: the leaders of
    /// tablets are spread evenly.
    pub cluster: Cluster,
    /// Who sends the load.
    pub client: Client,
    /// What lies between them.
    pub network: Network,
    /// The database and its settings.
    pub database: SqlDatabase,
    /// Tables and secondary indexes.
    pub tables: Vec<Table>,
    /// The load.
    pub workload: SqlWorkload,
    /// State of the caches at the start.
    #[serde(default)]
    pub before: Before,
    /// What cannot be looked up and is fitted to measurements.
    pub parameters: SqlParameters,
}

/// Which SQL database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SqlEngine {
    /// YugabyteDB (YSQL).
    Yugabytedb,
}

/// The database and the settings that matter here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlDatabase {
    /// Which one.
    pub engine: SqlEngine,
    /// Copies of each tablet; at most the number of nodes.
    pub replication_factor: u32,
    /// Whether messages are encrypted, those of clients and those between nodes.
    pub tls: bool,
    /// Plain bytes of a block of a table file (`db_block_size_bytes`).
    pub block_bytes: u32,
    /// Compressed size in permille of the plain size.
    pub compressed_permille: u32,
    /// Memory for plain blocks (`db_block_cache_size_percentage` of the server's memory).
    pub block_cache_bytes: u64,
    /// Reads that look into one block more than the row's: bloom filters that were wrong, in parts
    /// per million of the rows read.
    pub extra_block_ppm: u32,
    /// A tablet's log is synced once in this time (`interval_durable_wal_write_ms`), if anything
    /// was appended, in nanoseconds.
    pub wal_sync_period_ns: u64,
    /// Memory for the memstores of a node (`global_memstore_size_mb_max`). A fill has gone before, so
    /// that they are full: each flush writes one tablet's share of it.
    pub memstore_bytes: u64,
    /// Limit of flush and compaction together (`rocksdb_compact_flush_rate_limit_bytes_per_sec`); zero:
    /// none.
    pub compaction_bytes_per_s: u64,
}

/// A table or a secondary index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Rows, without copies.
    pub rows: u64,
    /// Plain bytes of a stored row.
    pub row_bytes: u32,
    /// Tablets, without copies.
    pub tablets: u32,
}

/// The load: a closed loop of sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlWorkload {
    /// What is done; each session draws its next transaction by their shares.
    pub transactions: Vec<Transaction>,
    /// Threads, or terminals.
    pub sessions: u32,
    /// Connections that the sessions share: a transaction holds one; absent: each has its own.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Ends the run, warm-up included, in nanoseconds of virtual time.
    pub duration_ns: u64,
    /// Transactions and time before this are not counted, in nanoseconds.
    #[serde(default)]
    pub warm_up_ns: u64,
}

/// A kind of transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// Its name in the answer.
    pub name: String,
    /// How often it is drawn, as a share of the sum over all kinds.
    pub share_ppm: u32,
    /// Whether the answer's rate and latencies count it; TPC-C counts new orders only.
    #[serde(default = "super::yes")]
    pub counted: bool,
    /// Time that a person takes to fill in the form, before the transaction.
    #[serde(default)]
    pub keying_ns: u64,
    /// Mean time to read the answer, after it; exponential, cut at ten times the mean as TPC-C says.
    #[serde(default)]
    pub think_ns: u64,
    /// What it sends, one after the other. Each is a round trip of the client.
    pub statements: Vec<Statement>,
}

/// A statement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// How often in a row.
    #[serde(default = "once")]
    pub times: u32,
    /// Whether it came with the statement before, in a batch or a procedure: no round trip of the
    /// client.
    #[serde(default)]
    pub inside: bool,
    /// Whether it ends a transaction of PostgreSQL, whose log has to be on the disk if it wrote.
    #[serde(default)]
    pub commits: bool,
    /// Under which name the answer reports its latencies; absent: not at all.
    #[serde(default)]
    pub reported_as: Option<String>,
    /// Bytes of the request and of the answer together.
    pub bytes: u32,
    /// What it touches, all at the same time; the statement ends with the last of them.
    #[serde(default)]
    pub accesses: Vec<RowAccess>,
}

fn once() -> u32 {
    1
}

/// An access to rows of one tablet: one message to its leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowAccess {
    /// The table's name.
    pub table: String,
    /// What is done.
    pub kind: AccessKind,
    /// How many rows, one after the other.
    #[serde(default = "once")]
    pub rows: u32,
    /// Which rows.
    #[serde(default)]
    pub draw: RowDraw,
    /// Bytes that a write adds for each row; absent: a whole row. An update writes the columns that
    /// change, a lock hardly anything.
    #[serde(default)]
    pub written_bytes: Option<u32>,
}

/// What an access does with its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// Reads them, on the leader alone.
    Read,
    /// Reads and writes them.
    Update,
    /// Writes them without reading.
    Insert,
    /// Reads them and marks them as taken, in PostgreSQL.
    Lock,
    /// Reads them and marks them as gone, in PostgreSQL.
    Delete,
}

/// Which rows of a tablet an access takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowDraw {
    /// Each as likely as the others.
    #[default]
    Uniform,
    /// TPC-C's non-uniform draw among the `group` rows of one warehouse or district.
    Nurand {
        /// The constant A of the draw.
        a: u32,
        /// Rows among which it chooses.
        group: u32,
    },
    /// As sysbench prefers rows.
    Preferred {
        /// Which ones.
        how: Preference,
    },
    /// Rows next to each other, from a random one on.
    Run,
    /// The same, from a preferred one on.
    PreferredRun {
        /// Which ones.
        how: Preference,
    },
    /// Rows written or read a moment ago: in memory for sure.
    Recent,
    /// As the workload's keys say, in PostgreSQL.
    Keys,
    /// From such a row on, 1 to `most` of them that follow each other, in PostgreSQL.
    KeyRun {
        /// Rows at most; each number from one on is as likely.
        most: u32,
    },
}

impl RowDraw {
    /// Whether a row follows the one before, where the access has several.
    pub fn follows(self) -> bool {
        matches!(
            self,
            RowDraw::Run | RowDraw::PreferredRun { .. } | RowDraw::KeyRun { .. }
        )
    }
}

/// sysbench's `--rand-type`, but `uniform`: see [`Preferred`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// A hundredth of the rows three times in four.
    Special,
    /// A bell.
    Gaussian,
    /// Four fifths to the first fifth.
    Pareto,
    /// Zipf's distribution.
    Zipfian,
}

impl Preference {
    /// What draws it.
    pub fn rows(self) -> Preferred {
        match self {
            Preference::Special => Preferred::Special,
            Preference::Gaussian => Preferred::Gaussian,
            Preference::Pareto => Preferred::Pareto,
            Preference::Zipfian => Preferred::Zipfian,
        }
    }
}

/// What is fitted: times that no page states, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlParameters {
    /// Time of a statement that no queue explains: hand-overs between client, backend and server.
    pub overhead_ns: u64,
    /// The same of a round of replication: batching, log and RPC threads.
    pub replication_overhead_ns: u64,
    /// CPU of the client for a statement.
    pub client_cpu_ns: u64,
    /// CPU of the SQL layer for a statement.
    pub statement_cpu_ns: u64,
    /// CPU at each end of a message between SQL layer and tablets, and between replicas.
    pub message_cpu_ns: u64,
    /// CPU at each end of a message for its encryption, where it is encrypted.
    pub tls_cpu_ns: u64,
    /// CPU of a leader for each row that it reads.
    pub row_read_cpu_ns: u64,
    /// CPU of each replica for a round of replication.
    pub write_cpu_ns: u64,
    /// CPU of each replica for each row of it; as much again when the transaction has ended and the
    /// row leaves the provisional records.
    pub row_write_cpu_ns: u64,
    /// CPU for each block that comes from disk or page cache: checksum and decompression.
    pub block_cpu_ns: u64,
    /// How often compaction writes a flushed byte again, in thousandths; it reads as much.
    pub rewrites_permille: u64,
}
