//! The rows workload over MySQL's protocol.
//!
//! InnoDB compares a row with what it is to become, and does nothing when they are alike: no redo log, no page, no
//! binary log (`HA_ERR_RECORD_IS_THE_SAME` of `ha_innodb.cc`). So each write has another version.

use std::cell::Cell;
use std::sync::Arc;

use bytes::BytesMut;
use disklab_units::random::Stream;
use tokio_rustls::TlsConnector;

use super::wire::{Parameter, Prepared, RowBytes, Wire, WireError};
use super::{Mysql, is_end, problem, servers, takes_changes};
use crate::clients::checked::{Checked, missing};
use crate::clients::pool::{Connect, NoConnection, Pool, Server};
use crate::clients::tls;
use crate::clients::{OpenRows, RowClient};
use crate::error::{LoadError, Problem};
use crate::job::share::Share;
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;

/// A table of rows: `key bigint PRIMARY KEY, c0 longblob, c1 longblob, ...`.
pub struct MysqlRows {
    pool: Pool<RowStatements>,
    checked: Checked,
    /// Of the next write whose version nobody counts.
    uncounted: Cell<Version>,
}

/// Versions of writes that no check tracks: a check takes such a row for older than its own.
const UNCOUNTED: Version = 1 << 63;

/// The number of a version stands in the first column.
const LEAST_COLUMN_BYTES: u32 = size_of::<Version>() as u32;

/// Makes connections with the statements.
struct RowStatements {
    tls: Option<TlsConnector>,
    select: String,
    upsert: String,
    /// Those that the job's operations need.
    delete: Option<String>,
    scan: Option<String>,
}

/// A connection with its statements.
struct Session {
    wire: Wire,
    select: Prepared,
    upsert: Prepared,
    delete: Option<Prepared>,
    scan: Option<Prepared>,
}

impl Connect for RowStatements {
    type Connection = Session;

    async fn connect(&self, server: &Server) -> Result<Session, NoConnection> {
        let mut wire = Wire::connect(server, self.tls.as_ref()).await?;
        if server.read_write && !takes_changes(&mut wire).await? {
            return Err(server.takes_no_changes());
        }
        let select = wire.prepare(&self.select).await?;
        let upsert = wire.prepare(&self.upsert).await?;
        let (mut delete, mut scan) = (None, None);
        if let Some(text) = &self.delete {
            delete = Some(wire.prepare(text).await?);
        }
        if let Some(text) = &self.scan {
            scan = Some(wire.prepare(text).await?);
        }
        Ok(Session {
            wire,
            select,
            upsert,
            delete,
            scan,
        })
    }

    fn is_open(session: &Session) -> bool {
        session.wire.is_open()
    }

    fn is_end(failure: &Failure) -> bool {
        is_end(failure)
    }
}

impl RowStatements {
    fn new(table: &str, rows: &Rows, tls: Option<TlsConnector>) -> RowStatements {
        let (columns, asked) = (rows.columns, &rows.operations);
        let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
        let changes: Vec<String> = names
            .iter()
            .map(|name| format!("{name} = VALUES({name})"))
            .collect();
        let (names, changes) = (names.join(", "), changes.join(", "));
        let places = ", ?".repeat(columns as usize);
        RowStatements {
            tls,
            delete: (asked.delete > 0.0).then(|| format!("DELETE FROM `{table}` WHERE `key` = ?")),
            scan: (asked.scan > 0.0).then(|| {
                format!(
                    "SELECT `key`, {names} FROM `{table}` WHERE `key` >= ? ORDER BY `key` LIMIT ?"
                )
            }),
            select: format!("SELECT {names} FROM `{table}` WHERE `key` = ?"),
            // As CQL's INSERT: the row is there afterwards, whether or not it was before.
            upsert: format!(
                "INSERT INTO `{table}` (`key`, {names}) VALUES (?{places}) \
                 ON DUPLICATE KEY UPDATE {changes}"
            ),
        }
    }
}

impl OpenRows for MysqlRows {
    type Target = Mysql;

