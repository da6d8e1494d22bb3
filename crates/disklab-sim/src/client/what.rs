//! What an operation on rows is, by its name.

use disklab_units::random::Stream;

use crate::client::Kind;
use crate::database::cassandra::job::Workload;
use crate::database::cassandra::operations::OtherOperations;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Reads a row.
    Read,
    /// Writes all of a row.
    Write,
    /// Writes a row that was not there.
    Insert,
    /// Writes one column of a row.
    Update,
    /// Deletes a row.
    Delete,
    /// Reads rows that follow each other.
    Scan,
    /// Reads a row, then writes all of it.
    ReadModifyWrite,
}

/// All of them, in the order in which they are recorded.
const ALL: [What; 7] = [
    What::Read,
    What::Write,
    What::Insert,
    What::Update,
    What::Delete,
    What::Scan,
    What::ReadModifyWrite,
];

/// Their names in a report: those of the load generator.
pub const NAMES: [(usize, &str); 7] = [
    (What::Read as usize, "read"),
    (What::Write as usize, "write"),
    (What::Insert as usize, "insert"),
    (What::Update as usize, "update"),
    (What::Delete as usize, "delete"),
    (What::Scan as usize, "scan"),
    (What::ReadModifyWrite as usize, "read_modify_write"),
];

impl What {
    /// Whether it reads or writes, at first.
    #[inline]
    pub fn kind(self) -> Kind {
        match self {
            What::Read | What::Scan | What::ReadModifyWrite => Kind::Read,
            What::Write | What::Insert | What::Update | What::Delete => Kind::Write,
        }
    }

    /// What is done first: of a read that a write follows, the read.
    #[inline]
    pub fn first_part(self) -> What {
        match self {
            What::ReadModifyWrite => What::Read,
            other => other,
        }
    }
}

/// How often each is drawn.
#[derive(Clone, Debug)]
pub struct Shares {
    read_ppm: u32,
    /// None: reads and writes alone. Else the upper bound of each share, added up.
    bounds: Option<[u64; 7]>,
    scan_rows: u64,
    draws: Stream,
    lengths: Stream,
}

impl Shares {
    /// The shares of a load. Reads and writes alone are drawn as they always were.
    pub fn new(workload: &Workload, seed: u64) -> Shares {
        let bounds = workload.others.as_ref().map(|others| {
            let mut sum = 0;
            shares(workload.read_ppm, others).map(|share| {
                sum += u64::from(share);
                sum
            })
        });
        Shares {
            read_ppm: workload.read_ppm,
            bounds,
            scan_rows: workload
                .others
                .as_ref()
                .map_or(1, |o| u64::from(o.scan_rows)),
            draws: Stream::new(seed, "operations"),
            lengths: Stream::new(seed, "scans"),
        }
    }

    /// The next operation, and how many rows it reads.
    #[inline]
    pub fn draw(&mut self) -> (What, u32) {
        let Some(bounds) = &self.bounds else {
            let reads = match self.read_ppm {
                0 => false,
                1_000_000.. => true,
                ppm => self.draws.chance(ppm),
            };
            return (if reads { What::Read } else { What::Write }, 1);
        };
        let drawn = self.draws.below(1_000_000);
        let at = bounds.iter().position(|&bound| drawn < bound);
        match at.map_or(What::Write, |at| ALL[at]) {
            What::Scan => (What::Scan, self.lengths.below(self.scan_rows) as u32 + 1),
            other => (other, 1),
        }
    }
}

/// Shares in the order of [`ALL`]; writes have what is left.
fn shares(read_ppm: u32, others: &OtherOperations) -> [u32; 7] {
    let rest = 1_000_000_u32.saturating_sub(read_ppm + others.sum());
    [
        read_ppm,
        rest,
        others.insert_ppm,
        others.update_ppm,
        others.delete_ppm,
        others.scan_ppm,
        others.read_modify_write_ppm,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_the_order_of_the_numbers() {
        for (number, what) in ALL.into_iter().enumerate() {
            assert_eq!((what as usize, NAMES[number].0), (number, number));
        }
    }
}
