//! An index of cached blocks: eight bytes a block, grown in small steps, one memory access a lookup.
//!
//! Memory is what a lookup in a large cache costs: with a million blocks the index lies outside of
//! the processor's own caches. So an entry is one word (key, valid sectors, marks), entries lie
//! inline, and each of the shards is a linear-probing table in which they stand in the order of
//! their hash: a lookup counts the smaller ones from the home position on, without a branch that
//! depends on what it reads, so that the processor starts on the next I/O while it waits.
//! Shards grow by a quarter at a time, which bounds both the waste and the pause.

/// Bits of a block's key: 14 for the lane, 38 for the block (2^50 bytes in blocks of 4 KiB).
pub const LANE_BITS: u32 = 14;
const BLOCK_BITS: u32 = 38;

/// Bits of a hash, which is the key mixed.
const HASH_BITS: u32 = LANE_BITS + BLOCK_BITS;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;

/// 256 shards: the largest cache of a cloud VM (576 GiB) then has some forty thousand entries in
/// each, which are moved in about a tenth of a millisecond.
const SHARD_BITS: u32 = 8;

/// Bits of a hash that its shard does not tell.
const REST_BITS: u32 = HASH_BITS - SHARD_BITS;
const REST_MASK: u64 = (1 << REST_BITS) - 1;

/// A block has at most this many sectors: as many as an entry has bits to spare.
pub const MOST_SECTORS: u32 = 64 - REST_BITS - FLAG_BITS;
const FLAG_BITS: u32 = 4;
const VALID_MASK: u64 = (1 << MOST_SECTORS) - 1;

/// The block was used since it last stood at the end of the queue.
const USED: u64 = 1;
/// The block must not be evicted.
const PINNED: u64 = 2;

/// Nothing stands here. Greater than every entry, since two flags are free.
const EMPTY: Entry = Entry(u64::MAX);

/// Tables are filled to three quarters: an entry then stands within a window of its home position
/// nearly always.
const MOST_FULL: (usize, usize) = (3, 4);

/// Entries that a lookup compares at a time: half a cache line.
const WINDOW: usize = 4;

/// Room behind the last home position for entries that were pushed on.
const OVERHANG: usize = 32;

