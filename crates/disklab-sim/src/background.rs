//! What a node does on its own: commit log, memtable flush, compaction, as streams of large writes.
//!
//! Tables are written through the page cache: a thread fills it at its own pace, and then waits until
//! that is on the disk. With `trickle_fsync` it does so every few MiB, without it once, at the end of
//! the table. **Source:** `SequentialWriter.syncDataOnly` of Cassandra 3.11, called by the writer itself.

use std::collections::VecDeque;

use disklab_disk::{Op, VolumeId};

use crate::database::cassandra::job::{Compaction, Database};
use crate::filelayout::PAGE_BYTES;
use crate::storage::{PendingIo, PendingIos, Purpose, Storage};

/// Bytes of one write. **Source:** Premium SSD counts I/Os in units of 256 KiB, and Linux writes
/// dirty pages back in runs at least as large.
const WRITE_BYTES: u32 = 256 << 10;

/// Writes of a sync under way. **Source:** `nr_requests` of a block device of Linux: 128.
const DEPTH: u32 = 128;

/// The size class of what came by streams: beyond those that flushes of a run reach.
const TIER_OF_STREAMS: usize = 16;

/// Tables of about one size that are compacted into one. **Source:** `min_threshold` of size-tiered
/// compaction.
const TABLES_OF_A_TIER: u32 = 4;

/// Bytes of a table of leveled compaction. **Source:** `sstable_size_in_mb`, 160.
const LEVELED_TABLE_BYTES: u64 = 160 << 20;

/// By how much a level is larger than the one above. **Source:** `fanout_size`, 10.
const FAN_OUT: u64 = 10;

/// Memtables whose flush has room in memory; with more, writes stop. **Source:** Cassandra 3.11 flushes
/// when a third of the memtable space is in use (`memtable_cleanup_threshold`, 1 / (1 + two flush writers)).
const MOST_MEMTABLES: u64 = 3;

/// Memtables that are flushed at a time. **Source:** `memtable_flush_writers` of one data directory.
const FLUSH_WRITERS: usize = 2;

/// Stream of the commit log, as [`Purpose::Stream`] names it; tables' writers follow.
const COMMIT_LOG: usize = 0;
/// The writer of compaction, after those of flushes.
const COMPACTION: usize = FLUSH_WRITERS;

/// Bytes on their way to a volume, sent in order.
#[derive(Clone, Debug)]
struct Sync {
    volume: VolumeId,
    /// First byte and length of the free space of the volume.
    space: (u64, u64),
    cursor: u64,
    left: u64,
    under_way: u32,
}

impl Sync {
    fn is_done(&self) -> bool {
        self.left == 0 && self.under_way == 0
    }

    /// Sends what may be sent now.
    fn send(&mut self, now: u64, stream: usize, storage: &mut Storage, ios: &mut PendingIos) {
        let unit = u64::from(WRITE_BYTES);
        let (start, space) = self.space;
        while self.left > 0 && self.under_way < DEPTH {
            self.left = self.left.saturating_sub(unit);
            self.under_way += 1;
            let at = start + self.cursor;
            self.cursor = (self.cursor + unit) % space.max(1);
            let purpose = Purpose::Stream(stream as u8);
            let io = ios.add(PendingIo::new(storage.number(), purpose));
            storage.submit(now, self.volume, Op::Write, at, WRITE_BYTES, io);
        }
    }
}

/// What a table writer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It fills the page cache with so many bytes of its table until then.
    Filling(u64, u64),
    Syncing,
}

/// A thread that writes tables, one after the other.
#[derive(Clone, Debug)]
struct TableWriter {
    doing: Doing,
    /// Bytes of the present table that it has not begun.
    left: u64,
    /// Bytes of the present table, and its size class.
    table_bytes: u64,
    tier: usize,
    /// Bytes between two syncs.
    piece_bytes: u64,
    /// Pace into the page cache; zero: no time.
    bytes_per_s: u64,
    /// Rate that it may not exceed; zero: none.
    most_bytes_per_s: u64,
    /// When that rate allows the next piece.
    allowed_at: u64,
    sync: Sync,
}

