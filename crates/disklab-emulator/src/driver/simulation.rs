//! The driver under a simulated clock, machine and program: one seed is one history.
//!
//! A program submits I/Os, somebody attaches, changes, breaks and mends volumes, files take their time and fail, time
//! passes in steps of any size; the seed decides all of it. In every history each request is answered once and not
//! before its time, no read finds what was overwritten before it came, no failure takes what was promised to stay, and
//! the counters add up.
//!
//! `cargo test -p disklab-emulator simulation` runs the usual seeds, `DISKLAB_SEEDS=100000` so many, and
//! `DISKLAB_SEED=17` one, with its steps.

mod history;
mod kernel;
mod profiles;
mod program;

use std::panic::{AssertUnwindSafe, catch_unwind};

use disklab_disk::profile::Caching;
use disklab_disk::{Change, Fault, Op};
use disklab_units::Instant;

use crate::driver::InFlight;
use crate::overhead::Overhead;

use profiles::plain;
use program::Simulation;

/// Seeds of an ordinary run, some seconds' worth.
const SEEDS: u64 = 1_500;

/// A reply may leave when the model says so, less the emulator's own part, unless the host failed.
pub fn check_time(in_flight: &InFlight, overhead: Overhead, now: Instant) {
    let &InFlight { issued, due, .. } = in_flight;
    assert!(
        in_flight.lost || overhead.sends(issued, due) <= now,
        "a reply before its time: issued {issued:?}, due {due:?}, sent {now:?}"
    );
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Runs a history; what was wrong, and its steps if they are asked for.
fn run(seed: u64, steps: bool) -> Result<(), String> {
    let mut simulation = Simulation::new(seed, steps);
    let ended = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let error = match ended {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default()
        }
    };
    let steps = simulation.steps().join("\n");
    Err(format!("seed {seed}: {error}\n{steps}"))
}

#[test]
fn no_history_breaks_a_promise() {
    let one = number("DISKLAB_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("DISKLAB_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if run(seed, false).is_err() {
            let error = run(seed, true).expect_err("the same seed, the same history");
            panic!("{error}\nagain: DISKLAB_SEED={seed} cargo test -p disklab-emulator simulation");
        }
    }
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..20 {
        let history = || {
            let mut simulation = Simulation::new(seed, true);
            simulation.run().expect("a history that keeps its promises");
            simulation.steps().to_vec()
        };
        assert_eq!(history(), history(), "seed {seed}");
    }
}

/// A write that is held while its volume leaves the ReadWrite cache goes to the disk itself. What it overwrote was kept for
/// the cache, and must not come back with a later write that a failure takes.
#[test]
fn a_write_through_is_not_undone_by_a_later_failure() {
    let script = |simulation: &mut Simulation| -> Result<(), String> {
        let volume = simulation.with(plain(Caching::ReadWrite))?;
        let caching = |caching| Change {
            caching: Some(caching),
            ..Change::default()
        };
        for op in [Op::Write, Op::Flush] {
            simulation.submit_io(0, op, 0, if op == Op::Write { 4096 } else { 0 });
            simulation.go_on(true)?;
        }
        simulation.fail(volume, Fault::Stall { for_ns: None });
        simulation.go_on(false)?;
        simulation.submit_io(0, Op::Write, 0, 4096);
        simulation.go_on(false)?;
        simulation.set(volume, caching(Caching::None));
        simulation.go_on(false)?;
        simulation.fail(volume, Fault::Recover);
        simulation.go_on(true)?;
        for _ in 0..2 {
            simulation.submit_io(0, Op::Flush, 0, 0);
            simulation.go_on(true)?;
        }
        simulation.set(volume, caching(Caching::ReadWrite));
        simulation.go_on(true)?;
        simulation.submit_io(0, Op::Write, 0, 4096);
        simulation.go_on(true)?;
        simulation.fail(volume, Fault::HostFailure);
        simulation.go_on(true)
    };
    for seed in 0..8 {
        let mut simulation = Simulation::new(seed, true);
        if let Err(error) = script(&mut simulation) {
            panic!("{error}\n{}", simulation.steps().join("\n"));
        }
    }
}
