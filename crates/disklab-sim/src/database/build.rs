//! Building a node: its part of the data, its caches in the state asked for.

use disklab_disk::Refusal;
use disklab_units::sizes::{BINS, Bins, Size};

use crate::background::{Background, Off};
use crate::cluster::{Ring, hash};
use crate::database::cassandra::job::{Access, DatabaseJob};
use crate::filelayout::{FileLayout, PAGE_BYTES};
use crate::job::faults::Event;
use crate::job::{CacheState, Mechanism};
use crate::machine::Machine;
use crate::model::Setting;
use crate::node::Node;
use crate::pauses::Pauses;
use crate::permutation::Permutation;
use crate::station::Slots;
use crate::storage::{Reading, ReadingRules};

/// Bytes of a row in a table file: its values, and the overhead of partition, row and cells.
/// **Source:** the 2019 study's rows of 5 columns of 818 bytes take 4255 bytes: 165 more than their
/// values, which 15 for the partition and 30 for each cell make up.
pub fn stored_row_bytes(columns: u32, column_bytes: u32) -> u64 {
    15 + u64::from(columns) * (30 + u64::from(column_bytes))
}

/// Builds the nodes of a cluster, and behind them the hosts that nodes move to in the order of the events.
pub fn nodes(
    job: &DatabaseJob,
    setting: &Setting,
    ring: &Ring,
    stored_row_bytes: u64,
) -> Result<Vec<Node>, Refusal> {
    let build = |job: &DatabaseJob, seat| node(job, setting, seat, ring, stored_row_bytes);
    let mut all = (0..job.cluster.nodes as usize)
        .map(|number| build(job, number))
        .collect::<Result<Vec<Node>, Refusal>>()?;
    for (seat, other) in later_hosts(job) {
        let mut spare = build(&other, seat)?;
        spare.machine.storage.renumber(all.len() as u16);
        all.push(spare);
    }
    Ok(all)
}

/// The hosts that nodes move to, with the seat of each; their caches are empty.
fn later_hosts(job: &DatabaseJob) -> Vec<(usize, DatabaseJob)> {
    let Some(faults) = &job.faults else {
        return Vec::new();
    };
    let moves = faults.in_order();
    let moves = moves.iter().filter(|event| event.host.is_some());
    let on_host = |event: &Event| {
        let host = event.host.map(|at| &faults.hosts[at as usize])?;
        let mut other = job.clone();
        other.cluster = host.clone();
        other.before.page_cache = CacheState::Cold;
        other.before.host_cache = CacheState::Cold;
        Some((event.node as usize, other))
    };
    moves.filter_map(on_host).collect()
}

/// Builds a node with its part of the data, its caches in the state asked for.
pub fn node(
    job: &DatabaseJob,
    setting: &Setting,
    number: usize,
    ring: &Ring,
    stored_row_bytes: u64,
) -> Result<Node, Refusal> {
    let has = |mechanism| setting.has(mechanism);
    let first_rows = ring.rows_of(number, job.dataset.rows);
    // What it gets later lies behind what it has.
    let rows = ring.most_rows_of(number, job.dataset.rows).max(1);
    let mut layout = layout(job, rows, stored_row_bytes);
    if ring.files() > 1 {
        layout = layout.divided(&ring.first_rows(number, job.dataset.rows));
    }
    let cluster = &job.cluster;
    let rules = rules(job, setting);
    let mut machine = Machine::new(cluster, setting, number as u16, layout, rules)?;
    let storage = &mut machine.storage;
    if !job.before.empty {
        let is_filled = |state| matches!(state, CacheState::Written | CacheState::Warm);
        if is_filled(job.before.host_cache) {
            let pages = share(storage.layout().all_pages(), first_rows, rows);
            storage.warm_host_cache_up_to(pages, cluster.host_cache_bytes());
        }
        if is_filled(job.before.page_cache) {
            storage.warm_page_cache(cluster.page_cache_bytes / PAGE_BYTES, false);
        }
    }
    let (log, _) = storage.volume_named(cluster.log_volume());
    let idle = Off {
        all: !has(Mechanism::BackgroundIo),
        pace: !has(Mechanism::PacedTables),
    };
    let slots = |count| {
        let has_slots = has(Mechanism::Slots);
        Slots::new(if has_slots { count } else { u32::MAX })
    };
    Ok(Node {
        read_slots: slots(job.database.concurrent_reads),
        write_slots: slots(job.database.concurrent_writes),
        background: Background::new(&job.database, storage, log, idle),
        pauses: pauses_of(job, number, rows, setting),
        machine,
        rows: Permutation::new(first_rows.max(1), hash(setting.seed, number as u64 + 1)),
        room_rows: rows,
    })
}

