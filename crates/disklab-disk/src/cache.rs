//! What the host cache holds.
//!
//! Blocks are looked up and evicted whole; validity is kept for each sector of 4 KiB, and so is
//! the capacity: a block counts with the sectors that it really holds.
//!
//! **Eviction** is second chance (Corbató's clock): blocks stand in a queue in the order in which
//! they came; the oldest goes, unless it was used since it last stood at the end, in which case it
//! stands at the back once more. Data that are read again stay, others leave in the order in which
//! newer data push them out. **Divergence:** no vendor documents its policy; this one keeps at least
//! what LRU keeps in published traces and costs a hit no list operation.

use std::collections::VecDeque;

use crate::table::{BlockTable, Hash};
use crate::validate::SECTOR_BYTES;

/// Sectors of one member disk in the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Held now.
    pub held: u64,
    /// Pushed out by newer data.
    pub evicted: u64,
}

/// The contents of a host cache, by lane and block.
#[derive(Clone, Debug)]
pub struct BlockCache {
    table: BlockTable,
    queue: BlockQueue,
    sectors_per_block: u64,
    capacity: u64,
    held: u64,
    shares: Vec<Share>,
}

impl BlockCache {
    /// An empty cache.
    pub fn new(capacity_bytes: u64, block_bytes: u32) -> BlockCache {
        BlockCache {
            table: BlockTable::new(),
            queue: BlockQueue::default(),
            sectors_per_block: u64::from(block_bytes) / SECTOR_BYTES,
            capacity: capacity_bytes / SECTOR_BYTES,
            held: 0,
            shares: Vec::new(),
        }
    }

    /// Most sectors that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Sectors in a block.
    pub fn sectors_per_block(&self) -> u64 {
        self.sectors_per_block
    }

    /// What a lane has in it.
    pub fn share(&self, lane: u32) -> Share {
        self.shares.get(lane as usize).copied().unwrap_or_default()
    }

    /// Has the processor fetch what [`BlockCache::missing`] will look up first.
    #[inline]
    pub fn prefetch(&self, lane: u32, offset: u64) {
        let block = (offset / SECTOR_BYTES) >> self.sectors_per_block.trailing_zeros();
        self.table.prefetch(Hash::of(lane, block));
    }

