//! What a load run is asked to do: one JSON object.
//!
//! The figures are those of the whole load; each [`Generator`] takes its own part of them.

use std::net::ToSocketAddrs;

use disklab_units::Duration;
use serde::Deserialize;

use crate::error::{LoadError, Problem};

/// A whole run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Seeds every random stream, and the content of the rows.
    #[serde(default)]
    pub seed: u64,
    /// Where the database is.
    pub target: Target,
    /// What the operations are.
    pub workload: Workload,
    /// Who starts them.
    pub load: Load,
    /// When it ends: at the first that is reached.
    pub stop: Stop,
    /// Which part of the load this process makes.
    #[serde(default)]
    pub generator: Generator,
    /// Time between progress lines.
    #[serde(default = "a_second")]
    pub interval_ms: u64,
}

/// A database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// How to speak to it.
    pub protocol: Protocol,
    /// `HOST:PORT` of some of its nodes.
    pub contact_points: Vec<String>,
    /// Keyspace of the table.
    #[serde(default = "keyspace")]
    pub keyspace: String,
    /// The table.
    #[serde(default = "table")]
    pub table: String,
    /// Consistency level, in CQL's own words.
    #[serde(default)]
    pub consistency: Consistency,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

/// How to speak to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Cassandra's native protocol.
    Cql,
}

/// How many replicas must answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)] // the words are CQL's
pub enum Consistency {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    #[default]
    LocalQuorum,
    EachQuorum,
    LocalOne,
}

/// What the operations are.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Whole rows of one table, by key.
    Rows(Rows),
}

/// Whole rows of one table, by key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Rows in the table (with `latest`: before the run).
    pub rows: u64,
    /// Value columns of a row: `c0`, `c1`, ...
    pub columns: u32,
    /// Size of each.
    pub column_bytes: u32,
    /// Which rows.
    pub keys: KeyOrder,
    /// Exponent of `zipfian` and `latest`.
    #[serde(default = "ycsb_theta")]
    pub theta: f64,
    /// What is done with them.
    pub operations: Operations,
    /// Whether every byte of every row read is compared with what was written.
    #[serde(default = "yes")]
    pub verify: bool,
    /// Seeds the content of the rows; the job's seed when left out. A fill and the runs that read it have the same one.
    #[serde(default)]
    pub content_seed: Option<u64>,
}

/// Which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // see keys.rs
pub enum KeyOrder {
    Sequential,
    Uniform,
    Zipfian,
    Latest,
}

/// Shares of the operations; they need not add up to one.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// Reads of a whole row by its key.
    #[serde(default)]
    pub read: f64,
    /// Writes of a whole row by its key.
    #[serde(default)]
    pub write: f64,
}

/// Who starts the operations.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Load {
    /// The end of another one: so many are always in flight.
    Closed(Closed),
    /// The clock, whatever the database does.
    Open(Open),
}

/// A closed loop.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Operations in flight.
    pub threads: u32,
}

/// An open loop.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Offered rate.
    pub rate_per_s: f64,
    /// How the arrivals lie in time.
    #[serde(default)]
    pub arrivals: Spacing,
    /// Operations in flight; arrivals beyond wait, and their response time runs.
    #[serde(default = "four_thousand")]
    pub max_in_flight: u32,
}

/// How arrivals lie in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Independent of each other, as those of many users are.
    #[default]
    Poisson,
    /// All gaps alike.
    Even,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// After so many operations, failed ones included.
    #[serde(default)]
    pub operations: Option<u64>,
    /// After so long.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// As failed, when nothing has succeeded for so long and something has failed.
    #[serde(default = "half_a_minute")]
    pub give_up_s: f64,
}

/// One of several processes that make a load together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Which: `0..count`.
    pub index: u32,
    /// Of how many.
    pub count: u32,
}

impl Default for Generator {
    fn default() -> Generator {
        Generator { index: 0, count: 1 }
    }
}

impl Generator {
    /// This generator's part of `whole` things; the parts of all add up to it.
    pub fn part(&self, whole: u64) -> u64 {
        let upto =
            |index: u32| u128::from(whole) * u128::from(index) / u128::from(self.count.max(1));
        (upto(self.index + 1) - upto(self.index)) as u64
    }
}

/// The most operations in flight of one generator: one connection has 32768 stream numbers.
/// **Source:** Cassandra's native protocol version 4, section 2.3.
const MOST_IN_FLIGHT: u32 = 32_768;

/// The largest row: Cassandra refuses mutations larger than half a commit log segment (32 MiB).
const LARGEST_ROW_BYTES: u64 = 16 << 20;

impl Job {
    /// Reads a job; all that is wrong with its values at once.
    pub fn parse(text: &str) -> Result<Job, LoadError> {
        let job: Job = serde_json::from_str(text).map_err(|error| {
            let place = format!("job:{}:{}", error.line(), error.column());
            let way_out = "give a job as in crates/disklab-load/src/job.rs";
            Problem::new(place, "job", error.to_string(), way_out)
        })?;
        let problems = job.problems();
        if problems.is_empty() {
            Ok(job)
        } else {
            Err(LoadError { problems })
        }
    }

    /// The part of the threads, or of the bound of an open loop, that this generator has.
    pub fn slots(&self) -> u32 {
        let whole = match self.load {
            Load::Closed(closed) => closed.threads,
            Load::Open(open) => open.max_in_flight,
        };
        self.generator.part(u64::from(whole)) as u32
    }

