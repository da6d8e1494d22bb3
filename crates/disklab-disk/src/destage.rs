//! Dirty data of one member disk: acknowledged by a ReadWrite cache, not yet on the disk.

use std::collections::VecDeque;

use crate::cache::blocks;
use crate::dirty::DirtyBlocks;
use crate::validate::SECTOR_BYTES;

/// How long data stay dirty before they are destaged on their own. No vendor says; long enough for
/// writes to the same place to be gathered, short enough for a crash to lose little.
pub const DELAY_NS: u64 = 1_000_000_000;

/// Destage writes of one disk that may be under way at a time. By Little's law a disk of 5000 IOPS
/// and 3.3 ms needs 17 to be kept busy, one of 20,000 IOPS and 1.5 ms needs 30.
pub const MOST_RUNS: usize = 32;

/// A place in the queue of blocks to destage.
#[derive(Clone, Copy, Debug)]
struct Queued {
    block: u64,
    sequence: u64,
    /// When the block became dirty, in nanoseconds.
    since: u64,
}

/// A destage write: neighbouring sectors of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First sector on the member disk.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    sequence: u64,
    /// When it is on the disk, in nanoseconds; the end of time while nobody knows.
    end: u64,
}

/// What has reached the disk. Used again and again, so that an arrival takes no memory.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// In order of their ends.
    pub runs: Vec<Run>,
    /// Blocks of which nothing is dirty any more.
    pub clean: Vec<u64>,
}

/// A FLUSH that waits for the destage of what was dirty when it came.
#[derive(Clone, Copy, Debug)]
struct Flush {
    parent: u32,
    /// The last block that it waits for.
    sequence: u64,
    /// The end of the slowest destage that it waited for, in nanoseconds.
    end: u64,
}

/// The dirty blocks of one member disk, in the order in which they became dirty.
#[derive(Clone, Debug, Default)]
pub struct Destager {
    blocks: DirtyBlocks,
    queue: VecDeque<Queued>,
    runs: Vec<Run>,
    flushes: VecDeque<Flush>,
    /// Blocks queued so far.
    sequence: u64,
    /// Blocks up to this one must leave at once.
    urgent: u64,
    /// When the queue is looked at next, in nanoseconds; the end of time: not planned.
    planned: u64,
    dirty_sectors: u64,
    /// Whether the queue may have blocks that are no longer dirty: only a discard leaves such.
    has_gaps: bool,
}

impl Destager {
    /// Nothing dirty.
    pub fn new() -> Destager {
        Destager {
            planned: u64::MAX,
            ..Destager::default()
        }
    }

    /// Sectors that a host failure would lose.
    pub fn dirty_sectors(&self) -> u64 {
        self.dirty_sectors
    }

    /// Whether nothing is dirty or on its way.
    pub fn is_clean(&self) -> bool {
        self.dirty_sectors == 0 && self.runs.is_empty()
    }

    /// Marks sectors as written at `now`. Returns how many were clean before.
    pub fn mark(&mut self, per_block: u64, first: u64, last: u64, now: u64) -> u64 {
        let before = self.dirty_sectors;
        for (number, mask) in blocks(per_block, first, last) {
            let block = self.blocks.get_or_insert(number);
            if !block.queued {
                block.queued = true;
                self.sequence += 1;
                self.queue.push_back(Queued {
                    block: number,
                    sequence: self.sequence,
                    since: now,
                });
            }
            let new = mask & !(block.dirty | block.leaving);
            self.dirty_sectors += u64::from(new.count_ones());
            block.dirty |= mask;
        }
        self.dirty_sectors - before
    }

    /// Makes everything that is dirty now leave at once.
    pub fn hurry(&mut self) {
        self.urgent = self.sequence;
    }

    /// Notes a FLUSH that came now.
    pub fn flush(&mut self, parent: u32) {
        self.hurry();
        let known = self.runs.iter().map(|run| run.end);
        let end = known.filter(|&end| end != u64::MAX).max();
        self.flushes.push_back(Flush {
            parent,
            sequence: self.sequence,
            end: end.unwrap_or(0),
        });
    }

