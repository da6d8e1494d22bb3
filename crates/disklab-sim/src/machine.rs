//! A machine of a database: processors, network, disks and caches.

use disklab_disk::{Refusal, VolumeCounters};

use crate::cluster::hash;
use crate::filelayout::FileLayout;
use crate::job::{Cluster, Kernel, Mechanism};
use crate::model::Setting;
use crate::network::Link;
use crate::simulate::NodeParts;
use crate::station::Servers;
use crate::storage::{Reading, ReadingRules, Storage, set_windows};

/// A machine.
pub struct Machine {
    /// Its vCPUs.
    pub cores: Servers,
    /// Its network.
    pub link: Link,
    /// Its disks, and the page cache above them.
    pub storage: Storage,
    /// Counters of its volumes when measuring began, in order of attachment.
    before: Vec<VolumeCounters>,
}

impl Machine {
    /// Machine `number` of a cluster, idle. Refuses what the disk model refuses.
    pub fn new(
        cluster: &Cluster,
        setting: &Setting,
        number: u16,
        layout: FileLayout,
        rules: ReadingRules,
    ) -> Result<Machine, Refusal> {
        let mut host = cluster.host.clone();
        host.seed = hash(setting.seed, u64::from(number) + 1);
        if setting.has_not(Mechanism::ThrottleWindows) {
            set_windows(&mut host, 0);
        }
        let storage = Storage::new(number, host, &cluster.data_volume, layout, rules)?;
        Ok(Machine {
            cores: Servers::new(cluster.cores, setting.has_not(Mechanism::ServerCpu)),
            link: Link::new(cluster.network_bytes_per_s),
            before: storage.volumes(0),
            storage,
        })
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self, now: u64) {
        self.before = self.storage.volumes(now);
        self.cores.reset();
        self.link.reset();
        self.storage.reset();
    }

    /// What it leaves for a report.
    pub fn parts(&self) -> NodeParts<'_> {
        NodeParts {
            cores: &self.cores,
            link: &self.link,
            storage: &self.storage,
            pending_compaction_bytes: 0,
            before: &self.before,
        }
    }
}

impl ReadingRules {
    /// Of files that are read past the page cache, or that memory holds whole.
    pub fn past_page_cache(kernel: Kernel, cuts_at_chunks: bool) -> ReadingRules {
        ReadingRules {
            data: Reading::Buffered,
            index: Reading::Buffered,
            read_ahead_pages: 0,
            kernel,
            one_list: false,
            counted_every: u64::MAX,
            cache_pages: 1,
            scale: 1,
            cuts_at_chunks,
        }
    }
}