impl TableWriter {
    fn is_idle(&self) -> bool {
        self.doing == Doing::Nothing && self.left == 0
    }

    /// Begins a table.
    fn begin(&mut self, now: u64, bytes: u64, tier: usize) {
        (self.left, self.table_bytes, self.tier) = (bytes, bytes, tier);
        self.fill(now);
    }

    fn fill(&mut self, now: u64) {
        let bytes = self.left.min(self.piece_bytes);
        self.left -= bytes;
        let start = self.allowed_at.max(now);
        self.allowed_at = start + time_of(bytes, self.most_bytes_per_s);
        self.doing = Doing::Filling(start + time_of(bytes, self.bytes_per_s), bytes);
    }

    /// Goes on as far as it can; true: it has written its table.
    fn go_on(&mut self, now: u64) -> bool {
        if let Doing::Filling(until, bytes) = self.doing
            && until <= now
        {
            self.sync.left += bytes;
            self.doing = Doing::Syncing;
        } else if self.doing == Doing::Syncing && self.sync.is_done() {
            self.doing = Doing::Nothing;
            if self.left == 0 {
                return true;
            }
            self.fill(now);
        }
        false
    }

    /// When it goes on by itself.
    fn wakes_at(&self) -> Option<u64> {
        match self.doing {
            Doing::Filling(until, _) => Some(until),
            Doing::Nothing | Doing::Syncing => None,
        }
    }
}

/// Nanoseconds that so many bytes take; none at a rate of zero.
fn time_of(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 {
        return 0;
    }
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

/// Background work of one node.
#[derive(Clone, Debug)]
pub struct Background {
    log: Sync,
    /// Those of flushes, then that of compaction.
    writers: [TableWriter; FLUSH_WRITERS + 1],
    /// Bytes of the memtables that wait for their flush.
    flushes: VecDeque<u64>,
    /// Bytes and tier of the compactions that wait.
    compactions: VecDeque<(u64, usize)>,
    /// Tables of each size class, and their bytes.
    tiers: Vec<(u32, u64)>,
    /// Bytes of each level; none: compaction is size-tiered.
    levels: Vec<u64>,
    unsynced: u64,
    memtable: u64,
    memtable_bytes: u64,
    sync_period_ns: u64,
    segment_bytes: u64,
    /// The time that was last asked for, so that no wish is made twice.
    wished_at: u64,
    ticking: bool,
    sync_is_late: bool,
    /// Whether everything that had to be synced was, at some time since the last tick.
    was_synced: bool,
    /// Time that the writers of flushes were at work, all together, up to a time.
    flushing_ns: u64,
    noted_to: u64,
    off: bool,
}

/// What the caller has to schedule after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Call [`Background::tick`] at this time.
    pub tick_at: Option<u64>,
    /// Call [`Background::pump`] at this time.
    pub pump_at: Option<u64>,
}

/// Which of the background's mechanisms are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Off {
    /// All of it costs nothing.
    pub all: bool,
    /// Tables are written as fast as the disk takes them.
    pub pace: bool,
}

impl Background {
    /// A node at rest, with no table smaller than its data set's.
    pub fn new(
        database: &Database,
        storage: &Storage,
        commitlog: VolumeId,
        off: Off,
    ) -> Background {
        let data = storage.data_volume();
        let sync = |volume| Sync {
            volume,
            space: free_space(storage, volume),
            cursor: 0,
            left: 0,
            under_way: 0,
        };
        let writer = |most_bytes_per_s| TableWriter {
            doing: Doing::Nothing,
            left: 0,
            table_bytes: 0,
            tier: 0,
            piece_bytes: match database.trickle_fsync_bytes {
                Some(bytes) if !off.pace => bytes.max(u64::from(WRITE_BYTES)),
                _ => u64::MAX,
            },
            bytes_per_s: if off.pace {
                0
            } else {
                database.table_write_bytes_per_s
            },
            most_bytes_per_s,
            allowed_at: 0,
            sync: sync(data),
        };
        Background {
            log: sync(commitlog),
            writers: [
                writer(0),
                writer(0),
                writer(database.compaction_bytes_per_s),
            ],
            flushes: VecDeque::new(),
            compactions: VecDeque::new(),
            tiers: Vec::new(),
            levels: match database.compaction {
                Compaction::SizeTiered => Vec::new(),
                Compaction::Leveled => levels_of(storage.layout().data_pages() * PAGE_BYTES),
            },
            unsynced: 0,
            memtable: 0,
            memtable_bytes: database.memtable_bytes.max(1),
            sync_period_ns: database.commitlog_sync_period_ns.max(1),
            segment_bytes: database.commitlog_segment_bytes.max(u64::from(WRITE_BYTES)),
            wished_at: 0,
            ticking: false,
            sync_is_late: false,
            was_synced: true,
            flushing_ns: 0,
            noted_to: 0,
            off: off.all,
        }
    }

