//! Which ublk devices are a host's, and what may be removed.
//!
//! A ublk device outlives its server: after kill -9 the disk goes, `/dev/ublkcN` stays until it is deleted.
//! Numbers are reused, so a recorded number proves nothing. The proof is a mark inside the device: the driver
//! keeps a word for the server (`ublksrv_flags`) from add to delete, and ours names host and volume.

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
    /// The volume that the mark names, among those with a record in the host's directory.
    pub volume: Option<String>,
    /// Whether a process serves it.
    pub live: bool,
}

/// The word by which a device is known: a hash of the path of the host's directory, links resolved, in the upper
/// half, and one of the volume's name in the lower. Another program's flags, small numbers so far, do not
/// equal it by chance.
pub fn mark(host_directory: &Path, volume: &str) -> u64 {
    host_part(host_directory) << 32 | u64::from(hash(volume.as_bytes()))
}

fn host_part(host_directory: &Path) -> u64 {
    u64::from(hash(host_directory.as_os_str().as_encoded_bytes()))
}

/// 32-bit FNV-1a. **Source:** offset basis, prime and test vectors: Fowler, Noll, Vo, draft-eastlake-fnv.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The devices of a host, in order of their numbers. None where the kernel has no ublk.
pub fn owned_devices(run: &Path, host: &str) -> Result<Vec<OwnedDevice>, EmulatorError> {
    let directory = host_dir::existing(run, host)?;
    let found = marked(host_part(&directory))?;
    Ok(found.iter().map(|found| found.owned(&directory)).collect())
}

/// Removes the devices of a host whose process is gone, and returns them. Refused while it lives; a device that
/// is served all the same is left alone.
pub fn remove_dead(run: &Path, host: &str) -> Result<Vec<OwnedDevice>, EmulatorError> {
    let (directory, _lock) = host_dir::claim_dead(run, host)?;
    let mut removed = Vec::new();
    for found in marked(host_part(&directory))? {
        if !found.live {
            delete(found.number)?;
            removed.push(found.owned(&directory));
        }
    }
    Ok(removed)
}

/// A device whose mark begins with a host's part.
struct Marked {
    number: u32,
    mark: u64,
    live: bool,
}

impl Marked {
    fn owned(&self, host_directory: &Path) -> OwnedDevice {
        let named = |volume: &String| mark(host_directory, volume) == self.mark;
        OwnedDevice {
            device: format!("/dev/ublkb{}", self.number),
            volume: host_dir::recorded_volumes(host_directory)
                .into_iter()
                .find(named),
            live: self.live,
        }
    }
}

/// The devices of a host, in order of their numbers.
fn marked(host: u64) -> Result<Vec<Marked>, EmulatorError> {
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
            Ok(info) if info.mark >> 32 == host => found.push(Marked {
                number,
                mark: info.mark,
                live: served(info.state, info.server_pid),
            }),
            Ok(_) => {}
            // It went between the listing and the question.
            Err(error) if error.cause.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(refused(&error)),
        }
    }
    found.sort_unstable_by_key(|marked| marked.number);
    Ok(found)
}

/// Whether a process serves a device: the driver says that it is live, and its server exists.
fn served(state: u16, server_pid: i32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    let exists = server_pid > 0 && unsafe { libc::kill(server_pid, 0) } == 0;
    state == STATE_LIVE && exists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_host_and_volume() {
        // Test vectors of the source.
        assert_eq!(hash(b""), 0x811c_9dc5);
        assert_eq!(hash(b"foobar"), 0xbf9c_f968);
        let host = Path::new("/run/disklab/hosts/db");
        assert_eq!(mark(host, "data") >> 32, host_part(host));
        assert_ne!(mark(host, "data"), mark(host, "log"));
        assert_ne!(
            mark(host, "data") >> 32,
            mark(Path::new("/run/other/hosts/db"), "data") >> 32
        );
    }
}
