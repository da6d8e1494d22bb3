//! A load in virtual time against the model: what fio is to a real disk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use disklab_disk::profile::{
    Burst, CacheProfile, Caching, DiskProfile, Distribution, HostProfile, Latency, Limit, Medium,
    PROFILE_VERSION, Scope, Unit, VolumeProfile,
};
use disklab_disk::{Completion, Host, Io, Op, Outcome, VolumeId};
use disklab_units::{Bytes, Instant};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const GIB: u64 = 1 << 30;

pub fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

pub fn limit(unit: Unit, per_s: u64, window_ns: u64) -> Limit {
    Limit {
        scope: Scope::All,
        unit,
        per_s,
        io_unit_bytes: (unit == Unit::Ios).then_some(256 << 10),
        window_ns,
        burst: None,
    }
}

pub fn with_burst(mut limit: Limit, per_s: u64, credits: Option<u64>) -> Limit {
    limit.burst = Some(Burst {
        per_s,
        credits,
        start: None,
    });
    limit
}

pub fn constant(ns: u64) -> Latency {
    Latency {
        read: Distribution::constant(ns),
        write: Distribution::constant(ns),
        flush: Distribution::constant(ns),
    }
}

pub fn disk(name: &str, limits: Vec<Limit>, latency: Latency) -> DiskProfile {
    DiskProfile {
        name: name.to_owned(),
        medium: Medium::Remote,
        limits,
        shared: Vec::new(),
        latency,
    }
}

/// A P30: 5000 IOPS in units of 256 KiB, 200 MB/s, 3.3 ms.
pub fn p30(window_ns: u64) -> DiskProfile {
    let limits = vec![
        limit(Unit::Ios, 5_000, window_ns),
        limit(Unit::Bytes, 200_000_000, window_ns),
    ];
    disk("azure/P30", limits, constant(3_300_000))
}

pub fn volume(name: &str, disks: Vec<DiskProfile>) -> VolumeProfile {
    VolumeProfile {
        name: name.to_owned(),
        size_bytes: 64 * GIB,
        caching: Caching::None,
        chunk_bytes: (disks.len() > 1).then_some(64 << 10),
        disks,
    }
}

pub fn cached(mut volume: VolumeProfile, caching: Caching) -> VolumeProfile {
    volume.caching = caching;
    volume
}

/// A host without budgets and cache.
pub fn bare(volumes: Vec<VolumeProfile>) -> HostProfile {
    HostProfile {
        version: PROFILE_VERSION,
        name: "test/bare".to_owned(),
        seed: 1,
        cached: Vec::new(),
        uncached: Vec::new(),
        cache: None,
        volumes,
    }
}

pub fn host_cache(capacity_bytes: u64) -> CacheProfile {
    CacheProfile {
        capacity_bytes,
        block_bytes: 64 << 10,
        latency: constant(200_000),
        charges_writes: false,
    }
}

/// Standard_DS14_v2: 51,200 IOPS and 768 MB/s uncached, 64,000 IOPS and 512 MiB/s cached.
pub fn ds14_v2(window_ns: u64, volumes: Vec<VolumeProfile>) -> HostProfile {
    HostProfile {
        name: "azure/Standard_DS14_v2".to_owned(),
        cached: vec![
            limit(Unit::Ios, 64_000, window_ns),
            limit(Unit::Bytes, 512 << 20, window_ns),
        ],
        uncached: vec![
            limit(Unit::Ios, 51_200, window_ns),
            limit(Unit::Bytes, 768_000_000, window_ns),
        ],
        cache: Some(host_cache(GIB)),
        ..bare(volumes)
    }
}

