//! Purge of deleted rows: takes them out of their leaves once they are committed, and joins leaves that have become half empty.
//!
//! Once a second purge begins with what was deleted since, and goes on until nothing is left. A row is taken out of its leaf as any
//! change is made, as long as half of the page stays full; the leaf is read again where it has left the pool. Otherwise purge closes
//! the tree to searches ([`super::latch`]), reads the neighbours unless the pool has them, and then has the tree alone: the leaf's rows
//! go to the left neighbour or, if they have no room there, to the right one. The leaf leaves the tree and is not written; both
//! neighbours have changed, which are linked with each other now. If neither has room, the leaf stays. The last row takes its leaf along.
//!
//! **Source:** MariaDB 10.11: srv0srv.cc (`srv_master_callback`, `purge_coordinator_state::do_purge`), trx0purge.cc
//! (`trx_purge_attach_undo_recs`: in a batch one thread has all rows of a table), row0purge.cc (`row_purge_remove_clust_if_poss_low`:
//! `BTR_MODIFY_LEAF`, then `BTR_PURGE_TREE`), btr0cur.cc (`btr_cur_can_delete_without_compress`; `btr_cur_t::search_leaf`, which latches both
//! neighbours; `btr_cur_pessimistic_delete`), btr0btr.cc (`btr_compress`, `btr_can_merge_with_page`, `btr_discard_page`,
//! `btr_level_list_remove`); a freed page is not written (`buf_page_t::flush`). MySQL 8 keeps the root latched shared-exclusive
//! (`btr_cur_search_to_nth_level`), so that searches go on; its master thread wakes purge once a second, too
//! (`srv_master_do_active_tasks`). Our server (10.11.19, 2026-11-28): while 300 rows of 1 KiB a second were deleted, the count of purged ones
//! grew by 300 once a second. **Divergence:** older snapshots hold nothing up and purge takes no CPU; pages of undo that it reads are in
//! the pool, and those above the leaves that it changes are not written; of secondary indexes it works on [`super::splits`] alone;
//! rows that were added behind the last one stay; tables are purged side by side, however many.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::job::MariadbJob;
use super::leaves::PAGE_BYTES;
use super::leaves::PAGE_ROOM;
use super::plan::{Plan, Tree};
use super::{Mariadb, Session};
use crate::job::AccessKind;
use crate::tail::Stretch;

/// Numbers from which on a number is not a session's, but that of the purge of a tree.
pub(super) const FIRST: u32 = 1 << 27;

/// Bytes below which a leaf is joined. **Source:** `BTR_CUR_PAGE_COMPRESS_LIMIT`, `DICT_INDEX_MERGE_THRESHOLD_DEFAULT`: 50 %.
const LEAST_BYTES: u64 = PAGE_BYTES / 2;

/// The leaves of a tree, from left to right, and how many rows they have.
#[derive(Debug)]
struct Level {
    tree: Tree,
    row_bytes: u64,
    first: u32,
    last: u32,
    /// Rows of leaves that have lost or got some.
    rows: HashMap<u32, u64>,
    /// Leaves that are gone, and where their rows are; neighbours of those that were beside them.
    joined: HashMap<u32, u32>,
    left: HashMap<u32, Option<u32>>,
    right: HashMap<u32, Option<u32>>,
}

/// What became of a leaf.
#[derive(Debug, Default, PartialEq, Eq)]
struct Removal {
    /// Pages that have changed.
    changed: Vec<u32>,
    /// The leaf, if it is gone.
    freed: Option<u32>,
    /// Rows that have gone to a neighbour.
    moved: u64,
}

impl Level {
    fn new(tree: &Tree, row_bytes: u64) -> Level {
        Level {
            tree: tree.clone(),
            row_bytes: row_bytes.max(1),
            first: tree.leaf_of(0),
            last: tree.leaf_of(tree.rows - 1),
            rows: HashMap::new(),
            joined: HashMap::new(),
            left: HashMap::new(),
            right: HashMap::new(),
        }
    }

    /// Where the rows of a leaf are.
    fn page_of(&mut self, leaf: u32) -> u32 {
        let mut page = leaf;
        while let Some(&next) = self.joined.get(&page) {
            page = next;
        }
        if page != leaf {
            self.joined.insert(leaf, page);
        }
        page
    }

    fn rows_of(&self, leaf: u32) -> u64 {
        let rows = self.rows.get(&leaf).copied();
        rows.unwrap_or_else(|| self.tree.rows_of(leaf))
    }

