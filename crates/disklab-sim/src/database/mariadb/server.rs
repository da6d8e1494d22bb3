//! A server's parts in the state asked for: disks, logs, pool.

use disklab_disk::Refusal;

use super::job::{MariadbJob, Replication};
use super::{BINLOG, REDO};
use crate::database::mariadb::applier::{Applier, OTHER};
use crate::database::mariadb::leaves::PAGE_BYTES;
use crate::database::mariadb::plan::{Plan, UNDO_PAGES};
use crate::database::mariadb::pool::Pool;
use crate::database::wal::Log;
use crate::filelayout::{FileLayout, PAGE_BYTES as CACHE_PAGE_BYTES, spread};
use crate::job::{CacheState, Mechanism};
use crate::machine::Machine;
use crate::model::Setting;
use crate::storage::{ReadingRules, Storage};

/// Pages of the doublewrite buffer behind undo.
const DOUBLEWRITE_PAGES: u64 = 128;

/// The pool in the state asked for.
pub(super) fn filled_pool(job: &MariadbJob, plan: &Plan, setting: &Setting) -> Pool {
    let settings = &job.database;
    let pages = plan.pages + UNDO_PAGES;
    let old = if !setting.has(Mechanism::MidpointInsertion) {
        (95, 0)
    } else {
        (settings.old_blocks_pct, settings.old_blocks_time_ns)
    };
    let first_blank = if job.before.empty { 0 } else { plan.laid_pages };
    let pool = Pool::new(pages, settings.buffer_pool_bytes / PAGE_BYTES, old);
    let mut pool = pool.with_blank(first_blank..pages);
    if job.before.page_cache != CacheState::Cold && !job.before.empty {
        warm(&mut pool, plan.filled_pages, settings.lru_scan_depth);
    }
    pool
}

/// Another node of a Galera cluster, whose caches and disks are as those of the first; elsewhere none.
pub(super) fn applier(
    job: &MariadbJob,
    plan: &Plan,
    setting: &Setting,
) -> Result<Option<Box<Applier>>, Refusal> {
    let (cluster, settings) = (&job.cluster, &job.database);
    if settings.replication != Replication::Galera || !setting.has(Mechanism::FlowControl) {
        return Ok(None);
    }
    let machine = machine(job, plan, setting, OTHER)?;
    let (redo, _) = logs(job, plan, &machine.storage, setting);
    let pool = filled_pool(job, plan, setting);
    let (nodes, threads) = (cluster.nodes, settings.applier_threads);
    Ok(Some(Box::new(Applier::new(
        (machine, pool, redo),
        (nodes, threads, settings.syncs_redo),
        setting.seed,
    ))))
}

/// A server's machine, past whose page cache it reads and writes.
pub(super) fn machine(
    job: &MariadbJob,
    plan: &Plan,
    setting: &Setting,
    node: u16,
) -> Result<Machine, Refusal> {
    let cluster = &job.cluster;
    let rules = ReadingRules::past_page_cache(cluster, setting);
    let cache_pages = PAGE_BYTES / CACHE_PAGE_BYTES;
    let layout = FileLayout::of_pages((plan.pages + UNDO_PAGES) * cache_pages);
    let mut machine = Machine::new(cluster, setting, node, layout, rules)?;
    let storage = &mut machine.storage;
    if !job.before.empty && job.before.host_cache != CacheState::Cold {
        let pages = plan.filled_pages * cache_pages;
        storage.warm_host_cache_up_to(pages, cluster.host_cache_bytes());
    }
    if node == 0 {
        setting.keep_journal(&mut storage.disks.host, job.workload.warm_up_ns);
    }
    Ok(machine)
}

/// The redo log and the binary log, on their volumes or behind the tables.
pub(super) fn logs(
    job: &MariadbJob,
    plan: &Plan,
    storage: &Storage,
    setting: &Setting,
) -> (Log, Log) {
    let (cluster, settings) = (&job.cluster, &job.database);
    let period = if !setting.has(Mechanism::SyncPeriod) {
        settings.sync_binlog.min(1)
    } else {
        settings.sync_binlog
    };
    let redo_volume = cluster.log_volume();
    let binlog_volume = settings.binlog_volume.as_deref().unwrap_or(redo_volume);
    let behind = (plan.pages + UNDO_PAGES + DOUBLEWRITE_PAGES) * PAGE_BYTES;
    let log = |number, name: &str, before: u64, groups| {
        let (volume, size) = storage.volume_named(name);
        let start = if name == cluster.data_volume {
            behind
        } else {
            0
        } + before;
        let room = size.saturating_sub(start);
        let space = if room < settings.log_file_bytes {
            // A volume that the tables fill: the log lies over them.
            (0, size)
        } else {
            (start, settings.log_file_bytes)
        };
        let length = (space.1 / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES);
        Log::new(number, volume, (space.0, length), groups)
    };
    let before = if binlog_volume == redo_volume {
        settings.log_file_bytes.next_multiple_of(PAGE_BYTES)
    } else {
        0
    };
    (
        log(REDO, redo_volume, 0, (1, settings.time_journal_writes)),
        log(
            BINLOG,
            binlog_volume,
            before,
            (period, settings.binlog_journal_writes),
        ),
    )
}

/// Fills the pool with pages from all over, as reading them at random leaves them, and long before the run.
fn warm(pool: &mut Pool, pages: u64, depth: u32) {
    let free = u64::from(depth.min(pool.capacity() / 4));
    for page in spread(u64::from(pool.capacity()).saturating_sub(free), pages, 0) {
        pool.take(0, page as u32);
    }
}
