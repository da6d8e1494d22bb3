//! How changed pages reach the disk: the page cleaner, the doublewrite buffer, and the age of the redo log.
//!
//! **The end of the list:** below half of `innodb_lru_scan_depth` free pages the cleaner goes through the pages that were not used for the
//! longest time until so many are free. Clean ones are free at once. MariaDB's cleaner waits first until nothing is being written, writes
//! every changed page that it passes, however many are on their way, and leaves them where they are: a later pass frees them. Who finds no
//! free page takes a clean one from the end of the list, and waits for a pass where there is none. MySQL's changed pages leave the pool
//! once they are written. **The age of the log:** once a second the cleaner writes pages in the order of their first change, the more
//! the closer the log is to its size. **Doublewrite:** pages are written one behind the other first, synced, then in their places, and
//! synced again; of MariaDB and of MySQL before 8.0.20 one batch at a time, of later ones one of each cleaner.
//! A sync by fsync, and not by fdatasync, also stores the time of the change, with a write to the file system's journal.
//!
//! **Source:** buf0flu.cc (`buf_flush_LRU_list_batch`, `page_cleaner_flush_pages_recommendation`, `af_get_pct_for_lsn`) and buf0dblwr.cc of
//! MariaDB 10.11. Free pages of our server, `innodb_lru_scan_depth` 1536: 768 to 1,536 of 8,112 (2026-11-27), 780 to 1,527 of 5,120
//! (2026-11-29); 119 pages to a batch of the doublewrite buffer, which has room for 128.
//! MySQL: buf0dblwr.cc (`Double_write::write_pages`, `write_complete`) and buf0flu.cc (`get_pct_for_dirty`) of 8.0.
//! **Divergence:** neighbours of a page are not written with it (`innodb_flush_neighbors`), a checkpoint's own block is not written.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use disklab_disk::Op;

use super::job::{BatchEnd, MariadbSettings};
use super::{Mariadb, PAGE_BYTES};
use crate::database::mariadb::event::Event;
use crate::job::Mechanism;
use crate::model::Setting;
use crate::storage::Purpose;

/// Pages of a write into the doublewrite buffer: a block.
const BLOCK_PAGES: usize = 64;
/// Pages that a pass leaves in the pool, and those that who needs one looks at.
/// **Source:** `BUF_LRU_MIN_LEN` of buf0lru.h; `buf_LRU_get_free_block` of buf0lru.cc.
const LEAST_HELD: u32 = 256;
const LOOKED_AT: usize = 100;
/// Pages under way without doublewrite. **Source:** `innodb_write_io_threads`, 4, of 256 I/Os each; Linux lets 128 through.
const DEPTH: u64 = 128;
/// How often the cleaner decides by the age of the log. **Source:** `buf_flush_page_cleaner`.
pub const ROUND_NS: u64 = 1_000_000_000;
/// Rounds after which it looks at its rates again. **Source:** `innodb_flushing_avg_loops`.
const AVERAGED_ROUNDS: u64 = 30;
/// Below this part of the log's size, in percent, age does not count. **Source:** `innodb_adaptive_flushing_lwm`.
const LOW_WATER_PCT: u64 = 10;
/// Percent of changed pages that asks for the whole of `innodb_io_capacity`. **Source:** `innodb_max_dirty_pages_pct` + 1.
const MOST_DIRTY_PCT: u64 = 91;
/// What of the file may be between a page's first change and the end of the log, in permille.
/// **Source:** `Innodb_checkpoint_max_age` of our server: 80,819,529 of a file of 100,663,296.
const MOST_AGE_PERMILLE: u64 = 803;

/// Bytes of a write of the file system's journal: a block.
const JOURNAL_BYTES: u64 = 4096;

/// How often the time of a file's change moves on. **Source:** Linux's `current_time`, which has the clock's last tick; `CONFIG_HZ`, 250.
const TICK_NS: u64 = 4_000_000;

