//! Whole rows of one table, read and written by key.

use std::cell::RefCell;
use std::future::Future;

use disklab_units::random::Stream;

use crate::clients::RowClient;
use crate::content::{KINDS, Step};
use crate::job::{Job, KeyOrder, Rows};
use crate::keys::{Bell, Frontier, Key, Keys, Sequence, Spread, Zipf};
use crate::mix::Mix;
use crate::presence::{Change, Is, Presence};
use crate::versions::Ledger;
use crate::workloads::{Failure, MISSING_ROW, Outcome, Workload};

/// A row is there that was deleted.
const DELETED_ROW: &str = "deleted_row";

/// Draws of a row to delete: where nearly all are gone, one that is gone is deleted again.
const DELETE_DRAWS: u32 = 64;

/// The workload over a client.
pub struct RowsWorkload<C> {
    client: C,
    choice: RefCell<Choice>,
    ledger: Option<Ledger>,
    /// Where rows are deleted.
    presence: Option<Presence>,
}

/// What decides the next operation.
#[derive(Clone, Debug)]
pub struct Choice {
    mix: Mix,
    keys: Keys,
    /// The end of the table, where inserted rows go; `latest` has its own.
    end: Frontier,
    /// Columns of updates, and lengths of scans.
    parts: Stream,
    columns: u32,
    scan_rows: u32,
}

impl Choice {
    /// The choices of the job's generator, from streams of its own.
    pub fn new(job: &Job, rows: &Rows) -> Choice {
        let (index, count) = (job.generator.index, job.generator.count);
        let stream = |what: &str| Stream::new(job.seed, &format!("{what} {index} of {count}"));
        let (index, count) = (u64::from(index), u64::from(count));
        let asked = rows.asked_rows.unwrap_or(rows.rows);
        let zipf = || Zipf::new(asked, rows.theta);
        let spread = || Spread::new(rows.rows);
        Choice {
            mix: Mix::new(&rows.operations.shares(), stream("operations")),
            end: Frontier::new(rows.rows, index, count),
            parts: stream("columns and lengths"),
            columns: rows.columns,
            scan_rows: rows.scan_rows,
            keys: match rows.keys {
                KeyOrder::Sequential => Keys::Sequential(Sequence::part(asked, index, count)),
                KeyOrder::Uniform if asked < rows.rows => {
                    Keys::Part(stream("keys"), asked, spread())
                }
                KeyOrder::Uniform => Keys::Uniform(stream("keys"), rows.rows),
                KeyOrder::Gaussian => Keys::Gaussian(stream("keys"), Bell::new(asked), spread()),
                KeyOrder::Zipfian => Keys::Zipfian(stream("keys"), zipf(), spread()),
                KeyOrder::Latest => Keys::Latest(
                    stream("keys"),
                    zipf(),
                    Frontier::new(rows.rows, index, count),
                ),
            },
        }
    }

    /// The next operation.
    #[inline]
    pub fn draw(&mut self) -> Step {
        match self.mix.draw() {
            0 => Step::Read(self.keys.to_read()),
            // Which version it is will be known when it starts.
            1 => Step::Write(self.keys.to_write(), 0),
            2 => Step::Insert(match &mut self.keys {
                Keys::Latest(..) => self.keys.to_write(),
                _ => self.end.append(),
            }),
            3 => {
                let column = self.parts.below(u64::from(self.columns)) as u32;
                Step::Update(self.keys.to_read(), column)
            }
            4 => Step::Delete(self.keys.to_read()),
            5 => {
                let rows = self.parts.below(u64::from(self.scan_rows)) as u32 + 1;
                Step::Scan(self.keys.to_read(), rows)
            }
            _ => Step::ReadModifyWrite(self.keys.to_read()),
        }
    }

    /// A write of a row has ended.
    pub fn wrote(&mut self, key: Key, done: bool) {
        match self.keys {
            Keys::Latest(..) => self.keys.wrote(key, done),
            _ => self.end.ended(key, done),
        }
    }
}

