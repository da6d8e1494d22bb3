//! What makes changes last: the log and its syncs, standbys, checkpoints, and Linux's write-back.

use super::{EXPIRE_NS, FLUSH_AFTER, MESSAGE_BYTES, Postgresql};
use crate::database::postgresql::checkpoint::LOOK_NS;
use crate::database::postgresql::event::Event;
use crate::database::postgresql::server::CHECKPOINT_SYNC;
use crate::database::sessions::Sessions;
use crate::tail::Stretch;

impl Postgresql {
    /// Brings a server's log to its disk, unless it is doing so.
    pub(super) fn sync_log(&mut self, now: u64, index: usize, to: u64) {
        let server = &mut self.servers[index];
        if server.log.is_idle() && to > server.log.synced() {
            server.sync_log(now, to, &mut self.course.ios);
        }
    }

    /// A server has its log on the disk up to where it wanted.
    pub(super) fn log_synced(&mut self, now: u64, index: usize) {
        if !self.follows(index) {
            return;
        }
        let synced = self.servers[index].log.synced();
        if index != self.primary {
            let left = self.servers[index]
                .machine
                .link
                .send(now, now, MESSAGE_BYTES);
            self.servers[index].on_the_way.1.push_back(synced);
            let way = self.clients.paths.delay(index, self.primary);
            self.course
                .queue
                .push(left + way, Event::Confirmed(index as u32));
            let received = self.servers[index].received;
            return self.sync_log(now, index, received);
        }
        for standby in 0..self.servers.len() {
            if standby != self.primary && self.follows(standby) {
                self.send_log(now, standby);
            }
        }
        self.answer_commits(now);
        // Those who came meanwhile share the next sync, whoever of them begins it.
        if let Some(&last) = self.committing.back() {
            let to = self.sessions[last as usize].lsn;
            self.sync_log(now, self.primary, to);
        }
    }

    /// Sends a standby what the primary has on its disk and it has not been sent.
    pub(super) fn send_log(&mut self, now: u64, standby: usize) {
        let synced = self.servers[self.primary].log.synced();
        let sent = self.servers[standby].on_the_way.0.back().copied();
        let bytes = synced - sent.unwrap_or(self.servers[standby].received);
        let left = self.servers[self.primary]
            .machine
            .link
            .send(now, now, bytes + MESSAGE_BYTES);
        self.servers[standby].on_the_way.0.push_back(synced);
        let way = self.clients.paths.delay(self.primary, standby);
        self.course
            .queue
            .push(left + way, Event::Received(standby as u32));
    }

    pub(super) fn received(&mut self, now: u64, index: usize) {
        if !self.takes_log(index) {
            self.servers[index].on_the_way.0.pop_front();
            return;
        }
        let cpu_ns = self.rules.parameters.commit_cpu_ns;
        let span = self.clients.work(cpu_ns);
        let server = &mut self.servers[index];
        server.machine.cores.serve(now, span);
        let position = server.on_the_way.0.pop_front().unwrap_or(0);
        server.received = server.received.max(position);
        let received = server.received;
        self.sync_log(now, index, received);
    }

    pub(super) fn confirmed(&mut self, now: u64, index: usize) {
        let follows = self.follows(index);
        let server = &mut self.servers[index];
        let position = server.on_the_way.1.pop_front().unwrap_or(0);
        if !follows {
            return;
        }
        server.confirmed = server.confirmed.max(position);
        self.answer_commits(now);
    }

    /// Answers the commits that are safe: on the primary's disk, and on those of as many standbys as the quorum needs.
    pub(super) fn answer_commits(&mut self, now: u64) {
        let mut safe = self.servers[self.primary].log.synced();
        if self.rules.standbys > 0 {
            let primary = self.primary;
            let standbys = self.servers.iter().enumerate();
            let standbys = standbys.filter(|&(number, _)| number != primary);
            let mut known: Vec<u64> = standbys.map(|(_, one)| one.confirmed).collect();
            known.sort_unstable_by(|one, other| other.cmp(one));
            safe = safe.min(known.get(self.rules.standbys - 1).copied().unwrap_or(0));
        }
        while let Some(&number) = self.committing.front() {
            if self.sessions[number as usize].lsn > safe {
                break;
            }
            self.committing.pop_front();
            self.count_commit(now, number);
            self.note_acknowledged(number);
            self.reply(now, now, number);
        }
    }

