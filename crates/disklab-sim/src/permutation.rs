//! Rows in an order without pattern, each at a place of its own.

use disklab_units::random::mix;

/// Rounds of the network. **Reason:** with four, neighbouring keys are as far apart as chance has it (the tests hold it
/// against that); two leave stripes.
const ROUNDS: usize = 4;

/// A bijection of 0 to `count` - 1 onto itself that looks drawn by chance.
///
/// A Feistel network over a grid of just about `count` cells: each round moves one coordinate by a number drawn from the
/// other one, which can be undone, so no two keys meet. The few cells beyond `count` are walked through. **Source:**
/// J. Black and P. Rogaway, Ciphers with arbitrary finite domains (2002), with a mixing function instead of a cipher.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    columns: u64,
    rows: u64,
    salts: [u64; ROUNDS],
}

impl Permutation {
    /// Of `count` numbers, at least one; others for another `seed`.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let count = count.max(1);
        let columns = count.isqrt().max(1);
        let mut salts = [seed; ROUNDS];
        for (round, salt) in salts.iter_mut().enumerate() {
            *salt = mix(seed.wrapping_add((round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        Permutation {
            count,
            columns,
            rows: count.div_ceil(columns),
            salts,
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where a number below `count` goes.
    #[inline]
    pub fn place(&self, number: u64) -> u64 {
        let mut at = number;
        loop {
            at = self.round_trip(at);
            // A cell beyond the last number leads on to another one, and at last to one that is a number.
            if at < self.count {
                return at;
            }
        }
    }

    #[inline]
    fn round_trip(&self, at: u64) -> u64 {
        let (mut row, mut column) = (at / self.columns, at % self.columns);
        for (round, &salt) in self.salts.iter().enumerate() {
            if round % 2 == 0 {
                row = moved(row, column ^ salt, self.rows);
            } else {
                column = moved(column, row ^ salt, self.columns);
            }
        }
        row * self.columns + column
    }
}

/// Moves a coordinate below `size` on, round the edge.
#[inline]
fn moved(at: u64, by: u64, size: u64) -> u64 {
    let step = ((u128::from(mix(by)) * u128::from(size)) >> 64) as u64;
    let at = at + step;
    if at >= size { at - size } else { at }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_has_a_place_of_its_own(count in 1_u64..3_000, seed in any::<u64>()) {
            let permutation = Permutation::new(count, seed);
            let mut seen = vec![false; count as usize];
            for number in 0..count {
                let place = permutation.place(number) as usize;
                prop_assert!(!std::mem::replace(&mut seen[place], true));
            }
        }
    }

    #[test]
    fn a_part_of_the_keys_is_spread_as_by_chance() {
        // Of the first tenth of a million keys, places in groups of 16 have a binomial number: its mean and variance.
        let permutation = Permutation::new(1_000_000, 7);
        let mut groups = vec![0_u32; 62_500];
        for key in 0..100_000 {
            groups[(permutation.place(key) / 16) as usize] += 1;
        }
        let mean = 1.6;
        let squares: f64 = groups.iter().map(|&n| (f64::from(n) - mean).powi(2)).sum();
        let variance = squares / groups.len() as f64;
        // Sixteen draws of a tenth each: 16 * 0.1 * 0.9; its own error is 0.6 %.
        assert!((variance - 1.44).abs() < 0.03, "{variance}");
        let empty = groups.iter().filter(|&&n| n == 0).count() as f64 / groups.len() as f64;
        assert!((empty - 0.9_f64.powi(16)).abs() < 0.006, "{empty}");
    }

    #[test]
    fn neighbours_are_far_apart() {
        let permutation = Permutation::new(1_000_003, 7);
        let near = (0..100_000).filter(|&key| {
            let (one, next) = (permutation.place(key), permutation.place(key + 1));
            one.abs_diff(next) < 1_000
        });
        // By chance 2 * 1,000 of a million: 200, give or take 14.
        let near = near.count();
        assert!((140..260).contains(&near), "{near}");
    }
}
