//! PostgreSQL's wire protocol: a connection for each operation in flight.
//!
//! A backend of the server does one statement at a time, so only more connections put more of them on the disk at once.
//! Rows have two statements and speak the protocol themselves (`wire.rs`); TPC-C's many are tokio-postgres's
//! (`driver.rs`).

pub mod decimal;
mod driver;
pub mod rows;
mod wire;

use std::borrow::Cow;

pub use driver::{Driver, Session, Statements, failure};

use crate::clients::pool::{Connect, NoConnection, Pool, Server};
use crate::error::{LoadError, Problem};
use crate::job::share::Share;
use crate::job::target::Postgresql;
use crate::workloads::Failure;

/// Where a point names none.
const PORT: u16 = 5432;

/// What a server says of which changes may come, as libpq and the JDBC driver ask: a standby refuses all.
/// **Source:** PostgreSQL 15's manual, 34.1.2 (`target_session_attrs`).
const TAKES_CHANGES: &str = "SELECT NOT current_setting('transaction_read_only')::bool";

fn servers(share: &Share, target: &Postgresql, settings: &[(&str, &str)]) -> Vec<Server> {
    // The server's own time-out, so that a statement that this side has given up does not go on for long.
    let limit_ms = share.timeout.as_nanos() / 1_000_000;
    let mut options = format!("-c statement_timeout={limit_ms}");
    let own = target.settings.iter();
    let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in settings.iter().copied().chain(own) {
        options.push_str(&format!(" -c {name}={}", value.replace(' ', "\\ ")));
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

/// Connects `count` slots. `settings` are run-time parameters of the sessions.
async fn connected<C: Connect>(
    share: &Share,
    target: &Postgresql,
    settings: &[(&str, &str)],
    connector: C,
    count: usize,
) -> Result<Pool<C>, LoadError> {
    let servers = servers(share, target, settings);
    let pool = Pool::connected(share.seed, servers, connector, count).await;
    pool.map_err(|why| problem(why, target).into())
}

fn problem(why: NoConnection, target: &Postgresql) -> Problem {
    const FORM: &str = "key bigint PRIMARY KEY, c0 bytea, c1 bytea, ...";
    why.into_problem(&target.contact_points, &target.database, target.tls, FORM)
}

/// Whether a failure is the last word of its connection: the server says so (class 57P) some time before it closes it.
fn is_end(failure: &Failure) -> bool {
    ["57P", "connection_lost", "protocol"]
        .iter()
        .any(|kind| failure.kind.starts_with(kind))
}

/// What an error of the server is counted as. **Source:** PostgreSQL 15's manual, appendix A.
fn state_kind(code: &str) -> Cow<'static, str> {
    const USUAL: [&str; 13] = [
        "40001 serialization_failure",
        "40P01 deadlock_detected",
        "23505 unique_violation",
        "55P03 lock_not_available",
        "57014 query_canceled",
        "57P01 admin_shutdown",
        "57P02 crash_shutdown",
        "57P03 cannot_connect_now",
        "53300 too_many_connections",
        "53100 disk_full",
        "53200 out_of_memory",
        "58030 io_error",
        "42P01 undefined_table",
    ];
    let known = USUAL
        .into_iter()
        .find(|kind| kind.split(' ').next() == Some(code));
    known.map_or_else(|| Cow::Owned(format!("{code} sqlstate")), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_states_are_counted_by_their_code() {
        assert_eq!(state_kind("40P01"), "40P01 deadlock_detected");
        assert_eq!(state_kind("XX123"), "XX123 sqlstate");
    }
}
