//! MariaDB's InnoDB under transactions: one server, with a replica, or in a Galera cluster.

use serde::{Deserialize, Serialize};

use crate::job::{ServerJob, one, yes};

/// A server of MariaDB or MySQL, and how many hold its rows. Rows of tables lie in the leaves of their primary key; `row_bytes`
/// of secondary indexes are zero.
pub type MariadbJob = ServerJob<MariadbSettings, MariadbParameters>;

/// The settings that matter here, by their names in my.cnf.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MariadbSettings {
    /// Whether messages of clients are encrypted.
    pub tls: bool,
    /// `innodb_buffer_pool_size`.
    pub buffer_pool_bytes: u64,
    /// `innodb_log_file_size`.
    pub log_file_bytes: u64,
    /// Whether a commit waits for the redo log (`innodb_flush_log_at_trx_commit=1`); otherwise it is synced once a second.
    pub syncs_redo: bool,
    /// Whether there is a binary log (`log_bin`).
    pub writes_binlog: bool,
    /// `sync_binlog`: it is synced with each so many groups of commits, which wait; 0: Linux writes it back.
    pub sync_binlog: u32,
    /// Whether it has whole rows, before and after a change: `binlog_format=MIXED` at READ COMMITTED; otherwise the statements.
    #[serde(default)]
    pub binlog_rows: bool,
    /// What a commit waits for at other servers.
    #[serde(default)]
    pub replication: Replication,
    /// `wsrep_slave_threads`: how many threads of a node of Galera apply changes of others.
    #[serde(default = "one")]
    pub applier_threads: u32,
    /// Name of the volume with the binary log; absent: that of the redo log.
    #[serde(default)]
    pub binlog_volume: Option<String>,
    /// Writes of the file system's journal behind those of the binary log, one after the other: a sync of a file that has grown
    /// logs its size. The redo log's file has its size from the start.
    #[serde(default)]
    pub binlog_journal_writes: u32,
    /// `innodb_doublewrite`.
    pub doublewrite: bool,
    /// Pages that are written together, first into the doublewrite buffer: MySQL's `innodb_doublewrite_pages`.
    #[serde(default = "batch_pages")]
    pub doublewrite_pages: u32,
    /// Batches of it on their way at once: of MariaDB, and of MySQL before 8.0.20, one; of later ones that of each cleaner.
    #[serde(default = "one")]
    pub doublewrite_batches: u32,
    /// What such a batch waits for before the next one takes its place.
    #[serde(default)]
    pub doublewrite_until: BatchEnd,
    /// Writes of the file system's journal behind each sync of a file of which only the content has changed, and with it the time of
    /// its change: none for fdatasync, MySQL's `innodb_use_fdatasync`.
    #[serde(default)]
    pub time_journal_writes: u32,
    /// `innodb_max_dirty_pages_pct_lwm`: percent of the pool above which changed pages are written whatever the age of the log; 0: none.
    #[serde(default)]
    pub dirty_pages_pct_lwm: u32,
    /// Whether a row that finds its leaf full takes the tree's lock alone: MariaDB's way, not MySQL's.
    #[serde(default = "yes")]
    pub splits_exclude_searches: bool,
    /// `innodb_change_buffering`, of inserts.
    #[serde(default)]
    pub change_buffering: bool,
    /// `innodb_io_capacity`.
    pub io_capacity: u32,
    /// `innodb_io_capacity_max`.
    pub io_capacity_max: u32,
    /// Whether the page cleaner goes in passes: MariaDB's way, not MySQL's, whose changed pages leave the pool once they are written.
    #[serde(default = "yes")]
    pub lru_passes: bool,
    /// `innodb_lru_scan_depth`.
    pub lru_scan_depth: u32,
    /// `innodb_old_blocks_pct`.
    pub old_blocks_pct: u32,
    /// `innodb_old_blocks_time`.
    pub old_blocks_time_ns: u64,
}

/// **Source:** `buf_dblwr_t::create` of MariaDB 10.11: two blocks of an extent each.
fn batch_pages() -> u32 {
    128
}

/// When a batch of the doublewrite buffer has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchEnd {
    /// Its copies are synced, and then its pages in their places: MariaDB's, and MySQL's before 8.0.20.
    #[default]
    Synced,
    /// Its copies are synced, and Linux has its pages in the page cache: of MySQL from 8.0.20 on, whose files are not opened with O_DIRECT.
    Cached,
    /// Its pages are in their places, and nothing is synced: the same with O_DIRECT.
    Placed,
}

/// What a commit waits for at other servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// Nothing.
    #[default]
    Alone,
    /// A replica has its changes, which are sent when they are in the binary log (`rpl_semi_sync_master_enabled`).
    SemiSync,
    /// All nodes of a Galera cluster have them, before they go to the logs here.
    Galera,
}

/// Times, in nanoseconds, and bytes that no page states.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MariadbParameters {
    /// Time of a statement that no queue explains.
    pub overhead_ns: u64,
    /// CPU of the client for a statement.
    pub client_cpu_ns: u64,
    /// CPU of the server for a statement: the message, parsing, the answer.
    pub statement_cpu_ns: u64,
    /// CPU of the server at each end of an encrypted message.
    pub tls_cpu_ns: u64,
    /// CPU of the server for the first row that an access finds.
    pub row_read_cpu_ns: u64,
    /// CPU of the server for each row that it changes.
    pub row_write_cpu_ns: u64,
    /// CPU of the server for each further row of a run.
    pub scan_row_cpu_ns: u64,
    /// CPU of the server for each page that it reads: the call, a free page, its checksum.
    pub page_read_cpu_ns: u64,
    /// CPU of the server for each page that it writes.
    pub page_write_cpu_ns: u64,
    /// CPU of a commit that wrote.
    pub commit_cpu_ns: u64,
    /// CPU at each end of a commit's changes that go to another server.
    #[serde(default)]
    pub replication_cpu_ns: u64,
    /// Redo log of a changed row or entry, beside the bytes that change.
    pub redo_row_bytes: u64,
    /// Redo log of a transaction that wrote.
    pub redo_commit_bytes: u64,
    /// Binary log of such a transaction.
    pub binlog_commit_bytes: u64,
}
