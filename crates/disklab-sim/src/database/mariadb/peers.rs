//! Other servers that end while commits count on them.
//!
//! **Galera:** a commit is delivered when all nodes have it, so all commits wait until the others have agreed that a node is gone. That
//! its sockets close tells them nothing: it is suspected when it was silent for `evs.suspect_timeout`. **A replica:** commits wait for it
//! until the first of them has waited for `rpl_semi_sync_master_timeout`; from then on none does, and whatever the replica's end
//! looked like makes no difference (`rpl_semi_sync_master_wait_no_slave`).
//!
//! **Source:** Galera's documentation, "Galera Parameters"; gcomm's evs_proto.cpp (`check_inactive`); semisync_master.cc of MariaDB 10.11
//! (`commit_trx`, `switch_off`).
//! **Divergence:** what a server has missed is not sent to it: it does not come back. A replica's disk holds nothing up: a commit is in
//! its relay log when Linux has it (`sync_relay_log` is 10,000).

use super::Mariadb;
use super::job::Replication;
use crate::tail::Stretch;

/// What the primary makes of the one server that has ended.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Which one; None: all are there.
    away: Option<usize>,
    /// Whether the others go on without it.
    given_up: bool,
    /// When they will; None: nobody waits for it.
    until: Option<u64>,
    /// Commits that wait.
    waiting: Vec<u32>,
}

impl Peers {
    /// Whether a server is away.
    pub fn is_one_away(&self) -> bool {
        self.away.is_some()
    }

    /// The primary has ended, and who waited with it.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

impl Mariadb {
    /// Another server than the primary ends.
    pub(super) fn peer_ends(&mut self, now: u64, server: usize) {
        let is_galera = self.rules.replication == Replication::Galera;
        let Some(broken) = &mut self.broken else {
            return;
        };
        let at = now + broken.outage.job.patience_ns;
        broken.peers = Peers {
            away: Some(server),
            until: is_galera.then_some(at),
            ..Peers::default()
        };
    }

    /// Whether a server gets commits.
    pub(super) fn is_there(&self, server: usize) -> bool {
        let broken = self.broken.as_ref();
        broken.is_none_or(|broken| broken.peers.away != Some(server))
    }

    /// A commit has to wait for a server that has ended; false: it goes on.
    pub(super) fn waits_for_peer(&mut self, now: u64, number: u32) -> bool {
        let Some(broken) = &mut self.broken else {
            return false;
        };
        let patience_ns = broken.outage.job.patience_ns;
        let peers = &mut broken.peers;
        if peers.away.is_none() || peers.given_up {
            return false;
        }
        peers.until.get_or_insert(now + patience_ns);
        peers.waiting.push(number);
        true
    }

    /// Commits go on without a server once they have waited long enough.
    pub(super) fn look_at_peers(&mut self, now: u64) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let peers = &mut broken.peers;
        if peers.until.is_none_or(|at| at > now) {
            return;
        }
        (peers.until, peers.given_up) = (None, true);
        for number in std::mem::take(&mut peers.waiting) {
            self.clients.spend(now, number, Stretch::Retry);
            self.replicate(now, number);
        }
    }
}