/// What is known of one cached block: the rest of its hash, a bit for each valid sector, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    fn new(hash: Hash) -> Entry {
        Entry(hash.rest() << (MOST_SECTORS + FLAG_BITS))
    }

    fn rest(self) -> u64 {
        self.0 >> (MOST_SECTORS + FLAG_BITS)
    }

    /// One bit for each valid sector.
    #[inline]
    pub fn valid(self) -> u64 {
        self.0 >> FLAG_BITS & VALID_MASK
    }

    /// Notes which sectors are valid.
    #[inline]
    pub fn set_valid(&mut self, valid: u64) {
        self.0 = self.0 & !(VALID_MASK << FLAG_BITS) | (valid & VALID_MASK) << FLAG_BITS;
    }

    /// Whether it was used since [`Entry::set_used`] said no.
    pub fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Whether it must stay.
    pub fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
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
        if (self.0 & flag != 0) != on {
            self.0 ^= flag;
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

    /// The lane and the block number.
    pub fn key(self) -> (u32, u64) {
        let key = unmix(self.0);
        ((key >> BLOCK_BITS) as u32, key & ((1 << BLOCK_BITS) - 1))
    }

    #[inline]
    fn shard(self) -> usize {
        (self.0 >> REST_BITS) as usize
    }

    #[inline]
    fn rest(self) -> u64 {
        self.0 & REST_MASK
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

/// A bijection of numbers of [`HASH_BITS`] bits with well-mixed upper bits.
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
    fn home(&self, rest: u64) -> usize {
        let fraction = rest << (64 - REST_BITS);
        ((u128::from(fraction) * self.width as u128) >> 64) as usize
    }

    /// Where the entry stands, or where it would have to be put.
    #[inline]
    fn search(&self, rest: u64) -> Result<usize, usize> {
        let least = rest << (MOST_SECTORS + FLAG_BITS);
        let mut at = self.home(rest);
        while let Some(window) = self.entries.get(at..).and_then(<[_]>::first_chunk) {
            // All of them are compared, whatever they are: a branch on each would be mispredicted.
            let window: &[Entry; WINDOW] = window;
            let smaller: usize = window
                .iter()
                .map(|entry| usize::from(entry.0 < least))
                .sum();
            at += smaller;
            if smaller < WINDOW {
                return if self.entries[at].rest() == rest && self.entries[at] != EMPTY {
                    Ok(at)
                } else {
                    Err(at)
                };
            }
        }
        let left = self.entries.get(at..).unwrap_or_default();
        at += left.iter().take_while(|entry| entry.0 < least).count();
        match self.entries.get(at) {
            Some(&entry) if entry.rest() == rest && entry != EMPTY => Ok(at),
            _ => Err(at),
        }
    }

    /// Puts an entry in where a search that did not find it ended.
    fn insert(&mut self, new: Entry, mut at: usize) -> usize {
        if (self.count + 1) * MOST_FULL.1 > self.width * MOST_FULL.0 {
            self.grow();
            at = self.search(new.rest()).unwrap_or_else(|at| at);
        }
        // Those behind move on by one, up to the first free place.
        let (place, mut moved) = (at, new);
        while moved != EMPTY {
            if at == self.entries.len() {
                self.entries.resize(at + OVERHANG, EMPTY);
            }
            std::mem::swap(&mut self.entries[at], &mut moved);
            at += 1;
        }
        self.count += 1;
        place
    }

    fn remove(&mut self, mut at: usize) {
        while let Some(&next) = self.entries.get(at + 1) {
            if next == EMPTY || self.home(next.rest()) > at {
                break;
            }
            self.entries[at] = next;
            at += 1;
        }
        self.entries[at] = EMPTY;
        self.count -= 1;
    }

    fn grow(&mut self) {
        self.widen(self.width + self.width / 4 + 8);
    }

    /// Moves all entries into a table with more home positions.
    fn widen(&mut self, width: usize) {
        let mut grown = Shard {
            entries: vec![EMPTY; width + OVERHANG],
            width,
            count: self.count,
        };
        let mut last = 0;
        for &entry in self.entries.iter().filter(|&&entry| entry != EMPTY) {
            let at = grown.home(entry.rest()).max(last);
            if at >= grown.entries.len() {
                grown.entries.resize(at + OVERHANG, EMPTY);
            }
            grown.entries[at] = entry;
            last = at + 1;
        }
        *self = grown;
    }
}

/// Where an entry stands, until the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    shard: usize,
    at: usize,
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

    /// Where a block's entry stands.
    #[inline]
    pub fn find(&self, hash: Hash) -> Option<Place> {
        let shard = hash.shard();
        let at = self.shards[shard].search(hash.rest()).ok()?;
        Some(Place { shard, at })
    }

    /// The entry at a place.
    #[inline]
    pub fn at(&mut self, place: Place) -> &mut Entry {
        &mut self.shards[place.shard].entries[place.at]
    }

    /// The entry of a block.
    #[inline]
    pub fn get_mut(&mut self, hash: Hash) -> Option<&mut Entry> {
        let place = self.find(hash)?;
        Some(self.at(place))
    }

    /// The entry of a block, made if it was not there; and whether it was made.
    #[inline]
    pub fn get_or_insert(&mut self, hash: Hash) -> (&mut Entry, bool) {
        let shard = &mut self.shards[hash.shard()];
        match shard.search(hash.rest()) {
            Ok(at) => (&mut shard.entries[at], false),
            Err(at) => {
                self.count += 1;
                let at = shard.insert(Entry::new(hash), at);
                (&mut shard.entries[at], true)
            }
        }
    }

    /// Makes room for so many blocks more. Without it the table grows in small steps.
    pub fn reserve(&mut self, blocks: usize) {
        let shards = self.shards.len();
        for shard in &mut self.shards {
            // Hashes fall evenly: the fullest of the shards has a few per cent more than its share.
            let count = shard.count + blocks / shards + blocks / shards / 16;
            let width = count * MOST_FULL.1 / MOST_FULL.0;
            if width > shard.width {
                shard.widen(width);
            }
        }
    }

    /// Has the processor fetch the place where a block's entry is likely to stand. Changes nothing.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        let shard = &self.shards[hash.shard()];
        if let Some(entry) = shard.entries.get(shard.home(hash.rest())) {
            prefetch(entry);
        }
    }

    /// Forgets the block at a place.
    pub fn remove(&mut self, place: Place) {
        self.shards[place.shard].remove(place.at);
        self.count -= 1;
    }

    /// All blocks, in an order that depends on nothing but the blocks themselves.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Hash, &mut Entry)> {
        let shards = self.shards.iter_mut().zip(0_u64..);
        let all = shards.flat_map(|(shard, number)| {
            let entries = shard.entries.iter_mut();
            entries.map(move |entry| (number << REST_BITS, entry))
        });
        all.filter(|(_, entry)| **entry != EMPTY)
            .map(|(upper, entry)| (Hash(upper | entry.rest()), entry))
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let entries = self.shards.iter().map(|shard| shard.entries.capacity());
        entries.sum::<usize>() * size_of::<Entry>()
    }
}

