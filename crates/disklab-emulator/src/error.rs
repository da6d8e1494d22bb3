//! What can be wrong, in the parts that a user needs.

use std::fmt;
use std::io;

use disklab_disk::{Reason, Refusal};
use serde::Serialize;

/// Something that a user can mend, or a limit of this machine: its place is an argument, a field of a
/// request or a path, its rule perhaps what the kernel said. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct EmulatorError(Reason);

impl EmulatorError {
    /// An error from its four parts.
    pub fn new(
        place: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> EmulatorError {
        EmulatorError(Reason {
            place: place.into(),
            value: value.into(),
            rule: rule.into(),
            way_out: way_out.into(),
        })
    }

    /// What the kernel refused.
    pub fn system(
        place: impl Into<String>,
        value: impl Into<String>,
        error: &io::Error,
        way_out: impl Into<String>,
    ) -> EmulatorError {
        EmulatorError::new(
            place,
            value,
            format!("the kernel refused it: {error}"),
            way_out,
        )
    }
}

impl From<Refusal> for EmulatorError {
    fn from(refusal: Refusal) -> EmulatorError {
        EmulatorError(refusal.into())
    }
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for EmulatorError {}
