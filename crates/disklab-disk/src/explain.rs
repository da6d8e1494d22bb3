//! Explaining the model's decisions: counters put together for one volume.

use crate::counters::{CacheCounters, LimitCounters, Operations, VolumeCounters};
use crate::host::Host;
use crate::io::VolumeId;
use crate::profile::Caching;
use crate::validate::SECTOR_BYTES;
use crate::volume::Volume;

impl Host {
    pub(crate) fn count(&self, now: u64, id: VolumeId) -> VolumeCounters {
        let entry = self.volumes.get(id.0 as usize);
        let Some(volume) = entry.and_then(|entry| entry.as_deref()) else {
            return VolumeCounters {
                operations: Operations::default(),
                in_flight: 0,
                queued: 0,
                cache: None,
                limits: Vec::new(),
            };
        };
        let caches = volume.profile.caching != Caching::None;
        VolumeCounters {
            operations: volume.operations,
            in_flight: volume.in_flight.count(now),
            queued: volume.queued(),
            cache: caches.then(|| self.count_cache(volume)),
            limits: self.count_limits(now, &volume.lanes),
        }
    }

    fn count_cache(&self, volume: &Volume) -> CacheCounters {
        let mut counters = volume.cache;
        for &lane in &volume.lanes {
            let share = self.cache.as_ref().map(|cache| cache.contents.share(lane));
            let share = share.unwrap_or_default();
            counters.cached_bytes += share.held * SECTOR_BYTES;
            counters.evicted_bytes += share.evicted * SECTOR_BYTES;
            let dirty = self.lanes[lane as usize].destager.dirty_sectors();
            counters.dirty_bytes += dirty * SECTOR_BYTES;
        }
        counters
    }

    fn count_limits(&self, now: u64, lanes: &[u32]) -> Vec<LimitCounters> {
        let mut limits = Vec::new();
        for &lane in lanes {
            let entry = &self.lanes[lane as usize];
            for &gate in &entry.gates {
                limits.push(self.count_limit(now, gate, &[lane], entry.member));
            }
        }
        let first = &self.lanes[lanes[0] as usize];
        for &gate in self.uncached.iter().chain(&self.cached) {
            if first.passes(gate) {
                limits.push(self.count_limit(now, gate, lanes, first.member));
            }
        }
        limits
    }

    fn count_limit(&self, now: u64, gate: u32, lanes: &[u32], member: u32) -> LimitCounters {
        let gate = &self.gates[gate as usize];
        let limit = gate.meter().limit();
        let lines = || lanes.iter().map(|&lane| gate.line(lane));
        LimitCounters {
            place: gate.place().name(member),
            unit: limit.unit,
            scope: limit.scope,
            per_s: limit.per_s,
            granted: lines().map(|line| line.granted()).sum(),
            delayed_ios: lines().map(|line| line.delayed_ios()).sum(),
            delayed_ns: lines().map(|line| line.delayed_ns(now)).sum(),
            credits: gate.meter().credits(now),
            binding: lines().any(|line| line.is_waiting()),
        }
    }
}
