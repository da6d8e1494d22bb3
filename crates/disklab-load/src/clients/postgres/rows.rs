//! The rows workload over PostgreSQL's protocol.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio_rustls::TlsConnector;

use super::wire::{RowBytes, Wire, WireError};
use super::{TAKES_CHANGES, connected, is_end};
use crate::clients::checked::{Checked, missing};
use crate::clients::pool::{Connect, NoConnection, Pool, Server};
use crate::clients::tls;
use crate::clients::{OpenRows, RowClient};
use crate::error::LoadError;
use crate::job::share::Share;
use crate::job::target::Postgresql;
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;

/// Names of the prepared statements.
const SELECT: &str = "select";
const UPSERT: &str = "upsert";
const DELETE: &str = "delete";
const SCAN: &str = "scan";
const ASKED: &str = "takes changes";

/// **Source:** PostgreSQL's pg_type.dat.
const INT8: u32 = 20;
const INT4: u32 = 23;
const BYTEA: u32 = 17;

/// A table of rows: `key bigint PRIMARY KEY, c0 bytea, c1 bytea, ...`.
pub struct PostgresRows {
    pool: Pool<RowStatements>,
    checked: Checked,
}

/// Makes connections with the statements.
struct RowStatements {
    tls: Option<TlsConnector>,
    select: String,
    upsert: String,
    /// Those that the job's operations need.
    delete: Option<String>,
    scan: Option<String>,
    /// By column.
    updates: Vec<String>,
    columns: u32,
}

impl Connect for RowStatements {
    type Connection = Wire;

    async fn connect(&self, server: &Server) -> Result<Wire, NoConnection> {
        let mut wire = Wire::connect(server, self.tls.as_ref()).await?;
        if server.read_write && !takes_changes(&mut wire).await? {
            return Err(server.takes_no_changes());
        }
        wire.prepare(SELECT, &self.select, [INT8]).await?;
        let columns = (0..self.columns).map(|_| BYTEA);
        let types = std::iter::once(INT8).chain(columns);
        wire.prepare(UPSERT, &self.upsert, types).await?;
        if let Some(delete) = &self.delete {
            wire.prepare(DELETE, delete, [INT8]).await?;
        }
        if let Some(scan) = &self.scan {
            wire.prepare(SCAN, scan, [INT8, INT4]).await?;
        }
        for (column, update) in self.updates.iter().enumerate() {
            let name = update_of(column as u32);
            wire.prepare(&name, update, [INT8, BYTEA]).await?;
        }
        Ok(wire)
    }

    fn is_open(wire: &Wire) -> bool {
        wire.is_open()
    }

    fn is_end(failure: &Failure) -> bool {
        is_end(failure)
    }
}

impl RowStatements {
    fn new(table: &str, rows: &Rows, tls: Option<TlsConnector>) -> RowStatements {
        let (columns, asked) = (rows.columns, &rows.operations);
        let updated = if asked.update > 0.0 { columns } else { 0 };
        let update = |column| format!("UPDATE {table} SET c{column} = $2 WHERE key = $1");
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
            delete: (asked.delete > 0.0).then(|| format!("DELETE FROM {table} WHERE key = $1")),
            scan: (asked.scan > 0.0).then(|| {
                format!("SELECT key, {names} FROM {table} WHERE key >= $1 ORDER BY key LIMIT $2")
            }),
            updates: (0..updated).map(update).collect(),
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
    async fn open(
        share: &Share,
        target: &Postgresql,
        rows: &Rows,
    ) -> Result<PostgresRows, LoadError> {
        let tls = target.tls.then(|| tls::config(target.ca_file.as_deref()));
        let tls = tls.transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let statements = RowStatements::new(&target.table, rows, tls);
        let count = share.slots;
        Ok(PostgresRows {
            pool: connected(share, target, &[], statements, count).await?,
            checked: Checked::of(share, rows),
        })
    }
}

impl PostgresRows {
    fn put(&self, value: &Value, out: &mut BytesMut) {
        match *value {
            Value::Key(key) => out.put_i64(key as i64),
            Value::Column(key, column) => self.checked.content.write(key, 0, column, out),
            Value::Count(count) => out.put_i32(count as i32),
        }
    }

