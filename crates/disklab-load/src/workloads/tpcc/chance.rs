//! The standard's random numbers, names and strings.

use bytes::BufMut;
use disklab_units::random::{Stream, mix};

use super::scale;

/// A number from `lowest` to `highest`, both included.
#[inline]
pub fn between(stream: &mut Stream, lowest: u32, highest: u32) -> u32 {
    lowest + stream.below(u64::from(highest - lowest) + 1) as u32
}

/// The constants C of the non-uniform distributions, one for each field. **Source:** clause 2.1.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    last_name: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Those of the load of a `seed`.
    pub fn of_load(seed: u64) -> Constants {
        let mut stream = Stream::new(seed, "tpcc constants of the load");
        Constants {
            last_name: between(&mut stream, 0, 255),
            customer: between(&mut stream, 0, 1_023),
            item: between(&mut stream, 0, 8_191),
        }
    }

    /// Those of a run on tables loaded with these. The last name's differs from the load's by 65 to 119, but not by 96 or
    /// 112, so that a run does not ask for the very names that the load wrote most often. **Source:** clause 2.1.6.1.
    pub fn of_run(self, seed: u64) -> Constants {
        let mut stream = Stream::new(seed, "tpcc constants of a run");
        // Of the 256 values at least one distance in both directions lies within the range.
        let fit: Vec<u32> = (0..=255)
            .filter(|value| {
                let apart = u32::abs_diff(self.last_name, *value);
                (65..=119).contains(&apart) && apart != 96 && apart != 112
            })
            .collect();
        Constants {
            last_name: fit[stream.below(fit.len() as u64) as usize],
            customer: between(&mut stream, 0, 1_023),
            item: between(&mut stream, 0, 8_191),
        }
    }

    /// A customer of a district: NURand(1023, 1, 3000).
    pub fn customer(&self, stream: &mut Stream) -> u32 {
        non_uniform(stream, 1_023, self.customer, 1, scale::CUSTOMERS)
    }

    /// An item: NURand(8191, 1, 100000).
    pub fn item(&self, stream: &mut Stream) -> u32 {
        non_uniform(stream, 8_191, self.item, 1, scale::ITEMS)
    }

    /// The number of a last name: NURand(255, 0, 999).
    pub fn last_name(&self, stream: &mut Stream) -> u32 {
        non_uniform(stream, 255, self.last_name, 0, scale::LAST_NAMES - 1)
    }
}

/// NURand(A, x, y). **Source:** clause 2.1.6.
fn non_uniform(stream: &mut Stream, a: u32, c: u32, lowest: u32, highest: u32) -> u32 {
    let mixed = between(stream, 0, a) | between(stream, lowest, highest);
    (mixed + c) % (highest - lowest + 1) + lowest
}

/// **Source:** clause 4.3.2.3.
const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The last name with a number from 0 to 999.
pub fn last_name(number: u32) -> String {
    [number / 100, number / 10 % 10, number % 10]
        .map(|digit| SYLLABLES[digit as usize])
        .concat()
}

/// Letters and digits that strings are made of: 64, so that six bits make one.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";

/// Appends that many random letters.
pub fn letters(stream: &mut Stream, count: u32, to: &mut impl BufMut) {
    let mut bits = 0;
    for place in 0..count {
        // Ten letters from one number.
        if place % 10 == 0 {
            bits = stream.draw();
        }
        to.put_u8(LETTERS[(bits & 63) as usize]);
        bits >>= 6;
    }
}

/// Appends that many random digits.
pub fn digits(stream: &mut Stream, count: u32, to: &mut impl BufMut) {
    for _ in 0..count {
        to.put_u8(b'0' + stream.below(10) as u8);
    }
}

/// The stream of a row: a pure function of seed, table and place, so that any piece can be made by itself.
pub fn stream_of(seed: u64, table: &str, place: [u32; 3]) -> Stream {
    let [a, b, c] = place.map(u64::from);
    Stream::new(mix(mix(mix(seed ^ mix(a)) ^ b) ^ c), table)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn last_names_are_the_standard_s() {
        // The example of clause 4.3.2.3.
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn non_uniform_numbers_prefer_some() {
        let mut stream = Stream::new(1, "test");
        let constants = Constants::of_load(1);
        let mut counts = vec![0_u32; scale::CUSTOMERS as usize + 1];
        for _ in 0..300_000 {
            counts[constants.customer(&mut stream) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let seen = counts.iter().filter(|count| **count > 0).count();
        assert!(seen > 2_800, "{seen}");
        // Uniform ones would lie within 60 of 100 at nearly all places.
        let most = counts.iter().max().unwrap();
        assert!(*most > 400, "{most}");
    }

    proptest! {
        #[test]
        fn a_run_asks_for_other_names_than_the_load_wrote_most(load: u64, run: u64) {
            let loaded = Constants::of_load(load);
            let apart = loaded.last_name.abs_diff(loaded.of_run(run).last_name);
            prop_assert!((65..=119).contains(&apart) && apart != 96 && apart != 112, "{apart}");
        }

        #[test]
        fn numbers_keep_their_bounds(seed: u64) {
            let mut stream = Stream::new(seed, "test");
            let constants = Constants::of_load(seed);
            prop_assert!((1..=3_000).contains(&constants.customer(&mut stream)));
            prop_assert!((1..=100_000).contains(&constants.item(&mut stream)));
            prop_assert!(constants.last_name(&mut stream) < 1_000);
            prop_assert!((5..=15).contains(&between(&mut stream, 5, 15)));
        }
    }
}
