//! How a backend gets at its rows: which ones, the pages that they need, and what it changes.

use super::Postgresql;
use crate::database::draws::{Among, MOST_RECENT};
use crate::database::postgresql::event::Event;
use crate::database::postgresql::plan::Access;
use crate::database::postgresql::server::CACHE_PAGES;
use crate::database::sessions::Sessions;
use crate::filelayout::Pages;
use crate::job::{AccessKind, RowDraw};
use crate::storage::{NOBODY, Purpose, Touched};

impl Postgresql {
    /// Draws the next row of the statement, and says which pages it needs.
    pub(super) fn next_row(&mut self, number: u32) {
        let session = &mut self.sessions[number as usize];
        session.wanted = 0;
        session.there = 0;
        let step = self.clients.step(number);
        if session.at.access >= step.accesses.end {
            return;
        }
        let access = self.plan.accesses[session.at.access as usize];
        let row = self.draw(number, &access);
        let layout = &self.plan.relations[access.relation as usize];
        let session = &mut self.sessions[number as usize];
        session.at.number = row;
        let inserts = access.kind == AccessKind::Insert;
        if inserts && access.draw != RowDraw::Keys && layout.per_page() > 0 {
            // Behind the last row, and into the last leaf: both have just been written.
            return;
        }
        session.pages[0] = layout.leaf_of(row);
        session.wanted = 1;
        let page = self.changes.page_of(&self.plan, access.relation, row);
        if let Some(page) = page.filter(|_| !inserts) {
            session.pages[1] = page;
            session.wanted = 2;
        }
    }

    /// Which row an access takes.
    pub(super) fn draw(&mut self, number: u32, access: &Access) -> u64 {
        let rows = self.plan.relations[access.relation as usize].rows;
        let among = Among {
            table: access.relation,
            rows,
            end: rows,
            least_run: 0,
            asks: access.kind != AccessKind::Insert,
            session: (number, self.clients.count()),
        };
        let at = &mut self.sessions[number as usize].at;
        let row = self.draws.draw(at, access.draw, &among);
        if access.draw != RowDraw::Recent && at.recent.len() < MOST_RECENT {
            at.recent.push_back((access.relation, row));
        }
        row
    }

    /// Goes through rows and pages until one has to be waited for, or the statement is done.
    pub(super) fn read_on(&mut self, now: u64, number: u32) {
        loop {
            let session = &mut self.sessions[number as usize];
            if session.there < session.wanted {
                let page = session.pages[usize::from(session.there)];
                if std::mem::take(&mut session.writes) {
                    // Its turn to write what made room has come, and gone.
                    session.there += 1;
                    continue;
                }
                if !session.reads {
                    if let Some(before) = self.reads.wait(page, number) {
                        (session.next, session.since) = (before, now);
                        return;
                    }
                    if !self.buffers.find(page) {
                        (session.reads, session.part, session.has_file) = (true, 0, false);
                        self.reads.begin(page);
                    }
                }
                if session.reads && !self.read_page(now, number, page) {
                    return;
                }
                self.sessions[number as usize].there += 1;
                continue;
            }
            let end = self.clients.step(number).accesses.end;
            let session = &self.sessions[number as usize];
            if session.at.access >= end {
                break;
            }
            if !self.has_room(now, number) {
                return;
            }
            self.change_row(now, number);
            let session = &mut self.sessions[number as usize];
            let access = &self.plan.accesses[session.at.access as usize];
            session.at.go_on(access.draw, access.rows);
            self.next_row(number);
        }
        self.finish(now, number);
    }

