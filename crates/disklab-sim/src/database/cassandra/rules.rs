//! What of a job does not change during its run.

use disklab_disk::{Host, VolumeId};

use crate::cluster::answers_needed;
use crate::job::{DatabaseJob, Load, Mechanism, Parameters};

/// Sizes and rules that do not change during a run.
#[derive(Clone, Debug)]
pub struct Rules {
    pub parameters: Parameters,
    pub read_repair_ppm: u32,
    pub needed: u8,
    /// Keys of the real table, where a quick run draws among them all.
    pub keys_by_popularity: Option<u64>,
    pub row_bytes: u64,
    pub stored_row_bytes: u64,
    pub reads_index: bool,
    /// CPU for a message to a further replica: a read's, a write's.
    pub message_ns: [u64; 2],
    /// CPU that opens a byte of a compressed chunk, in picoseconds.
    pub decompress_byte_ps: u64,
    pub message_overhead_ns: u64,
    pub near_first: bool,
    pub token_aware: bool,
    pub load: Load,
    pub page_cache_bytes: u64,
    /// What a thread that writes a table writes before it waits for the disk; none: all of it.
    pub unsynced_bytes: Option<u64>,
    /// Rate at which a thread writes a table into the page cache; zero: it takes no time.
    pub table_write_bytes_per_s: u64,
    commitlog_volume: String,
}

impl Rules {
    /// The rules of a job whose rows take `stored` bytes in a table file.
    pub fn new(job: &DatabaseJob, stored: u64, off: &[Mechanism]) -> Rules {
        let has_not = |mechanism| off.contains(&mechanism);
        let replicas = job.database.replication_factor as usize;
        let row_bytes = u64::from(job.dataset.columns) * u64::from(job.dataset.column_bytes);
        let parameters = if has_not(Mechanism::CpuByBytes) {
            job.parameters.clone()
        } else {
            job.parameters.of_rows(row_bytes)
        };
        Rules {
            message_ns: [
                parameters.message_cpu_ns,
                if has_not(Mechanism::CpuByBytes) {
                    parameters.message_cpu_ns
                } else {
                    parameters.write_message_ns(row_bytes)
                },
            ],
            decompress_byte_ps: if has_not(Mechanism::DecompressionCpu) {
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
            reads_index: !has_not(Mechanism::IndexPages),
            message_overhead_ns: if has_not(Mechanism::MessageOverhead) {
                0
            } else {
                job.parameters.message_overhead_ns
            },
            near_first: job.database.near_first,
            token_aware: job.client.token_aware,
            load: job.workload.load.clone(),
            page_cache_bytes: job.cluster.page_cache_bytes,
            unsynced_bytes: job.database.trickle_fsync_bytes,
            table_write_bytes_per_s: job.database.table_write_bytes_per_s,
            commitlog_volume: {
                let cluster = &job.cluster;
                let own = cluster.commitlog_volume.as_ref();
                own.unwrap_or(&cluster.data_volume).clone()
            },
        }
    }

    /// The volume with the commit log.
    pub fn commitlog(&self, host: &Host) -> VolumeId {
        let found = host.volume_named(&self.commitlog_volume);
        found.expect("the job was checked: the volume exists")
    }
}
