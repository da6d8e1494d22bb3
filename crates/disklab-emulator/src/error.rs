//! What can be wrong, in the parts that a user needs.

use std::fmt;
use std::io;

use disklab_disk::Refusal;
use serde::Serialize;

/// Something that a user can mend, or a limit of this machine. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EmulatorError {
    /// Where: an argument, a field of a request, a path.
    pub place: String,
    /// What stands there.
    pub value: String,
    /// The rule that it breaks, or what the kernel said.
    pub rule: String,
    /// What to do instead.
    pub way_out: String,
}

impl EmulatorError {
    /// An error from its four parts.
    pub fn new(
        place: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> EmulatorError {
        EmulatorError {
            place: place.into(),
            value: value.into(),
            rule: rule.into(),
            way_out: way_out.into(),
        }
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
    /// The first reason in full; the others follow in the rule.
    fn from(refusal: Refusal) -> EmulatorError {
        let mut reasons = refusal.reasons.into_iter();
        let Some(first) = reasons.next() else {
            return EmulatorError::new("profile", "", "refused without a reason", "report this");
        };
        let mut rule = first.rule;
        for other in reasons {
            rule.push_str(&format!("; also {other}"));
        }
        EmulatorError::new(first.place, first.value, rule, first.way_out)
    }
}

impl fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EmulatorError {
            place,
            value,
            rule,
            way_out,
        } = self;
        write!(f, "{place}: {value}: {rule}; {way_out}")
    }
}

impl std::error::Error for EmulatorError {}