/// Purposes of I/Os: of a sync that nothing waits for.
const SYNC: u8 = 2;
/// And of a part of the redo log that is read after a crash.
pub(super) const RECOVERY: u8 = 3;
/// And of a write of the file system's journal before one of these syncs.
const JOURNAL: u8 = 4;
/// And of a page that purge reads.
const BESIDE: u8 = 5;
/// And of the copies of a batch, by its number, of the sync behind them, and of that behind its pages.
const COPY: u8 = 32;
const COPY_SYNC: u8 = COPY + MOST_BATCHES as u8;
const DATA_SYNC: u8 = COPY_SYNC + MOST_BATCHES as u8;
/// Of a page, whose batch has ended.
const CACHED: u8 = u8::MAX;
/// Batches that are on their way at once, at most.
const MOST_BATCHES: usize = 64;

/// Pages that are written together.
#[derive(Clone, Debug, Default)]
struct Batch {
    /// Those that are not on their way to their places.
    pages: Vec<(u32, bool)>,
    copies_left: u32,
    pages_left: u32,
}

/// What the cleaner goes by: bytes of the log and pages in a round, of which it looks at once in many.
///
/// **Source:** `page_cleaner_flush_pages_recommendation`, which counts pages of the list of changes alone, none that leave the pool.
#[derive(Debug, Default)]
struct Averages {
    rounds: u64,
    /// Where the log ended when they were made.
    from: u64,
    log_rate: u64,
    page_rate: u64,
}

/// What is on its way to the disk.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    doublewrite: bool,
    adaptive: bool,
    batch_pages: usize,
    /// Writes of the file system's journal for a transaction, and those left of the one under way.
    journal_writes: u32,
    journal_left: u32,
    /// Syncs that wait for the transaction under way, and those that wait for the next one.
    committing: Vec<u8>,
    joining: Vec<u8>,
    /// By purpose of a sync: the tick in which the time of its files has changed last.
    changed_in: HashMap<u8, u64>,
    /// Percent of the pool above which changed pages are written whatever the age of the log; 0: never.
    dirty_pct_lwm: u32,
    /// Pages that have a change.
    dirty: u64,
    most_age: u64,
    pub io_capacity: u64,
    io_capacity_max: u64,
    depth: u32,
    /// By their first change: position of the redo log, and page. One that is clean again is passed over.
    changed: VecDeque<(u64, u32)>,
    /// By page: the position of its first change that has not been written.
    first_change: HashMap<u32, u64>,
    /// Pages that a batch takes next; with whether they leave the pool then.
    waiting: VecDeque<(u32, bool)>,
    /// Batches on their way, as many as may be.
    batches: Vec<Option<Batch>>,
    until: BatchEnd,
    under_way: u64,
    /// Whether the cleaner goes in passes, as MariaDB's; pages that leave the pool once they are written: MySQL's.
    passes: bool,
    leaving: u32,
    averages: Averages,
    /// Pages written for the age of the log since its averages were made.
    written: u64,
    unsynced: bool,
}

impl Flushing {
    pub fn new(settings: &MariadbSettings, setting: &Setting) -> Flushing {
        let most_batches = if setting.has(Mechanism::DoublewriteBatches) {
            settings.doublewrite_batches as usize
        } else {
            MOST_BATCHES
        };
        Flushing {
            doublewrite: settings.doublewrite && setting.has(Mechanism::Doublewrite),
            adaptive: setting.has(Mechanism::AdaptiveFlushing),
            batch_pages: settings.doublewrite_pages as usize,
            journal_writes: settings.time_journal_writes,
            dirty_pct_lwm: settings.dirty_pages_pct_lwm,
            most_age: (settings.log_file_bytes * MOST_AGE_PERMILLE / 1000).max(1),
            io_capacity: u64::from(settings.io_capacity.max(1)),
            io_capacity_max: u64::from(settings.io_capacity_max.max(settings.io_capacity).max(1)),
            depth: settings.lru_scan_depth,
            batches: vec![None; most_batches],
            until: settings.doublewrite_until,
            passes: settings.lru_passes && setting.has(Mechanism::LruPasses),
            ..Flushing::default()
        }
    }

