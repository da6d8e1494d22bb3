//! A generator's part of a job.

use disklab_units::Duration;
use serde::Deserialize;

/// What a client of the database needs of a job.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Seeds every random stream.
    pub seed: u64,
    /// Whose it is.
    pub generator: Generator,
    /// Operations that it has in flight at most.
    pub slots: usize,
    /// The longest that an operation may take, by this machine's clock.
    pub timeout: Duration,
}

/// One of several processes that make a load together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Which: `0..count`.
    pub index: u32,
    /// Of how many.
    pub count: u32,
}

impl Default for Generator {
    fn default() -> Generator {
        Generator { index: 0, count: 1 }
    }
}

impl Generator {
    /// This generator's part of `whole` things; the parts of all add up to it.
    pub fn part(&self, whole: u64) -> u64 {
        let upto =
            |index: u32| u128::from(whole) * u128::from(index) / u128::from(self.count.max(1));
        (upto(self.index + 1) - upto(self.index)) as u64
    }
}
