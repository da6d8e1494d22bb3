//! PostgreSQL under transactions: one server, or a primary whose commits standbys confirm.

use serde::{Deserialize, Serialize};

use crate::job::ServerJob;

/// Servers of PostgreSQL: the first is the primary, the others follow it. `page_cache_bytes` is what the operating system
/// has beside `shared_buffers`.
pub type PostgresqlJob = ServerJob<PostgresqlSettings, PostgresqlParameters>;

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

/// Times that no page states, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