    /// The leaves on both sides.
    fn beside(&self, leaf: u32) -> [Option<u32>; 2] {
        let before = (leaf > self.first).then(|| leaf - 1);
        let behind = (leaf < self.last).then(|| leaf + 1);
        [
            self.left.get(&leaf).copied().unwrap_or(before),
            self.right.get(&leaf).copied().unwrap_or(behind),
        ]
    }

    /// Takes a row out of a leaf, if that stays half full, or is the only one.
    fn remove(&mut self, leaf: u32) -> bool {
        let rows = self.rows_of(leaf);
        let is_enough = rows >= 2 && (rows - 1) * self.row_bytes >= LEAST_BYTES;
        let fits = is_enough || self.beside(leaf) == [None, None];
        if fits {
            self.rows.insert(leaf, rows.saturating_sub(1));
        }
        fits
    }

    /// Takes a row out of a leaf and joins that with a neighbour, if one has room.
    fn join(&mut self, leaf: u32) -> Removal {
        let beside = self.beside(leaf);
        let rows = self.rows_of(leaf).saturating_sub(1);
        let has_room = |page: &u32| (self.rows_of(*page) + rows) * self.row_bytes <= PAGE_ROOM;
        let neighbours = beside.into_iter().flatten();
        let Some(page) = neighbours.clone().find(|page| rows == 0 || has_room(page)) else {
            self.rows.insert(leaf, rows);
            return Removal {
                changed: vec![leaf],
                ..Removal::default()
            };
        };
        self.rows.insert(page, self.rows_of(page) + rows);
        self.rows.remove(&leaf);
        self.joined.insert(leaf, page);
        let [left, right] = beside;
        if let Some(left) = left {
            self.right.insert(left, right);
        }
        if let Some(right) = right {
            self.left.insert(right, left);
        }
        Removal {
            changed: neighbours.collect(),
            freed: Some(leaf),
            moved: rows,
        }
    }
}

/// How far purge is with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It searches the row's leaf; whether it has the tree's lock meanwhile.
    Search(bool),
    /// It reads the leaf's neighbours; whether it has closed the tree.
    Neighbours(bool),
}

/// The purge of a tree.
#[derive(Debug)]
struct Purger {
    level: Level,
    /// Rows that were deleted and not added again since, with whether they are purged; those that are not, oldest first.
    gone: HashMap<u64, bool>,
    queue: VecDeque<u64>,
    /// The row at hand, and the page that is read for it.
    at: Option<(u64, Step)>,
    reads: Option<u32>,
}

/// By tree: its purge; none: no row of it is deleted.
#[derive(Debug)]
pub(super) struct Purge(Vec<Option<Purger>>);

impl Purge {
    /// None: nothing is deleted from any tree of rows.
    pub fn new(plan: &Plan, job: &MariadbJob) -> Option<Box<Purge>> {
        let deletes = |number: usize| {
            let of_tree = |access: &&super::Access| access.tree as usize == number;
            let mut accesses = plan.accesses.iter().filter(of_tree);
            accesses.any(|access| access.kind == AccessKind::Delete)
        };
        let numbered = plan.trees.iter().zip(&job.tables).enumerate();
        let purgers = numbered.map(|(number, (tree, table))| {
            (!tree.secondary && deletes(number)).then(|| Purger {
                level: Level::new(tree, u64::from(table.row_bytes)),
                gone: HashMap::new(),
                queue: VecDeque::new(),
                at: None,
                reads: None,
            })
        });
        let purgers: Vec<Option<Purger>> = purgers.collect();
        purgers
            .iter()
            .any(Option::is_some)
            .then(|| Box::new(Purge(purgers)))
    }

    /// Where the rows of a tree's leaf are.
    pub fn page_of(&mut self, tree: u32, leaf: u32) -> u32 {
        match &mut self.0[tree as usize] {
            Some(purger) => purger.level.page_of(leaf),
            None => leaf,
        }
    }

    /// Notes a change that a session has made: a row that it adds again is not purged.
    pub fn note(&mut self, session: &mut Session, tree: u32, kind: AccessKind) {
        let row = session.at.number;
        let Some(purger) = &mut self.0[tree as usize] else {
            return;
        };
        match kind {
            AccessKind::Delete if row < purger.level.tree.rows => {
                session.deleted.push((tree, row));
            }
            AccessKind::Insert => {
                session.deleted.retain(|&deleted| deleted != (tree, row));
                if purger.gone.remove(&row) == Some(true) {
                    let leaf = purger.level.tree.leaf_of(row);
                    let leaf = purger.level.page_of(leaf);
                    let rows = purger.level.rows_of(leaf);
                    purger.level.rows.insert(leaf, rows + 1);
                }
            }
            _ => {}
        }
    }

