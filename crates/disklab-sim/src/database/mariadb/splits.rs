//! Leaves of an index that was built in order over rows that were there, as sysbench does: full ones, which split and merge.
//!
//! An entry that finds no room splits its leaf in halves. An entry that is gone leaves a hole where it was: the leaf is rewritten for the
//! room of its holes when that is [`LEAST_HOLES`] or more. Halves are smaller than half a page, so that the first entry that one
//! loses joins it with a neighbour that has room, and the next one that the full leaf gets splits it again.
//!
//! **Source:** btr0cur.cc of MariaDB 10.11 (`btr_cur_optimistic_insert`, `BTR_CUR_PAGE_REORGANIZE_LIMIT`; `btr_cur_compress_recommendation`)
//! and btr0btr.cc (`btr_page_split_and_insert`, `btr_compress`, `btr_can_merge_with_page`). Counted on our server (2026-11-28, one thread of
//! oltp_update_index, 20 new tables of 50,000 rows): 13,016 splits, 12,682 merges and 8,353 rewrites in 50,974 updates, the first
//! 5,929 of them with 2,394, 2,167 and 1,453; the redo log beyond an update's own was 5.1 to 5.2 kB for each of them.
//! **Divergence:** what purge reads is there at once for it.

use std::collections::BTreeMap;

use super::leaves::{PAGE_BYTES, PAGE_ROOM};

/// Bytes of a page below which it is joined with a neighbour. **Source:** `DICT_INDEX_MERGE_THRESHOLD_DEFAULT`, 50 %.
const LEAST_BYTES: u64 = PAGE_BYTES / 2;
/// Bytes of holes for which a page is rewritten. **Source:** `BTR_CUR_PAGE_REORGANIZE_LIMIT`.
const LEAST_HOLES: u64 = PAGE_BYTES / 32;
/// Redo log of a split, a merge or a rewrite, each. **Source:** our server, above.
pub const REWRITE_REDO_BYTES: u64 = 5_200;
/// Entries that purge removes together. **Source:** the counts above come out with 2,800; `innodb_purge_batch_size` is in pages of undo.
const PURGE_BATCH: usize = 2_800;

/// A leaf: its page, its entries, and the holes between them.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    page: u32,
    entries: u32,
    holes: u32,
}

/// What a change did: pages that have changed, and how many were rewritten, split or merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The leaf, and the neighbour that it was joined with, or that it became.
    pub pages: [Option<u32>; 2],
    /// The page among them that is new.
    pub made: Option<u32>,
    /// Neighbours that were looked at, for room.
    pub neighbours: [Option<u32>; 2],
    /// How often a page was rewritten.
    pub rewrites: u32,
}

/// The leaves of an index by their first entry's place.
#[derive(Clone, Debug)]
pub struct Index {
    leaves: BTreeMap<u64, Leaf>,
    rows: u64,
    /// Entries that a page has room for, and those below which it is joined.
    room: u32,
    least: u32,
    least_holes: u32,
    /// Pages that no leaf has.
    free: Vec<u32>,
    /// Entries that are gone for their transactions, and not yet for purge.
    gone: Vec<u64>,
}

/// How many entries of so many bytes have room in a page. **Source:** `page_dir_calc_reserved_space`: a slot of two bytes to four records.
pub fn room_of(entry_bytes: u64) -> u64 {
    (2 * PAGE_ROOM / (2 * entry_bytes.max(1) + 1)).max(1)
}

impl Index {
    /// The index over `rows`, whose full leaves are the pages from `first` on; `spare`: pages that are free.
    pub fn new(rows: u64, entry_bytes: u64, first: u64, spare: std::ops::Range<u64>) -> Index {
        let room = room_of(entry_bytes);
        let leaf = |start: u64| Leaf {
            page: (first + start / room) as u32,
            entries: room.min(rows - start) as u32,
            holes: 0,
        };
        let starts = (0..rows).step_by(room as usize);
        let share = |bytes: u64| (bytes * 2 / (2 * entry_bytes + 1)) as u32;
        Index {
            leaves: starts.map(|start| (start, leaf(start))).collect(),
            rows,
            room: room as u32,
            least: share(LEAST_BYTES),
            least_holes: share(LEAST_HOLES),
            free: spare.rev().map(|page| page as u32).collect(),
            gone: Vec::new(),
        }
    }

    fn at(&self, row: u64) -> (u64, Leaf) {
        let found = self.leaves.range(..=row).next_back();
        found.map_or_else(
            || unreachable!("the first leaf begins at 0"),
            |(&start, &leaf)| (start, leaf),
        )
    }

    /// The page of the entry at a place.
    pub fn page_of(&self, row: u64) -> u32 {
        self.at(row).1.page
    }

