//! Whatever happens to a host, in whatever order: nothing is lost, nothing ends twice or too early,
//! and the same seed gives the same bytes.

use std::collections::BTreeMap;

use crate::driver::*;
use disklab_disk::profile::{Caching, Distribution, HostProfile, Latency, Medium, Unit};
use disklab_disk::{Change, Completion, Fault, Host, Io, Op, VolumeId};
use disklab_units::{Bytes, Instant};
use proptest::prelude::*;

/// What can happen to a host.
#[derive(Clone, Debug)]
enum Step {
    Io {
        volume: u32,
        op: Op,
        sector: u64,
        len: u32,
    },
    Pause {
        ns: u64,
    },
    Change {
        volume: u32,
        change: Change,
    },
    Inject {
        volume: u32,
        fault: Fault,
    },
    Attach {
        caching: Caching,
        disks: usize,
    },
    Detach {
        volume: u32,
    },
    DropCache {
        volume: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Discard)]
}

fn caching() -> impl Strategy<Value = Caching> {
    prop::sample::select(vec![Caching::None, Caching::ReadOnly, Caching::ReadWrite])
}

fn change() -> impl Strategy<Value = Change> {
    let limits = prop::option::of((0..3_usize, 100..20_000_u64, 0..2_u64).prop_map(
        |(count, per_s, window)| {
            let all = [
                limit(Unit::Ios, per_s, window * 10 * MS),
                limit(Unit::Bytes, per_s * 40_000, window * 32 * MS),
            ];
            all[..count.min(2)].to_vec()
        },
    ));
    let latency = prop::option::of((0..10_000_000_u64).prop_map(constant));
    (limits, latency, prop::option::of(caching())).prop_map(|(limits, latency, caching)| Change {
        limits,
        latency,
        caching,
        ..Change::default()
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..1_000_000_u32).prop_map(|ppm| Fault::ErrorRate { ppm }),
        (1..10_000_u32, prop::option::of(0..4_u32))
            .prop_map(|(permille, disk)| Fault::Slow { permille, disk }),
        prop::option::of(1..200 * MS).prop_map(|for_ns| Fault::Stall { for_ns }),
        Just(Fault::HostFailure),
        Just(Fault::Deallocate),
        Just(Fault::Recover),
        Just(Fault::Recover),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..5_u32, op(), 0..400_u64, prop::sample::select(vec![0, 1, 512, 4096, 65_536, 1 << 20]))
            .prop_map(|(volume, op, sector, len)| Step::Io { volume, op, sector, len }),
        8 => (0..30 * MS).prop_map(|ns| Step::Pause { ns }),
        // Larger than the whole cache, and as large as an I/O can be.
        1 => (0..5_u32, op(), 0..400_u64).prop_map(|(volume, op, sector)| Step::Io {
            volume,
            op,
            sector,
            len: if op == Op::Discard { u32::MAX } else { 6 << 20 },
        }),
        1 => (0..3 * SECOND).prop_map(|ns| Step::Pause { ns }),
        1 => (0..5_u32, change()).prop_map(|(volume, change)| Step::Change { volume, change }),
        1 => (0..5_u32, fault()).prop_map(|(volume, fault)| Step::Inject { volume, fault }),
        1 => (caching(), prop::sample::select(vec![1, 2, 3, 64])).prop_map(|(caching, disks)| Step::Attach { caching, disks }),
        1 => (0..5_u32).prop_map(|volume| Step::Detach { volume }),
        1 => (0..5_u32).prop_map(|volume| Step::DropCache { volume }),
    ]
}

fn skewed(ns: u64) -> Latency {
    let distribution = Distribution {
        quantiles_ppm_ns: vec![
            (0, ns / 2),
            (500_000, ns),
            (990_000, ns * 3),
            (1_000_000, ns * 20),
        ],
        per_kib_ns: 100,
    };
    Latency {
        read: distribution.clone(),
        write: distribution.clone(),
        flush: distribution,
    }
}

