//! The block device of a volume, whatever makes it.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::claim::InUse;
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
