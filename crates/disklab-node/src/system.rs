//! System calls that the standard library lacks, each behind a safe function.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A clock's time in nanoseconds.
pub fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The time of day of this host, in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    now_ns(libc::CLOCK_REALTIME)
}

/// Nanoseconds since this host's start, suspended ones too.
pub fn boottime_ns() -> u64 {
    now_ns(libc::CLOCK_BOOTTIME)
}

/// The id of this boot.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Random characters for a name that nobody can guess.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 16 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The result of a call as `io::Result`.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Opens a name in a folder; `O_CLOEXEC` is added.
pub fn open_at(folder: &File, name: &str, flags: libc::c_int, mode: u32) -> io::Result<File> {
    let name = c_string(name)?;
    // SAFETY: a living descriptor and a string that ends in zero; the result is a new descriptor of ours.
    unsafe {
        let opened = check(libc::openat(
            folder.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
        ))?;
        Ok(File::from(OwnedFd::from_raw_fd(opened)))
    }
}

/// Makes a folder in a folder.
pub fn make_folder_at(folder: &File, name: &str, mode: u32) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: a living descriptor and a string that ends in zero.
    check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// Renames within a folder; what has the new name is replaced.
pub fn rename_at(folder: &File, from: &str, to: &str) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    let at = folder.as_raw_fd();
    // SAFETY: a living descriptor and strings that end in zero.
    check(unsafe { libc::renameat(at, from.as_ptr(), at, to.as_ptr()) }).map(drop)
}

/// Removes a file of a folder.
pub fn remove_at(folder: &File, name: &str) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: a living descriptor and a string that ends in zero.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Removes an empty folder of a folder.
pub fn remove_folder_at(folder: &File, name: &str) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: a living descriptor and a string that ends in zero.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })
        .map(drop)
}

/// The names in a folder that was opened, at most so many.
pub fn names_of(folder: &File, most: usize) -> io::Result<Vec<String>> {
    // The path of the descriptor, so that nobody can put another folder in its place.
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
        if names.len() > most {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
    }
    names.sort();
    Ok(names)
}

/// Takes the lock of a file (`LOCK_EX` or `LOCK_SH`) without waiting; false: another process has it.
pub fn lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: a living descriptor.
    match check(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The kind of file system that a file is on, as statfs tells it.
pub fn file_system(file: &File) -> io::Result<i64> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel fills one statfs, which may hold any bits.
    unsafe {
        check(libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()))?;
        // The type of the field differs between architectures.
        #[allow(clippy::unnecessary_cast)]
        Ok(found.assume_init().f_type as i64)
    }
}

/// A process that cannot become another one; None on kernels before 5.3.
pub struct Pinned(OwnedFd);

impl Pinned {
    /// Pins a process by its number.
    pub fn new(pid: i32) -> Option<Pinned> {
        // SAFETY: a call without memory; the result is a new descriptor of ours.
        unsafe {
            let opened = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            let opened = i32::try_from(opened).ok().filter(|fd| *fd >= 0)?;
            Some(Pinned(OwnedFd::from_raw_fd(opened)))
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a living descriptor; no signal information is given.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                number,
                none,
                0,
            )
        };
    }
}

/// Waits until a descriptor has something to read; false: it has not after so long.
pub fn readable(file: &impl AsRawFd, wait: Duration) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one pollfd that lives through the call.
    match check(unsafe { libc::poll(&raw mut asked, 1, wait_ms) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}
