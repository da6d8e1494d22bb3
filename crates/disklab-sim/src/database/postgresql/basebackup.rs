//! A standby that gets a copy of the primary's data (`pg_basebackup`) with the log that is written meanwhile.
//!
//! The primary writes a checkpoint as fast as it can. Then one process of it reads its files in their order and sends them:
//! what its page cache does not have is read a window of Linux's read-ahead at a time, the next one while one is sent. One
//! program on the new server writes them into the page cache, from where Linux brings them to the disk, and waits when too
//! much is there that is not written. Another connection brings the log. At the end everything is synced; then the server
//! starts and replays the log from that checkpoint on.
//!
//! **Source:** basebackup.c (`perform_base_backup`, `sendFile`), pg_basebackup.c and receivelog.c (a segment is synced when it
//! is full) of PostgreSQL 15; `balance_dirty_pages` of Linux.
//! **Divergence:** a copy whose primary is gone begins again when there is one; pg_basebackup ends, and somebody starts it.

use std::collections::VecDeque;

use disklab_disk::Op;

use super::changes::{History, Record};
use super::event::{CopyPlace, CopyStep, Event};
use super::packing::PAGE_BYTES;
use super::server::{CACHE_PAGES, RECOVERY_SYNC};
use super::{EXPIRE_NS, Postgresql};
use crate::bound::Before;
use crate::database::recovery::{Rebuild, left_ns};
use crate::database::servers::Phase;
use crate::report::Resource;
use crate::storage::Purpose;

/// Smallest read of a file. **Source:** `SINK_BUFFER_LENGTH` of basebackup.c, 32 KiB.
const LEAST_READ_BYTES: u64 = 32 << 10;

/// What is on its way at most. **Source:** `tcp_rmem` of Linux ends at 6 MiB, half of which is window.
const ON_THE_WAY_BYTES: u64 = 3 << 20;

/// A file of the log. **Source:** `wal_segment_size`, 16 MB.
const SEGMENT_BYTES: u64 = 16 << 20;

/// A program that changes pages has to wait when there are this many times the changed pages at which Linux begins to
/// write.
/// **Source:** `dirty_ratio` is twice `dirty_background_ratio`.
const MOST_DIRTY: u64 = 2;

/// Of a piece that is read: it is a part of a copy. A page's number is below that, and the log's is above.
const COPY: u32 = 1 << 30;

/// Where nothing is full, a copy that has waited for this share of its time for reads of the source is bound by them.
const WAITS_FOR_READS: f64 = 0.5;

/// The next window is read while the last one is sent.
const WINDOWS: u64 = 2;

/// Where a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It waits for its primary, or for the end of another checkpoint.
    #[default]
    Asked,
    /// The primary writes the checkpoint that it begins with.
    Checkpoint,
    /// Files are copied.
    Files,
    /// What has come is written and synced.
    Syncing,
}

/// A copy under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Copying {
    stage: Stage,
    round: u8,
    /// When files began to come, and what each server had done then.
    begun: u64,
    before: Vec<Before>,
    /// Where the log begins that it needs, how many records were before, and where that log ends.
    redo: u64,
    records: u64,
    end: Option<u64>,
    /// Bytes of the files in all, and those that were asked for, are read, sent, have come, and are in the page cache.
    bytes: u64,
    asked: u64,
    read: u64,
    sent: u64,
    come: u64,
    taken: u64,
    /// I/Os of the read under way, and when it began.
    reading: u32,
    since: u64,
    /// What the process sends, and the program takes, right now.
    sending: u64,
    taking: u64,
    on_the_way: VecDeque<u64>,
    /// Up to which page the page cache had the copy, and when.
    marks: VecDeque<(u64, u64)>,
    /// The page up to which Linux has been asked to write.
    written: u64,
    log_sent: u64,
    syncs: bool,
    /// When it began to sync, and the pages that were not written then.
    syncs_since: u64,
    unwritten: u64,
    /// Time for which reads were waited for, and CPU of both ends.
    reading_ns: u64,
    sender_ns: u64,
    taker_ns: u64,
}

