//! Loop devices over the files of our mount, and the proof that one is ours.
//!
//! Devices come from LOOP_CTL_GET_FREE only, never by a guessed name: a guess once overwrote another
//! program's disk. Before every step that changes a device the kernel is asked again which file it shows: by device and
//! inode, for the path of another mount namespace's file may read the same.
//!
//! The kernel keeps a device's queue settings from one user of its number to the next. So they are set to the kernel's
//! own at attach and again at detach.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::claim::{InUse, claim};
use crate::error::EmulatorError;
use crate::transport::MAX_IO_BYTES;

// From <linux/loop.h>; the libc crate has none of these.
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Settings that outlive a device's user, as the kernel has them for a new one. Where it has no such setting, or does not
/// let us, there is nothing that a former user could have left.
/// **Source:** Linux, Documentation/ABI/stable/sysfs-block, Documentation/ABI/testing/sysfs-class-bdi.
const KERNEL_SETTINGS: [(&str, &str); 13] = [
    ("queue/scheduler", "none"),
    // After the scheduler, which has a bound of its own.
    ("queue/nr_requests", "128"),
    // VM_READAHEAD_PAGES.
    ("queue/read_ahead_kb", "128"),
    ("queue/nomerges", "0"),
    ("queue/rq_affinity", "1"),
    ("queue/add_random", "0"),
    ("queue/iostats", "1"),
    ("queue/stable_writes", "0"),
    // The most that it takes: as much as the device can.
    ("queue/discard_max_bytes", "2199023251456"),
    // The kernel's choice.
    ("queue/wbt_lat_usec", "-1"),
    ("bdi/min_ratio", "0"),
    ("bdi/max_ratio", "100"),
    ("bdi/strict_limit", "0"),
];

/// Another program may take the free device first; each try asks for a new one.
const TRIES: u32 = 64;
/// udev may still have a look at a device when it goes; it never takes long.
const GONE_TIMEOUT: Duration = Duration::from_secs(5);

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}
const _: () = assert!(size_of::<LoopInfo64>() == 232);

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A loop device that shows one of our files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    number: u32,
    file: PathBuf,
    identity: Identity,
}

