//! What the model refuses, and what it says about it.

use crate::driver::*;
use disklab_disk::profile::{Burst, Caching, Distribution, HostProfile, Medium, Unit};
use disklab_disk::{Change, Fault, Host, VolumeId};
use disklab_units::Instant;

/// A sound host: a cached disk and a stripe on a VM with a cache.
fn sound() -> HostProfile {
    let data = cached(volume("data", vec![p30(0)]), Caching::ReadOnly);
    ds14_v2(0, vec![data, volume("log", vec![p30(0), p30(0)])])
}

/// The places that a spoilt profile is refused for.
fn places(spoil: impl Fn(&mut HostProfile)) -> Vec<String> {
    let mut profile = sound();
    spoil(&mut profile);
    let Err(refusal) = Host::new(profile, Instant::EPOCH) else {
        return Vec::new();
    };
    for reason in &refusal.reasons {
        assert!(
            !reason.rule.is_empty() && !reason.way_out.is_empty(),
            "{reason}"
        );
    }
    refusal
        .reasons
        .into_iter()
        .map(|reason| reason.place)
        .collect()
}

#[test]
fn a_sound_profile_passes() {
    assert_eq!(places(|_| ()), [""; 0]);
}

type Spoil = fn(&mut HostProfile);

#[track_caller]
fn check(cases: &[(&str, Spoil)]) {
    for (place, spoil) in cases {
        assert_eq!(places(spoil), [*place]);
    }
}

#[test]
fn each_rule_of_a_host_names_its_place() {
    check(&[
        ("version", |p| p.version = 2),
        ("cached[0].per_s", |p| p.cached[0].per_s = 0),
        ("uncached[1].per_s", |p| p.uncached[1].per_s = u64::MAX),
        ("uncached[0].window_ns", |p| {
            p.uncached[0].window_ns = u64::MAX
        }),
        ("cache.block_bytes", |p| {
            p.cache.as_mut().unwrap().block_bytes = 65_535
        }),
        ("cache.block_bytes", |p| {
            p.cache.as_mut().unwrap().block_bytes = 128 << 10
        }),
        ("cache.capacity_bytes", |p| {
            p.cache.as_mut().unwrap().capacity_bytes = 4096
        }),
        ("volumes.data.caching", |p| p.cache = None),
        ("volumes.data.caching", |p| {
            p.volumes[0].disks[0].medium = Medium::Temp
        }),
        ("volumes.data.caching", |p| {
            p.volumes[0].disks[0].medium = Medium::Nvme
        }),
    ]);
}

#[test]
fn each_rule_of_a_volume_names_its_place() {
    check(&[
        ("volumes.data.size_bytes", |p| p.volumes[0].size_bytes = 0),
        ("volumes.data.size_bytes", |p| {
            p.volumes[0].size_bytes = 4097
        }),
        ("volumes.data", |p| p.volumes[1].name = "data".to_owned()),
        ("volumes", |p| p.volumes[1].name.clear()),
        ("volumes.log.chunk_bytes", |p| {
            p.volumes[1].chunk_bytes = None
        }),
        ("volumes.log.chunk_bytes", |p| {
            p.volumes[1].chunk_bytes = Some(5000)
        }),
        ("volumes.data.chunk_bytes", |p| {
            p.volumes[0].chunk_bytes = Some(65_536)
        }),
        ("volumes.data.disks", |p| p.volumes[0].disks.clear()),
        ("volumes.log.disks[1].medium", |p| {
            p.volumes[1].disks[1].medium = Medium::Nvme
        }),
        ("volumes.data.disks[0].limits[1].io_unit_bytes", |p| {
            p.volumes[0].disks[0].limits[1].io_unit_bytes = Some(262_144);
        }),
        ("volumes.data.disks[0].limits[0].io_unit_bytes", |p| {
            p.volumes[0].disks[0].limits[0].io_unit_bytes = Some(0);
        }),
        ("volumes.data.disks[0].limits[0].burst.per_s", |p| {
            p.volumes[0].disks[0].limits[0].burst = Some(Burst {
                per_s: 4_999,
                credits: None,
                start: None,
            });
        }),
        ("volumes.data.disks[0].limits[0].burst.start", |p| {
            p.volumes[0].disks[0].limits[0].burst = Some(Burst {
                per_s: 30_000,
                credits: Some(10),
                start: Some(11),
            });
        }),
        ("volumes.data.disks[0].latency.flush.per_kib_ns", |p| {
            p.volumes[0].disks[0].latency.flush.per_kib_ns = u64::MAX;
        }),
    ]);
}