    /// Notes a change of a page at a position of the log.
    pub fn change(&mut self, page: u32, position: u64) {
        if let Entry::Vacant(first) = self.first_change.entry(page) {
            first.insert(position);
            self.dirty += 1;
            self.changed.push_back((position, page));
        }
    }

    /// Whether a page has a change that no disk has.
    pub fn has_changed(&self, page: u32) -> bool {
        self.first_change.contains_key(&page)
    }

    /// Whether nothing is on its way, or about to be.
    pub fn is_idle(&self) -> bool {
        let is_none = self.batches.iter().all(Option::is_none);
        self.waiting.is_empty() && is_none && self.under_way == 0
    }

    /// The server has been killed: what it was about to write is changed as before. Pages whose writes had begun are written.
    pub fn forget(&mut self, checkpoint: u64) {
        for batch in self.batches.iter_mut().filter_map(Option::take) {
            for (page, _) in batch.pages {
                self.first_change.insert(page, checkpoint);
                self.dirty += 1;
                self.changed.push_front((checkpoint, page));
            }
        }
        self.waiting.clear();
        self.journal_left = 0;
        self.committing.clear();
        self.joining.clear();
        (self.under_way, self.leaving, self.unsynced) = (0, 0, false);
    }

    /// How far the log is beyond the first change that no disk has.
    pub fn age(&mut self, end: u64) -> u64 {
        while let Some(&(position, page)) = self.changed.front() {
            if self.first_change.get(&page) == Some(&position) {
                return end - position;
            }
            self.changed.pop_front();
        }
        0
    }
}

impl Mariadb {
    /// Whether the log has no room until pages are written.
    pub(super) fn log_is_full(&mut self) -> bool {
        let end = self.redo.end;
        self.flushing.age(end) > self.flushing.most_age
    }

    /// Frees pages at the end of the list, if too few are free.
    pub(super) fn free_pages(&mut self, now: u64) {
        if self.flushing.passes {
            return self.pass(now);
        }
        // A small pool cannot have so many free ones.
        let depth = self.flushing.depth.min(self.pool.capacity() / 4).max(2);
        let mut free = self.pool.free() + self.flushing.leaving;
        if free >= depth / 2 {
            return;
        }
        let mut at = self.pool.oldest();
        while let Some(page) = at
            && free < depth
        {
            at = self.pool.newer(page);
            if self.is_writing[page as usize] {
                continue;
            }
            if self.pool.is_dirty(page) {
                self.queue_write(page, true);
            } else {
                self.pool.evict(page);
            }
            free += 1;
        }
        self.write_on(now);
    }

    /// A pass of MariaDB's cleaner, if too few are free, or somebody waits for one, and nothing is being written.
    ///
    /// **Source:** `buf_flush_page_cleaner` and `buf_flush_LRU_list_batch` of buf0flu.cc.
    fn pass(&mut self, now: u64) {
        let most_free = self.pool.capacity() - LEAST_HELD.min(self.pool.capacity() / 2);
        let (depth, free) = (self.flushing.depth, self.pool.free());
        let is_wanted = free < most_free.min(depth / 2) || !self.pageless.is_empty();
        if !is_wanted || !self.flushing.is_idle() {
            return;
        }
        let (mut at, mut written) = (self.pool.oldest(), 0);
        while let Some(page) = at
            && self.pool.free() < most_free.min(depth)
            && written < self.flushing.io_capacity_max
        {
            at = self.pool.newer(page);
            if self.pool.is_dirty(page) {
                self.queue_write(page, false);
                written += 1;
            } else {
                self.pool.evict(page);
            }
        }
        self.write_on(now);
        self.pages_are_free(now);
    }

    /// Frees a clean page at the end of the list; whether there is one.
    pub(super) fn free_clean_page(&mut self) -> bool {
        let pool = &self.pool;
        let oldest = std::iter::successors(pool.oldest(), |&page| pool.newer(page));
        let mut oldest = oldest.take(LOOKED_AT);
        let is_clean = |&page: &u32| !pool.is_dirty(page) && !self.is_writing[page as usize];
        let clean = oldest.find(is_clean);
        if let Some(page) = clean {
            self.pool.evict(page);
        }
        clean.is_some()
    }