    /// Says where a commit's time went: behind the sync before its own, at limits, on the disk, with standbys.
    pub(super) fn count_commit(&mut self, now: u64, number: u32) {
        let log = &self.servers[self.primary].log;
        let (began, limited_ns, ended) = (log.began, log.limited_ns, log.ended);
        let mark = self.clients.mark(number);
        self.course
            .recorder
            .waited_for_disk(ended.clamp(mark, now) - mark);
        for (at, stretch) in [
            (began, Stretch::Held),
            (began + limited_ns, Stretch::Limits),
            (ended, Stretch::Disk),
            (now, Stretch::Network),
        ] {
            let mark = self.clients.mark(number);
            self.clients.spend(at.clamp(mark, now), number, stretch);
        }
    }

    /// The checkpointer: begins a checkpoint that is due, and writes what is late.
    pub(super) fn look_at_checkpoint(&mut self, now: u64) {
        let log = self.changes.log;
        if !self.serves() {
            // What a server writes before it serves is a part of its start.
            self.course.queue.push(now + LOOK_NS, Event::Checkpointer);
            return;
        }
        if self.changes.checkpoints.is_due(now, log) || self.wants_checkpoint() {
            self.changes.begin_checkpoint(now, self.buffers.changed());
            self.begins_for_copies();
        }
        if self.hurries() {
            self.changes.checkpoints.hurry();
        }
        while (self.changes.checkpoints.hurries()
            || !self.servers[self.primary].write_back.is_full())
            && let Some(pages) = self.changes.checkpoints.next(now, log)
        {
            let pages: Vec<u32> = pages.to_vec();
            let written: Vec<u32> = pages
                .into_iter()
                .filter(|&page| self.buffers.written(page))
                .collect();
            self.write_pages(now, &written);
        }
        if self.changes.checkpoints.wants_sync() {
            self.write_dirty(now, u64::MAX);
        }
        if self.changes.checkpoints.syncs() && self.servers[self.primary].write_back.is_idle() {
            self.changes.end_checkpoint();
            self.ends_for_copies(now);
            self.servers[self.primary].sync_data(now, CHECKPOINT_SYNC, &mut self.course.ios);
        }
        self.course.queue.push(now + LOOK_NS, Event::Checkpointer);
    }

    /// Writes pages that leave their buffers clean, and asks Linux to bring them to the disk. Standbys do the same.
    pub(super) fn write_pages(&mut self, now: u64, pages: &[u32]) {
        let cpu_ns = pages.len() as u64 * self.rules.parameters.page_read_cpu_ns;
        self.servers[self.primary].machine.cores.serve(now, cpu_ns);
        for &page in pages {
            self.write_to_page_cache(page);
            let file = self.changes.file_of(&self.plan, page);
            self.files.write_in_background(file);
        }
        for index in 0..self.servers.len() {
            if !self.has_disks(index) {
                continue;
            }
            let server = &mut self.servers[index];
            server.write_back.add(pages.iter().copied());
            server.write_back(now, &mut self.course.ios);
        }
    }

    /// Linux writes changed pages back that are older than `before`, and what is too much.
    pub(super) fn write_dirty(&mut self, now: u64, before: u64) {
        let mut pages = Vec::new();
        while let Some(&(since, page)) = self.dirty.front()
            && (since <= before || self.dirty.len() > self.rules.most_dirty)
        {
            pages.push(page);
            self.dirty.pop_front();
        }
        pages.sort_unstable();
        pages.dedup();
        for index in 0..self.servers.len() {
            if !self.has_disks(index) {
                continue;
            }
            let server = &mut self.servers[index];
            server.write_back.add(pages.iter().copied());
            server.write_back(now, &mut self.course.ios);
        }
    }

    /// A round of the background writer, of the log's own writer and of Linux's write-back.
    pub(super) fn clean(&mut self, now: u64) {
        let serves = self.serves();
        if serves {
            let pages = self.buffers.clean(self.rules.background_pages);
            for some in pages.chunks(FLUSH_AFTER) {
                self.write_pages(now, some);
            }
        }
        self.write_dirty(now, now.saturating_sub(EXPIRE_NS));
        if serves {
            let log = self.changes.log;
            self.sync_log(now, self.primary, log);
        }
        self.course
            .queue
            .push(now + self.rules.background_ns, Event::Background);
    }
}
