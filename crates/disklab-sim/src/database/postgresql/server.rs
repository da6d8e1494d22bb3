//! One server: cores, network, disks with their page cache, what writes pages back, and its log.

use std::collections::VecDeque;

use disklab_disk::{Op, Refusal};

use super::job::PostgresqlJob;
use crate::database::postgresql::packing::PAGE_BYTES;
use crate::database::postgresql::plan::Plan;
use crate::database::wal::{Log, MOST_WRITE_BYTES};
use crate::filelayout::{FileLayout, PAGE_BYTES as CACHE_PAGE_BYTES};
use crate::job::CacheState;
use crate::machine::Machine;
use crate::model::Setting;
use crate::storage::{PendingIos, Purpose, ReadingRules, Storage};

/// Pages of the page cache in a page of the server.
pub const CACHE_PAGES: u64 = PAGE_BYTES / CACHE_PAGE_BYTES;

/// Writes of pages under way. **Source:** `nr_requests` of a block device, 128: Linux's write-back fills the queue.
const DEPTH: u32 = 128;

/// Purposes of I/Os that no backend waits for by itself.
pub const WRITE_BACK: u8 = 0;
/// The sync at the end of a checkpoint.
pub const CHECKPOINT_SYNC: u8 = 1;
/// The sync before a replay, or behind it.
pub const RECOVERY_SYNC: u8 = 2;

/// Changed pages on their way to the disk.
#[derive(Debug, Default)]
pub struct WriteBack {
    waiting: VecDeque<(u64, u64)>,
    under_way: u32,
    /// Pages of each write under way; they end in about the order in which they began.
    sent: VecDeque<u64>,
}

impl WriteBack {
    /// Adds pages, in the order in which they are written; neighbours become one write.
    pub fn add(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages.into_iter().map(u64::from) {
            match self.waiting.back_mut() {
                Some((first, count))
                    if *first + *count == page && (*count + 1) * PAGE_BYTES <= MOST_WRITE_BYTES =>
                {
                    *count += 1;
                }
                _ => self.waiting.push_back((page, 1)),
            }
        }
    }

    /// Whether so much waits that whoever adds to it has to wait, too.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= DEPTH as usize
    }

    /// How many pages wait to be written.
    pub fn waiting(&self) -> u64 {
        self.waiting.iter().map(|one| one.1).sum()
    }

    /// How many pages are not written yet.
    pub fn unwritten(&self) -> u64 {
        self.waiting() + self.sent.iter().sum::<u64>()
    }

    /// Forgets what waits: its machine is gone.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }
}

/// A server.
pub struct Server {
    /// vCPUs, network, disks and page cache.
    pub machine: Machine,
    /// Pages on their way to the disk.
    pub write_back: WriteBack,
    /// Its log.
    pub log: Log,
    /// Of a standby: positions of the log on their way to it, and of its answers on their way back.
    pub on_the_way: (VecDeque<u64>, VecDeque<u64>),
    /// Of a standby: what it has received, and what the primary knows that it has on its disk.
    pub received: u64,
    /// What the primary knows that it has on its disk.
    pub confirmed: u64,
}

impl Server {
    /// Server `number` with its page cache in the state asked for. Refuses what the disk model refuses.
    pub fn new(
        job: &PostgresqlJob,
        plan: &Plan,
        number: usize,
        setting: &Setting,
    ) -> Result<Server, Refusal> {
        let cluster = &job.cluster;
        let rules = ReadingRules::through_page_cache(cluster, setting, cluster.read_ahead_bytes);
        let layout = FileLayout::of_pages((plan.pages + plan.growth) * CACHE_PAGES);
        let mut machine = Machine::new(cluster, setting, number as u16, layout, rules)?;
        let storage = &mut machine.storage;
        if !job.before.empty {
            if job.before.host_cache != CacheState::Cold {
                let pages = plan.pages * CACHE_PAGES;
                storage.warm_host_cache_up_to(pages, cluster.host_cache_bytes());
            }
            if job.before.page_cache != CacheState::Cold {
                storage.fill_page_cache(plan.pages * CACHE_PAGES);
            }
        }
        let log = log(job, plan, storage);
        Ok(Server {
            machine,
            write_back: WriteBack::default(),
            log,
            on_the_way: (VecDeque::new(), VecDeque::new()),
            received: 0,
            confirmed: 0,
        })
    }

    /// Sends as many of the changed pages as may be under way.
    pub fn write_back(&mut self, now: u64, ios: &mut PendingIos) {
        while self.write_back.under_way < DEPTH
            && let Some((first, count)) = self.write_back.waiting.pop_front()
        {
            self.write_back.under_way += 1;
            self.write_back.sent.push_back(count);
            let write = (Op::Write, first * PAGE_BYTES, count * PAGE_BYTES);
            let storage = &mut self.machine.storage;
            storage.send(now, ios, Purpose::Stream(WRITE_BACK), write);
        }
    }

    /// Notes the end of such a write.
    pub fn written_back(&mut self) {
        self.write_back.under_way -= 1;
        self.write_back.sent.pop_front();
    }

    /// Syncs the data volume, at the end of a checkpoint or for the sake of a replay.
    pub fn sync_data(&mut self, now: u64, which: u8, ios: &mut PendingIos) {
        let storage = &mut self.machine.storage;
        storage.send(now, ios, Purpose::Stream(which), (Op::Flush, 0, 0));
    }

    /// Begins to bring the log to the disk up to a position.
    ///
    /// **Source:** `XLogWrite` of PostgreSQL's xlog.c: whole pages, the one that the last sync ended in once more; then
    /// `fdatasync`.
    pub fn sync_log(&mut self, now: u64, to: u64, ios: &mut PendingIos) {
        self.log.end = to;
        self.log.write(now, true, &mut self.machine.storage, ios);
    }

    /// Notes that an I/O of the log has ended, at `now`, and had passed all limits at `passed`. True: the sync is done.
    pub fn log_io_ended(&mut self, when: (u64, u64), ios: &mut PendingIos) -> bool {
        let nobody = &mut Vec::new();
        self.log
            .io_ended(when, &mut self.machine.storage, ios, nobody);
        self.log.is_idle()
    }
}

/// An empty log, on its own volume or behind the tables.
fn log(job: &PostgresqlJob, plan: &Plan, storage: &Storage) -> Log {
    let (volume, size) = storage.volume_named(job.cluster.log_volume());
    let behind = if volume == storage.data_volume() {
        (plan.pages + plan.growth) * PAGE_BYTES
    } else {
        0
    };
    let room = size.saturating_sub(behind) / PAGE_BYTES * PAGE_BYTES;
    let wanted = job.database.max_wal_bytes / PAGE_BYTES * PAGE_BYTES;
    let space = if room >= MOST_WRITE_BYTES {
        (behind, room.min(wanted.max(MOST_WRITE_BYTES)))
    } else {
        // A volume that the tables fill: the log lies over them.
        (0, size / PAGE_BYTES * PAGE_BYTES)
    };
    Log::new(0, volume, space, (1, 0)).in_blocks(PAGE_BYTES)
}
