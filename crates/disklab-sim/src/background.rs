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
    segment_bytes: u64,
    compaction_bytes_per_s: u64,
    /// When compaction may write next.
    compaction_at: u64,
    /// The time that was last asked for, so that no wish is made twice.
    wished_at: u64,
    ticking: bool,
    sync_is_late: bool,
    /// Whether everything that had to be synced was, at some time since the last tick.
    was_synced: bool,
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
            segment_bytes: database.commitlog_segment_bytes.max(unit),
            compaction_bytes_per_s: database.compaction_bytes_per_s,
            compaction_at: 0,
            wished_at: 0,
            ticking: false,
            sync_is_late: false,
            was_synced: true,
            off,
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
            self.streams[StreamKind::Flush as usize].left += self.memtable;
            self.streams[StreamKind::Compaction as usize].left += self.memtable * REWRITES;
            self.memtable = 0;
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
        let left = self.streams[StreamKind::CommitLog as usize].left;
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
        self.streams[StreamKind::CommitLog as usize].left += std::mem::take(&mut self.unsynced);
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
            (self.sync_is_late, self.was_synced) = (false, true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filelayout::FileLayout;
    use crate::storage::{Reading, ReadingRules};

    const MIB: u64 = 1 << 20;

    /// A node whose segments have 4 MiB, whose memtable is never full, and which syncs every second.
    fn node() -> (Background, Storage) {
        let rules = ReadingRules {
            data: Reading::Mapped,
            index: Reading::Mapped,
            read_ahead_pages: 0,
            cache_pages: 1024,
            scale: 1,
            cuts_at_chunks: true,
        };
        let layout = FileLayout::new(1_000, 4096, None);
        let host = crate::tests::host(1_000_000);
        let storage = Storage::new(0, host, "data", layout, rules).expect("it is valid");
        let database: Database = serde_json::from_value(serde_json::json!({
            "engine": "cassandra", "replication_factor": 1, "consistency": "ONE", "access": "mmap",
            "concurrent_reads": 1, "concurrent_writes": 1, "memtable_bytes": 1000 * MIB,
            "commitlog_segment_bytes": 4 * MIB, "commitlog_sync_period_ns": 1_000_000_000,
        }))
        .expect("it is a database");
        let log = storage.data_volume();
        (Background::new(&database, &storage, log, false), storage)
    }

    /// Lets the node write until nothing is under way; returns how many bytes it sent.
    fn drain(node: &mut Background, storage: &mut Storage, now: u64) -> u64 {
        let mut ios = PendingIos::default();
        let mut bytes = 0;
        loop {
            node.pump(now, storage, 0, &mut ios);
            let ended = std::mem::take(&mut storage.decided);
            if ended.is_empty() {
                return bytes;
            }
            for io in ended {
                let Purpose::Stream(stream) = ios[io.tag as u32].purpose else {
                    unreachable!("it only writes");
                };
                node.written(stream);
                bytes += u64::from(WRITE_BYTES);
            }
        }
    }

    #[test]
    fn a_full_segment_is_synced_before_the_period_ends() {
        let (mut node, mut storage) = node();
        assert_eq!(node.append(0, 4 * MIB - 1).pump_at, None);
        assert_eq!(drain(&mut node, &mut storage, 1), 0);
        assert_eq!(node.append(5, 1).pump_at, Some(5));
        assert_eq!(drain(&mut node, &mut storage, 5), 4 * MIB);
        node.append(6, MIB);
        assert_eq!(node.tick(1_000_000_000).pump_at, Some(1_000_000_000));
        assert_eq!(drain(&mut node, &mut storage, 1_000_000_000), MIB);
    }

    #[test]
    fn writes_wait_for_a_log_that_was_behind_for_a_whole_period() {
        let (mut node, mut storage) = node();
        node.append(0, 2 * MIB);
        node.tick(1_000_000_000);
        assert!(!node.blocks_writes(), "this sync has only begun");
        node.tick(2_000_000_000);
        assert!(node.blocks_writes());
        drain(&mut node, &mut storage, 2_000_000_001);
        assert!(!node.blocks_writes());
        node.append(2_000_000_002, 4 * MIB);
        node.tick(3_000_000_000);
        assert!(!node.blocks_writes(), "it was synced in between");
    }
}
