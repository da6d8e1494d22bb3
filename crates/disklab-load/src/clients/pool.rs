//! Connections of a database whose servers do one statement at a time on each: one for each operation in flight.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use disklab_units::random::Stream;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::clients::pauses::Pauses;
use crate::error::Problem;
use crate::job::target::Secret;
use crate::workloads::Failure;

/// How long a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that are opened beside each other: enough to hide the way to the server, few enough for its queue of new
/// ones (a listen backlog of 128 on old kernels).
const CONNECTING: usize = 32;

/// What a server that takes no changes is counted as.
const READ_ONLY: &str = "read_only_server";

/// Where a server is and who comes to it.
pub struct Server {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// The role.
    pub user: String,
    /// Its password, where the server asks for one.
    pub password: Option<Secret>,
    /// What the session is set to, in the protocol's own form.
    pub options: String,
    /// A connection is of use only where changes are taken.
    pub read_write: bool,
}

impl Server {
    /// Why a connection to a standby is of no use.
    pub fn takes_no_changes(&self) -> NoConnection {
        NoConnection::Unreachable(Failure {
            kind: READ_ONLY.into(),
            text: format!("{self} takes no changes: it is a standby"),
        })
    }

    /// Host and port of `HOST:PORT`; points were resolved when the job was read.
    pub fn place(point: &str, usual_port: u16) -> (String, u16) {
        // The port is what follows the last colon.
        let (host, port) = point.rsplit_once(':').unwrap_or((point, ""));
        let port = port.parse().unwrap_or(usual_port);
        (host.trim_matches(['[', ']']).into(), port)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What makes the connections of a pool.
pub trait Connect {
    /// A connection, ready for its statements. Dropping it closes it at once, whatever is under way.
    type Connection;

    /// Makes one.
    fn connect(
        &self,
        server: &Server,
    ) -> impl Future<Output = Result<Self::Connection, NoConnection>>;

    /// Whether it can be used, as far as is known without asking.
    fn is_open(connection: &Self::Connection) -> bool;

    /// Whether a failure is the last word of its connection, which the server may say some time before it closes it.
    fn is_end(failure: &Failure) -> bool;
}

/// Why a connection failed.
pub enum NoConnection {
    /// Nobody answers, or not to this user, or one that takes no changes.
    Unreachable(Failure),
    /// The statements were refused.
    Refused(Failure),
}

/// A connection for each slot, made anew when it was lost or given up.
pub struct Pool<C: Connect> {
    servers: Vec<Server>,
    /// Of each server, how it is.
    health: Vec<RefCell<Health>>,
    connector: C,
    slots: Vec<RefCell<Option<C::Connection>>>,
    /// The server that takes changes, as far as is known; None: all do.
    primary: Option<Cell<usize>>,
}

/// Whether a server takes connections, as far as the last tries tell.
struct Health {
    pauses: Pauses,
    /// It is not tried before then, because of this failure.
    rests: Option<(Instant, Failure)>,
    /// Somebody tries whether it is back. A host that has vanished takes a time-out for that, in which all others would
    /// wait with it instead of looking further along the list.
    is_tried: bool,
}

impl Health {
    /// Why it is not to be tried now.
    fn resting(&self) -> Option<Failure> {
        let (until, why) = self.rests.as_ref()?;
        (self.is_tried || Instant::now() < *until).then(|| why.clone())
    }

    fn failed(&mut self, why: &Failure) {
        // Those who tried at the same moment have failed once.
        if self.resting().is_none() {
            self.rests = Some((Instant::now() + self.pauses.next(), why.clone()));
        }
    }

    fn answered(&mut self) {
        self.pauses.reset();
        self.rests = None;
    }
}

/// A try of a server; however it ends, the next one may begin.
struct Try<'a>(&'a RefCell<Health>);

impl Try<'_> {
    fn of(health: &RefCell<Health>) -> Try<'_> {
        health.borrow_mut().is_tried = true;
        Try(health)
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().is_tried = false;
    }
}

impl<C: Connect> Pool<C> {
    /// Connects `count` slots to the servers in turn.
    pub async fn connected(
        seed: u64,
        servers: Vec<Server>,
        connector: C,
        count: usize,
    ) -> Result<Pool<C>, NoConnection> {
        allow_open_files(count);
        let health = |server: &Server| Health {
            pauses: Pauses::new(Stream::new(seed, &format!("pauses of {server}"))),
            rests: None,
            is_tried: false,
        };
        let pool = Pool {
            health: servers
                .iter()
                .map(|server| RefCell::new(health(server)))
                .collect(),
            primary: servers
                .iter()
                .any(|server| server.read_write)
                .then(Cell::default),
            servers,
            connector,
            slots: (0..count).map(|_| RefCell::default()).collect(),
        };
        stream::iter(0..count)
            .map(async |slot| {
                let made = pool.connect(slot).await?;
                pool.slots[slot].replace(Some(made));
                Ok(())
            })
            .buffer_unordered(CONNECTING)
            .try_collect::<()>()
            .await?;
        Ok(pool)
    }

