//! Why the model refuses a profile or a change: reasons as data.

use std::fmt;

use serde::Serialize;

/// One broken rule. The parts are those of an error on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Where: a path into the profile, such as `volumes.data.disks[0].limits[1].per_s`.
    pub place: String,
    /// What stands there.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// What to do instead.
    pub way_out: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason {
            place,
            value,
            rule,
            way_out,
        } = self;
        write!(f, "{place}: {value}: {rule}; {way_out}")
    }
}

/// A profile, change or fault that the model refuses, with every reason at once. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// At least one.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Refusal {
    /// One line for each reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.reasons.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            reason.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Reason {
    /// The first reason in full; the others follow in its rule.
    fn from(refusal: Refusal) -> Reason {
        let mut reasons = refusal.reasons.into_iter();
        let Some(mut first) = reasons.next() else {
            return Reason {
                place: "profile".to_owned(),
                value: String::new(),
                rule: "refused without a reason".to_owned(),
                way_out: "report this".to_owned(),
            };
        };
        for other in reasons {
            first.rule.push_str(&format!("; also {other}"));
        }
        first
    }
}

/// Collects the reasons against something.
#[derive(Debug, Default)]
pub struct Rules {
    reasons: Vec<Reason>,
}

impl Rules {
    /// Notes a rule that does not hold.
    pub fn must(
        &mut self,
        holds: bool,
        place: &str,
        value: impl fmt::Display,
        rule: &str,
        way_out: &str,
    ) {
        if !holds {
            self.reasons.push(Reason {
                place: place.to_owned(),
                value: value.to_string(),
                rule: rule.to_owned(),
                way_out: way_out.to_owned(),
            });
        }
    }

    /// Whether no rule is broken so far.
    pub fn hold(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Refuses with every reason, if there is one.
    pub fn verdict(self) -> Result<(), Refusal> {
        if self.hold() {
            return Ok(());
        }
        Err(Refusal {
            reasons: self.reasons,
        })
    }
}
