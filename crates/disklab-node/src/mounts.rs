//! What is mounted in any namespace of the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use serde::Serialize;

use crate::{block, processes};

/// The most mounts of one device that are told.
const MOST_TOLD: usize = 16;
/// The largest list of mounts of a namespace that is read: 10,000 mounts.
const MOST_BYTES: u64 = 4 << 20;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mount {
    pub place: String,
    pub file_system: String,
    /// A process of its mount namespace.
    pub pid: i32,
}

/// Mounts by the number of their device.
pub type Mounts = BTreeMap<String, Vec<Mount>>;

/// Looks into the mount namespace of every process that we may see.
pub fn all() -> Mounts {
    let mut seen = BTreeSet::new();
    let mut found = Mounts::new();
    for pid in processes::numbers() {
        // Without its namespace's name (another user's process) it is read anyway.
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt"));
        if let Ok(namespace) = namespace
            && !seen.insert(namespace)
        {
            continue;
        }
        use std::io::Read;
        let mut text = Vec::new();
        if let Ok(file) = fs::File::open(format!("/proc/{pid}/mountinfo")) {
            // What a process that ends leaves unread is read from another of its namespace.
            let _ = file.take(MOST_BYTES).read_to_end(&mut text);
        }
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((device, mount)) = parse(line, pid) {
                let mounts = found.entry(device).or_default();
                if mounts.len() < MOST_TOLD {
                    mounts.push(mount);
                }
            }
        }
    }
    found
}

/// Reads a line of mountinfo. btrfs mounts under a number of no device: there, its source tells.
fn parse(line: &str, pid: i32) -> Option<(String, Mount)> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let file_system = after.next()?.to_owned();
    let source = after.next()?;
    let mut device = (*before.get(2)?).to_owned();
    if device.starts_with("0:")
        && source.starts_with("/dev/")
        && let Ok(found) = fs::metadata(source)
        && found.file_type().is_block_device()
    {
        device = block::number(found.rdev());
    }
    let place = (*before.get(4)?).to_owned();
    Some((
        device,
        Mount {
            place,
            file_system,
            pid,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_names_device_and_place() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let (device, mount) = parse(line, 7).unwrap();
        assert_eq!(device, "98:0");
        assert_eq!(
            (mount.place.as_str(), mount.file_system.as_str()),
            ("/mnt2", "ext3")
        );
        assert!(parse("nonsense", 7).is_none());
    }
}
