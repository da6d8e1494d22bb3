//! A member: its machine, its log, its database file, and who waits for it.

use std::collections::VecDeque;

use disklab_disk::Refusal;

use super::backend::Backend;
use super::job::EtcdJob;
use crate::database::wal::{Journals, Log};
use crate::filelayout::{FileLayout, PAGE_BYTES};
use crate::job::CacheState;
use crate::machine::Machine;
use crate::model::Setting;
use crate::storage::ReadingRules;

/// Part of the volume that the log goes round in: five files that are kept, and the one that is written.
///
/// **Source:** `--max-wals` 5, and `SegmentSizeBytes` of wal.go, 64 MB.
const LOG_BYTES: u64 = 6 * 64_000_000;
/// Room for the database file over what its keys take: old revisions stay until they are compacted.
const ROOM: u64 = 2;

/// A member.
pub struct Member {
    /// Its machine.
    pub machine: Machine,
    /// Its log.
    pub log: Log,
    /// Its database file.
    pub backend: Backend,
    /// Up to where it knows the log to be committed, and has applied it. Positions are the same on all members.
    pub committed: u64,
    /// See `committed`.
    pub applied: u64,
    /// Entries since its last snapshot.
    pub entries: u64,
    /// Sessions whose puts it took, in the order of the log.
    pub waiting: VecDeque<u32>,
    /// Up to where it has told the leader that it has the log.
    pub confirmed: u64,
    /// To it and from it: positions on their way, in order.
    pub entries_coming: Way,
    /// See `entries_coming`.
    pub commits_coming: Way,
    /// See `entries_coming`.
    pub answers: Way,
}

/// A stream of messages, which come in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Way {
    positions: VecDeque<u64>,
    last: u64,
}

impl Way {
    /// Sends a position that would be there at a time; returns when it is.
    pub fn send(&mut self, at: u64, position: u64) -> u64 {
        self.positions.push_back(position);
        self.last = self.last.max(at);
        self.last
    }

    /// Takes the position that has come.
    pub fn take(&mut self) -> u64 {
        self.positions.pop_front().expect("it was sent")
    }
}

impl Member {
    /// Member `number`, its caches in the state asked for. Refuses what the disk model refuses.
    pub fn new(job: &EtcdJob, setting: &Setting, number: u16) -> Result<Member, Refusal> {
        let (cluster, settings) = (&job.cluster, &job.database);
        let table = &job.tables[0];
        let value_bytes = u64::from(table.row_bytes);
        let length = ROOM * Backend::leaf_bytes(value_bytes, table.rows);
        let layout = FileLayout::of_pages(length.div_ceil(PAGE_BYTES));
        let rules = ReadingRules::past_page_cache(cluster, setting);
        let mut machine = Machine::new(cluster, setting, number, layout, rules)?;
        let host = &mut machine.storage.disks.host;
        if number == 0 {
            setting.keep_journal(host, job.workload.warm_up_ns);
        }
        if job.before.host_cache != CacheState::Cold {
            machine.storage.warm_host_cache(cluster.host_cache_bytes());
        }
        let (volume, size) = machine.storage.volume_named(cluster.log_volume());
        let own = volume != machine.storage.data_volume();
        let start = if own { 0 } else { length };
        // A volume that the database fills: the log lies over it.
        let start = if start + LOG_BYTES > size { 0 } else { start };
        let space = (start, LOG_BYTES.min(size / PAGE_BYTES * PAGE_BYTES));
        let log = Log::new(0, volume, space, (1, settings.journal_writes))
            .with_journals(Journals::NewBlocks);
        Ok(Member {
            machine,
            log,
            backend: Backend::new(value_bytes, settings.journal_writes, length),
            committed: 0,
            applied: 0,
            entries: 0,
            waiting: VecDeque::new(),
            confirmed: 0,
            entries_coming: Way::default(),
            commits_coming: Way::default(),
            answers: Way::default(),
        })
    }
}
