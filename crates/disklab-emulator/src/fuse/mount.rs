//! The FUSE mount: made with mount(2) itself, negotiated before anything is served.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::EmulatorError;
use crate::fuse::protocol::{
    InHeader, InitIn, InitOut, MAJOR, MINOR, OLDEST_MINOR, OutHeader, bytes_of, init_flag, opcode,
    read,
};
use crate::transport::MAX_IO_BYTES;

/// File system type as /proc/mounts shows it: how `disklab clean` knows our mounts.
const TYPE: &str = "fuse.disklab";
/// Requests that may wait in the kernel or in the driver. More than a host of ten volumes can have: a loop
/// device has 128 at most. The kernel's own default of 12 would be the queue depth.
const MAX_BACKGROUND: u16 = 4096;
/// The kernel counts requests in pages.
const PAGE: u32 = 4096;
/// For INIT, which the kernel sends by itself right after the mount.
const INIT_TIMEOUT_MS: libc::c_int = 10_000;

/// How long a file may stay open after its loop device has gone. The kernel lets go of it with the last reference to
/// the device, and a program that had registered it with io_uring drops that after its own end, in a worker: once in
/// some 120 ends the mount was still busy and stayed (2026-11-22). Programs that only look, such as udev's, take less.
const RELEASE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(5);

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mount that is taken away again when dropped.
pub struct Mount {
    path: PathBuf,
    armed: bool,
}

/// A negotiated connection.
pub struct Connection {
    /// /dev/fuse, non-blocking.
    pub device: OwnedFd,
    /// Whether the kernel will take FUSE over io_uring.
    pub io_uring: bool,
}

impl Mount {
    /// Mounts at `path` (an existing empty directory) and negotiates. With `want_io_uring` FUSE over
    /// io_uring is switched on for the time of the negotiation, when the kernel has it.
    pub fn new(path: &Path, want_io_uring: bool) -> Result<(Mount, Connection), EmulatorError> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/fuse")
            .map_err(|error| {
                EmulatorError::system(
                    "/dev/fuse",
                    "open",
                    &error,
                    "load the kernel module with `modprobe fuse`; in a container, pass --device /dev/fuse",
                )
            })?;
        let switch = if want_io_uring {
            UringSwitch::on()
        } else {
            None
        };
        mount(path, &device)?;
        let mount = Mount {
            path: path.to_owned(),
            armed: true,
        };
        let io_uring = negotiate(device.try_clone(), switch.is_some()).map_err(|error| {
            EmulatorError::system(
                path.display().to_string(),
                "FUSE INIT",
                &error,
                "Linux 5.15 or later is needed",
            )
        })?;
        drop(switch);
        let device = device.into();
        Ok((mount, Connection { device, io_uring }))
    }

    /// Takes the mount away. When a device over one of its files is in use, the mount stays, dead: its path
    /// in the device's `backing_file` is the proof by which `disklab clean` knows the device as ours, and a
    /// lazy unmount would erase it. I/O on such a device fails from here on.
    ///
    /// With `no_device` nothing of ours holds a file any more, so who does is about to let go, and is waited for a
    /// little.
    pub fn unmount(mut self, no_device: bool) -> io::Result<()> {
        self.armed = false;
        let patience = if no_device { RELEASE } else { Duration::ZERO };
        let end = Instant::now() + patience;
        loop {
            match unmount(&self.path, 0) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                    std::thread::sleep(RETRY);
                }
                Err(_) => return unmount(&self.path, libc::MNT_FORCE),
                Ok(()) => return Ok(()),
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.armed {
            // A failure leaves a dead mount, which `disklab clean` removes.
            let _ = unmount(&self.path, libc::MNT_DETACH);
        }
    }
}

