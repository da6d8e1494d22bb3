//! A job's tables and transactions, laid out: tablets with their leaders and blocks, statements as
//! steps.

use std::collections::BTreeMap;
use std::ops::Range;

use disklab_units::random::Stream;

use super::job::{SqlJob, SqlParameters, Table};
use crate::database::draws::nurand;
use crate::database::transactions::Script;
use crate::filelayout::{PAGE_BYTES, Pages};
use crate::job::{AccessKind, RowDraw, Statement};

/// One tablet. Its blocks lie on its leader one after the other; followers are not read.
///
/// **Divergence:** a follower's copy takes room on its disk and nothing else. Where leaders move, the new
/// one starts with cold caches.
#[derive(Clone, Copy, Debug)]
pub struct Tablet {
    /// The node that reads it, and writes first.
    pub leader: u16,
    /// Where its first block begins among those of its leader, in plain bytes.
    pub first_byte: u64,
    /// Rows, at least one.
    pub rows: u64,
}

/// A table's tablets and the size of its rows.
#[derive(Clone, Debug)]
pub struct TablePlan {
    /// Its tablets.
    pub tablets: Range<u32>,
    /// Plain bytes of a row.
    pub row_bytes: u64,
}

/// An access of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The table.
    pub table: u32,
    /// What is done.
    pub kind: AccessKind,
    /// With how many rows.
    pub rows: u32,
    /// Which ones.
    pub draw: RowDraw,
    /// Bytes that it writes, all rows together.
    pub written_bytes: u64,
}

/// Everything that does not change during a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All tablets.
    pub tablets: Vec<Tablet>,
    /// All tables.
    pub tables: Vec<TablePlan>,
    /// All accesses.
    pub accesses: Vec<Access>,
    /// Whether anything is written.
    pub writes: bool,
    /// Plain bytes of the tablets that each node leads.
    ends: Vec<u64>,
    block_bytes: u64,
    block_pages: u64,
    /// Whether a tablet begins in the block in which the one before it ends.
    shares_blocks: bool,
}

impl Plan {
    /// The plan of a checked job, which is `scale` times smaller than the real one, and what its clients send.
    pub fn new(job: &SqlJob, scale: u64) -> (Plan, Script) {
        let block_bytes = u64::from(job.database.block_bytes);
        let stored = block_bytes * u64::from(job.database.compressed_permille) / 1000;
        let mut plan = Plan {
            tablets: Vec::new(),
            tables: Vec::new(),
            accesses: Vec::new(),
            writes: false,
            ends: vec![0; job.cluster.nodes as usize],
            block_bytes,
            block_pages: stored.div_ceil(PAGE_BYTES).max(1),
            // A real tablet has thousands of blocks, and the half of one that its last lacks is nothing; a quick run's
            // has a hundred, and a twelfth more reads of the disk come of it where the caches hold nearly all.
            shares_blocks: scale > 1,
        };
        for table in &job.tables {
            plan.add_table(table);
        }
        let numbers = job.tables.iter().map(|table| table.name.as_str()).zip(0..);
        let numbers: BTreeMap<&str, u32> = numbers.collect();
        let script = Script::new(&job.workload.transactions, |statement| {
            plan.lay_out(statement, &numbers, &job.parameters)
        });
        (plan, script)
    }

    fn add_table(&mut self, table: &Table) {
        let first = self.tablets.len() as u32;
        let count = table.tablets.max(1);
        let rows = (table.rows / u64::from(count)).max(1);
        let bytes = rows * u64::from(table.row_bytes);
        for number in 0..count {
            // Leaders in turn, and each table begins with another node.
            let leader = (self.tables.len() + number as usize) % self.ends.len();
            let end = self.ends[leader];
            let first_byte = if self.shares_blocks {
                end
            } else {
                end.next_multiple_of(self.block_bytes)
            };
            self.tablets.push(Tablet {
                leader: leader as u16,
                first_byte,
                rows,
            });
            self.ends[leader] = first_byte + bytes;
        }
        self.tables.push(TablePlan {
            tablets: first..first + count,
            row_bytes: u64::from(table.row_bytes),
        });
    }