/// Four volumes of all kinds on one small host.
fn profile(seed: u64) -> HostProfile {
    let disk = || {
        let limits = vec![
            with_burst(limit(Unit::Ios, 500, 50 * MS), 3_500, Some(600)),
            limit(Unit::Bytes, 60_000_000, 50 * MS),
        ];
        disk("azure/P10", limits, skewed(2 * MS))
    };
    let mut temp = disk();
    temp.medium = Medium::Temp;
    let mut profile = ds14_v2(
        32 * MS,
        vec![
            cached(volume("read-only", vec![disk()]), Caching::ReadOnly),
            cached(
                volume("read-write", vec![disk(), disk(), disk()]),
                Caching::ReadWrite,
            ),
            volume("plain", vec![disk()]),
            volume("temp", vec![temp]),
        ],
    );
    profile.seed = seed;
    profile.cached[0].per_s = 2_000;
    profile.uncached[0].per_s = 1_200;
    if let Some(cache) = &mut profile.cache {
        cache.capacity_bytes = 4 << 20;
        cache.latency = skewed(200_000);
    }
    profile
}

/// A run of steps, with everything that the model said.
#[derive(Clone)]
struct Run {
    host: Host,
    now: u64,
    tag: u64,
    attached: u32,
    /// How often the host is asked in between: at each of its events, or only when something else
    /// happens. A prompt caller announces his I/Os too, a late one does not.
    prompt: bool,
    ends: BTreeMap<u64, Completion>,
}

impl Run {
    fn new(seed: u64, prompt: bool) -> Run {
        Run {
            host: host(profile(seed)),
            now: 0,
            tag: 0,
            attached: 4,
            prompt,
            ends: BTreeMap::new(),
        }
    }

    fn take(&mut self, out: Vec<Completion>) {
        for done in out {
            assert!(done.at >= at(self.now), "{done:?} ends before {}", self.now);
            assert!(done.tag < self.tag, "{done:?} was never submitted");
            let twice = self.ends.insert(done.tag, done);
            assert_eq!(twice, None, "ended twice");
        }
    }

    fn pause_until(&mut self, end: u64) {
        let mut out = Vec::new();
        while self.prompt
            && let Some(next) = self.host.next_event().filter(|next| *next <= at(end))
        {
            self.now = self.now.max(next.as_nanos());
            self.host.advance(at(self.now), &mut out);
            self.take(std::mem::take(&mut out));
        }
        self.now = end;
        self.host.advance(at(self.now), &mut out);
        self.take(out);
    }

    fn apply(&mut self, step: &Step) {
        let mut out = Vec::new();
        let now = at(self.now);
        match step {
            Step::Io {
                volume,
                op,
                sector,
                len,
            } => {
                let io = Io {
                    tag: self.tag,
                    volume: VolumeId(*volume),
                    op: *op,
                    offset: Bytes::new(sector * 4096 / 3 * 2),
                    len: *len,
                };
                self.tag += 1;
                if self.prompt {
                    self.host.announce(&io);
                }
                self.host.submit(now, io, &mut out);
            }
            Step::Pause { ns } => self.pause_until(self.now + ns),
            Step::Change { volume, change } => {
                let _refused = self.host.change(now, VolumeId(*volume), change);
                self.host.advance(now, &mut out);
            }
            Step::Inject { volume, fault } => {
                let _refused = self.host.inject(now, VolumeId(*volume), fault, &mut out);
            }
            Step::Attach { caching, disks } => {
                let disks = (0..*disks).map(|_| p30(50 * MS)).collect();
                let name = format!("data{}", self.attached);
                if self.attached < 16 {
                    let new = cached(volume(&name, disks), *caching);
                    let id = self.host.attach(now, new).expect("a valid volume");
                    assert_eq!(id, VolumeId(self.attached));
                    self.attached += 1;
                }
            }
            Step::Detach { volume } => self.host.detach(now, VolumeId(*volume), &mut out),
            Step::DropCache { volume } => self.host.drop_cache(VolumeId(*volume)),
        }
        self.take(out);
        self.check();
    }

    /// What holds at any time.
    fn check(&self) {
        let mut cached_bytes = 0;
        for (id, volume) in self.host.volumes() {
            let counters = self.host.counters(at(self.now), id);
            assert!(counters.queued <= self.tag - self.ends.len() as u64);
            let Some(cache) = counters.cache else {
                continue;
            };
            cached_bytes += cache.cached_bytes;
            let mut dirty = Vec::new();
            self.host.dirty_ranges(id, &mut dirty);
            let bytes: u64 = dirty.iter().map(|range| u64::from(range.len)).sum();
            assert_eq!(bytes, cache.dirty_bytes, "{}", volume.name);
            assert!(dirty.is_sorted_by_key(|range| range.offset));
        }
        assert!(cached_bytes <= 4 << 20, "{cached_bytes} bytes cached");
    }

