//! How full the leaves are of a tree that several sessions have filled in the order of its keys.
//!
//! A page that is full is split in its middle, unless the row comes right behind the one before it: then the new page gets the new
//! row, and what is behind it; at the end of a full page the next one is tried first. One session fills page after page. Of rows
//! that change places, a later one splits a page in halves that nothing fills any more.
//!
//! **Source:** btr0btr.cc of MariaDB 10.11 (`btr_page_get_split_rec_to_right`, `btr_page_get_split_rec_to_left`,
//! `btr_insert_into_right_sibling`) and btr0cur.cc (`btr_cur_optimistic_insert`: in order, a sixteenth of a page stays free). Rows to a
//! leaf of our server (10.11.19 on two CPUs, 2026-11-28; written by 1, 16 and 32 connections): of 4,090 B 3.00, 2.27 and 2.25, of 1 KiB
//! 14.0, 9.7 and 10.2, of 200 B 65.0, 44.5 and 41.6. Simulated: 3.00, 2.11 and 2.21; 14.0, 9.3 and 10.3; 64.9, 37.7 and 40.3.
//! **Divergence:** any of the rows that are being written ends next, where the server's threads queue for CPUs.

use crate::database::fill::ended_rows;

/// Rows after which the pattern begins again, at most.
const MOST_ROWS: u64 = 1 << 14;

/// Bytes of a page. **Source:** `innodb_page_size`.
pub const PAGE_BYTES: u64 = 16_384;

/// Bytes of a page that header, directory and trailer leave to records.
pub const PAGE_ROOM: u64 = PAGE_BYTES - 128;

/// What inserts in order leave free. **Source:** `dict_index_get_space_reserve`.
const RESERVE: u64 = PAGE_BYTES / 16;

/// A leaf: its keys, and the row that was added last, unless a split has come since.
#[derive(Default)]
struct Leaf {
    keys: Vec<u64>,
    last: Option<u64>,
}

impl Leaf {
    fn of(keys: Vec<u64>, last: Option<u64>) -> Leaf {
        Leaf { keys, last }
    }

    /// Where to split for a row at `place` that continues a pattern, and whether it begins the right page; `None`: it does not.
    fn split_in_order(&self, place: usize) -> Option<(usize, bool)> {
        self.last?;
        let before = place.checked_sub(1).map(|at| self.keys[at]);
        if self.last == before {
            // What is behind the new row goes with it, or all but the next one.
            let is_near_end = place + 1 >= self.keys.len();
            return Some(if is_near_end {
                (place, true)
            } else {
                (place + 1, false)
            });
        }
        if self.last != self.keys.get(place).copied() {
            return None;
        }
        // Against the order: the row before goes along, unless it is the first.
        Some((if place > 1 { place - 1 } else { place }, false))
    }
}

/// Which leaf each row lies in, for the rows of a period.
#[derive(Clone, Debug)]
pub struct Leaves {
    leaf: Vec<u32>,
    count: u64,
    /// By row: whether it found its leaf full.
    split: Vec<bool>,
}

impl Leaves {
    /// The leaves of `rows` rows of so many bytes, which `sessions` write in the order of their keys, a row each at a time.
    pub fn new(rows: u64, row_bytes: u64, sessions: u32) -> Leaves {
        let rows = rows / rows.div_ceil(MOST_ROWS).max(1);
        let mut leaves = vec![Leaf::default()];
        let mut split = vec![false; rows as usize];
        for (_, row) in ended_rows(rows, sessions) {
            split[row as usize] = add(&mut leaves, row, row_bytes.max(1));
        }
        let numbered = leaves.iter().zip(0..);
        let leaf = numbered.flat_map(|(leaf, number)| vec![number; leaf.keys.len()]);
        Leaves {
            leaf: leaf.collect(),
            count: leaves.len() as u64,
            split,
        }
    }

    /// Whether a row found its leaf full.
    #[inline]
    pub fn split(&self, row: u64) -> bool {
        self.split[(row % self.split.len() as u64) as usize]
    }

