//! A log that commits wait for. Each sync writes whole blocks, beginning with the one that the sync before left half full. Commits that arrive
//! during a sync share the next one. Where a file grows, or fills blocks that were only laid out, its syncs have the file system's journal written, too.
//!
//! **Source:** `log_t::write_up_to` (log0log.cc) of MariaDB 10.11, whose writes were of blocks of 4 KiB here;
//! `MYSQL_BIN_LOG::trx_group_commit_leader` (log.cc). Held against our server (2026-11-27, sysbench write-only, one thread): 1,906 B of redo
//! and 813 B of binary log a transaction became 10,921 B of writes; blocks of 4 KiB make 10,911.

use std::collections::VecDeque;

use disklab_disk::{Op, VolumeId};

use crate::storage::{PendingIo, PendingIos, Purpose, Storage};

/// Bytes of a block, where a database says nothing else, and of one of the file system's journal.
pub const BLOCK_BYTES: u64 = 4096;
/// Largest write.
pub const MOST_WRITE_BYTES: u64 = 1 << 20;

/// When a sync has the file system's journal written behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journals {
    /// Each time: the file's size has changed.
    Always,
    /// When it wrote into a block for the first time: the block is marked as written.
    NewBlocks,
}

/// One of a server's logs. Positions are bytes since the beginning of the run.
#[derive(Debug)]
pub struct Log {
    number: u32,
    volume: VolumeId,
    space: (u64, u64),
    block_bytes: u64,
    /// End of what was written into it, or of what is wanted on the disk.
    pub end: u64,
    synced: u64,
    syncing_to: Option<u64>,
    writes_left: u32,
    /// Writes of the file system's journal behind those of a sync, and those left of the one under way.
    journal_writes: u32,
    journals: Journals,
    journal_left: u32,
    /// Sessions that wait, with the position.
    pub waiting: VecDeque<(u64, u32)>,
    syncs: bool,
    /// It is synced with each so many groups of commits, of which so many have come since the last one.
    period: u32,
    groups: u32,
    /// When the sync under way, or the last one, began.
    pub began: u64,
    /// For how long its I/Os waited for limits.
    pub limited_ns: u64,
    /// When its writes had ended, and the device's own sync began.
    written: u64,
    /// When it ended.
    pub ended: u64,
}

impl Log {
    /// An empty log, `number` of the server's, in a part of a volume: first byte and length. It is synced with each `period`
    /// groups, and each sync has so many writes of the file system's journal.
    pub fn new(
        number: u32,
        volume: VolumeId,
        space: (u64, u64),
        (period, journal_writes): (u32, u32),
    ) -> Log {
        Log {
            number,
            volume,
            space,
            block_bytes: BLOCK_BYTES,
            end: 0,
            synced: 0,
            syncing_to: None,
            writes_left: 0,
            journal_writes,
            journals: Journals::Always,
            journal_left: 0,
            waiting: VecDeque::new(),
            syncs: true,
            period,
            groups: 0,
            began: 0,
            limited_ns: 0,
            written: 0,
            ended: 0,
        }
    }

    /// The same, in blocks of another size.
    pub fn in_blocks(self, block_bytes: u64) -> Log {
        Log {
            block_bytes,
            ..self
        }
    }

    /// The same, whose syncs write the journal at other times.
    pub fn with_journals(self, journals: Journals) -> Log {
        Log { journals, ..self }
    }

    /// Up to where it is on the disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// A session waits until what is there now is on the disk.
    pub fn wait(&mut self, session: u32) {
        self.waiting.push_back((self.end, session));
    }

    /// All who wait become a group, unless a sync is under way: it syncs all that is there, or, between two periods, goes
    /// on at once, and is put into `done`.
    pub fn sync(
        &mut self,
        now: u64,
        storage: &mut Storage,
        ios: &mut PendingIos,
        done: &mut Vec<u32>,
    ) {
        if self.waiting.is_empty() || self.syncing_to.is_some() {
            return;
        }
        self.groups += 1;
        if self.groups < self.period {
            return done.extend(self.waiting.drain(..).map(|(_, session)| session));
        }
        self.groups = 0;
        self.write(now, true, storage, ios);
    }

