//! How many I/Os a second the model decides on one core.
//!
//! `cargo bench -p disklab-disk` prints I/Os per second ("Mitem/s"); `cargo test --benches` runs
//! each case once over a small number of I/Os, so that none can rot.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

use disklab_disk::profile::{CacheProfile, Caching, Distribution, HostProfile, Latency};
use disklab_disk::{Completion, Destaged, Host, Io, Op, VolumeId};
use disklab_units::{Bytes, Instant};
use driver::{GIB, MS, cached, ds14_v2, host_cache, p30, volume};

#[allow(dead_code, reason = "its loads are for tests")]
#[path = "../tests/driver/mod.rs"]
mod driver;

fn main() {
    divan::main();
}

/// I/Os of one sample: a tenth of a second of work, or nearly none in a test.
fn ios() -> u64 {
    let measures = std::env::args().any(|argument| argument == "--bench");
    if measures { 1_000_000 } else { 1_000 }
}

/// A body and a tail, as the catalogue has them for a P30.
fn latency(us: u64) -> Latency {
    let points = [
        (0, 50),
        (10_000, 60),
        (100_000, 80),
        (500_000, 100),
        (900_000, 130),
    ];
    let tail = [
        (990_000, 230),
        (999_000, 300),
        (999_900, 480),
        (1_000_000, 1_400),
    ];
    let all = points.into_iter().chain(tail);
    let distribution = Distribution {
        quantiles_ppm_ns: all.map(|(ppm, percent)| (ppm, us * percent * 10)).collect(),
        per_kib_ns: 250,
    };
    Latency {
        read: distribution.clone(),
        write: distribution.clone(),
        flush: distribution,
    }
}

/// A P30 on a DS14_v2; `window_ns` for all limits.
fn profile(disks: usize, caching: Caching, cache_gib: u64, window_ns: u64) -> HostProfile {
    let mut disk = p30(window_ns);
    disk.latency = latency(3_300);
    let mut data = cached(volume("data", vec![disk; disks]), caching);
    data.size_bytes = 1024 * GIB;
    let mut profile = ds14_v2(window_ns, vec![data]);
    profile.cache = Some(CacheProfile {
        latency: latency(200),
        ..host_cache(cache_gib * GIB)
    });
    profile
}

/// Where the I/Os go: places of `len` bytes below `span`, in an order without a pattern.
#[derive(Clone, Copy)]
struct Load {
    op: Op,
    len: u32,
    span: u64,
    /// Pause between two arrivals, in nanoseconds.
    pause_ns: u64,
    /// How many I/Os before its submission an I/O is announced; 0: never.
    announced: u64,
}

impl Load {
    fn io(&self, count: u64) -> Io {
        let places = self.span / u64::from(self.len);
        let mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = ((u128::from(mixed) * u128::from(places)) >> 64) as u64;
        Io {
            tag: count,
            volume: VolumeId(0),
            op: self.op,
            offset: Bytes::new(place * u64::from(self.len)),
            len: self.len,
        }
    }
}

/// A host under an open load, from arrival to arrival.
struct Driven {
    host: Host,
    now: u64,
    count: u64,
    out: Vec<Completion>,
    destaged: Vec<Destaged>,
}

impl Driven {
    fn new(profile: HostProfile) -> Driven {
        Driven {
            host: driver::host(profile),
            now: 0,
            count: 0,
            out: Vec::with_capacity(1 << 16),
            destaged: Vec::new(),
        }
    }

    /// Submits I/Os and takes their decisions, at each event of the host as well.
    fn run(&mut self, load: Load, ios: u64) {
        for _ in 0..ios {
            if load.announced > 0 {
                self.host.announce(&load.io(self.count + load.announced));
            }
            self.count += 1;
            self.now += load.pause_ns;
            while let Some(next) = self.host.next_event()
                && next.as_nanos() <= self.now
            {
                self.host.advance(next, &mut self.out);
            }
            let now = Instant::from_nanos(self.now);
            self.host.submit(now, load.io(self.count), &mut self.out);
            if self.out.len() > 1 << 15 {
                black_box(&self.out);
                self.out.clear();
                self.host.take_destaged(&mut self.destaged);
                self.destaged.clear();
            }
        }
        black_box(&self.out);
        self.out.clear();
    }
}