    /// What a statement touches, and the CPU of the SQL layer for it.
    fn lay_out(
        &mut self,
        statement: &Statement,
        numbers: &BTreeMap<&str, u32>,
        parameters: &SqlParameters,
    ) -> (Range<u32>, u64) {
        let from = self.accesses.len() as u32;
        for access in &statement.accesses {
            let table = numbers[access.table.as_str()];
            let rows = access.rows.max(1);
            let row_bytes = self.tables[table as usize].row_bytes;
            let written = access.written_bytes.map_or(row_bytes, u64::from);
            let writes = access.kind != AccessKind::Read;
            self.writes |= writes;
            self.accesses.push(Access {
                table,
                kind: access.kind,
                rows,
                draw: access.draw,
                written_bytes: if writes { written * u64::from(rows) } else { 0 },
            });
        }
        let count = statement.accesses.len() as u64;
        let cpu_ns = parameters.statement_cpu_ns + count * parameters.message_cpu_ns;
        (from..self.accesses.len() as u32, cpu_ns)
    }

    /// Draws the tablet of an access.
    #[inline]
    pub fn draw_tablet(&self, access: &Access, stream: &mut Stream) -> u32 {
        let tablets = &self.tables[access.table as usize].tablets;
        tablets.start + stream.below(u64::from(tablets.end - tablets.start)) as u32
    }

    /// Draws where in a tablet the rows of an access begin: a row, or the first of a group. The last group ends where
    /// the tablet does, and is asked for as much less often: a quick run's tablets hold one or two warehouses, and
    /// one that whole groups alone are asked of has a third of its stock that nobody reads.
    #[inline]
    pub fn draw_base(&self, access: &Access, tablet: u32, stream: &mut Stream) -> u64 {
        let rows = self.tablets[tablet as usize].rows;
        match access.draw {
            RowDraw::Uniform
            | RowDraw::Preferred { .. }
            | RowDraw::Recent
            | RowDraw::Keys
            | RowDraw::KeyRun { .. } => 0,
            RowDraw::Run | RowDraw::PreferredRun { .. } => stream.below(rows),
            RowDraw::Nurand { group, .. } => {
                let group = u64::from(group.max(1));
                stream.below(rows) / group * group
            }
        }
    }

    /// The block of a tablet's leader that holds row `number` of an access; none: it is in memory.
    #[inline]
    pub fn draw_block(
        &self,
        access: &Access,
        tablet: u32,
        base: u64,
        number: u32,
        stream: &mut Stream,
    ) -> Option<u64> {
        let entry = &self.tablets[tablet as usize];
        let row = match access.draw {
            RowDraw::Recent => return None,
            // Those that check refuses are not met here.
            RowDraw::Uniform
            | RowDraw::Preferred { .. }
            | RowDraw::Keys
            | RowDraw::KeyRun { .. } => stream.below(entry.rows),
            RowDraw::Run | RowDraw::PreferredRun { .. } => (base + u64::from(number)) % entry.rows,
            RowDraw::Nurand { a, group } => {
                let group = u64::from(group.max(1)).min(entry.rows - base);
                base + nurand(stream, a, group)
            }
        };
        let row_bytes = self.tables[access.table as usize].row_bytes;
        Some((entry.first_byte + row * row_bytes) / self.block_bytes)
    }

    /// The pages of a block on its leader's volume.
    ///
    /// **Divergence:** a block begins with a page. Real ones share a page with each neighbour, which
    /// is read with the one and the other.
    #[inline]
    pub fn pages_of(&self, block: u64) -> Pages {
        Pages::from(block * self.block_pages, self.block_pages)
    }

    /// Whole blocks in so many stored bytes.
    pub fn blocks_in(&self, stored_bytes: u64) -> u64 {
        stored_bytes / (self.block_pages * PAGE_BYTES)
    }

    /// Blocks that a node leads.
    pub fn blocks(&self, node: usize) -> u64 {
        self.ends[node].div_ceil(self.block_bytes)
    }

    /// Pages that a node's led tablets take.
    pub fn pages(&self, node: usize) -> u64 {
        self.blocks(node) * self.block_pages
    }
}