    /// How many of the bytes are not in the cache. Counts as a use of the blocks that are.
    #[inline]
    pub fn missing(&mut self, lane: u32, offset: u64, len: u32) -> u32 {
        let end = offset + u64::from(len);
        let (first, last) = (offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES));
        let mut bytes = 0;
        for (block, mask) in self.blocks(first, last) {
            let absent = match self.table.get_mut(Hash::of(lane, block)) {
                Some(entry) => {
                    entry.set_used(true);
                    mask & !entry.valid()
                }
                None => mask,
            };
            if absent == 0 {
                continue;
            }
            bytes += u64::from(absent.count_ones()) * SECTOR_BYTES;
            let missing = |sector: u64| {
                sector / self.sectors_per_block == block
                    && absent >> (sector % self.sectors_per_block) & 1 == 1
            };
            // The parts of the outer sectors that nobody asked for.
            if missing(first) {
                bytes -= offset % SECTOR_BYTES;
            }
            if missing(last - 1) {
                bytes -= last * SECTOR_BYTES - end;
            }
        }
        u32::try_from(bytes).unwrap_or(len)
    }

    /// Puts in what a read fetched: every sector that it touched.
    pub fn fill_read(&mut self, lane: u32, offset: u64, len: u64) {
        let end = offset + len;
        self.fill(lane, offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES));
    }

    /// Puts in a long range, as reads would have done: room for all of it is made at once, and the
    /// memory that a block needs is fetched while those before it go in.
    pub fn fill_range(&mut self, lane: u32, offset: u64, len: u64) {
        let block_bytes = self.sectors_per_block * SECTOR_BYTES;
        let most = self.capacity / self.sectors_per_block;
        self.table.reserve((len / block_bytes).min(most) as usize);
        let (mut at, end) = (offset, offset + len);
        while at < end {
            self.prefetch(lane, at + BlockQueue::AHEAD as u64 * block_bytes);
            let next = (at / block_bytes + 1) * block_bytes;
            self.fill_read(lane, at, next.min(end) - at);
            at = next;
        }
    }

    /// Puts in what a write brought. A sector written in part does not become valid by it, for the
    /// rest of it would have to be read first; one that is valid stays so.
    pub fn fill_write(&mut self, lane: u32, offset: u64, len: u64) {
        let end = offset + len;
        self.fill(lane, offset.div_ceil(SECTOR_BYTES), end / SECTOR_BYTES);
    }

    fn fill(&mut self, lane: u32, first: u64, last: u64) {
        for (block, mask) in self.blocks(first, last) {
            let hash = Hash::of(lane, block);
            let (entry, made) = self.table.get_or_insert(hash);
            let new = mask & !entry.valid();
            entry.set_valid(entry.valid() | mask);
            if made {
                self.queue.push(hash);
            } else {
                entry.set_used(true);
            }
            let sectors = u64::from(new.count_ones());
            self.share_mut(lane).held += sectors;
            self.held += sectors;
            self.evict();
            if self.held > self.capacity {
                // All that is left is pinned, this block too: nothing more can come in.
                self.forget(lane, block, new);
            }
        }
    }

    /// Forgets some sectors of a block.
    fn forget(&mut self, lane: u32, block: u64, mask: u64) {
        if let Some(entry) = self.table.get_mut(Hash::of(lane, block)) {
            let gone = u64::from((entry.valid() & mask).count_ones());
            entry.set_valid(entry.valid() & !mask);
            self.held -= gone;
            self.share_mut(lane).held -= gone;
        }
    }

    /// Forgets every sector that the range touches.
    pub fn drop_range(&mut self, lane: u32, offset: u64, len: u64) {
        let end = offset + len;
        let sectors = (offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES));
        for (block, mask) in self.blocks(sectors.0, sectors.1) {
            self.forget(lane, block, mask);
        }
    }

    /// Forgets a lane's sectors, except those that `keep` names for a block.
    pub fn drop_lane(&mut self, lane: u32, keep: impl Fn(u64) -> u64) {
        let mut gone = 0;
        for (hash, entry) in self.table.iter_mut() {
            let (owner, block) = hash.key();
            if owner == lane {
                let kept = entry.valid() & keep(block);
                gone += u64::from((entry.valid() & !kept).count_ones());
                entry.set_valid(kept);
                entry.set_pinned(kept != 0 && entry.is_pinned());
            }
        }
        self.held -= gone;
        self.share_mut(lane).held -= gone;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.table = BlockTable::new();
        self.queue = BlockQueue::default();
        self.held = 0;
        for share in &mut self.shares {
            share.held = 0;
        }
    }

    /// Protects a block from eviction, or no longer.
    pub fn pin(&mut self, lane: u32, block: u64, pinned: bool) {
        if let Some(entry) = self.table.get_mut(Hash::of(lane, block)) {
            entry.set_pinned(pinned);
        }
    }

    /// Starts a lane's counts anew, for another disk in its place.
    pub fn reset_share(&mut self, lane: u32) {
        *self.share_mut(lane) = Share::default();
    }

    fn share_mut(&mut self, lane: u32) -> &mut Share {
        let lane = lane as usize;
        if self.shares.len() <= lane {
            self.shares.resize(lane + 1, Share::default());
        }
        &mut self.shares[lane]
    }

    /// The blocks of a range of sectors, each with a bit for each sector of the range in it.
    #[inline]
    fn blocks(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        blocks(self.sectors_per_block, first, last)
    }

    /// Makes room. A block without sectors (all discarded) costs only memory, and leaves in its
    /// turn, or earlier when there are more blocks than sectors would fit.
    fn evict(&mut self) {
        // Every block is looked at twice at most: once to clear its mark, once to go.
        let mut looks = 2 * self.table.len();
        while (self.held > self.capacity || self.table.len() as u64 > self.capacity) && looks > 0 {
            looks -= 1;
            let Some(hash) = self.queue.pop() else { return };
            // Memory, not work, is what eviction in a large cache costs. Those that go next are
            // fetched while this one goes.
            if let Some(next) = self.queue.ahead() {
                self.table.prefetch(next);
            }
            let Some(place) = self.table.find(hash) else {
                continue;
            };
            let entry = self.table.at(place);
            if entry.is_used() || entry.is_pinned() {
                entry.set_used(false);
                self.queue.push(hash);
                continue;
            }
            let sectors = u64::from(entry.valid().count_ones());
            let (lane, _) = hash.key();
            self.table.remove(place);
            self.held -= sectors;
            let share = self.share_mut(lane);
            share.held -= sectors;
            share.evicted += sectors;
        }
    }
}

