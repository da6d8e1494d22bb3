//! The lease of a conductor: until when its jobs may run without hearing of it.

use std::fs::File;
use std::io;

use serde::{Deserialize, Serialize};

use crate::{folder, system};

/// The name of its file; no job has a name like it.
pub const NAME: &str = ".lease";
/// The usual time: a link that is away for longer is not coming back by itself.
pub const USUAL_S: u64 = 15 * 60;
/// The longest: a forgotten job is gone the next day.
pub const MOST_S: u64 = 24 * 3600;

/// What its file says.
#[derive(Serialize, Deserialize)]
struct Lease {
    boot: String,
    until_ns: u64,
}

/// Lets the jobs run for so long from now on.
pub fn renew(folder: &File, seconds: u64) -> io::Result<u64> {
    let until_ns = system::boottime_ns() + seconds.clamp(1, MOST_S) * 1_000_000_000;
    let lease = Lease {
        boot: system::boot_id(),
        until_ns,
    };
    folder::replace(
        folder,
        NAME,
        serde_json::json!(lease).to_string().as_bytes(),
    )?;
    Ok(until_ns)
}

/// Until when it holds, by the time since the host's start; None: there is none of this boot.
pub fn until_ns(folder: &File) -> Option<u64> {
    let data = folder::read(folder, NAME, 4096).ok()??;
    let lease: Lease = serde_json::from_slice(&data).ok()?;
    (lease.boot == system::boot_id()).then_some(lease.until_ns)
}
