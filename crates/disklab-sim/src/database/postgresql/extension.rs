//! Room for rows: the map of free space, and adding pages to a relation, one backend at a time.
//!
//! A backend whose page has no room for its row tells the map so, and asks it for another page. The map goes round the pages that it
//! lists, and does not know what has happened to them since: **several backends may get the same page**, and one that finds no room
//! there delists it and asks again. When none is left, the backend adds a page, for which it holds the relation's extension lock. If it
//! had to wait for that lock, it looks into the map again first, and if that still lists nothing, it adds twenty pages for itself and
//! for each that waits, at most 512, before its own. The map lists each as soon as it is there, but only backends that have had a page
//! near it find it at once; those who begin at the map's root find it when all are there.
//! **Each page takes a buffer, which may have to be written first, and is itself written to its file**: on XFS both wait
//! for the reads of the file ([`files`](super::files)), so that a table grows by about a page in the time of a read, while those who find
//! each new page go on reading. The others wait for all of it, up to a second.
//!
//! **Source:** `RelationGetBufferForTuple` and `RelationAddExtraBlocks` of PostgreSQL 15's hio.c, `mdextend` of md.c;
//! `RecordAndGetPageWithFreeSpace` and `FreeSpaceMapVacuumRange` of freespace.c; `fsm_search_avail` of fsmpage.c, which goes on
//! behind the page that it gave last. Stacks of 16 real backends (2026-11-27).
//! **Divergence:** PostgreSQL 16 counts the waiters otherwise and asks the file system for pages in one call. Pages of the map (of 4,069
//! pages each) are not told apart; what a page has left is not found again by a smaller row; vacuum, which gives pages back, does not
//! run; a new page's zeros do not reach the disk before its rows.

use std::collections::{BTreeSet, VecDeque};

use super::Postgresql;

/// Pages for each that waits, and for the one that no longer does. **Source:** `RelationAddExtraBlocks`: `Min(512, lockWaiters * 20)`,
/// and `LockWaiterCount` of lock.c, which counts who holds the lock as well.
const PAGES_A_REQUEST: usize = 20;
/// And at most.
const MOST_PAGES: usize = 512;

/// Whose turn it is to add pages to a relation.
#[derive(Clone, Debug, Default)]
pub(super) struct Extension {
    held: bool,
    waiting: VecDeque<u32>,
    /// Pages of which the map of free space says that they have room.
    listed: BTreeSet<u32>,
    /// The next search begins with this page.
    next: u32,
    /// Whether the map's root says that there is room.
    root_has_room: bool,
    /// The page that was added last.
    newest: Option<u32>,
}

impl Extension {
    /// The page of the map whose turn it is. None: it lists no page, or its root, where the search begins, says so.
    fn listed_page(&mut self, from_root: bool) -> Option<u32> {
        if from_root && !self.root_has_room {
            return None;
        }
        let behind = self.listed.range(self.next..).next();
        let page = behind.or_else(|| self.listed.first()).copied();
        match page {
            Some(page) => self.next = page + 1,
            None => self.root_has_room = false,
        }
        page
    }
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
        let (row, access) = (
            session.at.number,
            self.plan.accesses[session.at.access as usize],
        );
        if session.extending == Extending::No {
            if !self.changes.wants_page(&self.plan, &access, row, number) {
                return true;
            }
            if !self.takes_turns {
                let page = self.changes.new_page(&self.plan, access.relation);
                self.changes.take(access.relation, number, page);
                return true;
            }
            if self.finds_page(number) {
                return true;
            }
            let extension = &mut self.extensions[access.relation as usize];
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

    /// Looks for a page with room for the row that a session changes; it becomes the session's.
    fn finds_page(&mut self, number: u32) -> bool {
        let session = &self.sessions[number as usize];
        let (row, access) = (
            session.at.number,
            self.plan.accesses[session.at.access as usize],
        );
        let bytes = self.plan.relations[access.relation as usize].bytes_of(row);
        let extension = &mut self.extensions[access.relation as usize];
        let waits = session.extending == Extending::Waits;
        let target = self.changes.target(access.relation, number);
        if let Some(target) = target {
            extension.listed.remove(&target);
        }
        let mut page = extension.listed_page(waits || target.is_none());
        if target.is_none() && page.is_none() && !waits {
            page = extension.newest;
        }
        while let Some(candidate) = page {
            if self.changes.has_room(candidate, bytes) {
                self.changes.take(access.relation, number, candidate);
                return true;
            }
            extension.listed.remove(&candidate);
            page = extension.listed_page(false);
        }
        false
    }

    /// Adds pages to a relation as far as a session can; false: it waits, and is resumed.
    fn extend(&mut self, now: u64, number: u32, relation: u32) -> bool {
        loop {
            let state = self.sessions[number as usize].extending;
            let extension = &mut self.extensions[relation as usize];
            let (next, goes_on) = match state {
                Extending::No => return true,
                Extending::Waits => {
                    if self.finds_page(number) {
                        self.end_extending(now, relation);
                        (Extending::No, true)
                    } else {
                        let requests = self.extensions[relation as usize].waiting.len() + 1;
                        let extra = (requests * PAGES_A_REQUEST).min(MOST_PAGES);
                        (Extending::Adds(extra as u32 + 1), true)
                    }
                }
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
                    extension.newest = Some(page);
                    self.changes.take(relation, number, page);
                    self.end_extending(now, relation);
                    (Extending::No, true)
                }
                Extending::HasWritten(left, page) => {
                    extension.newest = Some(page);
                    extension.listed.insert(page);
                    extension.root_has_room |= left == 2;
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
        let span = self.clients.work(self.rules.parameters.page_read_cpu_ns);
        let done = self.servers[self.primary].machine.cores.serve(now, span);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_goes_round_and_its_root_knows_when_all_pages_are_there() {
        let mut extension = Extension {
            listed: BTreeSet::from([4, 7]),
            ..Extension::default()
        };
        assert_eq!(extension.listed_page(true), None, "the root knows of none");
        let pages = [0; 3].map(|_| extension.listed_page(false));
        assert_eq!(pages, [Some(4), Some(7), Some(4)]);
        extension.root_has_room = true;
        assert_eq!(extension.listed_page(true), Some(7));
        extension.listed.clear();
        assert_eq!(extension.listed_page(true), None);
        assert!(!extension.root_has_room);
    }
}