/// The pauses of a node with so many rows.
fn pauses_of(job: &DatabaseJob, number: usize, rows: u64, setting: &Setting) -> Pauses {
    let asked = job.workload.asked_rows.unwrap_or(job.dataset.rows);
    let asked = share(rows, asked, job.dataset.rows).saturating_mul(setting.scale);
    let none = !setting.has(Mechanism::Pauses);
    let collector = job.cluster.collector;
    Pauses::of_node(
        &job.parameters,
        collector,
        number,
        asked,
        setting.seed,
        none,
    )
}

/// So many of `all` as `part` is of `whole`.
pub fn share(all: u64, part: u64, whole: u64) -> u64 {
    (u128::from(all) * u128::from(part.min(whole)) / u128::from(whole.max(1))) as u64
}

/// Which size each row of a node has.
///
/// **Divergence:** the copies of a row on further nodes have sizes of their own, drawn alike.
pub fn bins(sizes: &[Size]) -> Bins {
    Bins::new(sizes, 0)
}

/// Bytes of a row of each size in a table file; `stored`: of one of the mean size.
pub fn stored_of_sizes(job: &DatabaseJob, sizes: &[Size], stored: u64) -> Vec<u64> {
    let columns = u64::from(job.dataset.columns);
    let beside = stored.saturating_sub(columns * u64::from(job.dataset.column_bytes));
    let of = |size: &Size| columns * u64::from(size.column_bytes) + beside;
    sizes.iter().map(of).collect()
}

/// The table of a node with so many rows.
pub fn layout(job: &DatabaseJob, rows: u64, stored_row_bytes: u64) -> FileLayout {
    let chunk = job.database.chunk_bytes.map(|plain| {
        let stored = u64::from(plain) * u64::from(job.database.compressed_permille) / 1000;
        (u64::from(plain), stored.max(1))
    });
    let layout = match &job.dataset.sizes {
        None => FileLayout::new(rows, stored_row_bytes, chunk),
        Some(sizes) => {
            let (bins, stored) = (bins(sizes), stored_of_sizes(job, sizes, stored_row_bytes));
            let each: Vec<u64> = (0..BINS as u64)
                .map(|row| stored[bins.of_row(row)])
                .collect();
            FileLayout::of_sizes(rows, &each, chunk)
        }
    };
    match job.dataset.index_entry_bytes {
        Some(bytes) => layout.with_index_entries(u64::from(bytes)),
        None => layout,
    }
}

fn rules(job: &DatabaseJob, setting: &Setting) -> ReadingRules {
    let reads_ahead = setting.has(Mechanism::ReadAround);
    let read_ahead_bytes = u64::from(reads_ahead) * job.cluster.read_ahead_bytes;
    let (data, index) = match job.database.access {
        Access::Mmap => (Reading::Mapped, Reading::Mapped),
        Access::MmapIndexOnly => (Reading::Buffered, Reading::Mapped),
        Access::Standard => (Reading::Buffered, Reading::Buffered),
    };
    ReadingRules {
        data,
        index,
        scale: setting.scale,
        ..ReadingRules::through_page_cache(&job.cluster, setting, read_ahead_bytes)
    }
}