    /// An entry is added.
    pub fn insert(&mut self, row: u64) -> Change {
        let (start, mut leaf) = self.at(row);
        let mut change = Change {
            pages: [Some(leaf.page), None],
            ..Change::default()
        };
        let room = self.room - leaf.entries.min(self.room);
        if room <= leaf.holes {
            change.rewrites = 1;
            leaf.holes = 0;
            if room < self.least_holes.max(1) {
                change.made = self.split(start, &mut leaf);
                change.pages[1] = change.made;
            }
        }
        self.leaves.insert(start, leaf);
        let grown = self.leaves.range_mut(..=row).next_back();
        grown.expect("the first leaf begins at 0").1.entries += 1;
        change
    }

    /// Splits the leaf that begins at `start`, if a page is free for its upper half; returns that page.
    fn split(&mut self, start: u64, leaf: &mut Leaf) -> Option<u32> {
        let end = self.leaves.range(start + 1..).next();
        let end = end.map_or(self.rows, |(&next, _)| next);
        let middle = start.midpoint(end);
        if middle == start {
            return None;
        }
        let page = self.free.pop()?;
        let entries = leaf.entries - leaf.entries / 2;
        let upper = Leaf {
            page,
            entries,
            holes: 0,
        };
        leaf.entries /= 2;
        self.leaves.insert(middle, upper);
        Some(page)
    }

    /// An entry is marked as gone; returns those that purge takes now, a batch or none.
    pub fn mark(&mut self, row: u64) -> Vec<u64> {
        self.gone.push(row);
        if self.gone.len() < PURGE_BATCH {
            return Vec::new();
        }
        std::mem::take(&mut self.gone)
    }

    /// Purge takes an entry.
    pub fn remove(&mut self, row: u64) -> Change {
        let (start, mut leaf) = self.at(row);
        leaf.entries = leaf.entries.saturating_sub(1);
        leaf.holes += 1;
        self.leaves.insert(start, leaf);
        let mut change = Change {
            pages: [Some(leaf.page), None],
            ..Change::default()
        };
        if leaf.entries >= self.least {
            return change;
        }
        let before = self.leaves.range(..start).next_back();
        let behind = self.leaves.range(start + 1..).next();
        let mut joins = None;
        for (place, neighbour) in [before, behind].into_iter().enumerate() {
            let Some((&start, &other)) = neighbour else {
                continue;
            };
            change.neighbours[place] = Some(other.page);
            if other.entries + leaf.entries <= self.room {
                joins = Some((start, other));
                break;
            }
        }
        let Some((other_start, other)) = joins else {
            return change;
        };
        // The neighbour gets the entries; it is rewritten first where only its holes have room for them.
        let is_rewritten = self.room - other.entries.min(self.room) < other.holes + leaf.entries;
        let joined = Leaf {
            page: other.page,
            entries: other.entries + leaf.entries,
            holes: if is_rewritten { 0 } else { other.holes },
        };
        self.leaves.remove(&start);
        self.leaves.remove(&other_start);
        self.leaves.insert(start.min(other_start), joined);
        self.free.push(leaf.page);
        (change.pages[1], change.rewrites) = (Some(other.page), 1 + u32::from(is_rewritten));
        change
    }
}

#[cfg(test)]
mod tests {
    use disklab_units::random::Stream;

    use super::*;

    /// Splits, and all rewrites, of updates of an entry that stays where it is.
    fn counts(updates: u32) -> (u32, u32) {
        let (rows, room) = (1_000_000, room_of(13));
        let leaves = u64::div_ceil(rows, room);
        let mut index = Index::new(rows, 13, 0, leaves..2 * leaves);
        let mut draws = Stream::new(1, "rows");
        let (mut splits, mut rewrites) = (0, 0);
        for _ in 0..updates {
            let row = draws.below(rows);
            let change = index.insert(row);
            splits += u32::from(change.made.is_some());
            rewrites += change.rewrites;
            for gone in index.mark(row) {
                rewrites += index.remove(gone).rewrites;
            }
        }
        let entries: u64 = index
            .leaves
            .values()
            .map(|leaf| u64::from(leaf.entries))
            .sum();
        assert_eq!(entries, rows + index.gone.len() as u64, "none is lost");
        (splits, rewrites)
    }

    /// Our server, 50,974 updates of 20 new tables of 50,000 rows: 13,016 splits, 34,051 splits, merges and rewrites.
    #[test]
    fn full_leaves_split_and_merge_as_often_as_a_real_server_s() {
        let (splits, rewrites) = counts(50_974);
        assert!((11_000..15_000).contains(&splits), "{splits}");
        assert!((29_000..39_000).contains(&rewrites), "{rewrites}");
    }

    #[test]
    fn an_entry_is_found_in_the_half_that_has_it() {
        let mut index = Index::new(10_000, 13, 100, 200..300);
        let room = room_of(13);
        assert_eq!((index.page_of(0), index.page_of(room)), (100, 101));
        let change = index.insert(room - 1);
        assert_eq!(change.made, Some(200));
        assert_eq!((index.page_of(0), index.page_of(room - 1)), (100, 200));
    }
}
