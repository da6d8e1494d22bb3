//! The host cache: which budget pays, what is acknowledged when, what FLUSH and failures do.

use crate::driver;
use crate::driver::*;
use disklab_disk::profile::{Caching, Unit, VolumeProfile};
use disklab_disk::{Change, Completion, Destaged, Fault, Host, Io, Op, Outcome, VolumeId};
use disklab_units::{Bytes, Instant};

const DATA: VolumeId = VolumeId(0);
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Service time of the cache, and of a P30.
const HIT: u64 = 200_000;
const DISK: u64 = 3_300_000;

/// One host and one I/O at a time, all in virtual time.
struct Bench {
    host: Host,
    now: u64,
    tag: u64,
    out: Vec<Completion>,
}

impl Bench {
    fn new(volumes: Vec<VolumeProfile>) -> Bench {
        Bench {
            host: host(ds14_v2(0, volumes)),
            now: 0,
            tag: 0,
            out: Vec::new(),
        }
    }

    fn of(caching: Caching) -> Bench {
        Bench::new(vec![cached(volume("data", vec![p30(0)]), caching)])
    }

    fn submit(&mut self, op: Op, offset: u64, len: u64) -> u64 {
        self.tag += 1;
        let io = Io {
            tag: self.tag,
            volume: DATA,
            op,
            offset: Bytes::new(offset),
            len: u32::try_from(len).unwrap(),
        };
        self.host.submit(at(self.now), io, &mut self.out);
        self.tag
    }

    /// Runs the host's own events up to a time.
    fn run_to(&mut self, end: u64) {
        while let Some(next) = self.host.next_event().filter(|next| next.as_nanos() <= end) {
            self.host.advance(next, &mut self.out);
        }
        self.host.advance(at(end), &mut self.out);
        self.now = end;
    }

    /// When an I/O submitted now ends; runs the host until that is known.
    fn end_of(&mut self, tag: u64) -> (u64, Outcome) {
        loop {
            if let Some(done) = self.out.iter().find(|done| done.tag == tag) {
                return (done.at.as_nanos(), done.outcome);
            }
            let next = self.host.next_event().expect("an I/O is lost");
            self.host.advance(next, &mut self.out);
        }
    }

    /// Does one I/O, waits for it, and returns its latency.
    fn time(&mut self, op: Op, offset: u64, len: u64) -> u64 {
        let start = self.now;
        let tag = self.submit(op, offset, len);
        let (end, outcome) = self.end_of(tag);
        assert_eq!(outcome, Outcome::Done);
        self.run_to(end);
        end - start
    }

    fn dirty(&self) -> Vec<(u64, u32)> {
        let mut ranges = Vec::new();
        self.host.dirty_ranges(DATA, &mut ranges);
        ranges
            .iter()
            .map(|range| (range.offset.get(), range.len))
            .collect()
    }

    fn destaged(&mut self) -> Vec<(u64, u32)> {
        let mut ranges: Vec<Destaged> = Vec::new();
        self.host.take_destaged(&mut ranges);
        ranges
            .iter()
            .map(|range| (range.offset.get(), range.len))
            .collect()
    }

    fn granted(&self, place: &str, unit: Unit) -> u64 {
        let counters = self.host.counters(at(self.now), DATA);
        let limits = counters.limits.iter();
        limits
            .filter(|limit| limit.place == place && limit.unit == unit)
            .map(|l| l.granted)
            .sum()
    }
}

#[test]
fn a_read_misses_once_and_then_hits() {
    let mut bench = Bench::of(Caching::ReadOnly);
    assert_eq!(bench.time(Op::Read, 0, 4096), DISK);
    assert_eq!(bench.time(Op::Read, 0, 4096), HIT);
    assert_eq!(
        bench.time(Op::Read, 4096, 4096),
        DISK,
        "the next sector was not asked for"
    );
    let cache = bench.host.counters(at(bench.now), DATA).cache.unwrap();
    assert_eq!((cache.hit_ios, cache.miss_ios), (1, 2));
    assert_eq!(
        (cache.hit_bytes, cache.miss_bytes, cache.cached_bytes),
        (4096, 8192, 8192)
    );
}

