//! Which ublk devices are a host's, and what may be removed.
//!
//! A ublk device outlives its server: after kill -9 the disk goes, `/dev/ublkcN` stays until it is deleted.
//! Numbers are reused, so a recorded number proves nothing. The proof is a mark inside the device: the driver
//! keeps a word for the server (`ublksrv_flags`) from add to delete, and ours is a hash of the host's
//! directory.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::error::EmulatorError;
use crate::host_dir;
use crate::ublk::protocol::STATE_LIVE;
use crate::ublk::{delete, open_control, refused};

/// Every `/dev/ublkcN` has an entry here.
const DEVICES: &str = "/sys/class/ublk-char";

/// A device that carries a host's mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnedDevice {
    /// `/dev/ublkbN`.
    pub device: String,
    /// Whether a process serves it.
    pub live: bool,
}

/// The word by which a host's devices are known: FNV-1a over the path of the host's directory, links resolved.
/// Sixty-four bits: another program's flags, small numbers so far, do not equal it by chance.
pub fn mark(host_directory: &Path) -> u64 {
    let path = host_directory.as_os_str().as_encoded_bytes();
    // Offset basis and prime of the 64-bit FNV-1a.
    b"disklab ublk "
        .iter()
        .chain(path)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

/// The devices of a host, in order of their numbers. None where the kernel has no ublk.
pub fn owned_devices(run: &Path, host: &str) -> Result<Vec<OwnedDevice>, EmulatorError> {
    let directory = host_dir::existing(run, host)?;
    let marked = marked(mark(&directory))?;
    Ok(marked.into_iter().map(owned).collect())
}

/// Removes the devices of a host whose process is gone, and returns them. Refused while it lives; a device that
/// is served all the same is left alone.
pub fn remove_dead(run: &Path, host: &str) -> Result<Vec<OwnedDevice>, EmulatorError> {
    let (directory, _lock) = host_dir::claim_dead(run, host)?;
    let mut removed = Vec::new();
    for (number, live) in marked(mark(&directory))? {
        if !live {
            delete(number)?;
            removed.push(owned((number, live)));
        }
    }
    Ok(removed)
}

fn owned((number, live): (u32, bool)) -> OwnedDevice {
    OwnedDevice {
        device: format!("/dev/ublkb{number}"),
        live,
    }
}

/// Numbers of the devices with a mark, and whether each is served.
fn marked(mark: u64) -> Result<Vec<(u32, bool)>, EmulatorError> {
    let entries = match fs::read_dir(DEVICES) {
        Ok(entries) => entries,
        // Without the module there are no devices.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(EmulatorError::system(
                DEVICES,
                "list",
                &error,
                "run as root",
            ));
        }
    };
    let mut control = open_control()?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name
            .to_string_lossy()
            .strip_prefix("ublkc")
            .map(str::parse::<u32>);
        let Some(Ok(number)) = number else {
            continue;
        };
        match control.info(number) {
            Ok(info) if info.mark == mark => {
                found.push((number, served(info.state, info.server_pid)))
            }
            Ok(_) => {}
            // It went between the listing and the question.
            Err(error) if error.cause.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(refused(&error)),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether a process serves a device: the driver says that it is live, and its server exists.
fn served(state: u16, server_pid: i32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    let exists = server_pid > 0 && unsafe { libc::kill(server_pid, 0) } == 0;
    state == STATE_LIVE && exists
}
