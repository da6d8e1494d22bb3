//! Changing, breaking and explaining a disk while it works.

use crate::driver::*;
use disklab_disk::profile::{Scope, SharedLimit, Unit, VolumeProfile};
use disklab_disk::{Change, Completion, Fault, Host, Io, Op, Outcome, VolumeId};
use disklab_units::Bytes;

const DATA: VolumeId = VolumeId(0);

fn read(tag: u64, sector: u64) -> Io {
    Io {
        tag,
        volume: DATA,
        op: Op::Read,
        offset: Bytes::new(sector * 4096),
        len: 4096,
    }
}

/// Runs the host's own events up to a time.
fn run_to(host: &mut Host, end: u64, out: &mut Vec<Completion>) {
    while let Some(next) = host.next_event().filter(|next| *next <= at(end)) {
        host.advance(next, out);
    }
    host.advance(at(end), out);
}

#[test]
fn those_who_wait_obey_new_limits() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let mut out = Vec::new();
    for tag in 0..1_000 {
        host.submit(at(0), read(tag, tag), &mut out);
    }
    run_to(&mut host, 100 * MS, &mut out);
    let before = out.len();
    assert!((500..=510).contains(&before), "{before}");
    // Other limits of the same shape, of another shape (those who waited for I/Os now wait for
    // bytes), and none; each for a tenth of a second.
    let mut now = 100 * MS;
    for (limits, due) in [
        (
            vec![limit(Unit::Ios, 500, 0), limit(Unit::Bytes, 200_000_000, 0)],
            50,
        ),
        (vec![limit(Unit::Bytes, 1_000 * 4096, 0)], 100),
        (Vec::new(), 1_000),
    ] {
        let start = out.len();
        let change = Change {
            limits: Some(limits),
            ..Change::default()
        };
        host.change(at(now), DATA, &change).unwrap();
        now += 100 * MS;
        run_to(&mut host, now, &mut out);
        let (granted, due) = (out.len() - start, due.min(1_000 - start));
        assert!(granted.abs_diff(due) <= 3, "{granted} of {due}");
    }
    assert_eq!(out.len(), 1_000);
}

#[test]
fn credits_can_be_set() {
    let base = with_burst(limit(Unit::Ios, 500, 0), 3_500, Some(6_000));
    let mut host = host(bare(vec![volume(
        "data",
        vec![disk("d", vec![base], constant(MS))],
    )]));
    let credits = |host: &Host, now| host.counters(at(now), DATA).limits[0].credits.unwrap();
    assert_eq!(
        (credits(&host, 0).left, credits(&host, 0).capacity),
        (6_000, 6_000)
    );
    let change = Change {
        credit_ios: Some(100),
        ..Change::default()
    };
    host.change(at(0), DATA, &change).unwrap();
    assert_eq!(credits(&host, 0).left, 100);
    assert_eq!(
        credits(&host, 2 * SECOND).left,
        1_100,
        "unused baseline accrues"
    );
}

#[test]
fn credits_of_a_whole_host_are_set_as_shares() {
    let burst = |credits| with_burst(limit(Unit::Ios, 500, 0), 3_500, Some(credits));
    let one = |name, credits| volume(name, vec![disk("d", vec![burst(credits)], constant(MS))]);
    let mut profile = bare(vec![one("data", 6_000), one("log", 1_001)]);
    profile.uncached = vec![burst(9_000)];
    let mut host = host(profile);
    let left = |host: &Host, id| -> Vec<u64> {
        let limits = host.counters(at(0), VolumeId(id)).limits;
        limits.iter().map(|one| one.credits.unwrap().left).collect()
    };
    for (ppm, data, log) in [
        (500_000, [3_000, 4_500], [500, 4_500]),
        (0, [0, 0], [0, 0]),
        (u32::MAX, [6_000, 9_000], [1_001, 9_000]),
    ] {
        host.set_credits(at(0), ppm);
        let mut found = (left(&host, 0), left(&host, 1));
        found.0.sort_unstable();
        found.1.sort_unstable();
        assert_eq!(found, (data.to_vec(), log.to_vec()));
    }
}