    /// Does `work` on the slot's connection. A connection that was lost is made anew by the next operation; one whose
    /// operation is given up before it ends is closed, because its answer would be taken for the next one's.
    pub async fn on<T>(
        &self,
        slot: usize,
        work: impl AsyncFnOnce(&mut C::Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let kept = self.slots[slot].take();
        let mut connection = match kept.filter(C::is_open) {
            Some(connection) => connection,
            None => self
                .connect(slot)
                .await
                .map_err(NoConnection::into_failure)?,
        };
        let done = work(&mut connection).await;
        if done
            .as_ref()
            .err()
            .is_none_or(|failure| !C::is_end(failure))
        {
            self.slots[slot].replace(Some(connection));
        }
        done
    }

    /// A connection to the slot's own server, or to the next one of the list that takes connections. One that did not
    /// is left alone for a while. Where one server alone takes changes, the slot's own is the one that did last.
    async fn connect(&self, slot: usize) -> Result<C::Connection, NoConnection> {
        let count = self.servers.len();
        let mut why = None;
        let first = self.primary.as_ref().map_or(slot, Cell::get);
        for at in (first..first + count).map(|at| at % count) {
            let resting = self.health[at].borrow().resting();
            if let Some(failure) = resting {
                why.get_or_insert(NoConnection::Unreachable(failure));
                continue;
            }
            // At first all may try at once: nothing is known of a server that has not failed.
            let is_first = self.health[at].borrow().rests.is_none();
            let tried = (!is_first).then(|| Try::of(&self.health[at]));
            let connected = self.connector.connect(&self.servers[at]).await;
            drop(tried);
            match connected {
                Ok(connection) => {
                    self.health[at].borrow_mut().answered();
                    if let Some(primary) = &self.primary {
                        primary.set(at);
                    }
                    return Ok(connection);
                }
                // Another server would refuse them as well.
                Err(NoConnection::Refused(failure)) => return Err(NoConnection::Refused(failure)),
                Err(NoConnection::Unreachable(failure)) => {
                    self.health[at].borrow_mut().failed(&failure);
                    why = Some(NoConnection::Unreachable(failure));
                }
            }
        }
        Err(why.expect("a target has a contact point"))
    }
}

impl NoConnection {
    /// The failure.
    pub fn into_failure(self) -> Failure {
        match self {
            NoConnection::Unreachable(failure) | NoConnection::Refused(failure) => failure,
        }
    }

    /// What a job's writer can mend. `form`: what tables of rows look like.
    pub fn into_problem(self, points: &[String], database: &str, tls: bool, form: &str) -> Problem {
        match self {
            NoConnection::Unreachable(why) => Problem::new(
                "target.contact_points",
                points.join(", "),
                format!(
                    "the database cannot be reached {} TLS: {}",
                    if tls { "with" } else { "without" },
                    why.text
                ),
                "start it, or correct address, database, user or tls",
            ),
            NoConnection::Refused(why) => Problem::new(
                "target.database",
                database,
                format!("the database refused the statements: {}", why.text),
                format!("make the tables first: those of rows are `{form}`"),
            ),
        }
    }
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
    fn one_alone_tries_a_server_that_has_failed() {
        let health = RefCell::new(Health {
            pauses: Pauses::new(Stream::new(1, "one")),
            rests: None,
            is_tried: false,
        });
        let why = Failure {
            kind: READ_ONLY.into(),
            text: "n1 takes no changes".into(),
        };
        assert!(health.borrow().resting().is_none());
        health.borrow_mut().failed(&why);
        assert!(health.borrow().resting().is_some());
        // Its rest is over: the first one tries it, and the others look further until that has ended.
        health.borrow_mut().rests = Some((Instant::now(), why.clone()));
        assert!(health.borrow().resting().is_none());
        let tried = Try::of(&health);
        assert_eq!(
            health.borrow().resting().map(|found| found.kind),
            Some(READ_ONLY.into())
        );
        drop(tried);
        assert!(health.borrow().resting().is_none());
        health.borrow_mut().failed(&why);
        let (until, _) = health.borrow().rests.clone().expect("it has failed");
        assert!(until > Instant::now());
        health.borrow_mut().answered();
        assert!(health.borrow().resting().is_none());
    }
}
