//! A job's trees and transactions, laid out: leaves of 16 KiB, rows in those of the primary key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::job::MariadbJob;
use crate::database::mariadb::leaves::{Leaves, PAGE_BYTES, PAGE_ROOM};
use crate::database::mariadb::splits::{Index, room_of};
use crate::database::transactions::Script;
use crate::job::{AccessKind, Keys, Relation, RowDraw, Statement};

/// Bytes of a leaf that records have: header, directory and trailer taken off, and the sixteenth that inserts in order
/// leave free. **Source:** page0page.h; `BTR_CUR_PAGE_REORGANIZE_LIMIT`; our server had 73.0 of sysbench's rows of 208 B in a leaf.
const LEAF_BYTES: u64 = PAGE_ROOM * 15 / 16;

/// Pages of undo that transactions write to in turn: headers of rollback segments, and a page of each.
/// **Source:** `TRX_SYS_N_RSEGS` of trx0sys.h, 128.
pub const UNDO_PAGES: u64 = 2 * 128;

/// Rows after which the pattern of added ones begins again.
const ADDED_ROWS: u64 = 1 << 14;

/// Sessions that add rows at once, at most: as many as have been compared with our server ([`super::leaves`]).
const MOST_SESSIONS: u32 = 32;

/// Redo log of the rows that go to a new page when a later row comes before them. **Source:** our server (10.11.19, 2026-11-28): 16
/// connections wrote 51, 426 and 929 B more for each row of 200 B, 1 KiB and 4,090 B than one did, which is 2.1, 4.2 and 2.2 kB a split.
const SPLIT_REDO_BYTES: u64 = 2_800;

/// Pages that trees grow by, behind which added rows go to the first of them again: a quarter of what is there, or 4 GiB.
const GROWTH_SHARE: u64 = 4;
const LEAST_GROWTH: u64 = 1 << 18;

/// Where a tree lies. Pages above its leaves are few and always in the pool.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Rows, or entries.
    pub rows: u64,
    /// Whether it is a secondary index.
    pub secondary: bool,
    /// Places at which rows are added.
    pub ends: u64,
    per_leaf: u64,
    /// Where several sessions have filled it; none: its leaves are full.
    leaves: Option<Arc<Leaves>>,
    first: u64,
    /// Of an index whose full leaves split: bytes of an entry, and pages for new leaves.
    splits: Option<(u64, Range<u64>)>,
    /// Leaves of rows that are added behind the last one; none: rows are added to pages that are there.
    added: Option<Arc<Leaves>>,
}

impl Tree {
    /// Its leaves, if they split.
    pub fn index(&self) -> Option<Index> {
        let (entry_bytes, spare) = self.splits.clone()?;
        Some(Index::new(self.rows, entry_bytes, self.first, spare))
    }

    /// Which of the leaves behind the last one a row is in that was added, counted from the first of them; none: it was not.
    #[inline]
    pub fn added_leaf(&self, row: u64) -> Option<u64> {
        let number = row.checked_sub(self.rows)?;
        Some(self.added.as_ref()?.of(number))
    }

    /// Whether a row that is added behind the last one takes the tree's lock alone.
    #[inline]
    pub fn splits_at(&self, row: u64) -> bool {
        let number = row.checked_sub(self.rows);
        let added = self.added.as_ref();
        number.is_some_and(|number| added.is_some_and(|leaves| leaves.split(number)))
    }

    /// Rows in so many leaves, on average.
    pub fn rows_in(&self, leaves: u64) -> u64 {
        match &self.leaves {
            Some(filled) => filled.rows_in(leaves),
            None => leaves * self.per_leaf,
        }
    }

    /// How many rows a leaf has at the start.
    pub fn rows_of(&self, leaf: u32) -> u64 {
        let number = u64::from(leaf) - self.first;
        let rows = match &self.leaves {
            Some(filled) => filled.rows_of(number),
            None => number * self.per_leaf..(number + 1) * self.per_leaf,
        };
        rows.end.min(self.rows).saturating_sub(rows.start)
    }

    /// Whether rows are added behind the last one.
    pub fn grows(&self) -> bool {
        self.added.is_some()
    }