    /// Takes the next block whose time has come: its first sector, and a bit for each sector that
    /// leaves, in runs of neighbours ([`runs_of`]). `None`: not yet, or enough are under way.
    /// `pressed`: the cache is short of clean room, so nothing waits for its time.
    pub fn next_block(&mut self, per_block: u64, now: u64, pressed: bool) -> Option<(u64, u64)> {
        self.prune();
        let next = *self.queue.front()?;
        let due = pressed || next.sequence <= self.urgent || next.since + DELAY_NS <= now;
        if !due || self.runs.len() >= MOST_RUNS {
            return None;
        }
        let block = self.blocks.get_mut(next.block)?;
        if block.leaving != 0 {
            // Its earlier data are still on their way; two writes of one sector must not overtake
            // each other. They arrive within a service time.
            return None;
        }
        self.queue.pop_front();
        block.queued = false;
        let mask = std::mem::take(&mut block.dirty);
        block.leaving = mask;
        let start = next.block * per_block;
        self.runs.extend(runs_of(mask).map(|(bit, sectors)| Run {
            sector: start + bit,
            sectors,
            sequence: next.sequence,
            end: u64::MAX,
        }));
        Some((start, mask))
    }

    /// When the queue must be looked at again because of its age, if that is not planned already.
    ///
    /// What is due already waits for a run under way, whose arrival is the next occasion.
    pub fn plan(&mut self, now: u64) -> Option<u64> {
        if self.planned != u64::MAX {
            return None;
        }
        self.prune();
        let due = self.queue.front()?.since + DELAY_NS;
        if due <= now {
            return None;
        }
        self.planned = due;
        Some(due)
    }

    /// Notes that a planned look takes place.
    pub fn look(&mut self) {
        self.planned = u64::MAX;
    }

    /// Notes when a run will be on the disk.
    pub fn decide(&mut self, sector: u64, end: u64) {
        // From the back: below the disk's limits it is the one that was taken last.
        let run = self.runs.iter_mut().rev().find(|run| run.sector == sector);
        let Some(run) = run else { return };
        run.end = end;
        let sequence = run.sequence;
        for flush in &mut self.flushes {
            if sequence <= flush.sequence {
                flush.end = flush.end.max(end);
            }
        }
    }

    /// Takes the runs that are on the disk by `now`, and their blocks that have become clean.
    pub fn arrived(&mut self, per_block: u64, now: u64, arrived: &mut Arrived) {
        arrived.runs.clear();
        arrived.clean.clear();
        let there = self.runs.extract_if(.., |run| run.end <= now);
        arrived.runs.extend(there);
        arrived.runs.sort_by_key(|run| (run.end, run.sector));
        for run in &arrived.runs {
            let number = run.sector / per_block;
            let Some(block) = self.blocks.get_mut(number) else {
                continue;
            };
            let low = run.sector % per_block;
            let mask = (u64::MAX >> (64 - run.sectors)) << low;
            block.leaving &= !mask;
            // What was written again meanwhile is as dirty as before.
            self.dirty_sectors -= u64::from((mask & !block.dirty).count_ones());
            if block.dirty | block.leaving == 0 {
                arrived.clean.push(number);
            }
            if block.is_idle() {
                self.blocks.remove(number);
            }
        }
    }

    /// Takes the flushes that wait for nothing more: parent and end of their destage.
    pub fn flushed(&mut self) -> Vec<(u32, u64)> {
        if self.flushes.is_empty() {
            return Vec::new();
        }
        self.prune();
        let queued = self.queue.front().map_or(u64::MAX, |next| next.sequence);
        let unknown = self.runs.iter().filter(|run| run.end == u64::MAX);
        let oldest = unknown
            .map(|run| run.sequence)
            .min()
            .unwrap_or(u64::MAX)
            .min(queued);
        let mut done = Vec::new();
        while let Some(flush) = self.flushes.front()
            && flush.sequence < oldest
        {
            done.push((flush.parent, flush.end));
            self.flushes.pop_front();
        }
        done
    }

