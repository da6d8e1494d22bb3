//! Another node of a Galera cluster: it applies the changes of all commits, and holds the cluster up where it cannot keep up.
//!
//! A commit is certified everywhere and then waits for no node to apply it. Each node applies the changes of others with
//! `wsrep_slave_threads` threads, one by default: a thread reads the leaf of each changed row, unless it is in the node's own pool, and
//! its commit waits for the redo log as a client's would. What it has not applied yet is its receive queue; a queue above the limit of
//! **flow control** stops the commits of the whole cluster until it is shorter.
//!
//! **Source:** Galera's documentation, "Galera Parameters" (`gcs.fc_limit` 16, `gcs.fc_factor` 1.0, `gcs.fc_single_primary` off: the limit
//! grows with the root of the number of nodes) and "Managing Flow Control"; MariaDB 10.11, `wsrep_slave_threads`.
//! **Divergence:** one of the other nodes stands for all; its page cleaner writes nothing, undo is in its pool, and threads apply changes of
//! the same rows side by side.

use std::collections::VecDeque;

use super::job::MariadbParameters;
use crate::chance::work;
use crate::database::mariadb::leaves::PAGE_BYTES;
use crate::database::mariadb::pool::Pool;
use crate::database::wal::Log;
use crate::machine::Machine;
use crate::storage::{PendingIos, Purpose};
use disklab_disk::Op;
use disklab_units::random::Stream;

/// Commits in the receive queue that make a cluster of one node wait. **Source:** the default of `gcs.fc_limit`.
const FLOW_CONTROL_LIMIT: f64 = 16.0;

/// The node's number, in I/Os.
pub const OTHER: u16 = 1;

/// Changes of a commit.
#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    /// Leaves whose rows it changes.
    pub leaves: Vec<u32>,
    /// Bytes of the redo log.
    pub redo_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    set: WriteSet,
    next: usize,
}

/// The node.
pub struct Applier {
    /// Its processors and disks.
    pub machine: Machine,
    pool: Pool,
    redo: Log,
    syncs_redo: bool,
    queue: VecDeque<WriteSet>,
    threads: Vec<Thread>,
    idle: Vec<u32>,
    limit: usize,
    times: Stream,
}

impl Applier {
    /// A node with an empty queue, of a cluster of `nodes`.
    pub fn new(
        (machine, pool, redo): (Machine, Pool, Log),
        (nodes, threads, syncs_redo): (u32, u32, bool),
        seed: u64,
    ) -> Applier {
        Applier {
            machine,
            pool,
            redo,
            syncs_redo,
            queue: VecDeque::new(),
            threads: vec![Thread::default(); threads.max(1) as usize],
            idle: (0..threads.max(1)).rev().collect(),
            limit: (FLOW_CONTROL_LIMIT * f64::from(nodes).sqrt() + 0.5) as usize,
            times: Stream::new(seed, "applier cpu"),
        }
    }

    /// Whether its queue stops the commits of the cluster.
    pub fn stops(&self) -> bool {
        self.queue.len() > self.limit
    }

    /// Takes the changes of a commit into its queue; returns the thread that begins with them, if one is idle.
    pub fn receive(&mut self, set: WriteSet) -> Option<u32> {
        self.queue.push_back(set);
        self.begin()
    }

    /// An idle thread takes the next changes.
    fn begin(&mut self) -> Option<u32> {
        let thread = self.idle.pop()?;
        let Some(set) = self.queue.pop_front() else {
            self.idle.push(thread);
            return None;
        };
        self.threads[thread as usize] = Thread { set, next: 0 };
        Some(thread)
    }

    /// A thread goes through its leaves; returns when it has done its work on the CPU, or nothing while it waits for a page.
    pub fn go_on(
        &mut self,
        now: u64,
        thread: u32,
        parameters: &MariadbParameters,
        ios: &mut PendingIos,
    ) -> Option<u64> {
        let at = &mut self.threads[thread as usize];
        while let Some(&leaf) = at.set.leaves.get(at.next) {
            if self.pool.is_blank(leaf) {
                make_room(&mut self.pool);
                self.pool.make(now, leaf);
            } else if !self.pool.find(now, leaf) {
                let read = (Op::Read, u64::from(leaf) * PAGE_BYTES, PAGE_BYTES);
                let storage = &mut self.machine.storage;
                storage.send(now, ios, Purpose::Piece(thread), read);
                return None;
            }
            at.next += 1;
        }
        let rows = at.set.leaves.len() as u64;
        let cpu_ns = rows * (parameters.row_read_cpu_ns + parameters.row_write_cpu_ns)
            + parameters.commit_cpu_ns;
        Some(self.machine.cores.serve(now, work(&mut self.times, cpu_ns)))
    }

    /// A thread's page has been read.
    pub fn page_read(&mut self, now: u64, thread: u32) {
        let at = &self.threads[thread as usize];
        let leaf = at.set.leaves[at.next];
        if !self.pool.holds(leaf) {
            make_room(&mut self.pool);
            self.pool.take(now, leaf);
        }
    }

    /// A thread has applied its changes: they go to the redo log. Returns whether it is through with them.
    pub fn applied(&mut self, now: u64, thread: u32, ios: &mut PendingIos) -> bool {
        self.redo.end += self.threads[thread as usize].set.redo_bytes;
        if self.syncs_redo {
            self.redo.wait(thread);
            self.redo
                .sync(now, &mut self.machine.storage, ios, &mut Vec::new());
        }
        !self.syncs_redo
    }

    /// An I/O of the redo log has ended. Puts threads that are through with their changes into `done`.
    pub fn log_io_ended(&mut self, when: (u64, u64), ios: &mut PendingIos, done: &mut Vec<u32>) {
        self.redo
            .io_ended(when, &mut self.machine.storage, ios, done);
        if !done.is_empty() {
            self.redo.sync(when.0, &mut self.machine.storage, ios, done);
        }
    }

    /// A thread is through with its changes; returns it if it begins with the next ones.
    pub fn free(&mut self, thread: u32) -> Option<u32> {
        self.idle.push(thread);
        self.begin()
    }
}

/// Has the oldest page leave the pool, if none is free.
fn make_room(pool: &mut Pool) {
    if pool.free() == 0
        && let Some(oldest) = pool.oldest()
    {
        pool.evict(oldest);
    }
}
