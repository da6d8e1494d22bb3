//! Which version of each row was acknowledged: what tells that a read is stale, or that an update was lost.
//!
//! Every write of a run has a number, its version, which stands in the row ([`crate::content::Content`]). A
//! read that began when a newer version had been acknowledged must not show an older one. Two writes of a row that
//! were under way at once may end in either order, and a write that failed may have arrived, or arrive later: neither
//! is held against the database.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::keys::Key;

/// The number of a write, from 1 on in the order of their starts; 0: the row is as it was filled.
pub type Version = u64;

/// Rows whose versions are remembered; writes of further ones are counted and not judged. A row takes some 40 bytes.
const MOST_ROWS: usize = 1 << 20;

/// Failed writes that are remembered. When there are more, nothing as new as the first that was forgotten is judged.
const MOST_FAILED: usize = 1 << 20;

/// What was acknowledged, as one run tells it to the next: of a job, and of the last line of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Pairs of a row's key and the oldest version that it may show: numbers of 8 bytes, little-endian, in base64.
    #[serde(default)]
    pub rows: String,
    /// Versions whose writes failed, in the same form: they may be there or not.
    #[serde(default)]
    pub failed: String,
    /// The first failed version that is not among them: from it on nothing is judged.
    #[serde(default)]
    pub judged_below: Option<Version>,
}

impl Known {
    /// Why it cannot be read; none when it can.
    pub fn problem(&self) -> Option<String> {
        Ledger::knowing(self).err()
    }
}

/// What one run knows of the versions of rows, in bounded memory.
#[derive(Debug)]
pub struct Ledger {
    state: RefCell<State>,
    stale: Cell<u64>,
    judged: Cell<u64>,
    most_rows: usize,
    most_failed: usize,
}

#[derive(Debug)]
struct State {
    next: Version,
    /// The oldest version that a read may show, of rows that were written and acknowledged.
    oldest: HashMap<Key, Version>,
    under_way: BTreeSet<(Key, Version)>,
    failed: HashSet<Version>,
    judged_below: Version,
    /// Writes of rows beyond those that are remembered.
    not_remembered: u64,
}

/// A write under way. Dropping it without an acknowledgement says that it failed.
#[derive(Debug)]
pub struct Writing<'a> {
    ledger: &'a Ledger,
    key: Key,
    /// Its number.
    pub version: Version,
    /// What its acknowledgement makes the oldest version of the row.
    oldest: Version,
}

impl Ledger {
    /// A ledger that starts with what an earlier run has told.
    pub fn knowing(known: &Known) -> Result<Ledger, String> {
        let rows = numbers(&known.rows)?;
        let (pairs, rest) = rows.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("a key has no version".into());
        }
        let failed: HashSet<Version> = numbers(&known.failed)?.into_iter().collect();
        let newest = pairs.iter().map(|[_, version]| *version);
        let newest = newest.chain(failed.iter().copied()).max().unwrap_or(0);
        Ok(Ledger {
            state: RefCell::new(State {
                next: newest + 1,
                oldest: pairs
                    .iter()
                    .map(|[key, version]| (*key, *version))
                    .collect(),
                under_way: BTreeSet::new(),
                failed,
                judged_below: known.judged_below.unwrap_or(Version::MAX),
                not_remembered: 0,
            }),
            stale: Cell::new(0),
            judged: Cell::new(0),
            most_rows: MOST_ROWS,
            most_failed: MOST_FAILED,
        })
    }

    /// A write starts now.
    pub fn write(&self, key: Key) -> Writing<'_> {
        let state = &mut *self.state.borrow_mut();
        let version = state.next;
        state.next += 1;
        // What was under way when it started may end after it, and then stand in the row by right.
        let mut before = state.under_way.range((key, 0)..(key, version));
        let oldest = before.next().map_or(version, |(_, version)| *version);
        state.under_way.insert((key, version));
        Writing {
            ledger: self,
            key,
            version,
            oldest,
        }
    }

    /// The oldest version that a read which starts now may show.
    pub fn oldest(&self, key: Key) -> Version {
        let state = self.state.borrow();
        state.oldest.get(&key).copied().unwrap_or(0)
    }

    /// Counts a read that has shown `seen`; `oldest` is what it may show at least.
    pub fn read(&self, oldest: Version, seen: Version) {
        if oldest == 0 {
            return;
        }
        self.judged.set(self.judged.get() + 1);
        let state = self.state.borrow();
        if seen < oldest && seen < state.judged_below && !state.failed.contains(&seen) {
            self.stale.set(self.stale.get() + 1);
        }
    }

    /// Reads that showed an older version than was acknowledged before they began.
    pub fn stale(&self) -> u64 {
        self.stale.get()
    }

    /// What the last line of a run says.
    pub fn told(&self) -> Value {
        let state = self.state.borrow();
        json!({
            "judged_reads": self.judged.get(),
            "stale_reads": self.stale.get(),
            "not_remembered_writes": state.not_remembered,
            "known": self.known(),
        })
    }

    /// What the next run has to know. What is under way may still arrive, like what has failed.
    pub fn known(&self) -> Known {
        let state = self.state.borrow();
        let mut rows: Vec<_> = state.oldest.iter().collect();
        rows.sort_unstable();
        let rows = rows.into_iter().flat_map(|(key, version)| [*key, *version]);
        let under_way = state.under_way.iter().map(|(_, version)| *version);
        let mut failed: Vec<_> = state.failed.iter().copied().chain(under_way).collect();
        failed.sort_unstable();
        Known {
            rows: packed(rows),
            failed: packed(failed),
            judged_below: (state.judged_below != Version::MAX).then_some(state.judged_below),
        }
    }

    fn ended(&self, writing: &Writing<'_>, acknowledged: bool) {
        let state = &mut *self.state.borrow_mut();
        state.under_way.remove(&(writing.key, writing.version));
        if !acknowledged {
            if state.failed.len() < self.most_failed {
                state.failed.insert(writing.version);
            } else {
                state.judged_below = state.judged_below.min(writing.version);
            }
        } else if let Some(oldest) = state.oldest.get_mut(&writing.key) {
            *oldest = writing.oldest.max(*oldest);
        } else if state.oldest.len() < self.most_rows {
            state.oldest.insert(writing.key, writing.oldest);
        } else {
            state.not_remembered += 1;
        }
    }
}

