//! What the operations are.

use disklab_units::sizes::{self, Size};
use serde::Deserialize;

use crate::content::{Content, KINDS, VERSION_BYTES};
use crate::error::Problem;
use crate::versions::Known;

/// The largest row: Cassandra refuses mutations larger than half a commit log segment (32 MiB).
const LARGEST_ROW_BYTES: u64 = 16 << 20;

/// Rows of a scan: their answer is one message, and with rows of 16 MiB as long as a message may be.
const MOST_SCAN_ROWS: u32 = 10_000;

/// Item and customer numbers of all warehouses fit 64 bits many times over; a warehouse's number is an SQL integer.
const MOST_WAREHOUSES: u32 = 1_000_000;

/// What the operations are.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Whole rows of one table, by key.
    Rows(Rows),
    /// TPC-C, a stage of it.
    Tpcc(Tpcc),
}

/// TPC-C, a stage of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tpcc {
    /// Warehouses.
    pub warehouses: u32,
    /// What is done.
    pub stage: Stage,
    /// Whether terminals key in and think, as the standard asks.
    #[serde(default = "yes")]
    pub keying_and_thinking: bool,
    /// Terminals of a warehouse that key in and think.
    #[serde(default = "ten")]
    pub terminals_per_warehouse: u32,
}

/// A part of TPC-C that is a job of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Makes the tables anew and fills them.
    Load,
    /// The five transactions.
    Run,
    /// The consistency conditions.
    Check,
}

/// Whole rows of one table, by key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Rows in the table (with `latest`: before the run).
    pub rows: u64,
    /// Value columns of a row: `c0`, `c1`, ...
    pub columns: u32,
    /// Size of each; where rows have several sizes, their mean.
    pub column_bytes: u32,
    /// How many rows have columns of which size; which row has which hangs on its key. Without it: all have one.
    #[serde(default)]
    pub sizes: Option<Vec<Size>>,
    /// Which rows.
    pub keys: KeyOrder,
    /// How many of them are asked for; the others never are. Without it: all.
    #[serde(default)]
    pub asked_rows: Option<u64>,
    /// Exponent of `zipfian` and `latest`.
    #[serde(default = "ycsb_theta")]
    pub theta: f64,
    /// What is done with them.
    pub operations: Operations,
    /// Rows of a scan at most; each number from one on is as likely. YCSB's E has 100.
    #[serde(default = "hundred")]
    pub scan_rows: u32,
    /// Whether every byte of every row read is compared with what was written.
    #[serde(default = "yes")]
    pub verify: bool,
    /// Seeds the content of the rows; the job's seed when left out. A fill and the runs that read it have the same one.
    #[serde(default)]
    pub content_seed: Option<u64>,
    /// Whether each write has a version, so that stale reads and lost updates are counted; and what an earlier run has
    /// told of the versions in the table.
    #[serde(default)]
    pub versions: Option<Known>,
}

/// Which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // see keys.rs
pub enum KeyOrder {
    Sequential,
    Uniform,
    Gaussian,
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
    /// Writes of a whole row that was not there, at the end of the table.
    #[serde(default)]
    pub insert: f64,
    /// Writes of one column of a row.
    #[serde(default)]
    pub update: f64,
    /// Deletes of a row.
    #[serde(default)]
    pub delete: f64,
    /// Reads of 1 to `scan_rows` rows that follow each other.
    #[serde(default)]
    pub scan: f64,
    /// Reads of a row, then writes of all of it.
    #[serde(default)]
    pub read_modify_write: f64,
}

impl Operations {
    /// Shares in the order of the names that a run says.
    pub fn shares(&self) -> [f64; 7] {
        [
            self.read,
            self.write,
            self.insert,
            self.update,
            self.delete,
            self.scan,
            self.read_modify_write,
        ]
    }

    /// Those that are asked for.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        let shares = KINDS.into_iter().zip(self.shares());
        shares
            .filter(|(_, share)| *share > 0.0)
            .map(|(name, _)| name)
    }
}

impl Workload {
    /// Whether it ends by itself, when all of it is done.
    pub(super) fn ends(&self) -> bool {
        matches!(self, Workload::Tpcc(tpcc) if tpcc.stage != Stage::Run)
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        match self {
            Workload::Rows(rows) => rows.problems(),
            Workload::Tpcc(tpcc) => tpcc.problems(),
        }
    }
}

impl Rows {
    /// Bytes of each column of the smallest rows, and of the largest.
    fn column_bytes_range(&self) -> (u32, u32) {
        let sizes = self.sizes.iter().flatten().map(|size| size.column_bytes);
        let (least, most) = (sizes.clone().min(), sizes.max());
        let one = self.column_bytes;
        (least.unwrap_or(one), most.unwrap_or(one))
    }

