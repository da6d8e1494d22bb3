//! The rows workload over PostgreSQL's protocol.

use std::error::Error;
use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, Statement};

use super::{Sessions, Statements, failure};
use crate::clients::RowClient;
use crate::error::LoadError;
use crate::job::{Job, Postgresql, Rows};
use crate::keys::Key;
use crate::workloads::rows::Content;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// A table of rows: `key bigint PRIMARY KEY, c0 bytea, c1 bytea, ...`.
pub struct PostgresRows {
    sessions: Sessions<RowStatements>,
    content: Content,
    verify: bool,
}

/// The texts of the two statements.
struct RowStatements {
    select: String,
    upsert: String,
}

/// The two statements on a connection.
struct Prepared {
    select: Statement,
    upsert: Statement,
}

impl Statements for RowStatements {
    type Prepared = Prepared;

    async fn prepare(&self, client: &Client) -> Result<Prepared, tokio_postgres::Error> {
        Ok(Prepared {
            select: client.prepare(&self.select).await?,
            upsert: client.prepare(&self.upsert).await?,
        })
    }
}

impl RowStatements {
    fn new(table: &str, columns: u32) -> RowStatements {
        let names: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
        let names = names.join(", ");
        let places: Vec<String> = (0..columns)
            .map(|column| format!(", ${}", column + 2))
            .collect();
        let changes: Vec<String> = (0..columns)
            .map(|column| format!("c{column} = excluded.c{column}"))
            .collect();
        RowStatements {
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

impl PostgresRows {
    /// Connects and prepares; the table must be there.
    pub async fn open(
        job: &Job,
        target: &Postgresql,
        rows: &Rows,
    ) -> Result<PostgresRows, LoadError> {
        let statements = RowStatements::new(&target.table, rows.columns);
        let count = job.slots() as usize;
        Ok(PostgresRows {
            sessions: Sessions::open(job, target, &[], statements, count).await?,
            content: Content::of(job, rows),
            verify: rows.verify,
        })
    }

    fn examine(&self, key: Key, row: &Row) -> Result<(), Failure> {
        let wrong = |text: String| Failure {
            kind: WRONG_ROW.into(),
            text: format!("key {key}: {text}"),
        };
        for column in 0..self.content.columns() {
            let bytes: Option<&[u8]> = row
                .try_get(column as usize)
                .map_err(|error| wrong(error.to_string()))?;
            let bytes = bytes.ok_or_else(|| wrong(format!("column c{column} is null")))?;
            if !self.content.matches(key, column, bytes) {
                return Err(wrong(format!("column c{column} is not what was written")));
            }
        }
        Ok(())
    }
}

impl RowClient for PostgresRows {
    async fn read(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let read = async |client: &Client, prepared: &Prepared| {
            let row = client
                .query_opt(&prepared.select, &[&(key as i64)])
                .await
                .map_err(|error| failure(&error))?;
            let row = row.ok_or_else(|| Failure {
                kind: MISSING_ROW.into(),
                text: format!("key {key}: no such row"),
            })?;
            if self.verify {
                self.examine(key, &row)
            } else {
                Ok(())
            }
        };
        self.sessions.with(slot, read).await
    }

    async fn write(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let write = async |client: &Client, prepared: &Prepared| {
            let key_value = key as i64;
            let columns: Vec<ColumnValue> = (0..self.content.columns())
                .map(|column| ColumnValue {
                    content: &self.content,
                    key,
                    column,
                })
                .collect();
            let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(columns.len() + 1);
            values.push(&key_value);
            values.extend(columns.iter().map(|column| column as &(dyn ToSql + Sync)));
            client
                .execute(&prepared.upsert, &values)
                .await
                .map(|_| ())
                .map_err(|error| failure(&error))
        };
        self.sessions.with(slot, write).await
    }
}

/// A column, made while it is written to the request.
struct ColumnValue<'a> {
    content: &'a Content,
    key: Key,
    column: u32,
}

impl fmt::Debug for ColumnValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column c{} of key {}", self.column, self.key)
    }
}

impl ToSql for ColumnValue<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.content.write(self.key, self.column, out);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::BYTEA
    }

    to_sql_checked!();
}
