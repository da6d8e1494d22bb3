//! A block device as its user sees it: O_DIRECT, FLUSH, discard.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// O_DIRECT wants buffers aligned to the logical block; a page satisfies every device.
const ALIGNMENT: usize = 4096;

/// `BLKDISCARD` of linux/fs.h: takes a range as two u64, offset and length in bytes.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// Smallest unit of I/O in bytes.
pub const SECTOR: usize = 512;

/// A block device opened past the page cache.
pub struct Disk {
    file: File,
}

impl Disk {
    /// Opens a device for reading and writing.
    pub fn open(path: &Path) -> io::Result<Disk> {
        Disk::open_with(path, libc::O_DIRECT)
    }

    /// Opens a device as a file system would: nobody else may.
    pub fn open_exclusively(path: &Path) -> io::Result<Disk> {
        Disk::open_with(path, libc::O_DIRECT | libc::O_EXCL)
    }

    fn open_with(path: &Path, flags: libc::c_int) -> io::Result<Disk> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        Ok(Disk { file })
    }

    /// Reads `len` bytes at `offset`, both multiples of [`SECTOR`].
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; len + ALIGNMENT];
        let skip = buffer.as_ptr().align_offset(ALIGNMENT);
        self.file
            .read_exact_at(&mut buffer[skip..skip + len], offset)?;
        Ok(buffer[skip..skip + len].to_vec())
    }

    /// Writes `data` at `offset`, both multiples of [`SECTOR`].
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut buffer = vec![0; data.len() + ALIGNMENT];
        let skip = buffer.as_ptr().align_offset(ALIGNMENT);
        buffer[skip..skip + data.len()].copy_from_slice(data);
        self.file
            .write_all_at(&buffer[skip..skip + data.len()], offset)
    }

    /// Sends FLUSH.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives a range of bytes back.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = [offset, len];
        // SAFETY: BLKDISCARD reads two u64 from the pointer, which the array has.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), BLKDISCARD, range.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A repeatable stream of numbers. **Source:** SplitMix64, Steele et al., OOPSLA 2014.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Bytes that no other call returns.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = len.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| self.next().to_ne_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}