#[test]
fn a_load_finds_the_credits_it_was_promised_however_late_it_begins() {
    let base = with_burst(limit(Unit::Ios, 500, 0), 3_500, Some(6_000));
    let disks = vec![disk("d", vec![base], constant(MS))];
    let mut host = host(bare(vec![volume("data", disks)]));
    let mut out = Vec::new();
    let left = |host: &Host, now| host.counters(at(now), DATA).limits[0].credits.unwrap().left;
    host.set_credits(at(0), 500_000);
    assert_eq!(left(&host, 2 * SECOND), 3_000);
    host.submit(at(2 * SECOND), read(0, 0), &mut out);
    assert_eq!(left(&host, 2 * SECOND), 2_999);
    assert_eq!(
        left(&host, 3 * SECOND),
        3_499,
        "from now on they are earned"
    );
}

#[test]
fn an_io_that_waits_for_credits_leaves_when_they_come() {
    let base = with_burst(limit(Unit::Ios, 1, 0), 3_500, Some(6_000));
    let disks = vec![disk("d", vec![base], constant(MS))];
    let mut host = host(bare(vec![volume("data", disks)]));
    let mut out = Vec::new();
    host.set_credits(at(0), 0);
    for tag in 0..10 {
        host.submit(at(0), read(tag, tag), &mut out);
    }
    run_to(&mut host, 100 * MS, &mut out);
    assert!(out.len() < 2, "{}", out.len());
    host.set_credits(at(100 * MS), 1_000_000);
    run_to(&mut host, 110 * MS, &mut out);
    assert_eq!(out.len(), 10);
}

#[test]
fn a_stall_holds_everything_and_lets_it_go() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let mut out = Vec::new();
    let stall = Fault::Stall {
        for_ns: Some(SECOND),
    };
    host.inject(at(0), DATA, &stall, &mut out).unwrap();
    for tag in 0..3 {
        host.submit(at(tag), read(tag, tag), &mut out);
    }
    run_to(&mut host, SECOND - 1, &mut out);
    assert_eq!(out, []);
    run_to(&mut host, 2 * SECOND, &mut out);
    assert_eq!(out.len(), 3);
    assert_eq!(out[0].at, at(SECOND + 3_300_000));

    host.inject(
        at(2 * SECOND),
        DATA,
        &Fault::Stall { for_ns: None },
        &mut out,
    )
    .unwrap();
    host.submit(at(2 * SECOND), read(9, 9), &mut out);
    assert_eq!(host.next_event(), None);
    assert_eq!(host.faults(DATA), [Fault::Stall { for_ns: None }]);
    host.inject(at(9 * SECOND), DATA, &Fault::Recover, &mut out)
        .unwrap();
    assert_eq!(out[3].at, at(9 * SECOND + 3_300_000));
    assert_eq!(host.faults(DATA), []);
}

#[test]
fn an_error_rate_is_a_rate() {
    let mut host = host(bare(vec![volume("data", vec![p30(0), p30(0)])]));
    let fault = Fault::ErrorRate { ppm: 100_000 };
    host.inject(at(0), DATA, &fault, &mut Vec::new()).unwrap();
    let seen = run_one(&mut host, Load::reads(0, 4096, 64), 10 * SECOND);
    assert_near(seen.failed as f64 / seen.ends.len() as f64, 0.1, 5.0);
    let read = host.counters(at(10 * SECOND), DATA).operations.read;
    // The counters know of the I/Os that were decided and have not ended, too.
    assert_near(read.failed as f64, seen.failed as f64, 1.0);
}

#[test]
fn slow_multiplies_service_times() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let fault = Fault::Slow {
        permille: 2_500,
        disk: None,
    };
    host.inject(at(0), DATA, &fault, &mut Vec::new()).unwrap();
    let seen = run_one(&mut host, Load::reads(0, 4096, 1), SECOND);
    assert!(seen.ends.iter().all(|&(_, latency)| latency == 8_250_000));
}