    fn queue_write(&mut self, page: u32, leaves: bool) {
        self.is_writing[page as usize] = true;
        self.flushing.leaving += u32::from(leaves);
        self.flushing.waiting.push_back((page, leaves));
    }

    /// A round of the cleaner.
    pub(super) fn cleaner_round(&mut self, now: u64) {
        if self.runs() {
            self.clean(now);
            self.purge_round(now);
        }
        self.course.queue.push(now + ROUND_NS, Event::Cleaner);
    }

    fn clean(&mut self, now: u64) {
        let end = self.redo.end;
        let age = self.flushing.age(end);
        let flushing = &mut self.flushing;
        let count = if age > flushing.most_age / 8 * 7 {
            // As many as it takes, so that nobody has to wait for room in the log.
            u64::MAX
        } else if flushing.adaptive {
            flushing.wanted(end, age, self.pool.capacity())
        } else {
            0
        };
        self.write_oldest(count);
        self.write_on(now);
        self.merge_round(now);
        if self.flushing.unsynced && !self.flushing.doublewrite {
            self.flushing.unsynced = false;
            self.sync_data(now, SYNC);
        }
        self.make_checkpoint(0);
    }

    /// Recovery begins at the first change that no disk has, if the last checkpoint is so far behind the end of the log.
    pub(super) fn make_checkpoint(&mut self, least: u64) {
        let end = self.redo.end;
        if let Some(broken) = &mut self.broken
            && end - broken.checkpoint >= least
        {
            broken.checkpoint = end - self.flushing.age(end);
        }
    }

    /// Writes so many pages in the order of their first change.
    pub(super) fn write_oldest(&mut self, count: u64) {
        let target = self.redo.end.saturating_sub(self.flushing.most_age / 8 * 6);
        let mut pages = Vec::new();
        for &(position, page) in &self.flushing.changed {
            let enough = match count {
                u64::MAX => position >= target,
                count => pages.len() as u64 >= count,
            };
            if enough {
                break;
            }
            let is_first = self.flushing.first_change.get(&page) == Some(&position);
            if is_first && !self.is_writing[page as usize] {
                pages.push(page);
            }
        }
        for page in pages {
            self.queue_write(page, false);
        }
    }

    /// Begins batches as long as there is room for them.
    pub(super) fn write_on(&mut self, now: u64) {
        if !self.flushing.doublewrite {
            while self.flushing.under_way < DEPTH
                && let Some((page, leaves)) = self.flushing.waiting.pop_front()
            {
                self.start_write(page);
                self.place(now, (page, leaves), 0);
            }
            return;
        }
        while !self.flushing.waiting.is_empty()
            && let Some(number) = self.flushing.batches.iter().position(Option::is_none)
        {
            self.copy_batch(now, number);
        }
    }

    /// Begins a batch of the doublewrite buffer.
    fn copy_batch(&mut self, now: u64, number: usize) {
        let flushing = &mut self.flushing;
        let count = flushing.waiting.len().min(flushing.batch_pages);
        let pages: Vec<(u32, bool)> = flushing.waiting.drain(..count).collect();
        for &(page, _) in &pages {
            self.start_write(page);
        }
        let mut copies = 0;
        for block in pages.chunks(BLOCK_PAGES) {
            let at = self.copies_at() + u64::from(copies) * BLOCK_PAGES as u64 * PAGE_BYTES;
            let bytes = block.len() as u64 * PAGE_BYTES;
            let purpose = Purpose::Stream(COPY + number as u8);
            self.submit(now, Op::Write, at, bytes, purpose);
            copies += 1;
        }
        self.flushing.batches[number] = Some(Batch {
            pages_left: pages.len() as u32,
            pages,
            copies_left: copies,
        });
    }

    /// Where the doublewrite buffer begins.
    fn copies_at(&self) -> u64 {
        (self.plan.pages + super::UNDO_PAGES) * PAGE_BYTES
    }