    /// The server has ended: what purge was at is for the next life.
    pub fn is_gone(&mut self) {
        for purger in self.0.iter_mut().flatten() {
            if let Some((row, _)) = purger.at.take() {
                purger.queue.push_front(row);
            }
        }
    }

    fn of(&mut self, number: u32) -> &mut Purger {
        let purger = self.0[(number - FIRST) as usize].as_mut();
        purger.expect("rows of the tree are deleted")
    }
}

impl Mariadb {
    fn purger(&mut self, number: u32) -> &mut Purger {
        let purge = self.purge.as_mut().expect("rows are deleted");
        purge.of(number)
    }

    /// A session has committed: rows that it has deleted are purged from now on.
    pub(super) fn purge_committed(&mut self, session: u32) {
        for (tree, row) in std::mem::take(&mut self.sessions[session as usize].deleted) {
            let purger = self.purger(FIRST + tree);
            if let Entry::Vacant(entry) = purger.gone.entry(row) {
                entry.insert(false);
                purger.queue.push_back(row);
            }
        }
    }

    /// Purge begins with what was deleted since it last had nothing left.
    pub(super) fn purge_round(&mut self, now: u64) {
        for (tree, number) in (FIRST..).enumerate().take(self.plan.trees.len()) {
            let purger = self.purge.as_ref().and_then(|purge| purge.0[tree].as_ref());
            if purger.is_some_and(|purger| purger.at.is_none()) {
                self.purge_on(now, number);
            }
        }
    }

