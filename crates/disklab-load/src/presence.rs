//! Which rows are there while some are deleted, so that a read knows whether to expect one.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::keys::Key;

/// Counters that changes of rows share; a row that is not deleted needs no memory of its own.
const MARKS: usize = 1 << 16;

/// Rows of a run that deletes some. Other rows are there.
///
/// The database decides what is there after a write and a delete that were under way together, and after one that failed:
/// such a row may be there or not until a later change of it has ended alone.
#[derive(Debug)]
pub struct Presence {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    /// Rows that are not there for sure, or change now.
    rows: BTreeMap<Key, Row>,
    /// Changes that have begun, of the rows that share a mark: whether anything happened during a read.
    marks: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    is: Is,
    /// Changes under way, and what kinds there were since none was.
    under_way: u32,
    written: bool,
    deleted: bool,
    failed: bool,
}

/// What is known of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Is {
    /// It is there.
    #[default]
    There,
    /// It was deleted.
    Gone,
    /// Only the database knows.
    Either,
}

/// What a read found known when it began.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    is: Is,
    mark: u32,
}

/// A change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A whole row is written.
    Write,
    /// It is deleted.
    Delete,
}

impl Default for Presence {
    fn default() -> Presence {
        Presence {
            state: RefCell::new(State {
                rows: BTreeMap::new(),
                marks: vec![0; MARKS],
            }),
        }
    }
}

impl State {
    fn mark(&mut self, key: Key) -> &mut u32 {
        &mut self.marks[key as usize % MARKS]
    }
}

impl Presence {
    /// A change begins.
    pub fn begins(&self, key: Key, change: Change) {
        let state = &mut *self.state.borrow_mut();
        *state.mark(key) += 1;
        let row = state.rows.entry(key).or_default();
        row.under_way += 1;
        match change {
            Change::Write => row.written = true,
            Change::Delete => row.deleted = true,
        }
    }

    /// A change has ended; whether it was acknowledged.
    pub fn ended(&self, key: Key, done: bool) {
        let state = &mut *self.state.borrow_mut();
        let Some(row) = state.rows.get_mut(&key) else {
            return;
        };
        row.under_way -= 1;
        row.failed |= !done;
        if row.under_way > 0 {
            return;
        }
        let is = match (row.written, row.deleted) {
            _ if row.failed => Is::Either,
            (true, true) => Is::Either,
            (false, true) => Is::Gone,
            _ => Is::There,
        };
        if is == Is::There {
            state.rows.remove(&key);
        } else {
            *row = Row {
                is,
                // What failed may still arrive, whatever is done after it.
                failed: row.failed,
                ..Row::default()
            };
        }
    }

    /// A read begins.
    pub fn look(&self, key: Key) -> Seen {
        let state = &mut *self.state.borrow_mut();
        let is = state.rows.get(&key).map_or(Is::There, |row| {
            if row.under_way > 0 {
                Is::Either
            } else {
                row.is
            }
        });
        Seen {
            is,
            mark: *state.mark(key),
        }
    }

    /// What the read that began with `seen` had to find.
    pub fn after(&self, key: Key, seen: Seen) -> Is {
        let state = &mut *self.state.borrow_mut();
        if *state.mark(key) == seen.mark {
            seen.is
        } else {
            Is::Either
        }
    }

    /// Whether a row may be deleted: none is that is gone already, or changes now.
    pub fn is_there(&self, key: Key) -> bool {
        !self.state.borrow().rows.contains_key(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_row_is_gone_until_it_is_written_again() {
        let rows = Presence::default();
        let before = rows.look(7);
        assert_eq!(rows.after(7, before), Is::There);
        rows.begins(7, Change::Delete);
        assert_eq!(rows.after(7, before), Is::Either, "it changed meanwhile");
        let during = rows.look(7);
        rows.ended(7, true);
        assert_eq!(rows.after(7, during), Is::Either);
        let seen = rows.look(7);
        assert_eq!(rows.after(7, seen), Is::Gone);
        rows.begins(7, Change::Write);
        rows.ended(7, true);
        let seen = rows.look(7);
        assert_eq!(rows.after(7, seen), Is::There);
        assert!(rows.is_there(7));
    }

    #[test]
    fn what_was_under_way_together_or_failed_is_for_the_database_to_say() {
        let rows = Presence::default();
        rows.begins(7, Change::Delete);
        rows.begins(7, Change::Write);
        rows.ended(7, true);
        rows.ended(7, true);
        let seen = rows.look(7);
        assert_eq!(rows.after(7, seen), Is::Either);
        rows.begins(7, Change::Delete);
        rows.ended(7, true);
        let seen = rows.look(7);
        assert_eq!(rows.after(7, seen), Is::Gone, "it ended alone");
        rows.begins(8, Change::Delete);
        rows.ended(8, false);
        for _ in 0..2 {
            let seen = rows.look(8);
            assert_eq!(rows.after(8, seen), Is::Either);
            rows.begins(8, Change::Write);
            rows.ended(8, true);
        }
    }
}