/// Has the processor fetch the cache line of a thing while it does something else. Changes nothing.
#[inline]
pub fn prefetch<T>(thing: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, and does not fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(thing).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = thing;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_entry_takes_less_than_14_bytes() {
        let mut table = BlockTable::new();
        for block in 0..400_000 {
            table.get_or_insert(Hash::of(3, block * 7));
            // Below that the table is small whatever an entry takes.
            if block > 200_000 && block % 1_000 == 0 {
                let each = table.memory_bytes() as f64 / table.len() as f64;
                assert!(each < 14.0, "{each} bytes for each of {block}");
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
            let place = table.find(Hash::of(1, block)).expect("it was put in");
            table.remove(place);
        }
        assert_eq!(table.len(), 0);
        assert_eq!(table.iter_mut().count(), 0);
    }

    proptest! {
        #[test]
        fn hashing_loses_nothing(lane in 0_u32..1 << LANE_BITS, block in 0_u64..1 << BLOCK_BITS) {
            prop_assert_eq!(Hash::of(lane, block).key(), (lane, block));
            let hash = Hash::of(lane, block);
            let mut entry = Entry::new(hash);
            entry.set_valid(VALID_MASK);
            entry.set_used(true);
            entry.set_pinned(true);
            prop_assert_eq!((entry.rest(), entry.valid()), (hash.rest(), VALID_MASK));
            prop_assert!(entry != EMPTY);
        }

        #[test]
        fn is_a_map(steps in prop::collection::vec((0..3_u8, 0..2_u32, 0..400_u64), 1..2_000)) {
            let mut table = BlockTable::new();
            let mut map = BTreeMap::new();
            for (step, (what, lane, block)) in steps.into_iter().enumerate() {
                let hash = Hash::of(lane, block);
                match what {
                    0 => {
                        let place = table.find(hash);
                        prop_assert_eq!(place.is_some(), map.remove(&(lane, block)).is_some());
                        if let Some(place) = place {
                            table.remove(place);
                        }
                    }
                    1 => {
                        let found = table.get_mut(hash).map(|entry| entry.valid());
                        prop_assert_eq!(found, map.get(&(lane, block)).copied());
                    }
                    _ => {
                        let (entry, made) = table.get_or_insert(hash);
                        prop_assert_eq!(made, !map.contains_key(&(lane, block)));
                        entry.set_valid(step as u64);
                        map.insert((lane, block), step as u64);
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let mut all: Vec<_> = table.iter_mut().map(|(hash, e)| (hash.key(), e.valid())).collect();
            all.sort_unstable();
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
