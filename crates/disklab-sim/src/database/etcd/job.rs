//! etcd as a job has it.

use serde::{Deserialize, Serialize};

use crate::job::ServerJob;

/// Members of etcd, each with all keys; `commitlog_volume` holds the log (`--wal-dir`). Connections are dealt out over the
/// members in turn. One table has the values of the keys as rows, and a statement gets or puts one key. A member reads its whole
/// database as it starts, so only the host's cache can be cold.
pub type EtcdJob = ServerJob<EtcdSettings, EtcdParameters>;

/// The settings that matter here, by the names of their flags.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// Whether messages are encrypted, those of clients and those between members.
    pub tls: bool,
    /// `--heartbeat-interval`.
    pub heartbeat_ns: u64,
    /// `--election-timeout`.
    pub election_ns: u64,
    /// `--backend-batch-interval`: how often puts are committed to the database file.
    pub batch_interval_ns: u64,
    /// `--backend-batch-limit`: after so many puts they are committed earlier.
    pub batch_puts: u64,
    /// `--snapshot-count`: entries between two snapshots.
    pub snapshot_entries: u64,
    /// Writes of the file system's journal behind a sync that changes metadata.
    #[serde(default)]
    pub journal_writes: u32,
}

/// Times, in nanoseconds, and bytes that no page states.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdParameters {
    /// Time of a request that no queue explains: wake-ups of client, gRPC and the member's goroutines.
    pub overhead_ns: u64,
    /// CPU of the client for a request.
    pub client_cpu_ns: u64,
    /// CPU of a member that takes a request: the call, its checks, the answer.
    pub request_cpu_ns: u64,
    /// CPU of a member that proposes a put, or applies one.
    pub put_cpu_ns: u64,
    /// CPU of a member for a message of another one.
    pub message_cpu_ns: u64,
    /// CPU at each end of an encrypted message.
    pub tls_cpu_ns: u64,
    /// Bytes of a put in the log, beside its value.
    pub entry_bytes: u64,
}
