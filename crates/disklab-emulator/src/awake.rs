//! CPUs that stay awake while I/Os are under way.
//!
//! The wait of an emulated I/O leaves the CPUs idle, and an idle CPU sleeps: to deliver a reply the
//! kernel then wakes the driver's CPU, the loop device's and the program's, one after the other. On
//! a 2-core virtual machine that made 300 us into 346 us with a 99th percentile of 4 ms; with the
//! CPUs kept awake it was 317 us and 371 us (fio, depth 1, 2026-11-21). The kernel keeps them awake
//! for whoever holds `/dev/cpu_dma_latency` open with a zero in it, and lets go when the file is
//! closed, so a crash leaves nothing behind.
//!
//! A kernel without idle states to choose from (`none` in /sys/devices/system/cpu/cpuidle/current_driver) halts all the
//! same. Threads that poll there at the idle policy took the 99th percentile of 300 us from 359 us to 309 us on an idle
//! machine, and to 4 ms on a busy one, where a session's share of the CPU goes before its threads' policy; threads that
//! wake every 50 us cost the short waits 15 % (2026-11-22). So there are none.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// Where the kernel takes requests for a wake-up latency, in microseconds.
/// **Source:** Linux, Documentation/power/pm_qos_interface.rst.
const CPU_LATENCY: &str = "/dev/cpu_dma_latency";

/// Holds the CPUs awake from [`Awake::hold`] to [`Awake::release`].
#[derive(Debug)]
pub struct Awake {
    request: Option<File>,
    /// Nobody wants it, or the kernel has no such file or gives it to nobody; then CPUs sleep as they like.
    refused: bool,
}

impl Awake {
    /// Holds nothing yet, and with `never` nothing later: an idle CPU that is kept awake polls, which costs
    /// power and takes speed from its sibling threads.
    pub fn new(never: bool) -> Awake {
        Awake {
            request: None,
            refused: never,
        }
    }

    /// Keeps the CPUs awake from now on.
    #[inline]
    pub fn hold(&mut self) {
        if self.request.is_none() && !self.refused {
            self.ask();
        }
    }

    /// Lets the CPUs sleep again.
    pub fn release(&mut self) {
        self.request = None;
    }

    #[cold]
    fn ask(&mut self) {
        let asked = OpenOptions::new()
            .write(true)
            .open(CPU_LATENCY)
            .and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
        self.refused = asked.is_err();
        self.request = asked.ok();
    }
}
