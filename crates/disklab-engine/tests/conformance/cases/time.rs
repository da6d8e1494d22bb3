//! When an I/O's time begins.

use std::thread::sleep;
use std::time::{Duration, Instant};

use disklab_disk::profile::Distribution;
use serde_json::json;

use crate::cases::{SIZE, read_in_background};
use crate::emulated::{Bench, PATIENCE, volume};
use crate::{Check, ensure};

const LATENCY: Duration = Duration::from_millis(200);
/// Less than what the engine takes for a request that never comes.
const ON_THE_WAY: Duration = Duration::from_millis(80);
/// Other programs may make a read longer, never shorter.
const TRIES: u32 = 5;

/// What a request waits for until the engine has it is part of its latency: it is issued while the engine stands.
pub fn from_issue(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let mut profile = volume("data", SIZE);
    for disk in &mut profile.disks {
        disk.latency.read = Distribution::constant(LATENCY.as_nanos() as u64);
    }
    let device = host.attach_profile(&profile)?;
    let mut shortest = Duration::MAX;
    for _ in 0..TRIES {
        host.signal(libc::SIGSTOP)?;
        let begin = Instant::now();
        let read = read_in_background(&device)?;
        sleep(ON_THE_WAY);
        host.signal(libc::SIGCONT)?;
        read.recv_timeout(PATIENCE).map_err(|_| "a read hangs")??;
        let took = begin.elapsed();
        ensure!(
            took >= LATENCY,
            "a read took {took:?}, less than {LATENCY:?}"
        );
        shortest = shortest.min(took);
    }
    ensure!(
        shortest < LATENCY + ON_THE_WAY / 2,
        "reads that were {ON_THE_WAY:?} on their way took {shortest:?}, not {LATENCY:?}"
    );
    let shown = host.must(&json!({"op": "show", "volume": "data"}))?;
    let counted = shown["emulator"]["timed_from_issue"].as_u64();
    ensure!(
        counted > Some(0),
        "{counted:?} of {TRIES} reads were timed from their issue"
    );
    Ok(())
}
