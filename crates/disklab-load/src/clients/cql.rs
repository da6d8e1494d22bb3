//! Cassandra's native protocol, by the scylla driver.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::ColumnIterator;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, DbError, ExecutionError, NewSessionError,
    RequestAttemptError,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use scylla::statement::Consistency as Level;
use scylla::statement::prepared::PreparedStatement;

use crate::clients::RowClient;
use crate::error::{LoadError, Problem};
use crate::job::{Consistency, Cql, Job, Rows};
use crate::keys::Key;
use crate::workloads::rows::Content;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// How long a first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A table of rows in Cassandra: `key bigint PRIMARY KEY, c0 blob, c1 blob, ...`.
pub struct CqlRows {
    session: Session,
    select: PreparedStatement,
    insert: PreparedStatement,
    content: Content,
    verify: bool,
    /// Where a row is made before the driver copies it.
    scratch: RefCell<Vec<u8>>,
}

/// Opens a session that adds nothing of its own: no retries, no second attempts, no compression.
pub async fn connect(
    contact_points: &[SocketAddr],
    keyspace: Option<&str>,
    consistency: Level,
    request_timeout: Option<Duration>,
) -> Result<Session, NewSessionError> {
    let profile = ExecutionProfile::builder()
        .consistency(consistency)
        .serial_consistency(None)
        .request_timeout(request_timeout)
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .build();
    SessionBuilder::new()
        .known_nodes_addr(contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .compression(None)
        .tcp_nodelay(true)
        .connection_timeout(CONNECT_TIMEOUT)
        // One connection a node: the more requests share it, the more of them share a system call.
        .pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN))
        .fetch_schema_metadata(keyspace.is_some())
        .keyspaces_to_fetch(keyspace)
        .auto_await_schema_agreement(keyspace.is_none())
        .driver_config_reporting(false)
        .build()
        .await
}

/// Addresses of contact points, which were checked when the job was read.
pub fn resolve(contact_points: &[String]) -> Vec<SocketAddr> {
    use std::net::ToSocketAddrs;
    contact_points
        .iter()
        .filter_map(|point| point.to_socket_addrs().ok())
        .flatten()
        .collect()
}

impl CqlRows {
    /// Connects and prepares; the table must be there.
    pub async fn open(job: &Job, target: &Cql, rows: &Rows) -> Result<CqlRows, LoadError> {
        let session = connect(
            &resolve(&target.contact_points),
            Some(&target.keyspace),
            target.consistency.into(),
            // The loops have time-outs of their own: see deadline.rs.
            None,
        )
        .await
        .map_err(|error| unreachable(target, &error))?;
        let columns: Vec<String> = (0..rows.columns)
            .map(|column| format!("c{column}"))
            .collect();
        let table = format!("{}.{}", target.keyspace, target.table);
        let select = format!("SELECT {} FROM {table} WHERE key = ?", columns.join(", "));
        let insert = format!(
            "INSERT INTO {table} (key, {}) VALUES (?{})",
            columns.join(", "),
            ", ?".repeat(columns.len())
        );
        Ok(CqlRows {
            select: prepare(&session, &table, select).await?,
            insert: prepare(&session, &table, insert).await?,
            session,
            content: Content::of(job, rows),
            verify: rows.verify,
            scratch: RefCell::default(),
        })
    }

    /// Nodes of the cluster that the driver knows.
    pub fn nodes(&self) -> usize {
        self.session.get_cluster_state().get_nodes_info().len()
    }
}

fn unreachable(target: &Cql, error: &NewSessionError) -> LoadError {
    Problem::new(
        "target.contact_points",
        target.contact_points.join(", "),
        format!("the database cannot be reached: {error}"),
        "start it, or correct the addresses",
    )
    .into()
}

async fn prepare(
    session: &Session,
    table: &str,
    text: String,
) -> Result<PreparedStatement, LoadError> {
    let mut statement = session.prepare(text).await.map_err(|error| {
        Problem::new(
            "target.table",
            table,
            format!("the database refused the statement: {error}"),
            "make the table: key bigint PRIMARY KEY, c0 blob, c1 blob, ...",
        )
    })?;
    // The columns do not change: they need not come with every row, nor be read again.
    statement.set_use_cached_result_metadata(true);
    Ok(statement)
}

