//! What a load run is asked to do: one JSON object.
//!
//! The figures are those of the whole load; each [`Generator`] takes its own part of them.

pub(crate) mod share;
pub(crate) mod target;
pub(crate) mod workload;

use std::path::PathBuf;

use disklab_units::{Dilation, Duration};
use serde::Deserialize;

use crate::error::{LoadError, Problem};

pub use crate::clients::Target;
pub use share::Generator;
use share::Share;
pub use target::{
    Consistency, Cql, Login, Postgresql, Secret, name_problem, needless_authorities, rows,
    twelve_seconds,
};
pub use workload::{KeyOrder, Operations, Rows, Stage, Tpcc, Workload};

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
    /// Once ready, wait for this file to say when to begin: a moment of this host's clock, nanoseconds since 1970. So
    /// generators of several hosts begin together. A name without a folder is one in the working directory.
    #[serde(default)]
    pub begin_file: Option<PathBuf>,
    /// Time between progress lines.
    #[serde(default = "a_second")]
    pub interval_ms: u64,
    /// Seconds of this machine for each second of the described system. Rates, durations and time-outs here and all
    /// times in the output are the described system's, but for `interval_ms` and processor time.
    #[serde(default)]
    pub time_dilation: Dilation,
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
    /// Operations a second at most: each also waits until it is due at that rate, and its latency is from when it
    /// starts. None: it starts at once.
    #[serde(default)]
    pub at_most_per_s: Option<f64>,
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

impl Load {
    /// The arrivals by which operations are due; None: they are due at once.
    pub fn arrivals(&self) -> Option<Open> {
        match *self {
            Load::Open(open) => Some(open),
            Load::Closed(closed) => closed.at_most_per_s.map(|rate_per_s| Open {
                rate_per_s,
                arrivals: Spacing::Even,
                max_in_flight: closed.threads,
            }),
        }
    }

    fn rate_place(&self) -> &'static str {
        match self {
            Load::Closed(_) => "load.at_most_per_s",
            Load::Open(_) => "load.rate_per_s",
        }
    }
}

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

    /// Whether operations start by the clock: in an open loop, and where terminals rest.
    pub fn is_timed(&self) -> bool {
        let rests = matches!(&self.workload, Workload::Tpcc(tpcc) if tpcc.keying_and_thinking);
        rests || self.load.arrivals().is_some()
    }

    /// The longest that an operation may take.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.target.request_timeout_ms())
    }

    /// What its clients need of it.
    pub fn share(&self) -> Share {
        Share {
            seed: self.seed,
            generator: self.generator,
            slots: self.slots() as usize,
            timeout: self.time_dilation.span_of_machine(self.request_timeout()),
        }
    }

    /// How long nothing may succeed: as asked, but not before two operations in a row could have timed out.
    pub fn give_up(&self) -> Duration {
        let two_timeouts = self.target.request_timeout_ms().saturating_mul(2_000_000);
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
            self.stop.operations.is_some()
                || self.stop.duration_s.is_some()
                || self.workload.ends(),
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
        found.extend(target::target_problems(self.target.protocol()));
        found.extend(self.workload.problems());
        if let Workload::Tpcc(_) = &self.workload {
            found.extend(self.tpcc_problems());
        }
        if let Workload::Rows(rows) = &self.workload {
            found.extend(self.rows_problems(rows));
        }
        found.extend(self.load_problems());
        found
    }

    fn rows_problems(&self, rows: &Rows) -> Vec<Problem> {
        let count = self.generator.count;
        let mut found = Vec::new();
        if rows.versions.is_some() && count != 1 {
            found.push(Problem::new(
                "workload.versions",
                format!("{count} generators"),
                "only who writes all versions of a row knows which is the last",
                "use one generator",
            ));
        }
        let (lacks, why) = self.target.protocol().lacks();
        let lacking = rows.operations.named().filter(|name| lacks.contains(name));
        found.extend(lacking.map(|name| {
            let place = format!("workload.operations.{name}");
            let rule = format!("{} has no {name}: {why}", self.target.name());
            Problem::new(
                place,
                name,
                rule,
                "use read, write, insert or another database",
            )
        }));
        found
    }

    fn tpcc_problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if !matches!(self.target, Target::Postgresql(_) | Target::Mysql(_)) {
            found.push(Problem::new(
                "target.protocol",
                self.target.name(),
                "TPC-C is transactions in SQL",
                "use a database that speaks PostgreSQL's or MySQL's protocol, or the workload rows",
            ));
        }
        if let Some(arrivals) = self.load.arrivals() {
            found.push(Problem::new(
                self.load.rate_place(),
                arrivals.rate_per_s,
                "TPC-C's rate is what its terminals make of their keying and think times",
                "give threads, the number of connections; more warehouses make a higher rate",
            ));
        }
        if self.generator.count != 1 {
            found.push(Problem::new(
                "generator.count",
                self.generator.count,
                "one process has all terminals of a TPC-C run",
                "use one generator: a core does thousands of transactions a second",
            ));
        }
        found
    }

    fn load_problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let rate = self.load.arrivals().map(|arrivals| arrivals.rate_per_s);
        if let Some(rate) = rate
            && !(rate > 0.0 && rate <= 10_000_000.0)
        {
            found.push(Problem::new(
                self.load.rate_place(),
                rate,
                "a rate is above 0 and at most 10,000,000 operations a second",
                "give operations a second",
            ));
        }
        let (place, slots) = match self.load {
            Load::Closed(closed) => ("load.threads", closed.threads),
            Load::Open(open) => ("load.max_in_flight", open.max_in_flight),
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
            return found;
        }
        let (most, why) = self.target.protocol().most_in_flight();
        if self.generator.index < self.generator.count && self.slots() > most {
            found.push(Problem::new(
                place,
                slots,
                format!("a generator has at most {most} in flight: {why}"),
                "use fewer or more generators",
            ));
        }
        found
    }
}

fn a_second() -> u64 {
    1_000
}

/// Longer than Cassandra's pauses for a full collection or a restart of a node, shorter than a user's patience.
fn half_a_minute() -> f64 {
    30.0
}

fn four_thousand() -> u32 {
    4_096
}
