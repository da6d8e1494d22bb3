//! A machine of a database: processors, network, disks and caches.

use disklab_disk::profile::{HostProfile, Limit};
use disklab_disk::{Refusal, VolumeCounters};

use crate::cluster::hash;
use crate::filelayout::{FileLayout, PAGE_BYTES};
use crate::job::{Cluster, Mechanism};
use crate::model::Setting;
use crate::network::Link;
use crate::station::Servers;
use crate::storage::{Reading, ReadingRules, Storage};

/// Pages of a page cache that is switched off: those on their way.
const NO_PAGE_CACHE_PAGES: u64 = 16_384;

/// A machine.
#[derive(Clone)]
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
        let host = own_profile(&cluster.host, number, setting);
        let storage = Storage::new(number, host, &cluster.data_volume, layout, rules)?;
        Ok(Machine {
            cores: Servers::new(cluster.cores, !setting.has(Mechanism::ServerCpu)),
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

    /// Its volumes with what they have done, up to `now` and when measuring began.
    pub fn volumes(
        &self,
        now: u64,
    ) -> impl Iterator<Item = (&str, VolumeCounters, &VolumeCounters)> {
        let volumes = self
            .storage
            .host()
            .volumes()
            .map(|(_, volume)| &volume.name[..]);
        let counters = self.storage.volumes(now).into_iter().zip(&self.before);
        volumes
            .zip(counters)
            .map(|(name, (now, before))| (name, now, before))
    }
}

/// The profile of machine `number` of those with one: a seed of its own, and refill windows unless those are off.
pub fn own_profile(host: &HostProfile, number: u16, setting: &Setting) -> HostProfile {
    let mut host = host.clone();
    host.seed = hash(setting.seed, u64::from(number) + 1);
    if !setting.has(Mechanism::ThrottleWindows) {
        limits(&mut host).for_each(|limit| limit.window_ns = 0);
    }
    host
}

/// Every limit of a host: VM budgets and disks.
pub fn limits(host: &mut HostProfile) -> impl Iterator<Item = &mut Limit> {
    let disks = host.volumes.iter_mut().flat_map(|volume| &mut volume.disks);
    let of_disks = disks.flat_map(|disk| &mut disk.limits);
    host.cached
        .iter_mut()
        .chain(&mut host.uncached)
        .chain(of_disks)
}

impl Cluster {
    /// Name of the volume with the log.
    pub fn log_volume(&self) -> &str {
        self.commitlog_volume.as_ref().unwrap_or(&self.data_volume)
    }

    /// Bytes of the data volume; zero: there is none.
    pub fn data_volume_bytes(&self) -> u64 {
        let mut volumes = self.host.volumes.iter();
        let volume = volumes.find(|volume| volume.name == self.data_volume);
        volume.map_or(0, |volume| volume.size_bytes)
    }

    /// Bytes of a machine's host cache; zero: it has none.
    pub fn host_cache_bytes(&self) -> u64 {
        let cache = self.host.cache.as_ref();
        cache.map_or(0, |cache| cache.capacity_bytes)
    }
}

impl ReadingRules {
    /// Of files that are read by calls through the page cache.
    pub fn through_page_cache(
        cluster: &Cluster,
        setting: &Setting,
        read_ahead_bytes: u64,
    ) -> ReadingRules {
        ReadingRules {
            read_ahead_pages: read_ahead_bytes / PAGE_BYTES,
            one_list: !setting.has(Mechanism::ActiveList),
            cache_pages: if setting.has(Mechanism::PageCacheHits) {
                cluster.page_cache_bytes / PAGE_BYTES
            } else {
                NO_PAGE_CACHE_PAGES
            },
            ..ReadingRules::past_page_cache(cluster, setting)
        }
    }

    /// Of files that are read past the page cache, or that memory holds whole.
    pub fn past_page_cache(cluster: &Cluster, setting: &Setting) -> ReadingRules {
        ReadingRules {
            data: Reading::Buffered,
            index: Reading::Buffered,
            read_ahead_pages: 0,
            kernel: cluster.kernel,
            one_list: false,
            counted_every: cluster.pages_counted_every_ns,
            cache_pages: 1,
            scale: 1,
            cuts_at_chunks: setting.has(Mechanism::ChunkBorders),
        }
    }
}
