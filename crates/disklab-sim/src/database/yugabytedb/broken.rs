//! Nodes whose disks are slow or serve nothing, or that are lost.
//!
//! A tablet's leader whose log cannot be synced takes no writes, and reads that memory does not have wait for its disk; its
//! clients give up after a time-out. A lost node's tablets are led by their next replica, and its clients are connected to
//! the next node.
//!
//! **Divergence:** nobody takes tablets away from a leader whose disk is slow, and a lost node's tablets are led elsewhere at
//! once. A node that comes back leads nothing.

use super::Yugabytedb;
use crate::database::servers::Turn;
use crate::database::sessions::Sessions;
use crate::job::faults::Event;

impl Yugabytedb {
    /// Whether a node is there.
    pub(super) fn has(&self, node: usize) -> bool {
        self.members
            .as_ref()
            .is_none_or(|members| members.has(node))
    }

    /// The first node that is there, from one on.
    pub(super) fn next_there(&self, from: usize) -> usize {
        let count = self.servers.len();
        let mut nodes = (from..from + count).map(|number| number % count);
        nodes.find(|&node| self.has(node)).unwrap_or(0)
    }

    /// Looks at the timetable.
    pub(super) fn take_faults(&mut self, now: u64) {
        while let Some(members) = &mut self.members
            && let Some(event) = members.outage.due(now)
        {
            self.take_fault(now, &event);
        }
        self.expire(now);
        if let Some(members) = &mut self.members {
            members.bring_back(now);
        }
    }

    fn take_fault(&mut self, now: u64, event: &Event) {
        let members = self.members.as_mut().expect("there is a timetable");
        if let Turn::Breaks = members.take(now, event) {
            let storage = &mut self.servers[event.node as usize].machine.storage;
            return storage.break_data(now, event, &mut self.course.ios);
        }
        for tablet in 0..self.plan.tablets.len() {
            let leader = self.next_there(usize::from(self.plan.tablets[tablet].leader));
            self.plan.tablets[tablet].leader = leader as u16;
        }
    }
}
