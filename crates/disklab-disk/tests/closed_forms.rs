//! The model against formulas: what comes out is known without it.

use crate::driver::*;
use disklab_disk::Op;
use disklab_disk::profile::{Medium, Unit};

#[test]
fn p30_at_depth_64_obeys_littles_law() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let seen = run_one(&mut host, Load::reads(0, 4096, 64), 10 * SECOND);
    assert_near(seen.iops(0, 10 * SECOND), 5_000.0, 1.0);
    // 64 / 5000 per second.
    assert_near(seen.percentile_ns(50.0) as f64, 12_800_000.0, 1.0);
}

#[test]
fn below_its_limits_a_disk_has_its_own_latency() {
    for window in [0, 50 * MS] {
        let mut host = host(bare(vec![volume("data", vec![p30(window)])]));
        let seen = run_one(&mut host, Load::reads(0, 4096, 1), SECOND);
        assert!(seen.ends.iter().all(|&(_, latency)| latency == 3_300_000));
        assert_eq!(seen.between(0, SECOND), SECOND / 3_300_000);
    }
}

#[test]
fn caps_come_out_within_one_percent_over_ten_seconds() {
    for window in [0, 32 * MS, 50 * MS] {
        for (iops, bytes_per_s, len) in [
            (120, 25_000_000, 4096),
            (5_000, 200_000_000, 4096),
            (5_000, 200_000_000, 256 << 10),
            (20_000, 750_000_000, 4096),
            (20_000, 750_000_000, 1 << 20),
        ] {
            let limits = vec![
                limit(Unit::Ios, iops, window),
                limit(Unit::Bytes, bytes_per_s, window),
            ];
            let disk = disk("test", limits, constant(MS));
            let mut host = host(bare(vec![volume("data", vec![disk])]));
            let seen = run_one(&mut host, Load::reads(0, len, 256), 11 * SECOND);
            let per_io = u64::from(len.div_ceil(256 << 10));
            let due = (iops as f64 / per_io as f64).min(bytes_per_s as f64 / f64::from(len));
            // The first second uses up the tokens of the start.
            assert_near(seen.iops(SECOND, 11 * SECOND), due, 1.0);
        }
    }
}

/// **Source:** semantics.yaml `iops_x_size`: P30 at 8, 32, 64 KiB and 1 MiB.
#[test]
fn p30_gives_iops_or_throughput_whichever_ends_first() {
    for (len, iops) in [
        (8 << 10, 5_000.0),
        (32 << 10, 5_000.0),
        (64 << 10, 3_051.8),
        (1 << 20, 190.7),
    ] {
        let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
        let seen = run_one(&mut host, Load::reads(0, len, 128), 10 * SECOND);
        assert_near(seen.iops(0, 10 * SECOND), iops, 1.0);
    }
}

#[test]
fn large_ios_count_as_several_units() {
    // Without a byte limit: 5000 units of 256 KiB a second are 1250 I/Os of 1 MiB.
    let disk = disk("test", vec![limit(Unit::Ios, 5_000, 0)], constant(MS));
    let mut host = host(bare(vec![volume("data", vec![disk])]));
    let seen = run_one(&mut host, Load::reads(0, 1 << 20, 64), 10 * SECOND);
    assert_near(seen.iops(0, 10 * SECOND), 1_250.0, 1.0);
}

#[test]
fn credits_burst_for_credits_over_burst_minus_base() {
    for window in [0, 50 * MS] {
        let base = with_burst(limit(Unit::Ios, 500, window), 3_500, Some(6_000));
        let disk = disk("azure/P10", vec![base], constant(MS));
        let mut host = host(bare(vec![volume("data", vec![disk])]));
        let seen = run_one(&mut host, Load::reads(0, 4096, 64), 14 * SECOND);
        // 6000 credits and two seconds of baseline; the credits are used up within 1 %.
        assert_near(seen.iops(SECOND / 2, 3 * SECOND / 2), 3_500.0, 1.0);
        assert_near(
            seen.between(0, 12 * SECOND) as f64,
            6_000.0 + 500.0 * 12.0,
            1.0,
        );
        assert_near(seen.iops(3 * SECOND, 13 * SECOND), 500.0, 1.0);
    }
}

