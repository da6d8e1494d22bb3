//! When operations are to start: pure, exact, decided before anything is sent.

use disklab_units::random::Stream;
use disklab_units::{Duration, Instant};

use crate::job::{Generator, Open, Spacing};

/// Fractions of a nanosecond that gaps are summed in, so that no rounding adds up over a long run.
const FRACTION_BITS: u32 = 16;

/// The intended starts of one generator's operations, in order, without end.
///
/// Those of all generators together are arrivals of the whole rate: even ones take turns, and Poisson
/// processes of a part of the rate each add up to one of the whole rate.
#[derive(Clone, Debug)]
pub struct Arrivals {
    next: Instant,
    spacing: Gaps,
}

#[derive(Clone, Debug)]
enum Gaps {
    Even {
        /// Number of the next arrival, counted over all generators.
        number: u128,
        stride: u128,
        /// Millionths of an operation a second.
        rate: u128,
    },
    Poisson {
        /// Mean gap, in fractions of a nanosecond.
        mean: f64,
        /// The next arrival, in fractions of a nanosecond.
        time: u128,
        stream: Stream,
    },
}

impl Arrivals {
    /// The arrivals of `generator` at its part of the rate of `load`. `stream` is this generator's own.
    pub fn new(load: &Open, generator: Generator, stream: Stream) -> Arrivals {
        let count = f64::from(generator.count);
        let spacing = match load.arrivals {
            Spacing::Even => Gaps::Even {
                number: u128::from(generator.index),
                stride: u128::from(generator.count),
                rate: ((load.rate_per_s * 1e6).round() as u128).max(1),
            },
            Spacing::Poisson => Gaps::Poisson {
                mean: 1e9 * f64::from(1u32 << FRACTION_BITS) * count / load.rate_per_s,
                time: 0,
                stream,
            },
        };
        let mut arrivals = Arrivals {
            next: Instant::EPOCH,
            spacing,
        };
        arrivals.advance();
        arrivals
    }

    /// The intended start of the next operation.
    #[inline]
    pub fn peek(&self) -> Instant {
        self.next
    }

    /// Takes the next operation: its intended start.
    #[inline]
    pub fn take(&mut self) -> Instant {
        let taken = self.next;
        self.advance();
        taken
    }

    /// Takes every arrival before `end`; returns how many.
    pub fn skip_until(&mut self, end: Instant) -> u64 {
        let mut skipped = 0;
        while self.next < end {
            self.advance();
            skipped += 1;
        }
        skipped
    }

    fn advance(&mut self) {
        self.next = match &mut self.spacing {
            Gaps::Even {
                number,
                stride,
                rate,
            } => {
                // Nanoseconds in a second, millionths in one.
                let time = *number * 1_000_000_000_000_000 / *rate;
                *number += *stride;
                Instant::EPOCH.saturating_add(Duration::from_nanos(time as u64))
            }
            Gaps::Poisson { mean, time, stream } => {
                // Inverse transform of the exponential distribution.
                *time += (-libm::log(stream.unit()) * *mean) as u128;
                Instant::EPOCH.saturating_add(Duration::from_nanos((*time >> FRACTION_BITS) as u64))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(rate_per_s: f64, arrivals: Spacing) -> Open {
        Open {
            rate_per_s,
            arrivals,
            max_in_flight: 1,
        }
    }

    fn arrivals(rate_per_s: f64, spacing: Spacing, index: u32, count: u32, seed: u64) -> Arrivals {
        Arrivals::new(
            &open(rate_per_s, spacing),
            Generator { index, count },
            Stream::new(seed, &format!("arrivals {index}")),
        )
    }

    #[test]
    fn even_arrivals_lose_no_fraction() {
        let mut thirds = arrivals(3.0, Spacing::Even, 0, 1, 0);
        let times: Vec<u64> = (0..5).map(|_| thirds.take().as_nanos()).collect();
        assert_eq!(
            times,
            [0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333]
        );
        let mut fast = arrivals(7.0, Spacing::Even, 0, 1, 0);
        let ten_hours = Instant::EPOCH.saturating_add(Duration::from_secs(36_000));
        assert_eq!(fast.skip_until(ten_hours), 7 * 36_000);
        assert_eq!(fast.peek(), ten_hours);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let mut poisson = arrivals(1_000.0, Spacing::Poisson, 0, 1, 42);
        let gaps = 200_000;
        let mut before = Instant::EPOCH;
        // Tenths of the distribution: -ln(1 - k/10) milliseconds.
        let mut tenths = [0u32; 10];
        for _ in 0..gaps {
            let next = poisson.take();
            let gap_ms = next.saturating_since(before).as_nanos() as f64 / 1e6;
            tenths[((1.0 - (-gap_ms).exp()) * 10.0) as usize] += 1;
            before = next;
        }
        let wanted = f64::from(gaps) / 10.0;
        let chi_square: f64 = tenths
            .iter()
            .map(|count| (f64::from(*count) - wanted).powi(2) / wanted)
            .sum();
        // 9 degrees of freedom: above 27.9 once in a thousand seeds.
        assert!(chi_square < 27.9, "{chi_square}: {tenths:?}");
    }

    proptest! {
        #[test]
        fn generators_make_the_even_arrivals_of_one(rate in 1u32..50_000, count in 1u32..7) {
            let rate = f64::from(rate);
            let mut parts: Vec<u64> = (0..count)
                .flat_map(|index| {
                    let mut part = arrivals(rate, Spacing::Even, index, count, 0);
                    (0..200).map(|_| part.take().as_nanos()).collect::<Vec<_>>()
                })
                .collect();
            parts.sort_unstable();
            let mut whole = arrivals(rate, Spacing::Even, 0, 1, 0);
            for part in parts {
                prop_assert_eq!(part, whole.take().as_nanos());
            }
        }

        #[test]
        fn poisson_arrivals_never_go_back_and_keep_their_rate(
            rate in 10.0f64..100_000.0, count in 1u32..5, seed: u64,
        ) {
            // Mean of 20,000 gaps: deviation of 1/sqrt(20,000) = 0.7 %; five of them.
            let wanted = 20_000;
            let mut end = 0.0;
            for index in 0..count {
                let mut part = arrivals(rate, Spacing::Poisson, index, count, seed);
                let mut before = Instant::EPOCH;
                for _ in 0..wanted / count {
                    let next = part.take();
                    prop_assert!(next >= before);
                    before = next;
                }
                end += before.as_nanos() as f64 / 1e9 / f64::from(count);
            }
            let got = f64::from(wanted / count * count) / end;
            prop_assert!((got / rate - 1.0).abs() < 0.036, "{} not {}", got, rate);
        }

        #[test]
        fn taking_one_by_one_counts_like_skipping(rate in 10.0f64..10_000.0, seed: u64, ms in 1u64..2_000) {
            let end = Instant::EPOCH.saturating_add(Duration::from_millis(ms));
            let mut skipped = arrivals(rate, Spacing::Poisson, 0, 1, seed);
            let mut taken = skipped.clone();
            let mut count = 0;
            while taken.peek() < end {
                taken.take();
                count += 1;
            }
            prop_assert_eq!(skipped.skip_until(end), count);
        }
    }
}
