//! Which operation comes next: a shuffled deck, so that the ratio is exact in the long run.

use disklab_units::random::Stream;

/// Cards in a deck. Ratios that are whole thousandths are exact in every deck; the others carry their
/// fraction on, so that after any number of decks each kind is within one card of its ratio.
const DECK: u64 = 1_000;

/// Scale of the carried fractions: ratios are kept to a billionth.
const SCALE: u64 = 1_000_000_000;

/// Draws kinds of operations, numbered as their ratios are given.
///
/// A deck and not a coin: a coin's count strays by the square root of the number of draws. And not a fixed pattern:
/// with sequential keys every second row would only ever be read.
#[derive(Clone, Debug)]
pub struct Mix {
    shares: Vec<u64>,
    carried: Vec<u64>,
    deck: Vec<u8>,
    stream: Stream,
}

impl Mix {
    /// A mix of `ratios`, which are not negative, not all zero, and need not add up to one. At most 256.
    pub fn new(ratios: &[f64], stream: Stream) -> Mix {
        assert!(!ratios.is_empty() && ratios.len() <= 256);
        let sum: f64 = ratios.iter().sum();
        assert!(sum > 0.0 && ratios.iter().all(|ratio| *ratio >= 0.0));
        let mut shares: Vec<u64> = ratios
            .iter()
            .map(|ratio| (ratio / sum * SCALE as f64).round() as u64)
            .collect();
        // What rounding lost or won goes to the largest, where it matters least.
        let off = shares.iter().sum::<u64>() as i64 - SCALE as i64;
        if let Some(largest) = shares.iter_mut().max() {
            *largest = largest.saturating_add_signed(-off);
        }
        Mix {
            carried: vec![0; shares.len()],
            shares,
            deck: Vec::with_capacity(DECK as usize),
            stream,
        }
    }

    /// The kind of the next operation.
    #[inline]
    pub fn draw(&mut self) -> usize {
        if self.deck.is_empty() {
            self.shuffle();
        }
        usize::from(self.deck.pop().unwrap_or(0))
    }

    fn shuffle(&mut self) {
        for (kind, share) in self.shares.iter().enumerate() {
            self.carried[kind] += share * DECK;
            let cards = self.carried[kind] / SCALE;
            self.carried[kind] %= SCALE;
            self.deck
                .extend(std::iter::repeat_n(kind as u8, cards as usize));
        }
        if self.deck.is_empty() {
            // All kinds carry a fraction only: impossible, as the shares add up to one.
            self.deck.push(0);
        }
        // Fisher and Yates.
        for last in (1..self.deck.len()).rev() {
            let other = self.stream.below(last as u64 + 1) as usize;
            self.deck.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(ratios: &[f64], draws: usize, seed: u64) -> Vec<usize> {
        let mut mix = Mix::new(ratios, Stream::new(seed, "mix"));
        let mut counts = vec![0; ratios.len()];
        for _ in 0..draws {
            counts[mix.draw()] += 1;
        }
        counts
    }

    #[test]
    fn a_ratio_of_thousandths_is_exact_in_every_deck() {
        assert_eq!(counts(&[0.3, 0.7], 1_000, 1), [300, 700]);
        assert_eq!(counts(&[0.5, 0.5], 7_000, 2), [3_500, 3_500]);
        assert_eq!(counts(&[0.0, 1.0], 1_000, 3), [0, 1_000]);
        assert_eq!(counts(&[3.0, 1.0], 4_000, 4), [3_000, 1_000]);
    }

    #[test]
    fn the_order_is_shuffled_and_the_seed_s() {
        let order = |seed| {
            let mut mix = Mix::new(&[0.5, 0.5], Stream::new(seed, "mix"));
            (0..1_000).map(|_| mix.draw()).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        // Runs of equal neighbours: 499.5 expected in a random order, deviation about 16.
        let changes = order(1)
            .windows(2)
            .filter(|pair| pair[0] != pair[1])
            .count();
        assert!((400..600).contains(&changes), "{changes}");
    }

    proptest! {
        #[test]
        fn any_ratio_is_kept_within_a_card_a_kind(
            ratios in proptest::collection::vec(0.0f64..1.0, 1..6), decks in 1usize..40, seed: u64,
        ) {
            prop_assume!(ratios.iter().sum::<f64>() > 0.01);
            let sum: f64 = ratios.iter().sum();
            // A deck may be a card or two short or long when several kinds carry fractions.
            let draws = decks * 1_000;
            for (kind, count) in counts(&ratios, draws, seed).into_iter().enumerate() {
                let wanted = ratios[kind] / sum * draws as f64;
                // Within the cards that carried fractions move between decks, plus the part of a deck
                // that such a shift cuts off.
                let slack = 2.0 * ratios.len() as f64 + 1.0;
                prop_assert!((count as f64 - wanted).abs() <= slack, "{kind}: {count} not {wanted}");
            }
        }
    }
}
