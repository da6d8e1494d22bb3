//! Where a database is, and how to speak to it.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Problem;

/// What a job says of a database, whichever its protocol is.
pub trait Protocol: Debug {
    /// `HOST:PORT` of some of its nodes.
    fn contact_points(&self) -> &[String];

    /// The longest that an operation may take.
    fn request_timeout_ms(&self) -> u64;

    /// The most operations in flight of one generator, and why.
    fn most_in_flight(&self) -> (u32, &'static str);

    /// What is wrong with the rest of it.
    fn problems(&self) -> Vec<Problem>;

    /// Operations on rows that this client does not do, and why; none: it does all.
    fn lacks(&self) -> (&'static [&'static str], &'static str) {
        (&[], "")
    }
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
    /// Whether every connection is encrypted; if so, none is ever made without.
    #[serde(default)]
    pub tls: bool,
    /// Certificates (PEM) that a node's must come from, for its address. None: encrypted, but any server is believed.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
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
    /// One of the servers alone takes writes, and which one it is may change: each connection looks for it along the
    /// list, as libpq's `target_session_attrs=read-write` does.
    #[serde(default)]
    pub read_write: bool,
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
    /// any server is believed.
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

/// The most operations in flight of one generator: one connection has 32768 stream numbers.
/// **Source:** Cassandra's native protocol version 4, section 2.3.
const MOST_STREAMS: u32 = 32_768;

/// The most connections of one generator: PostgreSQL's own limit is far below it on any machine with less than a
/// terabyte, and the ports of one address are 28,000.
const MOST_CONNECTIONS: u32 = 10_000;

impl Protocol for Cql {
    fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms
    }

    fn most_in_flight(&self) -> (u32, &'static str) {
        (MOST_STREAMS, "stream numbers of one connection")
    }

    fn problems(&self) -> Vec<Problem> {
        let names = [
            ("target.keyspace", &self.keyspace),
            ("target.table", &self.table),
        ];
        let named = names
            .into_iter()
            .filter_map(|(place, name)| name_problem(place, name));
        let mut found: Vec<Problem> = named.collect();
        if self.user.is_some() != self.password.is_some() {
            found.push(Problem::new(
                "target.user",
                self.user.as_deref().unwrap_or("none"),
                "a user has a password, and a password a user",
                "give both, or neither where the cluster asks for none",
            ));
        }
        found.extend(needless_authorities(self.tls, self.ca_file.as_deref()));
        found
    }
}

impl Protocol for Postgresql {
    fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms
    }

    fn most_in_flight(&self) -> (u32, &'static str) {
        (
            MOST_CONNECTIONS,
            "each is a connection and a process of the server",
        )
    }

    fn problems(&self) -> Vec<Problem> {
        let settings = self.settings.keys().map(|name| ("target.settings", name));
        let names = settings.chain([("target.table", &self.table)]);
        let mut found: Vec<Problem> = names
            .filter_map(|(place, name)| name_problem(place, name))
            .collect();
        found.extend(needless_authorities(self.tls, self.ca_file.as_deref()));
        found
    }
}

/// Why certificates are for nothing.
pub fn needless_authorities(tls: bool, ca_file: Option<&Path>) -> Option<Problem> {
    let file = ca_file.filter(|_| !tls)?;
    Some(Problem::new(
        "target.ca_file",
        file.display(),
        "certificates are for TLS, which is off",
        "set tls, or leave the file out",
    ))
}

/// What is wrong with a target.
pub(super) fn target_problems(target: &dyn Protocol) -> Vec<Problem> {
    let mut found = target.problems();
    found.extend(point_problems(target.contact_points()));
    if target.request_timeout_ms() == 0 {
        found.push(Problem::new(
            "target.request_timeout_ms",
            0,
            "no operation ends in no time",
            "use 12000",
        ));
    }
    found
}

/// Why a word cannot name a table, a setting or the like.
pub fn name_problem(place: &str, name: &str) -> Option<Problem> {
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

/// The usual table.
pub fn rows() -> String {
    "rows".into()
}

/// Cassandra's own time-outs end at 10 s (truncate aside), so that its answer comes first.
pub fn twelve_seconds() -> u64 {
    12_000
}
