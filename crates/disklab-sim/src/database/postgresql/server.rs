//! One server: cores, network, disks with their page cache, what writes pages back, and its log.

use std::collections::VecDeque;

use disklab_disk::{Op, Refusal, VolumeId};

use crate::database::postgresql::plan::{PAGE_BYTES, Plan};
use crate::filelayout::{FileLayout, PAGE_BYTES as CACHE_PAGE_BYTES};
use crate::job::{CacheState, PostgresqlJob};
use crate::machine::Machine;
use crate::model::Setting;
use crate::network::Link;
use crate::station::Servers;
use crate::storage::{PendingIo, PendingIos, Purpose, ReadingRules, Storage};

/// Pages of the page cache in a page of the server.
pub const CACHE_PAGES: u64 = PAGE_BYTES / CACHE_PAGE_BYTES;

/// Writes of pages under way. **Source:** `nr_requests` of a block device, 128: Linux's write-back fills the queue.
const DEPTH: u32 = 128;

/// Largest write. **Source:** a bio of 256 pages.
const MOST_WRITE_BYTES: u64 = 1 << 20;

/// Purposes of I/Os that no backend waits for by itself.
pub const WRITE_BACK: u8 = 0;
/// The sync at the end of a checkpoint.
pub const CHECKPOINT_SYNC: u8 = 1;
/// The sync before a replay, or behind it.
pub const RECOVERY_SYNC: u8 = 2;
/// A write of the log.
pub const LOG_WRITE: u32 = 0;
/// The sync that makes it last.
pub const LOG_SYNC: u32 = 1;

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

/// The write-ahead log of a server, as far as its disk goes. Positions are bytes since the beginning of the run.
#[derive(Debug)]
pub struct Log {
    volume: VolumeId,
    /// First byte and length of its part of the volume.
    space: (u64, u64),
    /// What is on the disk.
    pub synced: u64,
    /// What is there when the sync under way has ended.
    syncing_to: Option<u64>,
    writes_left: u32,
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
    /// An empty log, on its own volume or behind the tables.
    fn new(job: &PostgresqlJob, plan: &Plan, storage: &Storage) -> Log {
        let cluster = &job.cluster;
        let named = cluster.commitlog_volume.as_ref();
        let volume = storage
            .host()
            .volume_named(named.unwrap_or(&cluster.data_volume))
            .expect("the job was checked: the volume exists");
        let size = storage.host().volume(volume).map_or(0, |v| v.size_bytes);
        let behind = if volume == storage.data_volume() {
            (plan.pages + plan.growth) * PAGE_BYTES
        } else {
            0
        };
        let room = size.saturating_sub(behind) / PAGE_BYTES * PAGE_BYTES;
        let wanted = job.database.max_wal_bytes / PAGE_BYTES * PAGE_BYTES;
        Log {
            volume,
            space: if room >= MOST_WRITE_BYTES {
                (behind, room.min(wanted.max(MOST_WRITE_BYTES)))
            } else {
                // A volume that the tables fill: the log lies over them.
                (0, size / PAGE_BYTES * PAGE_BYTES)
            },
            synced: 0,
            syncing_to: None,
            writes_left: 0,
            began: 0,
            limited_ns: 0,
            written: 0,
            ended: 0,
        }
    }

    /// It goes on from a position, without what is before that: another server's log had it.
    pub fn begin_at(&mut self, position: u64) {
        self.synced = position;
        if self.syncing_to.is_some() {
            self.syncing_to = Some(position);
        }
    }

    /// Whether a sync is under way.
    pub fn is_syncing(&self) -> bool {
        self.syncing_to.is_some()
    }
}

/// A server.
pub struct Server {
    /// Its number.
    pub number: u16,
    /// vCPUs.
    pub cores: Servers,
    /// What it sends.
    pub link: Link,
    /// Disks and page cache.
    pub storage: Storage,
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
        let machine = Machine::new(cluster, setting, number as u16, layout, rules)?;
        let Machine {
            cores,
            link,
            mut storage,
            ..
        } = machine;
        if !job.before.empty {
            if job.before.host_cache != CacheState::Cold {
                let pages = plan.pages * CACHE_PAGES;
                storage.warm_host_cache_up_to(pages, cluster.host_cache_bytes());
            }
            if job.before.page_cache != CacheState::Cold {
                storage.fill_page_cache(plan.pages * CACHE_PAGES);
            }
        }
        let log = Log::new(job, plan, &storage);
        Ok(Server {
            number: number as u16,
            cores,
            link,
            storage,
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
            let io = ios.add(PendingIo::new(self.number, Purpose::Stream(WRITE_BACK)));
            let (volume, at) = (self.storage.data_volume(), first * PAGE_BYTES);
            let bytes = (count * PAGE_BYTES) as u32;
            self.storage.submit(now, volume, Op::Write, at, bytes, io);
        }
    }

    /// Notes the end of such a write.
    pub fn written_back(&mut self) {
        self.write_back.under_way -= 1;
        self.write_back.sent.pop_front();
    }

    /// Syncs the data volume, at the end of a checkpoint or for the sake of a replay.
    pub fn sync_data(&mut self, now: u64, which: u8, ios: &mut PendingIos) {
        let io = ios.add(PendingIo::new(self.number, Purpose::Stream(which)));
        let volume = self.storage.data_volume();
        self.storage.submit(now, volume, Op::Flush, 0, 0, io);
    }

    /// Reads a part of the log.
    pub fn read_log(&mut self, now: u64, at: u64, bytes: u64, io: u32) {
        let (volume, (start, length)) = (self.log.volume, self.log.space);
        let place = at % length;
        let bytes = bytes.min(length - place) as u32;
        self.storage
            .submit(now, volume, Op::Read, start + place, bytes, io);
    }

    /// Begins to bring the log to the disk up to a position: whole pages, the one that the last sync ended in once more.
    ///
    /// **Source:** `XLogWrite` of PostgreSQL's xlog.c; then `fdatasync`.
    pub fn sync_log(&mut self, now: u64, to: u64, ios: &mut PendingIos) {
        let log = &mut self.log;
        (log.began, log.limited_ns, log.syncing_to) = (now, 0, Some(to));
        let (start, length) = log.space;
        let mut at = log.synced / PAGE_BYTES * PAGE_BYTES;
        let end = to.next_multiple_of(PAGE_BYTES);
        while at < end {
            let place = at % length;
            let bytes = (end - at).min(MOST_WRITE_BYTES).min(length - place);
            log.writes_left += 1;
            let io = ios.add(PendingIo::new(self.number, Purpose::Log(LOG_WRITE)));
            let (volume, from) = (log.volume, start + place);
            self.storage
                .submit(now, volume, Op::Write, from, bytes as u32, io);
            at += bytes;
        }
    }

    /// Notes that an I/O of the log has ended, which had passed all limits at `passed`. True: the sync is done.
    pub fn log_io_ended(
        &mut self,
        now: u64,
        which: u32,
        passed: u64,
        ios: &mut PendingIos,
    ) -> bool {
        let log = &mut self.log;
        if which == LOG_WRITE {
            log.limited_ns = log.limited_ns.max(passed.saturating_sub(log.began));
            log.writes_left -= 1;
            if log.writes_left == 0 {
                log.written = now;
                let io = ios.add(PendingIo::new(self.number, Purpose::Log(LOG_SYNC)));
                let volume = log.volume;
                self.storage.submit(now, volume, Op::Flush, 0, 0, io);
            }
            return false;
        }
        log.limited_ns += passed.saturating_sub(log.written);
        log.synced = log.syncing_to.take().unwrap_or(log.synced);
        log.ended = now;
        true
    }
}
