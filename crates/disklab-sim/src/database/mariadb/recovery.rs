//! How a server comes back after a crash: it reads its redo log from the last checkpoint on, then each page that the log has a record
//! of, and serves.
//!
//! The log is read in parts as large as the log buffer, one behind the other; one thread parses each and sorts its records by
//! page. **Then the pages**: in the order of their numbers, many at a time, each with one I/O unless the pool has it, and what its
//! records change is applied by the thread that reads it. A page that had been written before the crash is read, too: only its
//! own number says that it needs none of its records. They stay in the pool; those that had not been written are written
//! as others are, when the server serves.
//!
//! **Source:** log0recv.cc of MariaDB 10.11 (`recv_scan_log`, `recv_sys_t::apply`) and buf0rea.cc (`buf_read_recv_pages`); the checkpoint is that
//! of `log_checkpoint`, with which each round of the page cleaner ends.
//! **Divergence:** all records have room in memory (a log of more than a third of the pool takes several rounds), pages that the log
//! creates are read as well, and open transactions are not rolled back, which a server does while it serves.

use std::collections::VecDeque;

use disklab_disk::Op;

use super::event::Event;
use super::leaves::PAGE_BYTES;
use super::{Mariadb, flushing};
use crate::bound::Before;
use crate::database::recovery::{Rebuild, left_ns};
use crate::database::servers::Phase;
use crate::database::wal::BLOCK_BYTES;
use crate::storage::Purpose;

/// Bytes of a part of the log. **Source:** `innodb_log_buffer_size`, 16 MiB.
const PART_BYTES: u64 = 16 << 20;
/// Largest I/O of it.
const MOST_READ_BYTES: u64 = 1 << 20;

/// Of an event: a part of the log, not a page.
pub(super) const PART: u32 = (1 << 28) - 1;

/// A recovery under way.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    begun: u64,
    before: Before,
    /// Where in the log it begins, its bytes, and those that are parsed.
    from: u64,
    bytes: u64,
    parsed: u64,
    /// Of the part that is read: bytes, and I/Os under way.
    part: u64,
    reading: u32,
    /// Pages that wait, how many there were, and those under way.
    pages: VecDeque<u32>,
    count: u64,
    under_way: u32,
    /// CPU of the thread that parses.
    cpu_ns: u64,
}

impl Recovery {
    /// Which part of its work is done, in permille: half is the log's, half the pages'.
    fn done(&self) -> u64 {
        let share = |done: u64, all: u64| 500 * done / all.max(1);
        let pages = self.pages.len() as u64 + u64::from(self.under_way);
        share(self.parsed, self.bytes) + share(self.count.saturating_sub(pages), self.count)
    }

    /// How long it still takes at the rate that was seen.
    pub fn left_ns(&self, now: u64) -> u64 {
        let done = self.done().max(1);
        left_ns(now, self.begun, done, 1000_u64.saturating_sub(done))
    }
}

impl Mariadb {
    /// The process has started: it looks at its log.
    pub(super) fn begin_recovery(&mut self, now: u64) {
        let before = Before::of(now, &self.machine);
        let end = self.redo.end;
        let broken = self.broken.as_mut().expect("there is a timetable");
        let checkpoint = broken.checkpoint;
        let reads = self.rules.recovery_reads;
        let pages: VecDeque<u32> = (0..)
            .zip(&broken.changed)
            .filter(|&(_, &position)| reads && position > checkpoint)
            .map(|(page, _)| page)
            .collect();
        broken.life.phase = Phase::Returning(Box::new(Recovery {
            begun: now,
            before,
            from: checkpoint,
            bytes: end - checkpoint,
            count: pages.len() as u64,
            pages,
            ..Recovery::default()
        }));
        self.read_part(now);
    }

    fn recovery(&mut self) -> Option<&mut Recovery> {
        self.broken
            .as_mut()?
            .life
            .work()
            .map(|recovery| &mut **recovery)
    }

