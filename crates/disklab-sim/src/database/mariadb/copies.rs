//! Commits on their way to other servers: a replica, or the nodes of a Galera cluster.

use super::Mariadb;
use super::job::Replication;
use crate::database::mariadb::applier::WriteSet;
use crate::database::mariadb::event::Event;
use crate::database::sessions::Sessions;
use crate::storage::{PendingIo, Purpose};
use crate::tail::Stretch;

impl Mariadb {
    /// A commit's changes go to all other servers, and it waits for the last of them.
    pub(super) fn replicate(&mut self, now: u64, number: u32) {
        if self.waits_for_peer(now, number) {
            return;
        }
        let bytes = self.sessions[number as usize].binlog_bytes;
        let cpu_ns = self.rules.parameters.replication_cpu_ns;
        let ready = self.machine.cores.serve(now, self.clients.work(cpu_ns));
        let mut at = ready;
        for other in 1..=self.rules.others {
            if !self.is_there(other) {
                continue;
            }
            let left = self.machine.link.send(now, ready, bytes);
            let way = self.clients.paths.delay(0, other) + self.clients.paths.delay(other, 0);
            at = at.max(left + way + self.clients.work(cpu_ns));
        }
        self.course.queue.push(at, Event::Confirmed(number));
    }

    pub(super) fn confirmed(&mut self, now: u64, number: u32) {
        self.clients.spend(now, number, Stretch::Network);
        match self.rules.replication {
            Replication::Galera => {
                self.receive(now, number);
                self.log_commit(now, number);
            }
            Replication::Alone | Replication::SemiSync => self.reply(now, now, number),
        }
    }

    /// The changes of a commit that all nodes have certified are in the queue of another one.
    fn receive(&mut self, now: u64, number: u32) {
        let parameters = &self.rules.parameters;
        let session = &mut self.sessions[number as usize];
        let leaves = std::mem::take(&mut session.changed);
        let rows = leaves.len() as u64;
        let redo_bytes = parameters.redo_commit_bytes
            + rows * parameters.redo_row_bytes
            + session
                .binlog_bytes
                .saturating_sub(parameters.binlog_commit_bytes);
        let Some(applier) = &mut self.applier else {
            return;
        };
        if let Some(thread) = applier.receive(WriteSet { leaves, redo_bytes }) {
            self.apply(now, thread);
        }
    }

    /// A thread of the other node goes on with the changes that it applies.
    fn apply(&mut self, now: u64, thread: u32) {
        let applier = self.applier.as_mut().expect("it has a thread");
        if let Some(at) = applier.go_on(now, thread, &self.rules.parameters, &mut self.course.ios) {
            self.course.queue.push(at, Event::Applied(thread));
        }
    }

    pub(super) fn applied(&mut self, now: u64, thread: u32) {
        let applier = self.applier.as_mut().expect("it has applied something");
        if applier.applied(now, thread, &mut self.course.ios) {
            self.through(now, thread);
        }
    }

    /// A thread of the other node has made changes last: it goes on, and so do commits that waited for room in its queue.
    fn through(&mut self, now: u64, thread: u32) {
        let applier = self.applier.as_mut().expect("it has a thread");
        if let Some(thread) = applier.free(thread) {
            self.apply(now, thread);
        }
        while self
            .applier
            .as_ref()
            .is_some_and(|applier| !applier.stops())
            && let Some(number) = self.held.pop_front()
        {
            self.clients.spend(now, number, Stretch::Retry);
            self.replicate(now, number);
        }
    }

    pub(super) fn other_io_ended(&mut self, now: u64, io: &PendingIo) {
        let applier = self.applier.as_mut().expect("it has an I/O");
        if let Purpose::Piece(thread) = io.purpose {
            applier.page_read(now, thread);
            return self.apply(now, thread);
        }
        let mut done = Vec::new();
        applier.log_io_ended((now, io.passed), &mut self.course.ios, &mut done);
        for thread in done {
            self.through(now, thread);
        }
    }
}