    /// The leaf of a row, as long as none has split.
    #[inline]
    pub fn leaf_of(&self, row: u64) -> u32 {
        let leaf = match &self.leaves {
            Some(leaves) => leaves.of(row),
            None => row / self.per_leaf,
        };
        (self.first + leaf) as u32
    }

    /// The leaf before that of a row, where the search for the row goes through it: the row is the first of its leaf.
    ///
    /// **Source:** `btr_cur_search_to_nth_level` of MariaDB 10.11: a search for a key or the next one (`PAGE_CUR_GE`, which a key
    /// alone is, too) goes down by the last pointer below the key, and from there to the next leaf. Our server asked for 3.35
    /// pages a row of 4,090 B, 2.9 of which fit a leaf below two levels (2026-11-28).
    #[inline]
    pub fn leaf_before(&self, row: u64) -> Option<u32> {
        let before = self.leaf_of(row.checked_sub(1)?);
        (before != self.leaf_of(row)).then_some(before)
    }
}

/// An access of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which tree.
    pub tree: u32,
    /// What is done.
    pub kind: AccessKind,
    /// With how many rows.
    pub rows: u32,
    /// Which ones.
    pub draw: RowDraw,
    /// Bytes of a row that change, in the redo log: as they are, and in an update as they were, which is the redo of undo.
    /// **Source:** our server wrote 2,079 B of redo for an update of 1,004 B (2026-11-27, 180,000 of them).
    pub redo_bytes: u64,
    /// Bytes of it in the binary log.
    pub logged_bytes: u64,
}

impl Access {
    /// Whether it changes its rows; a lock is in memory alone.
    pub fn changes(&self) -> bool {
        !matches!(self.kind, AccessKind::Read | AccessKind::Lock)
    }
}

/// Everything that does not change during a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All trees.
    pub trees: Vec<Tree>,
    /// All accesses.
    pub accesses: Vec<Access>,
    /// Whether anything is written.
    pub writes: bool,
    /// Pages of all trees at the start, with those that leaves may split into, and with those that trees grow by; those of undo
    /// lie behind them.
    pub filled_pages: u64,
    pub laid_pages: u64,
    pub pages: u64,
    /// Redo of a page that a tree grows by.
    pub split_redo_bytes: u64,
}

/// How trees come to lie as they do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Laying {
    /// As if one session had filled each.
    pub in_order: bool,
    /// Without splits of full leaves.
    pub never_splits: bool,
}

/// Where trees lie one after the other, how many pages they take, and how many with those that leaves may split into.
pub fn trees(tables: &[Relation], laying: Laying) -> (Vec<Tree>, u64, u64) {
    let mut pages = 0;
    let mut trees: Vec<Tree> = Vec::new();
    for table in tables {
        let rows = table.rows.max(1);
        let bytes = u64::from(match table.row_bytes {
            0 => table.entry_bytes,
            bytes => bytes,
        });
        let splits = table.built_full && !laying.never_splits;
        let per_leaf = if splits {
            room_of(bytes)
        } else {
            (LEAF_BYTES / bytes.max(1)).max(1)
        };
        let sessions = if laying.in_order {
            1
        } else {
            table.fill_sessions
        };
        let leaves = (sessions > 1).then(|| Arc::new(Leaves::new(rows, bytes, sessions)));
        let tree = Tree {
            rows,
            secondary: table.row_bytes == 0,
            ends: u64::from(table.ends.max(1)).min(rows),
            per_leaf,
            leaves,
            first: pages,
            splits: splits.then_some((bytes, 0..0)),
            added: None,
        };
        pages = u64::from(tree.leaf_of(rows - 1)) + 1;
        trees.push(tree);
    }
    let filled = pages;
    for tree in &mut trees {
        if let Some((_, spare)) = &mut tree.splits {
            // Each leaf may become two.
            *spare = pages..pages + tree.rows.div_ceil(tree.per_leaf);
            pages = spare.end;
        }
    }
    (trees, filled, pages)
}

