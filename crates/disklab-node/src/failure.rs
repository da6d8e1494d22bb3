//! Why a request was refused.

use std::fmt;
use std::io;

use serde::Serialize;

/// A refusal in the parts that a user needs. A request that is refused has changed nothing, unless the rule says what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Where: a field of the request or a path.
    pub place: String,
    /// What was given.
    pub value: String,
    /// Which rule it breaks, or what the kernel said.
    pub rule: String,
    /// What to do instead.
    pub way_out: String,
    /// The kernel's error number, where it was the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl Failure {
    /// A refusal from its four parts.
    pub fn new(
        place: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Failure {
        Failure {
            place: place.into(),
            value: value.into(),
            rule: rule.into(),
            way_out: way_out.into(),
            errno: None,
        }
    }

    /// What the kernel refused.
    pub fn system(place: impl Into<String>, error: &io::Error) -> Failure {
        Failure {
            errno: error.raw_os_error(),
            ..Failure::new(place, "", error.to_string(), "look at it on the host")
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}; {}",
            self.place, self.value, self.rule, self.way_out
        )
    }
}

impl std::error::Error for Failure {}

/// What a request comes to.
pub type Outcome<T> = Result<T, Failure>;