#[test]
fn a_dead_host_fails_everything_until_it_recovers() {
    let mut host = host(bare(vec![
        volume("data", vec![p30(0)]),
        volume("log", vec![p30(0)]),
    ]));
    let mut out = Vec::new();
    for tag in 0..100 {
        host.submit(at(0), read(tag, tag), &mut out);
    }
    let decided = out.len();
    host.inject(at(0), VolumeId(1), &Fault::HostFailure, &mut out)
        .unwrap();
    assert_eq!(out.len(), 100);
    assert!(
        out[decided..]
            .iter()
            .all(|end| end.outcome == Outcome::Failed && end.at == at(0))
    );
    host.submit(at(2), read(100, 0), &mut out);
    assert_eq!(out[100].outcome, Outcome::Failed);
    assert_eq!(host.faults(DATA), [Fault::HostFailure]);
    host.inject(at(3), DATA, &Fault::Recover, &mut out).unwrap();
    // What was granted before the failure was granted: the bucket owes nothing else.
    run_to(&mut host, SECOND, &mut out);
    host.submit(at(SECOND), read(101, 0), &mut out);
    assert_eq!(out[101].outcome, Outcome::Done);
    assert_eq!(out[101].at, at(SECOND + 3_300_000));
}

#[test]
fn detaching_fails_what_waits_and_frees_the_name() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let mut out = Vec::new();
    for tag in 0..100 {
        host.submit(at(0), read(tag, tag), &mut out);
    }
    host.detach(at(0), DATA, &mut out);
    assert_eq!(out.len(), 100);
    assert_eq!(host.volume_named("data"), None);
    let again = host.attach(at(0), volume("data", vec![p30(0)])).unwrap();
    assert_eq!(again, VolumeId(1), "numbers are never used again");
    host.submit(
        at(0),
        Io {
            volume: again,
            ..read(200, 0)
        },
        &mut out,
    );
    assert_eq!(
        out[100].outcome,
        Outcome::Done,
        "nothing is left of the old queue"
    );
    assert_eq!(host.counters(at(0), again).limits[0].granted, 1);
}

#[test]
fn an_io_outside_its_volume_fails() {
    let mut host = host(bare(vec![volume("data", vec![p30(0)])]));
    let mut out = Vec::new();
    let sectors = 64 * GIB / 4096;
    host.submit(at(0), read(1, sectors - 1), &mut out);
    host.submit(at(0), read(2, sectors), &mut out);
    host.submit(at(0), read(3, u64::MAX / 4096), &mut out);
    host.submit(
        at(0),
        Io {
            volume: VolumeId(9),
            ..read(4, 0)
        },
        &mut out,
    );
    let outcomes: Vec<Outcome> = out.iter().map(|end| end.outcome).collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Done,
            Outcome::Failed,
            Outcome::Failed,
            Outcome::Failed
        ]
    );
}

#[test]
fn reads_and_writes_can_have_budgets_of_their_own() {
    let directed = |scope, per_s| {
        let mut limit = limit(Unit::Ios, per_s, 0);
        limit.scope = scope;
        limit
    };
    let limits = vec![directed(Scope::Read, 3_000), directed(Scope::Write, 1_000)];
    let mut host = host(bare(vec![volume(
        "data",
        vec![disk("d", limits, constant(MS))],
    )]));
    let loads = [Load::reads(0, 4096, 64), Load::writes(0, 4096, 64)];
    let seen = run(&mut host, &loads, 0, 10 * SECOND);
    assert_near(seen[0].iops(0, 10 * SECOND), 3_000.0, 1.0);
    assert_near(seen[1].iops(0, 10 * SECOND), 1_000.0, 1.0);
}

