//! One node: cores, network, disks and their caches, the logs of its tablets.

use disklab_disk::{Op, Refusal};

use super::job::SqlJob;
use crate::database::yugabytedb::lsm::{Lsm, flush_bytes};
use crate::database::yugabytedb::plan::Plan;
use crate::filelayout::{FileLayout, PAGE_BYTES};
use crate::job::{CacheState, Mechanism};
use crate::machine::Machine;
use crate::model::Setting;
use crate::pagecache::{PageCache, Rule};
use crate::storage::{NOBODY, PendingIos, Purpose, ReadingRules};

/// A log that has grown by so much is synced at once. **Source:** `bytes_durable_wal_write_mb` 1.
const SYNC_BYTES: u64 = 1 << 20;

/// A tablet's log on one node.
#[derive(Clone, Copy, Debug)]
struct Log {
    unsynced: u64,
    syncing: bool,
    /// First of the requests that wait for the sync; each knows the next.
    waiter: u32,
}

impl Log {
    const CLEAN: Log = Log {
        unsynced: 0,
        syncing: false,
        waiter: NOBODY,
    };
}

/// A node.
pub struct Server {
    /// vCPUs, network, disks and page cache.
    pub machine: Machine,
    /// Plain blocks in memory, by number.
    pub blocks: PageCache,
    /// Flush and compaction.
    pub lsm: Lsm,
    /// Blocks wanted, and found in memory.
    pub block_counts: (u64, u64),
    /// Requests that wait for room in the memstores.
    pub held: Vec<u32>,
    logs: Vec<Log>,
    next_log: usize,
    log_cursor: u64,
}

impl Server {
    /// Node `number` with its caches in the state asked for. Refuses what the disk model refuses.
    pub fn new(
        job: &SqlJob,
        plan: &Plan,
        number: usize,
        setting: &Setting,
    ) -> Result<Server, Refusal> {
        let cluster = &job.cluster;
        // RocksDB announces random reads (`advise_random_on_open`): Linux reads what is asked for, and nothing ahead.
        let rules = ReadingRules::through_page_cache(cluster, setting, 0);
        let layout = FileLayout::of_pages(plan.pages(number));
        let mut machine = Machine::new(cluster, setting, number as u16, layout, rules)?;
        let storage = &mut machine.storage;
        let block_count = job.database.block_cache_bytes / u64::from(job.database.block_bytes);
        let mut blocks = PageCache::new(plan.blocks(number), block_count, Rule::OneList);
        if !job.before.empty {
            if job.before.host_cache != CacheState::Cold {
                storage.warm_host_cache(cluster.host_cache_bytes());
            }
            if job.before.page_cache != CacheState::Cold {
                storage.warm_page_cache(rules.cache_pages, false);
                blocks.insert(0, block_count.min(plan.blocks(number)));
            }
        }
        let idle = !setting.has(Mechanism::BackgroundIo);
        let logs = plan.tablets.len() as u64;
        let rewrites = job.parameters.rewrites_permille;
        let flush_bytes = flush_bytes(job.database.memstore_bytes, logs, setting.scale);
        let lsm = Lsm::new(&job.database, rewrites, flush_bytes, storage, idle);
        Ok(Server {
            machine,
            blocks,
            lsm,
            block_counts: (0, 0),
            held: Vec::new(),
            logs: vec![Log::CLEAN; plan.tablets.len()],
            next_log: 0,
            log_cursor: 0,
        })
    }

    /// Whether a block is in memory. A block that is not has to come before it is there.
    #[inline]
    pub fn has_block(&mut self, block: u64) -> bool {
        self.block_counts.0 += 1;
        let found = self.blocks.is_present(block);
        if found {
            self.block_counts.1 += 1;
            self.blocks.access(block, block + 1);
        }
        found
    }

    /// A block has come. Two requests may have wanted it.
    #[inline]
    pub fn keep_block(&mut self, block: u64) {
        if !self.blocks.is_present(block) {
            self.blocks.insert(block, block + 1);
        }
    }

    /// Puts a request in front of a log that is being synced; `next` is where it keeps the one behind
    /// it. False: the log can be written to.
    #[inline]
    pub fn waits_for_log(&mut self, tablet: u32, request: u32, next: &mut u32) -> bool {
        let log = &mut self.logs[tablet as usize];
        if log.syncing {
            *next = std::mem::replace(&mut log.waiter, request);
        }
        log.syncing
    }

    /// Writes to a tablet's log, in memory until the next sync. Sends a sync at once when there is
    /// too much of it.
    #[inline]
    pub fn append(&mut self, now: u64, tablet: u32, bytes: u64, ios: &mut PendingIos) {
        let log = &mut self.logs[tablet as usize];
        log.unsynced += bytes;
        if log.unsynced >= SYNC_BYTES {
            self.sync(now, tablet as usize, ios);
        }
    }

    /// Syncs the next tablet's log, if it has grown.
    pub fn sync_next(&mut self, now: u64, ios: &mut PendingIos) {
        let tablet = self.next_log;
        self.next_log = (tablet + 1) % self.logs.len();
        let log = &self.logs[tablet];
        if log.unsynced > 0 && !log.syncing {
            self.sync(now, tablet, ios);
        }
    }

    fn sync(&mut self, now: u64, tablet: usize, ios: &mut PendingIos) {
        let log = &mut self.logs[tablet];
        let len = log.unsynced.next_multiple_of(PAGE_BYTES);
        (log.unsynced, log.syncing) = (0, true);
        let (start, space) = self.lsm.space();
        let at = start + self.log_cursor;
        self.log_cursor = (self.log_cursor + SYNC_BYTES) % (space - space % SYNC_BYTES).max(1);
        let purpose = Purpose::Log(tablet as u32);
        let storage = &mut self.machine.storage;
        storage.send(now, ios, purpose, (Op::Write, at, len));
    }

    /// A log's sync has ended; returns the first of the requests that waited for it.
    pub fn synced(&mut self, tablet: u32) -> u32 {
        let log = &mut self.logs[tablet as usize];
        log.syncing = false;
        std::mem::replace(&mut log.waiter, NOBODY)
    }
}
