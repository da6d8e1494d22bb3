//! An index of cached blocks: compact, grown in small steps, one memory access for a lookup.
//!
//! Each of the shards is a linear-probing table in which entries stand in the order of their hash,
//! so that a lookup ends at the first larger one and growing is one pass. Entries lie inline; a
//! lookup of a random block in a large cache costs one cache miss where a list of pointers costs
//! four. Shards grow by a quarter at a time, which bounds both the waste and the pause.

/// Bits of a block's key: 14 for the lane, 38 for the block (2^50 bytes in blocks of 4 KiB).
pub const LANE_BITS: u32 = 14;
const BLOCK_BITS: u32 = 38;

/// Bits of a hash. The four that are left hold the flags.
const HASH_BITS: u32 = 60;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;

/// 256 shards: the largest cache of a cloud VM (576 GiB) then has some forty thousand entries in
/// each, which are moved in about a tenth of a millisecond.
const SHARD_BITS: u32 = 8;

/// The entry exists.
const OCCUPIED: u64 = 1;
/// The block was used since it last stood at the end of the queue.
const USED: u64 = 2;
/// The block must not be evicted.
const PINNED: u64 = 4;

/// Tables are filled to four fifths: lookups then look at three neighbouring entries on average.
const MOST_FULL: (usize, usize) = (4, 5);

/// Room behind the last home position for entries that were pushed on.
const OVERHANG: usize = 32;

/// What is known of one cached block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the key in the upper bits, flags in the lower four.
    word: u64,
    /// One bit for each valid sector.
    pub valid: u64,
}

impl Entry {
    fn hash(self) -> u64 {
        self.word >> 4
    }

    /// The lane and the block number.
    pub fn key(self) -> (u32, u64) {
        let key = unmix(self.hash());
        ((key >> BLOCK_BITS) as u32, key & ((1 << BLOCK_BITS) - 1))
    }

    /// Whether it was used since [`Entry::set_used`] said no.
    pub fn is_used(self) -> bool {
        self.word & USED != 0
    }

    /// Whether it must stay.
    pub fn is_pinned(self) -> bool {
        self.word & PINNED != 0
    }

    /// Notes whether it was used. Writes only on a change: most hits find the flag set, and leave
    /// the cache line clean.
    #[inline]
    pub fn set_used(&mut self, used: bool) {
        self.set(USED, used);
    }

    /// Notes whether it must stay.
    pub fn set_pinned(&mut self, pinned: bool) {
        self.set(PINNED, pinned);
    }

    #[inline]
    fn set(&mut self, flag: u64, on: bool) {
        if (self.word & flag != 0) != on {
            self.word ^= flag;
        }
    }
}

/// The hash of a block; blocks and hashes correspond one to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// Of a block of a lane.
    #[inline]
    pub fn of(lane: u32, block: u64) -> Hash {
        Hash(mix(u64::from(lane) << BLOCK_BITS | block))
    }

    #[inline]
    fn shard(self) -> usize {
        (self.0 >> (HASH_BITS - SHARD_BITS)) as usize
    }
}

const FACTOR: u64 = 0x9e3_779b_97f4_a7c1;
const INVERSE: u64 = inverse(FACTOR);

/// The number that undoes a multiplication by an odd one modulo 2^64 (Newton's iteration).
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 6 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

/// A bijection of 60-bit numbers with well-mixed upper bits.
#[inline]
fn mix(key: u64) -> u64 {
    let key = key.wrapping_mul(FACTOR) & HASH_MASK;
    let key = key ^ (key >> (HASH_BITS / 2));
    key.wrapping_mul(FACTOR) & HASH_MASK
}

fn unmix(hash: u64) -> u64 {
    let hash = hash.wrapping_mul(INVERSE) & HASH_MASK;
    let hash = hash ^ (hash >> (HASH_BITS / 2));
    hash.wrapping_mul(INVERSE) & HASH_MASK
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// `width` home positions and the overhang.
    entries: Vec<Entry>,
    width: usize,
    count: usize,
}

