//! PostgreSQL's wire protocol, by tokio-postgres: a connection for each operation in flight.
//!
//! A backend of the server does one statement at a time, so only more connections put more of them on the disk at once.

pub mod decimal;
pub mod rows;
mod tls;

use std::borrow::Cow;
use std::cell::RefCell;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{LoadError, Problem};
use crate::job::{Job, Postgresql};
use crate::workloads::Failure;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that are opened beside each other: enough to hide the way to the server, few enough for its queue of new
/// ones (a listen backlog of 128 on old kernels).
const CONNECTING: usize = 32;

/// The statements of a workload, prepared once on each connection.
pub trait Statements {
    /// The prepared ones.
    type Prepared;

    /// Prepares them.
    fn prepare(&self, client: &Client) -> impl Future<Output = Result<Self::Prepared, Error>>;
}

/// No statement is prepared: each is asked once.
pub struct Unprepared;

impl Statements for Unprepared {
    type Prepared = ();

    async fn prepare(&self, _: &Client) -> Result<(), Error> {
        Ok(())
    }
}

/// A connection with its prepared statements. Dropping it closes the connection at once, whatever is under way.
struct Session<P> {
    client: Client,
    prepared: P,
    driver: JoinHandle<()>,
}

impl<P> Drop for Session<P> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection for each slot, made anew when it was lost or given up.
pub struct Sessions<S: Statements> {
    servers: Vec<Config>,
    tls: Option<MakeRustlsConnect>,
    statements: S,
    slots: Vec<RefCell<Option<Session<S::Prepared>>>>,
}

/// Why there is no session.
enum NoSession {
    Unreachable(Error),
    Refused(Error),
}

impl<S: Statements> Sessions<S> {
    /// Connects `count` slots to the servers in turn and prepares their statements.
    ///
    /// `settings` are run-time parameters of the sessions.
    pub async fn open(
        job: &Job,
        target: &Postgresql,
        settings: &[(&str, &str)],
        statements: S,
        count: usize,
    ) -> Result<Sessions<S>, LoadError> {
        allow_open_files(count);
        let sessions = Sessions {
            servers: servers(job, target, settings),
            tls: target
                .tls
                .then(|| tls::connector(target.ca_file.as_deref()))
                .transpose()?,
            statements,
            slots: (0..count).map(|_| RefCell::default()).collect(),
        };
        stream::iter(0..count)
            .map(async |slot| {
                let session = sessions.connect(slot).await?;
                sessions.slots[slot].replace(Some(session));
                Ok(())
            })
            .buffer_unordered(CONNECTING)
            .try_collect::<()>()
            .await
            .map_err(|why: NoSession| why.as_problem(target))?;
        Ok(sessions)
    }

    /// Does `work` on the slot's connection. A connection that was lost is made anew by the next operation; one whose
    /// operation is given up before it ends is closed, because its answer would be taken for the next one's.
    pub async fn with<T>(
        &self,
        slot: usize,
        work: impl AsyncFnOnce(&Client, &S::Prepared) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let kept = self.slots[slot].take();
        let session = match kept.filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => self
                .connect(slot)
                .await
                .map_err(|why| failure(why.error()))?,
        };
        let done = work(&session.client, &session.prepared).await;
        if done.as_ref().err().is_none_or(|failure| !is_end(failure)) {
            self.slots[slot].replace(Some(session));
        }
        done
    }

    async fn connect(&self, slot: usize) -> Result<Session<S::Prepared>, NoSession> {
        let server = &self.servers[slot % self.servers.len()];
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let connected = server.connect(tls.clone()).await;
                let (client, connection) = connected.map_err(NoSession::Unreachable)?;
                (client, tokio::task::spawn_local(drive(connection)))
            }
            None => {
                let connected = server.connect(NoTls).await;
                let (client, connection) = connected.map_err(NoSession::Unreachable)?;
                (client, tokio::task::spawn_local(drive(connection)))
            }
        };
        let prepared = self.statements.prepare(&client).await;
        match prepared {
            Ok(prepared) => Ok(Session {
                client,
                prepared,
                driver,
            }),
            Err(error) => {
                driver.abort();
                Err(NoSession::Refused(error))
            }
        }
    }
}

/// Sends and receives until the connection ends; why it does is told to the operation that waits.
async fn drive(connection: impl Future<Output = Result<(), Error>>) {
    let _ = connection.await;
}

