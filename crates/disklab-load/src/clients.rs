//! How a workload reaches a database.

pub mod cql;
pub mod postgres;

use std::future::Future;

use crate::keys::Key;
use crate::workloads::Failure;

/// Rows by key over some protocol. Implementations never retry: a retry hides an error and stretches a latency.
///
/// No two operations are ever under way in the same slot, so that a protocol may have a connection for each.
pub trait RowClient {
    /// Reads a row and compares it with what was written; a row that is missing or wrong is a failure.
    fn read(&self, slot: usize, key: Key) -> impl Future<Output = Result<(), Failure>>;

    /// Writes a whole row.
    fn write(&self, slot: usize, key: Key) -> impl Future<Output = Result<(), Failure>>;
}
