//! The dirty blocks of one member disk, by number.
//!
//! A hash map, for a write that is acknowledged and destaged looks its block up five times; what needs the blocks in
//! order (FLUSH, discard, failure) is rare, and sorts.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

use disklab_units::random::mix;

/// A dirty block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Sectors written since their last destage began.
    pub dirty: u64,
    /// Sectors on their way to the disk.
    pub leaving: u64,
    /// Whether it stands in the queue; it does so at most once.
    pub queued: bool,
}

impl Block {
    /// Whether nothing is known of it any more.
    pub fn is_idle(&self) -> bool {
        self.dirty | self.leaving == 0 && !self.queued
    }
}

/// The same on every machine and in every run, unlike the standard library's own.
#[derive(Clone, Copy, Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct DirtyBlocks {
    blocks: HashMap<u64, Block, BuildHasherDefault<Mixed>>,
}

impl DirtyBlocks {
    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A block.
    pub fn get(&self, number: u64) -> Option<&Block> {
        self.blocks.get(&number)
    }

    /// A block, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Block> {
        self.blocks.get_mut(&number)
    }

    /// A block, made clean if it was not there.
    #[inline]
    pub fn get_or_insert(&mut self, number: u64) -> &mut Block {
        self.blocks.entry(number).or_default()
    }

    /// Forgets a block.
    #[inline]
    pub fn remove(&mut self, number: u64) {
        self.blocks.remove(&number);
    }

    /// The numbers of the blocks in a range, ascending.
    pub fn numbers(&self, range: RangeInclusive<u64>) -> Vec<u64> {
        let (first, last) = (*range.start(), *range.end());
        // What is fewer is gone through: the numbers of the range, or the blocks.
        if last.saturating_sub(first) < self.blocks.len() as u64 {
            return range
                .filter(|number| self.blocks.contains_key(number))
                .collect();
        }
        let known = self.blocks.keys().copied();
        let mut numbers: Vec<u64> = known.filter(|number| range.contains(number)).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_range_ascending() {
        let mut blocks = DirtyBlocks::default();
        for number in [900, 3, 70, 4, 1 << 37] {
            blocks.get_or_insert(number);
        }
        // Both ways: by the range and by the blocks.
        assert_eq!(blocks.numbers(3..=4), [3, 4]);
        assert_eq!(blocks.numbers(4..=900), [4, 70, 900]);
        assert_eq!(blocks.numbers(0..=u64::MAX), [3, 4, 70, 900, 1 << 37]);
        assert_eq!(blocks.numbers(5..=69), [0_u64; 0]);
        blocks.remove(70);
        assert_eq!(blocks.numbers(4..=900), [4, 900]);
    }
}
