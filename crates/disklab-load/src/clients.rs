//! How a workload reaches a database.

pub mod cql;

use std::future::Future;

use crate::keys::Key;
use crate::workloads::Failure;

/// Rows by key over some protocol. Implementations never retry: a retry hides an error and stretches a latency.
pub trait RowClient {
    /// Reads a row and compares it with what was written; a row that is missing or wrong is a failure.
    fn read(&self, key: Key) -> impl Future<Output = Result<(), Failure>>;

    /// Writes a whole row.
    fn write(&self, key: Key) -> impl Future<Output = Result<(), Failure>>;
}