/// Each nanosecond of waiting is charged once: latency = charged waits + service.
#[test]
fn the_counters_account_for_every_nanosecond() {
    let mut profile = bare(vec![
        volume("data", vec![p30(0)]),
        volume("log", vec![p30(0)]),
    ]);
    profile.uncached = vec![
        limit(Unit::Ios, 7_000, 0),
        limit(Unit::Bytes, 100_000_000, 0),
    ];
    let mut host = host(profile);
    let mut out = Vec::new();
    for tag in 0..2_000 {
        let len = [4096, 65_536][(tag % 2) as usize];
        let volume = VolumeId(u32::from(tag % 3 == 0));
        host.submit(
            at(0),
            Io {
                len,
                volume,
                ..read(tag, tag * 16)
            },
            &mut out,
        );
    }
    let still = host.counters(at(0), DATA);
    assert!(still.queued > 1_000 && still.limits.iter().any(|limit| limit.binding));
    run_to(&mut host, 100 * SECOND, &mut out);
    assert_eq!(out.len(), 2_000);
    let waited: u64 = out.iter().map(|end| end.at.as_nanos() - 3_300_000).sum();
    let counters = [0, 1].map(|id| host.counters(at(100 * SECOND), VolumeId(id)));
    let limits = counters.iter().flat_map(|counters| &counters.limits);
    assert_eq!(limits.map(|limit| limit.delayed_ns).sum::<u64>(), waited);
    let places: Vec<&str> = counters[0]
        .limits
        .iter()
        .map(|limit| limit.place.as_str())
        .collect();
    assert_eq!(places, ["disk 0", "disk 0", "vm uncached", "vm uncached"]);
    assert_eq!(
        counters[0].operations.read.ios,
        counters[0].limits[0].granted
    );
    let bytes: u64 = counters
        .iter()
        .map(|counters| counters.limits[3].granted)
        .sum();
    assert_eq!(bytes, 1_000 * (4096 + 65_536));
}

/// A disk of a type that shares: 3,000 a second of the host, and 6 a GiB of its own.
fn sharing(name: &str, gib: u64) -> VolumeProfile {
    let mut disk = disk(
        "gcp/pd-balanced",
        vec![limit(Unit::Ios, 3_000 + 6 * gib, 0)],
        constant(MS),
    );
    disk.shared = vec![SharedLimit {
        scope: Scope::All,
        unit: Unit::Ios,
        of_host: 3_000,
        part: 6 * gib,
        most: 5_000,
    }];
    volume(name, vec![disk])
}

/// Reads of some volumes at depth 64 for two seconds from now on, and how many a second each did.
fn reads_a_second(host: &mut Host, volumes: &[u32]) -> Vec<f64> {
    let loads: Vec<Load> = volumes
        .iter()
        .map(|&number| Load::reads(number, 4096, 64))
        .collect();
    let seen = run(host, &loads, 0, 2 * SECOND);
    seen.iter().map(|load| load.iops(0, 2 * SECOND)).collect()
}

#[test]
fn disks_of_a_type_share_what_they_have_also_on_a_running_host() {
    let alone = || host(bare(vec![sharing("data", 100)]));
    assert_near(reads_a_second(&mut alone(), &[0])[0], 3_600.0, 2.0);
    // Another of the type, and one of another type, which has no part in it.
    let joined = || {
        let mut host = alone();
        host.attach(at(0), sharing("log", 50)).unwrap();
        let other = disk("gcp/pd-ssd", vec![limit(Unit::Ios, 6_000, 0)], constant(MS));
        host.attach(at(0), volume("other", vec![other])).unwrap();
        host
    };
    let both = reads_a_second(&mut joined(), &[0, 1, 2]);
    assert_near(both[0] + both[1], 3_900.0, 2.0);
    assert_near(both[2], 6_000.0, 2.0);
    // Either of them alone may use all of it.
    assert_near(reads_a_second(&mut joined(), &[1])[0], 3_900.0, 2.0);
    // Together they never pass the most, and what leaves takes its part away.
    let mut large = joined();
    large.attach(at(0), sharing("large", 5_000)).unwrap();
    let most = reads_a_second(&mut large, &[0, 1]);
    assert_near(most[0] + most[1], 5_000.0, 2.0);
    let mut left = joined();
    left.attach(at(0), sharing("large", 5_000)).unwrap();
    left.detach(at(0), VolumeId(3), &mut Vec::new());
    assert_near(reads_a_second(&mut left, &[0])[0], 3_900.0, 2.0);
}

#[test]
fn who_waits_goes_on_where_disks_begin_to_share() {
    let mut host = host(bare(vec![sharing("data", 100)]));
    let mut out = Vec::new();
    for tag in 0..2_000 {
        host.submit(at(0), read(tag, tag), &mut out);
    }
    run_to(&mut host, 100 * MS, &mut out);
    host.attach(at(100 * MS), sharing("log", 50)).unwrap();
    run_to(&mut host, 2 * SECOND, &mut out);
    assert_eq!(out.len(), 2_000);
}