impl Copying {
    fn new(round: u8) -> Copying {
        Copying {
            round,
            ..Copying::default()
        }
    }

    /// How long it still takes at the rate that was seen; `waiting`: pages that are to be written, `most`: those from
    /// which on Linux writes, so that the disk sets the pace.
    pub fn left_ns(&self, now: u64, waiting: u64, most: u64) -> u64 {
        let unwritten = self.taken / PAGE_BYTES - self.written + waiting;
        let (since, done, left) = match self.stage {
            Stage::Syncing => {
                let pages = self.unwritten;
                (self.syncs_since, pages.saturating_sub(unwritten), unwritten)
            }
            _ if unwritten >= most => {
                let done = self.taken / PAGE_BYTES - unwritten.min(self.taken / PAGE_BYTES);
                (self.begun, done, self.bytes / PAGE_BYTES - done)
            }
            _ => (self.begun, self.taken, self.bytes - self.taken),
        };
        left_ns(now, since, done, left)
    }

    /// Bytes of files and log that have come; of those that are synced at the end, what is written.
    fn done_bytes(&self, waiting: u64) -> u64 {
        let unwritten = match self.stage {
            Stage::Syncing => (self.bytes / PAGE_BYTES - self.written + waiting) * PAGE_BYTES,
            _ => 0,
        };
        self.taken.saturating_sub(unwritten) + self.log_bytes()
    }

    fn log_bytes(&self) -> u64 {
        self.log_sent - self.redo
    }
}

/// Whose copy a piece belongs to, and which try of it; None: it belongs to none.
pub(super) fn copy_of(piece: u32) -> Option<(usize, u8)> {
    let [target, round, ..] = piece.to_le_bytes();
    (piece >> 30 == COPY >> 30).then_some((usize::from(target), round))
}

/// What a server needs that starts on a copy: where its log begins, and how many records are before that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    redo: u64,
    records: u64,
}

impl Copied {
    /// What of the log is replayed.
    pub fn history(self, kept: &History) -> History {
        let records = kept.count.saturating_sub(self.records) as usize;
        History::of(self.redo, vec![Record::Commit; records])
    }
}