fn bench(bencher: Bencher, profile: &HostProfile, load: Load, prepare: impl Fn(&mut Driven)) {
    let ios = ios();
    bencher
        .counter(ItemsCount::new(ios))
        .with_inputs(|| {
            let mut driven = Driven::new(profile.clone());
            prepare(&mut driven);
            driven
        })
        .bench_local_refs(|driven| driven.run(load, ios));
}

/// One I/O in 250 us: 80 % of a P30.
const BELOW: Load = Load {
    op: Op::Read,
    len: 4096,
    span: 512 * GIB,
    pause_ns: 250_000,
    announced: 0,
};

/// A P30 alone: its own two limits, no VM.
fn alone(window_ns: u64) -> HostProfile {
    HostProfile {
        cached: Vec::new(),
        uncached: Vec::new(),
        ..profile(1, Caching::None, 1, window_ns)
    }
}

/// The case: >= 20 million a second.
#[divan::bench(sample_count = 20)]
fn p30_below_its_limits(bencher: Bencher) {
    bench(bencher, &alone(50 * MS), BELOW, |_| ());
}

/// The same with the two limits of the VM's network.
#[divan::bench(sample_count = 20)]
fn p30_on_ds14_v2(bencher: Bencher) {
    bench(
        bencher,
        &profile(1, Caching::None, 1, 50 * MS),
        BELOW,
        |_| (),
    );
}

/// 64 I/Os always wait: each arrives as another is let through.
#[divan::bench(sample_count = 20, args = ["continuous", "windows"])]
fn p30_at_its_limits(bencher: Bencher, refill: &str) {
    let window = if refill == "windows" { 50 * MS } else { 0 };
    let saturated = Load {
        pause_ns: 200_000,
        ..BELOW
    };
    bench(bencher, &alone(window), saturated, |driven| {
        driven.run(
            Load {
                pause_ns: 0,
                ..saturated
            },
            320,
        );
    });
}

/// The case: >= 5 million a second. 64 GiB of cache are a million blocks, whose index is
/// larger than any L2. A hit then waits for memory two thirds of its time (by perf), unless the caller
/// announced it: that is what somebody who takes requests in batches can do, here two I/Os ahead.
/// Misses of single sectors make the index grow to sixteen times as many blocks meanwhile.
#[divan::bench(sample_count = 10, args = ["hits", "three hits in four", "misses of a block", "misses of a sector"])]
fn host_cache_reads(bencher: Bencher, what: &str) {
    read_through_cache(bencher, what, 0);
}

/// The same when the caller sees the I/Os coming.
#[divan::bench(sample_count = 10, args = ["hits", "three hits in four", "misses of a block", "misses of a sector"])]
fn host_cache_reads_announced(bencher: Bencher, what: &str) {
    read_through_cache(bencher, what, 2);
}

fn read_through_cache(bencher: Bencher, what: &str, announced: u64) {
    let cache_gib = if std::env::args().any(|argument| argument == "--bench") {
        64
    } else {
        1
    };
    let (span, len) = match what {
        "hits" => (cache_gib * GIB, 4096),
        "three hits in four" => (cache_gib * GIB * 4 / 3, 64 << 10),
        "misses of a block" => (1024 * GIB, 64 << 10),
        _ => (1024 * GIB, 4096),
    };
    // 131 MB/s in blocks of 64 KiB: 66 % of a P30.
    let pause_ns = if len == 4096 { BELOW.pause_ns } else { 500_000 };
    let load = Load {
        span,
        len,
        pause_ns,
        announced,
        ..BELOW
    };
    bench(
        bencher,
        &profile(1, Caching::ReadOnly, cache_gib, 50 * MS),
        load,
        |driven| {
            driven
                .host
                .warm(VolumeId(0), Bytes::ZERO, Bytes::from_gib(cache_gib));
        },
    );
}

/// Writes that the cache acknowledges and destages later.
#[divan::bench(sample_count = 10)]
fn host_cache_writes_back(bencher: Bencher) {
    let load = Load {
        op: Op::Write,
        span: 64 * GIB,
        ..BELOW
    };
    bench(
        bencher,
        &profile(1, Caching::ReadWrite, 64, 50 * MS),
        load,
        |_| (),
    );
}

#[divan::bench(sample_count = 20, args = [4, 256])]
fn stripe_of_four(bencher: Bencher, kib: u32) {
    let load = Load {
        len: kib << 10,
        pause_ns: 2_000_000,
        ..BELOW
    };
    bench(
        bencher,
        &profile(4, Caching::None, 1, 50 * MS),
        load,
        |_| (),
    );
}