    /// Rows in so many leaves, on average.
    pub fn rows_in(&self, leaves: u64) -> u64 {
        (leaves * self.leaf.len() as u64).div_ceil(self.count)
    }

    /// The rows of a leaf, from the first to the one behind the last.
    pub fn rows_of(&self, leaf: u64) -> std::ops::Range<u64> {
        let number = (leaf % self.count) as u32;
        let before = leaf / self.count * self.leaf.len() as u64;
        let start = self.leaf.partition_point(|&other| other < number);
        let end = self.leaf.partition_point(|&other| other <= number);
        before + start as u64..before + end as u64
    }

    /// The leaf of a row, counted from that of the first.
    #[inline]
    pub fn of(&self, row: u64) -> u64 {
        let period = self.leaf.len() as u64;
        row / period * self.count + u64::from(self.leaf[(row % period) as usize])
    }
}

/// Adds a row to the leaf of its key, and splits that if it is full; returns whether it was.
fn add(leaves: &mut Vec<Leaf>, key: u64, row_bytes: u64) -> bool {
    let behind = |leaf: &Leaf| leaf.keys.first().is_none_or(|&first| first <= key);
    let number = leaves.iter().rposition(behind).unwrap_or(0);
    let leaf = &mut leaves[number];
    let place = leaf.keys.partition_point(|&other| other < key);
    let in_order = leaf.split_in_order(place);
    let count = leaf.keys.len() as u64;
    let keeps = if in_order.is_some() && count >= 2 {
        RESERVE
    } else {
        0
    };
    if (count + 1) * row_bytes + keeps <= PAGE_ROOM || count == 0 {
        leaf.keys.insert(place, key);
        leaf.last = Some(key);
        return false;
    }
    if place == leaf.keys.len()
        && let Some(next) = leaves.get_mut(number + 1)
        && (next.keys.len() as u64 + 1) * row_bytes <= PAGE_ROOM
    {
        next.keys.insert(0, key);
        next.last = Some(key);
        return true;
    }
    let leaf = &mut leaves[number];
    let middle = (leaf.keys.len() / 2).max(1);
    let (at, begins_right) = in_order.unwrap_or((middle, false));
    let mut right = leaf.keys.split_off(at);
    let goes_right = begins_right || right.first().is_some_and(|&first| first < key);
    leaf.last = None;
    let mut last = None;
    if goes_right {
        right.insert(right.partition_point(|&other| other < key), key);
        last = Some(key);
    } else {
        leaf.keys.insert(place, key);
        leaf.last = Some(key);
    }
    leaves.insert(number + 1, Leaf::of(right, last));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_to_a_leaf(row_bytes: u64, sessions: u32) -> f64 {
        let leaves = Leaves::new(16_000, row_bytes, sessions);
        16_000.0 / leaves.count as f64
    }

    #[test]
    fn leaves_are_as_full_as_those_of_the_real_server() {
        // Rows of 4,090 B, 1 KiB and 200 B, written by one connection and by 32.
        for (row_bytes, one, many) in [(4_126, 3.0, 2.25), (1_061, 14.0, 10.2), (231, 65.0, 41.6)] {
            let (alone, beside) = (rows_to_a_leaf(row_bytes, 1), rows_to_a_leaf(row_bytes, 32));
            println!("{row_bytes} B: {alone:.2} {beside:.2}");
            assert!((alone / one - 1.0).abs() < 0.02, "{row_bytes} B: {alone}");
            assert!(
                (beside / many - 1.0).abs() < 0.04,
                "{row_bytes} B: {beside}"
            );
        }
    }

    #[test]
    fn each_row_has_one_leaf_and_leaves_are_in_the_order_of_keys() {
        for rows in [1, 2, 5, 40, 16_384, 50_000] {
            let leaves = Leaves::new(rows, 1_061, 4);
            assert_eq!(leaves.of(0), 0);
            let steps = (1..rows).map(|row| leaves.of(row) - leaves.of(row - 1));
            assert!(steps.into_iter().all(|step| step < 2), "{rows} rows");
            for row in (0..rows).step_by(7) {
                assert!(leaves.rows_of(leaves.of(row)).contains(&row), "{row}");
            }
        }
    }
}
