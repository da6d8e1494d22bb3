//! The load: tables are dropped, made and filled in pieces, one an operation, so that pieces run at once and show progress.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::json;
use tokio::sync::Notify;

use super::outcome::Said;
use super::rows::Maker;
use super::scale::{CUSTOMERS, DISTRICTS, FIRST_UNDELIVERED, ITEMS, ORDERS};
use super::store::Store;
use super::tables;
use crate::clients::pool::Pool;
use crate::clock::unix_nanos;
use crate::error::LoadError;
use crate::job::{Job, Stage, Tpcc};
use crate::workloads::{Failure, Outcome, Workload};

/// Tables in the order of their filling; the last kind is what is done when all rows are there.
const KINDS: [&str; 10] = [
    "item",
    "warehouse",
    "district",
    "customer",
    "history",
    "orders",
    "new_order",
    "order_line",
    "stock",
    "finish",
];
const FINISH: usize = KINDS.len() - 1;

/// Items or stocks of a piece: a few megabytes, a tenth of a second on a fast disk.
const ROWS_OF_A_PIECE: u32 = 10_000;

/// Making indexes at the end is faster than keeping them. The last step marks the load: where its row is, all rows are.
const STEPS: u64 = 4;

/// A piece of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    kind: usize,
    warehouse: u32,
    /// Number of the piece within table and warehouse, from 0.
    part: u32,
}

/// All pieces, in order: a number is a piece.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    warehouses: u64,
}

/// Pieces of each table in a warehouse, as in `KINDS` from `warehouse` to `stock`.
const PARTS: [u32; 8] = [
    1,
    1,
    DISTRICTS,
    DISTRICTS,
    DISTRICTS,
    DISTRICTS,
    DISTRICTS,
    ITEMS / ROWS_OF_A_PIECE,
];

impl Pieces {
    const OF_ITEMS: u64 = (ITEMS / ROWS_OF_A_PIECE) as u64;

    fn of_a_warehouse() -> u64 {
        PARTS.iter().copied().map(u64::from).sum()
    }

    fn of_rows(self) -> u64 {
        Self::OF_ITEMS + self.warehouses * Self::of_a_warehouse()
    }

    fn all(self) -> u64 {
        self.of_rows() + STEPS
    }

    fn at(self, number: u64) -> Piece {
        if number < Self::OF_ITEMS {
            return Piece {
                kind: 0,
                warehouse: 0,
                part: number as u32,
            };
        }
        if number >= self.of_rows() {
            return Piece {
                kind: FINISH,
                warehouse: 0,
                part: (number - self.of_rows()) as u32,
            };
        }
        let number = number - Self::OF_ITEMS;
        let warehouse = (number / Self::of_a_warehouse()) as u32 + 1;
        let mut part = (number % Self::of_a_warehouse()) as u32;
        for (table, parts) in PARTS.into_iter().enumerate() {
            if part < parts {
                return Piece {
                    kind: table + 1,
                    warehouse,
                    part,
                };
            }
            part -= parts;
        }
        unreachable!("a part is one of the warehouse's");
    }
}

/// The stage `load`.
pub struct Population<S: Store> {
    sessions: Pool<S>,
    maker: Maker,
    pieces: Pieces,
    seed: u64,
    next: Cell<u64>,
    /// Pieces of rows and then steps of the finishing that have ended well.
    ended: Cell<u64>,
    failed: Cell<bool>,
    progress: Notify,
    written: [Cell<u64>; FINISH],
    said: Said,
}

impl<S: Store> Population<S> {
    /// Makes the tables anew.
    pub async fn open(
        job: &Job,
        target: &S::Target,
        asked: &Tpcc,
    ) -> Result<Population<S>, LoadError> {
        let count = job.slots() as usize;
        let sessions = S::open(job, target, Stage::Load, count).await?;
        let (make, _) = S::texts();
        let make = async |session: &mut S::Connection| S::ask(session, &make).await;
        let made = sessions.on(0, make).await;
        made.map_err(|failure| tables::refused(&failure.text))?;
        Ok(Population {
            sessions,
            maker: Maker::new(job.seed, unix_nanos(), S::FORM),
            pieces: Pieces {
                warehouses: asked.warehouses.into(),
            },
            seed: job.seed,
            next: Cell::new(0),
            ended: Cell::new(0),
            failed: Cell::new(false),
            progress: Notify::new(),
            written: Default::default(),
            said: Said::new(asked, count as u32),
        })
    }

    /// Waits until everything before a step of the finishing has ended. A load of which a piece is missing is not
    /// finished: its tables stay without the mark.
    async fn turn_of(&self, step: u64) -> Result<(), Failure> {
        loop {
            if self.failed.get() {
                return Err(incomplete());
            }
            if self.ended.get() == self.pieces.of_rows() + step {
                return Ok(());
            }
            self.progress.notified().await;
        }
    }

