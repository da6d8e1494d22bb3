//! Pages that trees get for rows which are added behind their last one.

use std::ops::Range;

/// Which pages are whose.
#[derive(Debug)]
pub struct Growth {
    /// By tree: the pages of its leaves behind the last one that it had at the start.
    leaves: Vec<Vec<u32>>,
    /// By tree: rows that were added.
    rows: Vec<u64>,
    /// Pages for all of them, and how many are taken. **Divergence:** when all are, the first of them are taken again, as they are.
    pages: Range<u64>,
    taken: u64,
}

impl Growth {
    /// So many trees, none of which has grown.
    pub fn new(trees: usize, pages: Range<u64>) -> Growth {
        Growth {
            leaves: vec![Vec::new(); trees],
            rows: vec![0; trees],
            pages,
            taken: 0,
        }
    }

    /// Adds a row to a tree; returns how many it had got before.
    pub fn append(&mut self, tree: u32) -> u64 {
        let rows = &mut self.rows[tree as usize];
        *rows += 1;
        *rows - 1
    }

    /// Rows that a tree has got.
    pub fn rows(&self, tree: u32) -> u64 {
        self.rows[tree as usize]
    }

    /// The page of a tree's leaf, counted from the first one that was added.
    pub fn page_of(&mut self, tree: u32, leaf: u64) -> u32 {
        let leaves = &mut self.leaves[tree as usize];
        while leaves.len() as u64 <= leaf {
            let at = self.taken % (self.pages.end - self.pages.start).max(1);
            leaves.push((self.pages.start + at) as u32);
            self.taken += 1;
        }
        leaves[leaf as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_grow_share_pages_and_begin_again_when_all_are_taken() {
        let mut growth = Growth::new(2, 100..103);
        assert_eq!(growth.page_of(0, 0), 100);
        assert_eq!(growth.page_of(1, 0), 101);
        assert_eq!(growth.page_of(0, 1), 102);
        assert_eq!(growth.page_of(0, 0), 100, "a leaf keeps its page");
        assert_eq!(growth.page_of(1, 1), 100);
        assert_eq!((growth.append(1), growth.append(1)), (0, 1));
        assert_eq!((growth.rows(0), growth.rows(1)), (0, 2));
    }
}
