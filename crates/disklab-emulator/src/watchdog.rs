//! A second process that ends the mount when the first one hangs or dies.
//!
//! Programs that wait for a disk cannot be killed while its daemon hangs. So a small process, forked before
//! the FUSE device is opened, watches a counter that the driver advances at least twice a second. When
//! the counter stands still for ten of the watchdog's own seconds (a paused virtual machine pauses them too),
//! or when the daemon has died, it aborts the mount: every waiting I/O fails at once with EIO. Where there is no
//! mount (ublk) it kills the daemon, which does the same. It leaves the dead mount and the devices for
//! `disklab clean`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping;

/// Looks once a second; so many looks without a beat mean that the driver hangs.
const LOOK_MS: libc::c_int = 1_000;
const PATIENCE: u32 = 10;

/// Beats before the driver runs, so that a long start is no hang.
const NOT_YET: u64 = 0;
/// The orderly end.
const OVER: u64 = u64::MAX;

/// The shared counter.
#[derive(Clone, Copy)]
pub struct Heartbeat {
    beats: &'static AtomicU64,
}

impl Heartbeat {
    /// A counter that nobody watches yet.
    pub fn new() -> io::Result<Heartbeat> {
        let place = mapping::shared_page()?;
        // SAFETY: a fresh zeroed page, aligned, never unmapped, shared only through atomics.
        let beats = unsafe { &*place.cast::<AtomicU64>() };
        Ok(Heartbeat { beats })
    }

    /// One turn of the driver's loop.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The mount has gone in an orderly way: the watchdog may leave.
    pub fn stop(&self) {
        self.beats.store(OVER, Ordering::Relaxed);
    }
}

/// Forks the watchdog for the mount that will be at `path`. Must be called before threads are started and
/// before /dev/fuse is opened: a copy of that descriptor would keep a dead connection alive.
pub fn start(path: &Path) -> io::Result<Heartbeat> {
    let heartbeat = Heartbeat::new()?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let parent = std::process::id();
    // SAFETY: pidfd_open takes numbers only.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    let Ok(pidfd @ 0..) = libc::c_int::try_from(pidfd) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: there is one thread, so the child may go on as a normal process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            close_all_but(pidfd);
            watch(heartbeat, pidfd, &path);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        _ => {
            // SAFETY: our own descriptor, not used again.
            unsafe { libc::close(pidfd) };
            Ok(heartbeat)
        }
    }
}

/// The child holds no lock, log or pipe of the parent.
fn close_all_but(keep: libc::c_int) {
    let keep = keep as libc::c_uint;
    // SAFETY: the child uses none of these descriptors.
    unsafe {
        if keep > 0 {
            libc::syscall(libc::SYS_close_range, 0, keep - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, keep + 1, libc::c_uint::MAX, 0);
        // Signals to the parent's terminal or group are the parent's to handle.
        libc::setsid();
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"disklab-watch".as_ptr());
    }
}

fn watch(heartbeat: Heartbeat, pidfd: libc::c_int, path: &CString) {
    let mut last = NOT_YET;
    let mut still = 0;
    loop {
        let mut ready = libc::pollfd {
            fd: pidfd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        let died = unsafe { libc::poll(&raw mut ready, 1, LOOK_MS) } > 0;
        let beats = heartbeat.beats.load(Ordering::Relaxed);
        if beats == OVER {
            return;
        }
        still = if beats == last && beats != NOT_YET {
            still + 1
        } else {
            0
        };
        last = beats;
        if died || still >= PATIENCE {
            // SAFETY: a valid C string. MNT_FORCE aborts a FUSE connection; the mount stays while in use.
            let aborted = unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE) };
            let no_mount = || io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            if aborted != 0 && no_mount() && !died {
                // ublk devices have no connection to abort: they fail their I/O when the daemon dies.
                kill(pidfd);
            }
        }
        if died {
            return;
        }
    }
}

fn kill(pidfd: libc::c_int) {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: numbers and a null pointer, which means an ordinary signal.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd,
            libc::SIGKILL,
            no_info,
            0,
        )
    };
}
