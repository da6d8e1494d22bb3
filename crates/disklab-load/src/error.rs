//! What can be wrong, in the parts that a user needs.

use std::fmt;

use serde::Serialize;

/// One thing that a user can mend, or that the database refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where: a field of the job, an address.
    pub place: String,
    /// What stands there.
    pub value: String,
    /// The rule that it breaks, or what the database said.
    pub rule: String,
    /// What to do instead.
    pub way_out: String,
}

impl Problem {
    /// A problem from its four parts.
    pub fn new(
        place: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Problem {
        Problem {
            place: place.into(),
            value: value.to_string(),
            rule: rule.into(),
            way_out: way_out.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            place,
            value,
            rule,
            way_out,
        } = self;
        write!(f, "{place}: {value}: {rule}; {way_out}")
    }
}

/// Why a load did not start or was given up. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// All that is wrong, the first one first.
    pub problems: Vec<Problem>,
}

impl LoadError {
    /// The first problem with the others in its rule: the form of one event.
    pub fn as_one(&self) -> Problem {
        let mut problems = self.problems.iter();
        let Some(mut first) = problems.next().cloned() else {
            return Problem::new("job", "", "refused without a reason", "report this");
        };
        for other in problems {
            first.rule.push_str(&format!("; also {other}"));
        }
        first
    }
}

impl From<Problem> for LoadError {
    fn from(problem: Problem) -> LoadError {
        LoadError {
            problems: vec![problem],
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