fn servers(job: &Job, target: &Postgresql, settings: &[(&str, &str)]) -> Vec<Config> {
    // The server's own time-out, so that a statement that this side has given up does not go on for long.
    let limit_ms = job.request_timeout_here().as_nanos() / 1_000_000;
    let mut options = format!("-c statement_timeout={limit_ms}");
    for (name, value) in settings {
        options.push_str(&format!(" -c {name}={}", value.replace(' ', "\\ ")));
    }
    let of = |point: &String| {
        let mut config = Config::new();
        // The points were resolved when the job was read; the port is what follows the last colon.
        if let Some((host, port)) = point.rsplit_once(':') {
            config.host(host.trim_matches(['[', ']']));
            config.port(port.parse().unwrap_or(5432));
        }
        config
            .dbname(&target.database)
            .user(&target.user)
            .application_name("disklab")
            .connect_timeout(CONNECT_TIMEOUT)
            .ssl_mode(if target.tls {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .options(&options);
        if let Some(password) = &target.password {
            config.password(password);
        }
        config
    };
    target.contact_points.iter().map(of).collect()
}

impl NoSession {
    fn error(&self) -> &Error {
        match self {
            NoSession::Unreachable(error) | NoSession::Refused(error) => error,
        }
    }

    fn as_problem(&self, target: &Postgresql) -> Problem {
        let said = described(self.error());
        match self {
            NoSession::Unreachable(_) => Problem::new(
                "target.contact_points",
                target.contact_points.join(", "),
                format!(
                    "the database cannot be reached {} TLS: {said}",
                    if target.tls { "with" } else { "without" }
                ),
                "start it, or correct address, database, user or tls",
            ),
            NoSession::Refused(_) => Problem::new(
                "target.database",
                &target.database,
                format!("the database refused the statements: {said}"),
                "make the tables first: those of rows are `key bigint PRIMARY KEY, c0 bytea, c1 bytea, ...`",
            ),
        }
    }
}

/// Whether a failure is the last word of its connection: the server says so (class 57P) some time before it closes it.
fn is_end(failure: &Failure) -> bool {
    ["57P", "connection_lost", "protocol"]
        .iter()
        .any(|kind| failure.kind.starts_with(kind))
}

/// What an error is counted as: the server's SQLSTATE with its name where it is a usual one.
pub fn failure(error: &Error) -> Failure {
    let kind = match error.as_db_error() {
        Some(said) => state_kind(said.code()),
        None if error.is_closed() || has_io_source(error) => "connection_lost".into(),
        None => "protocol".into(),
    };
    Failure {
        kind,
        text: described(error),
    }
}

fn has_io_source(error: &Error) -> bool {
    error
        .source()
        .is_some_and(|source| source.is::<std::io::Error>())
}

/// **Source:** PostgreSQL 15's manual, appendix A.
fn state_kind(state: &SqlState) -> Cow<'static, str> {
    let usual = [
        (
            SqlState::T_R_SERIALIZATION_FAILURE,
            "40001 serialization_failure",
        ),
        (SqlState::T_R_DEADLOCK_DETECTED, "40P01 deadlock_detected"),
        (SqlState::UNIQUE_VIOLATION, "23505 unique_violation"),
        (SqlState::LOCK_NOT_AVAILABLE, "55P03 lock_not_available"),
        (SqlState::QUERY_CANCELED, "57014 query_canceled"),
        (SqlState::ADMIN_SHUTDOWN, "57P01 admin_shutdown"),
        (SqlState::CRASH_SHUTDOWN, "57P02 crash_shutdown"),
        (SqlState::CANNOT_CONNECT_NOW, "57P03 cannot_connect_now"),
        (SqlState::TOO_MANY_CONNECTIONS, "53300 too_many_connections"),
        (SqlState::DISK_FULL, "53100 disk_full"),
        (SqlState::OUT_OF_MEMORY, "53200 out_of_memory"),
        (SqlState::IO_ERROR, "58030 io_error"),
        (SqlState::UNDEFINED_TABLE, "42P01 undefined_table"),
    ];
    let known = usual.into_iter().find(|(code, _)| code == state);
    known.map_or_else(
        || Cow::Owned(format!("{} sqlstate", state.code())),
        |(_, name)| name.into(),
    )
}

/// The server's own words, or the chain of what went wrong here.
fn described(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let detail = said.detail().map(|text| format!(" ({text})"));
        return format!(
            "{} {}: {}{}",
            said.severity(),
            said.code().code(),
            said.message(),
            detail.unwrap_or_default()
        );
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The driver repeats some of its causes.
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

/// Raises this process's limit of open files as far as it may, for so many connections: many systems start a process
/// with 1024.
fn allow_open_files(connections: usize) {
    /// Files that are open anyway.
    const OTHERS: u64 = 64;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let wanted = connections as u64 + OTHERS;
    if known && limit.rlim_cur < wanted {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: reads a valid limit. Where it is refused, the connection that has no descriptor says so.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_states_are_counted_by_their_code() {
        assert_eq!(
            state_kind(&SqlState::T_R_DEADLOCK_DETECTED),
            "40P01 deadlock_detected"
        );
        assert_eq!(state_kind(&SqlState::from_code("XX123")), "XX123 sqlstate");
    }
}
