//! Where a database is, and how to speak to it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::Problem;

/// A database.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "protocol", rename_all = "lowercase")]
pub enum Target {
    /// Cassandra's native protocol.
    Cql(Cql),
    /// PostgreSQL's wire protocol, version 3.
    Postgresql(Postgresql),
}

/// A database that speaks CQL.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cql {
    /// `HOST:PORT` of some of its nodes.
    pub contact_points: Vec<String>,
    /// The role, where the cluster asks for one.
    #[serde(default)]
    pub user: Option<String>,
    /// Its password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Keyspace of the table.
    #[serde(default = "disklab")]
    pub keyspace: String,
    /// The table.
    #[serde(default = "rows")]
    pub table: String,
    /// Consistency level, in CQL's own words.
    #[serde(default)]
    pub consistency: Consistency,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

/// A database that speaks PostgreSQL's protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postgresql {
    /// `HOST:PORT` of servers that take writes; connections are dealt out over them in turn.
    pub contact_points: Vec<String>,
    /// The database.
    pub database: String,
    /// The role.
    pub user: String,
    /// Its password, where the server asks for one.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whether every connection is encrypted. There is no default and no fallback: TLS costs a third of a rate.
    pub tls: bool,
    /// Certificates (PEM) that the server's must come from, for the name that is connected to. None: encrypted, but
    /// whoever answers is believed.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The table of the rows workload.
    #[serde(default = "rows")]
    pub table: String,
    /// Run-time parameters of each session, such as `synchronous_commit`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

/// What nobody may read: it shows itself to nobody by accident.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a secret)")
    }
}

/// Who comes to a database.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

impl Cql {
    /// Who comes; none: the cluster asks nobody.
    pub fn login(&self) -> Option<Login> {
        let (user, password) = self.user.clone().zip(self.password.clone())?;
        Some(Login { user, password })
    }
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

impl Target {
    /// `HOST:PORT` of some of its nodes.
    pub fn contact_points(&self) -> &[String] {
        match self {
            Target::Cql(cql) => &cql.contact_points,
            Target::Postgresql(postgresql) => &postgresql.contact_points,
        }
    }

    /// The longest that an operation may take.
    pub fn request_timeout_ms(&self) -> u64 {
        match self {
            Target::Cql(cql) => cql.request_timeout_ms,
            Target::Postgresql(postgresql) => postgresql.request_timeout_ms,
        }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let names = match self {
            Target::Cql(cql) => vec![
                ("target.keyspace", &cql.keyspace),
                ("target.table", &cql.table),
            ],
            Target::Postgresql(postgresql) => postgresql
                .settings
                .keys()
                .map(|name| ("target.settings", name))
                .chain([("target.table", &postgresql.table)])
                .collect(),
        };
        let mut found: Vec<Problem> = names
            .into_iter()
            .filter_map(|(place, name)| name_problem(place, name))
            .collect();
        found.extend(point_problems(self.contact_points()));
        if self.request_timeout_ms() == 0 {
            found.push(Problem::new(
                "target.request_timeout_ms",
                0,
                "no operation ends in no time",
                "use 12000",
            ));
        }
        if let Target::Cql(cql) = self
            && cql.user.is_some() != cql.password.is_some()
        {
            found.push(Problem::new(
                "target.user",
                cql.user.as_deref().unwrap_or("none"),
                "a user has a password, and a password a user",
                "give both, or neither where the cluster asks for none",
            ));
        }
        if let Target::Postgresql(postgresql) = self
            && let Some(file) = postgresql.ca_file.as_ref().filter(|_| !postgresql.tls)
        {
            found.push(Problem::new(
                "target.ca_file",
                file.display(),
                "certificates are for TLS, which is off",
                "set tls, or leave the file out",
            ));
        }
        found
    }
}

fn name_problem(place: &str, name: &str) -> Option<Problem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let well = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain);
    (!well).then(|| {
        Problem::new(
            place,
            name,
            "a name is a small letter, then small letters, digits and _",
            "rename it",
        )
    })
}

fn point_problems(points: &[String]) -> Vec<Problem> {
    if points.is_empty() {
        let rule = "one address at least";
        return vec![Problem::new(
            "target.contact_points",
            "[]",
            rule,
            "give HOST:PORT",
        )];
    }
    let problem = |point: &String| {
        let error = point.to_socket_addrs().err()?;
        Some(Problem::new(
            "target.contact_points",
            point,
            format!("no such address: {error}"),
            "give HOST:PORT, such as 127.0.0.1:9042",
        ))
    };
    points.iter().filter_map(problem).collect()
}

fn disklab() -> String {
    "disklab".into()
}

fn rows() -> String {
    "rows".into()
}

/// Cassandra's own time-outs end at 10 s (truncate aside), so that its answer comes first.
fn twelve_seconds() -> u64 {
    12_000
}
