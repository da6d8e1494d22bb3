//! `disklab-engine format`: makes a file system on a disk that is proved to be empty and in nobody's use.
//!
//! The disk is opened once and claimed (`O_EXCL`); everything is asked of that one open device, and it stays claimed
//! while mkfs writes. mkfs claims what it writes too, so it works on a loop device over ours. Between check and use
//! there is no moment in which the disk could become another one, or somebody's.

mod disk;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use disklab_emulator::LoopDevice;
use serde::{Deserialize, Serialize};

use disk::Claimed;

/// Bytes of a job: names and numbers.
const MOST_JOB_BYTES: u64 = 1 << 16;

/// What is to be done; the whole job is refused when a key is unknown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name below /dev/disk/by-id.
    by_id: Option<String>,
    /// Or the number under which the cloud attached it.
    lun: Option<u32>,
    size_bytes: u64,
    kind: Kind,
    /// None: only looks.
    make: Option<Make>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Make {
    filesystem: Filesystem,
    /// Begins with [`disk::OURS`].
    uuid: String,
    /// An empty folder of root's, where the file system is mounted.
    mount_point: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Filesystem {
    Xfs,
    Ext4,
}

/// How the kernel sees a disk, by the name that it gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Scsi,
    Nvme,
    Virtio,
    Loop,
}

/// Why a disk is left alone.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    value: String,
    rule: String,
    way_out: String,
}

impl Refused {
    fn new(value: impl ToString, rule: impl ToString, way_out: &str) -> Refused {
        Refused {
            value: value.to_string(),
            rule: rule.to_string(),
            way_out: way_out.to_owned(),
        }
    }

    fn system(value: impl ToString, doing: &str, error: &io::Error) -> Refused {
        Refused::new(
            value,
            format!("{doing}: {error}"),
            "look at the disk on the host: lsblk, dmesg",
        )
    }
}

/// Reads a job from standard input and answers one JSON line; exit code 2 where the disk is refused.
pub fn format() -> ExitCode {
    let (answer, code) = match job().and_then(|job| done(&job)) {
        Ok(device) => (
            serde_json::json!({"ok": true, "device": device}),
            ExitCode::SUCCESS,
        ),
        Err(refused) => (
            serde_json::json!({"ok": false, "refused": refused}),
            ExitCode::from(crate::REFUSED),
        ),
    };
    println!("{answer}");
    code
}

fn job() -> Result<Job, Refused> {
    let way_out = "use the disklab that belongs to this engine";
    let mut text = String::new();
    io::stdin()
        .take(MOST_JOB_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| Refused::new("standard input", error, way_out))?;
    serde_json::from_str(&text).map_err(|error| Refused::new("standard input", error, way_out))
}

/// Does a job; returns the device's name for messages.
fn done(job: &Job) -> Result<String, Refused> {
    let path = disk::path_of(job.by_id.as_deref(), job.lun)?;
    let claimed = Claimed::open(&path)?;
    claimed.check(job.size_bytes, job.kind)?;
    if let Some(make) = &job.make {
        if !disk::is_our_uuid(&make.uuid) {
            let rule = "a file system that disklab makes has a UUID of its own";
            return Err(Refused::new(
                &make.uuid,
                rule,
                "use the disklab that belongs to this engine",
            ));
        }
        make_filesystem(&claimed, make)?;
        mount(claimed.let_go()?, make)?;
    }
    Ok(path.display().to_string())
}

/// Runs mkfs over a loop device whose backing is the claimed disk.
fn make_filesystem(claimed: &Claimed, make: &Make) -> Result<(), Refused> {
    let through_us = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), claimed.fd()));
    let over = LoopDevice::attach(&through_us, claimed.block_bytes()?).map_err(|error| {
        Refused::new(
            "loop device",
            error,
            "load the kernel module: modprobe loop",
        )
    })?;
    let made = run_mkfs(&over.path(), make).and_then(|()| {
        File::open(over.path())
            .and_then(|device| device.sync_all())
            .map_err(|error| Refused::system("mkfs", "its writes did not reach the disk", &error))
    });
    let gone = over.detach().map_err(|why| {
        Refused::new(
            "loop device",
            format!("{why:?}"),
            "losetup -a shows it; losetup -d removes it",
        )
    });
    made.and(gone)
}

fn run_mkfs(device: &std::path::Path, make: &Make) -> Result<(), Refused> {
    let mut command = match make.filesystem {
        Filesystem::Xfs => {
            let mut command = Command::new("mkfs.xfs");
            command
                .args(["-q", "-f", "-m"])
                .arg(format!("uuid={}", make.uuid));
            command
        }
        Filesystem::Ext4 => {
            let mut command = Command::new("mkfs.ext4");
            command.args(["-q", "-F", "-U"]).arg(&make.uuid);
            command
        }
    };
    let ran = command
        .arg(device)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            Refused::new("mkfs", error, "install xfsprogs or e2fsprogs on the host")
        })?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(Refused::new(
        "mkfs",
        said,
        "look at the disk on the host: dmesg",
    ))
}

/// Mounts the disk through the open device, so that no other can take its name's place.
///
/// A mount claims the disk itself, so ours had to end: who took it in that moment makes the mount fail, and what is
/// mounted must carry the UUID that was just written.
fn mount(device: File, make: &Make) -> Result<(), Refused> {
    let source = format!("/proc/{}/fd/{}", std::process::id(), device.as_raw_fd());
    let kind = match make.filesystem {
        Filesystem::Xfs => "xfs",
        Filesystem::Ext4 => "ext4",
    };
    let text = |bytes: &[u8]| {
        std::ffi::CString::new(bytes).expect("paths of a JSON string without NUL are checked")
    };
    let target = make.mount_point.as_os_str().as_encoded_bytes();
    if target.contains(&0) {
        return Err(Refused::new(
            "mount_point",
            "has a NUL",
            "use the disklab that belongs to this engine",
        ));
    }
    let (source, target, kind) = (text(source.as_bytes()), text(target), text(kind.as_bytes()));
    // SAFETY: all are strings that live until the call returns; xfs and ext4 take no data.
    let mounted = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOATIME,
            std::ptr::null(),
        )
    };
    if mounted != 0 {
        return Err(Refused::system(
            "mount",
            "the new file system",
            &io::Error::last_os_error(),
        ));
    }
    if disk::uuid_on(&device).as_deref() == Some(make.uuid.as_str()) {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    let rule = "carries another UUID than was written: somebody else writes to it";
    Err(Refused::new(
        "the disk",
        rule,
        "find out who, before anything else",
    ))
}
