//! What of a job does not change during its run.

use disklab_disk::{Host, VolumeId};
use disklab_units::sizes::Bins;

use super::job::DatabaseJob;
use super::parameters::Parameters;
use crate::client::{Kind, What};
use crate::cluster::answers_needed;
use crate::database::build::{bins, stored_of_sizes, stored_row_bytes};
use crate::job::{Load, Mechanism};
use crate::pauses::Garbage;

use super::Operation;

/// What an operation costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Bytes of rows that its requests carry.
    pub sent_bytes: u64,
    /// Bytes that it leaves in commit log and memtable.
    pub stored_bytes: u64,
    /// CPU of the client.
    pub client_ns: u64,
    /// CPU of the coordinator.
    pub coordinator_ns: u64,
    /// CPU of a replica.
    pub replica_ns: u64,
    /// CPU for a message to a further replica.
    pub message_ns: u64,
    /// What its request leaves for the collector of each node that it comes to.
    pub garbage: Garbage,
}

/// What operations on a row of one size cost.
#[derive(Clone, Copy, Debug)]
pub struct RowCosts {
    /// Bytes of its values.
    pub row_bytes: u64,
    /// Of each [`What`], by its number.
    pub costs: [Costs; 7],
    /// CPU for a message that carries it.
    pub message_ns: u64,
}

/// Bytes of a deleted row in a table file: the partition, and when it was deleted. **Source:** `DeletionTime` of
/// Cassandra's serialisation has 12.
const TOMBSTONE_BYTES: u64 = 15 + 12;

/// Sizes and rules that do not change during a run.
#[derive(Clone, Debug)]
pub struct Rules {
    pub parameters: Parameters,
    pub read_repair_ppm: u32,
    pub needed: u8,
    /// Keys of the real table, where a quick run draws among them all.
    pub keys_by_popularity: Option<u64>,
    /// Of each size that rows have: what operations on them cost.
    pub sizes: Vec<RowCosts>,
    /// Which size each row has; none: all have one.
    bins: Option<Bins>,
    /// Bytes of a row's values, on average.
    pub row_bytes: u64,
    /// Bytes of a row in a table file, on average.
    pub stored_row_bytes: u64,
    pub reads_index: bool,
    /// Of each further row of a scan.
    pub further_row: Costs,
    /// CPU that opens a byte of a compressed chunk, in picoseconds.
    pub decompress_byte_ps: u64,
    pub message_overhead_ns: u64,
    pub near_first: bool,
    pub token_aware: bool,
    pub load: Load,
    /// What a thread that writes a table writes before it waits for the disk; none: all of it.
    pub unsynced_bytes: Option<u64>,
    /// Rate at which a thread writes a table into the page cache; zero: it takes no time.
    pub table_write_bytes_per_s: u64,
    commitlog_volume: String,
}

impl Rules {
    /// The rules of a job whose rows take `stored` bytes in a table file.
    pub fn new(job: &DatabaseJob, stored: u64, off: &[Mechanism]) -> Rules {
        let has = |mechanism| !off.contains(&mechanism);
        let replicas = job.database.replication_factor as usize;
        let row_bytes = u64::from(job.dataset.columns) * u64::from(job.dataset.column_bytes);
        let by_bytes = has(Mechanism::CpuByBytes);
        let parameters = parameters_of(job, row_bytes, by_bytes);
        let (one, further_row) = costs_of(job, &parameters, stored, by_bytes);
        let sizes = match &job.dataset.sizes {
            None => vec![one],
            Some(sizes) => {
                let stored = stored_of_sizes(job, sizes, stored);
                let each = sizes.iter().zip(stored).map(|(size, stored)| {
                    let mut job = job.clone();
                    job.dataset.column_bytes = size.column_bytes;
                    let row_bytes = u64::from(job.dataset.columns) * u64::from(size.column_bytes);
                    let at = parameters_of(&job, row_bytes, by_bytes);
                    costs_of(&job, &at, stored, by_bytes).0
                });
                each.collect()
            }
        };
        Rules {
            sizes,
            bins: job.dataset.sizes.as_deref().map(bins),
            further_row,
            decompress_byte_ps: if !has(Mechanism::DecompressionCpu) {
                0
            } else {
                job.database.decompress_byte_ps
            },
            parameters,
            read_repair_ppm: if replicas > 1 {
                job.database.read_repair_ppm
            } else {
                0
            },
            needed: answers_needed(job.database.consistency, replicas) as u8,
            keys_by_popularity: None,
            row_bytes,
            stored_row_bytes: stored,
            reads_index: has(Mechanism::IndexPages),
            message_overhead_ns: if !has(Mechanism::MessageOverhead) {
                0
            } else {
                job.parameters.message_overhead_ns
            },
            near_first: job.database.near_first,
            token_aware: job.client.token_aware,
            load: job.workload.load.clone(),
            unsynced_bytes: job.database.trickle_fsync_bytes,
            table_write_bytes_per_s: job.database.table_write_bytes_per_s,
            commitlog_volume: {
                let cluster = &job.cluster;
                let own = cluster.commitlog_volume.as_ref();
                own.unwrap_or(&cluster.data_volume).clone()
            },
        }
    }