#[test]
fn distributions_never_decrease() {
    let points: [&[(u32, u64)]; 5] = [
        &[],
        &[(0, 5), (500_000, 4)],
        &[(500_000, 4), (400_000, 5)],
        &[(0, 1), (1_000_001, 2)],
        &[(0, u64::MAX)],
    ];
    for points in points {
        let found = places(|profile| {
            profile.volumes[0].disks[0].latency.read = Distribution {
                quantiles_ppm_ns: points.to_vec(),
                per_kib_ns: 0,
            };
        });
        assert_eq!(
            found,
            ["volumes.data.disks[0].latency.read.quantiles_ppm_ns"],
            "{points:?}"
        );
    }
}

#[test]
fn every_reason_comes_at_once() {
    let found = places(|profile| {
        profile.cache = None;
        profile.volumes[0].size_bytes = 1;
        profile.volumes[1].chunk_bytes = None;
    });
    assert_eq!(
        found,
        [
            "volumes.data.size_bytes",
            "volumes.data.caching",
            "volumes.log.chunk_bytes"
        ]
    );
}

#[test]
fn a_refusal_reads_as_a_sentence() {
    let mut profile = sound();
    profile.cache = None;
    profile.name = "azure/Standard_L8s_v3".to_owned();
    let refusal = Host::new(profile, Instant::EPOCH).err().unwrap();
    assert_eq!(
        refusal.to_string(),
        "volumes.data.caching: ReadOnly: azure/Standard_L8s_v3 has no host cache; \
         choose caching None, or a VM size with premium storage caching"
    );
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut host = host(sound());
    let changes = [
        Change {
            limits: Some(vec![limit(Unit::Ios, 0, 0)]),
            ..Change::default()
        },
        Change {
            credit_ios: Some(1),
            ..Change::default()
        },
        Change {
            limits: Some(vec![with_burst(limit(Unit::Ios, 500, 0), 3_500, Some(100))]),
            credit_ios: Some(101),
            latency: Some(constant(1)),
            ..Change::default()
        },
        Change {
            latency: Some(constant(u64::MAX)),
            caching: Some(Caching::None),
            ..Change::default()
        },
    ];
    for change in changes {
        let refusal = host.change(at(0), VolumeId(0), &change).unwrap_err();
        assert!(
            refusal
                .reasons
                .iter()
                .all(|reason| reason.place.starts_with("change."))
        );
        assert_eq!(host.volume(VolumeId(0)), Some(&sound().volumes[0]));
    }
}

#[test]
fn faults_that_do_not_fit_are_refused() {
    let mut host = host(sound());
    let faults = [
        Fault::ErrorRate { ppm: 1_000_001 },
        Fault::Slow {
            permille: 0,
            disk: None,
        },
        Fault::Slow {
            permille: 2_000,
            disk: Some(1),
        },
        Fault::Stall { for_ns: Some(0) },
    ];
    for fault in faults {
        host.inject(at(0), VolumeId(0), &fault, &mut Vec::new())
            .unwrap_err();
        assert_eq!(host.faults(VolumeId(0)), []);
    }
}

#[test]
fn what_is_not_attached_can_be_asked_but_not_changed() {
    let mut host = host(sound());
    let gone = VolumeId(7);
    host.change(at(0), gone, &Change::default()).unwrap_err();
    host.inject(at(0), gone, &Fault::HostFailure, &mut Vec::new())
        .unwrap_err();
    host.detach(at(0), gone, &mut Vec::new());
    assert_eq!(host.volume(gone), None);
    assert_eq!(host.counters(at(0), gone).limits, []);
    assert_eq!(host.faults(gone), []);
    assert!(!host.write_is_volatile(gone));
    let again = host
        .attach(at(0), volume("data", vec![p30(0)]))
        .unwrap_err();
    assert_eq!(again.reasons[0].place, "volumes.data");
}