    /// Writes all that is there, unless that is under way or nothing is new; `syncs`: it is synced behind it.
    pub fn write(&mut self, now: u64, syncs: bool, storage: &mut Storage, ios: &mut PendingIos) {
        if self.syncing_to.is_some() || self.end == self.synced {
            return;
        }
        self.syncs = syncs;
        let block = self.block_bytes;
        let is_new = self.end.div_ceil(block) > self.synced.div_ceil(block);
        let journals = syncs && (self.journals == Journals::Always || is_new);
        self.journal_left = if journals { self.journal_writes } else { 0 };
        (self.began, self.limited_ns, self.syncing_to) = (now, 0, Some(self.end));
        let (start, length) = self.space;
        let mut at = self.synced / block * block;
        let end = self.end.next_multiple_of(block);
        while at < end {
            let place = at % length;
            let bytes = (end - at).min(MOST_WRITE_BYTES).min(length - place);
            self.writes_left += 1;
            self.submit(now, Op::Write, (start + place, bytes), storage, ios);
            at += bytes;
        }
        if self.writes_left == 0 {
            self.finish_sync(now, storage, ios);
        }
    }

    /// The data are written: the next write of the journal, or the sync itself.
    fn finish_sync(&mut self, now: u64, storage: &mut Storage, ios: &mut PendingIos) {
        if self.journal_left == 0 {
            return self.submit(now, Op::Flush, (0, 0), storage, ios);
        }
        let is_first = self.journal_left == self.journal_writes;
        // Its head and the file's inode, and behind them the block that says that it is whole.
        let bytes = match self.journals {
            Journals::NewBlocks if is_first => 2 * BLOCK_BYTES,
            _ => BLOCK_BYTES,
        };
        self.journal_left -= 1;
        self.writes_left = 1;
        // At the log's first block, which no disk tells from the journal's.
        self.submit(now, Op::Write, (self.space.0, bytes), storage, ios);
    }

    fn submit(
        &self,
        now: u64,
        op: Op,
        (at, bytes): (u64, u64),
        storage: &mut Storage,
        ios: &mut PendingIos,
    ) {
        let io = ios.add(PendingIo::new(storage.number(), Purpose::Log(self.number)));
        storage.submit(now, self.volume, op, at, bytes as u32, io);
    }

    /// Whether nothing of it is on its way.
    pub fn is_idle(&self) -> bool {
        self.syncing_to.is_none()
    }

    /// It goes on from a position, without what is before that: another server's log had it.
    pub fn begin_at(&mut self, position: u64) {
        self.synced = position;
        self.syncing_to = self.syncing_to.map(|_| position);
    }

    /// Its server has ended; what was written is there for the next life.
    pub fn end_life(&mut self) {
        (self.synced, self.syncing_to) = (self.end, None);
        (self.writes_left, self.journal_left) = (0, 0);
        self.waiting.clear();
    }

    /// Reads bytes of it from a position on, up to the end of its part of the volume.
    pub fn read(
        &self,
        now: u64,
        (at, bytes): (u64, u64),
        purpose: Purpose,
        storage: &mut Storage,
        ios: &mut PendingIos,
    ) {
        let io = ios.add(PendingIo::new(storage.number(), purpose));
        let (start, length) = self.space;
        let place = at % length;
        let bytes = bytes.min(length - place) as u32;
        storage.submit(now, self.volume, Op::Read, start + place, bytes, io);
    }

    /// An I/O of it has ended, which had passed all limits at `passed`. Puts those whose wait is over into `done`.
    pub fn io_ended(
        &mut self,
        (now, passed): (u64, u64),
        storage: &mut Storage,
        ios: &mut PendingIos,
        done: &mut Vec<u32>,
    ) {
        if self.writes_left > 0 {
            let limited_ns = passed.saturating_sub(self.began);
            self.limited_ns = self.limited_ns.max(limited_ns);
            self.writes_left -= 1;
            if self.writes_left > 0 {
                return;
            }
            self.written = now;
            if self.syncs {
                return self.finish_sync(now, storage, ios);
            }
        }
        self.limited_ns += passed.saturating_sub(self.written);
        self.ended = now;
        self.synced = self.syncing_to.take().unwrap_or(self.synced);
        while let Some(&(position, session)) = self.waiting.front()
            && position <= self.synced
        {
            self.waiting.pop_front();
            done.push(session);
        }
    }
}