    /// Reads a page from the operating system; false: the session waits for the file, or for an I/O.
    pub(super) fn read_page(&mut self, now: u64, number: u32, page: u32) -> bool {
        let file = self.changes.file_of(&self.plan, page);
        if !self.sessions[number as usize].has_file {
            // Whoever is woken has it.
            self.sessions[number as usize].has_file = true;
            if !self.files.read(file, number) {
                return false;
            }
        }
        let first = u64::from(page) * CACHE_PAGES;
        let pages = Pages::from(first, CACHE_PAGES);
        let storage = &mut self.servers[self.primary].machine.storage;
        let open = self.plan.bounds(file, page);
        let opened = self.reads.file((number, open.0), storage, || {
            (open.1 * CACHE_PAGES, open.2 * CACHE_PAGES)
        });
        loop {
            let at = first + self.sessions[number as usize].part;
            if at > pages.last {
                break;
            }
            let storage = &mut self.servers[self.primary].machine.storage;
            if let Touched::Awaits(io) = storage.touch(now, opened, at, pages, &mut self.course.ios)
            {
                let session = &mut self.sessions[number as usize];
                if let Purpose::Pages { waiter, .. } = &mut self.course.ios[io].purpose {
                    session.next = std::mem::replace(waiter, number);
                }
                session.since = now;
                return false;
            }
            let session = &mut self.sessions[number as usize];
            if session.part > 0 {
                // It is one page of the server's, found or not.
                self.servers[self.primary].machine.storage.uncount_hit();
            }
            session.part += 1;
        }
        self.servers[self.primary]
            .machine
            .storage
            .read_ended(opened, pages.last, true);
        let session = &mut self.sessions[number as usize];
        session.reads = false;
        session.loaded += 1;
        self.end_reading(now, file);
        let old = self.keep(now, number, page);
        self.end_loading(now, number, page);
        let Some(old) = old else {
            return true;
        };
        let file = self.changes.file_of(&self.plan, old);
        let goes_on = self.files.write(file, number);
        self.sessions[number as usize].writes = !goes_on;
        goes_on
    }

    /// A read of a file has ended: others may have their turn.
    fn end_reading(&mut self, now: u64, file: usize) {
        let mut woken = std::mem::take(&mut self.woken);
        self.files.read_ended(file, &mut woken);
        for session in woken.drain(..) {
            self.queue_resume(now, session);
        }
        self.woken = woken;
    }

    /// A session has read a page: those who have waited for it go on, and have waited for what it waited for.
    fn end_loading(&mut self, now: u64, reader: u32, page: u32) {
        let passed = self.sessions[reader as usize].passed;
        let mut next = self.reads.end(page);
        while next != NOBODY {
            let this = next;
            let session = &mut self.sessions[this as usize];
            next = std::mem::replace(&mut session.next, NOBODY);
            let since = session.since;
            self.waited(now, this, since, passed);
            self.queue_resume(now, this);
        }
    }

    /// A session that has waited for a file goes on.
    pub(super) fn queue_resume(&mut self, now: u64, session: u32) {
        self.course.queue.push(now, Event::Resume(session));
    }

    /// Puts a page into a buffer. Returns the changed page that had to make room: the backend writes it itself.
    pub(super) fn keep(&mut self, now: u64, number: u32, page: u32) -> Option<u32> {
        let old = self.buffers.keep(page)?;
        self.sessions[number as usize].loaded += 1;
        self.write_to_page_cache(old);
        self.dirty.push_back((now, old));
        Some(old)
    }

    pub(super) fn write_to_page_cache(&mut self, page: u32) {
        let first = u64::from(page) * CACHE_PAGES;
        self.servers[self.primary]
            .machine
            .storage
            .written(first, first + CACHE_PAGES);
    }

    /// Changes the row that the session has reached, as its access says.
    pub(super) fn change_row(&mut self, now: u64, number: u32) {
        let session = &self.sessions[number as usize];
        let access = self.plan.accesses[session.at.access as usize];
        if access.kind == AccessKind::Read {
            return;
        }
        let changed = self
            .changes
            .row(&self.plan, &access, session.at.number, number);
        let session = &mut self.sessions[number as usize];
        session.wrote = true;
        session.lsn = self.changes.log;
        for page in changed.into_iter().flatten() {
            // New pages have no content to be read.
            if let Some(old) = self.keep(now, number, page) {
                let file = self.changes.file_of(&self.plan, old);
                self.files.write_in_background(file);
            }
            self.buffers.change(page);
        }
    }
}