impl<C: RowClient> RowsWorkload<C> {
    /// The workload of a job over a connected client; `ledger` where writes have versions.
    pub fn new(client: C, rows: &Rows, choice: Choice, ledger: Option<Ledger>) -> RowsWorkload<C> {
        RowsWorkload {
            client,
            choice: RefCell::new(choice),
            ledger,
            presence: (rows.operations.delete > 0.0).then(Presence::default),
        }
    }

    async fn read(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let Some(presence) = &self.presence else {
            return self.read_row(slot, key).await;
        };
        let seen = presence.look(key);
        let read = self.read_row(slot, key).await;
        let is_missing = matches!(&read, Err(failure) if failure.kind == MISSING_ROW);
        match presence.after(key, seen) {
            Is::Gone | Is::Either if is_missing => Ok(()),
            Is::Gone if read.is_ok() => Err(Failure {
                kind: DELETED_ROW.into(),
                text: format!("key {key}: it was deleted, and is there"),
            }),
            _ => read,
        }
    }

    async fn read_row(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let Some(ledger) = &self.ledger else {
            return self.client.read(slot, key).await.map(drop);
        };
        let oldest = ledger.oldest(key);
        let seen = self.client.read(slot, key).await?;
        ledger.read(oldest, seen);
        Ok(())
    }

    /// Does a change of a row and notes it, where rows are deleted.
    async fn change(
        &self,
        key: Key,
        change: Change,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let Some(presence) = &self.presence else {
            return work.await;
        };
        presence.begins(key, change);
        // An operation that is given up may still arrive, as one that has failed.
        let ends = OnEnd(presence, key);
        let done = work.await;
        std::mem::forget(ends);
        presence.ended(key, done.is_ok());
        done
    }

    /// Another row, where the one that was drawn to be changed in place or deleted is gone.
    fn there(&self, key: Key) -> Key {
        let Some(presence) = &self.presence else {
            return key;
        };
        let mut key = key;
        for _ in 0..DELETE_DRAWS {
            if presence.is_there(key) {
                break;
            }
            key = self.choice.borrow_mut().keys.to_read();
        }
        key
    }

    async fn write(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let work = self.write_row(slot, key);
        let written = self.change(key, Change::Write, work).await;
        self.choice.borrow_mut().wrote(key, written.is_ok());
        written
    }

    async fn write_row(&self, slot: usize, key: Key) -> Result<(), Failure> {
        let Some(ledger) = &self.ledger else {
            return self.client.write(slot, key, 0).await;
        };
        let writing = ledger.write(key);
        self.client.write(slot, key, writing.version).await?;
        writing.acknowledged();
        Ok(())
    }
}

/// A change whose end nobody has waited for.
struct OnEnd<'a>(&'a Presence, Key);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1, false);
    }
}

impl<C: RowClient> Workload for RowsWorkload<C> {
    type Step = Step;

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn draw(&self, _who: usize) -> Step {
        self.choice.borrow_mut().draw()
    }

    fn kind(&self, step: Step) -> usize {
        match step {
            Step::Read(_) => 0,
            Step::Write(..) => 1,
            Step::Insert(_) => 2,
            Step::Update(..) => 3,
            Step::Delete(_) => 4,
            Step::Scan(..) => 5,
            Step::ReadModifyWrite(_) => 6,
        }
    }

    async fn perform(&self, slot: usize, step: Step) -> Result<(), Failure> {
        match step {
            Step::Read(key) => self.read(slot, key).await,
            Step::Write(key, _) | Step::Insert(key) => self.write(slot, key).await,
            Step::Update(key, column) => {
                let key = self.there(key);
                self.client.update(slot, key, column).await
            }
            Step::Delete(key) => {
                let key = self.there(key);
                let work = self.client.delete(slot, key);
                self.change(key, Change::Delete, work).await
            }
            Step::Scan(key, rows) => self.client.scan(slot, key, rows).await,
            Step::ReadModifyWrite(key) => {
                self.read(slot, key).await?;
                self.write(slot, key).await
            }
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        let told = self.ledger.as_ref()?.told();
        Some(Box::new(move |_, _| ("versions", told)))
    }
}
