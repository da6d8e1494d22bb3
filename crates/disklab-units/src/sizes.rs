//! Sizes of rows as a distribution: so many of each size, in an order without pattern.

use serde::{Deserialize, Serialize};

use crate::random::Stream;

/// Bins of a distribution: a share is kept to a quarter of a thousandth.
pub const BINS: usize = 4096;

/// Most sizes of a distribution.
pub const MOST_SIZES: usize = 256;

/// One of the sizes that rows have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Bytes of each column of such a row.
    pub column_bytes: u32,
    /// How many of a million rows have it; the shares need not add up to a million.
    pub share_ppm: u32,
}

/// Which of the sizes each of [`BINS`] rows has; further rows have the same ones again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins(Box<[u8]>);

/// Why a list is not a distribution: the rule that it breaks; none when it is one.
pub fn problem(sizes: &[Size]) -> Option<&'static str> {
    let empty = |size: &Size| size.column_bytes == 0 || size.share_ppm == 0;
    if sizes.is_empty() || sizes.len() > MOST_SIZES {
        Some("a distribution has 1 to 256 sizes")
    } else if sizes.iter().any(empty) {
        Some("each size has a byte at least, and a share above 0")
    } else {
        None
    }
}

impl Bins {
    /// The bins of a distribution that has no [`problem`], in an order that hangs on `seed`.
    ///
    /// The largest remainders get what rounding leaves, so that the bins have the shares as closely as they can.
    pub fn new(sizes: &[Size], seed: u64) -> Bins {
        let total: u64 = sizes.iter().map(|size| u64::from(size.share_ppm)).sum();
        let exact = |size: &Size| u64::from(size.share_ppm) * BINS as u64;
        let mut counts: Vec<u64> = sizes.iter().map(|size| exact(size) / total).collect();
        let mut by_rest: Vec<usize> = (0..sizes.len()).collect();
        by_rest.sort_by_key(|&at| std::cmp::Reverse(exact(&sizes[at]) % total));
        let left = BINS as u64 - counts.iter().sum::<u64>();
        for &at in by_rest.iter().take(left as usize) {
            counts[at] += 1;
        }
        let each = counts.iter().enumerate();
        let mut bins: Vec<u8> = each
            .flat_map(|(at, &count)| std::iter::repeat_n(at as u8, count as usize))
            .collect();
        let mut stream = Stream::new(seed, "sizes of rows");
        for at in (1..bins.len()).rev() {
            bins.swap(at, stream.below(at as u64 + 1) as usize);
        }
        Bins(bins.into())
    }

    /// Which size row `number` of a table has, by its place in the list.
    #[inline]
    pub fn of_row(&self, number: u64) -> usize {
        usize::from(self.0[number as usize % BINS])
    }

    /// Which size a row has whose key has this hash.
    #[inline]
    pub fn of_hash(&self, hash: u64) -> usize {
        self.of_row(hash >> 52)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    fn sizes(shares: &[(u32, u32)]) -> Vec<Size> {
        let one = |&(column_bytes, share_ppm)| Size {
            column_bytes,
            share_ppm,
        };
        shares.iter().map(one).collect()
    }

    #[test]
    fn shares_are_kept_as_closely_as_bins_can() {
        let sizes = sizes(&[(200, 600_000), (4096, 333_333), (32_768, 66_667)]);
        let bins = Bins::new(&sizes, 7);
        for (at, size) in sizes.iter().enumerate() {
            let found = (0..BINS as u64)
                .filter(|&row| bins.of_row(row) == at)
                .count();
            let wanted = f64::from(size.share_ppm) * BINS as f64 / 1e6;
            assert!(
                (found as f64 - wanted).abs() < 1.0,
                "{size:?}: {found} of {wanted}"
            );
        }
    }

    #[test]
    fn keys_have_the_sizes_in_their_shares_and_neighbours_nothing_in_common() {
        let bins = Bins::new(&sizes(&[(1, 700_000), (2, 300_000)]), 7);
        let large = |key: u64| bins.of_hash(mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15))) == 1;
        let keys = 1_000_000_u64;
        let share = (0..keys).filter(|&key| large(key)).count() as f64 / keys as f64;
        let both = (0..keys).filter(|&key| large(key) && large(key + 1));
        let both = both.count() as f64 / keys as f64;
        assert!((share - 0.3).abs() < 0.01, "{share}");
        assert!((both - 0.09).abs() < 0.01, "{both}");
        let runs = (0..BINS as u64).filter(|&row| bins.of_row(row) != bins.of_row(row + 1));
        // 2 x 0.7 x 0.3 of the neighbours differ, within three standard deviations.
        let differ = runs.count() as f64 / BINS as f64;
        assert!((differ - 0.42).abs() < 0.03, "{differ}");
    }

    #[test]
    fn what_is_no_distribution_says_why() {
        for wrong in [
            sizes(&[]),
            sizes(&[(0, 1)]),
            sizes(&[(1, 0)]),
            sizes(&[(1, 1); 257]),
        ] {
            assert!(problem(&wrong).is_some(), "{wrong:?}");
        }
        assert_eq!(problem(&sizes(&[(1, 1)])), None);
    }
}
