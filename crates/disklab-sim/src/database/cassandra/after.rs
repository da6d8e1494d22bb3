//! What is asked of a cluster when its run is over: its caches for the next cell, and everything that a report counts.

use disklab_disk::CacheContents;
use disklab_disk::profile::HostProfile;

use crate::client::NAMES;
use crate::database::cassandra::Cassandra;
use crate::job::{Before, CacheState};
use crate::pagecache::PageCache;
use crate::report::{FLUSH_WRITERS, Report};
use crate::simulate::empty_report;
use crate::simulate::tally::{Reads, Tally};

impl Cassandra {
    /// What page caches and host caches hold at the end, by node.
    pub fn into_caches(mut self) -> Vec<(PageCache, Option<CacheContents>)> {
        let nodes = self.nodes.iter_mut().map(|node| &mut node.machine.storage);
        nodes
            .map(|storage| (storage.leave_page_cache(), storage.leave_host_cache()))
            .collect()
    }

    /// Begins with those that the cell before left, where this one wants them so.
    pub fn take_caches(&mut self, left: Vec<(PageCache, Option<CacheContents>)>, before: &Before) {
        for (node, (pages, host)) in self.nodes.iter_mut().zip(left) {
            if before.page_cache == CacheState::AsLeft {
                node.machine.storage.take_page_cache(pages);
            }
            if let (CacheState::AsLeft, Some(host)) = (before.host_cache, host) {
                node.machine.storage.take_host_cache(host);
            }
        }
    }

    /// What became of the cluster.
    pub(super) fn report_of(&mut self, cell: u64, host: &HostProfile) -> Report {
        let faults = self.fault_report();
        let recorder = &self.course.recorder;
        let mut report = empty_report(cell, recorder, &NAMES[..recorder.kinds()]);
        report.events = self.course.queue.scheduled();
        report.unsent = self.unsent.len() as u64;
        let others = self.broken.iter().flat_map(|broken| &broken.job.hosts);
        let hosts = std::iter::once(host).chain(others.map(|other| &other.host));
        let mut tally = Tally::new(hosts, recorder);
        let now = recorder.measured_to();
        let (cores, usage) = self.clients.cpu();
        tally.busy("client CPU", "", cores, usage.busy_ns, usage.waited_ns);
        let (bytes, rate) = self.clients.link();
        tally.sent("client network", "", bytes, rate);
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let name = format!("node {number}");
            for (kind, slots) in [
                ("read slots", &mut node.read_slots),
                ("write slots", &mut node.write_slots),
            ] {
                let usage = slots.usage(now);
                if usage.served > 0 {
                    tally.busy(kind, &name, slots.count(), usage.busy_ns, usage.waited_ns);
                }
            }
            let (writers, busy_ns) = node.background.flush_usage(now);
            if busy_ns > 0 {
                tally.busy(FLUSH_WRITERS, &name, writers, busy_ns, 0);
            }
            let pending = node.background.pending_compaction_bytes();
            tally.node(&name, &node.machine, pending);
            // Those that operations wait for; a compaction's reads are none.
            let pages = node.machine.storage.counters();
            tally.reads(Reads {
                ios: pages.read_ios,
                bytes: pages.read_bytes,
            });
            tally.paused(node.pauses.total_ns(now));
        }
        tally.report(recorder.operations(), recorder.disk_waits(), &mut report);
        report.faults = faults;
        report
    }
}
