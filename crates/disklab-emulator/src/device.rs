//! The block device of a volume, whatever makes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::EmulatorError;
use crate::loop_device::LoopDevice;
use crate::ublk::{AddedDevice, UblkDevice, UblkDevices};

/// A device with a disk on it.
pub enum Device {
    /// A loop device over a file of our FUSE mount.
    Loop(LoopDevice),
    /// A ublk device.
    Ublk(UblkDevice),
}

impl Device {
    /// `/dev/loopN` or `/dev/ublkbN`.
    pub fn path(&self) -> PathBuf {
        match self {
            Device::Loop(device) => device.path(),
            Device::Ublk(device) => device.path(),
        }
    }

    /// Proves that the device is ours and unused. The answer holds only while the returned file is open.
    pub fn claim(&self) -> Result<File, InUse> {
        match self {
            Device::Loop(device) => device.claim(),
            Device::Ublk(device) => device.claim(),
        }
    }

    /// Takes the device away, unless it is in use or not ours.
    pub fn detach(&self) -> Result<(), InUse> {
        match self {
            Device::Loop(device) => device.detach(),
            Device::Ublk(device) => device.detach(),
        }
    }
}

/// What makes the devices of a host.
pub enum Devices {
    /// Loop devices over files of our FUSE mount.
    Loop,
    /// ublk_drv.
    Ublk(UblkDevices),
}

impl Devices {
    /// The step before the driver shows the volume.
    pub fn prepare(
        &self,
        volume: &str,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<Prepared, EmulatorError> {
        match self {
            Devices::Loop => Ok(Prepared::Loop { block_bytes }),
            Devices::Ublk(devices) => devices
                .add(volume, size_bytes, block_bytes)
                .map(Prepared::Ublk),
        }
    }
}

/// A device half made. Undone when dropped.
pub enum Prepared {
    /// Nothing yet.
    Loop {
        /// The logical block.
        block_bytes: u32,
    },
    /// Waits for the driver to take its queue.
    Ublk(AddedDevice),
}

impl Prepared {
    /// The step after the driver has shown the volume; `file` is where FUSE shows it.
    pub fn make(self, file: &Path) -> Result<Device, EmulatorError> {
        match self {
            Prepared::Loop { block_bytes } => {
                LoopDevice::attach(file, block_bytes).map(Device::Loop)
            }
            Prepared::Ublk(added) => added.start().map(Device::Ublk),
        }
    }
}

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
    pub fn explain(self, volume: &str, device: &Device) -> EmulatorError {
        let path = device.path().display().to_string();
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
