//! What ends the process: SIGTERM, SIGINT, a request, or the driver's own end.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks the signals in this thread and those it starts, and waits for them by descriptor.
#[derive(Clone)]
pub struct Signals {
    signals: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    asked: Arc<AtomicBool>,
}

impl Signals {
    /// Call it before other threads start.
    pub fn new() -> io::Result<Signals> {
        // SAFETY: a signal set is plain old data, made valid by sigemptyset.
        let signals = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)
        };
        // SAFETY: no memory involved.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if signals < 0 || bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh descriptors that nobody else owns.
        let (signals, bell) =
            unsafe { (OwnedFd::from_raw_fd(signals), OwnedFd::from_raw_fd(bell)) };
        Ok(Signals {
            signals: Arc::new(signals),
            bell: Arc::new(bell),
            asked: Arc::new(AtomicBool::new(false)),
        })
    }

    /// A client asked for the end.
    pub fn shutdown(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// The driver has ended.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd wants.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits for the end; says who asked for it. `None`: the driver has ended by itself.
    pub fn wait(&self) -> Option<&'static str> {
        loop {
            let watch = |fd: &OwnedFd| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut ready = [watch(&self.signals), watch(&self.bell)];
            // SAFETY: two valid pollfds.
            if unsafe { libc::poll(ready.as_mut_ptr(), 2, -1) } < 0 {
                continue;
            }
            if ready[1].revents != 0 {
                return self.asked.load(Ordering::Relaxed).then_some("shutdown");
            }
            // SAFETY: plain old data, filled by the kernel.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            // SAFETY: a buffer of the size that a signalfd wants.
            unsafe {
                libc::read(
                    self.signals.as_raw_fd(),
                    (&raw mut info).cast(),
                    size_of_val(&info),
                );
            }
            match info.ssi_signo as libc::c_int {
                libc::SIGTERM => return Some("SIGTERM"),
                libc::SIGINT => return Some("SIGINT"),
                // A closed terminal is no reason to stop a disk.
                _ => {}
            }
        }
    }
}