    /// A page's changes are those of no page any more: none of them waits to be written.
    pub(super) fn drop_change(&mut self, page: u32) {
        self.pool.mark(page, false);
        if self.flushing.first_change.remove(&page).is_some() {
            self.flushing.dirty -= 1;
        }
    }

    /// A page's content is taken as it is now: what changes from here on is written another time.
    fn start_write(&mut self, page: u32) {
        self.drop_change(page);
        let cpu_ns = self.rules.parameters.page_write_cpu_ns;
        let now = self.course.queue.now();
        self.machine.cores.serve(now, cpu_ns);
    }

    /// Writes a page of a batch to its place.
    fn place(&mut self, now: u64, (page, leaves): (u32, bool), batch: u8) {
        let purpose = Purpose::Pages {
            from: u64::from(page << 1 | u32::from(leaves)),
            to: 0,
            waiter: 0,
            place: u32::from(batch),
        };
        let at = u64::from(page) * PAGE_BYTES;
        self.submit(now, Op::Write, at, PAGE_BYTES, purpose);
        self.flushing.under_way += 1;
    }

    fn batch(&mut self, number: u8) -> &mut Batch {
        let batch = self.flushing.batches[usize::from(number)].as_mut();
        batch.expect("it is on its way")
    }

    /// A batch has been copied: its pages go to their places.
    fn place_batch(&mut self, now: u64, number: u8) {
        let pages = std::mem::take(&mut self.batch(number).pages);
        let is_cached = self.flushing.until == BatchEnd::Cached;
        for &page in &pages {
            self.place(now, page, if is_cached { CACHED } else { number });
        }
        if is_cached {
            self.flushing.batches[usize::from(number)] = None;
            self.sync_data(now, SYNC);
        }
    }

    /// All pages of a batch are in their places.
    fn batch_placed(&mut self, now: u64, number: u8) {
        if self.flushing.until == BatchEnd::Synced {
            return self.sync_data(now, DATA_SYNC + number);
        }
        self.flushing.batches[usize::from(number)] = None;
        self.sync_data(now, SYNC);
    }

    fn submit(&mut self, now: u64, op: Op, at: u64, bytes: u64, purpose: Purpose) {
        let storage = &mut self.machine.storage;
        storage.send(now, &mut self.course.ios, purpose, (op, at, bytes));
    }

    /// Reads a page into a free one, which nobody waits for.
    pub(super) fn read_beside(&mut self, now: u64, page: u32) {
        let at = u64::from(page) * PAGE_BYTES;
        self.submit(now, Op::Read, at, PAGE_BYTES, Purpose::Stream(BESIDE));
        self.take_page(now, page);
    }

    /// Syncs; before that the file system's journal, if it is written: the transaction under way is closed already, and all syncs
    /// that come meanwhile share the next one. **Source:** `jbd2_log_wait_commit` of Linux.
    fn sync_data(&mut self, now: u64, which: u8) {
        let tick = now / TICK_NS;
        let is_same_time = self.flushing.changed_in.insert(which, tick) == Some(tick);
        if self.flushing.journal_writes == 0 || is_same_time {
            self.submit(now, Op::Flush, 0, 0, Purpose::Stream(which));
        } else {
            self.flushing.joining.push(which);
            self.begin_transaction(now);
        }
    }

    fn begin_transaction(&mut self, now: u64) {
        let flushing = &mut self.flushing;
        if flushing.journal_left == 0 && !flushing.joining.is_empty() {
            flushing.committing = std::mem::take(&mut flushing.joining);
            flushing.journal_left = flushing.journal_writes;
            self.write_journal(now);
        }
    }

    fn write_journal(&mut self, now: u64) {
        // Where copies go, which no disk tells from the journal's own blocks.
        let (at, purpose) = (self.copies_at(), Purpose::Stream(JOURNAL));
        self.submit(now, Op::Write, at, JOURNAL_BYTES, purpose);
    }

    /// A write of the journal has ended.
    fn journal_written(&mut self, now: u64) {
        self.flushing.journal_left -= 1;
        if self.flushing.journal_left > 0 {
            self.write_journal(now);
        } else {
            for which in std::mem::take(&mut self.flushing.committing) {
                self.submit(now, Op::Flush, 0, 0, Purpose::Stream(which));
            }
            self.begin_transaction(now);
        }
    }