    /// Takes a mutation of so many bytes.
    ///
    /// **Source:** a full segment of the commit log asks for a sync out of turn
    /// (`AbstractCommitLogSegmentManager.advanceAllocatingFrom` of Cassandra 3.11). Without that each
    /// period ended with seconds of writing at full speed.
    pub fn append(&mut self, now: u64, bytes: u64) -> Wishes {
        if self.off {
            return Wishes::default();
        }
        self.unsynced += bytes;
        self.memtable += bytes;
        let full = self.memtable >= self.memtable_bytes;
        if full {
            self.flushes.push_back(std::mem::take(&mut self.memtable));
        }
        let ends_segment = self.unsynced >= self.segment_bytes;
        if ends_segment {
            self.sync();
        }
        let starts = !std::mem::replace(&mut self.ticking, true);
        Wishes {
            tick_at: starts.then_some(now + self.sync_period_ns),
            pump_at: (full || ends_segment).then_some(now),
        }
    }

    /// Syncs the commit log, as it does once a period.
    pub fn tick(&mut self, now: u64) -> Wishes {
        let left = self.log.left;
        // A whole period later the log is still behind: new writes wait for it.
        let was_synced = std::mem::take(&mut self.was_synced);
        self.sync_is_late = left > 0 && !was_synced;
        let idle = self.unsynced == 0 && left == 0;
        self.sync();
        self.ticking = !idle;
        Wishes {
            tick_at: (!idle).then_some(now + self.sync_period_ns),
            pump_at: (!idle).then_some(now),
        }
    }

    fn sync(&mut self) {
        self.log.left += std::mem::take(&mut self.unsynced);
    }

    /// Whether writes have to wait: for a commit log sync that is late, or for memtable room, which is
    /// given back when a flush has ended.
    #[inline]
    pub fn blocks_writes(&self) -> bool {
        self.sync_is_late || self.full_memtables() >= MOST_MEMTABLES as usize
    }

    fn full_memtables(&self) -> usize {
        self.flushes.len() + self.flushing()
    }

    fn flushing(&self) -> usize {
        let flushing = self.writers[..FLUSH_WRITERS].iter();
        flushing.filter(|writer| !writer.is_idle()).count()
    }

    /// Counts the work of the writers of flushes up to a time. They begin and end in `pump` alone.
    fn note(&mut self, now: u64) {
        let now = now.max(self.noted_to);
        self.flushing_ns += self.flushing() as u64 * (now - self.noted_to);
        self.noted_to = now;
    }

    /// How many writers of flushes there are, and how long they were at work since [`Background::reset`].
    pub fn flush_usage(&mut self, now: u64) -> (u64, u64) {
        self.note(now);
        (FLUSH_WRITERS as u64, self.flushing_ns)
    }

    /// Counts the work of flushes from now on.
    pub fn reset(&mut self, now: u64) {
        self.note(now);
        self.flushing_ns = 0;
    }

    /// Notes the end of a stream's write.
    pub fn written(&mut self, stream: u8) {
        match usize::from(stream) {
            COMMIT_LOG => self.log.under_way -= 1,
            writer => self.writers[writer - 1].sync.under_way -= 1,
        }
        if self.log.left == 0 {
            (self.sync_is_late, self.was_synced) = (false, true);
        }
    }