    /// The longest that an operation may take.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.target.request_timeout_ms)
    }

    /// How long nothing may succeed: as asked, but not before two operations in a row could have timed out.
    pub fn give_up(&self) -> Duration {
        let two_timeouts = self.target.request_timeout_ms.saturating_mul(2_000_000);
        let asked = (self.stop.give_up_s * 1e9) as u64;
        Duration::from_nanos(asked.max(two_timeouts))
    }

    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut rule = |holds: bool, place: &str, value: String, rule: &str, way_out: &str| {
            if !holds {
                found.push(Problem::new(place, value, rule, way_out));
            }
        };
        let Generator { index, count } = self.generator;
        rule(
            index < count,
            "generator",
            format!("{index} of {count}"),
            "generators are numbered from 0",
            "use an index below the count",
        );
        rule(
            (1..=3_600_000).contains(&self.interval_ms),
            "interval_ms",
            self.interval_ms.to_string(),
            "an interval is a millisecond to an hour",
            "use 1000",
        );
        rule(
            self.stop.operations.is_some() || self.stop.duration_s.is_some(),
            "stop",
            "{}".into(),
            "a run has an end",
            "give operations, duration_s or both",
        );
        rule(
            self.stop
                .duration_s
                .is_none_or(|s| s > 0.0 && s <= 31_536_000.0),
            "stop.duration_s",
            format!("{:?}", self.stop.duration_s),
            "a run lasts longer than 0 s and at most a year",
            "give seconds",
        );
        rule(
            self.stop.give_up_s > 0.0,
            "stop.give_up_s",
            self.stop.give_up_s.to_string(),
            "some time has to pass",
            "use 30",
        );
        found.extend(self.target.problems());
        let Workload::Rows(rows) = &self.workload;
        found.extend(rows.problems());
        found.extend(self.load_problems());
        found
    }

    fn load_problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let (place, slots) = match self.load {
            Load::Closed(closed) => ("load.threads", closed.threads),
            Load::Open(open) => {
                if !(open.rate_per_s > 0.0 && open.rate_per_s <= 10_000_000.0) {
                    found.push(Problem::new(
                        "load.rate_per_s",
                        open.rate_per_s,
                        "a rate is above 0 and at most 10,000,000 operations a second",
                        "give operations a second",
                    ));
                }
                ("load.max_in_flight", open.max_in_flight)
            }
        };
        if slots < self.generator.count {
            found.push(Problem::new(
                place,
                slots,
                format!(
                    "each of {} generators has at least one in flight",
                    self.generator.count
                ),
                "use more of them or fewer generators",
            ));
        } else if self.generator.index < self.generator.count && self.slots() > MOST_IN_FLIGHT {
            found.push(Problem::new(
                place,
                slots,
                format!("a generator has at most {MOST_IN_FLIGHT} in flight: stream numbers of one connection"),
                "use more generators",
            ));
        }
        found
    }
}

impl Target {
    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        for (place, name) in [
            ("target.keyspace", &self.keyspace),
            ("target.table", &self.table),
        ] {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
                found.push(Problem::new(
                    place,
                    name,
                    "a name is a small letter, then small letters, digits and _",
                    "rename it",
                ));
            }
        }
        if self.contact_points.is_empty() {
            found.push(Problem::new(
                "target.contact_points",
                "[]",
                "one address at least",
                "give HOST:PORT",
            ));
        }
        for point in &self.contact_points {
            if let Err(error) = point.to_socket_addrs() {
                found.push(Problem::new(
                    "target.contact_points",
                    point,
                    format!("no such address: {error}"),
                    "give HOST:PORT, such as 127.0.0.1:9042",
                ));
            }
        }
        if self.request_timeout_ms == 0 {
            found.push(Problem::new(
                "target.request_timeout_ms",
                0,
                "no operation ends in no time",
                "use 12000",
            ));
        }
        found
    }
}

impl Rows {
    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let bytes = u64::from(self.columns) * u64::from(self.column_bytes);
        if self.rows == 0 || self.rows > i64::MAX as u64 / 2 {
            found.push(Problem::new(
                "workload.rows",
                self.rows,
                "a table has at least one row, and a key is a bigint",
                "give the number of rows that the fill writes",
            ));
        }
        if bytes == 0 || bytes > LARGEST_ROW_BYTES {
            found.push(Problem::new(
                "workload.columns x column_bytes",
                format!("{} x {}", self.columns, self.column_bytes),
                "a row has 1 byte to 16 MiB: half a commit log segment is Cassandra's limit",
                "use smaller rows",
            ));
        }
        let Operations { read, write } = self.operations;
        let share = |ratio: f64| ratio.is_finite() && ratio >= 0.0;
        if !share(read) || !share(write) || read + write <= 0.0 {
            found.push(Problem::new(
                "workload.operations",
                format!("read {read}, write {write}"),
                "shares are not negative, and one of them is above 0",
                "use {\"read\": 1.0}",
            ));
        }
        if !(self.theta > 0.0 && self.theta <= 10.0) {
            found.push(Problem::new(
                "workload.theta",
                self.theta,
                "the exponent of a zipfian distribution is above 0 and at most 10",
                "use 0.99, or keys: uniform for no preference",
            ));
        }
        found
    }
}

fn a_second() -> u64 {
    1_000
}

fn keyspace() -> String {
    "disklab".into()
}

fn table() -> String {
    "rows".into()
}

/// Cassandra's own time-outs end at 10 s (truncate aside), so that its answer comes first.
fn twelve_seconds() -> u64 {
    12_000
}

/// The exponent of the Yahoo! Cloud Serving Benchmark (SoCC 2010).
fn ycsb_theta() -> f64 {
    0.99
}

/// Longer than Cassandra's pauses for a full collection or a restart of a node, shorter than a user's patience.
fn half_a_minute() -> f64 {
    30.0
}

fn yes() -> bool {
    true
}

fn four_thousand() -> u32 {
    4_096
}