    /// Forgets dirty sectors that are discarded. Returns them as ranges of sectors; what is on its
    /// way arrives all the same. Blocks that have become clean are left in `clean`.
    pub fn discard(
        &mut self,
        per_block: u64,
        first: u64,
        last: u64,
        clean: &mut Vec<u64>,
    ) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        if first >= last {
            return gone;
        }
        let touched = first / per_block..=(last - 1) / per_block;
        for number in self.blocks.numbers(touched) {
            let Some(block) = self.blocks.get_mut(number) else {
                continue;
            };
            let (_, mask) = blocks(per_block, first.max(number * per_block), last)
                .next()
                .unwrap_or_default();
            let dropped = block.dirty & mask;
            block.dirty &= !mask;
            let freed = dropped & !block.leaving;
            self.dirty_sectors -= u64::from(freed.count_ones());
            let start = number * per_block;
            gone.extend(runs_of(freed).map(|(bit, sectors)| (start + bit, sectors)));
            if block.dirty | block.leaving == 0 {
                clean.push(number);
            }
        }
        self.has_gaps = true;
        self.prune();
        gone
    }

    /// The dirty sectors of a block, those on their way included.
    pub fn mask(&self, block: u64) -> u64 {
        let entry = self.blocks.get(block);
        entry.map_or(0, |block| block.dirty | block.leaving)
    }

    /// All dirty ranges, ascending: first sector and number.
    pub fn ranges(&self, per_block: u64) -> impl Iterator<Item = (u64, u64)> {
        let numbers = self.blocks.numbers(0..=u64::MAX).into_iter();
        numbers.flat_map(move |number| {
            let start = number * per_block;
            runs_of(self.mask(number)).map(move |(bit, count)| (start + bit, count))
        })
    }

    /// Forgets everything; returns the parents of the flushes that waited.
    pub fn clear(&mut self) -> Vec<u32> {
        let parents = self.flushes.iter().map(|flush| flush.parent).collect();
        let sequence = self.sequence;
        *self = Destager {
            sequence,
            ..Destager::new()
        };
        parents
    }

    /// Drops queue entries whose blocks were discarded.
    fn prune(&mut self) {
        if !self.has_gaps {
            return;
        }
        while let Some(&Queued { block: number, .. }) = self.queue.front() {
            if let Some(block) = self.blocks.get_mut(number) {
                if block.dirty != 0 {
                    return;
                }
                block.queued = false;
                if block.is_idle() {
                    self.blocks.remove(number);
                }
            }
            self.queue.pop_front();
        }
        self.has_gaps = false;
    }
}

/// Runs of ones in a mask: first bit and length.
pub fn runs_of(mut mask: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let start = mask.trailing_zeros();
        let length = (mask >> start).trailing_ones();
        mask &= !((u64::MAX >> (64 - length)) << start);
        Some((u64::from(start), u64::from(length)))
    })
}

/// Sectors that a range touches.
pub fn touched(offset: u64, len: u64) -> (u64, u64) {
    (offset / SECTOR_BYTES, (offset + len).div_ceil(SECTOR_BYTES))
}

