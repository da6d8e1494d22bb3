//! The run directory of one emulated host: docs/contracts/2-places.md.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::EmulatorError;
use crate::own_dir::{OwnDir, failed};

/// `<run>/hosts/<host>/`, locked as long as this value lives.
pub struct HostDir {
    run: OwnDir,
    host: OwnDir,
    volumes: OwnDir,
    data: OwnDir,
    _lock: File,
    /// The mount namespace, opened before /dev/fuse. A killed process gives up its namespaces first, and then
    /// closes its files, the last opened first. Without this, the last one in a namespace would unmount the
    /// file systems on its own disks while it still holds the device by which nobody answers any more: its
    /// end, and that of the namespace, would wait for ever. With it, /dev/fuse closes before the namespace
    /// goes, and what waits for the disk gets errors.
    _namespace: File,
}

/// What `volumes/<volume>.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// `/dev/loopN` or `/dev/ublkbN`.
    pub device: String,
    /// The file inside `mnt/` that the device shows; absent with ublk.
    pub file: Option<String>,
    /// Where the bytes are; absent for memory.
    pub backing_file: Option<String>,
    /// What made it, such as `disklab-engine 0.1.0`.
    pub made_by: String,
}

/// Names of hosts and volumes become file names.
pub fn check_name(place: &str, name: &str) -> Result<(), EmulatorError> {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if first && rest && name.len() <= 64 {
        return Ok(());
    }
    Err(EmulatorError::new(
        place,
        format!("'{name}'"),
        "a name is 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit",
        "choose another name",
    ))
}

impl HostDir {
    /// Makes the directories and takes the host's lock. Refuses when another process has it.
    pub fn claim(run: &Path, data: &Path, name: &str) -> Result<HostDir, EmulatorError> {
        check_name("--host", name)?;
        let namespace = File::open("/proc/self/ns/mnt")
            .map_err(|error| failed(Path::new("/proc/self/ns/mnt"), "open", &error))?;
        let run = OwnDir::make(run)?;
        // struct sockaddr_un.
        let socket = run.path().join("hosts").join(name).join("control.sock");
        if socket.as_os_str().len() > 107 {
            return Err(EmulatorError::new(
                "--run-dir",
                run.path().display().to_string(),
                "the path of the control socket may have 107 bytes at most",
                "choose a run directory with a shorter path",
            ));
        }
        let host = run.child("hosts")?.child(name)?;
        let lock = lock(&host, name)?;
        let volumes = host.child("volumes")?;
        host.child("mnt")?;
        let data = OwnDir::make_in(data, name)?;
        let directory = HostDir {
            run,
            host,
            volumes,
            data,
            _lock: lock,
            _namespace: namespace,
        };
        Ok(directory)
    }

    /// Where the FUSE mount goes.
    pub fn mount_point(&self) -> PathBuf {
        self.host.path().join("mnt")
    }

    /// The file that a volume's device shows.
    pub fn volume_file(&self, volume: &str) -> PathBuf {
        self.mount_point().join(volume)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.host.path()
    }

    /// The control socket, for the kernel.
    pub fn socket(&self) -> PathBuf {
        self.host.at("control.sock")
    }

    /// What was found out about the machine, shared by all hosts of this run directory.
    pub fn envelope(&self) -> PathBuf {
        self.run.at("envelope.json")
    }

    /// Writes what was found out about the machine.
    pub fn write_envelope(&self, record: &impl Serialize) -> Result<(), EmulatorError> {
        write_json(&self.run, "envelope.json", record)
    }

    /// The backing file of a volume.
    pub fn backing_file(&self, volume: &str) -> PathBuf {
        self.data.path().join(format!("{volume}.img"))
    }