    /// What stands in them.
    pub fn content(&self, seed: u64) -> Content {
        let seed = self.content_seed.unwrap_or(seed);
        let mut content = Content::new(seed, self.columns, self.column_bytes);
        if let Some(sizes) = &self.sizes {
            content = content.with_sizes(sizes);
        }
        match self.versions {
            None => content,
            Some(_) => content.with_versions(),
        }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let (_, most) = self.column_bytes_range();
        let bytes = u64::from(self.columns) * u64::from(most);
        if let Some(rule) = self.sizes.as_deref().and_then(sizes::problem) {
            found.push(Problem::new(
                "workload.sizes",
                format!("{:?}", self.sizes),
                rule,
                "use [{\"column_bytes\": 200, \"share_ppm\": 600000}, ...]",
            ));
        }
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
                format!("{} x {most}", self.columns),
                "a row has 1 byte to 16 MiB: half a commit log segment is Cassandra's limit",
                "use smaller rows",
            ));
        }
        let shares = self.operations.shares();
        let share = |ratio: &f64| ratio.is_finite() && *ratio >= 0.0;
        if !shares.iter().all(share) || shares.iter().sum::<f64>() <= 0.0 {
            found.push(Problem::new(
                "workload.operations",
                format!("{:?}", self.operations),
                "shares are not negative, and one of them is above 0",
                "use {\"read\": 1.0}",
            ));
        }
        if let Some(asked) = self.asked_rows
            && (asked == 0 || asked > self.rows || self.keys == KeyOrder::Latest)
        {
            found.push(Problem::new(
                "workload.asked_rows",
                asked,
                "it is at least one and at most all rows, and with `latest` the newest are asked for",
                "leave it out to ask for all rows",
            ));
        }
        if !(1..=MOST_SCAN_ROWS).contains(&self.scan_rows) {
            found.push(Problem::new(
                "workload.scan_rows",
                self.scan_rows,
                format!("a scan reads 1 to {MOST_SCAN_ROWS} rows"),
                "use 100, as YCSB does",
            ));
        }
        found.extend(self.version_problems());
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

    fn version_problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let Some(known) = &self.versions else {
            return found;
        };
        let unversioned = self.operations.update + self.operations.delete;
        if unversioned > 0.0 {
            found.push(Problem::new(
                "workload.versions",
                format!("{:?}", self.operations),
                "a version belongs to a whole row, and updates of one column and deletes have none",
                "leave out versions, or update and delete",
            ));
        }
        let (least, _) = self.column_bytes_range();
        if least < VERSION_BYTES as u32 || !self.verify {
            found.push(Problem::new(
                "workload.versions",
                format!("column_bytes {least}, verify {}", self.verify),
                format!(
                    "a version is in the first {VERSION_BYTES} bytes of a row that is verified"
                ),
                "use larger columns, or leave versions out",
            ));
        }
        if let Some(why) = known.problem() {
            found.push(Problem::new(
                "workload.versions",
                "rows, failed",
                format!("numbers of 8 bytes in base64: {why}"),
                "give what the last line of the earlier run says in versions.known",
            ));
        }
        found
    }
}

impl Tpcc {
    /// Terminals of the whole run: those that rest, or one for each of `connections`.
    pub fn terminals(&self, connections: u32) -> u32 {
        if self.keying_and_thinking {
            self.warehouses * self.terminals_per_warehouse
        } else {
            connections
        }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if !(1..=MOST_WAREHOUSES).contains(&self.warehouses) {
            found.push(Problem::new(
                "workload.warehouses",
                self.warehouses,
                format!("one warehouse at least, {MOST_WAREHOUSES} at most"),
                "use 10: a gigabyte",
            ));
        }
        if !(1..=1_000).contains(&self.terminals_per_warehouse) {
            found.push(Problem::new(
                "workload.terminals_per_warehouse",
                self.terminals_per_warehouse,
                "a warehouse has 1 to 1000 terminals",
                "use the standard's 10",
            ));
        }
        found
    }
}

/// The exponent of the Yahoo! Cloud Serving Benchmark (SoCC 2010).
fn ycsb_theta() -> f64 {
    disklab_units::popularity::YCSB_THETA
}

/// **Source:** `maxscanlength` of YCSB 0.17.0's workload E.
fn hundred() -> u32 {
    100
}

fn yes() -> bool {
    true
}

/// **Source:** TPC-C, clause 4.2.2.
fn ten() -> u32 {
    10
}
