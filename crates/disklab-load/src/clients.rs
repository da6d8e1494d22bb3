//! How a workload reaches a database.

mod checked;
pub mod cql;
pub mod etcd;
pub mod mysql;
mod pauses;
pub mod pool;
pub mod postgres;
pub mod redis;
mod silence;
mod stream;
mod tls;

use std::future::Future;

use serde::Deserialize;

use crate::error::LoadError;
use crate::job::share::Share;
use crate::job::target::{Cql, Postgresql, Protocol};
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;

/// Rows by key over some protocol. Implementations never retry: a retry hides an error and stretches a latency.
///
/// No two operations are ever under way in the same slot, so that a protocol may have a connection for each.
pub trait RowClient {
    /// Reads a row and compares it with what was written; a row that is missing or wrong is a failure. Returns which
    /// version it is: 0 where rows have none.
    fn read(&self, slot: usize, key: Key) -> impl Future<Output = Result<Version, Failure>>;

    /// Writes a whole row: this version of it.
    fn write(
        &self,
        slot: usize,
        key: Key,
        version: Version,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Writes one column of a row.
    fn update(
        &self,
        slot: usize,
        key: Key,
        column: u32,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Deletes a row.
    fn delete(&self, slot: usize, key: Key) -> impl Future<Output = Result<(), Failure>>;

    /// Reads so many rows from `key` on, as the table has them in order, and compares each with what was written. That
    /// rows are missing is a failure where the job deletes none.
    fn scan(&self, slot: usize, key: Key, rows: u32) -> impl Future<Output = Result<(), Failure>>;
}

/// A client that is made from a job.
pub trait OpenRows: RowClient + Sized + 'static {
    /// Its part of the job.
    type Target: Protocol;

    /// Connects; the table must be there, where the database has tables.
    fn open(
        share: &Share,
        target: &Self::Target,
        rows: &Rows,
    ) -> impl Future<Output = Result<Self, LoadError>>;

    /// How many nodes it speaks to; None: as many as there are contact points.
    fn nodes(&self) -> Option<usize> {
        None
    }
}

/// Something that is done with the client of a target, whichever it is.
pub trait WithRows {
    /// What comes of it.
    type Output;

    /// Does it with clients of this type.
    fn with<C: OpenRows>(self, target: &C::Target) -> Self::Output;
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident($target:ty) => $client:ty,)*) => {
        /// A database.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(tag = "protocol", rename_all = "lowercase")]
        pub enum Target {
            $($(#[$doc])* $name($target),)*
        }

        impl Target {
            /// As a job writes it.
            pub fn name(&self) -> String {
                match self {
                    $(Target::$name(_) => stringify!($name).to_lowercase(),)*
                }
            }

            /// What every protocol says.
            pub fn protocol(&self) -> &dyn Protocol {
                match self {
                    $(Target::$name(target) => target,)*
                }
            }

            /// `HOST:PORT` of some of its nodes.
            pub fn contact_points(&self) -> &[String] {
                self.protocol().contact_points()
            }

            /// The longest that an operation may take.
            pub fn request_timeout_ms(&self) -> u64 {
                self.protocol().request_timeout_ms()
            }

            /// Does something with the target's client of rows.
            pub fn with_rows<W: WithRows>(&self, work: W) -> W::Output {
                match self {
                    $(Target::$name(target) => work.with::<$client>(target),)*
                }
            }
        }
    };
}

// The registry of protocols: one entry each.
protocols! {
    /// Cassandra's native protocol.
    Cql(Cql) => cql::CqlRows,
    /// etcd's gRPC.
    Etcd(etcd::Etcd) => etcd::EtcdRows,
    /// MySQL's wire protocol, with what MariaDB adds.
    Mysql(mysql::Mysql) => mysql::rows::MysqlRows,
    /// PostgreSQL's wire protocol, version 3.
    Postgresql(Postgresql) => postgres::rows::PostgresRows,
    /// Redis's protocol, RESP 2.
    Redis(redis::Redis) => redis::RedisRows,
}
