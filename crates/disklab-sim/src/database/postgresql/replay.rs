//! How a server comes back: it syncs its files, replays its log from the last checkpoint, writes what that changed, and serves.
//!
//! One process reads the log in order. A record wants its page: an image brings it along; another one is in a buffer, in the
//! page cache, or on the disk, from where a few are read ahead of their turn. Pages that have to make room are written by the
//! process itself. Behind the last record a checkpoint writes all changed pages at once and syncs them. A standby follows
//! as soon as it has its log.
//!
//! **Source:** xlogrecovery.c and xlog.c of PostgreSQL 15 (`SyncDataDirectory`, `PerformWalRecovery`,
//! `CHECKPOINT_END_OF_RECOVERY`), xlogprefetcher.c (`recovery_prefetch`, within `wal_decode_buffer_size`).
//! **Divergence:** a standby's replay takes the log's reads and its CPU, and no page; what a killed server has written of
//! its log is in the page cache.

use std::collections::HashSet;

use disklab_disk::Op;

use super::changes::{History, Record};
use super::event::Event;
use super::packing::PAGE_BYTES;
use super::server::{CACHE_PAGES, RECOVERY_SYNC};
use super::{FLUSH_AFTER, Postgresql};
use crate::bound::Before;
use crate::database::recovery::{Rebuild, left_ns};
use crate::storage::Purpose;

/// How far ahead of its turn a record's page is asked for. **Source:** `wal_decode_buffer_size`, 512 kB.
const AHEAD_BYTES: u64 = 512 << 10;

/// Reads of the log under way. Linux asks for the next window when the process reaches the first page of the one before;
/// it is through with that long before the next one comes.
const LOG_READS: u32 = 1;

/// Smallest read of the log: its pages are read one by one, and a device without read-ahead reads no more.
const LEAST_READ_BYTES: u64 = PAGE_BYTES;

/// Records whose CPU is one event.
const BATCH: usize = 64;

/// Of a piece: it is a part of the log, not a page.
const LOG: u32 = u32::MAX;

/// Where a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What the page cache still has to write is written and synced.
    Syncing,
    /// The log is replayed.
    Redo,
    /// What that has changed is written.
    Checkpoint,
}

/// A replay under way.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    stage: Stage,
    begun: u64,
    before: Before,
    /// Where in the log it begins.
    redo: u64,
    /// Bytes of the log in all, those that were asked for, and those that are there.
    bytes: u64,
    asked: u64,
    there: u64,
    reading: u32,
    records: Vec<Record>,
    next: usize,
    /// The record whose page is asked for next, and those pages that are on their way.
    ahead: usize,
    coming: HashSet<u32>,
    works: bool,
    syncs: bool,
    /// CPU of the process that replays.
    cpu_ns: u64,
    /// When its checkpoint began, and the pages that waited then.
    writes_since: u64,
    pages: u64,
}

impl Replay {
    fn new(now: u64, history: History, end: u64, before: Before) -> Replay {
        Replay {
            stage: Stage::Syncing,
            begun: now,
            before,
            redo: history.redo,
            bytes: end.saturating_sub(history.redo),
            asked: 0,
            there: 0,
            reading: 0,
            records: history.records,
            next: 0,
            ahead: 0,
            coming: HashSet::new(),
            works: false,
            syncs: false,
            cpu_ns: 0,
            writes_since: 0,
            pages: 0,
        }
    }

    /// Where in the log a record lies. All are taken for equally long.
    fn place(&self, record: usize) -> u64 {
        let count = self.records.len().max(1) as u128;
        (u128::from(self.bytes) * record as u128 / count) as u64
    }

    /// How much of the log is replayed.
    fn done_bytes(&self) -> u64 {
        if self.stage == Stage::Syncing {
            return 0;
        }
        self.place(self.next)
    }

    /// How long it still takes at the rate that was seen; `pages`: those that wait to be written.
    pub fn left_ns(&self, now: u64, pages: u64) -> u64 {
        let (since, done, left) = match self.stage {
            Stage::Checkpoint => (self.writes_since, self.pages.saturating_sub(pages), pages),
            _ => (
                self.begun,
                self.done_bytes(),
                self.bytes - self.done_bytes(),
            ),
        };
        left_ns(now, since, done, left)
    }
}

