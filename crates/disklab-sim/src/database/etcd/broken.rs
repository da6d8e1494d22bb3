//! Members whose disks are slow or serve nothing, or that are lost, and who leads then.
//!
//! A leader that is inside a sync sends no heartbeats. Followers that hear nothing for an election time-out elect another
//! one, if a majority is able to. What the old leader had taken and not sent is lost with its term: who asked for it waits
//! for a time-out. A member whose disk serves nothing answers nobody, and its clients keep their connections to it. Those
//! of a lost member go to the next one.
//!
//! **Source:** `raftNode.start` of etcdserver/raft.go (ticks, sends and the log's sync are one loop);
//! `processInternalRaftRequestOnce` of v3_server.go, whose time-out is 5 s and twice that of an election.
//! **Divergence:** a vote writes nothing; what one follower was sent, all of them have. A member that comes back has what
//! the others have as soon as its process answers.

use super::Etcd;
use crate::database::servers::Turn;
use crate::database::sessions::Sessions;
use crate::job::faults::Event;

/// How long followers wait for their leader, of an election time-out: each draws between one and two of them, and the first
/// of two begins.
const PATIENCE_PERMILLE: u64 = 1_333;

impl Etcd {
    /// Whether a member is there.
    pub(super) fn has(&self, member: usize) -> bool {
        self.broken.as_ref().is_none_or(|broken| broken.has(member))
    }

    /// Looks at the timetable.
    pub(super) fn take_faults(&mut self, now: u64) {
        while let Some(broken) = &mut self.broken
            && let Some(event) = broken.outage.due(now)
        {
            self.take_fault(now, &event);
        }
        self.expire(now);
        if let Some(broken) = &mut self.broken {
            broken.bring_back(now);
        }
    }

    fn take_fault(&mut self, now: u64, event: &Event) {
        let node = event.node as usize;
        let sessions = 0..self.clients.count() as u32;
        let theirs = sessions.filter(|&session| self.home(session) == node);
        let theirs: Vec<u32> = theirs.collect();
        let broken = self.broken.as_mut().expect("there is a timetable");
        let noticed = match broken.take(now, event) {
            Turn::Ends { noticed, .. } => noticed,
            Turn::Stops => true,
            Turn::Starts => false,
            Turn::Breaks => {
                let storage = &mut self.members[node].machine.storage;
                return storage.break_data(now, event, &mut self.course.ios);
            }
        };
        for session in theirs {
            if noticed && self.clients.is_busy(session) {
                self.fail(now, session);
            }
        }
    }

    /// The followers elect another leader if theirs has been silent for too long, and enough of them are able to.
    pub(super) fn elect(&mut self, now: u64) {
        if self.broken.is_none() {
            return;
        }
        let set = self.rules.settings.election_ns;
        let is_able = |&member: &usize| {
            let log = &self.members[member].log;
            self.has(member) && (log.is_idle() || now - log.began < set)
        };
        let able: Vec<usize> = self.followers().filter(is_able).collect();
        let newest = able
            .iter()
            .copied()
            .max_by_key(|&one| self.members[one].log.end);
        let is_impatient = now - self.lead.spoke >= set / 1000 * PATIENCE_PERMILLE;
        let Some(next) = newest.filter(|_| is_impatient && able.len() > self.rules.quorum) else {
            return;
        };
        let old = self.lead.who;
        let (end, sent) = (self.members[old].log.end, self.lead.sent);
        for member in &mut self.members {
            let sessions = &self.sessions;
            let is_sent = |session: &u32| sessions[*session as usize].position <= sent;
            member.waiting.retain(is_sent);
        }
        // Others answer those whose puts it had sent: its own sync, when it ends at last, is none of theirs.
        self.members[old].log.waiting.clear();
        // Positions go on behind those that are lost.
        self.members[next].log.end = end;
        self.members[old].confirmed = self.members[old].log.synced();
        (self.lead.who, self.lead.owes_beat) = (next, false);
        self.lead.elections += 1;
        // It is counted: the first heartbeat of the new one ends no silence.
        self.lead.spoke = now;
        self.beat(now);
        for (session, _) in std::mem::take(&mut self.lead.reads) {
            self.read(now, session, false);
        }
        self.save(now, next);
    }
}
