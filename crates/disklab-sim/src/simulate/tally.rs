//! What a run's machines and disks did, added up for its report.

use disklab_disk::profile::HostProfile;
use disklab_disk::{Host, VolumeCounters};

use crate::machine::Machine;
use crate::network::Link;
use crate::record::Recorder;
use crate::report::{CreditReport, IoReport, Report, Telemetry, Uses, credits};
use crate::station::Servers;

/// Reads of disks or of a page cache.
#[derive(Clone, Copy, Default)]
pub struct Reads {
    pub ios: u64,
    pub bytes: u64,
}

/// The sums over all nodes, from when measuring began.
#[derive(Default)]
pub struct Tally {
    uses: Uses,
    credits: Vec<CreditReport>,
    now: u64,
    elapsed_ns: u64,
    nodes: usize,
    page_hits: u64,
    page_misses: u64,
    reads: Reads,
    write_ios: u64,
    write_bytes: u64,
    cache_hits: u64,
    cache_misses: u64,
    all_ios: u64,
    paused_ns: u64,
    pending_compaction: u64,
    journal: Option<Vec<IoReport>>,
}

impl Tally {
    /// Nothing yet, of hosts with these profiles.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a HostProfile>, recorder: &Recorder) -> Tally {
        Tally {
            uses: Uses::new(hosts),
            now: recorder.measured_to(),
            elapsed_ns: recorder.elapsed_ns(),
            ..Tally::default()
        }
    }

    /// A station of so many servers that were busy so long in all.
    pub fn busy(&mut self, kind: &str, place: &str, count: u64, busy_ns: u64, waited_ns: u64) {
        let share = busy_ns as f64 / self.elapsed_ns as f64 / count as f64;
        let waited = u128::from(waited_ns);
        self.uses.add(kind, place.to_owned(), share, waited);
    }

    /// What a link sent, if it has a bandwidth.
    pub fn sent(&mut self, kind: &str, place: &str, bytes: u64, bytes_per_s: Option<u64>) {
        if let Some(rate) = bytes_per_s {
            let share = bytes as f64 * 1e9 / self.elapsed_ns as f64 / rate as f64;
            self.uses.add(kind, place.to_owned(), share, 0);
        }
    }

    /// CPUs and network of a machine; `kind`: client or node.
    pub fn machine(&mut self, kind: &str, place: &str, cores: &Servers, link: &Link) {
        let usage = cores.usage();
        let cpu = format!("{kind} CPU");
        self.busy(&cpu, place, cores.count(), usage.busy_ns, usage.waited_ns);
        let network = format!("{kind} network");
        self.sent(&network, place, link.sent_bytes(), link.bytes_per_s());
    }

    /// The node of that name, and its bytes that wait for compaction; returns what its disks read.
    pub fn node(&mut self, name: &str, machine: &Machine, pending_compaction: u64) -> Reads {
        self.nodes += 1;
        self.machine("node", name, &machine.cores, &machine.link);
        let pages = machine.storage.counters();
        self.page_hits += pages.hits;
        self.page_misses += pages.misses;
        self.pending_compaction = self.pending_compaction.max(pending_compaction);
        self.journal(machine.storage.host());
        let mut reads = Reads::default();
        for (volume, now, before) in machine.volumes(self.now) {
            let more = self.volume(name, volume, &now, before);
            reads.ios += more.ios;
            reads.bytes += more.bytes;
        }
        reads
    }

    /// A volume of a node; returns what was read from it.
    pub fn volume(
        &mut self,
        node: &str,
        volume: &str,
        now: &VolumeCounters,
        before: &VolumeCounters,
    ) -> Reads {
        let elapsed_ns = self.elapsed_ns;
        self.uses.add_limits(node, volume, now, before, elapsed_ns);
        let place = format!("{node} {volume}");
        let moved = credits(&place, now, before, elapsed_ns);
        self.credits.extend(moved);
        let (done, earlier) = (&now.operations, &before.operations);
        self.write_ios += done.write.ios - earlier.write.ios;
        self.write_bytes += done.write.bytes - earlier.write.bytes;
        self.all_ios += done.read.ios + done.write.ios;
        if let Some(cache) = now.cache {
            let old = before.cache.unwrap_or_default();
            self.cache_hits += cache.hit_ios - old.hit_ios;
            self.cache_misses += cache.miss_ios - old.miss_ios;
        }
        Reads {
            ios: done.read.ios - earlier.read.ios,
            bytes: done.read.bytes - earlier.read.bytes,
        }
    }

    /// What a host tells of single I/Os, if it kept a journal.
    pub fn journal(&mut self, host: &Host) {
        if let Some(entries) = host.journal() {
            self.journal = Some(IoReport::all(host, &entries));
        }
    }

    /// Reads that operations are told to have cost.
    pub fn reads(&mut self, reads: Reads) {
        self.reads.ios += reads.ios;
        self.reads.bytes += reads.bytes;
    }

    /// Time that a node stood still.
    pub fn paused(&mut self, ns: u64) {
        self.paused_ns += ns;
    }

    /// Writes all of it into a report, by operation, and names the bottleneck.
    pub fn report(self, operations: u64, disk_waits_ns: u128, report: &mut Report) {
        let each = |n: u64| n as f64 / operations.max(1) as f64;
        let ratio = |hits: u64, misses: u64| {
            (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
        };
        let node_ns = self.elapsed_ns as f64 * self.nodes.max(1) as f64;
        report.telemetry = Telemetry {
            page_cache_hit_ratio: ratio(self.page_hits, self.page_misses),
            host_cache_hit_ratio: ratio(self.cache_hits, self.cache_misses),
            read_ios_per_operation: each(self.reads.ios),
            read_bytes_per_operation: each(self.reads.bytes),
            write_ios_per_operation: each(self.write_ios),
            write_bytes_per_operation: each(self.write_bytes),
            disk_wait_ms_per_operation: disk_waits_ns as f64 / 1e6 / operations.max(1) as f64,
            pause_ratio: self.paused_ns as f64 / node_ns,
            pending_compaction_bytes: self.pending_compaction,
            block_cache_hit_ratio: None,
        };
        report.disk_ios = self.all_ios;
        report.credits = self.credits;
        report.journal = self.journal;
        report.resources = self.uses.resources(operations);
        report.name_bottleneck();
    }
}
