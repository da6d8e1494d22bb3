//! What this machine can do through the whole path, and the emulator's own part in a latency.
//!
//! Measured on a small volume in memory that exists for that time only, with a load of our own.

mod load;

use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;

use disklab_units::Duration;
use serde::{Deserialize, Serialize};

use crate::awake::Awake;
use crate::clock;
use crate::command::Tuning;
use crate::error::EmulatorError;
use crate::overhead::{Overhead, WAITS};
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

/// The overhead at a wait is taken from medians of this many reads each, as many as fit into the spans of all rounds.
/// The lower eighth of the medians counts, because another program that has a CPU for a while only adds, and with too
/// much subtracted a disk would be faster than promised. Few reads to a median, so that some of them fall between two
/// slices of a busy CPU. And rounds, each in threads of its own: the scheduler tends to leave a thread where it is, and
/// from the wrong CPU each read costs two interrupts of an idle one more. In one span of 80 ms on one thread, 4 of 24
/// starts found 18 to 29 us at 1 ms, the others 11 to 13 (2 CPUs, 2026-11-22). Rounds also because the host of a virtual
/// machine has its own states: for tenths of a second each step of a read takes twice its time, 10 us become 24.
const PROBE_READS: u64 = 4;
const PROBE_SPAN: Duration = Duration::from_millis(30);
pub const ROUNDS: usize = 4;
/// This many starts are remembered: enough for a median, few enough to follow a machine that has changed.
const STARTS: usize = 9;

/// How late a sleeper wakes up on this machine: looked at this many times for this long.
const NAPS: usize = 200;
const NAP: Duration = Duration::from_micros(200);
/// Spinning longer than this would take a core from the programs that use the disk.
const MOST_SPIN: Duration = Duration::from_micros(100);

/// Measures the envelope, and runs `between` before each of its three figures.
pub fn envelope(
    device: &Path,
    mut between: impl FnMut() -> Result<(), EmulatorError>,
) -> Result<Envelope, EmulatorError> {
    let failed = |error| failed(device, &error);
    let mut load = Load::open(device, VOLUME_BYTES).map_err(failed)?;
    // The memory of volume and buffers is touched first, as it would be in use.
    load.fill().map_err(failed)?;
    let mut figure = |block, depth| {
        between()?;
        load.read(block, depth, SPAN, u64::MAX).map_err(failed)
    };
    let (single, deep, wide) = (figure(4096, 1)?, figure(4096, 64)?, figure(1 << 20, 16)?);
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

/// Adds a round's medians, with the volume's latency at the wait in question and nothing subtracted.
pub fn probe(device: &Path, medians: &mut Vec<Duration>) -> Result<(), EmulatorError> {
    let round = || -> io::Result<()> {
        let mut load = Load::open(device, VOLUME_BYTES)?;
        let end = clock::now() + PROBE_SPAN;
        loop {
            let sample = load.read(4096, 1, Duration::MAX, PROBE_READS)?;
            medians.push(sample.quantile(500_000));
            if clock::now() >= end {
                return Ok(());
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(round).join())
        .unwrap_or_else(|panic| resume_unwind(panic))
        .map_err(|error| failed(device, &error))
}

fn failed(device: &Path, error: &io::Error) -> EmulatorError {
    EmulatorError::system(
        device.display().to_string(),
        "measure the machine",
        error,
        "start with --no-calibrate",
    )
}

/// The overhead at a wait, of the medians of all rounds.
pub fn overhead(wait: Duration, mut medians: Vec<Duration>) -> Duration {
    medians.sort_unstable();
    let lower = medians.get(medians.len() / 8).copied();
    lower.unwrap_or_default().saturating_sub(wait)
}

/// The tuning to measure the overhead with.
pub fn untuned(spin: Duration) -> Tuning {
    Tuning {
        overhead: Overhead::default(),
        spin,
    }
}

/// What was found out about the machine, as it is kept for the next start.
#[derive(Serialize, Deserialize)]
pub struct Record {
    circumstances: Circumstances,
    /// What the emulator reaches.
    pub envelope: Envelope,
    /// The overheads in nanoseconds that the last starts found at each of [`WAITS`], the newest last.
    overheads_ns: Vec<[u64; WAITS.len()]>,
}

/// What a record holds for.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Circumstances {
    boot_id: String,
    kernel: String,
    transport: String,
    /// Whether time begins when requests are issued; the overhead is less then.
    from_issue: bool,
    engine: String,
}

impl Record {
    /// A record that no start has added to.
    pub fn new(transport: TransportKind, from_issue: bool, envelope: Envelope) -> Record {
        Record {
            circumstances: Circumstances::now(transport, from_issue),
            envelope,
            overheads_ns: Vec::new(),
        }
    }

    /// What an earlier start found out under the same circumstances.
    pub fn read(path: &Path, transport: TransportKind, from_issue: bool) -> Option<Record> {
        let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (record.circumstances == Circumstances::now(transport, from_issue)).then_some(record)
    }

    /// Adds the overheads that this start found, and returns what to subtract: those, but no more than the lower median
    /// of the last starts. The host of a virtual machine may be slow for as long as a start takes, and be fast a second
    /// later, when the disk would be faster than promised.
    pub fn temper(&mut self, found: [Duration; WAITS.len()]) -> [Duration; WAITS.len()] {
        let surplus = (self.overheads_ns.len() + 1).saturating_sub(STARTS);
        self.overheads_ns.drain(..surplus);
        self.overheads_ns.push(found.map(Duration::as_nanos));
        std::array::from_fn(|which| {
            let mut seen: Vec<u64> = self.overheads_ns.iter().map(|start| start[which]).collect();
            seen.sort_unstable();
            let median = Duration::from_nanos(seen[(seen.len() - 1) / 2]);
            median.min(found[which])
        })
    }
}

impl Circumstances {
    fn now(transport: TransportKind, from_issue: bool) -> Circumstances {
        let text = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        Circumstances {
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: text("/proc/sys/kernel/osrelease"),
            transport: transport.name().to_owned(),
            from_issue,
            engine: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_start_is_tempered_by_those_before_it() {
        let envelope = Envelope {
            p50_ns: 0,
            p99_ns: 0,
            iops: 0,
            bytes_per_s: 0,
        };
        let us = |us| [Duration::from_micros(us); WAITS.len()];
        let mut record = Record::new(TransportKind::Fuse, true, envelope);
        assert_eq!(record.temper(us(25)), us(25), "all that is known");
        assert_eq!(record.temper(us(10)), us(10), "never more than found now");
        assert_eq!(record.temper(us(11)), us(11));
        assert_eq!(record.temper(us(26)), us(11), "the lower median of four");
        for _ in 0..2 * STARTS {
            record.temper(us(40));
        }
        assert_eq!(record.temper(us(50)), us(40), "old starts are forgotten");
        assert_eq!(record.overheads_ns.len(), STARTS);
    }
}