impl RowClient for CqlRows {
    async fn read(&self, _slot: usize, key: Key) -> Result<(), Failure> {
        let answer = self
            .session
            .execute_unpaged(&self.select, KeyOnly(key))
            .await
            .map_err(|error| failure(&error))?;
        let wrong = |text: String| Failure {
            kind: WRONG_ROW.into(),
            text: format!("key {key}: {text}"),
        };
        let rows = answer
            .into_rows_result()
            .map_err(|error| wrong(error.to_string()))?;
        let row = rows
            .maybe_first_row::<ColumnIterator>()
            .map_err(|error| wrong(error.to_string()))?
            .ok_or_else(|| Failure {
                kind: MISSING_ROW.into(),
                text: format!("key {key}: no such row"),
            })?;
        if !self.verify {
            return Ok(());
        }
        let mut columns = 0;
        for (index, column) in row.enumerate() {
            let bytes = column
                .map_err(|error| wrong(error.to_string()))?
                .slice
                .ok_or_else(|| wrong(format!("column c{index} is null")))?;
            if !self.content.matches(key, index as u32, bytes.as_slice()) {
                return Err(wrong(format!("column c{index} is not what was written")));
            }
            columns += 1;
        }
        if columns != self.content.columns() {
            return Err(wrong(format!("{columns} columns")));
        }
        Ok(())
    }

    async fn write(&self, _slot: usize, key: Key) -> Result<(), Failure> {
        let row = WholeRow {
            key,
            content: &self.content,
            scratch: &self.scratch,
        };
        self.session
            .execute_unpaged(&self.insert, row)
            .await
            .map(|_| ())
            .map_err(|error| failure(&error))
    }
}

/// A key as the only value of a statement.
struct KeyOnly(Key);

impl SerializeRow for KeyOnly {
    fn serialize(
        &self,
        _: &RowSerializationContext<'_>,
        writer: &mut RowWriter,
    ) -> Result<(), SerializationError> {
        write_key(self.0, writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// Key and columns, made while they are written to the request.
struct WholeRow<'a> {
    key: Key,
    content: &'a Content,
    scratch: &'a RefCell<Vec<u8>>,
}

impl SerializeRow for WholeRow<'_> {
    fn serialize(
        &self,
        _: &RowSerializationContext<'_>,
        writer: &mut RowWriter,
    ) -> Result<(), SerializationError> {
        write_key(self.key, writer)?;
        let mut column_bytes = self.scratch.borrow_mut();
        for column in 0..self.content.columns() {
            column_bytes.clear();
            self.content.write(self.key, column, &mut *column_bytes);
            writer
                .make_cell_writer()
                .set_value(&column_bytes)
                .map_err(SerializationError::new)?;
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        false
    }
}

fn write_key(key: Key, writer: &mut RowWriter) -> Result<(), SerializationError> {
    writer
        .make_cell_writer()
        .set_value(&(key as i64).to_be_bytes())
        .map_err(SerializationError::new)?;
    Ok(())
}

impl From<Consistency> for Level {
    fn from(consistency: Consistency) -> Level {
        match consistency {
            Consistency::Any => Level::Any,
            Consistency::One => Level::One,
            Consistency::Two => Level::Two,
            Consistency::Three => Level::Three,
            Consistency::Quorum => Level::Quorum,
            Consistency::All => Level::All,
            Consistency::LocalQuorum => Level::LocalQuorum,
            Consistency::EachQuorum => Level::EachQuorum,
            Consistency::LocalOne => Level::LocalOne,
        }
    }
}

/// What the driver's error is counted as.
fn failure(error: &ExecutionError) -> Failure {
    let kind = match error {
        ExecutionError::RequestTimeout(_) => "client_timeout",
        ExecutionError::EmptyPlan => "no_node",
        ExecutionError::ConnectionPoolError(pool) => pool_kind(pool),
        ExecutionError::LastAttemptError(attempt) => attempt_kind(attempt),
        _ => "other",
    };
    Failure {
        kind: kind.into(),
        text: error.to_string(),
    }
}

fn pool_kind(error: &ConnectionPoolError) -> &'static str {
    match error {
        ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectTimeout,
        } => "connect_timeout",
        ConnectionPoolError::Broken { .. } => "no_connection",
        _ => "no_node",
    }
}

fn attempt_kind(error: &RequestAttemptError) -> &'static str {
    match error {
        RequestAttemptError::UnableToAllocStreamId => "no_stream",
        RequestAttemptError::BrokenConnectionError(_) => "connection_lost",
        RequestAttemptError::DbError(said, _) => match said {
            DbError::ReadTimeout { .. } => "read_timeout",
            DbError::WriteTimeout { .. } => "write_timeout",
            DbError::ReadFailure { .. } => "read_failure",
            DbError::WriteFailure { .. } => "write_failure",
            DbError::Unavailable { .. } => "unavailable",
            DbError::Overloaded => "overloaded",
            DbError::IsBootstrapping => "bootstrapping",
            DbError::TruncateError => "truncating",
            DbError::ServerError => "server_error",
            DbError::Invalid => "invalid",
            DbError::Unprepared { .. } => "unprepared",
            _ => "refused",
        },
        _ => "protocol",
    }
}
