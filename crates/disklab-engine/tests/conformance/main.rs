//! One suite that every transport passes: the same bodies over FUSE and ublk, against the real
//! engine, through real block devices.
//!
//! `cargo test -p disklab-engine --test conformance [-- WORD]` runs the cases whose names contain
//! WORD over every transport that this machine has. It needs root. `DISKLAB_TRANSPORT=ublk` runs
//! that one and fails where it is missing; `DISKLAB_ENGINE=PATH` tests another build.

mod cases;
mod disk;
mod emulated;

use std::process::ExitCode;
use std::time::Instant;

use emulated::{Bench, Transport};

/// What a case returns: the first thing that was not as it must be.
pub type Check = Result<(), Box<dyn std::error::Error>>;

/// Fails a case with a message unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}

fn main() -> ExitCode {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let asked = std::env::var("DISKLAB_TRANSPORT").ok();
    let mut ran = 0_u32;
    let mut failed = Vec::new();
    for transport in Transport::ALL {
        if asked.as_ref().is_some_and(|name| name != transport.name()) {
            continue;
        }
        if let Err(reason) = transport.present() {
            println!("conformance over {}: skipped: {reason}", transport.name());
            if asked.is_some() {
                failed.push(format!("{}: {reason}", transport.name()));
            }
            continue;
        }
        println!("conformance over {}", transport.name());
        for (name, case) in cases::ALL {
            if word.as_ref().is_some_and(|word| !name.contains(word)) {
                continue;
            }
            ran += 1;
            let start = Instant::now();
            match Bench::new(transport).and_then(|bench| case(&bench)) {
                Ok(()) => println!("  ok      {name} ({:.1} s)", start.elapsed().as_secs_f64()),
                Err(error) => {
                    println!("  FAILED  {name}: {error}");
                    failed.push(format!("{} over {}", name, transport.name()));
                }
            }
        }
    }
    // CI has root and FUSE: there, running nothing is a failure of its own.
    if ran == 0 && std::env::var_os("CI").is_some() {
        failed.push("no transport could be tested".to_owned());
    }
    println!("conformance: {ran} cases, {} failed", failed.len());
    for what in &failed {
        println!("  failed: {what}");
    }
    ExitCode::from(u8::from(!failed.is_empty()))
}
