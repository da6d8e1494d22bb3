//! Flush and compaction of all tablets of a node, as streams of large I/Os.

use disklab_disk::Op;

use super::job::SqlDatabase;
use crate::filelayout::PAGE_BYTES;
use crate::storage::{PendingIos, Purpose, Storage};

/// Bytes of one write. **Source:** table files are written through the page cache, and Linux writes
/// dirty pages back in runs of at least that.
const WRITE_BYTES: u64 = 256 << 10;

/// Bytes of one read of a compaction: Linux's own read-ahead, which a reader in order fills.
const READ_BYTES: u64 = 128 << 10;

/// I/Os of a stream under way: a writer does not wait for each, a reader reads one window ahead.
const DEPTH: u32 = 2;

/// Flushes that fill a quick run's memstores, at least: writes wait while that much is to be flushed, and a single
/// flush is far from it in a full run.
const FEWEST_FLUSHES: u64 = 8;

/// The streams of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Memstores to new table files.
    Flush,
    /// Files that a compaction reads.
    CompactionRead,
    /// Files that it writes.
    CompactionWrite,
}

const KINDS: [StreamKind; 3] = [
    StreamKind::Flush,
    StreamKind::CompactionRead,
    StreamKind::CompactionWrite,
];

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    left: u64,
    under_way: u32,
    cursor: u64,
}

/// Bytes of rows that a flush writes: one tablet's share of the memstores, which are `scale` times smaller than real
/// ones. A flush is as large in a quick run as in a full one, because its I/Os are: from memstores fifty times smaller
/// they came out a sixth too many, and too short. But no more than a few of them fill such memstores.
pub fn flush_bytes(memstore_bytes: u64, tablets: u64, scale: u64) -> u64 {
    let share = memstore_bytes / tablets.max(1);
    (share * scale)
        .min(share.max(memstore_bytes / FEWEST_FLUSHES))
        .max(1)
}

/// Flush and compaction of a node.
#[derive(Debug)]
pub struct Lsm {
    /// First byte and length of the part of the volume behind the tables that are read.
    space: (u64, u64),
    streams: [Work; 3],
    unflushed: u64,
    /// Bytes of rows that a flush writes.
    flush_bytes: u64,
    memstore_bytes: u64,
    compressed_permille: u64,
    rewrites_permille: u64,
    bytes_per_s: u64,
    /// When the limit lets the next I/O go.
    free_at: u64,
    wished_at: u64,
    off: bool,
}

impl Lsm {
    /// A node at rest whose flushes take so many bytes of rows each; `off`: flush and compaction cost nothing.
    pub fn new(
        database: &SqlDatabase,
        rewrites_permille: u64,
        flush_bytes: u64,
        storage: &Storage,
        off: bool,
    ) -> Lsm {
        let volume = storage.data_volume();
        let size = storage.host().volume(volume).map_or(0, |v| v.size_bytes);
        let end = size / WRITE_BYTES * WRITE_BYTES;
        let tables = storage.layout().all_pages() * PAGE_BYTES;
        let start = tables.next_multiple_of(WRITE_BYTES);
        Lsm {
            // A volume that the tables fill: new files replace old ones.
            space: if start + WRITE_BYTES <= end {
                (start, end - start)
            } else {
                (0, end.max(WRITE_BYTES))
            },
            streams: Default::default(),
            unflushed: 0,
            flush_bytes,
            memstore_bytes: database.memstore_bytes.max(1),
            compressed_permille: u64::from(database.compressed_permille),
            rewrites_permille,
            bytes_per_s: database.compaction_bytes_per_s,
            free_at: 0,
            wished_at: 0,
            off,
        }
    }

    /// Takes rows of so many bytes; whether that makes [`Lsm::pump`] worth calling.
    #[inline]
    pub fn append(&mut self, bytes: u64) -> bool {
        self.unflushed += bytes;
        if self.off || self.unflushed < self.flush_bytes {
            return false;
        }
        let stored = self.unflushed * self.compressed_permille / 1000;
        let again = stored * self.rewrites_permille / 1000;
        self.unflushed = 0;
        for (kind, bytes) in KINDS.into_iter().zip([stored, again, again]) {
            self.streams[kind as usize].left += bytes;
        }
        true
    }

    /// Whether writes have to wait, because as much as all memstores hold waits to be flushed.
    #[inline]
    pub fn blocks_writes(&self) -> bool {
        self.streams[StreamKind::Flush as usize].left > self.memstore_bytes
    }

    /// Notes the end of an I/O of a stream; returns the blocks, in bytes, that a compaction now has
    /// to decompress or compress.
    pub fn ended(&mut self, stream: u8) -> u64 {
        self.streams[usize::from(stream)].under_way -= 1;
        match KINDS[usize::from(stream)] {
            StreamKind::Flush => 0,
            StreamKind::CompactionRead => READ_BYTES,
            StreamKind::CompactionWrite => WRITE_BYTES,
        }
    }

    /// Sends what the streams may send now; returns when to ask again because of the limit.
    pub fn pump(&mut self, now: u64, storage: &mut Storage, ios: &mut PendingIos) -> Option<u64> {
        for kind in KINDS {
            let (op, most) = match kind {
                StreamKind::CompactionRead => (Op::Read, READ_BYTES),
                _ => (Op::Write, WRITE_BYTES),
            };
            while self.streams[kind as usize].left > 0
                && self.streams[kind as usize].under_way < DEPTH
            {
                if self.free_at > now {
                    let asked = std::mem::replace(&mut self.wished_at, self.free_at);
                    return (asked != self.free_at).then_some(self.free_at);
                }
                let stream = &mut self.streams[kind as usize];
                let bytes = stream.left.min(most);
                stream.left -= bytes;
                stream.under_way += 1;
                let at = self.space.0 + stream.cursor;
                stream.cursor = (stream.cursor + most) % self.space.1;
                if self.bytes_per_s > 0 {
                    let span = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
                    self.free_at = self.free_at.max(now) + span as u64;
                }
                let purpose = Purpose::Stream(kind as u8);
                let len = bytes.next_multiple_of(PAGE_BYTES);
                storage.send(now, ios, purpose, (op, at, len));
            }
        }
        None
    }

    /// Where the logs lie: the same free part of the volume.
    pub fn space(&self) -> (u64, u64) {
        self.space
    }

    /// Bytes that compaction still owes.
    pub fn pending_compaction_bytes(&self) -> u64 {
        self.streams[StreamKind::CompactionWrite as usize].left
    }
}