#[test]
fn each_path_pays_its_own_budgets() {
    let mut bench = Bench::of(Caching::ReadOnly);
    let paid = |bench: &Bench| {
        ["disk 0", "vm uncached", "vm cached"].map(|place| bench.granted(place, Unit::Bytes))
    };
    bench.time(Op::Read, 0, 4096);
    assert_eq!(paid(&bench), [4096, 4096, 4096], "a miss pays all three");
    bench.time(Op::Read, 0, 4096);
    assert_eq!(
        paid(&bench),
        [4096, 4096, 8192],
        "a hit pays the cached budget"
    );
    bench.time(Op::Read, 0, 16384);
    assert_eq!(
        paid(&bench),
        [16384, 16384, 24576],
        "a partial hit fetches what is missing"
    );
    bench.time(Op::Write, 0, 4096);
    assert_eq!(paid(&bench), [20480, 20480, 28672], "a write goes through");

    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 4096);
    assert_eq!(
        paid(&bench),
        [0, 0, 4096],
        "a write back pays the cached budget"
    );
    bench.time(Op::Flush, 0, 0);
    assert_eq!(
        paid(&bench),
        [4096, 4096, 4096],
        "and the others when it is destaged"
    );

    let mut bench = Bench::of(Caching::None);
    bench.time(Op::Read, 0, 4096);
    assert_eq!(paid(&bench), [4096, 4096, 0]);
}

#[test]
fn read_only_writes_fill_the_cache_at_disk_speed() {
    let mut bench = Bench::of(Caching::ReadOnly);
    assert_eq!(bench.time(Op::Write, 64 * KIB, 64 * KIB), DISK);
    assert_eq!(bench.time(Op::Read, 96 * KIB, 4096), HIT);
    assert!(!bench.host.write_is_volatile(DATA));
    assert_eq!(bench.time(Op::Flush, 0, 0), DISK);
}

#[test]
fn read_write_acknowledges_from_the_cache_and_destages_later() {
    let mut bench = Bench::of(Caching::ReadWrite);
    assert!(bench.host.write_is_volatile(DATA));
    assert_eq!(bench.time(Op::Write, 0, 8192), HIT);
    assert_eq!(bench.time(Op::Read, 0, 8192), HIT);
    assert_eq!(bench.dirty(), [(0, 8192)]);
    bench.run_to(SECOND / 2);
    assert_eq!(bench.destaged(), []);
    bench.run_to(2 * SECOND);
    assert_eq!(bench.destaged(), [(0, 8192)]);
    assert_eq!(bench.dirty(), []);
    let counters = bench.host.counters(at(bench.now), DATA);
    assert_eq!(counters.cache.unwrap().destaged_bytes, 8192);
    assert_eq!(bench.host.next_event(), None, "nothing is left to do");
}

/// A host whose disks and network count a ReadWrite cache's writes when it acknowledges them.
fn charging() -> Bench {
    let data = cached(volume("data", vec![p30(0)]), Caching::ReadWrite);
    let mut profile = ds14_v2(0, vec![data]);
    profile.cache.as_mut().unwrap().charges_writes = true;
    Bench {
        host: host(profile),
        ..Bench::new(Vec::new())
    }
}

#[test]
fn charged_writes_pay_all_budgets_once_when_they_are_acknowledged() {
    let mut bench = charging();
    assert!(bench.host.write_is_volatile(DATA));
    assert_eq!(
        bench.time(Op::Write, 0, 4096),
        HIT,
        "sooner than the disk serves one"
    );
    let paid = |bench: &Bench| {
        ["disk 0", "vm uncached", "vm cached"].map(|place| bench.granted(place, Unit::Bytes))
    };
    assert_eq!(paid(&bench), [4096, 4096, 4096]);
    assert_eq!(
        bench.dirty(),
        [(0, 4096)],
        "it is not durable before a flush"
    );
    assert_eq!(
        bench.time(Op::Flush, 0, 0),
        2 * DISK,
        "destaged, then flushed"
    );
    assert_eq!(bench.dirty(), []);
    assert_eq!(paid(&bench), [4096, 4096, 4096], "its destage is free");
}

/// github.com/mkyc/k8s-pv (December 2021): writes to a ReadWrite disk did the disk's own rate, whatever their order.
#[test]
fn charged_writes_do_the_disks_own_rate() {
    for (len, due) in [(4096, 5_000.0), (1 << 20, 190.7)] {
        // Within 256 KiB every write but the first is gathered with a dirty one, and is charged nevertheless.
        for span in [16 * GIB, u64::from(len).max(256 * KIB)] {
            let load = Load::writes(0, len, 64).within(span);
            let seen = run_one(&mut charging().host, load, 10 * SECOND);
            assert_near(seen.iops(SECOND, 10 * SECOND), due, 2.0);
        }
    }
}

