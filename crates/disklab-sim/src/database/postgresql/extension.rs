//! Adding pages to a relation: one backend at a time, and more pages at once the more of them wait.
//!
//! A backend whose row finds no room asks the map of free space for a page, and adds one when there is none. It holds the
//! relation's extension lock meanwhile. A backend that has waited for that lock looks into the map again, and if there is nothing,
//! adds twenty pages for each that still waits, at most 512, before its own; the map has them once all are there.
//! **Each page takes a buffer, which may have to be written first, and is itself written to its file**: on XFS both wait
//! for the reads of the file ([`files`](super::files)), so that a table grows by about a page in the time of a read.
//!
//! **Source:** `RelationGetBufferForTuple` and `RelationAddExtraBlocks` of PostgreSQL 15's hio.c, `mdextend` of md.c;
//! freespace.c: upper pages of the map are brought up to date by `FreeSpaceMapVacuumRange` at the end. PostgreSQL 16
//! counts the waiters otherwise and asks the file system for pages in one call.
//! **Divergence:** vacuum, which gives pages back, does not run; a new page's zeros do not reach the disk before its rows.

use std::collections::VecDeque;

use super::Postgresql;
use crate::chance::work;

/// Pages for each that waits. **Source:** `RelationAddExtraBlocks`: `Min(512, lockWaiters * 20)`.
const PAGES_A_WAITER: usize = 20;
/// And at most.
const MOST_PAGES: usize = 512;

/// Whose turn it is to add pages to a relation.
#[derive(Clone, Debug, Default)]
pub(super) struct Extension {
    held: bool,
    waiting: VecDeque<u32>,
    /// Empty pages that the map of free space has.
    spare: VecDeque<u32>,
    /// Those that it will have when all are there.
    fresh: Vec<u32>,
}

/// How far a session is with adding pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Extending {
    /// It does not.
    #[default]
    No,
    /// It waits for its turn, and has it when it is resumed.
    Waits,
    /// So many pages are left to add; the next one has no buffer yet.
    Adds(u32),
    /// So many are left, this one with a buffer, whose last page is written.
    HasBuffer(u32, u32),
    /// So many are left, this one has its turn with the file.
    HasFile(u32, u32),
    /// So many are left, this one with the CPU of its buffer and its write behind it.
    HasWritten(u32, u32),
}

impl Postgresql {
    /// Sees to it that the row that a session changes has a page to go to; false: the session waits, and is resumed.
    pub(super) fn has_room(&mut self, now: u64, number: u32) -> bool {
        let session = &self.sessions[number as usize];
        let (row, access) = (session.number, self.plan.accesses[session.access as usize]);
        if session.extending == Extending::No {
            if !self.changes.wants_page(&self.plan, &access, row, number) {
                return true;
            }
            let extension = &mut self.extensions[access.relation as usize];
            let page = if self.takes_turns {
                extension.spare.pop_front()
            } else {
                Some(self.changes.new_page(&self.plan, access.relation))
            };
            if let Some(page) = page {
                self.changes.take(access.relation, number, page);
                return true;
            }
            if extension.held {
                extension.waiting.push_back(number);
                self.sessions[number as usize].extending = Extending::Waits;
                return false;
            }
            extension.held = true;
            self.sessions[number as usize].extending = Extending::Adds(1);
        }
        self.extend(now, number, access.relation)
    }

    /// Adds pages to a relation as far as a session can; false: it waits, and is resumed.
    fn extend(&mut self, now: u64, number: u32, relation: u32) -> bool {
        loop {
            let state = self.sessions[number as usize].extending;
            let extension = &mut self.extensions[relation as usize];
            let (next, goes_on) = match state {
                Extending::No => return true,
                Extending::Waits => match extension.spare.pop_front() {
                    Some(page) => {
                        self.changes.take(relation, number, page);
                        self.end_extending(now, relation);
                        (Extending::No, true)
                    }
                    None => {
                        let extra = extension.waiting.len() * PAGES_A_WAITER;
                        (Extending::Adds(extra.min(MOST_PAGES) as u32 + 1), true)
                    }
                },
                Extending::Adds(left) => {
                    let page = self.changes.new_page(&self.plan, relation);
                    let old = self.keep(now, number, page);
                    let goes_on = old.is_none_or(|old| self.writes_now(number, old));
                    (Extending::HasBuffer(left, page), goes_on)
                }
                Extending::HasBuffer(left, page) => {
                    let goes_on = self.writes_now(number, page);
                    (Extending::HasFile(left, page), goes_on)
                }
                Extending::HasFile(left, page) => {
                    let goes_on = self.works_on_page(now, number);
                    (Extending::HasWritten(left, page), goes_on)
                }
                Extending::HasWritten(1, page) => {
                    extension.spare.extend(extension.fresh.drain(..));
                    self.changes.take(relation, number, page);
                    self.end_extending(now, relation);
                    (Extending::No, true)
                }
                Extending::HasWritten(left, page) => {
                    extension.fresh.push(page);
                    (Extending::Adds(left - 1), true)
                }
            };
            self.sessions[number as usize].extending = next;
            if !goes_on {
                return false;
            }
        }
    }

    /// Spends the CPU of a page that is added; false: the session is resumed when that is done.
    fn works_on_page(&mut self, now: u64, number: u32) -> bool {
        let span = work(&mut self.times, self.rules.parameters.page_read_cpu_ns);
        let done = self.servers[self.primary].cores.serve(now, span);
        if done > now {
            self.queue_resume(done, number);
        }
        done <= now
    }

    /// Writes a page to its file; false: the session waits for its turn with the file, and has written when resumed.
    fn writes_now(&mut self, number: u32, page: u32) -> bool {
        let file = self.changes.file_of(&self.plan, page);
        self.files.write(file, number)
    }

    /// Gives the turn to the next session that waits.
    fn end_extending(&mut self, now: u64, relation: u32) {
        let extension = &mut self.extensions[relation as usize];
        match extension.waiting.pop_front() {
            Some(next) => self.queue_resume(now, next),
            None => extension.held = false,
        }
    }
}
