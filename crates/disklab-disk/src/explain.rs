//! Explaining the model's decisions: counters put together for one volume.

use crate::counters::{CacheCounters, LimitCounters, Operations, VolumeCounters};
use crate::gate::Place;
use crate::host::Host;
use crate::io::VolumeId;
use crate::profile::Caching;

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
            cache: caches.then(|| self.count_cache(id)),
            limits: self.count_limits(now, &volume.lanes),
        }
    }

    fn count_cache(&self, id: VolumeId) -> CacheCounters {
        self.volumes[id.0 as usize]
            .as_deref()
            .map_or_else(CacheCounters::default, |v| v.cache)
    }

    fn count_limits(&self, now: u64, lanes: &[u32]) -> Vec<LimitCounters> {
        let mut limits = Vec::new();
        for &lane in lanes {
            let entry = &self.lanes[lane as usize];
            for &gate in &entry.gates {
                let place = format!("disk {}", entry.member);
                limits.push(self.count_limit(now, gate, &[lane], place));
            }
        }
        let used = self.lanes[lanes[0] as usize].all_gates();
        for gate in used {
            let place = match self.gates[gate as usize].place() {
                Place::Disk => continue,
                Place::Uncached => "vm uncached",
                Place::Cached => "vm cached",
            };
            limits.push(self.count_limit(now, gate, lanes, place.to_owned()));
        }
        limits
    }

    fn count_limit(&self, now: u64, gate: u32, lanes: &[u32], place: String) -> LimitCounters {
        let gate = &self.gates[gate as usize];
        let limit = gate.meter().limit();
        let lines = || lanes.iter().map(|&lane| gate.line(lane));
        LimitCounters {
            place,
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