impl Writing<'_> {
    /// The database has said that it is done.
    pub fn acknowledged(self) {
        self.ledger.ended(&self, true);
        std::mem::forget(self);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.ledger.ended(self, false);
    }
}

fn packed(numbers: impl IntoIterator<Item = u64>) -> String {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    STANDARD.encode(bytes)
}

fn numbers(text: &str) -> Result<Vec<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are not numbers of 8", bytes.len()));
    }
    Ok(numbers
        .iter()
        .map(|number| u64::from_le_bytes(*number))
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ledger() -> Ledger {
        Ledger::knowing(&Known::default()).unwrap()
    }

    #[test]
    fn what_is_older_than_the_last_acknowledgement_before_a_read_is_stale() {
        let ledger = ledger();
        assert_eq!(ledger.oldest(7), 0);
        let first = ledger.write(7);
        // Nothing was acknowledged when this read began: it may show anything.
        ledger.read(ledger.oldest(7), 0);
        first.acknowledged();
        let began = ledger.oldest(7);
        let second = ledger.write(7);
        second.acknowledged();
        ledger.read(began, 1);
        assert_eq!(ledger.stale(), 0);
        ledger.read(ledger.oldest(7), 1);
        ledger.read(ledger.oldest(7), 0);
        ledger.read(ledger.oldest(7), 2);
        assert_eq!(ledger.stale(), 2);
        assert_eq!(ledger.told()["judged_reads"], 4);
    }

    #[test]
    fn writes_under_way_at_once_may_end_in_either_order() {
        let ledger = ledger();
        let (first, second) = (ledger.write(7), ledger.write(7));
        second.acknowledged();
        first.acknowledged();
        assert_eq!(ledger.oldest(7), 1);
        ledger.write(7).acknowledged();
        assert_eq!(ledger.oldest(7), 3, "both were over when it started");
    }

    #[test]
    fn a_failed_write_may_be_there_or_not() {
        let ledger = ledger();
        ledger.write(7).acknowledged();
        drop(ledger.write(7));
        ledger.write(7).acknowledged();
        let after = Ledger::knowing(&ledger.known()).unwrap();
        after.read(after.oldest(7), 2);
        assert_eq!(after.stale(), 0);
        after.read(after.oldest(7), 1);
        assert_eq!(after.stale(), 1);
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_is_not_judged() {
        let mut ledger = ledger();
        (ledger.most_rows, ledger.most_failed) = (1, 1);
        ledger.write(1).acknowledged();
        ledger.write(2).acknowledged();
        assert_eq!(ledger.oldest(2), 0);
        assert_eq!(ledger.told()["not_remembered_writes"], 1);
        drop(ledger.write(1));
        drop(ledger.write(1));
        ledger.write(1).acknowledged();
        for (seen, stale) in [(4, 0), (3, 0), (2, 1)] {
            ledger.read(5, seen);
            assert_eq!(ledger.stale(), stale, "{seen}");
        }
        assert_eq!(ledger.known().judged_below, Some(4));
    }

    #[test]
    fn what_is_no_list_of_numbers_is_told() {
        for rows in ["!", "AAAA", "AAAAAAAAAAA="] {
            let known = Known {
                rows: rows.into(),
                ..Known::default()
            };
            assert!(known.problem().is_some(), "{rows}");
        }
    }

    proptest! {
        /// Against a register that takes each write at some moment between its start and its end.
        #[test]
        fn a_register_that_keeps_its_word_is_never_blamed(
            steps in proptest::collection::vec((0u8..5, 0usize..8), 0..200),
        ) {
            let ledger = ledger();
            let mut under_way: Vec<(Writing<'_>, bool)> = Vec::new();
            let mut register = 0;
            for (step, which) in steps {
                let at = which % under_way.len().max(1);
                match step {
                    0 | 1 => under_way.push((ledger.write(7), false)),
                    2 if !under_way.is_empty() => {
                        if !under_way[at].1 {
                            register = under_way[at].0.version;
                        }
                        under_way[at].1 = true;
                    }
                    3 if !under_way.is_empty() => {
                        let (writing, taken) = under_way.swap_remove(at);
                        if !taken {
                            register = writing.version;
                        }
                        writing.acknowledged();
                    }
                    4 if !under_way.is_empty() => drop(under_way.swap_remove(at)),
                    _ => {}
                }
                ledger.read(ledger.oldest(7), register);
                prop_assert_eq!(ledger.stale(), 0);
            }
        }
    }
}