    /// Sends what the streams may send now.
    pub fn pump(&mut self, now: u64, storage: &mut Storage, ios: &mut PendingIos) -> Wishes {
        self.note(now);
        self.log.send(now, COMMIT_LOG, storage, ios);
        let mut wake_at = None;
        for index in 0..self.writers.len() {
            self.write_on(now, index);
            let writer = &mut self.writers[index];
            writer.sync.send(now, index + 1, storage, ios);
            wake_at = wake_at.into_iter().chain(writer.wakes_at()).min();
        }
        let wish = wake_at.filter(|&at| at != self.wished_at);
        self.wished_at = wake_at.unwrap_or(self.wished_at);
        Wishes {
            tick_at: None,
            pump_at: wish,
        }
    }

    /// Lets a writer do what takes no time.
    fn write_on(&mut self, now: u64, index: usize) {
        loop {
            if self.writers[index].is_idle() {
                let next = if index == COMPACTION {
                    self.compactions.pop_front()
                } else {
                    self.flushes.pop_front().map(|bytes| (bytes, 0))
                };
                let Some((bytes, tier)) = next else { return };
                self.writers[index].begin(now, bytes, tier);
            }
            let writer = &mut self.writers[index];
            let before = writer.doing;
            if writer.go_on(now) {
                let (bytes, tier) = (writer.table_bytes, writer.tier);
                self.add_table(bytes, tier);
            } else if writer.doing == before || writer.doing == Doing::Syncing {
                return;
            }
        }
    }

    /// A table of a size class is there; the last one that its class takes makes a compaction.
    fn add_table(&mut self, bytes: u64, tier: usize) {
        if !self.levels.is_empty() {
            if tier == 0 {
                let written = compacted(&mut self.levels, bytes);
                self.compactions.push_back((written, 1));
            }
            return;
        }
        if self.tiers.len() <= tier {
            self.tiers.resize(tier + 1, (0, 0));
        }
        let (tables, all) = &mut self.tiers[tier];
        (*tables, *all) = (*tables + 1, *all + bytes);
        if *tables == TABLES_OF_A_TIER {
            self.compactions.push_back((*all, tier + 1));
            self.tiers[tier] = (0, 0);
        }
    }

    /// Flushes what the memtable holds, as before an end in order.
    pub fn flush(&mut self) {
        let bytes = std::mem::take(&mut self.memtable);
        if bytes > 0 {
            self.flushes.push_back(bytes);
        }
    }

    /// Whether no memtable holds anything.
    pub fn is_flushed(&self) -> bool {
        self.memtable == 0 && self.full_memtables() == 0
    }

    /// Bytes that are in the commit log and in no table.
    pub fn unflushed_bytes(&self) -> u64 {
        let flushing = self.writers[..FLUSH_WRITERS].iter();
        let under_way = flushing.filter(|one| !one.is_idle());
        let waiting: u64 = self.flushes.iter().sum();
        self.memtable + waiting + under_way.map(|one| one.table_bytes).sum::<u64>()
    }

    /// The process is gone, with its memtables and what it meant to do. A table that it was writing is written on, which
    /// nobody waits for.
    pub fn forget(&mut self) {
        self.memtable = 0;
        self.unsynced = 0;
        self.flushes.clear();
        self.compactions.clear();
    }

    /// Takes what a node has replayed, and flushes it. **Source:** `CommitLogReplayer.blockForWrites` of Cassandra 3.11
    /// flushes every table that it has replayed.
    pub fn replayed(&mut self, bytes: u64) {
        self.memtable += if self.off { 0 } else { bytes };
        self.flush();
    }

    /// Takes tables that were streamed, which are compacted once. **Divergence:** whether and how often depends on how many
    /// tables their sources had.
    pub fn receive(&mut self, bytes: u64) {
        if bytes > 0 && !self.off {
            self.compactions.push_back((bytes, TIER_OF_STREAMS));
        }
    }

    /// Bytes that compaction still owes.
    pub fn pending_compaction_bytes(&self) -> u64 {
        let waiting: u64 = self.compactions.iter().map(|(bytes, _)| bytes).sum();
        waiting + self.writers[COMPACTION].left
    }
}

/// Bytes of a level, at most; the first is level 1.
fn most_of_level(level: usize) -> u64 {
    LEVELED_TABLE_BYTES.saturating_mul(FAN_OUT.saturating_pow(level as u32 + 1))
}