    async fn change(&self, slot: usize, statement: &str, values: &[Value]) -> Result<(), Failure> {
        let work = async |wire: &mut Wire| {
            let put = |value: &Value, out: &mut BytesMut| self.put(value, out);
            let asked = wire.execute(statement, values, put, |_| ()).await;
            asked.map_err(WireError::into_failure)
        };
        self.pool.on(slot, work).await
    }
}

/// A parameter of a statement.
enum Value {
    Key(Key),
    /// A column as it was filled.
    Column(Key, u32),
    Count(u32),
}

/// Whether the server takes changes, by its own word.
async fn takes_changes(wire: &mut Wire) -> Result<bool, NoConnection> {
    wire.prepare(ASKED, TAKES_CHANGES, []).await?;
    let mut said = false;
    let none: [Key; 0] = [];
    let row = |mut row: RowBytes<'_>| said = row.next().flatten() == Some(&[1]);
    let asked = wire.execute(ASKED, none, |_, _| (), row).await;
    asked.map_err(|error| NoConnection::Unreachable(error.into_failure()))?;
    Ok(said)
}

fn update_of(column: u32) -> String {
    format!("update {column}")
}

impl RowClient for PostgresRows {
    async fn read(&self, slot: usize, key: Key) -> Result<Version, Failure> {
        let read = async |wire: &mut Wire| {
            let mut found = None;
            let put = |key: Key, out: &mut BytesMut| out.put_i64(key as i64);
            let row = |row: RowBytes<'_>| found = Some(self.checked.row(key, row));
            let asked = wire.execute(SELECT, [key], put, row).await;
            asked.map_err(WireError::into_failure)?;
            found.unwrap_or_else(|| Err(missing(key)))
        };
        self.pool.on(slot, read).await
    }

    async fn write(&self, slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        let write = async |wire: &mut Wire| {
            // The key, and then each column, made while it is written to the request.
            let columns = (0..self.checked.content.columns()).map(Some);
            let values = std::iter::once(None).chain(columns);
            let put = |column: Option<u32>, out: &mut BytesMut| match column {
                None => out.put_i64(key as i64),
                Some(column) => self.checked.content.write(key, version, column, out),
            };
            let asked = wire.execute(UPSERT, values, put, |_| ()).await;
            asked.map_err(WireError::into_failure)
        };
        self.pool.on(slot, write).await
    }

    async fn update(&self, slot: usize, key: Key, column: u32) -> Result<(), Failure> {
        let values = [Value::Key(key), Value::Column(key, column)];
        self.change(slot, &update_of(column), &values).await
    }

    async fn delete(&self, slot: usize, key: Key) -> Result<(), Failure> {
        self.change(slot, DELETE, &[Value::Key(key)]).await
    }

    async fn scan(&self, slot: usize, key: Key, rows: u32) -> Result<(), Failure> {
        let scan = async |wire: &mut Wire| {
            let (mut found, mut count) = (Ok(()), 0);
            let put = |value: &Value, out: &mut BytesMut| self.put(value, out);
            let row = |mut row: RowBytes<'_>| {
                if found.is_ok() {
                    let own = row.next().flatten().and_then(|bytes| bytes.try_into().ok());
                    let own = own.map(u64::from_be_bytes);
                    found = self.checked.scanned(key, count, own, row);
                }
                count += 1;
            };
            let values = [Value::Key(key), Value::Count(rows)];
            let asked = wire.execute(SCAN, &values, put, row).await;
            asked.map_err(WireError::into_failure)?;
            found?;
            self.checked.scan_ended(key, rows, count)
        };
        self.pool.on(slot, scan).await
    }
}