    /// Reads the next part of the log, or the first pages.
    fn read_part(&mut self, now: u64) {
        let Some(recovery) = self.recovery() else {
            return;
        };
        recovery.part = PART_BYTES.min(recovery.bytes - recovery.parsed);
        if recovery.part == 0 {
            return self.read_pages(now);
        }
        let (mut at, mut left) = (recovery.from + recovery.parsed, recovery.part);
        let mut ios = 0;
        while left > 0 {
            let bytes = left.min(MOST_READ_BYTES);
            let purpose = Purpose::Stream(flushing::RECOVERY);
            let part = (at / BLOCK_BYTES * BLOCK_BYTES, bytes);
            let (storage, all) = (&mut self.machine.storage, &mut self.course.ios);
            self.redo.read(now, part, purpose, storage, all);
            (at, left, ios) = (at + bytes, left - bytes, ios + 1);
        }
        if let Some(recovery) = self.recovery() {
            recovery.reading = ios;
        }
    }

    /// An I/O of the log has ended: the whole part is parsed when it is there.
    pub(super) fn part_read(&mut self, now: u64) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let byte_ps = broken.outage.job.replay_byte_cpu_ps;
        let Some(recovery) = broken.life.work() else {
            return;
        };
        recovery.reading -= 1;
        if recovery.reading == 0 {
            let cpu_ns = recovery.part * byte_ps / 1000;
            recovery.cpu_ns += cpu_ns;
            let at = self.machine.cores.serve(now, cpu_ns);
            self.course.queue.push(at, Event::Recovered(PART));
        }
    }

    /// Reads pages, as many at a time as may be.
    fn read_pages(&mut self, now: u64) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let depth = broken.outage.job.replay_depth;
        let Some(recovery) = broken.life.work() else {
            return;
        };
        while recovery.under_way < depth
            && let Some(page) = recovery.pages.pop_front()
        {
            recovery.under_way += 1;
            let read = (Op::Read, u64::from(page) * PAGE_BYTES, PAGE_BYTES);
            let storage = &mut self.machine.storage;
            storage.send(now, &mut self.course.ios, Purpose::Piece(page), read);
        }
        let is_over = recovery.under_way == 0;
        if is_over {
            self.tell_recovery(now);
            self.comes_back(now);
        }
    }

    /// A page is there: its records are applied.
    pub(super) fn recovering_page_read(&mut self, now: u64, page: u32) {
        let Some(broken) = &self.broken else {
            return;
        };
        let cpu_ns =
            self.rules.parameters.page_read_cpu_ns + broken.outage.job.replay_record_cpu_ns;
        let at = self.machine.cores.serve(now, cpu_ns);
        self.course.queue.push(at, Event::Recovered(page));
    }

    /// A part of the log is parsed, or the records of a page are applied.
    pub(super) fn recovered(&mut self, now: u64, piece: u32) {
        let Some(recovery) = self.recovery() else {
            // It was killed meanwhile.
            return;
        };
        if piece == PART {
            recovery.parsed += recovery.part;
            return self.read_part(now);
        }
        recovery.under_way -= 1;
        let is_dirty = self.flushing.has_changed(piece);
        if self.pool.free() > 0 && !self.pool.holds(piece) {
            self.pool.take(now, piece);
            self.pool.mark(piece, is_dirty);
        }
        self.read_pages(now);
    }

    /// Tells of a recovery that has ended, or goes on at the end of the run.
    pub(super) fn tell_recovery(&mut self, now: u64) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let Some(recovery) = broken.life.work() else {
            return;
        };
        let rebuild = Rebuild {
            node: 0,
            kind: "replay",
            begun: recovery.begun,
            bytes: recovery.bytes,
            done_bytes: recovery.bytes * recovery.done() / 1000,
            sources: 0,
            machines: &[(0, &recovery.before, &self.machine)],
            processes: &[("replay process", recovery.cpu_ns)],
        };
        broken.outage.tell(now, &rebuild);
    }
}