    /// Writes `pid`: this process, its start time, its PID namespace and the boot.
    pub fn write_pid(&self) -> Result<(), EmulatorError> {
        let start =
            start_time().map_err(|error| failed(self.host.path(), "/proc/self/stat", &error))?;
        // A number holds within one PID namespace of one boot only.
        let namespace = fs::metadata("/proc/self/ns/pid").map(|found| found.ino());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let place = namespace
            .and_then(|namespace| boot.map(|boot| format!("{namespace} {}", boot.trim())))
            .map_err(|error| failed(self.host.path(), "/proc/self/ns/pid", &error))?;
        let text = format!("{} {start} {place}\n", std::process::id());
        self.host.replace("pid", &text)
    }

    /// Writes `profile.json`.
    pub fn write_profile(&self, profile: &impl Serialize) -> Result<(), EmulatorError> {
        write_json(&self.host, "profile.json", profile)
    }

    /// Writes `volumes/<volume>.json`.
    pub fn write_volume(&self, volume: &str, record: &VolumeRecord) -> Result<(), EmulatorError> {
        write_json(&self.volumes, &format!("{volume}.json"), record)
    }

    /// Removes `volumes/<volume>.json`.
    pub fn forget_volume(&self, volume: &str) {
        let _ = fs::remove_file(self.volumes.at(&format!("{volume}.json")));
    }

    /// Removes what this process put there, after everything has gone down. The log stays with its owner;
    /// data stay; a directory that is not empty stays.
    pub fn remove(&self) {
        for file in ["pid", "control.sock", "profile.json", "lock"] {
            let _ = fs::remove_file(self.host.at(file));
        }
        for directory in ["volumes", "mnt"] {
            let _ = fs::remove_dir(self.host.at(directory));
        }
        let _ = fs::remove_dir(self.data.path());
        let _ = fs::remove_dir(self.host.path());
    }
}

/// The directory of a host whose process is gone, locked against a new one. Refuses while it lives.
pub fn claim_dead(run: &Path, name: &str) -> Result<(PathBuf, File), EmulatorError> {
    let host = existing(run, name)?;
    let lock = lock(&OwnDir::make(&host)?, name)?;
    Ok((host, lock))
}

/// The directory of a host, alive or dead.
pub fn existing(run: &Path, name: &str) -> Result<PathBuf, EmulatorError> {
    check_name("--host", name)?;
    let host = run.join("hosts").join(name);
    fs::canonicalize(&host).map_err(|error| {
        let place = host.display().to_string();
        EmulatorError::system(place, "host", &error, "name a host of this run directory")
    })
}

/// The names of the volumes with a record in a host's directory.
pub fn recorded_volumes(host: &Path) -> Vec<String> {
    let entries = fs::read_dir(host.join("volumes")).into_iter().flatten();
    let name = |entry: io::Result<fs::DirEntry>| {
        let file = entry.ok()?.file_name().into_string().ok()?;
        file.strip_suffix(".json").map(str::to_owned)
    };
    entries.filter_map(name).collect()
}

fn lock(host: &OwnDir, name: &str) -> Result<File, EmulatorError> {
    let path = host.at("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(|error| failed(&host.path().join("lock"), "open", &error))?;
    // SAFETY: a valid descriptor.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    // A host that goes down removes its lock file: a lock on the removed one is worth nothing.
    let inode = |found: fs::Metadata| found.ino();
    let current = lock.metadata().map(inode).ok() == fs::metadata(&path).map(inode).ok();
    if locked && current {
        return Ok(lock);
    }
    Err(EmulatorError::new(
        "--host",
        name,
        "a host of that name runs already",
        "attach to it, choose another name, or shut it down first",
    ))
}

/// Field 22 of /proc/self/stat. The name in field 2 may hold blanks, so counting starts after its
/// parenthesis.
fn start_time() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok())
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn write_json(directory: &OwnDir, name: &str, value: &impl Serialize) -> Result<(), EmulatorError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| {
        let path = directory.path().join(name);
        failed(&path, "serialise", &io::Error::other(error))
    })?;
    text.push('\n');
    directory.replace(name, &text)
}