impl Postgresql {
    /// A server's process has started, and looks at its log.
    pub(super) fn begin_replay(&mut self, now: u64, index: usize) {
        let before = Before::of(now, &self.servers[index].machine);
        let end = if index == self.primary {
            self.changes.log
        } else {
            self.servers[index].received
        };
        let mut history = self.history();
        let broken = self.broken.as_mut().expect("there is a timetable");
        let seen = &mut broken.seen[index];
        if let Some(copied) = seen.copied.take() {
            history = copied.history(&history);
        } else if index != self.primary {
            // Its buffers are not simulated.
            history.records.fill(Record::Commit);
        }
        let replay = Replay::new(now, history, end, before);
        self.put_replay(index, Box::new(replay));
        if index == self.primary {
            self.write_dirty(now, u64::MAX);
        }
        self.replay_on(now, index);
    }

    /// A part of the replay's CPU work is done.
    pub(super) fn has_replayed(&mut self, now: u64, index: usize) {
        if let Some(replay) = self.replay_of(index) {
            replay.works = false;
        }
        self.replay_on(now, index);
    }

    /// Goes on with a replay as far as it can.
    pub(super) fn replay_on(&mut self, now: u64, index: usize) {
        let Some(mut replay) = self.take_replay(index) else {
            return;
        };
        let is_idle = self.servers[index].write_back.is_idle();
        if replay.stage == Stage::Syncing && is_idle && !replay.syncs {
            replay.syncs = true;
            self.sync_recovery(now, index);
        }
        if replay.stage == Stage::Redo {
            self.read_log(now, index, &mut replay);
            self.read_ahead(now, index, &mut replay);
            self.redo(now, index, &mut replay);
            if replay.next == replay.records.len()
                && replay.there == replay.bytes
                && !replay.works
                && replay.coming.is_empty()
            {
                replay.stage = Stage::Checkpoint;
                if index == self.primary {
                    self.write_all(now);
                }
                replay.writes_since = now;
                replay.pages = self.servers[index].write_back.waiting();
            }
        }
        if replay.stage == Stage::Checkpoint
            && self.servers[index].write_back.is_idle()
            && !replay.syncs
        {
            replay.syncs = true;
            self.sync_recovery(now, index);
        }
        self.put_replay(index, replay);
    }

    /// Syncs the data volume before a replay, or behind it.
    fn sync_recovery(&mut self, now: u64, index: usize) {
        self.servers[index].sync_data(now, RECOVERY_SYNC, &mut self.course.ios);
    }

    /// The sync before a replay, or behind it, is done.
    pub(super) fn recovery_synced(&mut self, now: u64, index: usize) {
        if self.copy_synced(now, index) {
            return;
        }
        let Some(replay) = self.replay_of(index) else {
            return;
        };
        replay.syncs = false;
        if replay.stage == Stage::Syncing {
            replay.stage = Stage::Redo;
            return self.replay_on(now, index);
        }
        self.tell_replay(now, index);
        self.comes_back(now, index);
    }

    /// Reads the log in order, unless it is in memory.
    fn read_log(&mut self, now: u64, index: usize, replay: &mut Replay) {
        let broken = self.broken.as_ref();
        if !broken.is_some_and(|broken| broken.seen[index].life.lost_memory) {
            (replay.asked, replay.there) = (replay.bytes, replay.bytes);
            return;
        }
        let most = self.rules.read_ahead_bytes.max(LEAST_READ_BYTES);
        while replay.reading < LOG_READS && replay.asked < replay.bytes {
            let bytes = most.min(replay.bytes - replay.asked);
            let purpose = Purpose::Piece(LOG);
            let part = (replay.redo + replay.asked, bytes);
            let server = &mut self.servers[index];
            let (storage, ios) = (&mut server.machine.storage, &mut self.course.ios);
            server.log.read(now, part, purpose, storage, ios);
            replay.asked += bytes;
            replay.reading += 1;
        }
    }

    /// Asks for the pages of records whose turn comes soon.
    fn read_ahead(&mut self, now: u64, index: usize, replay: &mut Replay) {
        let Some(broken) = &self.broken else { return };
        let depth = broken.outage.job.replay_depth as usize;
        replay.ahead = replay.ahead.max(replay.next);
        let until = replay.place(replay.next) + AHEAD_BYTES;
        while replay.coming.len() < depth
            && replay.ahead < replay.records.len()
            && replay.place(replay.ahead) <= replay.there.min(until)
        {
            let record = replay.records[replay.ahead];
            replay.ahead += 1;
            if let Record::Change(page) = record
                && !replay.coming.contains(&page)
            {
                self.ask_for(now, index, page, replay);
            }
        }
    }

