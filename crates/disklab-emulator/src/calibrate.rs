//! What this machine can do through the whole path, and the emulator's own part in a latency.
//!
//! Measured on a small volume in memory that exists for that time only, with a load of our own.

mod load;

use std::fs;
use std::path::Path;

use disklab_units::Duration;
use serde::{Deserialize, Serialize};

use crate::awake::Awake;
use crate::clock;
use crate::command::Tuning;
use crate::overhead::Overhead;
use crate::transport::TransportKind;
use load::Load;

/// Measured through the block device with no delay and memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Median latency of a 4 KiB read at queue depth 1.
    pub p50_ns: u64,
    /// 99th percentile of the same.
    pub p99_ns: u64,
    /// 4 KiB reads per second at queue depth 64.
    pub iops: u64,
    /// 1 MiB reads, bytes per second.
    pub bytes_per_s: u64,
}

/// The volume to measure on: larger than the caches of most CPUs, small enough to be made in no time.
pub const VOLUME_BYTES: u64 = 64 << 20;
/// No volume of a user can have this name.
pub const VOLUME_NAME: &str = ".calibrate";

/// How long each of the envelope's three figures is measured. Together with making the volume: a second.
const SPAN: Duration = Duration::from_millis(250);

/// The overhead at a wait is taken from medians of this many reads each, as many as fit into this time. The lower
/// eighth of the medians counts, because another program that has a CPU for a while only adds, and with too much
/// subtracted a disk would be faster than promised. Few reads to a median, so that some of them fall between two
/// slices of a busy CPU.
const PROBE_READS: u64 = 4;
const PROBE_SPAN: Duration = Duration::from_millis(80);

/// How late a sleeper wakes up on this machine: looked at this many times for this long.
const NAPS: usize = 200;
const NAP: Duration = Duration::from_micros(200);
/// Spinning longer than this would take a core from the programs that use the disk.
const MOST_SPIN: Duration = Duration::from_micros(100);

/// Measures the envelope.
pub fn envelope(device: &Path) -> std::io::Result<Envelope> {
    let mut load = Load::open(device, VOLUME_BYTES)?;
    // The memory of volume and buffers is touched first, as it would be in use.
    load.fill()?;
    let single = load.read(4096, 1, SPAN, u64::MAX)?;
    let deep = load.read(4096, 64, SPAN, u64::MAX)?;
    let wide = load.read(1 << 20, 16, SPAN, u64::MAX)?;
    Ok(Envelope {
        p50_ns: single.quantile(500_000).as_nanos(),
        p99_ns: single.quantile(990_000).as_nanos(),
        iops: deep.per_second(),
        bytes_per_s: wide.per_second() << 20,
    })
}

/// How far before a reply is due the driver should stop sleeping: nine of ten naps on this machine are no later.
/// The CPUs are held awake meanwhile, as they are while I/O is under way.
pub fn wake_lateness(mut awake: Awake) -> Duration {
    awake.hold();
    let mut late: Vec<Duration> = (0..NAPS)
        .map(|_| {
            let start = clock::now();
            std::thread::sleep(std::time::Duration::from_nanos(NAP.as_nanos()));
            clock::now().saturating_since(start).saturating_sub(NAP)
        })
        .collect();
    late.sort_unstable();
    late[NAPS * 9 / 10].min(MOST_SPIN)
}

/// Finds the overhead at one wait, with the volume's latency at that and nothing subtracted.
pub fn overhead(device: &Path, wait: Duration) -> std::io::Result<Duration> {
    let mut load = Load::open(device, VOLUME_BYTES)?;
    let mut medians = Vec::new();
    let end = clock::now() + PROBE_SPAN;
    while medians.is_empty() || clock::now() < end {
        let sample = load.read(4096, 1, Duration::MAX, PROBE_READS)?;
        medians.push(sample.quantile(500_000));
    }
    medians.sort_unstable();
    Ok(medians[medians.len() / 8].saturating_sub(wait))
}

/// The tuning to measure the overhead with.
pub fn untuned(spin: Duration) -> Tuning {
    Tuning {
        overhead: Overhead::default(),
        spin,
    }
}

/// An envelope as it is kept for the next start.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Stored {
    boot_id: String,
    kernel: String,
    transport: String,
    engine: String,
    envelope: Envelope,
}

/// The envelope that an earlier start measured under the same circumstances.
pub fn stored(path: &Path, transport: TransportKind) -> Option<Envelope> {
    let stored: Stored = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let envelope = stored.envelope;
    (stored == circumstances(transport, envelope)).then_some(envelope)
}

/// As [`stored`] expects it.
pub fn to_store(transport: TransportKind, envelope: Envelope) -> impl Serialize {
    circumstances(transport, envelope)
}

fn circumstances(transport: TransportKind, envelope: Envelope) -> Stored {
    let text = |path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    Stored {
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        kernel: text("/proc/sys/kernel/osrelease"),
        transport: transport.name().to_owned(),
        engine: env!("CARGO_PKG_VERSION").to_owned(),
        envelope,
    }
}
