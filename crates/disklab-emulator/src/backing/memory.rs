//! A volume held in memory.

use std::io;

use crate::error::EmulatorError;
use crate::mapping::Mapping;

/// See the module. Pages appear when written.
pub struct MemoryBacking {
    bytes: Mapping,
}

impl MemoryBacking {
    /// Memory for `size` bytes. Refuses more than this machine has free, because running out later would take
    /// some other process down.
    pub fn new(size: u64, preallocate: bool) -> Result<MemoryBacking, EmulatorError> {
        let available = available_bytes().unwrap_or(u64::MAX);
        if size > available {
            return Err(EmulatorError::new(
                "backing.kind",
                format!("memory, {size} bytes"),
                format!("this machine has {available} bytes of memory available"),
                "choose backing kind `file` or a smaller size",
            ));
        }
        let failed = |error: &io::Error| {
            EmulatorError::system(
                "backing.kind",
                format!("memory, {size} bytes"),
                error,
                "choose backing kind `file` or a smaller size",
            )
        };
        let len = usize::try_from(size).map_err(|_| failed(&io::ErrorKind::OutOfMemory.into()))?;
        // Huge pages only where they are all there from the start: the first touch of one clears 2 MiB, which took
        // the driver some milliseconds on a virtual machine, and every I/O of the host waits for the driver.
        let bytes = Mapping::new(len, preallocate).map_err(|error| failed(&error))?;
        if preallocate {
            // SAFETY: populates a mapping that we own.
            let done =
                unsafe { libc::madvise(bytes.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
            if done != 0 {
                return Err(failed(&io::Error::last_os_error()));
            }
        }
        Ok(MemoryBacking { bytes })
    }

    /// A range as it is. The caller has checked that it lies inside.
    pub fn slice(&self, offset: u64, len: u32) -> &[u8] {
        self.bytes.slice(offset as usize, len as usize)
    }

    /// Copies a range out. The caller has checked that it lies inside.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(self.bytes.slice(offset as usize, into.len()));
    }

    /// Copies a range in.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        self.bytes
            .slice_mut(offset as usize, from.len())
            .copy_from_slice(from);
    }

    /// Makes a range zero.
    pub fn clear(&mut self, offset: u64, len: u64) {
        self.bytes.clear(offset as usize, len as usize);
    }
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