    /// Reads a page, unless it is in memory; whether it comes.
    fn ask_for(&mut self, now: u64, index: usize, page: u32, replay: &mut Replay) -> bool {
        let storage = &mut self.servers[index].machine.storage;
        let first = u64::from(page) * CACHE_PAGES;
        if self.buffers.holds(page) || storage.absent_runs(first, CACHE_PAGES).is_empty() {
            return false;
        }
        let read = (Op::Read, u64::from(page) * PAGE_BYTES, PAGE_BYTES);
        storage.send(now, &mut self.course.ios, Purpose::Piece(page), read);
        replay.coming.insert(page)
    }

    /// Replays records as far as their pages are there.
    fn redo(&mut self, now: u64, index: usize, replay: &mut Replay) {
        let Some(broken) = &self.broken else { return };
        if replay.works || self.servers[index].write_back.is_full() {
            return;
        }
        let (record_ns, byte_ps) = (
            broken.outage.job.replay_record_cpu_ns,
            broken.outage.job.replay_byte_cpu_ps,
        );
        let first = replay.next;
        let mut pages = 0;
        while replay.next < replay.ahead.min(first + BATCH) {
            let record = replay.records[replay.next];
            if let Record::Change(page) | Record::Whole(page) = record {
                if replay.coming.contains(&page) {
                    break;
                }
                // What was in memory when it was looked for ahead may have had to make room since.
                if record == Record::Change(page) && self.ask_for(now, index, page, replay) {
                    break;
                }
                pages += u64::from(self.has_page(now, page));
            }
            replay.next += 1;
        }
        if replay.next == first {
            return;
        }
        let bytes = replay.place(replay.next) - replay.place(first);
        let records = (replay.next - first) as u64;
        let cpu_ns = records * record_ns
            + bytes * byte_ps / 1000
            + pages * self.rules.parameters.page_read_cpu_ns;
        replay.works = true;
        replay.cpu_ns += cpu_ns;
        let at = self.servers[index].machine.cores.serve(now, cpu_ns);
        self.course.queue.push(at, Event::Replayed(index as u32));
    }

    /// A record has its page in a buffer, and changes it; whether it was not there before.
    pub(super) fn has_page(&mut self, now: u64, page: u32) -> bool {
        let is_new = !self.buffers.holds(page);
        if let Some(old) = self.buffers.keep(page) {
            self.write_to_page_cache(old);
            self.dirty.push_back((now, old));
        }
        self.buffers.change(page);
        is_new
    }

    /// A part of the log, or a page, has been read for a replay.
    pub(super) fn replay_read(&mut self, now: u64, index: usize, piece: u32) {
        if piece != LOG {
            let first = u64::from(piece) * CACHE_PAGES;
            let storage = &mut self.servers[index].machine.storage;
            storage.written(first, first + CACHE_PAGES);
        }
        let most = self.rules.read_ahead_bytes.max(LEAST_READ_BYTES);
        if let Some(replay) = self.replay_of(index) {
            if piece == LOG {
                // A read of a replay that was cut short ends in the next one.
                replay.reading = replay.reading.saturating_sub(1);
                replay.there = (replay.there + most).min(replay.asked);
            } else {
                replay.coming.remove(&piece);
            }
        }
        self.replay_on(now, index);
    }

    /// Writes all that has changed, in buffers and in the page cache.
    pub(super) fn write_all(&mut self, now: u64) {
        let pages = self.buffers.changed();
        for some in pages.chunks(FLUSH_AFTER) {
            for &page in some {
                self.buffers.written(page);
                self.write_to_page_cache(page);
            }
            let cpu_ns = some.len() as u64 * self.rules.parameters.page_read_cpu_ns;
            self.servers[self.primary].machine.cores.serve(now, cpu_ns);
            self.dirty.extend(some.iter().map(|&page| (now, page)));
        }
        self.write_dirty(now, u64::MAX);
    }

    /// Tells of a replay that has ended, or goes on at the end of the run.
    pub(super) fn tell_replay(&mut self, now: u64, index: usize) {
        let Some(replay) = self.take_replay(index) else {
            return;
        };
        let Some(broken) = &mut self.broken else {
            return;
        };
        let machine = &self.servers[index].machine;
        let rebuild = Rebuild {
            node: index,
            kind: "replay",
            begun: replay.begun,
            bytes: replay.bytes,
            done_bytes: replay.done_bytes(),
            sources: 0,
            machines: &[(index, &replay.before, machine)],
            processes: &[("replay process", replay.cpu_ns)],
        };
        broken.outage.tell(now, &rebuild);
        self.put_replay(index, replay);
    }
}
