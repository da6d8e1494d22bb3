//! Databases of servers under transactions.
//!
//! A transaction is a list of statements, a statement a list of accesses to rows of tables. What
//! sysbench or TPC-C send is data in that form, so that the simulator knows neither.

use disklab_units::popularity::Preferred;
use serde::{Deserialize, Serialize};

use super::{Before, Client, Cluster, KeyStream, Keys, Load, Network, SqlFaults, Stop, one, yes};

/// Servers, their clients and their transactions; of each database with its settings `S` and what no page states of it, `P`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerJob<S, P, T = Relation, W = PostgresqlWorkload> {
    /// The servers. `commitlog_volume` holds the log that commits wait for.
    pub cluster: Cluster,
    /// Who sends the load.
    pub client: Client,
    /// What lies between them.
    pub network: Network,
    /// The database's settings.
    pub database: S,
    /// Tables and secondary indexes.
    pub tables: Vec<T>,
    /// The load.
    pub workload: W,
    /// State of the caches at the start.
    #[serde(default)]
    pub before: Before,
    /// What no page states.
    pub parameters: P,
    /// What breaks meanwhile; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<SqlFaults>,
}

/// A table with the index of its primary key, or a secondary index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    pub key_stream: Option<KeyStream>,
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

/// A kind of transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// Its name in the answer.
    pub name: String,
    /// How often it is drawn, as a share of the sum over all kinds.
    pub share_ppm: u32,
    /// Whether the answer's rate and latencies count it; TPC-C counts new orders only.
    #[serde(default = "yes")]
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
    #[serde(default = "one")]
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

/// An access to rows of one tablet: one message to its leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowAccess {
    /// The table's name.
    pub table: String,
    /// What is done.
    pub kind: AccessKind,
    /// How many rows, one after the other.
    #[serde(default = "one")]
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
