//! InnoDB's change buffer: an entry of a secondary index whose leaf the pool lacks waits in a tree of its own, until somebody reads the leaf.
//!
//! **Source:** ibuf0ibuf.cc of MySQL 5.7 and 8.0 (`ibuf_insert`; `ibuf_merge_in_background`: 5 % of `innodb_io_capacity` pages a second).
//! **Divergence:** its own tree is in the pool; neither its size nor what a leaf has room for ends anything; deletes are not buffered.

use std::collections::{HashSet, VecDeque};

use super::Mariadb;
use crate::database::mariadb::plan::Access;
use crate::job::AccessKind;

/// Of `innodb_io_capacity`, in percent: pages that the master thread reads in a second. **Source:** `PCT_IO(5)`.
const MERGED_PCT: u64 = 5;

/// Leaves with changes that wait, oldest first; one that was read meanwhile is passed over.
#[derive(Debug, Default)]
pub(super) struct ChangeBuffer {
    leaves: HashSet<u32>,
    queue: VecDeque<u32>,
}

impl Mariadb {
    /// Whether the change of an entry goes to the change buffer, and its leaf is not needed.
    pub(super) fn buffers(&mut self, access: &Access, leaf: u32) -> bool {
        let tree = access.tree as usize;
        let is_entry = self.plan.trees[tree].secondary && access.kind == AccessKind::Insert;
        if !is_entry || self.indexes[tree].is_some() || self.reading.contains_key(&leaf) {
            return false;
        }
        let Some(buffer) = self.buffered.as_mut().filter(|_| !self.pool.holds(leaf)) else {
            return false;
        };
        if buffer.leaves.insert(leaf) {
            buffer.queue.push_back(leaf);
        }
        true
    }

    /// Takes a page that was read into the pool, with the changes that waited for it.
    pub(super) fn take_page(&mut self, now: u64, page: u32) {
        self.pool.take(now, page);
        let buffer = self.buffered.as_mut();
        if buffer.is_some_and(|buffer| buffer.leaves.remove(&page)) {
            self.mark(page);
        }
    }

    /// The master thread reads leaves for their changes.
    pub(super) fn merge_round(&mut self, now: u64) {
        let mut left = (self.flushing.io_capacity * MERGED_PCT / 100).max(1);
        while left > 0
            && self.has_free_page()
            && let Some(buffer) = &mut self.buffered
            && let Some(leaf) = buffer.queue.pop_front()
        {
            if buffer.leaves.contains(&leaf) && !self.reading.contains_key(&leaf) {
                self.read_beside(now, leaf);
                left -= 1;
            }
        }
    }
}