/// The blocks of a range of sectors, each with a bit for each sector of the range in it.
#[inline]
pub fn blocks(per_block: u64, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    let shift = per_block.trailing_zeros();
    let end = if first < last {
        ((last - 1) >> shift) + 1
    } else {
        0
    };
    (first >> shift..end).map(move |block| {
        let start = block << shift;
        let low = first.saturating_sub(start);
        let high = (last - start).min(per_block);
        (block, (u64::MAX >> (64 - (high - low))) << low)
    })
}

/// The order of eviction: a queue in pieces, so that growing never copies it.
#[derive(Clone, Debug, Default)]
struct BlockQueue {
    pieces: VecDeque<VecDeque<Hash>>,
    /// An emptied piece, kept for the next one needed.
    spare: Option<VecDeque<Hash>>,
}

impl BlockQueue {
    /// Entries of a piece: 32 KiB.
    const PIECE: usize = 4096;

    /// How far eviction looks ahead: memory answers within the time that a few evictions take.
    const AHEAD: usize = 4;

    fn push(&mut self, hash: Hash) {
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push_back(hash),
            _ => {
                let fresh = || VecDeque::with_capacity(BlockQueue::PIECE);
                let mut piece = self.spare.take().unwrap_or_else(fresh);
                piece.push_back(hash);
                self.pieces.push_back(piece);
            }
        }
    }

    /// The one that stands a few places behind the front, if it is near.
    fn ahead(&self) -> Option<Hash> {
        self.pieces.front()?.get(BlockQueue::AHEAD).copied()
    }

    fn pop(&mut self) -> Option<Hash> {
        let piece = self.pieces.front_mut()?;
        let hash = piece.pop_front();
        if piece.is_empty() {
            self.spare = self.pieces.pop_front();
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const KIB: u64 = 1024;

    #[test]
    fn a_miss_fetches_only_what_was_asked_for() {
        let mut cache = BlockCache::new(1 << 20, 64 << 10);
        assert_eq!(cache.missing(0, 8192, 4096), 4096);
        cache.fill_read(0, 8192, 4096);
        assert_eq!(cache.missing(0, 8192, 4096), 0);
        assert_eq!(cache.missing(0, 0, 65_536), 61_440);
        assert_eq!(cache.missing(1, 8192, 4096), 4096, "another disk");
        assert_eq!(cache.share(0).held, 1);
    }

    #[test]
    fn bytes_of_outer_sectors_count_only_as_far_as_asked() {
        let mut cache = BlockCache::new(1 << 20, 64 << 10);
        assert_eq!(cache.missing(0, 512, 512), 512);
        assert_eq!(cache.missing(0, 4096 - 512, 1024), 1024);
        cache.fill_read(0, 0, 512);
        assert_eq!(cache.missing(0, 4096 - 512, 1024), 512);
        assert_eq!(cache.missing(0, 0, 0), 0);
    }

    #[test]
    fn a_sector_written_in_part_does_not_become_valid() {
        let mut cache = BlockCache::new(1 << 20, 64 << 10);
        cache.fill_write(0, 512, 8192);
        assert_eq!(cache.missing(0, 0, 12_288), 8192);
        cache.fill_read(0, 0, 4096);
        cache.fill_write(0, 512, 512);
        assert_eq!(cache.missing(0, 0, 4096), 0);
    }

    #[test]
    fn what_is_read_again_stays_and_the_rest_leaves_in_order() {
        let mut cache = BlockCache::new(256 * KIB, 64 << 10);
        for block in 0..4 {
            cache.fill_read(0, block * 64 * KIB, 64 * KIB);
        }
        cache.missing(0, 0, 4096);
        for block in 4..6 {
            cache.fill_read(0, block * 64 * KIB, 64 * KIB);
        }
        let held: Vec<bool> = (0..6)
            .map(|block| cache.missing(0, block * 64 * KIB, 4096) == 0)
            .collect();
        assert_eq!(held, [true, false, false, true, true, true]);
        assert_eq!(cache.share(0).evicted, 32);
    }

    #[test]
    fn pinned_blocks_stay() {
        let mut cache = BlockCache::new(128 * KIB, 64 << 10);
        cache.fill_write(0, 0, 64 * KIB);
        cache.pin(0, 0, true);
        for block in 1..100 {
            cache.fill_read(0, block * 64 * KIB, 64 * KIB);
        }
        assert_eq!(cache.missing(0, 0, 65_536), 0);
        cache.pin(0, 0, false);
        for block in 100..104 {
            cache.fill_read(0, block * 64 * KIB, 64 * KIB);
        }
        assert_eq!(cache.missing(0, 0, 65_536), 65_536);
    }

    #[test]
    fn a_pinned_block_takes_nothing_that_does_not_fit() {
        // 31 sectors, all of them pinned; the second block has room for one more.
        let mut cache = BlockCache::new(124 * KIB, 64 << 10);
        cache.fill_write(0, 0, 124 * KIB);
        cache.pin(0, 0, true);
        cache.pin(0, 1, true);
        cache.fill_read(0, 124 * KIB, 4096);
        assert_eq!(cache.missing(0, 0, 128 << 10), 4096);
        assert_eq!(cache.share(0).held, 31);
        cache.pin(0, 0, false);
        cache.fill_read(0, 124 * KIB, 4096);
        assert_eq!(cache.missing(0, 64 * KIB, 65_536), 0, "the other went");
    }

    #[test]
    fn discarded_blocks_do_not_pile_up() {
        let mut cache = BlockCache::new(1 << 20, 4 << 10);
        for block in 0..100_000 {
            cache.fill_read(0, block * 4 * KIB, 4 * KIB);
            cache.drop_range(0, block * 4 * KIB, 4 * KIB);
        }
        assert!(cache.table.len() <= 256, "{} blocks", cache.table.len());
        assert_eq!(cache.held, 0);
    }

    /// Second chance as the textbook has it.
    #[derive(Default)]
    struct Naive {
        queue: Vec<u64>,
        used: BTreeSet<u64>,
        sectors: BTreeMap<u64, BTreeSet<u64>>,
    }

    impl Naive {
        fn fill(&mut self, sector: u64, per_block: u64, capacity: u64) {
            let block = sector / per_block;
            if self.sectors.contains_key(&block) {
                self.used.insert(block);
            } else {
                self.queue.push(block);
            }
            self.sectors.entry(block).or_default().insert(sector);
            while self.sectors.values().map(BTreeSet::len).sum::<usize>() as u64 > capacity {
                let oldest = self.queue.remove(0);
                if self.used.remove(&oldest) {
                    self.queue.push(oldest);
                } else {
                    self.sectors.remove(&oldest);
                }
            }
        }

        fn look(&mut self, sector: u64, per_block: u64) -> bool {
            let block = sector / per_block;
            let Some(sectors) = self.sectors.get(&block) else {
                return false;
            };
            self.used.insert(block);
            sectors.contains(&sector)
        }
    }

    proptest! {
        #[test]
        fn holds_what_the_textbook_holds(
            steps in prop::collection::vec((any::<bool>(), 0..600_u64), 1..1_500),
            block_kib in prop::sample::select(vec![4_u32, 8, 16, 64]),
        ) {
            let per_block = u64::from(block_kib) / 4;
            let capacity = 2 * per_block.max(64);
            let mut cache = BlockCache::new(capacity * SECTOR_BYTES, block_kib << 10);
            let mut naive = Naive::default();
            for (fills, sector) in steps {
                if fills {
                    cache.fill_read(0, sector * SECTOR_BYTES, SECTOR_BYTES);
                    naive.fill(sector, per_block, capacity);
                } else {
                    let hit = cache.missing(0, sector * SECTOR_BYTES, 4096) == 0;
                    prop_assert_eq!(hit, naive.look(sector, per_block));
                }
                prop_assert!(cache.held <= capacity);
                prop_assert_eq!(cache.share(0).held, cache.held);
            }
        }

        #[test]
        fn a_long_range_is_filled_as_by_one_read(
            ranges in prop::collection::vec((0..2_000_000_u64, 1..3_000_000_u64), 1..8),
        ) {
            let mut caches = [(); 2].map(|()| BlockCache::new(4 << 20, 64 << 10));
            for (offset, len) in ranges {
                caches[0].fill_read(3, offset, len);
                caches[1].fill_range(3, offset, len);
            }
            let [left, right] = &mut caches;
            for sector in 0..1_300 {
                let missing = |cache: &mut BlockCache| cache.missing(3, sector * SECTOR_BYTES, 4096);
                prop_assert_eq!(missing(left), missing(right), "sector {}", sector);
            }
            prop_assert_eq!((left.held, left.share(3).evicted), (right.held, right.share(3).evicted));
        }

        #[test]
        fn blocks_cover_a_range_once(first in 0..500_u64, len in 0..300_u64, shift in 0..7_u32) {
            let per_block = 1 << shift;
            let mut sectors = Vec::new();
            for (block, mask) in blocks(per_block, first, first + len) {
                let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
                sectors.extend(bits.map(|bit| block * per_block + bit));
            }
            prop_assert_eq!(sectors, (first..first + len).collect::<Vec<_>>());
        }
    }
}
