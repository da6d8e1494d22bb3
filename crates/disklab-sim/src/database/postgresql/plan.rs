//! A job's relations and transactions, laid out: rows in pages of 8 KiB, index leaves behind them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::job::PostgresqlJob;
use crate::database::postgresql::files::FILE_BYTES;
use crate::database::postgresql::fillorder::FillOrder;
use crate::database::postgresql::packing::{PAGE_BYTES, Packing, ROOM_BYTES};
use crate::database::transactions::Script;
use crate::job::{AccessKind, Relation, RowDraw, Statement};

/// Bytes of a leaf that entries have: a header, a special space of 16 bytes, and a tenth that stays free.
/// **Source:** nbtree.h, `BTREE_DEFAULT_FILLFACTOR`: 90.
const LEAF_BYTES: u64 = (PAGE_BYTES - 24 - 16) * 9 / 10;

/// Room for rows that are added or move, as a share of the relations.
const GROWTH_SHARE: u64 = 8;
/// And at least so many pages: 128 MiB.
const LEAST_GROWTH: u64 = 16_384;

/// Where a relation's rows and index entries lie, in pages.
///
/// The pages of the index above its leaves are few and always in a buffer: a leaf holds some three hundred entries.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Rows, at least one.
    pub rows: u64,
    /// Rows of a page; zero: it is an index alone.
    per_page: u64,
    first_page: u64,
    per_leaf: u64,
    first_leaf: u64,
    /// The file that new pages of rows go to.
    pub last_file: u32,
    /// Bytes of a row, on average.
    pub row_bytes: u64,
    /// Bytes of an entry.
    pub entry_bytes: u64,
    /// Where rows of several sizes lie.
    packing: Option<Arc<Packing>>,
    /// In which order rows of one size lie, where several sessions wrote them.
    order: Option<Arc<FillOrder>>,
}

impl Layout {
    /// Rows of a page; zero: it is an index alone.
    pub fn per_page(&self) -> u64 {
        self.per_page
    }

    /// The page of a row after the fill.
    #[inline]
    pub fn page_of(&self, row: u64) -> Option<u32> {
        let page = || match &self.packing {
            None => {
                let place = match &self.order {
                    Some(order) => order.place(row, self.rows),
                    None => row,
                };
                place / self.per_page
            }
            Some(packing) => packing.page_of(row),
        };
        (self.per_page > 0).then(|| (self.first_page + page()) as u32)
    }

    /// Bytes of a row.
    #[inline]
    pub fn bytes_of(&self, row: u64) -> u64 {
        match &self.packing {
            None => self.row_bytes,
            Some(packing) => packing.bytes_of(row),
        }
    }

    /// Bytes that a fill leaves free in a page of rows.
    pub fn free_of(&self, page: u32) -> u16 {
        match &self.packing {
            None => (ROOM_BYTES - (self.per_page * self.row_bytes).min(ROOM_BYTES)) as u16,
            Some(packing) => packing.free_of(u64::from(page) - self.first_page),
        }
    }

    /// The leaf with the entry of a row.
    #[inline]
    pub fn leaf_of(&self, row: u64) -> u32 {
        (self.first_leaf + row / self.per_leaf) as u32
    }

    /// Bytes of the log for the image of a page of rows, and for that of a leaf: the hole in it is left out.
    pub fn image_bytes(&self) -> (u64, u64) {
        let filled = match &self.packing {
            None => self.per_page * self.row_bytes,
            Some(packing) => packing.filled_bytes(),
        };
        (
            PAGE_BYTES - ROOM_BYTES + filled,
            PAGE_BYTES - ROOM_BYTES + self.per_leaf * self.entry_bytes,
        )
    }
}

/// An access of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The relation.
    pub relation: u32,
    /// What is done.
    pub kind: AccessKind,
    /// With how many rows, one after the other.
    pub rows: u32,
    /// Which ones.
    pub draw: RowDraw,
    /// Bytes of a row that come into the log.
    pub log_bytes: u64,
    /// Whether its statement changes a column that an index has, so that each index gets an entry.
    pub indexed: bool,
}

/// Everything that does not change during a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All relations.
    pub relations: Vec<Layout>,
    /// All accesses.
    pub accesses: Vec<Access>,
    /// Whether anything is written.
    pub writes: bool,
    /// Pages of all relations.
    pub pages: u64,
    /// Pages behind them, for rows that are added or move.
    pub growth: u64,
    /// The first page of each file, in order.
    pub file_starts: Vec<u64>,
}