impl Plan {
    /// The plan of a checked job, and what its clients send.
    pub fn new(job: &MariadbJob, laying: Laying) -> (Plan, Script) {
        let (trees, filled_pages, laid_pages) = trees(&job.tables, laying);
        let numbers = job.tables.iter().map(|table| table.name.as_str()).zip(0..);
        let numbers: BTreeMap<&str, u32> = numbers.collect();
        let mut plan = Plan {
            trees,
            accesses: Vec::new(),
            writes: false,
            filled_pages,
            laid_pages,
            pages: laid_pages,
            split_redo_bytes: 0,
        };
        let script = Script::new(&job.workload.transactions, |statement| {
            plan.lay_out(statement, &numbers, job)
        });
        plan.grow(job, &numbers);
        (plan, script)
    }

    /// Has trees grow that get rows behind their last one, and not where their transaction has deleted one. Several sessions add them, in
    /// about the order of their keys.
    fn grow(&mut self, job: &MariadbJob, numbers: &BTreeMap<&str, u32>) {
        let work = &job.workload;
        let sessions = work.load.most_under_way().min(MOST_SESSIONS);
        for transaction in &work.transactions {
            let accesses = || {
                transaction
                    .statements
                    .iter()
                    .flat_map(|each| &each.accesses)
            };
            for access in accesses().filter(|access| access.kind == AccessKind::Insert) {
                let number = numbers[access.table.as_str()] as usize;
                let tree = &mut self.trees[number];
                let comes_last = match access.draw {
                    RowDraw::Recent => false,
                    RowDraw::Keys => work.keys == Keys::Latest,
                    _ => tree.ends == 1,
                };
                let is_freed = accesses()
                    .any(|other| other.kind == AccessKind::Delete && other.table == access.table);
                if comes_last && !is_freed && !tree.secondary && tree.added.is_none() {
                    let bytes = u64::from(job.tables[number].row_bytes);
                    tree.added = Some(Arc::new(Leaves::new(ADDED_ROWS, bytes, sessions)));
                    self.split_redo_bytes = if sessions > 1 { SPLIT_REDO_BYTES } else { 0 };
                }
            }
        }
        if self.trees.iter().any(Tree::grows) {
            let room = job.cluster.data_volume_bytes() / PAGE_BYTES;
            let growth = (self.laid_pages / GROWTH_SHARE).max(LEAST_GROWTH);
            // Undo, copies and logs may be on the same volume.
            self.pages += growth.min(room.saturating_sub(self.laid_pages) / 2).max(1);
        }
    }

    /// What a statement touches, and its CPU before its rows.
    fn lay_out(
        &mut self,
        statement: &Statement,
        numbers: &BTreeMap<&str, u32>,
        job: &MariadbJob,
    ) -> (Range<u32>, u64) {
        let from = self.accesses.len() as u32;
        let (mut read, mut further, mut changed) = (0, 0, 0);
        for access in &statement.accesses {
            let tree = numbers[access.table.as_str()];
            let table = &job.tables[tree as usize];
            let rows = access.rows.max(1);
            read += 1;
            further += u64::from(rows - 1);
            let whole = table.row_bytes.max(table.entry_bytes);
            let bytes = u64::from(access.written_bytes.unwrap_or(whole));
            let logged_bytes = if job.database.binlog_rows {
                // The row before and the row after; entries of secondary indexes are not logged.
                let images = match access.kind {
                    AccessKind::Update => 2,
                    _ => 1,
                };
                images * u64::from(table.row_bytes)
            } else {
                bytes
            };
            let redo_bytes = match access.kind {
                AccessKind::Update => 2 * bytes,
                // It is marked, and undo has its key.
                AccessKind::Delete => 0,
                AccessKind::Read | AccessKind::Lock | AccessKind::Insert => bytes,
            };
            let access = Access {
                tree,
                kind: access.kind,
                rows,
                draw: access.draw,
                redo_bytes,
                logged_bytes,
            };
            if access.changes() {
                changed += u64::from(rows);
                self.writes = true;
            }
            self.accesses.push(access);
        }
        let parameters = &job.parameters;
        let cpu_ns = parameters.statement_cpu_ns
            + read * parameters.row_read_cpu_ns
            + further * parameters.scan_row_cpu_ns
            + changed * parameters.row_write_cpu_ns;
        (from..self.accesses.len() as u32, cpu_ns)
    }
}