    /// Mends everything, waits, and checks that every I/O has ended.
    fn finish(&mut self) {
        self.apply(&Step::Inject {
            volume: self.any_volume(),
            fault: Fault::Recover,
        });
        self.pause_until(self.now + 10_000 * SECOND);
        let missing: Vec<u64> = (0..self.tag)
            .filter(|tag| !self.ends.contains_key(tag))
            .collect();
        assert!(missing.is_empty(), "never ended: {missing:?}");
        for (id, volume) in self.host.volumes() {
            let counters = self.host.counters(Instant::MAX, id);
            assert_eq!(
                (counters.queued, counters.in_flight),
                (0, 0),
                "{}",
                volume.name
            );
            let dirty = counters.cache.map_or(0, |cache| cache.dirty_bytes);
            assert_eq!(dirty, 0, "{} was not destaged", volume.name);
            assert!(counters.limits.iter().all(|limit| !limit.binding));
        }
        assert_eq!(self.host.next_event(), None);
    }

    fn any_volume(&self) -> u32 {
        self.host.volumes().next().map_or(0, |(id, _)| id.0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_or_ends_twice(steps in prop::collection::vec(step(), 1..300), seed: u64) {
        let mut run = Run::new(seed, true);
        for step in &steps {
            run.apply(step);
        }
        run.finish();
    }

    #[test]
    fn a_clone_goes_on_like_the_original(
        before in prop::collection::vec(step(), 1..150), after in prop::collection::vec(step(), 1..150),
    ) {
        let mut original = Run::new(3, true);
        for step in &before {
            original.apply(step);
        }
        let mut clone = original.clone();
        for run in [&mut original, &mut clone] {
            for step in &after {
                run.apply(step);
            }
            run.finish();
        }
        prop_assert_eq!(original.ends, clone.ends);
    }

    #[test]
    fn who_asks_late_gets_the_same_decisions(steps in prop::collection::vec(step(), 1..300)) {
        let mut prompt = Run::new(7, true);
        let mut late = Run::new(7, false);
        for step in &steps {
            let known: Vec<u64> = late.ends.keys().copied().collect();
            prompt.apply(step);
            late.apply(step);
            for (tag, end) in late.ends.iter().filter(|(tag, _)| !known.contains(tag)) {
                let due = prompt.ends.get(tag);
                let due = due.unwrap_or_else(|| panic!("{end:?} was decided only by the late one"));
                // Ends that had passed when the late one asked move to that time, no others.
                let moved = due.at < end.at && end.at == at(late.now);
                assert!(end.at == due.at || moved, "{due:?} became {end:?}");
                assert_eq!(end.outcome, due.outcome);
            }
        }
        prompt.finish();
        late.finish();
    }
}

/// A stream of numbers that is the same everywhere (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.draw(all.len() as u64) as usize]
    }
}

/// One step of a fixed, long walk through everything.
fn scripted(dice: &mut Dice) -> Step {
    let volume = dice.draw(5) as u32;
    match dice.draw(1_000) {
        0..750 => Step::Io {
            volume,
            op: dice.pick(&[
                Op::Read,
                Op::Read,
                Op::Write,
                Op::Write,
                Op::Flush,
                Op::Discard,
            ]),
            sector: dice.draw(2_000),
            len: dice.pick(&[512, 4096, 8192, 65_536, 1 << 20]),
        },
        750..985 => Step::Pause {
            ns: dice.draw(20 * MS),
        },
        985..988 => Step::Change {
            volume,
            change: scripted_change(dice),
        },
        988 => Step::DropCache { volume },
        kind => Step::Inject {
            volume,
            fault: scripted_fault(dice, kind),
        },
    }
}

fn scripted_change(dice: &mut Dice) -> Change {
    let modes = [Caching::None, Caching::ReadOnly, Caching::ReadWrite];
    let limits = vec![limit(Unit::Ios, 100 + dice.draw(5_000), 50 * MS)];
    Change {
        caching: Some(dice.pick(&modes)),
        limits: (dice.draw(3) == 0).then_some(limits),
        ..Change::default()
    }
}