impl Plan {
    /// The plan of a checked job and what its clients send, in a run that is `scale` times smaller, and its files with it.
    /// `by_key`: rows lie in the order of their keys, not in that of the sessions that wrote them.
    pub fn new(job: &PostgresqlJob, scale: u64, by_key: bool) -> (Plan, Script) {
        let (mut relations, pages) = layouts(&job.tables);
        if by_key {
            relations
                .iter_mut()
                .for_each(|relation| relation.order = None);
        }
        let room = job.cluster.data_volume_bytes() / PAGE_BYTES;
        let growth = (pages / GROWTH_SHARE).max(LEAST_GROWTH);
        let mut plan = Plan {
            relations,
            accesses: Vec::new(),
            writes: false,
            pages,
            growth: growth.min(room.saturating_sub(pages)).max(1),
            file_starts: Vec::new(),
        };
        plan.add_files((FILE_BYTES / PAGE_BYTES / scale).max(1));
        let numbers = job.tables.iter().map(|table| table.name.as_str()).zip(0..);
        let numbers: BTreeMap<&str, u32> = numbers.collect();
        let script = Script::new(&job.workload.transactions, |statement| {
            plan.lay_out(statement, &numbers, job)
        });
        (plan, script)
    }

    /// Files of so many pages each, those of rows and those of an index apart.
    fn add_files(&mut self, pages: u64) {
        let starts = self
            .relations
            .iter()
            .flat_map(|r| [r.first_page, r.first_leaf]);
        let mut starts: Vec<u64> = starts.chain([self.pages]).collect();
        starts.dedup();
        for ends in starts.windows(2) {
            let mut at = ends[0];
            while at < ends[1] {
                self.file_starts.push(at);
                at += pages;
            }
        }
        for at in 0..self.relations.len() {
            let last = self.relations[at].first_leaf.max(1) - 1;
            self.relations[at].last_file = self.file_of(last as u32) as u32;
        }
    }

    /// The file of a page that the fill has written.
    #[inline]
    pub fn file_of(&self, page: u32) -> usize {
        self.file_starts
            .partition_point(|&start| start <= u64::from(page))
            - 1
    }

    /// The number, first page and end of what a backend has opened to read a page of a file. Pages behind the fill lie
    /// together, whichever file they belong to.
    pub fn bounds(&self, file: usize, page: u32) -> (usize, u64, u64) {
        if u64::from(page) >= self.pages {
            return (usize::MAX, self.pages, self.pages + self.growth);
        }
        let end = self.file_starts.get(file + 1).copied();
        (file, self.file_starts[file], end.unwrap_or(self.pages))
    }

    /// What a statement touches, and its CPU before its rows.
    fn lay_out(
        &mut self,
        statement: &Statement,
        numbers: &BTreeMap<&str, u32>,
        job: &PostgresqlJob,
    ) -> (Range<u32>, u64) {
        let from = self.accesses.len() as u32;
        let (mut read, mut further, mut changed) = (0, 0, 0);
        let mut indexed = false;
        for access in &statement.accesses {
            let relation = numbers[access.table.as_str()];
            let table = &job.tables[relation as usize];
            let rows = access.rows.max(1);
            let whole = table.row_bytes.max(table.entry_bytes);
            let writes = access.kind != AccessKind::Read;
            if access.kind != AccessKind::Insert {
                // Of a run the first row is found, the others follow it in the index.
                let runs = matches!(access.draw, RowDraw::Run | RowDraw::PreferredRun { .. });
                let found = if runs { 1 } else { rows };
                read += u64::from(found);
                further += u64::from(rows - found);
            }
            if writes {
                changed += u64::from(rows);
            }
            indexed |= table.row_bytes == 0 && writes;
            self.writes |= writes;
            self.accesses.push(Access {
                relation,
                kind: access.kind,
                rows,
                draw: access.draw,
                log_bytes: u64::from(access.written_bytes.unwrap_or(whole)),
                indexed: false,
            });
        }
        for access in &mut self.accesses[from as usize..] {
            access.indexed = indexed;
        }
        let parameters = &job.parameters;
        let cpu_ns = parameters.statement_cpu_ns
            + read * parameters.row_read_cpu_ns
            + further * parameters.scan_row_cpu_ns
            + changed * parameters.row_write_cpu_ns;
        (from..self.accesses.len() as u32, cpu_ns)
    }
}

/// Where relations lie one after the other, and how many pages they take.
pub fn layouts(tables: &[Relation]) -> (Vec<Layout>, u64) {
    let mut pages = 0;
    let layouts = tables.iter().map(|table| {
        let rows = table.rows.max(1);
        let row_bytes = u64::from(table.row_bytes);
        let per_page = match row_bytes {
            0 => 0,
            bytes => (ROOM_BYTES / bytes).max(1),
        };
        let entry_bytes = u64::from(table.entry_bytes.max(1));
        let per_leaf = (LEAF_BYTES / entry_bytes).max(1);
        let packing = table.sizes.as_deref().map(Packing::new).map(Arc::new);
        let heap = match &packing {
            Some(packing) => packing.pages(rows),
            None if per_page > 0 => rows.div_ceil(per_page),
            None => 0,
        };
        let layout = Layout {
            rows,
            per_page,
            first_page: pages,
            per_leaf,
            first_leaf: pages + heap,
            last_file: 0,
            row_bytes,
            entry_bytes,
            order: (per_page > 0 && packing.is_none() && table.fill_sessions > 1)
                .then(|| Arc::new(FillOrder::new(rows, per_page, table.fill_sessions))),
            packing,
        };
        pages += heap + rows.div_ceil(per_leaf);
        layout
    });
    (layouts.collect(), pages)
}