impl Postgresql {
    /// An empty server begins to get its copy.
    pub(super) fn begin_copy(&mut self, now: u64, index: usize) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let seen = &mut broken.seen[index];
        seen.rounds = seen.rounds.wrapping_add(1);
        let copying = Box::new(Copying::new(seen.rounds));
        seen.is_part = true;
        seen.looks_at = None;
        self.put_copy(index, copying);
        let server = &mut self.servers[index];
        server.write_back.forget();
        // Standbys have no reads of their own, so that nothing is on its way into it.
        server.machine.storage.drop_page_cache();
        self.copy_on(now, index);
    }

    /// The primary is gone: what has been copied is worth nothing.
    pub(super) fn cut_copies_short(&mut self, now: u64) {
        for index in 0..self.servers.len() {
            if self.copy_at(index).is_some() {
                self.begin_copy(now, index);
            }
        }
    }

    /// Whether a copy wants a checkpoint to begin now.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.is_asked_for(Stage::Asked) && !self.changes.checkpoints.is_under_way()
    }

    /// Whether a copy waits for a checkpoint.
    pub(super) fn hurries(&self) -> bool {
        self.is_asked_for(Stage::Asked) || self.is_asked_for(Stage::Checkpoint)
    }

    fn is_asked_for(&self, stage: Stage) -> bool {
        let broken = self.broken.as_ref();
        let mut copies = broken.iter().flat_map(|broken| broken.copies());
        copies.any(|copy| copy.stage == stage)
    }

    /// A checkpoint has begun: it is that of the copies which have asked for one.
    pub(super) fn begins_for_copies(&mut self) {
        for index in 0..self.servers.len() {
            let redo = self.changes.log;
            let records = self.changes.history.as_ref().map_or(0, |one| one.count);
            if let Some(copy) = self.copy_at(index)
                && copy.stage == Stage::Asked
            {
                (copy.stage, copy.redo, copy.records) = (Stage::Checkpoint, redo, records);
            }
        }
    }

    /// A checkpoint has ended: copies that it was for begin with their files.
    pub(super) fn ends_for_copies(&mut self, now: u64) {
        for index in 0..self.servers.len() {
            let is_mine = |copy: &mut Copying| copy.stage == Stage::Checkpoint;
            if self.copy_at(index).is_some_and(is_mine) {
                self.begin_files(now, index);
            }
        }
    }

    fn begin_files(&mut self, now: u64, index: usize) {
        let bytes = self.changes.pages() * PAGE_BYTES;
        let servers = self.servers.iter();
        let before = servers
            .map(|server| Before::of(now, &server.machine))
            .collect();
        let Some(copy) = self.copy_at(index) else {
            return;
        };
        (copy.stage, copy.begun, copy.before) = (Stage::Files, now, before);
        (copy.bytes, copy.log_sent) = (bytes, copy.redo);
        let redo = copy.redo;
        self.servers[index].log.begin_at(redo);
        self.servers[index].received = redo;
        self.copy_on(now, index);
    }

    /// A part of a copy has got to its next place.
    pub(super) fn copy_goes_on(&mut self, now: u64, step: CopyStep) {
        let index = usize::from(step.target);
        let primary = self.primary;
        let way = self.clients.paths.delay(primary, index);
        let Some(mut copy) = self.take_copy(index) else {
            return;
        };
        if copy.round == step.round {
            match step.at {
                CopyPlace::Sent => {
                    let bytes = std::mem::take(&mut copy.sending);
                    copy.sent += bytes;
                    copy.on_the_way.push_back(bytes);
                    let left = self.servers[primary].machine.link.send(now, now, bytes);
                    self.push_copy(left + way, index, &copy, CopyPlace::Come);
                }
                CopyPlace::Come => copy.come += copy.on_the_way.pop_front().unwrap_or(0),
                CopyPlace::Taken => {
                    let from = copy.taken / PAGE_BYTES;
                    copy.taken += std::mem::take(&mut copy.taking);
                    let to = copy.taken / PAGE_BYTES;
                    copy.marks.push_back((now, to));
                    let storage = &mut self.servers[index].machine.storage;
                    storage.written(from * CACHE_PAGES, to * CACHE_PAGES);
                }
            }
        }
        self.put_copy(index, copy);
        self.copy_on(now, index);
    }

    fn push_copy(&mut self, at: u64, index: usize, copy: &Copying, place: CopyPlace) {
        let step = CopyStep {
            target: index as u8,
            round: copy.round,
            at: place,
        };
        self.course.queue.push(at, Event::Copied(step));
    }

    /// A part of the primary's files has been read.
    pub(super) fn copy_read(&mut self, now: u64, index: usize, round: u8) {
        let Some(mut copy) = self.take_copy(index) else {
            return;
        };
        if copy.round == round {
            copy.reading -= 1;
            if copy.reading == 0 {
                copy.reading_ns += now - copy.since;
                let (from, to) = (copy.read / PAGE_BYTES, copy.asked / PAGE_BYTES);
                copy.read = copy.asked;
                let storage = &mut self.servers[self.primary].machine.storage;
                storage.written(from * CACHE_PAGES, to * CACHE_PAGES);
            }
        }
        self.put_copy(index, copy);
        self.copy_on(now, index);
    }

    /// Goes on with a copy as far as it can.
    pub(super) fn copy_on(&mut self, now: u64, index: usize) {
        let Some(mut copy) = self.take_copy(index) else {
            return;
        };
        match copy.stage {
            Stage::Asked if self.serves() && !self.plan.writes => {
                self.put_copy(index, copy);
                return self.begin_files(now, index);
            }
            // The checkpointer looks for those who ask.
            Stage::Asked | Stage::Checkpoint => {}
            Stage::Files => {
                self.read_for_copy(now, index, &mut copy);
                self.send_copy(now, index, &mut copy);
                self.take_what_has_come(now, index, &mut copy);
                self.copy_log(now, index, &mut copy);
                self.wash(now, index, &mut copy);
                self.end_files(now, index, &mut copy);
            }
            Stage::Syncing => {
                self.copy_log(now, index, &mut copy);
                self.wash(now, index, &mut copy);
                let server = &mut self.servers[index];
                let end = copy.end.unwrap_or(0);
                let is_there = copy.log_sent >= end && server.log.synced() >= copy.log_sent;
                if is_there && server.write_back.is_idle() && !copy.syncs {
                    copy.syncs = true;
                    server.sync_data(now, RECOVERY_SYNC, &mut self.course.ios);
                }
            }
        }
        self.put_copy(index, copy);
    }

    /// Has the next part of the primary's files read, unless its page cache has them.
    fn read_for_copy(&mut self, now: u64, index: usize, copy: &mut Copying) {
        let window = self.rules.read_ahead_bytes.max(LEAST_READ_BYTES);
        let primary = self.primary;
        while copy.reading == 0
            && copy.asked < copy.bytes
            && copy.asked - copy.sent < WINDOWS * window
        {
            let bytes = window.min(copy.bytes - copy.asked);
            let storage = &mut self.servers[primary].machine.storage;
            let first = copy.asked / PAGE_BYTES * CACHE_PAGES;
            let runs = storage.absent_runs(first, bytes / PAGE_BYTES * CACHE_PAGES);
            copy.asked += bytes;
            if runs.is_empty() {
                copy.read = copy.asked;
                continue;
            }
            (copy.reading, copy.since) = (runs.len() as u32, now);
            let piece = COPY | u32::from(copy.round) << 8 | index as u32;
            let page_bytes = PAGE_BYTES / CACHE_PAGES;
            for (from, to) in runs {
                let read = (Op::Read, from * page_bytes, (to - from) * page_bytes);
                storage.send(now, &mut self.course.ios, Purpose::Piece(piece), read);
            }
        }
    }

    /// The primary's process sends what it has read.
    fn send_copy(&mut self, now: u64, index: usize, copy: &mut Copying) {
        let on_the_way = copy.sent - copy.taken - copy.taking;
        if copy.sending > 0 || copy.sent == copy.read || on_the_way >= ON_THE_WAY_BYTES {
            return;
        }
        let window = self.rules.read_ahead_bytes.max(LEAST_READ_BYTES);
        copy.sending = window.min(copy.read - copy.sent);
        let cpu_ns = copy.sending * self.send_byte_ps() / 1000;
        copy.sender_ns += cpu_ns;
        let at = self.servers[self.primary].machine.cores.serve(now, cpu_ns);
        self.push_copy(at, index, copy, CopyPlace::Sent);
    }

    /// The program on the new server writes what has come into the page cache, unless too much there is not written.
    fn take_what_has_come(&mut self, now: u64, index: usize, copy: &mut Copying) {
        let server = &self.servers[index];
        let dirty = copy.taken / PAGE_BYTES - copy.written + server.write_back.unwritten();
        let most = MOST_DIRTY * self.rules.most_dirty as u64;
        let come = copy.come - copy.taken;
        if copy.taking > 0 || come == 0 || dirty >= most {
            return;
        }
        let window = self.rules.read_ahead_bytes.max(LEAST_READ_BYTES);
        copy.taking = window.min(come);
        let cpu_ns = copy.taking * self.take_byte_ps() / 1000;
        copy.taker_ns += cpu_ns;
        let at = self.servers[index].machine.cores.serve(now, cpu_ns);
        self.push_copy(at, index, copy, CopyPlace::Taken);
    }

    fn send_byte_ps(&self) -> u64 {
        let broken = self.broken.as_ref();
        broken.map_or(0, |one| one.outage.job.copy_send_byte_ps)
    }

    fn take_byte_ps(&self) -> u64 {
        let broken = self.broken.as_ref();
        broken.map_or(0, |one| one.outage.job.copy_take_byte_ps)
    }

    /// The log that was written meanwhile comes, too, up to where the copy ends.
    fn copy_log(&mut self, now: u64, index: usize, copy: &mut Copying) {
        let primary = self.primary;
        let there = self.servers[primary].log.synced();
        let until = copy.end.map_or(there, |end| end.min(there));
        if until > copy.log_sent {
            let bytes = until - copy.log_sent;
            self.servers[primary].machine.link.send(now, now, bytes);
            copy.log_sent = until;
        }
        let server = &mut self.servers[index];
        server.received = copy.log_sent;
        let waits = copy.log_sent - server.log.synced();
        if waits >= SEGMENT_BYTES || copy.stage == Stage::Syncing {
            self.sync_log(now, index, copy.log_sent);
        }
    }

    /// Linux writes what is old, or too much.
    fn wash(&mut self, now: u64, index: usize, copy: &mut Copying) {
        let most = self.rules.most_dirty as u64;
        let server = &mut self.servers[index];
        while let Some(&(since, until)) = copy.marks.front()
            && (copy.stage == Stage::Syncing
                || since + EXPIRE_NS <= now
                || copy.taken / PAGE_BYTES - copy.written > most)
        {
            copy.marks.pop_front();
            server
                .write_back
                .add((copy.written..until).map(|page| page as u32));
            copy.written = until;
        }
        server.write_back(now, &mut self.course.ios);
    }

    /// All files have come: the copy ends where the log is now, and everything is synced.
    fn end_files(&mut self, now: u64, index: usize, copy: &mut Copying) {
        if copy.taken < copy.bytes {
            return;
        }
        let waiting = self.servers[index].write_back.unwritten();
        (copy.stage, copy.syncs_since) = (Stage::Syncing, now);
        copy.unwritten = copy.taken / PAGE_BYTES - copy.written + waiting;
        let end = self.changes.log;
        copy.end = Some(end);
        self.sync_log(now, self.primary, end);
    }

    /// What has come is synced: the server starts on it. False: this was another sync.
    pub(super) fn copy_synced(&mut self, now: u64, index: usize) -> bool {
        let Some(copy) = self.copy_at(index) else {
            return false;
        };
        if !copy.syncs {
            return true;
        }
        let copied = Copied {
            redo: copy.redo,
            records: copy.records,
        };
        self.tell_copy(now, index);
        if let Some(broken) = &mut self.broken {
            let start_ns = broken.outage.job.start_ns;
            let seen = &mut broken.seen[index];
            seen.life.phase = Phase::Starting(now + start_ns);
            (seen.copied, seen.is_part) = (Some(copied), false);
            (seen.life.crashed, seen.life.lost_memory) = (true, false);
        }
        true
    }

    /// Tells of a copy that is there, or goes on at the end of the run.
    pub(super) fn tell_copy(&mut self, now: u64, index: usize) {
        let Some(copy) = self.take_copy(index) else {
            return;
        };
        let waiting = self.servers[index].write_back.unwritten();
        let machine = |end: usize| (end, &copy.before[end], &self.servers[end].machine);
        if copy.begun > 0
            && let Some(broken) = &mut self.broken
        {
            let rebuild = Rebuild {
                node: index,
                kind: "stream",
                begun: copy.begun,
                bytes: copy.bytes + copy.log_bytes(),
                done_bytes: copy.done_bytes(waiting),
                sources: 1,
                machines: &[self.primary, index].map(machine),
                processes: &[
                    ("sending process", copy.sender_ns),
                    ("copying program", copy.taker_ns),
                ],
            };
            let waited = copy.reading_ns as f64 / now.saturating_sub(copy.begun) as f64;
            if let Some(report) = broken.outage.tell(now, &rebuild)
                && report.bound.resource == Resource::none().resource
                && waited >= WAITS_FOR_READS
            {
                report.bound.resource = "reads of the copy".into();
                report.bound.utilisation = waited;
            }
        }
        self.put_copy(index, copy);
    }
}
