//! One disk, opened once and claimed, and what can be said of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use disklab_emulator::user_of;

use super::{Kind, Refused};

/// What UUIDs of our file systems begin with. Version 8 is for what others do not make (RFC 9562, 5.8).
pub const OURS: &str = "d15c1ab0-";
const UUID_VERSION: u8 = b'8';

/// Every format that we know of has something here: labels lie in the first 1 MiB (ZFS's two in 512 KiB, LUKS2's second
/// header up to 4 MiB) and copies in the last (GPT, md 0.90 and 1.0, ZFS, DRBD).
const ENDS_BYTES: u64 = 4 << 20;
/// Blocks in between, evenly spaced: data without a label, such as a database's raw device.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 64 << 10;

/// udev's rules read a disk that changed; a second is ten times what that takes.
const LOOKS_ARE_OVER: Duration = Duration::from_secs(1);

// From <linux/fs.h>.
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKROGET: libc::c_ulong = 0x125e;

/// Magic numbers, for the message alone: whatever is not zero is refused.
const MAGICS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "xfs"),
    (0x438, &[0x53, 0xef], "ext2, ext3 or ext4"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (510, &[0x55, 0xaa], "a partition table (MBR)"),
];

/// The path by which a disk is to be opened: a link below /dev/disk, or the node that its LUN has now.
pub fn path_of(by_id: Option<&str>, lun: Option<u32>) -> Result<PathBuf, Refused> {
    match (by_id, lun) {
        (Some(name), None) if !name.contains('/') && !name.starts_with('.') => {
            Ok(Path::new("/dev/disk/by-id").join(name))
        }
        (None, Some(lun)) => lun_path(lun),
        _ => {
            let rule = "a disk is named by either by_id or lun";
            Err(Refused::new(
                "the job",
                rule,
                "use the disklab that belongs to this engine",
            ))
        }
    }
}

/// Azure's links where the image has them, else what the kernel says: the second SCSI controller has the data disks, and
/// over NVMe namespace N is LUN N - 2.
fn lun_path(lun: u32) -> Result<PathBuf, Refused> {
    let links = [
        format!("/dev/disk/azure/scsi1/lun{lun}"),
        format!("/dev/disk/azure/data/by-lun/{lun}"),
    ];
    for link in links {
        if fs::symlink_metadata(&link).is_ok() {
            return Ok(link.into());
        }
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if fs::canonicalize(entry.path()).is_ok_and(|real| has_lun(&real, &name, lun)) {
            found.push(Path::new("/dev").join(name));
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Refused::new(
            format!("LUN {lun}"),
            "the host has no data disk with this number",
            "look at the VM's data disks, or name the disk by_id",
        )),
        _ => Err(Refused::new(
            format!("LUN {lun}"),
            format!("{} disks have this number", found.len()),
            "name the disk by_id",
        )),
    }
}

fn has_lun(real: &Path, name: &str, lun: u32) -> bool {
    let model = fs::read_to_string(real.join("device/model")).unwrap_or_default();
    if let Some((_, namespace)) = name
        .strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'))
    {
        return model.trim().starts_with("MSFT NVMe Accelerator")
            && namespace.parse().is_ok_and(|number: u32| number == lun + 2);
    }
    // Source: the udev rules of the Azure Linux agent (66-azure-storage.rules): scsi1 is the controller f8b3781b-...
    let text = real.to_string_lossy();
    let address = fs::canonicalize(real.join("device"));
    text.contains("/f8b3781b-")
        && address.is_ok_and(|address| {
            address.file_name().is_some_and(|last| {
                last.to_string_lossy()
                    .rsplit(':')
                    .next()
                    .is_some_and(|number| number == lun.to_string())
            })
        })
}

/// Whether a UUID is one that disklab gives its file systems.
pub fn is_our_uuid(uuid: &str) -> bool {
    let bytes = uuid.as_bytes();
    bytes.len() == 36
        && uuid.starts_with(OURS)
        && bytes[14] == UUID_VERSION
        && bytes.iter().enumerate().all(|(at, byte)| {
            if matches!(at, 8 | 13 | 18 | 23) {
                *byte == b'-'
            } else {
                byte.is_ascii_hexdigit()
            }
        })
}

