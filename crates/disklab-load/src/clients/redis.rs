//! Redis: a connection for each operation in flight, a row a hash.
//!
//! ```text
//! wire    a connection: commands and answers
//! ```

mod wire;

use serde::Deserialize;

use self::wire::{Answer, Parts, Wire, WireError};
use crate::clients::checked::{Checked, missing};
use crate::clients::pool::{Connect, NoConnection, Pool, Server};
use crate::clients::{OpenRows, RowClient};
use crate::error::{LoadError, Problem};
use crate::job::share::Share;
use crate::job::target::Protocol;
use crate::job::target::{Secret, name_problem, rows, twelve_seconds};
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;

/// Where a point names none.
const PORT: u16 = 6379;

/// The most connections of one generator: the default of `maxclients`.
const MOST_CONNECTIONS: u32 = 10_000;

/// A Redis, and the prefix of the keys that the load is put on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// `HOST:PORT` of servers that take writes; connections are dealt out over them in turn.
    pub contact_points: Vec<String>,
    /// The password of its default user, where it asks for one.
    #[serde(default)]
    pub password: Option<Secret>,
    /// First part of each key: `rows:42`.
    #[serde(default = "rows")]
    pub table: String,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

impl Protocol for Redis {
    fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms
    }

    fn most_in_flight(&self) -> (u32, &'static str) {
        (MOST_CONNECTIONS, "each is a connection")
    }

    fn problems(&self) -> Vec<Problem> {
        name_problem("target.table", &self.table)
            .into_iter()
            .collect()
    }

    fn lacks(&self) -> (&'static [&'static str], &'static str) {
        (&["scan"], "keys have no order")
    }
}

/// Rows as hashes: `HSET rows:42 c0 ... c1 ...`.
pub struct RedisRows {
    pool: Pool<Plain>,
    checked: Checked,
    table: String,
    /// Names of the columns.
    fields: Vec<String>,
}

/// Makes connections, which need nothing but the log-in.
struct Plain;

impl Connect for Plain {
    type Connection = Wire;

    async fn connect(&self, server: &Server) -> Result<Wire, NoConnection> {
        Wire::connect(server).await
    }

    fn is_open(connection: &Wire) -> bool {
        connection.is_open()
    }

    fn is_end(failure: &Failure) -> bool {
        ["connection_lost", "protocol"].contains(&failure.kind.as_ref())
    }
}

impl OpenRows for RedisRows {
    type Target = Redis;

    async fn open(share: &Share, target: &Redis, rows: &Rows) -> Result<RedisRows, LoadError> {
        let of = |point: &String| {
            let (host, port) = Server::place(point, PORT);
            Server {
                host,
                port,
                database: String::new(),
                user: String::new(),
                password: target.password.clone(),
                options: String::new(),
                read_write: false,
            }
        };
        let servers = target.contact_points.iter().map(of).collect();
        let pool = Pool::connected(share.seed, servers, Plain, share.slots).await;
        let problem = |why: NoConnection| {
            Problem::new(
                "target.contact_points",
                target.contact_points.join(", "),
                format!("Redis cannot be reached: {}", why.into_failure().text),
                "start it, or correct address or password",
            )
        };
        Ok(RedisRows {
            pool: pool.map_err(problem)?,
            checked: Checked::of(share, rows),
            table: target.table.clone(),
            fields: (0..rows.columns).map(|at| format!("c{at}")).collect(),
        })
    }
}

impl RedisRows {
    /// Begins a command on a row, with so many parts behind its key.
    fn begin(&self, wire: &mut Wire, name: &str, key: Key, parts: usize) {
        wire.command(2 + parts);
        wire.part(name.as_bytes());
        wire.part(format!("{}:{key}", self.table).as_bytes());
    }

    /// Appends the name and the bytes of a column.
    fn column(&self, wire: &mut Wire, key: Key, version: Version, column: u32) {
        let content = &self.checked.content;
        wire.part(self.fields[column as usize].as_bytes());
        wire.part_of(content.column_bytes(key) as usize, |out| {
            content.write(key, version, column, out);
        });
    }

    fn examine(&self, key: Key, row: Parts<'_>) -> Result<Version, Failure> {
        // A key that is not there has none of the fields.
        if { row }.all(|column| column.is_none()) {
            return Err(missing(key));
        }
        self.checked.row(key, row)
    }
}

async fn counted(wire: &mut Wire) -> Result<(), Failure> {
    let look = |answer: Answer<'_>| match answer {
        Answer::Number(_) => Ok(()),
        _ => Err(WireError::Protocol("a count was expected".into())),
    };
    wire.ask(look).await.map_err(WireError::into_failure)
}

impl RowClient for RedisRows {
    async fn read(&self, slot: usize, key: Key) -> Result<Version, Failure> {
        let read = async |wire: &mut Wire| {
            self.begin(wire, "HMGET", key, self.fields.len());
            for field in &self.fields {
                wire.part(field.as_bytes());
            }
            let look = |answer: Answer<'_>| match answer {
                Answer::Parts(row) => Ok(self.examine(key, row)),
                _ => Err(WireError::Protocol("a row was expected".into())),
            };
            wire.ask(look).await.map_err(WireError::into_failure)?
        };
        self.pool.on(slot, read).await
    }

    async fn write(&self, slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        let write = async |wire: &mut Wire| {
            let columns = self.checked.content.columns();
            self.begin(wire, "HSET", key, 2 * columns as usize);
            for column in 0..columns {
                self.column(wire, key, version, column);
            }
            counted(wire).await
        };
        self.pool.on(slot, write).await
    }

    async fn update(&self, slot: usize, key: Key, column: u32) -> Result<(), Failure> {
        let update = async |wire: &mut Wire| {
            self.begin(wire, "HSET", key, 2);
            self.column(wire, key, 0, column);
            counted(wire).await
        };
        self.pool.on(slot, update).await
    }

    async fn delete(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let delete = async |wire: &mut Wire| {
            self.begin(wire, "DEL", key, 0);
            counted(wire).await
        };
        self.pool.on(slot, delete).await
    }

    async fn scan(&self, _: usize, _: Key, _: u32) -> Result<(), Failure> {
        unreachable!("refused when the job was read")
    }
}
