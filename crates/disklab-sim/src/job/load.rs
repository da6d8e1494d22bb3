//! How operations arrive: in a closed loop, or an open one.

use serde::{Deserialize, Serialize};

/// How operations arrive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// Closed loop: each thread has one operation under way.
    Closed {
        /// How many.
        threads: u32,
    },
    /// Open loop: operations arrive whatever happens.
    Open {
        /// Offered rate, in operations per 1000 seconds.
        rate_per_ks: u64,
        /// How they arrive.
        arrivals: Arrivals,
        /// Operations under way at most; later ones wait, and their wait counts (but not at a pace).
        max_in_flight: u32,
    },
}

impl Load {
    /// Operations under way at most.
    pub fn most_under_way(&self) -> u32 {
        match *self {
            Load::Closed { threads } => threads,
            Load::Open { max_in_flight, .. } => max_in_flight,
        }
    }

    /// When the latency begins of an operation that was due and starts now.
    #[inline]
    pub fn counted_from(&self, due: u64, now: u64) -> u64 {
        if self.is_paced() { now } else { due }
    }

    /// Whether it is a closed loop with a ceiling.
    pub fn is_paced(&self) -> bool {
        let Load::Open { arrivals, .. } = self else {
            return false;
        };
        *arrivals == Arrivals::Paced
    }
}

/// How an open loop's operations are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent of each other.
    Poisson,
    /// At equal distances.
    Even,
    /// At equal distances, and latency is from when an operation starts. With as many under way as there are threads it
    /// is a closed loop with a ceiling: a thread begins its next operation when it has ended one and the next is due.
    ///
    /// **Source:** cassandra-stress 4.1 (`StressAction`): all threads share one schedule from the start of the run, which
    /// they may fall behind and catch up with; `fixed=` counts from it, `throttle=` does not.
    Paced,
}
