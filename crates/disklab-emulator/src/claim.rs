//! Whether somebody uses a block device, and that nobody begins to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::EmulatorError;

/// Why a device stays.
#[derive(Debug)]
pub enum InUse {
    /// Mounted, swapped to or part of another device.
    Claimed,
    /// Open in a process.
    Open {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The kernel does not know it as ours any more.
    NotOurs,
    /// The kernel said no.
    System(io::Error),
}

impl InUse {
    /// As an error about this volume.
    pub fn explain(self, volume: &str, path: &Path) -> EmulatorError {
        let path = path.display();
        let (rule, way_out) = match self {
            InUse::Claimed => (
                format!("{path} is mounted, swapped to or part of another device"),
                format!("unmount it first: `umount {path}`"),
            ),
            InUse::Open { pid, name } => (
                format!("{path} is open in process {pid} ({name})"),
                "end that process first".to_owned(),
            ),
            InUse::NotOurs => (
                format!("{path} is no longer a device of this host"),
                "it was taken away by hand; run `disklab clean`".to_owned(),
            ),
            InUse::System(error) => (
                format!("the kernel refused it: {error}"),
                "look at the kernel's log; run `disklab clean`".to_owned(),
            ),
        };
        EmulatorError::new("volume", volume, rule, way_out)
    }
}

/// Claims a device for us, unless somebody uses it.
pub fn claim(path: &Path) -> Result<File, InUse> {
    let claim = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => InUse::Claimed,
            _ => InUse::System(error),
        })?;
    let device = claim.metadata().map_err(InUse::System)?.rdev();
    match user_of(device) {
        Some((pid, name)) => Err(InUse::Open { pid, name }),
        None => Ok(claim),
    }
}

/// A process, other than this one, that has the block device open.
pub fn user_of(device: u64) -> Option<(u32, String)> {
    let own = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let uses = files.flatten().any(|file| {
            // The link names a device; only then is it worth following.
            fs::read_link(file.path()).is_ok_and(|link| link.starts_with("/dev"))
                && fs::metadata(file.path())
                    .is_ok_and(|found| found.rdev() == device && device != 0)
        });
        if uses && pid != own {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}
