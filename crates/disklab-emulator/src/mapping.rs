//! Anonymous memory straight from the kernel, for buffers and for disks held in memory.

use std::io;
use std::ptr::NonNull;

/// From <linux/mman.h>; the libc crate does not have it.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;

/// A private anonymous mapping, zero until written, given back when dropped.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone; whoever holds it decides who touches it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes; pages appear when touched. `huge` asks for huge pages.
    pub fn new(len: usize, huge: bool) -> io::Result<Mapping> {
        // SAFETY: asks for a new mapping at an address that the kernel chooses; nothing existing is
        // touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len.max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping {
            start: NonNull::new(start.cast()).expect("mmap never gives the null page"),
            len: len.max(1),
        };
        if huge {
            // SAFETY: advice about a mapping that we own; a kernel without huge pages refuses, which
            // costs speed only.
            unsafe { libc::madvise(start, mapping.len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Some of the bytes. Panics when the range lies outside.
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies inside a mapping that lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(offset), len) }
    }

    /// Some of the bytes, to be written. Panics when the range lies outside.
    pub fn slice_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies inside a mapping that lives as long as `self`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().add(offset), len) }
    }

    /// Makes a range zero and gives its whole pages back to the kernel.
    pub fn clear(&mut self, offset: usize, len: usize) {
        const PAGE: usize = 4096;
        let end = offset + len;
        let first = offset.next_multiple_of(PAGE).min(end);
        let last = (end / PAGE * PAGE).max(first);
        self.slice_mut(offset, first - offset).fill(0);
        self.slice_mut(last, end - last).fill(0);
        if last > first {
            let pages = self.slice_mut(first, last - first);
            // The process locks its memory, so the variant for locked pages is needed.
            // SAFETY: whole pages of our own private anonymous mapping; they read as zero afterwards.
            let done = unsafe {
                libc::madvise(pages.as_mut_ptr().cast(), pages.len(), MADV_DONTNEED_LOCKED)
            };
            // Linux before 5.18 does not have it: cleared by hand, the memory stays taken.
            if done != 0 {
                pages.fill(0);
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no slice outlives `self`.
        unsafe { libc::munmap(self.as_ptr().cast(), self.len) };
    }
}

/// A zeroed page that a forked child shares. Never unmapped.
pub fn shared_page() -> io::Result<*mut u8> {
    // SAFETY: asks for a new mapping at an address that the kernel chooses.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_takes_exactly_the_range() {
        let mut mapping = Mapping::new(5 * 4096, false).expect("memory");
        mapping.slice_mut(0, 5 * 4096).fill(7);
        mapping.clear(100, 3 * 4096);
        for (index, byte) in mapping.slice(0, 5 * 4096).iter().enumerate() {
            let inside = (100..100 + 3 * 4096).contains(&index);
            assert_eq!(*byte, if inside { 0 } else { 7 }, "byte {index}");
        }
    }
}
