//! Block devices through ublk_drv (Linux 6.4 and newer): requests come straight from the block layer,
//! without a loop device and without FUSE.
//!
//! A device has two sides. Adding, starting, stopping and deleting it are commands that wait, some of them
//! for I/O on the device itself, so they belong to the control thread ([`UblkDevices`]). Its requests
//! belong to the driver's thread ([`UblkTransport`]).

mod control;
mod ownership;
mod protocol;
mod queue;
mod transport;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::claim::{InUse, claim};
use crate::error::EmulatorError;
use crate::ublk::control::{Control, ControlError, REQUESTS};
use crate::ublk::protocol::CONTROL_PATH;
use crate::ublk::queue::Queue;
use crate::ublk::transport::Opened;

pub use ownership::{OwnedDevice, owned_devices, remove_dead};
pub use transport::UblkTransport;

/// How long a stopped device may stay in somebody's hands before detach gives up waiting. Whoever opened it
/// plainly (udev, blkid) lets go within milliseconds.
const DELETE_LIMIT: Duration = Duration::from_secs(5);

const WAY_OUT: &str = "choose --transport auto: FUSE with a loop device needs no ublk";

/// Whether this kernel offers ublk now.
pub fn present() -> bool {
    Path::new(CONTROL_PATH).exists()
}

/// Makes the two sides of a host's devices; `host_directory` has no links in its path. Nothing changes on the
/// machine until a device is added.
pub fn open(host_directory: &Path) -> Result<(UblkTransport, UblkDevices), EmulatorError> {
    let devices = UblkDevices {
        opened: Opened::default(),
        host_directory: host_directory.to_owned(),
    };
    devices.probe()?;
    Ok((UblkTransport::new(devices.opened.clone()), devices))
}

fn open_control() -> Result<Control, EmulatorError> {
    Control::open().map_err(|error| {
        let way_out = match error.kind() {
            io::ErrorKind::NotFound => {
                "load the module with `modprobe ublk_drv`, or choose --transport auto"
            }
            _ => WAY_OUT,
        };
        EmulatorError::system(CONTROL_PATH, "open", &error, way_out)
    })
}

fn refused(error: &ControlError) -> EmulatorError {
    let place = format!("/dev/ublkb{}", error.device);
    EmulatorError::system(place, error.op.name(), &error.cause, WAY_OUT)
}

/// The control side of a host's devices.
pub struct UblkDevices {
    opened: Opened,
    host_directory: PathBuf,
}

impl UblkDevices {
    /// Finds out at the start of the host, and not at the first attach, whether the driver understands us:
    /// asks for a device that cannot exist.
    fn probe(&self) -> Result<(), EmulatorError> {
        match open_control()?.info(u32::MAX - 1) {
            Err(error) if error.cause.raw_os_error() != Some(libc::ENODEV) => {
                Err(EmulatorError::system(
                    CONTROL_PATH,
                    error.op.name(),
                    &error.cause,
                    "Linux 6.4 or later is needed for ublk; choose --transport auto",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Adds the device of a volume. The driver takes its queue when the volume is shown; then
    /// [`AddedDevice::start`] must follow.
    pub fn add(
        &self,
        volume: &str,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<AddedDevice, EmulatorError> {
        let mut control = open_control()?;
        let mark = ownership::mark(&self.host_directory, volume);
        let added = AddedDevice {
            number: control.add(mark).map_err(|error| refused(&error))?,
            mark,
            volume: volume.to_owned(),
            opened: self.opened.clone(),
            started: false,
        };
        control
            .set_parameters(added.number, size_bytes, block_bytes)
            .map_err(|error| refused(&error))?;
        let queue = Queue::open(added.number).map_err(|error| {
            let place = format!("/dev/ublkc{}", added.number);
            EmulatorError::system(place, "open", &error, WAY_OUT)
        })?;
        self.opened.put(volume, queue);
        Ok(added)
    }
}

/// A device without a disk yet. Deleted when dropped.
pub struct AddedDevice {
    number: u32,
    mark: u64,
    volume: String,
    opened: Opened,
    started: bool,
}

impl AddedDevice {
    /// Makes the disk appear. Call it after the driver has shown the volume and not on its thread: the kernel
    /// waits for the queue and then reads the disk in search of partitions.
    pub fn start(mut self) -> Result<UblkDevice, EmulatorError> {
        let mut control = open_control()?;
        control
            .start(self.number)
            .map_err(|error| refused(&error))?;
        // No scheduler, as a loop device has none: the model is what delays requests.
        self.set_queue("scheduler", "none")?;
        self.set_queue("nr_requests", &REQUESTS.to_string())?;
        self.started = true;
        Ok(UblkDevice {
            number: self.number,
            mark: self.mark,
        })
    }

    fn set_queue(&self, name: &str, value: &str) -> Result<(), EmulatorError> {
        let path = format!("/sys/block/ublkb{}/queue/{name}", self.number);
        fs::write(&path, value)
            .map_err(|error| EmulatorError::system(&path, value, &error, WAY_OUT))
    }
}

impl Drop for AddedDevice {
    fn drop(&mut self) {
        if !self.started {
            // Closed first: deleting waits until nobody has the device open.
            drop(self.opened.take(&self.volume));
            // A device that stays is found by its mark.
            let _ = delete(self.number);
        }
    }
}

/// A device with a disk.
pub struct UblkDevice {
    number: u32,
    mark: u64,
}

impl UblkDevice {
    /// `/dev/ublkbN`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.number))
    }

    /// Claims the disk, unless somebody uses it or it is not ours.
    pub fn claim(&self) -> Result<File, InUse> {
        let mut control = Control::open().map_err(InUse::System)?;
        match control.info(self.number) {
            Ok(info) if info.mark == self.mark => claim(&self.path()),
            Ok(_) => Err(InUse::NotOurs),
            Err(error) if error.cause.raw_os_error() == Some(libc::ENODEV) => Err(InUse::NotOurs),
            Err(error) => Err(InUse::System(error.cause)),
        }
    }

    /// Takes the device away, unless it is in use or not ours. Not on the driver's thread, which must give the
    /// queue back meanwhile.
    pub fn detach(&self) -> Result<(), InUse> {
        let claim = self.claim()?;
        let mut control = Control::open().map_err(InUse::System)?;
        control
            .stop(self.number)
            .map_err(|error| InUse::System(error.cause))?;
        drop(claim);
        match control.delete(self.number, DELETE_LIMIT) {
            // Somebody opened it just before the disk went. It cannot do I/O, and goes when it is closed.
            Err(error) if error.cause.raw_os_error() == Some(libc::ETIME) => Ok(()),
            other => other.map_err(|error| InUse::System(error.cause)),
        }
    }
}

/// Deletes a device; one that is gone already is no error.
fn delete(number: u32) -> Result<(), EmulatorError> {
    match open_control()?.delete(number, DELETE_LIMIT) {
        Err(error) if error.cause.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        Err(error) if error.cause.raw_os_error() == Some(libc::ETIME) => Err(EmulatorError::new(
            format!("/dev/ublkb{number}"),
            "open",
            "a process or a mount still holds the dead device; it goes when they let go",
            "unmount it, or close what `fuser -v` or `lsof` shows",
        )),
        other => other.map_err(|error| refused(&error)),
    }
}
