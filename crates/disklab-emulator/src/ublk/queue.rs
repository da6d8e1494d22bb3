//! The queue of one ublk device: its tags, its request descriptors and their data.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use disklab_disk::Op;
use io_uring::{opcode, squeue, types::Fd};

use crate::mapping::Mapping;
use crate::transport::{Errno, MAX_IO_BYTES};
use crate::ublk::control::QUEUE_DEPTH;
use crate::ublk::protocol::{
    COMMIT_AND_FETCH, Descriptor, FETCH, OP_DISCARD, OP_FLUSH, OP_MASK, OP_READ, OP_WRITE, SECTOR,
    encode_io_command,
};

/// What a tag asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What to do.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

/// The queue of `/dev/ublkcN`.
///
/// A tag is either with the kernel, which completes a ring entry when it hands the tag out, or with
/// us, until [`Queue::commit`].
pub struct Queue {
    node: File,
    descriptors: Descriptors,
    // One buffer a tag. The kernel writes to them as long as it holds a tag, whoever drops the queue.
    data: ManuallyDrop<Mapping>,
    lens: [u32; QUEUE_DEPTH as usize],
    with_kernel: u16,
}

impl Queue {
    /// Opens the queue of a device that was added and not yet started.
    pub fn open(device: u32) -> io::Result<Queue> {
        let path = format!("/dev/ublkc{device}");
        let node = OpenOptions::new().read(true).write(true).open(path)?;
        let descriptors = Descriptors::map(&node)?;
        let data = Mapping::new(usize::from(QUEUE_DEPTH) * MAX_IO_BYTES as usize, false)?;
        Ok(Queue {
            node,
            descriptors,
            data: ManuallyDrop::new(data),
            lens: [0; QUEUE_DEPTH as usize],
            with_kernel: 0,
        })
    }

    /// The entry that gives a tag to the kernel for the first time. The thread that submits it must
    /// submit every other entry of this queue too.
    pub fn fetch(&mut self, tag: u16) -> squeue::Entry {
        // No request has ended: the result is not looked at.
        self.entry(FETCH, tag, -1)
    }

    /// The entry that ends a tag's request and gives the tag back.
    pub fn commit(&mut self, tag: u16, result: Result<u32, Errno>) -> squeue::Entry {
        let result = match result {
            Ok(bytes) => i32::try_from(bytes).expect("requests are at most a few MiB"),
            Err(Errno(number)) => -number,
        };
        self.entry(COMMIT_AND_FETCH, tag, result)
    }

    fn entry(&mut self, command: u32, tag: u16, result: i32) -> squeue::Entry {
        self.with_kernel += 1;
        let buffer = self.buffer(tag, MAX_IO_BYTES).as_mut_ptr();
        opcode::UringCmd16::new(Fd(self.node.as_raw_fd()), command)
            .cmd(encode_io_command(tag, result, buffer))
            .build()
    }

    /// The kernel has let go of a tag, with a request or without. Returns whether it holds others.
    pub fn returned(&mut self) -> bool {
        self.with_kernel -= 1;
        self.with_kernel > 0
    }

    /// What the request of a tag asks for; an error for what the device does not offer.
    pub fn asked(&mut self, tag: u16) -> Result<Asked, Errno> {
        let descriptor = self.descriptors.read(tag);
        let op = match descriptor.op_flags & OP_MASK {
            OP_READ => Op::Read,
            OP_WRITE => Op::Write,
            OP_FLUSH => Op::Flush,
            OP_DISCARD => Op::Discard,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let len = u64::from(descriptor.sectors) * SECTOR;
        let moved = matches!(op, Op::Read | Op::Write);
        let asked = match op {
            Op::Flush => Asked {
                op,
                offset: 0,
                len: 0,
            },
            _ => Asked {
                op,
                offset: descriptor.start_sector * SECTOR,
                len: u32::try_from(len).map_err(|_| Errno(libc::EINVAL))?,
            },
        };
        if moved && asked.len > MAX_IO_BYTES {
            return Err(Errno(libc::EINVAL));
        }
        self.lens[usize::from(tag)] = if moved { asked.len } else { 0 };
        Ok(asked)
    }

    /// The data of a tag's request; empty for what moves none.
    pub fn data(&mut self, tag: u16) -> &mut [u8] {
        let len = self.lens[usize::from(tag)];
        self.buffer(tag, len)
    }

    fn buffer(&mut self, tag: u16, len: u32) -> &mut [u8] {
        self.data
            .slice_mut(usize::from(tag) * MAX_IO_BYTES as usize, len as usize)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // As long as the kernel holds a tag it may copy to the buffers; then they are left to it.
        if self.with_kernel == 0 {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.data) };
        }
    }
}

/// The request descriptors, written by the kernel and mapped read-only.
struct Descriptors {
    start: NonNull<Descriptor>,
}

// SAFETY: a read-only mapping that this value alone owns.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// The kernel takes no other length than the tags' descriptors rounded up to whole pages.
    const BYTES: usize = (QUEUE_DEPTH as usize * size_of::<Descriptor>()).next_multiple_of(4096);

    fn map(node: &File) -> io::Result<Descriptors> {
        // SAFETY: a new mapping at an address that the kernel chooses. Queue 0 begins at offset 0.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Descriptors::BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                node.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Descriptors {
            start: NonNull::new(start.cast()).expect("mmap never gives the null page"),
        })
    }

    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < QUEUE_DEPTH);
        // SAFETY: inside the mapping. The kernel wrote the descriptor before it completed the tag's
        // ring entry, and leaves it alone until the commit.
        unsafe { self.start.as_ptr().add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Descriptors::BYTES) };
    }
}