/// The levels of a table at rest: each full, but for the last.
fn levels_of(bytes: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut left = bytes;
    while left > 0 || levels.is_empty() {
        let here = left.min(most_of_level(levels.len()));
        levels.push(here);
        left -= here;
    }
    levels
}

/// Bytes that compaction writes when a flushed table goes down the levels.
///
/// A table of level 0 spans all keys and meets all of level 1; what is too much for a level meets ten
/// times its bytes in the next one. **Source:** LeveledCompactionStrategy of Cassandra 3.11.
/// **Divergence:** one flushed table at a time, where a late compaction takes up to 32.
fn compacted(levels: &mut Vec<u64>, bytes: u64) -> u64 {
    let (mut moved, mut written) = (bytes, 0);
    for level in 0.. {
        if level == levels.len() {
            levels.push(0);
        }
        let met = match level {
            0 => levels[0],
            _ => levels[level].min(moved.saturating_mul(FAN_OUT)),
        };
        written += moved + met;
        levels[level] += moved;
        moved = levels[level].saturating_sub(most_of_level(level));
        levels[level] -= moved;
        if moved == 0 {
            break;
        }
    }
    written
}

/// First byte and length of what a volume has free behind the table.
fn free_space(storage: &Storage, volume: VolumeId) -> (u64, u64) {
    let unit = u64::from(WRITE_BYTES);
    let table = storage.layout().all_pages() * crate::filelayout::PAGE_BYTES;
    let start = if volume == storage.data_volume() {
        table.next_multiple_of(unit)
    } else {
        0
    };
    let size = storage.host().volume(volume).map_or(0, |v| v.size_bytes);
    let end = size / unit * unit;
    // A volume that the table fills: new tables replace old ones.
    if start + unit <= end {
        (start, end - start)
    } else {
        (0, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filelayout::FileLayout;
    use crate::storage::{Reading, ReadingRules};

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// A node whose segments have 4 MiB, whose memtables have `memtable_bytes`, which syncs its log every
    /// second, and writes tables at 100 MiB/s.
    fn node(memtable_bytes: u64, trickle_fsync_bytes: Option<u64>) -> Node {
        let rules = ReadingRules {
            data: Reading::Mapped,
            index: Reading::Mapped,
            read_ahead_pages: 0,
            kernel: crate::job::Kernel::Linux3,
            one_list: false,
            counted_every: 0,
            cache_pages: 1024,
            scale: 1,
            cuts_at_chunks: true,
        };
        let layout = FileLayout::new(1_000, 4096, None);
        let host = crate::tests::host(1_000_000);
        let storage = Storage::new(0, host, "data", layout, rules).expect("it is valid");
        let database: Database = serde_json::from_value(serde_json::json!({
            "engine": "cassandra", "replication_factor": 1, "consistency": "ONE", "access": "mmap",
            "concurrent_reads": 1, "concurrent_writes": 1, "memtable_bytes": memtable_bytes,
            "commitlog_segment_bytes": 4 * MIB, "commitlog_sync_period_ns": SECOND,
            "table_write_bytes_per_s": 100 * MIB, "trickle_fsync_bytes": trickle_fsync_bytes,
            "compaction_bytes_per_s": 0,
        }))
        .expect("it is a database");
        let log = storage.data_volume();
        let background = Background::new(&database, &storage, log, Off::default());
        Node {
            background,
            storage,
            wake_at: None,
        }
    }

    struct Node {
        background: Background,
        storage: Storage,
        wake_at: Option<u64>,
    }

    impl Node {
        /// Lets the node write until nothing is under way; returns how many bytes it sent of each stream.
        fn drain(&mut self, now: u64) -> [u64; 4] {
            let mut ios = PendingIos::default();
            let mut bytes = [0; 4];
            loop {
                let wishes = self.background.pump(now, &mut self.storage, &mut ios);
                self.wake_at = wishes.pump_at.or(self.wake_at);
                let ended = self.storage.disks.take_decided();
                if ended.is_empty() {
                    return bytes;
                }
                for io in ended {
                    let Purpose::Stream(stream) = ios[io.tag as u32].purpose else {
                        unreachable!("it only writes");
                    };
                    self.background.written(stream);
                    bytes[usize::from(stream)] += u64::from(WRITE_BYTES);
                }
            }
        }

        /// Lets it write until it rests, as if the disk took no time; returns when it sent what of its tables.
        fn tables_written(&mut self) -> Vec<(u64, u64)> {
            let mut found = Vec::new();
            while let Some(at) = self.wake_at.take() {
                found.push((at, self.drain(at)[1..].iter().sum()));
            }
            found
        }
    }

    #[test]
    fn a_full_segment_is_synced_before_the_period_ends() {
        let mut node = node(1000 * MIB, None);
        assert_eq!(node.background.append(0, 4 * MIB - 1).pump_at, None);
        assert_eq!(node.drain(1)[COMMIT_LOG], 0);
        assert_eq!(node.background.append(5, 1).pump_at, Some(5));
        assert_eq!(node.drain(5)[COMMIT_LOG], 4 * MIB);
        node.background.append(6, MIB);
        assert_eq!(node.background.tick(SECOND).pump_at, Some(SECOND));
        assert_eq!(node.drain(SECOND)[COMMIT_LOG], MIB);
    }

    #[test]
    fn writes_wait_for_a_log_that_was_behind_for_a_whole_period() {
        let mut node = node(1000 * MIB, None);
        node.background.append(0, 2 * MIB);
        node.background.tick(SECOND);
        assert!(!node.background.blocks_writes(), "this sync has only begun");
        node.background.tick(2 * SECOND);
        assert!(node.background.blocks_writes());
        node.drain(2 * SECOND + 1);
        assert!(!node.background.blocks_writes());
        node.background.append(2 * SECOND + 2, 4 * MIB);
        node.background.tick(3 * SECOND);
        assert!(!node.background.blocks_writes(), "it was synced in between");
    }

    #[test]
    fn a_table_goes_to_the_disk_piece_by_piece_or_at_its_end() {
        let mut trickling = node(25 * MIB, Some(10 * MIB));
        trickling.background.append(0, 25 * MIB);
        trickling.drain(0);
        let tenth = SECOND / 10;
        let expected = [
            (tenth, 10 * MIB),
            (2 * tenth, 10 * MIB),
            (2 * tenth + tenth / 2, 5 * MIB),
        ];
        assert_eq!(trickling.tables_written(), expected);
        let mut other = node(25 * MIB, None);
        other.background.append(0, 25 * MIB);
        other.drain(0);
        assert_eq!(other.tables_written(), [(2 * tenth + tenth / 2, 25 * MIB)]);
    }

    #[test]
    fn four_tables_of_a_size_become_one() {
        let mut node = node(10 * MIB, None);
        let mut written = 0;
        for flush in 1..=16 {
            let now = flush * 100 * SECOND;
            node.background.append(now, 10 * MIB);
            node.drain(now);
            written += node.tables_written().iter().map(|&(_, b)| b).sum::<u64>();
            let (fours, sixteens) = (flush / 4, flush / 16);
            assert_eq!(written, (flush * 10 + fours * 40 + sixteens * 160) * MIB);
        }
    }

    #[test]
    fn writes_wait_for_a_flush_when_three_memtables_are_full() {
        let mut node = node(10 * MIB, None);
        for full in 1..=3 {
            assert!(!node.background.blocks_writes());
            node.background.append(full, 10 * MIB);
            node.drain(full);
        }
        assert!(node.background.blocks_writes());
        node.drain(SECOND);
        assert!(!node.background.blocks_writes());
    }

    #[test]
    fn levels_rewrite_what_a_table_meets() {
        let table = LEVELED_TABLE_BYTES;
        let mut levels = levels_of(0);
        assert_eq!(compacted(&mut levels, table), table, "nothing to meet");
        assert_eq!(compacted(&mut levels, table), 2 * table);
        // A full level 1 passes a table on, which meets ten of level 2's.
        let mut levels = levels_of(60 * table);
        assert_eq!(levels, [10 * table, 50 * table]);
        assert_eq!(compacted(&mut levels, table), 11 * table + 11 * table);
        assert_eq!(levels, [10 * table, 51 * table]);
    }
}
