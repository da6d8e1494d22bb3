//! What a node does on its own: commit log, memtable flush, compaction, as streams of large writes.

use disklab_disk::{Op, VolumeId};

use crate::job::Database;
use crate::storage::{PendingIo, PendingIos, Purpose, Storage};

/// Bytes of one write. **Source:** Premium SSD counts I/Os in units of 256 KiB, and Linux writes
/// dirty pages back in runs at least as large.
const WRITE_BYTES: u32 = 256 << 10;

/// Writes of a stream under way. Writeback keeps a disk busy without filling its queue.
const DEPTH: u32 = 4;

/// How often a flushed byte is written again by compaction. **Source:** size-tiered compaction merges
/// four tables of a size (`min_threshold`), so that n flushes rewrite each byte about log4 n times;
/// two stands for the 4 to 64 flushes of a run of minutes.
const REWRITES: u64 = 2;

/// Memtables that may wait for their flush before writes stop. **Source:** Cassandra blocks when the
/// memtable space is full: nine of its memtables, of which some hold what is being written.
const MOST_WAITING_MEMTABLES: u64 = 4;

/// The streams of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Commit log segments.
    CommitLog,
    /// Memtables.
    Flush,
    /// Compaction.
    Compaction,
}

const KINDS: [StreamKind; 3] = [
    StreamKind::CommitLog,
    StreamKind::Flush,
    StreamKind::Compaction,
];

#[derive(Clone, Debug, Default)]
struct WriteStream {
    left: u64,
    under_way: u32,
    cursor: u64,
}

/// Background work of one node.
#[derive(Debug)]
pub struct Background {
    data: VolumeId,
    commitlog: VolumeId,
    /// First byte and length of the free space of each stream's volume.
    space: [(u64, u64); 3],
    streams: [WriteStream; 3],
    unsynced: u64,
    memtable: u64,
    memtable_bytes: u64,
    sync_period_ns: u64,
    compaction_bytes_per_s: u64,
    /// When compaction may write next.
    compaction_at: u64,
    /// The time that was last asked for, so that no wish is made twice.
    wished_at: u64,
    ticking: bool,
    sync_is_late: bool,
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

impl Background {
    /// A node at rest; `off`: background work costs nothing.
    pub fn new(
        database: &Database,
        storage: &Storage,
        commitlog: VolumeId,
        off: bool,
    ) -> Background {
        let data = storage.data_volume();
        let size = |volume| storage.host().volume(volume).map_or(0, |v| v.size_bytes);
        let table = storage.layout().all_pages() * crate::filelayout::PAGE_BYTES;
        let unit = u64::from(WRITE_BYTES);
        let behind = |volume: VolumeId| {
            let start = if volume == data {
                table.next_multiple_of(unit)
            } else {
                0
            };
            let end = size(volume) / unit * unit;
            // A volume that the table fills: new tables replace old ones.
            if start + unit <= end {
                (start, end - start)
            } else {
                (0, end)
            }
        };
        Background {
            data,
            commitlog,
            space: [behind(commitlog), behind(data), behind(data)],
            streams: Default::default(),
            unsynced: 0,
            memtable: 0,
            memtable_bytes: database.memtable_bytes.max(1),
            sync_period_ns: database.commitlog_sync_period_ns.max(1),
            compaction_bytes_per_s: database.compaction_bytes_per_s,
            compaction_at: 0,
            wished_at: 0,
            ticking: false,
            sync_is_late: false,
            off,
        }
    }

    /// Takes a mutation of so many bytes.
    pub fn append(&mut self, now: u64, bytes: u64) -> Wishes {
        if self.off {
            return Wishes::default();
        }
        self.unsynced += bytes;
        self.memtable += bytes;
        let full = self.memtable >= self.memtable_bytes;
        if full {
            self.streams[StreamKind::Flush as usize].left += self.memtable;
            self.streams[StreamKind::Compaction as usize].left += self.memtable * REWRITES;
            self.memtable = 0;
        }
        let starts = !std::mem::replace(&mut self.ticking, true);
        Wishes {
            tick_at: starts.then_some(now + self.sync_period_ns),
            pump_at: full.then_some(now),
        }
    }

    /// Syncs the commit log, as it does once a period.
    pub fn tick(&mut self, now: u64) -> Wishes {
        let log = &mut self.streams[StreamKind::CommitLog as usize];
        // The last sync has not ended a whole period later: new writes wait for it.
        self.sync_is_late = log.left > 0;
        log.left += self.unsynced;
        let idle = self.unsynced == 0 && log.left == 0;
        self.unsynced = 0;
        self.ticking = !idle;
        Wishes {
            tick_at: (!idle).then_some(now + self.sync_period_ns),
            pump_at: (!idle).then_some(now),
        }
    }

    /// Whether writes have to wait: for a commit log sync that is late, or for memtable room.
    #[inline]
    pub fn blocks_writes(&self) -> bool {
        let flush = &self.streams[StreamKind::Flush as usize];
        self.sync_is_late || flush.left > MOST_WAITING_MEMTABLES * self.memtable_bytes
    }

    /// Notes the end of a stream's write.
    pub fn written(&mut self, stream: u8) {
        let stream = &mut self.streams[usize::from(stream)];
        stream.under_way -= 1;
        let log = &self.streams[StreamKind::CommitLog as usize];
        if log.left == 0 {
            self.sync_is_late = false;
        }
    }

    /// Sends what the streams may send now.
    pub fn pump(
        &mut self,
        now: u64,
        storage: &mut Storage,
        node: u16,
        ios: &mut PendingIos,
    ) -> Wishes {
        let mut wishes = Wishes::default();
        for kind in KINDS {
            let index = kind as usize;
            let volume = match kind {
                StreamKind::CommitLog => self.commitlog,
                StreamKind::Flush | StreamKind::Compaction => self.data,
            };
            let (start, space) = self.space[index];
            while self.streams[index].left > 0 && self.streams[index].under_way < DEPTH {
                if kind == StreamKind::Compaction && self.compaction_bytes_per_s > 0 {
                    if self.compaction_at > now {
                        if self.wished_at != self.compaction_at {
                            self.wished_at = self.compaction_at;
                            wishes.pump_at = Some(self.compaction_at);
                        }
                        break;
                    }
                    let span = u64::from(WRITE_BYTES) * 1_000_000_000 / self.compaction_bytes_per_s;
                    self.compaction_at = self.compaction_at.max(now) + span;
                }
                let stream = &mut self.streams[index];
                stream.left = stream.left.saturating_sub(u64::from(WRITE_BYTES));
                stream.under_way += 1;
                let at = start + stream.cursor;
                stream.cursor = (stream.cursor + u64::from(WRITE_BYTES)) % space.max(1);
                let purpose = Purpose::Stream(index as u8);
                let io = ios.add(PendingIo { node, purpose });
                storage.submit(now, volume, Op::Write, at, WRITE_BYTES, io);
            }
        }
        wishes
    }

    /// Bytes that compaction still owes.
    pub fn pending_compaction_bytes(&self) -> u64 {
        self.streams[StreamKind::Compaction as usize].left
    }
}
