//! Few things often: Zipf's distribution and a bell, and where on a disk the popular ones lie.
//!
//! The load generator and the simulator draw their keys here, so that a prediction has the keys of the
//! run that it predicts.

use crate::random::Stream;

/// The usual exponent. **Source:** YCSB's `ZIPFIAN_CONSTANT`.
pub const YCSB_THETA: f64 = 0.99;

/// Zipf's distribution over `1..=n`: rank `k` has a weight of `k^-theta`.
///
/// **Source:** rejection-inversion, W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", ACM TOMACS 6(3), 1996. No table, about one draw a variate, exact for
/// any `theta` > 0 and `n`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    area_from: f64,
    area_to: f64,
    squeeze: f64,
}

impl Zipf {
    /// Ranks `1..=n`, exponent `theta` > 0.
    pub fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0 && theta > 0.0);
        let mut zipf = Zipf {
            n,
            theta,
            area_from: 0.0,
            area_to: 0.0,
            squeeze: 0.0,
        };
        zipf.area_from = zipf.area(1.5) - 1.0;
        zipf.area_to = zipf.area(n as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The next rank.
    #[inline]
    pub fn draw(&self, stream: &mut Stream) -> u64 {
        loop {
            let area = self.area_to + stream.unit() * (self.area_from - self.area_to);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.n as f64);
            if rank - x <= self.squeeze || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    // libm and not the platform's functions: the same bits on every machine.
    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// The integral of the weight from 1 to `x`: (x^(1-theta) - 1) / (1-theta), or ln x.
    fn area(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        let log = libm::log(x);
        if (exponent * log).abs() < 1e-12 {
            log
        } else {
            libm::expm1(exponent * log) / exponent
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        let grown = (exponent * area).max(-1.0);
        if grown.abs() < 1e-12 {
            libm::exp(area)
        } else {
            libm::exp(libm::log1p(grown) / exponent)
        }
    }
}

/// Standard deviations from the middle of a range to its ends. **Source:** `GAUSSIAN(min..max)` of cassandra-stress, whose
/// `stdvrng` is 3 where none is given (`OptionDistribution`).
const DEVIATIONS: f64 = 3.0;

/// A bell over the numbers below `n`: those in the middle most often, as cassandra-stress draws its populations.
///
/// What lies beyond the ends, 0.27 %, is at the ends, as there. **Source:** G. Box and M. Muller, "A note on the
/// generation of random normal deviates", Annals of Mathematical Statistics 29(2), 1958.
#[derive(Clone, Debug)]
pub struct Bell {
    last: f64,
}

impl Bell {
    /// Numbers below `n`, which is not zero.
    pub fn new(n: u64) -> Bell {
        assert!(n > 0);
        Bell {
            last: (n - 1) as f64,
        }
    }

    /// The next number.
    #[inline]
    pub fn draw(&self, stream: &mut Stream) -> u64 {
        // libm and not the platform's functions: the same bits on every machine.
        let radius = libm::sqrt(-2.0 * libm::log(stream.unit()));
        let normal = radius * libm::cos(2.0 * std::f64::consts::PI * stream.unit());
        let middle = self.last / 2.0;
        let at = middle + normal * middle / DEVIATIONS;
        (at + 0.5).floor().clamp(0.0, self.last) as u64
    }
}

/// How sysbench prefers rows (`--rand-type`, but `uniform`), with its own defaults for their shapes. Preferred rows are
/// neighbours. **Source:** sysbench 1.0, `sb_rand.c` and its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preferred {
    /// Three quarters of the draws fall into a hundredth of the rows around the middle, the others are `Gaussian`;
    /// the default of sysbench 1.0.
    Special,
    /// Means of twelve uniform draws.
    Gaussian,
    /// Four fifths of the draws fall into the first fifth, and so on within it.
    Pareto,
    /// Row `k` with a weight of `k^-0.8`.
    Zipfian,
}

/// `--rand-spec-iter`.
const BELL_DRAWS: u32 = 12;
/// `--rand-spec-pct` and `--rand-spec-res`, as shares.
const SPECIAL_ROWS: f64 = 0.01;
const SPECIAL_DRAWS: f64 = 0.75;
/// `--rand-pareto-h`.
const PARETO_H: f64 = 0.2;
/// `--rand-zipfian-exp`.
const SYSBENCH_THETA: f64 = 0.8;

impl Preferred {
    /// A row below `rows`, which is not zero.
    pub fn draw(self, rows: u64, stream: &mut Stream) -> u64 {
        let count = rows as f64;
        let at = match self {
            Preferred::Special => {
                let drawn = stream.unit();
                if drawn > 1.0 - SPECIAL_DRAWS {
                    // The draw itself goes on, as there: the first quarter of the hundredth is never met.
                    let special = count * SPECIAL_ROWS;
                    drawn * (special + 1.0) + (count - special) / 2.0
                } else {
                    mean_of_draws(stream) * count
                }
            }
            Preferred::Gaussian => mean_of_draws(stream) * count,
            // libm and not the platform's functions: the same bits on every machine.
            Preferred::Pareto => {
                let power = libm::log(PARETO_H) / libm::log(1.0 - PARETO_H);
                libm::exp(power * libm::log(stream.unit())) * count
            }
            Preferred::Zipfian => (Zipf::new(rows, SYSBENCH_THETA).draw(stream) - 1) as f64,
        };
        (at as u64).min(rows - 1)
    }
}

fn mean_of_draws(stream: &mut Stream) -> f64 {
    (0..BELL_DRAWS).map(|_| stream.unit()).sum::<f64>() / f64::from(BELL_DRAWS)
}

/// Scatters ranks over the rows, each rank on a row of its own, so that popular rows are no neighbours on disk.
#[derive(Clone, Debug)]
pub struct Spread {
    rows: u64,
    step: u64,
}

impl Spread {
    /// Over `rows` rows, which is not zero.
    pub fn new(rows: u64) -> Spread {
        // A golden section's stride leaves no two near ranks near each other (Knuth 6.4); one that shares no
        // divisor with the number of rows visits each row once.
        let mut step = (rows as f64 * 0.618_033_988_749_894_9) as u64;
        while gcd(step.max(1), rows) != 1 {
            step += 1;
        }
        Spread {
            rows,
            step: step.max(1),
        }
    }

    /// The row of a rank; ranks count from zero.
    #[inline]
    pub fn place(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.step) % u128::from(self.rows)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream() -> Stream {
        Stream::new(11, "keys")
    }

    /// The statistic of counts against expected counts.
    fn chi_square(counts: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
        let terms = counts.iter().enumerate().map(|(bin, count)| {
            let wanted = expected(bin);
            (*count as f64 - wanted).powi(2) / wanted
        });
        terms.sum()
    }

    #[test]
    fn zipfian_ranks_have_their_exact_weights() {
        for theta in [0.5, 0.99, 1.0, 2.0] {
            let zipf = Zipf::new(20, theta);
            let mut stream = stream();
            let mut counts = [0; 20];
            for _ in 0..200_000 {
                counts[zipf.draw(&mut stream) as usize - 1] += 1;
            }
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-theta);
            let sum: f64 = (0..20).map(weight).sum();
            // 19 degrees of freedom: above 43.8 once in a thousand seeds.
            let statistic = chi_square(&counts, |rank| 200_000.0 * weight(rank) / sum);
            assert!(statistic < 43.8, "theta {theta}: {statistic} {counts:?}");
        }
    }

    #[test]
    fn a_bell_has_its_shares() {
        let bell = Bell::new(600_001);
        let mut stream = stream();
        let count = 200_000;
        let mut within = [0_u64; 3];
        let mut ends = 0;
        for _ in 0..count {
            let number = bell.draw(&mut stream);
            let deviations = (number as f64 - 300_000.0).abs() / 100_000.0;
            for (n, sum) in within.iter_mut().enumerate() {
                *sum += u64::from(deviations < n as f64 + 1.0);
            }
            ends += u64::from(number == 0 || number == 600_000);
        }
        // 68.27, 95.45 and 99.73 % of a normal distribution; each is known to a thousandth here.
        for (seen, exact) in within.iter().zip([0.6827, 0.9545, 0.9973]) {
            let share = *seen as f64 / count as f64;
            assert!((share - exact).abs() < 0.004, "{share} {exact}");
        }
        assert!(
            (ends as f64 / count as f64 - 0.0027).abs() < 0.0005,
            "{ends}"
        );
        assert_eq!(Bell::new(1).draw(&mut stream), 0);
    }

    #[test]
    fn a_large_zipfian_table_needs_no_set_up() {
        let zipf = Zipf::new(1 << 40, 0.99);
        let mut stream = stream();
        let first = (0..10_000).filter(|_| zipf.draw(&mut stream) == 1).count();
        // The first weight's share is 1 / (sum of k^-0.99 for 2^40 of them): one in 32.5, by the integral.
        assert!((230..390).contains(&first), "{first}");
    }

    #[test]
    fn popular_rows_are_no_neighbours() {
        let spread = Spread::new(1_000_000);
        let near = |a: u64, b: u64| a.abs_diff(b) < 10_000;
        let top: Vec<u64> = (0..20).map(|rank| spread.place(rank)).collect();
        for (index, key) in top.iter().enumerate() {
            assert!(top[..index].iter().all(|other| !near(*key, *other)));
        }
    }

    proptest! {
        #[test]
        fn every_rank_has_a_row_of_its_own(rows in 1u64..3_000) {
            let spread = Spread::new(rows);
            let mut seen: Vec<u64> = (0..rows).map(|rank| spread.place(rank)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }

        #[test]
        fn zipfian_ranks_stay_in_range(n in 1u64..u64::MAX / 4, theta in 0.01f64..10.0, seed: u64) {
            let zipf = Zipf::new(n, theta);
            let mut stream = Stream::new(seed, "keys");
            for _ in 0..50 {
                prop_assert!((1..=n).contains(&zipf.draw(&mut stream)));
            }
        }
    }

    /// Shares of a million draws below each tenth, and in the hundredth around the middle.
    fn drawn(how: Preferred, rows: u64) -> (Vec<f64>, f64) {
        const DRAWS: usize = 200_000;
        let mut stream = stream();
        let mut tenths = vec![0.0; 10];
        let mut middle = 0.0;
        for _ in 0..DRAWS {
            let row = how.draw(rows, &mut stream);
            tenths[(row * 10 / rows) as usize] += 1.0 / DRAWS as f64;
            if (row * 200).abs_diff(rows * 100) <= rows {
                middle += 1.0 / DRAWS as f64;
            }
        }
        (tenths, middle)
    }

    #[test]
    fn sysbenchs_rows_are_where_its_documentation_says() {
        // 75 % and, of the other quarter, a bell whose deviation is a twelfth: 4.8 % of it in the hundredth.
        let (_, middle) = drawn(Preferred::Special, 100_000);
        assert!((middle - 0.762).abs() < 0.005, "{middle}");
        let (tenths, middle) = drawn(Preferred::Gaussian, 100_000);
        assert!((middle - 0.048).abs() < 0.005, "{middle}");
        assert!((tenths[4] + tenths[5] - 0.77).abs() < 0.01, "{tenths:?}");
        let (tenths, _) = drawn(Preferred::Pareto, 100_000);
        assert!((tenths[0] + tenths[1] - 0.8).abs() < 0.01, "{tenths:?}");
        // The integral of x^-0.8 goes with x^0.2.
        let (tenths, _) = drawn(Preferred::Zipfian, 100_000);
        assert!((tenths[0] - 0.60).abs() < 0.02, "{tenths:?}");
    }

    #[test]
    fn sysbenchs_rows_stay_in_a_small_table() {
        for how in [
            Preferred::Special,
            Preferred::Gaussian,
            Preferred::Pareto,
            Preferred::Zipfian,
        ] {
            let mut stream = stream();
            for rows in 1..20 {
                assert!((0..500).all(|_| how.draw(rows, &mut stream) < rows));
            }
        }
    }
}
