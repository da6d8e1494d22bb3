//! Which row comes next.

use std::collections::VecDeque;

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

    #[inline]
    fn place(&self, rank: u64) -> Key {
        (u128::from(rank) * u128::from(self.step) % u128::from(self.rows)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
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

    fn append(&mut self) -> Key {
        if let Some(key) = self.again.pop() {
            return key;
        }
        if self.ahead.len() == AHEAD {
            return self.key(self.readable);
        }
        self.ahead.push_back(false);
        self.key(self.readable + self.ahead.len() as u64 - 1)
    }

    fn ended(&mut self, key: Key, done: bool) {
        let own = (key - self.rows - self.index) / self.stride;
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
        let top: Vec<Key> = (0..20).map(|rank| spread.place(rank)).collect();
        for (index, key) in top.iter().enumerate() {
            assert!(top[..index].iter().all(|other| !near(*key, *other)));
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

        #[test]
        fn every_rank_has_a_row_of_its_own(rows in 1u64..3_000) {
            let spread = Spread::new(rows);
            let mut seen: Vec<Key> = (0..rows).map(|rank| spread.place(rank)).collect();
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