    /// What an operation costs that reads so many rows.
    #[inline]
    pub fn costs_of(&self, what: What, rows: u32, size: u8) -> Costs {
        let mut costs = self.sizes[usize::from(size)].costs[what as usize];
        if rows > 1 {
            let further = u64::from(rows) - 1;
            costs.client_ns += further * self.further_row.client_ns;
            costs.coordinator_ns += further * self.further_row.coordinator_ns;
            costs.replica_ns += further * self.further_row.replica_ns;
        }
        costs
    }

    /// What such an operation leaves for the collector of each node that it comes to.
    #[inline]
    pub(super) fn garbage_of(&self, operation: &Operation) -> Garbage {
        let costs = &self.sizes[usize::from(operation.size)].costs;
        let mut garbage = costs[operation.part as usize].garbage;
        if operation.rows > 1 {
            let further = u64::from(operation.rows) - 1;
            garbage.filled += further * self.further_row.garbage.filled;
        }
        garbage
    }

    /// CPU for a message that carries so many rows, the first of them of a size.
    #[inline]
    pub fn rows_message_ns(&self, rows: u32, size: u8) -> u64 {
        let first = self.sizes[usize::from(size)].message_ns;
        first + (u64::from(rows) - 1) * self.further_row.message_ns
    }

    /// Bytes of so many rows, the first of them of a size.
    #[inline]
    pub fn bytes_of_rows(&self, rows: u32, size: u8) -> u64 {
        self.sizes[usize::from(size)].row_bytes + (u64::from(rows) - 1) * self.row_bytes
    }

    /// Which size a row of a node has.
    #[inline]
    pub fn size_of(&self, row: impl FnOnce() -> u64) -> u8 {
        match &self.bins {
            None => 0,
            Some(bins) => bins.of_row(row()) as u8,
        }
    }

    /// The volume with the commit log.
    pub fn commitlog(&self, host: &Host) -> VolumeId {
        let found = host.volume_named(&self.commitlog_volume);
        found.expect("the job was checked: the volume exists")
    }
}

/// The times for rows of so many bytes; `by_bytes`: whether bytes cost CPU.
fn parameters_of(job: &DatabaseJob, row_bytes: u64, by_bytes: bool) -> Parameters {
    if by_bytes {
        job.parameters.of_rows(row_bytes)
    } else {
        job.parameters.clone()
    }
}

/// What each operation costs, in the order of [`What`], and each further row of a scan. `parameters`: of rows of this
/// size; `by_bytes`: whether bytes cost CPU.
fn costs_of(
    job: &DatabaseJob,
    parameters: &Parameters,
    stored: u64,
    by_bytes: bool,
) -> (RowCosts, Costs) {
    let row_bytes = u64::from(job.dataset.columns) * u64::from(job.dataset.column_bytes);
    let write = |bytes, stored_bytes| {
        let at = parameters_of(job, bytes, by_bytes);
        Costs {
            sent_bytes: bytes,
            stored_bytes,
            client_ns: at.client_write_cpu_ns,
            coordinator_ns: at.coordinator_cpu_ns,
            replica_ns: at.write_cpu_ns,
            garbage: Garbage::of(&job.parameters, Kind::Write, bytes),
            message_ns: if by_bytes {
                parameters.write_message_ns(bytes)
            } else {
                parameters.message_cpu_ns
            },
        }
    };
    let read = Costs {
        client_ns: parameters.client_read_cpu_ns,
        coordinator_ns: parameters.coordinator_cpu_ns,
        replica_ns: parameters.read_cpu_ns,
        message_ns: parameters.message_cpu_ns,
        garbage: Garbage::of(&job.parameters, Kind::Read, row_bytes),
        ..Costs::default()
    };
    let whole = write(row_bytes, stored);
    let column = u64::from(job.dataset.column_bytes);
    let update = write(column, stored_row_bytes(1, job.dataset.column_bytes));
    let delete = write(0, TOMBSTONE_BYTES);
    let others = job.workload.others.as_ref();
    let given = &job.parameters;
    let of_row = |byte_ps| row_bytes * byte_ps / 1000;
    let further_row = Costs {
        client_ns: of_row(given.client_byte_ps),
        coordinator_ns: of_row(given.coordinator_byte_ps),
        replica_ns: of_row(given.read_byte_ps) + others.map_or(0, |o| o.scan_row_cpu_ns),
        message_ns: of_row(given.message_byte_ps),
        garbage: Garbage::of_further_row(given, row_bytes),
        ..Costs::default()
    };
    // The parts of a read that a write follows cost what they do alone.
    let costs = [read, whole, whole, update, delete, read, read];
    let row = RowCosts {
        row_bytes,
        message_ns: whole.message_ns,
        costs,
    };
    (row, further_row)
}
