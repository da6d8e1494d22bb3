//! etcd as a job has it.

use serde::{Deserialize, Serialize};

use crate::job::{Before, Client, Cluster, Network, PostgresqlWorkload, Relation};

/// Members, their clients and their load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdJob {
    /// The members, each with all keys. `commitlog_volume` holds the log (`--wal-dir`).
    pub cluster: Cluster,
    /// Who sends the load; its connections are dealt out over the members in turn.
    pub client: Client,
    /// What lies between them.
    pub network: Network,
    /// The members' settings.
    pub database: EtcdSettings,
    /// One table, whose rows are the values of the keys.
    pub tables: Vec<Relation>,
    /// The load, as PostgreSQL has it: a statement gets or puts one key.
    pub workload: PostgresqlWorkload,
    /// Caches at the start: a member reads its whole database as it starts, so only the host's cache can be cold.
    #[serde(default)]
    pub before: Before,
    /// What no page states.
    pub parameters: EtcdParameters,
}

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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