#[test]
fn destage_gathers_neighbours() {
    let mut bench = Bench::of(Caching::ReadWrite);
    for sector in [0, 2, 1, 3, 9] {
        bench.time(Op::Write, sector * 4096, 4096);
    }
    bench.time(Op::Write, 4096, 4096);
    bench.run_to(2 * SECOND);
    assert_eq!(bench.destaged(), [(0, 16384), (36864, 4096)]);
    assert_eq!(bench.granted("disk 0", Unit::Ios), 2);
}

#[test]
fn flush_waits_for_what_was_dirty_and_for_nothing_later() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 4096);
    let start = bench.now;
    let flush = bench.submit(Op::Flush, 0, 0);
    // Sixteen thousand later writes, each to a block of its own, keep the disk busy for seconds.
    for block in 1..16_000 {
        bench.submit(Op::Write, block * 64 * KIB, 4096);
    }
    let (end, _) = bench.end_of(flush);
    assert_eq!(end - start, 2 * DISK, "one destage and the flush itself");
    bench.run_to(end);
    assert!(bench.destaged().contains(&(0, 4096)));
}

#[test]
fn flush_covers_a_block_that_is_on_its_way_and_dirty_again() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 4096);
    bench.submit(Op::Flush, 0, 0);
    let second = bench.submit(Op::Write, 0, 4096);
    let (end, _) = bench.end_of(second);
    bench.run_to(end);
    assert!(bench.now < DISK, "the first destage is still on its way");
    let flush = bench.submit(Op::Flush, 0, 0);
    let (end, _) = bench.end_of(flush);
    // The second destage of the block begins when the first has arrived (at HIT + DISK).
    assert_eq!(end, HIT + 3 * DISK);
    bench.run_to(end);
    assert_eq!(bench.destaged(), [(0, 4096), (0, 4096)]);
}

#[test]
fn host_failure_loses_what_was_not_flushed() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 4096);
    bench.time(Op::Flush, 0, 0);
    bench.time(Op::Write, MIB, 4096);
    bench.destaged();
    assert_eq!(bench.dirty(), [(MIB, 4096)]);
    // More than the disk takes before the failure, so that this flush is undecided then.
    for block in 0..1_000 {
        bench.submit(Op::Write, GIB + block * MIB, 4096);
    }
    bench.run_to(bench.now + 20 * MS);
    bench.destaged();
    let waiting = bench.submit(Op::Flush, 0, 0);
    bench
        .host
        .inject(at(bench.now), DATA, &Fault::HostFailure, &mut bench.out)
        .unwrap();
    assert_eq!(bench.end_of(waiting), (bench.now, Outcome::Failed));
    let late = bench.submit(Op::Read, 0, 4096);
    assert_eq!(bench.end_of(late), (bench.now, Outcome::Failed));
    assert_eq!(bench.dirty(), []);
    bench.run_to(10 * SECOND);
    assert_eq!(bench.destaged(), [], "nothing lost is reported as durable");
    bench
        .host
        .inject(at(bench.now), DATA, &Fault::Recover, &mut bench.out)
        .unwrap();
    assert_eq!(bench.time(Op::Read, 0, 4096), DISK, "the cache is cold");
}

#[test]
fn deallocation_flushes_first() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, MIB, 4096);
    bench
        .host
        .inject(at(bench.now), DATA, &Fault::Deallocate, &mut bench.out)
        .unwrap();
    assert_eq!(bench.destaged(), [(MIB, 4096)]);
    assert_eq!(bench.dirty(), []);
    assert_eq!(bench.host.faults(DATA), [Fault::Deallocate]);
}

#[test]
fn writes_wait_when_too_much_is_dirty() {
    // A fifth of 1 GiB may be dirty; the disk destages 200 MB/s, however fast the cache is.
    let mut bench = Bench::of(Caching::ReadWrite);
    let load = Load::writes(0, 1 << 20, 16);
    let seen = run_one(&mut bench.host, load, 20 * SECOND);
    let at_once = seen.iops(0, SECOND / 4);
    assert_near(at_once, 512.0, 3.0);
    assert_near(seen.iops(10 * SECOND, 20 * SECOND), 190.7, 2.0);
    let cache = bench.host.counters(at(20 * SECOND), DATA).cache.unwrap();
    assert!(
        cache.dirty_bytes <= GIB / 5,
        "{} bytes are dirty",
        cache.dirty_bytes
    );
    assert!(cache.cached_bytes <= GIB);
}