    /// An I/O of the doublewrite buffer has ended, or a sync.
    pub(super) fn stream_ended(&mut self, now: u64, which: u8) {
        match which {
            COPY..COPY_SYNC => {
                let number = which - COPY;
                let batch = self.batch(number);
                batch.copies_left -= 1;
                if batch.copies_left > 0 {
                    return;
                }
                if self.flushing.until != BatchEnd::Placed {
                    return self.sync_data(now, COPY_SYNC + number);
                }
                self.place_batch(now, number);
            }
            COPY_SYNC..DATA_SYNC => self.place_batch(now, which - COPY_SYNC),
            DATA_SYNC.. => self.flushing.batches[usize::from(which - DATA_SYNC)] = None,
            RECOVERY => return self.part_read(now),
            JOURNAL => return self.journal_written(now),
            _ => {}
        }
        self.write_on(now);
        self.free_pages(now);
    }

    /// A page has been written to its place.
    pub(super) fn page_written(&mut self, now: u64, page: u32, batch: u8) {
        let (page, leaves) = (page >> 1, page & 1 == 1);
        let flushing = &mut self.flushing;
        flushing.under_way -= 1;
        flushing.written += u64::from(!leaves);
        flushing.unsynced = true;
        self.is_writing[page as usize] = false;
        if leaves {
            flushing.leaving -= 1;
            if !self.pool.is_dirty(page) && self.pool.holds(page) {
                self.pool.evict(page);
            }
        }
        if self.flushing.doublewrite && batch != CACHED {
            self.batch(batch).pages_left -= 1;
            if self.batch(batch).pages_left == 0 {
                self.batch_placed(now, batch);
            }
        }
        self.write_on(now);
        self.free_pages(now);
        self.pages_are_free(now);
        // A log that is full has room behind a checkpoint alone.
        self.make_checkpoint(self.flushing.most_age);
        self.log_has_room(now);
    }
}

impl Flushing {
    /// How many pages the age of the log, and its pace, ask for in this round.
    fn wanted(&mut self, end: u64, age: u64, pool_pages: u32) -> u64 {
        let averages = &mut self.averages;
        averages.rounds += 1;
        if averages.rounds == AVERAGED_ROUNDS {
            let written = std::mem::take(&mut self.written);
            averages.log_rate = (averages.log_rate + (end - averages.from) / AVERAGED_ROUNDS) / 2;
            averages.page_rate = (averages.page_rate + written / AVERAGED_ROUNDS) / 2;
            (averages.rounds, averages.from) = (0, end);
        }
        let (log_rate, page_rate) = (averages.log_rate, averages.page_rate);
        let dirty_pct = self.dirty * 100 / u64::from(pool_pages);
        let by_dirty = match self.dirty_pct_lwm {
            0 => 0,
            low_water if dirty_pct < u64::from(low_water) => 0,
            _ => dirty_pct * 100 / MOST_DIRTY_PCT,
        };
        let is_young = age < self.most_age * LOW_WATER_PCT / 100;
        if is_young && by_dirty == 0 {
            return 0;
        }
        let factor = (age * 100 / (self.most_age / 8 * 7).max(1)) as f64;
        let by_age = if is_young {
            0.0
        } else {
            (self.io_capacity_max / self.io_capacity) as f64 * factor * factor.sqrt() / 7.5
        };
        let percent = by_age.max(by_dirty as f64);
        let by_state = (self.io_capacity as f64 * percent / 100.0) as u64;
        // Pages whose first change is within three rounds' log of the oldest.
        let from = end - age;
        let ahead = self.changed.iter();
        let ahead = ahead.take_while(|&&(position, _)| position < from + 3 * log_rate);
        let by_log = (ahead.count() as u64 / 3).min(2 * self.io_capacity_max);
        ((by_state + page_rate + by_log) / 3).min(self.io_capacity_max)
    }
}
