//! The lock of a tree, which searches share and some changes take alone.
//!
//! A search has the lock until it has its first leaf, the wait for its I/O included. A row that finds its leaf full takes the lock
//! alone: it waits for all searches that wait for a page, and those that come meanwhile wait for it. **Purge** ([`super::purge`]) closes
//! the tree first: searches under way go on, later ones wait while it reads. Then it wants the lock alone: those that waited go on with
//! the lock that they have, and purge waits for them, too.
//!
//! **Source:** btr0cur.cc of MariaDB 10.11 (`btr_cur_t::search_leaf`, `btr_cur_need_opposite_intention`, `pessimistic_search_leaf`, which
//! upgrades the index's lock). By the source it is so where less than about 540 B of the leaf are left, or where the row comes behind the
//! last one of a leaf that is not the last; that every full leaf does so is what our server shows: with 16 threads, half reads of a
//! Premium SSD and half inserts (2026-11-28), it did 1,161 and 1,213 operations a second with rows of 4,090 B and 3,610 with rows of
//! 1 KiB, while the disk had a fifth of its IOPS. Simulated are 1,494 and 3,940 so, and 5,398 and 8,289 without the lock; with the second
//! rule alone it was 3,220 and 7,617, before pages that are made were young. MySQL 8 searches once more under the lock that lets searches go on.
//! Purge: `search_leaf` with `BTR_MODIFY_TREE` has the index's lock shared-exclusive and the root's latch alone while it reads, and a search
//! takes the index's lock first and then waits for the root; `mtr_t::index_lock_upgrade` waits for all that have the index's lock. This was
//! read in a stored source later than 10.6, whose release it does not say; 10.11.19's own was not at hand.
//! **Divergence:** the lock is held for no time by a row; a page above the leaves that a split changes stops no search.

use std::collections::VecDeque;

/// Who has the lock of a tree, and who waits for it.
#[derive(Debug, Default)]
pub struct Latch {
    /// Searches that wait for a page.
    searching: u32,
    /// Whether purge has closed the tree.
    closed: bool,
    /// Who wants it alone, and who has come after them, or after the tree was closed.
    alone: VecDeque<u32>,
    behind: VecDeque<u32>,
}

impl Latch {
    /// Whether a search may begin; if not, it waits and looks again.
    pub fn search(&mut self, number: u32) -> bool {
        let waits = self.closed || !self.alone.is_empty();
        if waits {
            self.behind.push_back(number);
        }
        !waits
    }

    /// A search waits for a page.
    pub fn hold(&mut self) {
        self.searching += 1;
    }

    /// A search has its page; returns who goes on, each with whether it has had the lock alone.
    pub fn release(&mut self) -> Vec<(u32, bool)> {
        self.searching -= 1;
        self.ended()
    }

    /// Who goes on if no search is left.
    fn ended(&mut self) -> Vec<(u32, bool)> {
        if self.searching > 0 || self.closed {
            return Vec::new();
        }
        let alone = self.alone.drain(..).map(|number| (number, true));
        let behind = self.behind.drain(..).map(|number| (number, false));
        alone.chain(behind).collect()
    }

    /// Whether a session has the lock alone; if not, it waits and has had it when it goes on.
    pub fn take(&mut self, session: u32) -> bool {
        let waits = self.closed || self.searching > 0;
        if waits {
            self.alone.push_back(session);
        }
        !waits
    }

    /// Closes the tree to searches that have not begun; if another change waits, purge waits behind it and looks again.
    pub fn close(&mut self, purge: u32) -> bool {
        self.closed = self.alone.is_empty();
        if !self.closed {
            self.behind.push_back(purge);
        }
        self.closed
    }

    /// Purge, which has closed the tree, wants it alone. Returns who searches from now on, because it had come before that.
    pub fn upgrade(&mut self, purge: u32) -> Vec<u32> {
        self.closed = false;
        self.alone.push_front(purge);
        self.searching += self.behind.len() as u32;
        self.behind.drain(..).collect()
    }

    /// Who goes on behind an upgrade that has nobody to wait for.
    pub fn upgraded(&mut self) -> Vec<(u32, bool)> {
        self.ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_it_alone_waits_for_searches_and_holds_up_those_that_come() {
        let mut latch = Latch::default();
        assert!(latch.take(1), "nobody searches");
        assert!(latch.search(2));
        latch.hold();
        assert!(latch.search(3));
        latch.hold();
        assert!(!latch.take(4));
        assert!(!latch.search(5));
        assert!(latch.release().is_empty());
        assert_eq!(latch.release(), [(4, true), (5, false)]);
        assert!(latch.search(6));
    }

    #[test]
    fn purge_waits_for_searches_that_came_while_it_read_and_not_for_later_ones() {
        let mut latch = Latch::default();
        assert!(latch.search(1));
        latch.hold();
        assert!(latch.close(9), "a search under way goes on");
        assert!(!latch.search(2), "a later one waits while purge reads");
        assert!(!latch.take(3), "so does a row that finds its leaf full");
        assert!(latch.release().is_empty(), "that search ends meanwhile");
        assert_eq!(latch.upgrade(9), [2], "who has come goes on now");
        assert!(latch.upgraded().is_empty(), "and purge waits for it");
        assert!(!latch.search(4), "a search that begins now waits for purge");
        assert_eq!(latch.release(), [(9, true), (3, true), (4, false)]);
    }

    #[test]
    fn purge_has_a_tree_alone_at_once_where_nobody_searches_and_waits_behind_a_split() {
        let mut latch = Latch::default();
        assert!(latch.close(9));
        assert!(latch.upgrade(9).is_empty());
        assert_eq!(latch.upgraded(), [(9, true)]);
        assert!(latch.search(1));
        latch.hold();
        assert!(!latch.take(2));
        assert!(!latch.close(9));
        assert_eq!(latch.release(), [(2, true), (9, false)]);
        assert!(latch.close(9));
    }
}
