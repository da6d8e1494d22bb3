//! Which rows a session's statement takes, one after the other.

use std::collections::VecDeque;

use disklab_units::random::Stream;

use crate::client::RowKeys;
use crate::job::{Keys, PostgresqlWorkload, RowDraw};
use crate::model::Setting;
use crate::permutation::Permutation;

/// Rows that a transaction remembers. **Reason:** TPC-C's new order locks ten rows of stock before it changes them.
pub const MOST_RECENT: usize = 32;

/// Where a session is among the rows of its statement.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The access, and how many of its rows are done.
    pub access: u32,
    pub row: u32,
    /// How many rows a run by keys has, and where a run of rows began.
    pub run: u32,
    base: u64,
    /// The row that was drawn.
    pub number: u64,
    /// Tables and rows of the transaction, oldest first, which a further statement takes again.
    pub recent: VecDeque<(u32, u64)>,
}

impl Place {
    /// A statement begins with an access.
    pub fn begin(&mut self, access: u32) {
        (self.access, self.row, self.run) = (access, 0, 0);
    }

    /// A row is done: the next one of an access of so many rows, or the next access.
    pub fn go_on(&mut self, draw: RowDraw, rows: u32) {
        self.row += 1;
        let rows = match draw {
            RowDraw::KeyRun { .. } => self.run,
            _ => rows,
        };
        if self.row == rows {
            (self.access, self.row) = (self.access + 1, 0);
        }
    }
}

/// A table from which a session draws.
pub struct Among {
    /// Its number.
    pub table: u32,
    /// Its rows at the start, and where they end now.
    pub rows: u64,
    pub end: u64,
    /// Rows of a run by keys, at least.
    pub least_run: u32,
    /// Whether the row is asked for, and not added.
    pub asks: bool,
    /// The session's number, and how many there are.
    pub session: (u32, usize),
}

/// Draws rows.
#[derive(Debug)]
pub struct Draws {
    /// Chance of rows.
    pub rows: Stream,
    keys: RowKeys,
    /// Keys that a row stands for, and where those rows lie that are asked for by popularity.
    keys_a_row: u64,
    places: Option<Permutation>,
    /// Whether keys behind the last row are rows that were added.
    adds: bool,
}

impl Draws {
    /// Draws of a load whose first table has so many rows; `grows`: the newest of them lie behind the others.
    pub fn new(work: &PostgresqlWorkload, rows: u64, grows: bool, setting: &Setting) -> Draws {
        let Setting { scale, seed, .. } = *setting;
        let keys_a_row = RowKeys::count(work.keys, rows, scale) / rows;
        Draws {
            rows: Stream::new(seed, "rows"),
            keys: RowKeys::new(work.keys, work.asked_rows, rows, scale, seed)
                .drawn_from(work.key_stream.as_ref()),
            keys_a_row,
            places: (keys_a_row > 1).then(|| Permutation::new(rows, seed)),
            adds: grows && work.keys == Keys::Latest,
        }
    }

    /// Which row a session takes.
    pub fn draw(&mut self, at: &mut Place, draw: RowDraw, among: &Among) -> u64 {
        let rows = among.rows;
        match draw {
            RowDraw::Recent => {
                let place = at.recent.iter().position(|row| row.0 == among.table);
                let (session, count) = among.session;
                match place.and_then(|place| at.recent.remove(place)) {
                    Some((_, row)) => row,
                    // A row of the terminal's own: of its warehouse, its district.
                    None => u64::from(session) * rows / count as u64 % rows,
                }
            }
            RowDraw::Uniform => self.rows.below(rows),
            RowDraw::Preferred { how } => how.rows().draw(rows, &mut self.rows),
            RowDraw::Nurand { a, group } => {
                let group = u64::from(group.max(1));
                if at.row == 0 {
                    at.base = self.rows.below((rows / group).max(1)) * group;
                }
                (at.base + nurand(&mut self.rows, a, group)) % rows
            }
            RowDraw::Keys => self.by_key(among.asks, rows),
            RowDraw::Run | RowDraw::PreferredRun { .. } | RowDraw::KeyRun { .. } => {
                if at.row == 0 {
                    at.base = match draw {
                        RowDraw::KeyRun { most } => {
                            let run = self.rows.below(u64::from(most.max(1))) as u32 + 1;
                            at.run = run.max(among.least_run);
                            self.by_key(true, rows)
                        }
                        RowDraw::PreferredRun { how } => how.rows().draw(rows, &mut self.rows),
                        _ => self.rows.below(rows),
                    };
                }
                (at.base + u64::from(at.row)) % among.end
            }
        }
    }

    /// The row of the next key that is asked for, or that is added.
    fn by_key(&mut self, asks: bool, rows: u64) -> u64 {
        let row = self.keys.draw(asks) / self.keys_a_row;
        if self.adds {
            return row;
        }
        let row = row % rows;
        self.places.map_or(row, |places| places.place(row))
    }
}

/// TPC-C's draw among the rows of a group: ((random(0, A) | random(x, y)) + C) modulo the range. C shifts, and is the same
/// for all. **Source:** TPC-C 2.1.6.
pub fn nurand(rows: &mut Stream, a: u32, group: u64) -> u64 {
    (rows.below(u64::from(a) + 1) | rows.below(group)) % group
}