/// The UUID of the xfs or ext file system on a disk.
pub fn uuid_on(device: &File) -> Option<String> {
    let mut head = [0; 0x480];
    device.read_exact_at(&mut head, 0).ok()?;
    let at = if head.starts_with(b"XFSB") {
        32
    } else if head[0x438..0x43a] == [0x53, 0xef] {
        0x468
    } else {
        return None;
    };
    let hex: String = head[at..at + 16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Some(parts.join("-"))
}

/// A disk that nobody else can mount, format or put into an array while this lives.
pub struct Claimed {
    file: File,
    path: PathBuf,
    sysfs: PathBuf,
    number: u64,
}

impl Claimed {
    /// Opens what a path leads to now. The path is not looked at again.
    pub fn open(path: &Path) -> Result<Claimed, Refused> {
        let shown = path.display().to_string();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_EXCL | libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Refused::new(
                    &shown,
                    "the disk is in use: mounted (here or in another namespace), swapped to, or part of an array",
                    "name an empty disk; lsblk shows what uses this one",
                ),
                Some(libc::ENOENT) => Refused::new(
                    &shown,
                    "the host has no such disk",
                    "write what `ls -l /dev/disk/by-id` shows there",
                ),
                _ => Refused::system(&shown, "cannot be opened", &error),
            })?;
        let found = file
            .metadata()
            .map_err(|error| Refused::system(&shown, "cannot be looked at", &error))?;
        if !found.file_type().is_block_device() {
            let rule = "is no block device";
            return Err(Refused::new(
                &shown,
                rule,
                "write what `ls -l /dev/disk/by-id` shows there",
            ));
        }
        let number = found.rdev();
        let link = format!(
            "/sys/dev/block/{}:{}",
            libc::major(number),
            libc::minor(number)
        );
        let sysfs =
            fs::canonicalize(&link).map_err(|error| Refused::system(&shown, &link, &error))?;
        Ok(Claimed {
            file,
            path: path.to_owned(),
            sysfs,
            number,
        })
    }

    /// Its number as an open file of this process.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Its logical block.
    pub fn block_bytes(&self) -> Result<u32, Refused> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request fills an int, which this is.
        if unsafe { libc::ioctl(self.fd(), BLKSSZGET, &raw mut bytes) } != 0 {
            return Err(self.failed("its block size", &io::Error::last_os_error()));
        }
        Ok(bytes.cast_unsigned())
    }

    /// Refuses what is not exactly the disk that was named, empty, and in nobody's use.
    pub fn check(&self, size_bytes: u64, kind: Kind) -> Result<(), Refused> {
        let name = self
            .sysfs
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if self.sysfs.join("partition").exists() {
            let rule = "is a partition";
            return Err(self.refuse(rule, "name a whole disk: its partitions hang together"));
        }
        if kind_of(&name) != Some(kind) {
            let rule = format!("is called {name} by the kernel, which is no disk of kind {kind:?}");
            return Err(self.refuse(rule, "mend `kind`, if this is the disk that you mean"));
        }
        let mut read_only: libc::c_int = 0;
        // SAFETY: the request fills an int, which this is.
        unsafe { libc::ioctl(self.fd(), BLKROGET, &raw mut read_only) };
        if read_only != 0 {
            return Err(self.refuse("is read only", "name another disk"));
        }
        let found = self.size_bytes()?;
        if found != size_bytes {
            let rule = format!("has {found} bytes, and {size_bytes} were expected");
            return Err(self.refuse(rule, "mend `size`, if this is the disk that you mean"));
        }
        self.check_users()?;
        self.check_empty(found)
    }

    fn check_users(&self) -> Result<(), Refused> {
        let held =
            fs::read_dir(self.sysfs.join("holders")).is_ok_and(|mut names| names.next().is_some());
        if held {
            let rule = "is held by another device (LVM, md, multipath)";
            return Err(self.refuse(rule, "name an empty disk; lsblk shows what holds this one"));
        }
        let parts = fs::read_dir(&self.sysfs)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.path().join("partition").exists());
        if parts {
            return Err(self.refuse(
                "has partitions",
                "name an empty disk; lsblk shows its partitions",
            ));
        }
        if let Some(over) = loop_over(self.number) {
            let rule = format!("is shown by {over}, which has no claim on it");
            return Err(self.refuse(rule, "take that away (losetup -d), or name another disk"));
        }
        // Who opened it without a claim, such as dd, would not have been in our way. udev looks at disks too, shortly.
        let end = Instant::now() + LOOKS_ARE_OVER;
        while let Some((pid, name)) = user_of(self.number) {
            if Instant::now() > end {
                let rule = format!("is open in process {pid} ({name})");
                return Err(self.refuse(rule, "end that process, or name another disk"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A stronger rule than a list of signatures: what is not zero is somebody's, unless it is a file system of ours.
    fn check_empty(&self, size_bytes: u64) -> Result<(), Refused> {
        if uuid_on(&self.file).is_some_and(|uuid| is_our_uuid(&uuid)) {
            return Ok(());
        }
        let ends = ENDS_BYTES.min(size_bytes);
        let mut places = vec![(0, ends), (size_bytes - ends, ends)];
        let block = SAMPLE_BYTES.min(size_bytes);
        places.extend((1..SAMPLES).map(|at| {
            // Aligned, so that a direct read would be possible too.
            let start = (size_bytes - block) / SAMPLES * at / SAMPLE_BYTES * SAMPLE_BYTES;
            (start, block)
        }));
        for (start, length) in places {
            self.check_zero(start, length)?;
        }
        Ok(())
    }

    fn check_zero(&self, start: u64, length: u64) -> Result<(), Refused> {
        let mut data = vec![0; usize::try_from(length).expect("4 MiB at most")];
        self.file
            .read_exact_at(&mut data, start)
            .map_err(|error| self.failed("cannot be read", &error))?;
        let Some(at) = data.iter().position(|byte| *byte != 0) else {
            return Ok(());
        };
        let rule = match MAGICS
            .iter()
            .find(|(offset, magic, _)| start == 0 && begins(&data, *offset, magic))
        {
            Some((_, _, what)) => format!("is not empty: it holds {what}"),
            None => format!("is not empty: there are data at byte {}", start + at as u64),
        };
        let way_out = "name an empty disk; if nobody needs this one's data, empty it: wipefs -a, then blkdiscard -z";
        Err(self.refuse(rule, way_out))
    }

    fn size_bytes(&self) -> Result<u64, Refused> {
        // SAFETY: the file is open; this changes its offset alone, which nothing uses.
        let end = unsafe { libc::lseek64(self.fd(), 0, libc::SEEK_END) };
        u64::try_from(end).map_err(|_| self.failed("its size", &io::Error::last_os_error()))
    }

    /// Gives the claim up and keeps the device open.
    pub fn let_go(self) -> Result<File, Refused> {
        let through_us = format!("/proc/{}/fd/{}", std::process::id(), self.fd());
        OpenOptions::new()
            .read(true)
            .open(&through_us)
            .map_err(|error| self.failed("cannot be opened again", &error))
    }

    fn refuse(&self, rule: impl ToString, way_out: &str) -> Refused {
        Refused::new(self.path.display(), rule, way_out)
    }

    fn failed(&self, doing: &str, error: &io::Error) -> Refused {
        Refused::system(self.path.display(), doing, error)
    }
}

/// A loop device whose backing is this block device: the kernel holds it without a claim.
fn loop_over(number: u64) -> Option<String> {
    fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            let found = fs::metadata(backing.trim_end()).ok()?;
            let is_it = found.file_type().is_block_device() && found.rdev() == number;
            is_it.then(|| entry.file_name().to_string_lossy().into_owned())
        })
}

fn begins(data: &[u8], offset: u64, magic: &[u8]) -> bool {
    let at = usize::try_from(offset).expect("offsets are small");
    data.get(at..at + magic.len()) == Some(magic)
}

fn kind_of(name: &str) -> Option<Kind> {
    let of = [
        ("nvme", Kind::Nvme),
        ("xvd", Kind::Virtio),
        ("vd", Kind::Virtio),
        ("sd", Kind::Scsi),
        ("loop", Kind::Loop),
    ];
    of.into_iter()
        .find(|(start, _)| name.starts_with(start))
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_uuids_are_version_8_with_our_beginning() {
        assert!(is_our_uuid("d15c1ab0-0000-8000-8000-0123456789ab"));
        assert!(!is_our_uuid("d15c1ab0-0000-4000-8000-0123456789ab"));
        assert!(!is_our_uuid("e15c1ab0-0000-8000-8000-0123456789ab"));
        assert!(!is_our_uuid("d15c1ab0-0000-8000-8000-0123456789a"));
        assert!(!is_our_uuid("d15c1ab0-0000-8000-8000-0123456789a/"));
    }

    #[test]
    fn names_that_leave_their_folder_are_refused() {
        for name in ["../sda", "a/b", ".", ".."] {
            assert!(path_of(Some(name), None).is_err(), "{name}");
        }
        assert!(path_of(None, None).is_err());
        assert!(path_of(Some("a"), Some(1)).is_err());
    }

    #[test]
    fn kinds_are_told_by_the_kernels_names() {
        assert_eq!(kind_of("sdc"), Some(Kind::Scsi));
        assert_eq!(kind_of("nvme0n2"), Some(Kind::Nvme));
        assert_eq!(kind_of("loop7"), Some(Kind::Loop));
        assert_eq!(kind_of("md0"), None);
        assert_eq!(kind_of("dm-0"), None);
    }
}