impl Shard {
    /// Where an entry wants to stand; grows with the hash.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        let fraction = hash << (64 - HASH_BITS + SHARD_BITS);
        ((u128::from(fraction) * self.width as u128) >> 64) as usize
    }

    /// Where the entry stands, or where it would have to be put.
    #[inline]
    fn search(&self, hash: u64) -> Result<usize, usize> {
        let mut at = self.home(hash);
        while let Some(entry) = self.entries.get(at) {
            if entry.word == 0 || entry.hash() > hash {
                return Err(at);
            }
            if entry.hash() == hash {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    /// Puts an entry in where a search that did not find it ended.
    fn insert(&mut self, new: Entry, mut at: usize) -> usize {
        if (self.count + 1) * MOST_FULL.1 > self.width * MOST_FULL.0 {
            self.grow();
            at = self.search(new.hash()).unwrap_or_else(|at| at);
        }
        loop {
            let free = self.entries[at..].iter().position(|entry| entry.word == 0);
            let Some(free) = free else {
                self.grow();
                at = self.search(new.hash()).unwrap_or_else(|at| at);
                continue;
            };
            self.entries.copy_within(at..at + free, at + 1);
            self.entries[at] = new;
            self.count += 1;
            return at;
        }
    }

    fn remove(&mut self, mut at: usize) {
        while let Some(&next) = self.entries.get(at + 1) {
            if next.word == 0 || self.home(next.hash()) > at {
                break;
            }
            self.entries[at] = next;
            at += 1;
        }
        self.entries[at] = Entry::default();
        self.count -= 1;
    }

    fn grow(&mut self) {
        let width = self.width + self.width / 4 + 8;
        let mut grown = Shard {
            entries: vec![Entry::default(); width + OVERHANG],
            width,
            count: self.count,
        };
        let mut last = 0;
        for &entry in self.entries.iter().filter(|entry| entry.word != 0) {
            let at = grown.home(entry.hash()).max(last);
            if at >= grown.entries.len() {
                grown.entries.resize(at + OVERHANG, Entry::default());
            }
            grown.entries[at] = entry;
            last = at + 1;
        }
        *self = grown;
    }
}

/// All cached blocks by hash.
#[derive(Clone, Debug)]
pub struct BlockTable {
    shards: Box<[Shard]>,
    count: usize,
}

impl BlockTable {
    /// An empty table. It takes memory only as it fills.
    pub fn new() -> BlockTable {
        BlockTable {
            shards: vec![Shard::default(); 1 << SHARD_BITS].into_boxed_slice(),
            count: 0,
        }
    }

    /// How many blocks it knows.
    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn shard(&mut self, hash: Hash) -> &mut Shard {
        &mut self.shards[hash.shard()]
    }

    /// The entry of a block.
    #[inline]
    pub fn get_mut(&mut self, hash: Hash) -> Option<&mut Entry> {
        let shard = self.shard(hash);
        let at = shard.search(hash.0).ok()?;
        Some(&mut shard.entries[at])
    }

    /// The entry of a block, made if it was not there; and whether it was made.
    #[inline]
    pub fn get_or_insert(&mut self, hash: Hash) -> (&mut Entry, bool) {
        let shard = &mut self.shards[hash.shard()];
        match shard.search(hash.0) {
            Ok(at) => (&mut shard.entries[at], false),
            Err(at) => {
                self.count += 1;
                let new = Entry {
                    word: hash.0 << 4 | OCCUPIED,
                    valid: 0,
                };
                let at = shard.insert(new, at);
                (&mut shard.entries[at], true)
            }
        }
    }

    /// Reads the place where a block's entry is likely to stand, so that it is in the processor's
    /// cache when it is needed.
    #[inline]
    pub fn touch(&self, hash: Hash) -> u64 {
        let shard = &self.shards[hash.shard()];
        let entry = shard.entries.get(shard.home(hash.0));
        entry.map_or(0, |entry| entry.word)
    }

    /// Forgets a block.
    pub fn remove(&mut self, hash: Hash) {
        let shard = self.shard(hash);
        if let Ok(at) = shard.search(hash.0) {
            shard.remove(at);
            self.count -= 1;
        }
    }

    /// All entries, in an order that depends on nothing but the blocks themselves.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        let all = self.shards.iter_mut().flat_map(|shard| &mut shard.entries);
        all.filter(|entry| entry.word != 0)
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let entries = self.shards.iter().map(|shard| shard.entries.capacity());
        entries.sum::<usize>() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_entry_takes_less_than_27_bytes() {
        let mut table = BlockTable::new();
        for block in 0..400_000 {
            table.get_or_insert(Hash::of(3, block * 7));
            // Below that the table is small whatever an entry takes.
            if block > 200_000 && block % 1_000 == 0 {
                let each = table.memory_bytes() as f64 / table.len() as f64;
                assert!(each < 27.0, "{each} bytes for each of {block}");
            }
        }
    }

    #[test]
    fn removing_everything_leaves_nothing() {
        let mut table = BlockTable::new();
        for block in 0..50_000 {
            table.get_or_insert(Hash::of(1, block));
        }
        for block in (0..50_000).rev() {
            table.remove(Hash::of(1, block));
        }
        assert_eq!(table.len(), 0);
        assert_eq!(table.iter_mut().count(), 0);
    }

    proptest! {
        #[test]
        fn hashing_loses_nothing(lane in 0_u32..1 << LANE_BITS, block in 0_u64..1 << BLOCK_BITS) {
            let entry = Entry { word: Hash::of(lane, block).0 << 4 | 15, valid: 0 };
            prop_assert_eq!(entry.key(), (lane, block));
        }

        #[test]
        fn is_a_map(steps in prop::collection::vec((0..3_u8, 0..2_u32, 0..400_u64), 1..2_000)) {
            let mut table = BlockTable::new();
            let mut map = BTreeMap::new();
            for (step, (what, lane, block)) in steps.into_iter().enumerate() {
                let hash = Hash::of(lane, block);
                match what {
                    0 => {
                        table.remove(hash);
                        map.remove(&(lane, block));
                    }
                    1 => {
                        let found = table.get_mut(hash).map(|entry| entry.valid);
                        prop_assert_eq!(found, map.get(&(lane, block)).copied());
                    }
                    _ => {
                        let (entry, made) = table.get_or_insert(hash);
                        prop_assert_eq!(made, !map.contains_key(&(lane, block)));
                        entry.valid = step as u64;
                        map.insert((lane, block), step as u64);
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let mut all: Vec<_> = table.iter_mut().map(|e| (e.key(), e.valid)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
