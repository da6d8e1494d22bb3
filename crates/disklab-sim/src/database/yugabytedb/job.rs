//! YugabyteDB under transactions.

use serde::{Deserialize, Serialize};

use crate::job::{ServerJob, Transaction};

/// A cluster of YugabyteDB. `tokens_per_node` and `ownership_ppm` mean nothing here: the leaders of tablets are spread evenly.
pub type SqlJob = ServerJob<SqlDatabase, SqlParameters, Table, SqlWorkload>;

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

/// What is fitted: times that no page states, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