/// Sectors that lie wholly within a range; none when the second is not above the first.
pub fn covered(offset: u64, len: u64) -> (u64, u64) {
    (offset.div_ceil(SECTOR_BYTES), (offset + len) / SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_BLOCK: u64 = 16;

    fn take(destager: &mut Destager, now: u64) -> Vec<(u64, u64)> {
        let next = destager.next_block(PER_BLOCK, now, false);
        next.into_iter()
            .flat_map(|(start, mask)| runs_of(mask).map(move |(bit, count)| (start + bit, count)))
            .collect()
    }

    #[test]
    fn runs_are_neighbours() {
        let runs: Vec<_> = runs_of(0b1110_0110).collect();
        assert_eq!(runs, [(1, 2), (5, 3)]);
        assert_eq!(runs_of(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs_of(1 << 63).collect::<Vec<_>>(), [(63, 1)]);
        assert_eq!(runs_of(0).next(), None);
    }

    #[test]
    fn blocks_leave_in_order_when_their_time_has_come() {
        let mut destager = Destager::new();
        assert_eq!(destager.mark(PER_BLOCK, 32, 34, 0), 2);
        assert_eq!(destager.mark(PER_BLOCK, 0, 1, 5), 1);
        assert_eq!(destager.mark(PER_BLOCK, 33, 35, 9), 1);
        assert_eq!(take(&mut destager, DELAY_NS - 1), []);
        assert_eq!(destager.plan(0), Some(DELAY_NS));
        assert_eq!(destager.plan(0), None, "planned already");
        assert_eq!(take(&mut destager, DELAY_NS), [(32, 3)]);
        assert_eq!(take(&mut destager, DELAY_NS), [], "the other is younger");
        assert_eq!(take(&mut destager, DELAY_NS + 5), [(0, 1)]);
    }

    #[test]
    fn what_is_written_again_on_its_way_stays_dirty() {
        let mut destager = Destager::new();
        destager.mark(PER_BLOCK, 0, 2, 0);
        destager.hurry();
        assert_eq!(take(&mut destager, 0), [(0, 2)]);
        assert_eq!(destager.mark(PER_BLOCK, 1, 3, 1), 1);
        destager.hurry();
        assert_eq!(take(&mut destager, 1), [], "the first must arrive before");
        destager.decide(0, 10);
        let mut arrived = Arrived::default();
        destager.arrived(PER_BLOCK, 9, &mut arrived);
        assert_eq!(arrived.runs, []);
        destager.arrived(PER_BLOCK, 10, &mut arrived);
        assert_eq!((arrived.runs.len(), arrived.clean.len()), (1, 0));
        assert_eq!(destager.dirty_sectors(), 2);
        assert_eq!(take(&mut destager, 10), [(1, 2)]);
        destager.decide(1, 20);
        destager.arrived(PER_BLOCK, 20, &mut arrived);
        assert_eq!((arrived.runs.len(), arrived.clean), (1, vec![0]));
        assert!(destager.is_clean());
    }

    #[test]
    fn a_flush_waits_for_the_slowest_before_it_only() {
        let mut destager = Destager::new();
        destager.mark(PER_BLOCK, 0, 1, 0);
        destager.mark(PER_BLOCK, 16, 17, 0);
        destager.flush(7);
        destager.mark(PER_BLOCK, 32, 33, 0);
        assert_eq!(take(&mut destager, 0), [(0, 1)]);
        assert_eq!(take(&mut destager, 0), [(16, 1)]);
        assert_eq!(take(&mut destager, 0), [], "the third is not urgent");
        destager.decide(16, 50);
        assert_eq!(destager.flushed(), []);
        destager.decide(0, 40);
        assert_eq!(destager.flushed(), [(7, 50)]);
    }

    #[test]
    fn a_flush_counts_what_is_on_its_way() {
        let mut destager = Destager::new();
        destager.mark(PER_BLOCK, 0, 1, 0);
        destager.hurry();
        take(&mut destager, 0);
        destager.decide(0, 40);
        destager.flush(7);
        assert_eq!(destager.flushed(), [(7, 40)]);
    }

    #[test]
    fn discarding_frees_and_ends_flushes() {
        let mut destager = Destager::new();
        destager.mark(PER_BLOCK, 4, 40, 0);
        destager.flush(7);
        let mut clean = Vec::new();
        let gone = destager.discard(PER_BLOCK, 0, 32, &mut clean);
        assert_eq!((gone, clean), (vec![(4, 12), (16, 16)], vec![0, 1]));
        assert_eq!(destager.ranges(PER_BLOCK).collect::<Vec<_>>(), [(32, 8)]);
        assert_eq!(destager.flushed(), []);
        destager.discard(PER_BLOCK, 32, 48, &mut Vec::new());
        assert_eq!(destager.flushed(), [(7, 0)]);
        assert!(destager.is_clean());
        assert_eq!(destager.blocks.len(), 0);
    }

    #[test]
    fn no_more_than_the_most_runs_are_under_way() {
        let mut destager = Destager::new();
        for block in 0..100 {
            destager.mark(PER_BLOCK, block * PER_BLOCK, block * PER_BLOCK + 1, 0);
        }
        destager.hurry();
        let mut count = 0;
        while !take(&mut destager, 0).is_empty() {
            count += 1;
        }
        assert_eq!(count, MOST_RUNS);
    }
}
