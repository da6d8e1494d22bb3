//! The rows workload over PostgreSQL's protocol.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio_rustls::TlsConnector;

use super::wire::{RowBytes, Wire, WireError};
use super::{Connect, NoConnection, Pool, Server, tls};
use crate::clients::{OpenRows, RowClient};
use crate::error::LoadError;
use crate::job::{Job, Postgresql, Rows};
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::rows::Content;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// Names of the prepared statements.
const SELECT: &str = "select";
const UPSERT: &str = "upsert";

/// **Source:** PostgreSQL's pg_type.dat.
const INT8: u32 = 20;
const BYTEA: u32 = 17;

/// A table of rows: `key bigint PRIMARY KEY, c0 bytea, c1 bytea, ...`.
pub struct PostgresRows {
    pool: Pool<RowStatements>,
    content: Content,
    verify: bool,
}

/// Makes connections with the two statements.
struct RowStatements {
    tls: Option<TlsConnector>,
    select: String,
    upsert: String,
    columns: u32,
}

impl Connect for RowStatements {
    type Connection = Wire;

    async fn connect(&self, server: &Server) -> Result<Wire, NoConnection> {
        let mut wire = Wire::connect(server, self.tls.as_ref()).await?;
        wire.prepare(SELECT, &self.select, [INT8]).await?;
        let columns = (0..self.columns).map(|_| BYTEA);
        let types = std::iter::once(INT8).chain(columns);
        wire.prepare(UPSERT, &self.upsert, types).await?;
        Ok(wire)
    }

    fn is_open(wire: &Wire) -> bool {
        wire.is_open()
    }
}

impl RowStatements {
    fn new(table: &str, columns: u32, tls: Option<TlsConnector>) -> RowStatements {
        let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
        let names = names.join(", ");
        let places: Vec<String> = (0..columns)
            .map(|column| format!(", ${}", column + 2))
            .collect();
        let changes: Vec<String> = (0..columns)
            .map(|column| format!("c{column} = excluded.c{column}"))
            .collect();
        RowStatements {
            tls,
            columns,
            select: format!("SELECT {names} FROM {table} WHERE key = $1"),
            // As CQL's INSERT: the row is there afterwards, whether or not it was before.
            upsert: format!(
                "INSERT INTO {table} (key, {names}) VALUES ($1{}) ON CONFLICT (key) DO UPDATE SET {}",
                places.concat(),
                changes.join(", ")
            ),
        }
    }
}

impl OpenRows for PostgresRows {
    type Target = Postgresql;

    /// Connects and prepares; the table must be there.
    async fn open(job: &Job, target: &Postgresql, rows: &Rows) -> Result<PostgresRows, LoadError> {
        let tls = target.tls.then(|| tls::config(target.ca_file.as_deref()));
        let tls = tls.transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let statements = RowStatements::new(&target.table, rows.columns, tls);
        let count = job.slots() as usize;
        Ok(PostgresRows {
            pool: Pool::connected(job, target, &[], statements, count).await?,
            content: Content::of(job, rows),
            verify: rows.verify,
        })
    }
}

impl PostgresRows {
    fn examine(&self, key: Key, row: RowBytes<'_>) -> Result<Version, Failure> {
        let wrong = |text: String| Failure {
            kind: WRONG_ROW.into(),
            text: format!("key {key}: {text}"),
        };
        let (mut columns, mut version) = (0, 0);
        for bytes in row {
            let bytes = bytes.ok_or_else(|| wrong(format!("column c{columns} is null")))?;
            if columns == 0 {
                version = self.content.version(key, bytes);
            }
            if !self.content.matches(key, version, columns, bytes) {
                return Err(wrong(format!("column c{columns} is not what was written")));
            }
            columns += 1;
        }
        if columns == self.content.columns() && u32::from(row.columns) == columns {
            return Ok(version);
        }
        Err(wrong(format!("{columns} columns")))
    }
}

impl RowClient for PostgresRows {
    async fn read(&self, slot: usize, key: Key) -> Result<Version, Failure> {
        let read = async |wire: &mut Wire| {
            let mut found = None;
            let put = |key: Key, out: &mut BytesMut| out.put_i64(key as i64);
            let row = |row: RowBytes<'_>| {
                found = Some(if self.verify {
                    self.examine(key, row)
                } else {
                    Ok(0)
                });
            };
            let asked = wire.execute(SELECT, [key], put, row).await;
            asked.map_err(WireError::into_failure)?;
            found.unwrap_or_else(|| {
                Err(Failure {
                    kind: MISSING_ROW.into(),
                    text: format!("key {key}: no such row"),
                })
            })
        };
        self.pool.on(slot, read).await
    }

    async fn write(&self, slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        let write = async |wire: &mut Wire| {
            // The key, and then each column, made while it is written to the request.
            let columns = (0..self.content.columns()).map(Some);
            let values = std::iter::once(None).chain(columns);
            let put = |column: Option<u32>, out: &mut BytesMut| match column {
                None => out.put_i64(key as i64),
                Some(column) => self.content.write(key, version, column, out),
            };
            let asked = wire.execute(UPSERT, values, put, |_| ()).await;
            asked.map_err(WireError::into_failure)
        };
        self.pool.on(slot, write).await
    }
}