/// A file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl LoopDevice {
    /// Makes a device that shows `file`, with direct I/O, so that the page cache sits above it as above any
    /// disk. `block_bytes` is its logical block.
    pub fn attach(file: &Path, block_bytes: u32) -> Result<LoopDevice, EmulatorError> {
        let failed = |doing: &str, error: &io::Error| {
            EmulatorError::system(
                file.display().to_string(),
                doing,
                error,
                "load the kernel module with `modprobe loop` and look at `losetup -a`",
            )
        };
        let backing = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(file)
            .map_err(|error| failed("open", &error))?;
        let found = backing.metadata().map_err(|error| failed("stat", &error))?;
        let identity = Identity {
            device: found.dev(),
            inode: found.ino(),
        };
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .map_err(|error| failed("/dev/loop-control", &error))?;
        for _ in 0..TRIES {
            // SAFETY: this request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            let Ok(number) = u32::try_from(number) else {
                return Err(failed("LOOP_CTL_GET_FREE", &io::Error::last_os_error()));
            };
            let device = LoopDevice {
                number,
                file: file.to_owned(),
                identity,
            };
            match device.configure(&backing, block_bytes) {
                Ok(()) => {
                    if let Err(error) = device.tune() {
                        let _ = device.detach();
                        return Err(failed("queue settings", &error));
                    }
                    return Ok(device);
                }
                // Somebody else was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(failed("LOOP_CONFIGURE", &error)),
            }
        }
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        Err(failed("LOOP_CONFIGURE", &busy))
    }

    fn configure(&self, backing: &File, block_bytes: u32) -> io::Result<()> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path())?;
        // SAFETY: plain old data; zero is a value of every field.
        let mut config: LoopConfig = unsafe { std::mem::zeroed() };
        config.fd = backing.as_raw_fd() as u32;
        config.block_size = block_bytes;
        config.info.flags = LO_FLAGS_DIRECT_IO;
        let name = self.file.as_os_str().as_encoded_bytes();
        // What losetup shows on old kernels; cut to the field, whose last byte stays zero.
        let len = name.len().min(63);
        config.info.file_name[..len].copy_from_slice(&name[..len]);
        // SAFETY: the request takes a loop_config, which this is.
        match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn tune(&self) -> io::Result<()> {
        let queue = self.sysfs().join("queue");
        // Optional: nothing here turns. Before the rest: the kernel's choice of a latency for write-back depends on it.
        let _ = fs::write(queue.join("rotational"), "0");
        self.reset();
        // FLUSH reaches us only with a write-back cache.
        fs::write(queue.join("write_cache"), "write back")?;
        // One I/O is at most one request.
        let most = (MAX_IO_BYTES / 1024).to_string();
        fs::write(queue.join("max_sectors_kb"), most)
    }

    /// Takes back what users of the number have set.
    fn reset(&self) {
        let sysfs = self.sysfs();
        for (name, value) in KERNEL_SETTINGS {
            let _ = fs::write(sysfs.join(name), value);
        }
        let longest = sysfs.join("queue/max_sectors_kb");
        // Zero is the kernel's own choice. Linux before 6.9 does not know it and chooses the most for a loop device.
        if fs::write(&longest, "0").is_err() {
            let most = fs::read(sysfs.join("queue/max_hw_sectors_kb"));
            let _ = most.and_then(|most| fs::write(&longest, most));
        }
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    fn sysfs(&self) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}", self.number))
    }

    /// Whether the device shows our file now.
    pub fn is_ours(&self) -> bool {
        match self.shown() {
            Ok(shown) => shown == Some(self.identity),
            // The connection behind the mount is dead, so the kernel cannot tell the inode; nor that of our file. Then
            // the path must do: a dead device has no data to lose.
            Err(_) => fs::metadata(&self.file).is_err() && self.shows_our_path(),
        }
    }

    /// The file that the device shows now; `None`: none.
    fn shown(&self) -> io::Result<Option<Identity>> {
        let device = OpenOptions::new().read(true).open(self.path())?;
        // SAFETY: plain old data; zero is a value of every field.
        let mut info: LoopInfo64 = unsafe { std::mem::zeroed() };
        // SAFETY: the request fills a loop_info64, which this is.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
        if done == 0 {
            return Ok(Some(Identity {
                device: info.device,
                inode: info.inode,
            }));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        }
    }

    fn shows_our_path(&self) -> bool {
        fs::read(self.sysfs().join("loop/backing_file"))
            .is_ok_and(|shown| shown.trim_ascii_end() == self.file.as_os_str().as_encoded_bytes())
    }

    /// Whether somebody uses the device. The answer holds only while the returned file is open: it claims the
    /// device, so that nobody can mount it meanwhile.
    pub fn claim(&self) -> Result<File, InUse> {
        if !self.is_ours() {
            return Err(InUse::NotOurs);
        }
        claim(&self.path())
    }

    /// Takes the device away, unless it is in use or not ours.
    pub fn detach(&self) -> Result<(), InUse> {
        let claim = self.claim()?;
        // Read once more, now that nobody else can change it.
        if !self.is_ours() {
            return Err(InUse::NotOurs);
        }
        // SAFETY: this request takes no argument.
        if unsafe { libc::ioctl(claim.as_raw_fd(), LOOP_CLR_FD) } != 0 {
            return Err(InUse::System(io::Error::last_os_error()));
        }
        // Nobody else can take it before the last close.
        self.reset();
        drop(claim);
        let end = Instant::now() + GONE_TIMEOUT;
        while self.shows_our_path() {
            if Instant::now() > end {
                return Err(InUse::System(io::ErrorKind::TimedOut.into()));
            }
            // The last close detaches; there is no event to wait for.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}
