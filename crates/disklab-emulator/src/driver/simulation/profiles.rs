//! Hosts and volumes as a seed draws them.

use disklab_disk::profile::{
    CacheProfile, Caching, DiskProfile, Distribution, HostProfile, Latency, Limit, Medium,
    PROFILE_VERSION, Scope, Unit, VolumeProfile,
};
use disklab_units::random::Stream;

/// Small, so that I/Os meet.
pub const VOLUME_BYTES: u64 = 128 << 10;

pub fn latency(chance: &mut Stream) -> Latency {
    let mut distribution = || {
        let least = [0, 20_000, 300_000, 5_000_000][chance.below(4) as usize];
        let most = least * (1 + chance.below(5));
        Distribution {
            quantiles_ppm_ns: vec![(0, least), (1_000_000, most)],
            per_kib_ns: chance.below(2) * 1_000,
        }
    };
    Latency {
        read: distribution(),
        write: distribution(),
        flush: distribution(),
    }
}

pub fn limits(chance: &mut Stream) -> Vec<Limit> {
    let limit = |unit, per_s| Limit {
        scope: Scope::All,
        unit,
        per_s,
        io_unit_bytes: None,
        window_ns: 0,
        burst: None,
    };
    match chance.below(4) {
        0 => Vec::new(),
        1 => vec![limit(Unit::Ios, 50 + chance.below(5_000))],
        2 => vec![limit(Unit::Bytes, 1_000_000 + chance.below(50_000_000))],
        _ => vec![
            limit(Unit::Ios, 50 + chance.below(500)),
            limit(Unit::Bytes, 1_000_000 + chance.below(5_000_000)),
        ],
    }
}

pub fn host(chance: &mut Stream) -> HostProfile {
    let block_bytes = [4 << 10, 16 << 10, 64 << 10][chance.below(3) as usize];
    HostProfile {
        version: PROFILE_VERSION,
        name: "a machine".to_owned(),
        seed: chance.draw(),
        cached: limits(chance),
        uncached: limits(chance),
        cache: Some(CacheProfile {
            capacity_bytes: (64 << 10) << chance.below(5),
            block_bytes,
            latency: latency(chance),
            charges_writes: false,
        }),
        volumes: Vec::new(),
    }
}

/// A disk without limits that takes no time.
pub fn plain(caching: Caching) -> VolumeProfile {
    let constant = || Distribution::constant(0);
    VolumeProfile {
        name: "plain".to_owned(),
        size_bytes: VOLUME_BYTES,
        caching,
        chunk_bytes: None,
        disks: vec![DiskProfile {
            name: "a disk".to_owned(),
            medium: Medium::Remote,
            limits: Vec::new(),
            shared: Vec::new(),
            latency: Latency {
                read: constant(),
                write: constant(),
                flush: constant(),
            },
        }],
    }
}

pub fn volume(chance: &mut Stream, name: &str) -> VolumeProfile {
    let medium = [Medium::Remote, Medium::Remote, Medium::Remote, Medium::Temp];
    let medium = medium[chance.below(4) as usize];
    let disks = 1 + chance.below(2) * chance.below(3);
    let disk = DiskProfile {
        name: "a disk".to_owned(),
        medium,
        limits: limits(chance),
        shared: Vec::new(),
        latency: latency(chance),
    };
    let caching = match medium {
        Medium::Remote => [
            Caching::ReadWrite,
            Caching::ReadWrite,
            Caching::ReadOnly,
            Caching::None,
        ][chance.below(4) as usize],
        _ => Caching::None,
    };
    VolumeProfile {
        name: name.to_owned(),
        size_bytes: VOLUME_BYTES,
        caching,
        chunk_bytes: (disks > 1).then(|| 4096 << chance.below(4)),
        disks: vec![disk; disks as usize],
    }
}
