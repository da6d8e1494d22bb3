//! PostgreSQL under transactions: one server, or a primary whose commits standbys confirm.

use serde::{Deserialize, Serialize};

use super::{
    AccessKind, Before, Client, Cluster, Keys, Load, Network, SqlFaults, Stop, Transaction,
};

/// A server, its standbys, its clients and their transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlJob {
    /// The servers; the first is the primary, the others follow it. `commitlog_volume` holds the write-ahead log,
    /// `page_cache_bytes` is what the operating system has beside `shared_buffers`.
    pub cluster: Cluster,
    /// Who sends the load.
    pub client: Client,
    /// What lies between them.
    pub network: Network,
    /// The server's settings.
    pub database: PostgresqlSettings,
    /// Tables and secondary indexes.
    pub tables: Vec<Relation>,
    /// The load.
    pub workload: PostgresqlWorkload,
    /// State of the caches at the start.
    #[serde(default)]
    pub before: Before,
    /// What no page states.
    pub parameters: PostgresqlParameters,
    /// What breaks meanwhile; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<SqlFaults>,
}

/// The settings that matter here, by their names in postgresql.conf.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlSettings {
    /// Standbys that have to have a commit on their disks (`synchronous_standby_names = 'ANY n (...)'`).
    pub synchronous_standbys: u32,
    /// Whether messages of clients are encrypted.
    pub tls: bool,
    /// `shared_buffers`.
    pub shared_buffers_bytes: u64,
    /// `max_wal_size`.
    pub max_wal_bytes: u64,
    /// `checkpoint_timeout`.
    pub checkpoint_timeout_ns: u64,
    /// `checkpoint_completion_target`, in permille.
    pub checkpoint_completion_permille: u32,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// `synchronous_commit`: whether a commit waits for its log at all.
    pub synchronous_commit: bool,
    /// `bgwriter_delay`.
    pub bgwriter_delay_ns: u64,
    /// `bgwriter_lru_maxpages`.
    pub bgwriter_most_pages: u32,
}

/// A table with the index of its primary key, or a secondary index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// Its name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Bytes of a row in its page, with its header and its pointer; zero: it is an index alone.
    pub row_bytes: u32,
    /// Bytes of a row's entry in the index, with its pointer.
    pub entry_bytes: u32,
    /// How many rows take how many bytes, where `row_bytes` is their mean; absent: all take that.
    #[serde(default)]
    pub sizes: Option<Vec<RowSize>>,
    /// Sessions that have filled it in the order of its keys, a row each at a time; zero or one: it lies in that order.
    ///
    /// **Divergence:** rows of several sizes lie in the order of their keys in any case.
    #[serde(default)]
    pub fill_sessions: u32,
    /// Places at which rows are added behind those that are there, in MariaDB: a district of TPC-C has one; zero: the end.
    #[serde(default)]
    pub ends: u32,
    /// Whether it is an index that was built over rows that were there, in MariaDB: its leaves are full, and split.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub built_full: bool,
}

/// One of the sizes that rows of a table have.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSize {
    /// Bytes of such a row in its page, with its header and its pointer.
    pub row_bytes: u32,
    /// How many of a million rows have it.
    pub share_ppm: u32,
}

/// The load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlWorkload {
    /// What is done; each session draws its next transaction by their shares.
    pub transactions: Vec<Transaction>,
    /// Sessions of a closed loop, or the arrivals of an open one.
    pub load: Load,
    /// Connections that the sessions share: a transaction holds one; absent: each has its own.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Which rows accesses by keys take.
    pub keys: Keys,
    /// Of how many rows; the others are never asked for. Absent: of all.
    #[serde(default)]
    pub asked_rows: Option<u64>,
    /// Which stream keys are drawn from; absent: one of the run's seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_stream: Option<super::KeyStream>,
    /// Ends the run.
    pub stop: Stop,
    /// Transactions and time before this are not counted, in nanoseconds.
    #[serde(default)]
    pub warm_up_ns: u64,
}

impl PostgresqlWorkload {
    /// Whether nothing is written.
    pub fn only_reads(&self) -> bool {
        let statements = self.transactions.iter().flat_map(|kind| &kind.statements);
        statements
            .flat_map(|statement| &statement.accesses)
            .all(|access| access.kind == AccessKind::Read)
    }
}

/// Times that no page states, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresqlParameters {
    /// Time of a statement that no queue explains: hand-overs between client and backend.
    pub overhead_ns: u64,
    /// CPU of the client for a statement.
    pub client_cpu_ns: u64,
    /// CPU of a backend for a statement: the message, binding, execution, the answer.
    pub statement_cpu_ns: u64,
    /// CPU of a backend at each end of an encrypted message.
    pub tls_cpu_ns: u64,
    /// CPU of a backend for each row that it finds: down the index, and its page.
    pub row_read_cpu_ns: u64,
    /// CPU of a backend for each row that it changes: the page, its index entries, the log's records.
    pub row_write_cpu_ns: u64,
    /// CPU of a backend for each further row of a run: the next entry, its page, the answer.
    #[serde(default)]
    pub scan_row_cpu_ns: u64,
    /// CPU of a backend for each page that it reads from the operating system: the call, a victim, the copy.
    pub page_read_cpu_ns: u64,
    /// CPU of a commit: writing the log and waking who waits for it.
    pub commit_cpu_ns: u64,
}
