//! How long to wait before a host that could not be reached is tried again.

use std::time::Duration;

use disklab_units::random::Stream;

/// After the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// At most: a host that is back serves again within a second.
const MOST: Duration = Duration::from_secs(1);

/// Pauses between tries: each up to twice as long as the one before, by chance, so that all who lost the same host do
/// not come back to it at the same moment.
#[derive(Clone, Debug)]
pub struct Pauses {
    chance: Stream,
    longest: Duration,
}

impl Pauses {
    /// The first pause comes next. `chance` belongs to this one alone.
    pub fn new(chance: Stream) -> Pauses {
        Pauses {
            chance,
            longest: FIRST,
        }
    }

    /// The pause after one more failure: the upper half of a span that doubles.
    pub fn next(&mut self) -> Duration {
        let half = self.longest / 2;
        self.longest = (self.longest * 2).min(MOST);
        half + half.mul_f64(self.chance.unit().min(1.0))
    }

    /// It went well: the next failure is a first one.
    pub fn reset(&mut self) {
        self.longest = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_stray_and_begin_again() {
        let mut pauses = Pauses::new(Stream::new(1, "one"));
        for longest_ms in [100, 200, 400, 800, 1_000, 1_000] {
            let pause = pauses.next().as_millis();
            assert!((longest_ms / 2..=longest_ms).contains(&pause), "{pause}");
        }
        pauses.reset();
        assert!(pauses.next() <= FIRST);
        let mut other = Pauses::new(Stream::new(1, "other"));
        let both = |one: &mut Pauses| [one.next(), one.next(), one.next()];
        assert_ne!(
            both(&mut other),
            both(&mut Pauses::new(Stream::new(1, "one")))
        );
    }
}