    /// Purges rows until a page, or the tree, has to be waited for.
    pub(super) fn purge_on(&mut self, now: u64, number: u32) {
        while self.is_up() {
            let purger = self.purger(number);
            let at = purger.at.take();
            let next = || Some((purger.queue.pop_front()?, Step::Search(false)));
            let Some((row, step)) = at.or_else(next) else {
                return;
            };
            purger.at = Some((row, step));
            let leaf = purger.level.tree.leaf_of(row);
            let leaf = purger.level.page_of(leaf);
            let goes_on = match step {
                Step::Search(holds) => self.purge_from_leaf(now, number, (row, leaf), holds),
                Step::Neighbours(closed) => self.purge_from_tree(now, number, (row, leaf), closed),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Whether a page is in the pool; if not, purge waits for it.
    fn purge_has_page(&mut self, now: u64, number: u32, page: u32) -> bool {
        self.purger(number).reads = Some(page);
        self.has_page(now, number, page)
    }

    /// The page that purge reads.
    pub(super) fn purge_reads(&mut self, number: u32) -> u32 {
        self.purger(number).reads.expect("it reads a page")
    }

    /// Takes a row out of its leaf as any change is made; returns whether purge goes on at once.
    fn purge_from_leaf(
        &mut self,
        now: u64,
        number: u32,
        (row, leaf): (u64, u32),
        holds: bool,
    ) -> bool {
        let tree = (number - FIRST) as usize;
        let locks = self.rules.locks_trees;
        if locks && !holds {
            if !self.latches[tree].search(number) {
                return false;
            }
            self.purger(number).at = Some((row, Step::Search(true)));
            self.latches[tree].hold();
        }
        if !self.purge_has_page(now, number, leaf) {
            return false;
        }
        let purger = self.purger(number);
        let is_left = purger.gone.get(&row) == Some(&false);
        let is_removed = is_left && purger.level.remove(leaf);
        purger.at = (is_left && !is_removed).then_some((row, Step::Neighbours(false)));
        if is_removed {
            purger.gone.insert(row, true);
            self.mark(leaf);
            self.redo.end += self.rules.parameters.redo_row_bytes;
        }
        if locks {
            let others = self.latches[tree].release();
            self.go_on(now, others);
        }
        true
    }

    /// Reads the neighbours of a leaf, and then wants the tree alone; returns whether purge goes on at once.
    fn purge_from_tree(
        &mut self,
        now: u64,
        number: u32,
        (row, leaf): (u64, u32),
        closed: bool,
    ) -> bool {
        let tree = (number - FIRST) as usize;
        let locks = self.rules.locks_trees;
        if locks && !closed && !self.latches[tree].close(number) {
            return false;
        }
        self.purger(number).at = Some((row, Step::Neighbours(locks)));
        let [left, right] = self.purger(number).level.beside(leaf);
        for page in [Some(leaf), left, right].into_iter().flatten() {
            if !self.purge_has_page(now, number, page) {
                return false;
            }
        }
        if !locks {
            self.purge_alone(number);
            return true;
        }
        for session in self.latches[tree].upgrade(number) {
            self.sessions[session as usize].holds = true;
            self.clients.spend(now, session, Stretch::Held);
            self.read_on(now, session);
        }
        let others = self.latches[tree].upgraded();
        self.go_on(now, others);
        false
    }

    /// Purge has the tree alone: the row leaves its leaf, and the leaf perhaps the tree.
    pub(super) fn purge_alone(&mut self, number: u32) {
        let purger = self.purger(number);
        let (row, _) = purger.at.take().expect("it has a row");
        if purger.gone.get(&row) != Some(&false) {
            return;
        }
        purger.gone.insert(row, true);
        let leaf = purger.level.tree.leaf_of(row);
        let leaf = purger.level.page_of(leaf);
        let removal = purger.level.join(leaf);
        let moved_bytes = removal.moved * purger.level.row_bytes;
        for page in removal.changed {
            self.mark(page);
        }
        if let Some(page) = removal.freed {
            self.drop_change(page);
        }
        self.redo.end += self.rules.parameters.redo_row_bytes + moved_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Laying, trees};
    use super::*;
    use crate::job::Relation;

    /// Five leaves that one session has filled.
    fn level(row_bytes: u32, rows: u64) -> Level {
        let table = Relation {
            name: "rows".to_owned(),
            rows,
            row_bytes,
            entry_bytes: 8,
            sizes: None,
            fill_sessions: 1,
            ends: 0,
            built_full: false,
        };
        let (trees, _, pages) = trees(&[table], Laying::default());
        assert_eq!(pages, 5);
        Level::new(&trees[0], u64::from(row_bytes))
    }

    fn take(level: &mut Level, leaf: u32, rows: u32) {
        assert!((0..rows).all(|_| level.remove(leaf)), "half stays full");
    }

    #[test]
    fn a_leaf_that_is_less_than_half_full_goes_to_a_neighbour_with_room() {
        // 14 rows to a leaf, 15 have room, and eight fill half.
        let mut level = level(1_061, 70);
        take(&mut level, 2, 6);
        assert!(!level.remove(2), "seven rows are less than half");
        let stays = Removal {
            changed: vec![2],
            ..Removal::default()
        };
        assert_eq!(level.join(2), stays, "both neighbours have 14 rows");
        take(&mut level, 3, 6);
        let joined = Removal {
            changed: vec![1, 3],
            freed: Some(2),
            moved: 6,
        };
        assert_eq!(level.join(2), joined, "the right one has eight");
        assert_eq!((level.page_of(2), level.page_of(1)), (3, 1));
        assert_eq!(level.rows_of(3), 14);
        assert_eq!(level.beside(1), [Some(0), Some(3)]);
        assert_eq!(level.beside(3), [Some(1), Some(4)]);
        let rows: u64 = [0, 1, 3, 4].map(|leaf| level.rows_of(leaf)).iter().sum();
        assert_eq!(rows, 70 - 14, "none is lost");
    }

    #[test]
    fn the_last_row_of_a_leaf_takes_the_leaf_along_though_both_neighbours_are_full() {
        // Three rows to a leaf.
        let mut level = level(4_126, 13);
        assert_eq!(level.rows_of(4), 1);
        let gone = Removal {
            changed: vec![3],
            freed: Some(4),
            moved: 0,
        };
        assert!(!level.remove(4));
        assert_eq!(level.join(4), gone);
        assert_eq!((level.page_of(4), level.beside(3)), (3, [Some(2), None]));
    }

    #[test]
    fn the_only_leaf_of_a_tree_is_never_joined() {
        let mut level = level(4_126, 13);
        for leaf in [4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0] {
            let page = level.page_of(leaf);
            if !level.remove(page) {
                level.join(page);
            }
        }
        let page = level.page_of(4);
        assert_eq!((level.beside(page), level.rows_of(page)), ([None, None], 1));
        assert!(level.remove(page), "the root stays");
        assert_eq!(level.rows_of(page), 0);
    }
}
