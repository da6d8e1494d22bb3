//! MySQL's wire protocol, as MariaDB speaks it: a connection for each operation in flight.
//!
//! The few messages that rows need are encoded here: a connection does one statement at a time, and an answer is looked
//! at where it was received.
//!
//! ```text
//! wire    a connection: handshake, TLS, prepared statements
//! texts   statements as text
//! rows    the rows workload
//! ```

pub mod rows;
pub mod texts;
mod wire;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::clients::pool::{NoConnection, Server};
use crate::error::Problem;
use crate::job::share::Share;
use crate::job::target::Protocol;
use crate::job::target::{Secret, name_problem, needless_authorities, rows, twelve_seconds};
use crate::workloads::Failure;
use wire::Wire;

/// Where a point names none.
const PORT: u16 = 3306;

/// The most connections of one generator: MariaDB's own limit of `max_connections`.
const MOST_CONNECTIONS: u32 = 100_000;

/// A database that speaks MySQL's protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mysql {
    /// `HOST:PORT` of servers that take writes; connections are dealt out over them in turn.
    pub contact_points: Vec<String>,
    /// One of the servers alone takes writes, and which one it is may change: each connection looks for it along the
    /// list.
    #[serde(default)]
    pub read_write: bool,
    /// The database.
    pub database: String,
    /// Who logs in, with `mysql_native_password`.
    pub user: String,
    /// The password, where the server asks for one.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whether every connection is encrypted; a job must say so, and a refused TLS handshake is an error.
    pub tls: bool,
    /// Certificates (PEM) that the server's must come from, for the name that is connected to. None: encrypted, but
    /// any server is believed.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The table of the rows workload.
    #[serde(default = "rows")]
    pub table: String,
    /// Variables of each session, such as `sql_log_bin`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

impl Protocol for Mysql {
    fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms
    }

    fn most_in_flight(&self) -> (u32, &'static str) {
        (
            MOST_CONNECTIONS,
            "each is a connection and a thread of the server",
        )
    }

    fn lacks(&self) -> (&'static [&'static str], &'static str) {
        (&["update"], "InnoDB leaves out a change to what is there")
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

fn servers(share: &Share, target: &Mysql) -> Vec<Server> {
    // The server's own time-out, so that a statement that this side has given up does not go on for long.
    let limit_us = share.timeout.as_nanos() / 1_000;
    let limit_s = format!("{}.{:06}", limit_us / 1_000_000, limit_us % 1_000_000);
    let mut options = format!("SET SESSION max_statement_time = {limit_s}");
    for (name, value) in &target.settings {
        options.push_str(&format!(
            ", SESSION {name} = '{}'",
            value.replace('\'', "''")
        ));
    }
    let of = |point: &String| {
        let (host, port) = Server::place(point, PORT);
        Server {
            host,
            port,
            database: target.database.clone(),
            user: target.user.clone(),
            password: target.password.clone(),
            options: options.clone(),
            read_write: target.read_write,
        }
    };
    target.contact_points.iter().map(of).collect()
}

fn problem(why: NoConnection, target: &Mysql) -> Problem {
    const FORM: &str = "`key` bigint PRIMARY KEY, c0 longblob, c1 longblob, ...";
    why.into_problem(&target.contact_points, &target.database, target.tls, FORM)
}

/// Whether the server takes changes, by its own word.
async fn takes_changes(wire: &mut Wire) -> Result<bool, NoConnection> {
    let answers = wire.query("SELECT @@GLOBAL.read_only").await;
    let answers = answers.map_err(|error| NoConnection::Unreachable(error.into_failure()))?;
    let rows = answers.iter().flat_map(|answer| &answer.rows);
    Ok(rows.flatten().flatten().eq(["0"]))
}

/// Whether a failure is the last word of its connection: the server goes down, or has ended it.
fn is_end(failure: &Failure) -> bool {
    ["1053 ", "1927 ", "connection_lost", "protocol"]
        .iter()
        .any(|kind| failure.kind.starts_with(kind))
}

/// What an error of the server is counted as. **Source:** MariaDB's documentation, "MariaDB Error Codes".
fn code_kind(code: u16) -> Cow<'static, str> {
    const USUAL: [&str; 15] = [
        "1020 record_changed",
        "1021 disk_full",
        "1030 engine_error",
        "1040 too_many_connections",
        "1045 access_denied",
        "1047 not_in_cluster",
        "1053 server_shutdown",
        "1062 duplicate_key",
        "1146 no_such_table",
        "1205 lock_wait_timeout",
        "1213 deadlock",
        "1290 read_only",
        "1317 query_interrupted",
        "1927 connection_killed",
        "1969 statement_timeout",
    ];
    let known = USUAL.into_iter().find(|kind| {
        let number = kind.split(' ').next().and_then(|word| word.parse().ok());
        number == Some(code)
    });
    known.map_or_else(|| Cow::Owned(format!("{code} error")), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_errors_are_counted_by_their_number() {
        assert_eq!(code_kind(1213), "1213 deadlock");
        assert_eq!(code_kind(4031), "4031 error");
    }
}
