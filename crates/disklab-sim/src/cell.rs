//! One cell of a matrix as the simulator takes it: everything resolved, every number with its unit.
//!
//! The JSON form is the contract between `disklab predict` and `disklab-engine simulate` (see
//! docs/contracts/7-simulated-cells.md). Unknown fields are refused.

use disklab_disk::{Refusal, Rules};
use serde::{Deserialize, Serialize};

use crate::check::{check_device, check_file};
use crate::database::{cassandra, etcd, mariadb, postgresql, yugabytedb};
use crate::model::Setting;
use crate::report::Report;
use crate::simulate::{self, simulate_one};

pub use crate::database::cassandra::job::*;
pub use crate::database::cassandra::operations::OtherOperations;
pub use crate::database::cassandra::parameters::Parameters;
pub use crate::database::etcd::job::*;
pub use crate::database::mariadb::job::*;
pub use crate::database::postgresql::job::*;
pub use crate::database::yugabytedb::job::*;
pub use crate::job::*;

/// Most I/Os that are told one by one: more than an eye follows.
const MOST_JOURNAL: u32 = 1_000;

/// One cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Given", into = "Given")]
pub struct Job {
    /// The caller's number for it; comes back in the answer.
    pub cell: u64,
    /// Start of every random stream.
    pub seed: u64,
    /// How much of the cell is simulated.
    pub fidelity: Fidelity,
    /// Mechanisms that are switched off, to see what each is worth.
    pub ablate: Vec<Mechanism>,
    /// Which I/Os are told one by one; none: no such list.
    pub journal: Option<Journal>,
    /// What is simulated.
    pub kind: Kind,
    /// Database cells that follow on the same cluster and data, in order; their caches may be `as-left`.
    pub then: Vec<Follower>,
}

/// Declares what can be simulated: its key in JSON, its job, the rules of that, and how a cell of it is simulated.
macro_rules! kinds {
    ($($(#[$about:meta])* $key:ident => $kind:ident($job:ty), $check:path, $simulate:path $(, $then:ident)?;)+) => {
        /// What is simulated; in JSON a key of its own.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "there is one for each job")]
        pub enum Kind {
            $($(#[$about])* $kind($job),)+
        }

        /// A job as its JSON has it: exactly one of the kinds is given.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Given {
            cell: u64,
            seed: u64,
            #[serde(default)]
            fidelity: Fidelity,
            #[serde(default)]
            ablate: Vec<Mechanism>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            journal: Option<Journal>,
            $(#[serde(default, skip_serializing_if = "Option::is_none")]
            $key: Option<$job>,)+
            #[serde(default)]
            then: Vec<Follower>,
        }

        impl TryFrom<Given> for Job {
            type Error = String;

            fn try_from(given: Given) -> Result<Job, String> {
                let kinds = [$(given.$key.map(Kind::$kind)),+];
                let mut kinds = kinds.into_iter().flatten();
                let (Some(kind), None) = (kinds.next(), kinds.next()) else {
                    let keys = [$(stringify!($key)),+].join(", ");
                    return Err(format!("a cell has exactly one of these keys: {keys}"));
                };
                Ok(Job {
                    cell: given.cell,
                    seed: given.seed,
                    fidelity: given.fidelity,
                    ablate: given.ablate,
                    journal: given.journal,
                    kind,
                    then: given.then,
                })
            }
        }

        impl From<Job> for Given {
            fn from(job: Job) -> Given {
                let mut given = Given {
                    cell: job.cell,
                    seed: job.seed,
                    fidelity: job.fidelity,
                    ablate: job.ablate,
                    journal: job.journal,
                    then: job.then,
                    ..Given::default()
                };
                match job.kind {
                    $(Kind::$kind(own) => given.$key = Some(own),)+
                }
                given
            }
        }

        impl Job {
            /// The rules of its kind.
            fn check_kind(&self, rules: &mut Rules) {
                match &self.kind {
                    $(Kind::$kind(own) => $check(rules, own),)+
                }
            }

            /// Simulates its cell, and those that follow it. It is checked.
            fn simulate(&self) -> Result<Vec<Report>, Refusal> {
                let setting = self.setting();
                match &self.kind {
                    $(Kind::$kind(own) => $simulate(&setting, own $(, &self.$then)?),)+
                }
            }
        }
    };
}

kinds! {
    /// Cassandra under rows.
    database => Cassandra(DatabaseJob), cassandra::check, cassandra::simulate, then;
    /// YugabyteDB under transactions.
    sql => Yugabytedb(SqlJob), yugabytedb::check, simulate_one::<yugabytedb::Yugabytedb>;
    /// PostgreSQL under transactions.
    postgresql => Postgresql(PostgresqlJob), postgresql::check, simulate_one::<postgresql::Postgresql>;
    /// InnoDB of MariaDB, or MySQL, under transactions.
    mariadb => Mariadb(MariadbJob), mariadb::check, simulate_one::<mariadb::Mariadb>;
    /// etcd under requests.
    etcd => Etcd(EtcdJob), etcd::check, simulate_one::<etcd::Etcd>;
    /// One device under fio, or under a trace.
    device => Device(DeviceJob), check_device, simulate::device;
    /// A file that one reader reads through the page cache.
    file => File(FileJob), check_file, simulate::file;
}

impl Job {
    /// How its own cell is simulated, at full scale.
    fn setting(&self) -> Setting<'_> {
        Setting {
            cell: self.cell,
            fidelity: self.fidelity,
            scale: 1,
            seed: self.seed,
            pass: 0,
            off: &self.ablate,
            journal: self.journal,
        }
    }
}

/// Simulates a cell, the first one of a job. Refuses a job that breaks a rule, with every reason.
pub fn simulate(job: &Job) -> Result<Report, Refusal> {
    Ok(simulate_all(job)?.swap_remove(0))
}

/// Simulates a cell and those that follow it, in order. Refuses a job that breaks a rule, with every reason.
pub fn simulate_all(job: &Job) -> Result<Vec<Report>, Refusal> {
    check(job)?;
    job.simulate()
}

/// Checks everything that the disk model does not check itself.
pub fn check(job: &Job) -> Result<(), Refusal> {
    let mut rules = Rules::default();
    job.check_kind(&mut rules);
    match &job.kind {
        Kind::Cassandra(first) => cassandra::check_cells(&mut rules, first, &job.then, job.seed),
        _ => rules.must(
            job.then.is_empty(),
            "then",
            job.then.len(),
            "only cells of a database follow each other",
            "leave it out",
        ),
    }
    let wanted = job.journal.map_or(0, |journal| journal.most);
    rules.must(
        wanted <= MOST_JOURNAL && (wanted == 0 || !matches!(job.kind, Kind::File(_))),
        "journal.most",
        wanted,
        &format!("up to {MOST_JOURNAL} I/Os of disks are told one by one; a file has no disk"),
        "ask for fewer, or leave it out",
    );
    rules.verdict()
}