fn scripted_fault(dice: &mut Dice, kind: u64) -> Fault {
    match kind {
        989 => Fault::Stall {
            for_ns: Some(1 + dice.draw(50 * MS)),
        },
        990 => Fault::ErrorRate {
            ppm: dice.draw(1_000_000) as u32,
        },
        991 => Fault::Slow {
            permille: 1 + dice.draw(5_000) as u32,
            disk: None,
        },
        992 => Fault::HostFailure,
        993 => Fault::Deallocate,
        _ => Fault::Recover,
    }
}

/// FNV-1a over every end and, at last, every counter.
fn fingerprint(seed: u64, steps: usize) -> u64 {
    let mut run = Run::new(seed, true);
    let mut dice = Dice(seed);
    for _ in 0..steps {
        run.apply(&scripted(&mut dice));
    }
    run.finish();
    let mut text = String::new();
    for end in run.ends.values() {
        text.push_str(&format!(
            "{} {} {:?}\n",
            end.tag,
            end.at.as_nanos(),
            end.outcome
        ));
    }
    for (id, _) in run.host.volumes() {
        let counters = run.host.counters(at(run.now), id);
        text.push_str(&serde_json::to_string(&counters).expect("plain data"));
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    assert_eq!(fingerprint(3, 2_000), fingerprint(3, 2_000));
    assert_ne!(fingerprint(3, 2_000), fingerprint(4, 2_000));
}

/// The model's behaviour, frozen. A change of this number is a change of results that users have
/// stored: say so in CHANGELOG.md.
#[test]
fn the_bytes_are_those_of_every_machine() {
    assert_eq!(fingerprint(2026, 30_000), 2_184_225_308_180_572_029);
}

#[test]
fn another_disk_changes_no_stream() {
    let alone = {
        let mut host = host(bare(vec![volume(
            "data",
            vec![disk("d", vec![], skewed(MS))],
        )]));
        run_one(&mut host, Load::reads(0, 4096, 1), SECOND).ends
    };
    let disk = || disk("d", vec![], skewed(MS));
    let mut host = host(bare(vec![
        volume("data", vec![disk()]),
        volume("log", vec![disk()]),
    ]));
    let loads = [Load::reads(0, 4096, 1), Load::writes(1, 4096, 3)];
    assert_eq!(run(&mut host, &loads, 0, SECOND)[0].ends, alone);
}

proptest! {
    /// Of two disks with the same samples, the one with the higher limits never ends an I/O later.
    /// The condition: the same arrivals, continuous refill or the same windows, and no burst
    /// credits, of which a faster disk may have fewer left.
    #[test]
    fn a_faster_disk_is_never_slower(
        arrivals in prop::collection::vec((0..3 * MS, 1..64_u32), 1..300),
        iops in 200..5_000_u64, more in 0..5_000_u64, window in 0..2_u64, ns in 1..4 * MS,
    ) {
        let ends = |iops: u64, latency: Latency| {
            let limits = vec![
                limit(Unit::Ios, iops, window * 50 * MS),
                limit(Unit::Bytes, iops * 40_000, window * 50 * MS),
            ];
            let mut host = host(bare(vec![volume("data", vec![disk("d", limits, latency)])]));
            let (mut now, mut out) = (0, Vec::new());
            for (tag, &(pause, sectors)) in (0..).zip(&arrivals) {
                now += pause;
                let io = Io {
                    tag,
                    volume: VolumeId(0),
                    op: Op::Read,
                    offset: Bytes::ZERO,
                    len: sectors * 4096,
                };
                host.submit(at(now), io, &mut out);
            }
            while let Some(next) = host.next_event() {
                host.advance(next, &mut out);
            }
            out.sort_by_key(|done| done.tag);
            out
        };
        let slow = ends(iops, skewed(ns * 2));
        for fast in [ends(iops + more, skewed(ns * 2)), ends(iops, skewed(ns))] {
            prop_assert_eq!(fast.len(), arrivals.len());
            for (fast, slow) in fast.iter().zip(&slow) {
                prop_assert!(fast.at <= slow.at, "{:?} against {:?}", fast, slow);
            }
        }
    }
}
