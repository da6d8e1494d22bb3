//! Which row an operation takes, in the order that the load generator asks for them.

use disklab_units::popularity::{Bell, Spread, YCSB_THETA, Zipf};
use disklab_units::random::Stream;

use crate::job::{KeyStream, Keys};

/// Draws the keys of one table's rows.
#[derive(Clone, Debug)]
pub struct RowKeys {
    keys: Keys,
    /// Keys of the table, as [`RowKeys::count`] has it.
    rows: u64,
    /// How many of them are asked for.
    asked: u64,
    scale: u64,
    next_key: u64,
    /// Rows that were added beside the order of the keys.
    added: u64,
    zipf: Zipf,
    bell: Bell,
    spread: Spread,
    draws: Stream,
}

impl RowKeys {
    /// Keys of `rows` rows, of which `asked` are asked for, in a run that is `scale` times smaller.
    pub fn new(keys: Keys, asked: Option<u64>, rows: u64, scale: u64, seed: u64) -> RowKeys {
        let times = RowKeys::count(keys, rows, scale) / rows;
        let asked = asked.unwrap_or(rows).clamp(1, rows) * times;
        let rows = rows * times;
        RowKeys {
            keys,
            rows,
            asked,
            scale,
            next_key: 0,
            added: 0,
            zipf: Zipf::new(asked, YCSB_THETA),
            bell: Bell::new(asked),
            spread: Spread::new(rows),
            draws: Stream::new(seed, "keys"),
        }
    }

    /// The same keys, drawn from a load's own stream where one is given.
    pub fn drawn_from(self, stream: Option<&KeyStream>) -> RowKeys {
        let draws = stream.map(|one| Stream::new(one.seed, &one.name));
        RowKeys {
            draws: draws.unwrap_or(self.draws),
            ..self
        }
    }

    /// How many keys are drawn among.
    ///
    /// In a run that is `scale` times smaller, keys by popularity are drawn among all rows of the real system: fewer
    /// rows of the same law are another load, in which the hundredth part that is asked for most has less of the reads.
    pub fn count(keys: Keys, rows: u64, scale: u64) -> u64 {
        match keys {
            Keys::Gaussian | Keys::Zipfian | Keys::Latest => rows * scale,
            Keys::Uniform | Keys::Sequential => rows,
        }
    }

    /// Draws the key of a read, or of a write; keys from the number of rows on are rows that the run has added.
    ///
    /// **Divergence:** with `latest` a row is read as soon as its write was sent. It is in memory
    /// either way.
    #[inline]
    pub fn draw(&mut self, reads: bool) -> u64 {
        match self.keys {
            Keys::Uniform => self.draws.below(self.asked),
            Keys::Sequential => {
                self.next_key += 1;
                (self.next_key - 1) % self.asked
            }
            // In the order of their popularity, which is how a quick run puts several into one row.
            Keys::Gaussian if self.scale > 1 => self.bell.draw(&mut self.draws),
            Keys::Gaussian => self.spread.place(self.bell.draw(&mut self.draws)),
            Keys::Zipfian if self.scale > 1 => self.zipf.draw(&mut self.draws) - 1,
            Keys::Zipfian => self.spread.place(self.zipf.draw(&mut self.draws) - 1),
            Keys::Latest if reads => {
                let distance = self.zipf.draw(&mut self.draws) - 1;
                let added = self.next_key * self.scale;
                if distance < added {
                    self.rows + added - 1 - distance
                } else {
                    self.rows - 1 - (distance - added) % self.rows
                }
            }
            Keys::Latest => {
                self.next_key += 1;
                self.rows + self.next_key * self.scale - 1
            }
        }
    }

    /// The key of a row that is added.
    #[inline]
    pub fn append(&mut self) -> u64 {
        if self.keys == Keys::Latest {
            return self.draw(false);
        }
        self.added += 1;
        self.rows + self.added * self.scale - 1
    }

    /// Whether a key is that of a row that the run has added.
    #[inline]
    pub fn added(&self, key: u64) -> bool {
        key >= self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_s_stream_gives_its_keys_whatever_the_run_s_seed() {
        let load = KeyStream {
            seed: 77,
            name: "keys 0 of 1".to_owned(),
        };
        let draw = |seed, stream: Option<&KeyStream>| {
            let keys = RowKeys::new(Keys::Zipfian, None, 5_000, 1, seed);
            let mut keys = keys.drawn_from(stream);
            (0..50).map(|_| keys.draw(true)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, Some(&load)), draw(2, Some(&load)));
        assert_ne!(draw(1, None), draw(1, Some(&load)));
        // As the load does it.
        let (mut stream, zipf) = (Stream::new(77, "keys 0 of 1"), Zipf::new(5_000, YCSB_THETA));
        let places = Spread::new(5_000);
        let own: Vec<_> = (0..50)
            .map(|_| places.place(zipf.draw(&mut stream) - 1))
            .collect();
        assert_eq!(draw(1, Some(&load)), own);
    }
}
