//! A commit's way through the server's logs.

use super::job::Replication;
use super::{BINLOG, Event, Mariadb, REDO, SYNC_EVERY_NS, WRITTEN_BACK_EVERY};
use crate::database::sessions::Sessions;
use crate::tail::Stretch;

impl Mariadb {
    /// A commit goes to the redo log.
    pub(super) fn log_commit(&mut self, now: u64, number: u32) {
        if self.rules.syncs[REDO as usize] {
            self.redo.wait(number);
            return self.sync_log(now, REDO);
        }
        self.prepared(now, number);
    }

    pub(super) fn binlog_bytes(&mut self, number: u32, bytes: u64) {
        self.sessions[number as usize].binlog_bytes =
            bytes + self.rules.parameters.binlog_commit_bytes;
    }

    /// The redo log has the transaction: now the binary log.
    fn prepared(&mut self, now: u64, number: u32) {
        if self.rules.writes_binlog {
            self.binlog.end += self.sessions[number as usize].binlog_bytes;
        }
        if !self.rules.syncs[BINLOG as usize] {
            return self.logged(now, number);
        }
        self.binlog.wait(number);
        self.sync_log(now, BINLOG);
    }

    /// The next group of commits goes to a log.
    fn sync_log(&mut self, now: u64, which: u32) {
        let log = if which == REDO {
            &mut self.redo
        } else {
            &mut self.binlog
        };
        let mut done = Vec::new();
        log.sync(
            now,
            &mut self.machine.storage,
            &mut self.course.ios,
            &mut done,
        );
        for number in done {
            self.clients.spend(now, number, Stretch::Held);
            self.past_log(now, which, number);
        }
    }

    /// A log has the transaction.
    fn past_log(&mut self, now: u64, which: u32, number: u32) {
        if which == REDO {
            self.prepared(now, number);
        } else {
            self.logged(now, number);
        }
    }

    /// The logs have the transaction: now the replica.
    pub(super) fn logged(&mut self, now: u64, number: u32) {
        match self.rules.replication {
            Replication::SemiSync => self.replicate(now, number),
            Replication::Alone | Replication::Galera => self.reply(now, now, number),
        }
    }

    /// Logs that nobody waits for go to the disk.
    pub(super) fn write_logs(&mut self, now: u64) {
        let [syncs_redo, syncs_binlog] = match self.runs() {
            true => self.rules.syncs,
            false => [true, true],
        };
        if !syncs_redo {
            self.redo
                .write(now, true, &mut self.machine.storage, &mut self.course.ios);
        }
        if !syncs_binlog && (now / SYNC_EVERY_NS).is_multiple_of(WRITTEN_BACK_EVERY) {
            self.binlog
                .write(now, false, &mut self.machine.storage, &mut self.course.ios);
        }
        self.course.queue.push(now + SYNC_EVERY_NS, Event::Logs);
    }

    pub(super) fn log_io_ended(&mut self, when: (u64, u64), which: u32) {
        let now = when.0;
        let log = if which == REDO {
            &mut self.redo
        } else {
            &mut self.binlog
        };
        let mut done = Vec::new();
        let began = log.began;
        log.io_ended(
            when,
            &mut self.machine.storage,
            &mut self.course.ios,
            &mut done,
        );
        if !done.is_empty() {
            self.sync_log(now, which);
        }
        for number in done {
            self.waited_for_log(now, number, began);
            self.past_log(now, which, number);
        }
    }
}
