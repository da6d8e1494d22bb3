//! etcd's key-value service by gRPC.
//!
//! Three messages of two calls are encoded here, over `h2`: etcd's JSON gateway would cost the server a second
//! request for each of ours, and a gRPC framework a code generator and thirty crates.
//!
//! ```text
//! link       a connection: HTTP/2, TLS, one call
//! messages   the bytes of requests and answers
//! ```

mod link;
mod messages;

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::clients::{OpenRows, RowClient};
use crate::content::Content;
use crate::error::{LoadError, Problem};
use crate::job::share::Share;
use crate::job::target::Protocol;
use crate::job::target::{Secret, name_problem, twelve_seconds};
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};
use link::{Connector, Link};

/// Operations that share a connection. etcd's own benchmark has ten clients on each of a hundred connections; one
/// connection is one goroutine that reads and one that writes.
const SLOTS_OF_A_LINK: usize = 16;

/// HTTP/2 numbers streams with 31 bits, and a server may allow a few hundred at once; this is what a client keeps.
const MOST_IN_FLIGHT: u32 = 10_000;

const RANGE: &str = "/etcdserverpb.KV/Range";
const PUT: &str = "/etcdserverpb.KV/Put";

/// An etcd cluster, and the prefix of the keys that the load is put on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Etcd {
    /// `HOST:PORT` of its members' client addresses; connections are dealt out over them in turn.
    pub contact_points: Vec<String>,
    /// Who is trusted and who comes; none: the cluster speaks in the clear and asks nobody.
    #[serde(default)]
    pub tls: Option<MutualTls>,
    /// First part of each key: `rows/000000000000002a`.
    #[serde(default = "rows")]
    pub table: String,
    /// An operation that takes longer has failed.
    #[serde(default = "twelve_seconds")]
    pub request_timeout_ms: u64,
}

/// TLS in which both sides show a certificate. All in PEM, and not as files: the engine gives up root before it reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutualTls {
    /// Certificates that the servers' must come from.
    pub authority: String,
    /// The client's certificate.
    pub certificate: String,
    /// Its key.
    pub key: Secret,
}

impl Protocol for Etcd {
    fn contact_points(&self) -> &[String] {
        &self.contact_points
    }

    fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms
    }

    fn most_in_flight(&self) -> (u32, &'static str) {
        (MOST_IN_FLIGHT, "each is a stream of an HTTP/2 connection")
    }

    fn problems(&self) -> Vec<Problem> {
        name_problem("target.table", &self.table)
            .into_iter()
            .collect()
    }

    fn lacks(&self) -> (&'static [&'static str], &'static str) {
        (
            &["update", "delete", "scan"],
            "a row is one value under its key, which this client gets and puts as a whole",
        )
    }
}

/// Keys with whole rows as their values.
pub struct EtcdRows {
    connector: Connector,
    points: Vec<String>,
    lanes: Vec<Lane>,
    table: String,
    content: Content,
    verify: bool,
}

/// A place for a connection, made again when it was lost.
struct Lane {
    /// One of the slots at a time looks whether there is a link, and makes one.
    link: Mutex<Option<Link>>,
    /// The contact point that is tried first.
    at: Cell<usize>,
}

impl OpenRows for EtcdRows {
    type Target = Etcd;

    async fn open(share: &Share, target: &Etcd, rows: &Rows) -> Result<EtcdRows, LoadError> {
        let count = share.slots.div_ceil(SLOTS_OF_A_LINK);
        let lane = |number| Lane {
            link: Mutex::default(),
            at: Cell::new(number),
        };
        let client = EtcdRows {
            connector: Connector::new(target.tls.as_ref())?,
            points: target.contact_points.clone(),
            lanes: (0..count.max(1)).map(lane).collect(),
            table: target.table.clone(),
            content: rows.content(share.seed),
            verify: rows.verify,
        };
        for slot in 0..client.lanes.len() {
            // A connection alone may be to somebody who speaks otherwise, or wants a certificate.
            let asked = messages::range(client.key(0).as_bytes());
            client.call(slot, RANGE, asked).await.map_err(|failure| {
                Problem::new(
                    "target.contact_points",
                    client.points.join(", "),
                    format!("etcd cannot be reached: {}", failure.text),
                    "start it, or correct address or tls",
                )
            })?;
        }
        Ok(client)
    }
}

impl EtcdRows {
    /// The lane's connection, or a new one to the first member that answers, from the lane's own on.
    async fn link(&self, lane: &Lane) -> Result<Link, Failure> {
        let mut kept = lane.link.lock().await;
        if let Some(link) = kept.as_ref().filter(|link| link.is_open()) {
            return Ok(link.clone());
        }
        *kept = None;
        let mut why = None;
        for _ in &self.points {
            let point = &self.points[lane.at.get() % self.points.len()];
            match self.connector.connect(point).await {
                Ok(link) => {
                    *kept = Some(link.clone());
                    return Ok(link);
                }
                Err(failure) => why = Some(failure),
            }
            lane.at.set(lane.at.get() + 1);
        }
        Err(why.unwrap_or_else(|| link::lost("there is no contact point")))
    }

    async fn call(&self, slot: usize, path: &str, message: Bytes) -> Result<Bytes, Failure> {
        let link = self.link(&self.lanes[slot % self.lanes.len()]).await?;
        link.call(path, message).await
    }

    fn key(&self, key: Key) -> String {
        format!("{}/{key:016x}", self.table)
    }

    fn examine(&self, key: Key, value: &[u8]) -> Result<Version, Failure> {
        let columns = self.content.columns();
        let wrong = |text: String| Failure {
            kind: WRONG_ROW.into(),
            text: format!("key {key}: {text}"),
        };
        let each = self.content.column_bytes(key) as usize;
        let whole = columns as usize * each;
        if value.len() != whole {
            return Err(wrong(format!("{} bytes, not {whole}", value.len())));
        }
        let version = self.content.version(key, value);
        for column in 0..columns {
            let from = column as usize * each;
            let bytes = &value[from..from + each];
            if !self.content.matches(key, version, column, bytes) {
                return Err(wrong(format!("column c{column} is not what was written")));
            }
        }
        Ok(version)
    }
}

impl RowClient for EtcdRows {
    async fn read(&self, slot: usize, key: Key) -> Result<Version, Failure> {
        let asked = messages::range(self.key(key).as_bytes());
        let answer = self.call(slot, RANGE, asked).await?;
        let value = messages::first_value(&answer).map_err(link::protocol)?;
        match value {
            None => Err(Failure {
                kind: MISSING_ROW.into(),
                text: format!("key {key}: no such key"),
            }),
            Some(value) if self.verify => self.examine(key, value),
            Some(_) => Ok(0),
        }
    }

    async fn write(&self, slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        let columns = self.content.columns();
        let whole = columns as usize * self.content.column_bytes(key) as usize;
        let mut value = BytesMut::with_capacity(whole);
        for column in 0..columns {
            self.content.write(key, version, column, &mut value);
        }
        let asked = messages::put(self.key(key).as_bytes(), &value);
        self.call(slot, PUT, asked).await.map(drop)
    }

    async fn update(&self, _: usize, _: Key, _: u32) -> Result<(), Failure> {
        unreachable!("refused when the job was read")
    }

    async fn delete(&self, _: usize, _: Key) -> Result<(), Failure> {
        unreachable!("refused when the job was read")
    }

    async fn scan(&self, _: usize, _: Key, _: u32) -> Result<(), Failure> {
        unreachable!("refused when the job was read")
    }
}

fn rows() -> String {
    "rows".into()
}