    async fn finish(&self, session: &mut S::Connection, step: u32) -> Result<(), Failure> {
        self.turn_of(step.into()).await?;
        let (_, steps) = S::texts();
        let text = steps[step as usize].replace("$seed", &(self.seed as i64).to_string());
        S::ask(session, &text).await.map(drop)
    }

    /// Writes a piece; returns how many rows it has.
    async fn fill(&self, session: &mut S::Connection, piece: Piece) -> Result<u64, Failure> {
        let customers = match KINDS[piece.kind] {
            "orders" => self.maker.order_customers(piece.warehouse, piece.part + 1),
            _ => Vec::new(),
        };
        let mut rows = 0..self.rows_of(piece.kind);
        let mut written = 0;
        let next = |out: &mut BytesMut| {
            let row = rows.next();
            if let Some(row) = row {
                written += self.make_row(piece, row, &customers, out);
            }
            row.is_some()
        };
        S::fill(session, KINDS[piece.kind], next).await?;
        Ok(written.into())
    }

    /// Rows of a piece; for the lines, their orders.
    fn rows_of(&self, kind: usize) -> u32 {
        match KINDS[kind] {
            "item" | "stock" => ROWS_OF_A_PIECE,
            "warehouse" => 1,
            "district" => DISTRICTS,
            "new_order" => ORDERS - FIRST_UNDELIVERED + 1,
            "orders" | "order_line" => ORDERS,
            _ => CUSTOMERS,
        }
    }

    /// Appends a row, or the lines of an order; returns how many. `customers` are those of the district in the order of
    /// their orders.
    fn make_row(&self, piece: Piece, row: u32, customers: &[u32], out: &mut BytesMut) -> u32 {
        let Piece {
            kind,
            warehouse,
            part,
        } = piece;
        let (district, number) = (part + 1, row + 1);
        let maker = &self.maker;
        match KINDS[kind] {
            "item" => maker.item(part * ROWS_OF_A_PIECE + number, out),
            "warehouse" => maker.warehouse(warehouse, out),
            "district" => maker.district(warehouse, number, out),
            "customer" => maker.customer(warehouse, district, number, out),
            "history" => maker.history(warehouse, district, number, out),
            "orders" => {
                let customer = customers[row as usize];
                maker.order([warehouse, district, number], customer, out);
            }
            "new_order" => maker.new_order([warehouse, district, FIRST_UNDELIVERED + row], out),
            "order_line" => return maker.lines([warehouse, district, number], out),
            _ => maker.stock(warehouse, part * ROWS_OF_A_PIECE + number, out),
        }
        1
    }
}

impl<S: Store> Workload for Population<S> {
    type Step = Piece;

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn operations(&self) -> Option<u64> {
        Some(self.pieces.all())
    }

    fn draw(&self, _who: usize) -> Piece {
        let number = self.next.get();
        self.next.set(number + 1);
        self.pieces.at(number)
    }

    fn kind(&self, piece: Piece) -> usize {
        piece.kind
    }

    async fn perform(&self, slot: usize, piece: Piece) -> Result<(), Failure> {
        let work = async |session: &mut S::Connection| {
            if piece.kind == FINISH {
                return self.finish(session, piece.part).await.map(|()| 0);
            }
            self.fill(session, piece).await
        };
        if self.failed.get() {
            return Err(incomplete());
        }
        // Also when this operation is given up: whoever waits for it has to know.
        let mut guard = Ended {
            ended: &self.ended,
            failed: &self.failed,
            progress: &self.progress,
            well: false,
        };
        let rows = self.sessions.on(slot, work).await?;
        guard.well = true;
        if let Some(written) = self.written.get(piece.kind) {
            written.set(written.get() + rows);
        }
        Ok(())
    }

    fn outcome(&self) -> Option<Outcome> {
        let rows: BTreeMap<&str, u64> = KINDS
            .into_iter()
            .zip(self.written.iter().map(Cell::get))
            .collect();
        let said = self.said.clone();
        Some(Box::new(move |_, _| {
            ("tpcc", said.with("load", json!({ "rows": rows })))
        }))
    }
}

fn incomplete() -> Failure {
    Failure {
        kind: "load_incomplete".into(),
        text: "another piece of the load has failed".into(),
    }
}

/// Tells those who wait how a piece ended.
struct Ended<'a> {
    ended: &'a Cell<u64>,
    failed: &'a Cell<bool>,
    progress: &'a Notify,
    well: bool,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if self.well {
            self.ended.set(self.ended.get() + 1);
        } else {
            self.failed.set(true);
        }
        self.progress.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_there_once() {
        let pieces = Pieces { warehouses: 3 };
        let mut counts = [0_u32; KINDS.len()];
        let mut seen = Vec::new();
        for number in 0..pieces.all() {
            let piece = pieces.at(number);
            counts[piece.kind] += 1;
            assert!(!seen.contains(&piece));
            assert!(piece.warehouse <= 3);
            seen.push(piece);
        }
        assert_eq!(counts, [10, 3, 3, 30, 30, 30, 30, 30, 30, 4]);
        assert_eq!(pieces.at(pieces.all() - 1).kind, FINISH);
    }
}
