//! What an operation is.

pub mod rows;

use std::future::Future;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, as a word to count by.
    pub kind: &'static str,
    /// What the database or the driver said.
    pub text: String,
}

/// A row that was read is not the row that was written.
pub const WRONG_ROW: &str = "wrong_row";
/// A row that was written is not there.
pub const MISSING_ROW: &str = "missing_row";

/// A stream of operations against one database. The loops know nothing else about it.
pub trait Workload {
    /// One operation, decided but not yet done.
    type Step: Copy;

    /// Names of the kinds of operations; a kind is an index into it.
    fn kinds(&self) -> &'static [&'static str];

    /// Decides the next operation.
    fn draw(&self) -> Self::Step;

    /// The kind of an operation.
    fn kind(&self, step: Self::Step) -> usize;

    /// Does an operation.
    fn perform(&self, step: Self::Step) -> impl Future<Output = Result<(), Failure>>;
}