pub fn host(profile: HostProfile) -> Host {
    Host::new(profile, Instant::EPOCH).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// A closed loop: `depth` I/Os always outstanding on one volume.
#[derive(Clone)]
pub struct Load {
    pub volume: VolumeId,
    pub op: Op,
    pub len: u32,
    pub depth: usize,
    /// I/Os go to multiples of `len` below this, in an order that repeats but looks random.
    pub span: u64,
}

impl Load {
    pub fn reads(volume: u32, len: u32, depth: usize) -> Load {
        Load {
            volume: VolumeId(volume),
            op: Op::Read,
            len,
            depth,
            span: 16 * GIB,
        }
    }

    pub fn writes(volume: u32, len: u32, depth: usize) -> Load {
        Load {
            op: Op::Write,
            ..Load::reads(volume, len, depth)
        }
    }

    pub fn within(mut self, span: u64) -> Load {
        self.span = span;
        self
    }

    fn io(&self, load: usize, count: u64) -> Io {
        let places = self.span / u64::from(self.len);
        // A multiplier without common factors walks over all places.
        let place = (u128::from(count) * 0x9e37_79b9_7f4a_7c15 % u128::from(places)) as u64;
        Io {
            tag: (load as u64) << 48 | count,
            volume: self.volume,
            op: self.op,
            offset: Bytes::new(place * u64::from(self.len)),
            len: self.len,
        }
    }
}

/// What a load saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// End and latency of each I/O in nanoseconds, in order of ends.
    pub ends: Vec<(u64, u64)>,
    pub failed: u64,
}

impl Seen {
    /// I/Os that ended in a span of time.
    pub fn between(&self, start: u64, end: u64) -> u64 {
        let inside = |&&(at, _): &&(u64, u64)| start <= at && at < end;
        self.ends.iter().filter(inside).count() as u64
    }

    /// I/Os per second from `start` to `end`, both in nanoseconds.
    pub fn iops(&self, start: u64, end: u64) -> f64 {
        self.between(start, end) as f64 * SECOND as f64 / (end - start) as f64
    }

    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let mut latencies: Vec<u64> = self.ends.iter().map(|&(_, latency)| latency).collect();
        latencies.sort_unstable();
        latencies[((latencies.len() - 1) as f64 * percent / 100.0) as usize]
    }

    pub fn mean_ns(&self) -> f64 {
        let sum: u64 = self.ends.iter().map(|&(_, latency)| latency).sum();
        sum as f64 / self.ends.len() as f64
    }
}

/// Runs loads side by side from `start` up to `end`.
pub fn run(host: &mut Host, loads: &[Load], start: u64, end: u64) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); loads.len()];
    let mut counts = vec![0_u64; loads.len()];
    let mut began: Vec<Vec<u64>> = vec![Vec::new(); loads.len()];
    let mut decided: Vec<Completion> = Vec::new();
    let mut due: BinaryHeap<Reverse<(u64, u64, bool)>> = BinaryHeap::new();
    for (index, load) in loads.iter().enumerate() {
        for _ in 0..load.depth {
            began[index].push(start);
            host.submit(at(start), load.io(index, counts[index]), &mut decided);
            counts[index] += 1;
        }
    }
    loop {
        for done in decided.drain(..) {
            let failed = done.outcome == Outcome::Failed;
            due.push(Reverse((done.at.as_nanos(), done.tag, failed)));
        }
        let next_due = due.peek().map_or(u64::MAX, |due| due.0.0);
        let next_event = host.next_event().map_or(u64::MAX, Instant::as_nanos);
        let now = next_due.min(next_event);
        if now >= end {
            return seen;
        }
        if next_event <= next_due {
            host.advance(at(now), &mut decided);
            continue;
        }
        let Some(Reverse((now, tag, failed))) = due.pop() else {
            return seen;
        };
        let (index, count) = ((tag >> 48) as usize, (tag & 0xffff_ffff_ffff) as usize);
        seen[index].ends.push((now, now - began[index][count]));
        seen[index].failed += u64::from(failed);
        began[index].push(now);
        host.submit(at(now), loads[index].io(index, counts[index]), &mut decided);
        counts[index] += 1;
    }
}

/// Runs one load alone for a while from the epoch.
pub fn run_one(host: &mut Host, load: Load, end: u64) -> Seen {
    run(host, &[load], 0, end).remove(0)
}

/// Fails with both figures unless they agree within `percent`.
#[track_caller]
pub fn assert_near(seen: f64, due: f64, percent: f64) {
    let off = (seen / due - 1.0).abs() * 100.0;
    assert!(
        off <= percent,
        "{seen} where {due} was due: {off:.2} % off, {percent} % allowed"
    );
}
