//! What is fitted or measured of Cassandra, and of the JVM that runs it.

use serde::{Deserialize, Serialize};

/// What is fitted: times that no page states. All in nanoseconds unless the name says otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Time of every operation that no queue explains: thread hand-overs, system calls, wake-ups.
    pub overhead_ns: u64,
    /// CPU of the client for a read.
    pub client_read_cpu_ns: u64,
    /// CPU of the client for a write.
    pub client_write_cpu_ns: u64,
    /// How much more CPU the first operation of a client machine costs, in permille of a warm one's; zero:
    /// the client is warm from the start.
    pub client_cold_permille: u64,
    /// Operations of a client machine over which that goes down to nothing.
    pub client_warm_operations: u64,
    /// CPU of the coordinator for any request.
    pub coordinator_cpu_ns: u64,
    /// CPU of the coordinator for each further replica that it talks to, and of that replica for
    /// the message.
    pub message_cpu_ns: u64,
    /// CPU of a replica for a read.
    pub read_cpu_ns: u64,
    /// CPU of a replica for a read that meets the disk, beside `read_cpu_ns`: faults, pages taken from others, threads
    /// that sleep and wake up.
    #[serde(default)]
    pub disk_read_cpu_ns: u64,
    /// CPU of a replica for a write, flush and compaction included.
    pub write_cpu_ns: u64,
    /// Mean length of a pause (garbage collection) of a node that takes reads alone.
    pub read_pause_ns: u64,
    /// Mean length of a pause of a node that takes writes alone; both zero: none.
    pub write_pause_ns: u64,
    /// Requests of a node between two pauses.
    pub pause_every_requests: u64,
    /// Bytes that a young generation took when the three above were found; zero: the one of every job.
    pub at_young_bytes: u64,
    /// Threads of the collector at that time; zero: as many as in every job.
    pub at_collector_threads: u64,
    /// Of a pause after reads alone, what follows from the keys that they put into the key cache, in permille.
    pub read_moved_permille: u64,
    /// Of the work of a collection, what its threads do not share, in permille of what one thread takes for all of it.
    pub collector_alone_permille: u64,
    /// Bytes that a read allocates whatever its row has.
    pub read_allocated_bytes: u64,
    /// What it allocates for each byte of its row, in permille.
    pub read_allocated_permille: u64,
    /// Bytes that a write allocates whatever it writes, flush and compaction included.
    pub write_allocated_bytes: u64,
    /// What it allocates for each byte that it writes, in permille.
    pub write_allocated_permille: u64,
    /// Bytes of a write that a collection finds alive and moves, whatever it writes.
    pub write_kept_bytes: u64,
    /// Such bytes for each byte that it writes, in permille.
    pub write_kept_permille: u64,
    /// Mean time of a message between nodes that no queue explains: hand-overs between threads at both ends, wake-ups.
    pub message_overhead_ns: u64,
    /// Bytes of a row for which the CPU times above hold.
    pub at_row_bytes: u64,
    /// CPU of the client for each further byte of a row, in picoseconds: copying, coding, allocation.
    pub client_byte_ps: u64,
    /// The same of the coordinator.
    pub coordinator_byte_ps: u64,
    /// The same for each further replica that a row is written to, at both ends.
    pub message_byte_ps: u64,
    /// The same of a replica for a read.
    pub read_byte_ps: u64,
    /// The same of a replica for a write, flush and compaction included.
    pub write_byte_ps: u64,
}

impl Parameters {
    /// The same, with the CPU times of rows of so many bytes.
    pub fn of_rows(&self, row_bytes: u64) -> Parameters {
        let at = |ns: u64, byte_ps: u64| {
            let time = |bytes: u64| (u128::from(bytes) * u128::from(byte_ps) / 1000) as u64;
            (ns + time(row_bytes)).saturating_sub(time(self.at_row_bytes))
        };
        Parameters {
            client_read_cpu_ns: at(self.client_read_cpu_ns, self.client_byte_ps),
            client_write_cpu_ns: at(self.client_write_cpu_ns, self.client_byte_ps),
            coordinator_cpu_ns: at(self.coordinator_cpu_ns, self.coordinator_byte_ps),
            read_cpu_ns: at(self.read_cpu_ns, self.read_byte_ps),
            write_cpu_ns: at(self.write_cpu_ns, self.write_byte_ps),
            ..self.clone()
        }
    }

    /// CPU for a message that carries a row of so many bytes to a further replica.
    pub fn write_message_ns(&self, row_bytes: u64) -> u64 {
        let time =
            |bytes: u64| (u128::from(bytes) * u128::from(self.message_byte_ps) / 1000) as u64;
        (self.message_cpu_ns + time(row_bytes)).saturating_sub(time(self.at_row_bytes))
    }
}