#[test]
fn four_p30_in_a_stripe_add_up() {
    let stripe = volume("data", (0..4).map(|_| p30(0)).collect());
    let mut host = host(bare(vec![stripe]));
    let seen = run_one(&mut host, Load::reads(0, 4096, 256), 10 * SECOND);
    assert_near(seen.iops(0, 10 * SECOND), 20_000.0, 1.0);
}

#[test]
fn one_slow_disk_slows_the_stripe() {
    use disklab_disk::{Fault, VolumeId};
    let mut host = host(bare(vec![volume("data", (0..4).map(|_| p30(0)).collect())]));
    let slow = Fault::Slow {
        permille: 10_000,
        disk: Some(2),
    };
    host.inject(at(0), VolumeId(0), &slow, &mut Vec::new())
        .unwrap();
    // Each I/O of 256 KiB touches all four.
    let seen = run_one(&mut host, Load::reads(0, 256 << 10, 1), 10 * SECOND);
    assert!(seen.ends.iter().all(|&(_, latency)| latency == 33_000_000));
}

/// **Source:** measured on six DS14_v2 temp disks, 1 MiB at depth 64: steps near multiples of 50 ms
/// while the mean is depth / limit = 125 ms.
#[test]
fn windows_show_as_steps_in_latency() {
    let mut temp = disk("temp", Vec::new(), constant(MS));
    temp.medium = Medium::Temp;
    let mut profile = bare(vec![volume("temp", vec![temp])]);
    profile.cached = vec![limit(Unit::Bytes, 512 << 20, 50 * MS)];
    let mut host = host(profile);
    let load = Load {
        op: Op::Write,
        ..Load::reads(0, 1 << 20, 64)
    };
    let seen = run_one(&mut host, load, 20 * SECOND);
    assert_near(seen.mean_ns(), 125_000_000.0, 2.0);
    let near_step = |&&(_, latency): &&(u64, u64)| (latency + 2 * MS) % (50 * MS) < 4 * MS;
    let steps = seen.ends.iter().filter(near_step).count();
    assert_near(steps as f64, seen.ends.len() as f64, 1.0);
}

#[test]
fn the_vm_limits_all_its_disks_together() {
    // Eight P30 would give 40,000 IOPS; the VM lets 12,800 through, and serves all alike.
    let volumes = (0..8).map(|n| volume(&format!("data{n}"), vec![p30(50 * MS)]));
    let mut profile = bare(volumes.collect());
    profile.uncached = vec![limit(Unit::Ios, 12_800, 50 * MS)];
    let mut host = host(profile);
    // Very different depths, all enough.
    let loads: Vec<Load> = (0..8)
        .map(|n| Load::reads(n, 4096, 200 + 100 * n as usize))
        .collect();
    let seen = run(&mut host, &loads, 0, 11 * SECOND);
    let each: Vec<f64> = seen
        .iter()
        .map(|seen| seen.iops(SECOND, 11 * SECOND))
        .collect();
    assert_near(each.iter().sum(), 12_800.0, 1.0);
    for iops in each {
        assert_near(iops, 1_600.0, 2.0);
    }
}

#[test]
fn a_throttled_disk_does_not_hold_up_another() {
    let slow = disk("slow", vec![limit(Unit::Ios, 100, 0)], constant(MS));
    let mut profile = bare(vec![
        volume("slow", vec![slow]),
        volume("fast", vec![p30(0)]),
    ]);
    profile.uncached = vec![limit(Unit::Ios, 10_000, 0)];
    let mut host = host(profile);
    let loads = [Load::reads(0, 4096, 500), Load::reads(1, 4096, 64)];
    let seen = run(&mut host, &loads, 0, 10 * SECOND);
    assert_near(seen[0].iops(0, 10 * SECOND), 100.0, 1.0);
    assert_near(seen[1].iops(0, 10 * SECOND), 5_000.0, 1.0);
}
