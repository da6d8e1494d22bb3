//! The database file of a member: puts wait in memory and are committed together, all its dirty pages first, then the page that says which
//! tree is the newest. Meanwhile nothing is applied.
//!
//! **Source:** backend.go, batch_tx.go and `Tx.Commit` of bbolt 1.3: pages are written in their order and synced, then the meta page is written
//! and synced. A put goes behind the last one, since keys are revisions, so that its leaves lie one behind the other; the branches above, the
//! root and the last leaf are rewritten. etcd keeps no list of free pages on the disk (`NoFreelistSync`).

use disklab_disk::Op;

use crate::storage::{PendingIos, Purpose, Storage};

const PAGE_BYTES: u64 = 4096;
/// Largest write. **Source:** adjacent dirty pages of a file go down together, up to `max_sectors_kb` of most disks.
const MOST_WRITE_BYTES: u64 = 512 << 10;
/// Pages that lie alone: of the branches, of the root, and of the bucket that has the index of the last entry.
const LONE_PAGES: u64 = 3;
/// How full a leaf is. **Source:** batch_tx.go: `bucket.FillPercent = 0.9` where keys come in order.
const FILLED_PERCENT: u64 = 90;
/// Of a put in its leaf, beside key and value: the element's header, the key's revision, and the key with its revisions in the value.
const PUT_BYTES: u64 = 16 + 17 + 60;
/// Fewest puts of a leaf. **Source:** `minKeysPerPage` of bbolt's bucket.go.
const LEAST_PUTS: u64 = 2;
/// A snapshot's file, which holds the members and no keys.
const SNAPSHOT_BYTES: u64 = 8192;

/// How far a commit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Pages,
    Journal(u32),
    Sync,
    Meta,
    MetaSync,
}

/// Pages of a member's database that are not on its disk.
#[derive(Debug, Default)]
pub struct Backend {
    value_bytes: u64,
    journal_writes: u32,
    /// Puts since the last commit.
    pub puts: u64,
    phase: Phase,
    /// When the commit under way, or the last one, began.
    pub began: u64,
    /// I/Os under way of its phase.
    left: u32,
    cursor: u64,
    /// Where it lies on its volume.
    length: u64,
    /// Whether the timer began the commit under way; its end then starts the timer again.
    pub by_timer: bool,
}

impl Backend {
    /// An empty one of values of so many bytes, in the first `length` bytes of its volume.
    pub fn new(value_bytes: u64, journal_writes: u32, length: u64) -> Backend {
        Backend {
            value_bytes,
            journal_writes,
            length: length.max(MOST_WRITE_BYTES),
            ..Backend::default()
        }
    }

    /// Bytes that so many puts take in leaves.
    pub fn leaf_bytes(value_bytes: u64, puts: u64) -> u64 {
        let (in_leaf, leaf) = leaf(value_bytes);
        puts.div_ceil(in_leaf) * leaf
    }

    /// Whether nothing can be applied.
    pub fn commits(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Begins a commit.
    pub fn commit(&mut self, now: u64, storage: &mut Storage, ios: &mut PendingIos) {
        (self.phase, self.began) = (Phase::Pages, now);
        // The last leaf once more.
        let mut left = Backend::leaf_bytes(self.value_bytes, self.puts + 1);
        self.puts = 0;
        while left > 0 {
            let room = self.length - self.cursor;
            let bytes = left.min(MOST_WRITE_BYTES).min(room);
            self.submit(now, Op::Write, (self.cursor, bytes), storage, ios);
            self.cursor = (self.cursor + bytes) % self.length;
            left -= bytes;
        }
        for page in 0..LONE_PAGES {
            let place = (self.cursor + (page + 2) * MOST_WRITE_BYTES) % self.length;
            self.submit(now, Op::Write, (place, PAGE_BYTES), storage, ios);
        }
    }

    /// An I/O of a commit has ended; true: so has the commit.
    pub fn io_ended(&mut self, now: u64, storage: &mut Storage, ios: &mut PendingIos) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.phase = match self.phase {
            Phase::Pages if self.journal_writes > 0 => Phase::Journal(self.journal_writes),
            Phase::Journal(left) if left > 1 => Phase::Journal(left - 1),
            Phase::Pages | Phase::Journal(_) => Phase::Sync,
            Phase::Sync => Phase::Meta,
            Phase::Meta => Phase::MetaSync,
            Phase::MetaSync | Phase::Idle => Phase::Idle,
        };
        let (op, bytes) = match self.phase {
            Phase::Idle => return true,
            Phase::Sync | Phase::MetaSync => (Op::Flush, 0),
            // The journal's head and the file's inode.
            Phase::Journal(left) if left == self.journal_writes => (Op::Write, 2 * PAGE_BYTES),
            Phase::Pages | Phase::Journal(_) | Phase::Meta => (Op::Write, PAGE_BYTES),
        };
        self.submit(now, op, (0, bytes), storage, ios);
        false
    }

    fn submit(
        &mut self,
        now: u64,
        op: Op,
        (at, bytes): (u64, u64),
        storage: &mut Storage,
        ios: &mut PendingIos,
    ) {
        self.left += 1;
        storage.send(now, ios, Purpose::Stream(COMMIT), (op, at, bytes));
    }
}

/// How many puts a leaf has, and its bytes.
fn leaf(value_bytes: u64) -> (u64, u64) {
    let put = value_bytes + PUT_BYTES;
    let in_leaf = (PAGE_BYTES * FILLED_PERCENT / 100 / put).max(LEAST_PUTS);
    (in_leaf, (in_leaf * put).next_multiple_of(PAGE_BYTES))
}

/// Streams of a member.
pub const COMMIT: u8 = 0;
const SNAPSHOT: u8 = 1;

/// Writes a snapshot's file, for which nobody waits.
pub fn snapshot(now: u64, storage: &mut Storage, ios: &mut PendingIos) {
    for (op, bytes) in [(Op::Write, SNAPSHOT_BYTES), (Op::Flush, 0)] {
        storage.send(now, ios, Purpose::Stream(SNAPSHOT), (op, 0, bytes));
    }
}