#[test]
fn leaving_read_write_destages_before_anything_else() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 4096);
    let change = Change {
        caching: Some(Caching::None),
        ..Change::default()
    };
    let start = bench.now;
    bench.host.change(at(start), DATA, &change).unwrap();
    assert_eq!(
        bench.time(Op::Read, 0, 4096),
        2 * DISK,
        "the destage, then the read"
    );
    assert_eq!(bench.destaged(), [(0, 4096)]);
    assert!(!bench.host.write_is_volatile(DATA));
    assert_eq!(bench.time(Op::Read, 0, 4096), DISK);
    let change = Change {
        caching: Some(Caching::ReadOnly),
        ..Change::default()
    };
    bench.host.change(at(bench.now), DATA, &change).unwrap();
    assert_eq!(bench.time(Op::Read, 0, 4096), DISK, "the cache was emptied");
    assert_eq!(bench.time(Op::Read, 0, 4096), HIT);
}

#[test]
fn discard_drops_copies_and_dirty_data() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 0, 65536);
    assert_eq!(bench.time(Op::Discard, 4096, 8192), 0);
    assert_eq!(bench.destaged(), [(4096, 8192)]);
    assert_eq!(bench.dirty(), [(0, 4096), (12288, 53248)]);
    assert_eq!(bench.time(Op::Read, 0, 4096), HIT);
    assert_eq!(bench.time(Op::Read, 4096, 4096), DISK);
    bench.run_to(3 * SECOND);
    assert_eq!(bench.destaged(), [(0, 4096), (12288, 53248)]);
}

#[test]
fn warm_and_drop() {
    let mut bench = Bench::of(Caching::ReadOnly);
    bench.host.warm(DATA, Bytes::new(0), Bytes::from_mib(512));
    assert_eq!(bench.time(Op::Read, 511 * MIB, 4096), HIT);
    bench.host.drop_cache(DATA);
    assert_eq!(bench.time(Op::Read, 511 * MIB, 4096), DISK);
}

#[test]
fn a_striped_volume_is_cached_by_disk_and_reported_as_a_volume() {
    let stripe = volume("data", (0..3).map(|_| p30(0)).collect());
    let mut bench = Bench::new(vec![cached(stripe, Caching::ReadWrite)]);
    // From the middle of chunk 0 to the middle of chunk 4.
    bench.time(Op::Write, 32 * KIB, 256 * KIB);
    assert_eq!(bench.dirty(), [(32 * KIB, 256 << 10)]);
    assert_eq!(bench.time(Op::Read, 32 * KIB, 256 * KIB), HIT);
    bench.time(Op::Flush, 0, 0);
    let mut destaged = bench.destaged();
    destaged.sort_unstable();
    let total: u32 = destaged.iter().map(|range| range.1).sum();
    assert_eq!((destaged[0].0, total), (32 * KIB, 256 << 10));
    assert_eq!(bench.dirty(), []);
}

#[test]
fn unaligned_writes_leave_whole_sectors_dirty() {
    let mut bench = Bench::of(Caching::ReadWrite);
    bench.time(Op::Write, 512, 1024);
    assert_eq!(bench.dirty(), [(0, 4096)]);
    assert_eq!(
        bench.time(Op::Read, 0, 4096),
        DISK,
        "the rest of the sector is on the disk"
    );
    bench.run_to(5 * SECOND);
    assert_eq!(bench.destaged(), [(0, 4096)]);
}