/// umount2(2).
pub fn unmount(path: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a valid C string; the call touches no memory of ours.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mount(path: &Path, device: &File) -> Result<(), EmulatorError> {
    let target = CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL");
    let kind = CString::new(TYPE).expect("no NUL");
    let options = CString::new(format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,max_read={MAX_IO_BYTES}",
        device.as_raw_fd()
    ))
    .expect("no NUL");
    // SAFETY: valid C strings, which the kernel copies.
    let done = unsafe {
        libc::mount(
            c"disklab".as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME,
            options.as_ptr().cast(),
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let way_out = match error.raw_os_error() {
        Some(libc::EPERM) => "run it as root with CAP_SYS_ADMIN in the first user namespace",
        Some(libc::ENODEV) => "load the kernel module with `modprobe fuse`",
        _ => "run `disklab clean` if an earlier run left the place mounted",
    };
    Err(EmulatorError::system(
        path.display().to_string(),
        "mount of type fuse.disklab",
        &error,
        way_out,
    ))
}

/// Answers INIT. Returns whether FUSE over io_uring was agreed.
fn negotiate(device: io::Result<File>, want_io_uring: bool) -> io::Result<bool> {
    let mut device = device?;
    let mut ready = libc::pollfd {
        fd: device.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    match unsafe { libc::poll(&raw mut ready, 1, INIT_TIMEOUT_MS) } {
        1.. => {}
        0 => return Err(io::ErrorKind::TimedOut.into()),
        _ => return Err(io::Error::last_os_error()),
    }
    // The kernel wants room for the largest request, whatever comes.
    let mut buffer = vec![0; MAX_IO_BYTES as usize + PAGE as usize];
    let len = device.read(&mut buffer)?;
    let request = &buffer[..len];
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let header: InHeader = read(request).ok_or_else(invalid)?;
    let arguments = request.get(size_of::<InHeader>()..).ok_or_else(invalid)?;
    let init: InitIn = read(arguments).ok_or_else(invalid)?;
    if header.opcode != opcode::INIT || init.major != MAJOR || init.minor < OLDEST_MINOR {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the kernel speaks FUSE {}.{}, {MAJOR}.{OLDEST_MINOR} or later is needed",
                init.major, init.minor
            ),
        ));
    }
    let mut offered = u64::from(init.flags);
    if offered & init_flag::INIT_EXT != 0 {
        // flags2 follows the part that all versions have.
        let flags2: [u8; 4] = arguments
            .get(size_of::<InitIn>()..size_of::<InitIn>() + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(invalid)?;
        offered |= u64::from(u32::from_ne_bytes(flags2)) << 32;
    }
    let mut wanted = init_flag::ASYNC_DIO
        | init_flag::BIG_WRITES
        | init_flag::PARALLEL_DIROPS
        | init_flag::MAX_PAGES
        | init_flag::INIT_EXT;
    if want_io_uring {
        wanted |= init_flag::OVER_IO_URING;
    }
    let agreed = offered & wanted;
    let out = InitOut {
        major: MAJOR,
        minor: init.minor.min(MINOR),
        max_readahead: init.max_readahead,
        flags: agreed as u32,
        flags2: (agreed >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND,
        max_write: MAX_IO_BYTES,
        time_gran: 1,
        max_pages: (MAX_IO_BYTES / PAGE) as u16,
        ..InitOut::default()
    };
    let answer = OutHeader {
        len: (size_of::<OutHeader>() + size_of::<InitOut>()) as u32,
        error: 0,
        unique: header.unique,
    };
    device.write_all(&[bytes_of(&answer), bytes_of(&out)].concat())?;
    Ok(agreed & init_flag::OVER_IO_URING != 0)
}

/// FUSE over io_uring is off by default. The kernel looks at this parameter only while a connection is
/// negotiated, so it is on for that time and then as it was. A lock on the parameter's own file
/// keeps two hosts that start at once from undoing each other.
struct UringSwitch {
    file: File,
    was_off: bool,
}

impl UringSwitch {
    /// `None`: the kernel has no FUSE over io_uring, or does not let us switch it on.
    fn on() -> Option<UringSwitch> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(ENABLE_URING)
            .ok()?;
        // SAFETY: a valid descriptor; blocks for the milliseconds of another host's negotiation.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return None;
        }
        let mut value = String::new();
        file.read_to_string(&mut value).ok()?;
        let was_off = value.trim() == "N";
        if was_off {
            fs::write(ENABLE_URING, "Y").ok()?;
        }
        Some(UringSwitch { file, was_off })
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        if self.was_off {
            // Left on it does no harm: it allows what only root can ask for.
            let _ = fs::write(ENABLE_URING, "N");
        }
        // SAFETY: a valid descriptor that we locked.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}
