//! What an operation is.

pub mod rows;
pub mod tpcc;

use std::borrow::Cow;
use std::future::Future;

use disklab_units::Duration;
use serde_json::Value;

use crate::record::Record;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, as a word to count by.
    pub kind: Cow<'static, str>,
    /// What the database or the driver said.
    pub text: String,
}

/// A row that was read is not the row that was written.
pub const WRONG_ROW: &str = "wrong_row";
/// A row that was written is not there.
pub const MISSING_ROW: &str = "missing_row";

/// What a workload says of a whole run beyond the histograms, made from them and from how long it took: a key of the
/// last line and its value.
pub type Outcome = Box<dyn FnOnce(&Record, Duration) -> (&'static str, Value) + Send>;

/// A stream of operations against one database. The loops know nothing else about it.
pub trait Workload {
    /// One operation, decided but not yet done.
    type Step: Copy;

    /// Names of the kinds of operations; a kind is an index into it.
    fn kinds(&self) -> &'static [&'static str];

    /// How many operations there are, where that is not for the job to say.
    fn operations(&self) -> Option<u64> {
        None
    }

    /// How long after the start of the run each terminal wants to start its first operation. Without terminals, which
    /// is the rule, whoever has ended an operation starts the next one.
    fn terminals(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// How long a terminal rests between the end of its operation and the start of its next one.
    fn rest(&self, _terminal: usize) -> Duration {
        Duration::ZERO
    }

    /// Decides the next operation; `who` is the terminal that it is for, or the slot where there are none.
    fn draw(&self, who: usize) -> Self::Step;

    /// The kind of an operation.
    fn kind(&self, step: Self::Step) -> usize;

    /// Does an operation. No two are ever under way in the same slot.
    fn perform(&self, slot: usize, step: Self::Step) -> impl Future<Output = Result<(), Failure>>;

    /// What there is to say when the run has ended.
    fn outcome(&self) -> Option<Outcome> {
        None
    }
}