/// **Source:** the D8s_v3 example of semantics.yaml: 16,000 cached and 12,800 uncached add up, and
/// three cached and two uncached P30 give 25,000 IOPS.
#[test]
fn cached_and_uncached_budgets_add_up() {
    let mut volumes = Vec::new();
    for n in 0..5 {
        let caching = if n < 3 {
            Caching::ReadOnly
        } else {
            Caching::None
        };
        volumes.push(cached(volume(&format!("data{n}"), vec![p30(0)]), caching));
    }
    let mut profile = ds14_v2(0, volumes);
    profile.cached = vec![limit(Unit::Ios, 16_000, 0)];
    profile.uncached = vec![limit(Unit::Ios, 12_800, 0)];
    let mut host = host(profile.clone());
    // Writes go through: three cached disks pay both budgets, so the uncached one binds.
    let loads: Vec<Load> = (0..5).map(|n| Load::writes(n, 4096, 128)).collect();
    let seen = run(&mut host, &loads, 0, 10 * SECOND);
    assert_near(
        seen.iter().map(|seen| seen.iops(0, 10 * SECOND)).sum(),
        12_800.0,
        1.0,
    );

    // Hits on three volumes, and two uncached disks: 16,000 + 10,000.
    let mut host = driver::host(profile.clone());
    for n in 0..3 {
        host.warm(VolumeId(n), Bytes::new(0), Bytes::from_mib(64));
    }
    let loads: Vec<Load> = (0..5)
        .map(|n| Load::reads(n, 4096, 128).within(if n < 3 { 64 * MIB } else { GIB }))
        .collect();
    let seen = run(&mut host, &loads, 0, 10 * SECOND);
    let total: f64 = seen.iter().map(|seen| seen.iops(0, 10 * SECOND)).sum();
    assert_near(total, 26_000.0, 1.0);

    // Bounded by their disks (5000 each, as in the example, misses only): 25,000 would need 25,000
    // uncached, and the network gives 12,800; with a network that does, the disks bind.
    profile.uncached = vec![limit(Unit::Ios, 28_800, 0)];
    let mut host = driver::host(profile);
    let loads: Vec<Load> = (0..5)
        .map(|n| Load::reads(n, 4096, 128).within(64 * GIB))
        .collect();
    let seen = run(&mut host, &loads, 0, 10 * SECOND);
    let total: f64 = seen.iter().map(|seen| seen.iops(0, 10 * SECOND)).sum();
    assert_near(total, 25_000.0, 1.0);
}

/// DS14_v2: 512 MiB/s cached are less than 768 MB/s uncached, so large reads are slower when cached.
#[test]
fn the_cache_can_be_the_narrower_way() {
    let stripe = || volume("data", (0..4).map(|_| p30(0)).collect());
    let mut uncached = host(ds14_v2(0, vec![stripe()]));
    let load = Load::reads(0, 1 << 20, 64).within(512 * MIB);
    let seen = run_one(&mut uncached, load.clone(), 10 * SECOND);
    assert_near(seen.iops(0, 10 * SECOND) * (1 << 20) as f64, 768e6, 1.0);

    let mut warm = host(ds14_v2(0, vec![cached(stripe(), Caching::ReadOnly)]));
    warm.warm(DATA, Bytes::new(0), Bytes::from_mib(512));
    let seen = run_one(&mut warm, load, 10 * SECOND);
    assert_near(seen.iops(0, 10 * SECOND), 512.0, 1.0);
}

#[test]
fn hits_do_not_queue_behind_misses() {
    let mut bench = Bench::of(Caching::ReadOnly);
    bench.time(Op::Read, 0, 4096);
    for n in 1..1_000 {
        bench.submit(Op::Read, n * MIB, 4096);
    }
    let start = bench.now;
    let hit = bench.submit(Op::Read, 0, 4096);
    assert_eq!(bench.end_of(hit).0 - start, HIT);
    let counters = bench.host.counters(at(bench.now), DATA);
    assert!(counters.queued > 900, "{} wait", counters.queued);
    let binding: Vec<&str> = counters
        .limits
        .iter()
        .filter(|limit| limit.binding)
        .map(|limit| limit.place.as_str())
        .collect();
    assert_eq!(binding, ["disk 0"]);
}

#[test]
fn uniform_reads_hit_in_proportion_to_the_cache() {
    // 1 GiB of cache over 4 GiB read at random: a quarter hits, whatever the policy.
    let mut bench = Bench::of(Caching::ReadOnly);
    let mut random = 1_u64;
    let mut read = |bench: &mut Bench| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let block = (random >> 33) % (4 * GIB / (64 * KIB));
        bench.submit(Op::Read, block * 64 * KIB, 64 * KIB);
        bench.now += 400_000;
        bench.out.clear();
    };
    for _ in 0..200_000 {
        read(&mut bench);
    }
    let before = bench.host.counters(Instant::MAX, DATA).cache.unwrap();
    for _ in 0..200_000 {
        read(&mut bench);
    }
    let after = bench.host.counters(Instant::MAX, DATA).cache.unwrap();
    let hits = (after.hit_ios - before.hit_ios) as f64;
    assert_near(hits / 200_000.0, 0.25, 3.0);
}