    /// Connects and prepares; the table must be there.
    async fn open(share: &Share, target: &Mysql, rows: &Rows) -> Result<MysqlRows, LoadError> {
        let sizes = rows.sizes.iter().flatten().map(|size| size.column_bytes);
        let least = sizes.min().unwrap_or(rows.column_bytes);
        if least < LEAST_COLUMN_BYTES {
            let rule = "each write has another version, whose number takes 8 bytes";
            return Err(Problem::new("workload.column_bytes", least, rule, "use 8 or more").into());
        }
        let tls = target.tls.then(|| tls::config(target.ca_file.as_deref()));
        let tls = tls.transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let statements = RowStatements::new(&target.table, rows, tls);
        let (servers, count) = (servers(share, target), share.slots);
        let pool = Pool::connected(share.seed, servers, statements, count).await;
        Ok(MysqlRows {
            pool: pool.map_err(|why| problem(why, target))?,
            checked: Checked::of(share, rows).with_versions(),
            uncounted: Cell::new(first_uncounted(share)),
        })
    }
}

/// Another one than those of jobs before, whose rows are there: each job of a run has a seed of its own.
fn first_uncounted(share: &Share) -> Version {
    let name = format!("versions of generator {}", share.generator.index);
    Stream::new(share.seed, &name).draw()
}

/// A parameter without bytes.
fn integer(number: u64) -> Parameter<fn(&mut BytesMut)> {
    Parameter::Integer(number as i64)
}

impl MysqlRows {
    fn next_uncounted(&self) -> Version {
        let next = self.uncounted.get();
        self.uncounted.set(next.wrapping_add(1));
        next | UNCOUNTED
    }

    /// A column of a row as a parameter, made while it is written to the request.
    fn column(
        &self,
        key: Key,
        version: Version,
        column: u32,
    ) -> Parameter<impl FnOnce(&mut BytesMut)> {
        let content = &self.checked.content;
        let bytes = content.column_bytes(key) as usize;
        Parameter::Bytes(bytes, move |out: &mut BytesMut| {
            content.write(key, version, column, out);
        })
    }
}

fn prepared(statement: Option<&mut Prepared>) -> Result<&mut Prepared, Failure> {
    statement.ok_or_else(|| Failure {
        kind: "protocol".into(),
        text: "the job names no such operation".into(),
    })
}

impl RowClient for MysqlRows {
    async fn read(&self, slot: usize, key: Key) -> Result<Version, Failure> {
        let read = async |session: &mut Session| {
            let mut found = None;
            let row = |row: RowBytes<'_>| found = Some(self.checked.row(key, row));
            let Session { wire, select, .. } = session;
            let asked = wire.execute(select, [integer(key)].into_iter(), row).await;
            asked.map_err(WireError::into_failure)?;
            let version = found.unwrap_or_else(|| Err(missing(key)))?;
            Ok(if version < UNCOUNTED { version } else { 0 })
        };
        self.pool.on(slot, read).await
    }

    async fn write(&self, slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        let version = if version == 0 {
            self.next_uncounted()
        } else {
            version
        };
        let write = async |session: &mut Session| {
            let Session { wire, upsert, .. } = session;
            // The key, and then each column.
            let values = (0..self.checked.content.columns() as usize + 1).map(|at| match at {
                0 => Parameter::Integer(key as i64),
                column => self.column(key, version, column as u32 - 1),
            });
            let asked = wire.execute(upsert, values, |_| ()).await;
            asked.map_err(WireError::into_failure)
        };
        self.pool.on(slot, write).await
    }

    async fn update(&self, _slot: usize, _key: Key, _column: u32) -> Result<(), Failure> {
        prepared(None).map(|_| ())
    }

    async fn delete(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let delete = async |session: &mut Session| {
            let Session { wire, delete, .. } = session;
            let statement = prepared(delete.as_mut())?;
            let values = [integer(key)].into_iter();
            let asked = wire.execute(statement, values, |_| ()).await;
            asked.map_err(WireError::into_failure)
        };
        self.pool.on(slot, delete).await
    }

    async fn scan(&self, slot: usize, key: Key, rows: u32) -> Result<(), Failure> {
        let scan = async |session: &mut Session| {
            let Session { wire, scan, .. } = session;
            let statement = prepared(scan.as_mut())?;
            let (mut found, mut count) = (Ok(()), 0);
            let row = |mut row: RowBytes<'_>| {
                if found.is_ok() {
                    let own = row.next().flatten().and_then(|bytes| bytes.try_into().ok());
                    let own = own.map(u64::from_le_bytes);
                    found = self.checked.scanned(key, count, own, row);
                }
                count += 1;
            };
            let values = [integer(key), integer(u64::from(rows))].into_iter();
            let asked = wire.execute(statement, values, row).await;
            asked.map_err(WireError::into_failure)?;
            found?;
            self.checked.scan_ended(key, rows, count)
        };
        self.pool.on(slot, scan).await
    }
}
