//! Which row comes next.

use std::collections::VecDeque;

pub use disklab_units::popularity::{Bell, Spread, Zipf};
use disklab_units::random::Stream;

/// A row's number, from zero.
pub type Key = u64;

/// Draws keys. Everything is decided by the stream and the order of calls.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Every row of a range in its order, then from its beginning again.
    Sequential(Sequence),
    /// Every row alike.
    Uniform(Stream, u64),
    /// So many rows alike, scattered over the table; the others never.
    Part(Stream, u64, Spread),
    /// Those in the middle of a range often, scattered over the table.
    Gaussian(Stream, Bell, Spread),
    /// Few rows often.
    Zipfian(Stream, Zipf, Spread),
    /// Writes add rows at the end, reads prefer the newest.
    Latest(Stream, Zipf, Frontier),
}

impl Keys {
    /// The row to read.
    #[inline]
    pub fn to_read(&mut self) -> Key {
        match self {
            Keys::Sequential(sequence) => sequence.draw(),
            Keys::Uniform(stream, rows) => stream.below(*rows),
            Keys::Part(stream, rows, spread) => spread.place(stream.below(*rows)),
            Keys::Gaussian(stream, bell, spread) => spread.place(bell.draw(stream)),
            Keys::Zipfian(stream, zipf, spread) => spread.place(zipf.draw(stream) - 1),
            Keys::Latest(stream, zipf, frontier) => frontier.back(zipf.draw(stream) - 1),
        }
    }

    /// The row to write.
    #[inline]
    pub fn to_write(&mut self) -> Key {
        match self {
            Keys::Latest(_, _, frontier) => frontier.append(),
            _ => self.to_read(),
        }
    }

    /// A write has ended. Rows that were not written for sure are not read.
    #[inline]
    pub fn wrote(&mut self, key: Key, done: bool) {
        if let Keys::Latest(_, _, frontier) = self {
            frontier.ended(key, done);
        }
    }
}

/// A range of keys, again and again.
#[derive(Clone, Debug)]
pub struct Sequence {
    first: Key,
    count: u64,
    next: u64,
}

impl Sequence {
    /// Generator `index` of `count` takes its part of `rows`; the parts of all cover each row once.
    pub fn part(rows: u64, index: u64, count: u64) -> Sequence {
        let start = |part: u64| (u128::from(rows) * u128::from(part) / u128::from(count)) as u64;
        Sequence {
            first: start(index),
            // A generator without a row of its own (more generators than rows) writes its neighbour's.
            count: (start(index + 1) - start(index)).max(1),
            next: 0,
        }
    }

    fn draw(&mut self) -> Key {
        let key = self.first + self.next;
        self.next = (self.next + 1) % self.count;
        key
    }
}

/// Writes beyond the first one that has not succeeded; more of them than this wait for it.
const AHEAD: usize = 1 << 16;

/// The end of a table that grows.
///
/// Only rows whose write was acknowledged, and all rows before them, are read: else a read that overtakes a write,
/// or one after a failed write, would count as a lost row. A failed row is the next to be written again.
#[derive(Clone, Debug)]
pub struct Frontier {
    rows: u64,
    index: u64,
    stride: u64,
    /// Of this generator's own rows: how many are readable.
    readable: u64,
    /// Whether own rows from `readable` on are written.
    ahead: VecDeque<bool>,
    again: Vec<Key>,
}

impl Frontier {
    /// After `rows` rows that are there, generator `index` of `count` adds every `count`th row.
    pub fn new(rows: u64, index: u64, count: u64) -> Frontier {
        Frontier {
            rows,
            index,
            stride: count,
            readable: 0,
            ahead: VecDeque::new(),
            again: Vec::new(),
        }
    }

    fn key(&self, own: u64) -> Key {
        self.rows + self.index + own * self.stride
    }

    /// The next row behind the table.
    pub fn append(&mut self) -> Key {
        if let Some(key) = self.again.pop() {
            return key;
        }
        if self.ahead.len() == AHEAD {
            return self.key(self.readable);
        }
        self.ahead.push_back(false);
        self.key(self.readable + self.ahead.len() as u64 - 1)
    }

    /// The write of a row has ended; of one that the fill has written there is nothing to note.
    pub fn ended(&mut self, key: Key, done: bool) {
        let Some(own) = key.checked_sub(self.rows + self.index) else {
            return;
        };
        let own = own / self.stride;
        if own < self.readable {
            return;
        }
        if !done {
            self.again.push(key);
            return;
        }
        self.ahead[(own - self.readable) as usize] = true;
        while self.ahead.front() == Some(&true) {
            self.ahead.pop_front();
            self.readable += 1;
        }
    }

    /// The row `distance` before the newest readable one; wraps to the newest.
    fn back(&self, distance: u64) -> Key {
        if distance < self.readable {
            return self.key(self.readable - 1 - distance);
        }
        // The rows of the fill lie before the added ones.
        self.rows - 1 - (distance - self.readable) % self.rows
    }
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
    fn uniform_keys_are_uniform() {
        let mut keys = Keys::Uniform(stream(), 100);
        let mut counts = [0; 100];
        for _ in 0..100_000 {
            counts[keys.to_read() as usize] += 1;
        }
        // 99 degrees of freedom: above 148.2 once in a thousand seeds.
        let statistic = chi_square(&counts, |_| 1_000.0);
        assert!(statistic < 148.2, "{statistic}");
    }

    #[test]
    fn a_part_of_the_rows_is_scattered_and_the_others_are_never_asked_for() {
        let mut part = Keys::Part(stream(), 200, Spread::new(1_000));
        let mut bell = Keys::Gaussian(stream(), Bell::new(200), Spread::new(1_000));
        for keys in [&mut part, &mut bell] {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..100_000 {
                let key = keys.to_read();
                assert!(key < 1_000);
                seen.insert(key);
            }
            assert_eq!(seen.len(), 200);
            let low = seen.range(..500).count();
            assert!(
                (90..=110).contains(&low),
                "{low} of 200 lie in the lower half"
            );
        }
    }

    proptest! {
        #[test]
        fn parts_of_a_sequence_cover_each_row_once(rows in 1u64..5_000, count in 1u64..9) {
            prop_assume!(count <= rows);
            let mut seen = Vec::new();
            for index in 0..count {
                let mut part = Sequence::part(rows, index, count);
                let length = part.count;
                seen.extend((0..length).map(|_| part.draw()));
                prop_assert_eq!(part.draw(), seen[seen.len() - length as usize]);
            }
            prop_assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }

        /// Writes end in any order and some fail: no row is read before it and all before it are written.
        #[test]
        fn a_growing_table_is_read_up_to_its_written_end(
            rows in 1u64..50, ends in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let zipf = Zipf::new(rows, 0.5);
            let mut keys = Keys::Latest(stream(), zipf, Frontier::new(rows, 0, 1));
            let mut written: std::collections::HashSet<Key> = (0..rows).collect();
            let mut under_way: Vec<Key> = (0..8).map(|_| keys.to_write()).collect();
            for (which, done) in ends {
                let ended = under_way.swap_remove(which.index(under_way.len()));
                if done {
                    written.insert(ended);
                }
                keys.wrote(ended, done);
                let next = keys.to_write();
                prop_assert!(!under_way.contains(&next));
                under_way.push(next);
                let read = keys.to_read();
                prop_assert!(written.contains(&read), "{} of {:?}", read, written);
            }
        }
    }
}
