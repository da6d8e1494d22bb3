//! FUSE over io_uring: requests arrive in memory of ours, a reply and the wish for the next request are one
//! ring entry, and one system call moves a whole batch.
//!
//! The kernel keeps a queue of entries for each CPU and uses that of the CPU which makes the request. All
//! queues sit on the driver's one ring.
//! **Source:** the kernel's Documentation/filesystems/fuse/fuse-io-uring.rst.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{opcode as entry, squeue, types};

use crate::fuse::protocol::{
    EntryInOut, InHeader, OutHeader, UringCommand, WriteOut, bytes_of, opcode, read,
};
use crate::fuse::session::{Answer, Session};
use crate::mapping::Mapping;
use crate::ring::{Owner, Ring, label};
use crate::transport::{Errno, Gone, MAX_IO_BYTES, Request, Shown, Slot, Transport, VolumeIndex};

/// struct fuse_uring_req_header: 128 bytes for the message header, 128 for the operation's fixed part, then
/// the entry's own state.
const HEADER: usize = 128 + 128 + size_of::<EntryInOut>();
const OPERATION: usize = 128;
const STATE: usize = 256;
/// Headers are this far apart: no two share a cache line.
const HEADER_STRIDE: usize = 320;
const _: () = assert!(HEADER <= HEADER_STRIDE && HEADER_STRIDE.is_multiple_of(64));

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Entries for each volume and CPU: all 128 requests of a loop device may come from one CPU. On machines
/// with many CPUs that would be too much address space, so each gets its share of this total.
const ENTRIES_PER_QUEUE: u32 = 128;
const ENTRIES_PER_VOLUME: u32 = 1024;
/// But never fewer than this.
const LEAST_ENTRIES: u32 = 8;

/// Token of the poll on /dev/fuse, where FORGET and INTERRUPT still arrive.
const POLL_TOKEN: u32 = u32::MAX;

struct Entry {
    queue: u16,
    commit_id: u64,
    unique: u64,
    len: u32,
    is_write: bool,
    /// A reply to READ carries data; those to others nothing.
    is_read: bool,
}

/// The memory of entries that were registered together.
struct Block {
    headers: Mapping,
    data: Mapping,
    /// Two for each entry, read by the kernel when it takes the registration.
    iovecs: Box<[[libc::iovec; 2]]>,
}

/// See the module.
pub struct UringTransport {
    device: OwnedFd,
    session: Session,
    queues: u16,
    per_queue: u32,
    entries: Vec<Entry>,
    blocks: Vec<Block>,
    /// The kernel wants room for the largest request on every read of /dev/fuse; only the first page is
    /// ever touched.
    scratch: Mapping,
}

impl UringTransport {
    /// Takes over a negotiated connection and registers the first entries on a wide ring.
    pub fn new(device: OwnedFd, ring: &mut Ring) -> io::Result<UringTransport> {
        let queues = possible_cpus()?;
        let share = ENTRIES_PER_VOLUME / u32::from(queues);
        let mut transport = UringTransport {
            device,
            session: Session::default(),
            queues,
            per_queue: share.clamp(LEAST_ENTRIES, ENTRIES_PER_QUEUE),
            entries: Vec::new(),
            blocks: Vec::new(),
            scratch: Mapping::new(MAX_IO_BYTES as usize + 4096, false)?,
        };
        transport.grow(ring)?;
        transport.poll(ring)?;
        Ok(transport)
    }

    /// Registers one volume's worth of entries.
    fn grow(&mut self, ring: &mut Ring) -> io::Result<()> {
        let count = (u32::from(self.queues) * self.per_queue) as usize;
        let headers = Mapping::new(count * HEADER_STRIDE, false)?;
        let data = Mapping::new(count * MAX_IO_BYTES as usize, false)?;
        let iovecs = (0..count)
            .map(|index| {
                // SAFETY: both offsets lie inside their mappings.
                let (header, data) = unsafe {
                    (
                        headers.as_ptr().add(index * HEADER_STRIDE),
                        data.as_ptr().add(index * MAX_IO_BYTES as usize),
                    )
                };
                [
                    libc::iovec {
                        iov_base: header.cast(),
                        iov_len: HEADER,
                    },
                    libc::iovec {
                        iov_base: data.cast(),
                        iov_len: MAX_IO_BYTES as usize,
                    },
                ]
            })
            .collect();
        self.blocks.push(Block {
            headers,
            data,
            iovecs,
        });
        let block = self.blocks.last().expect("just pushed");
        for (index, iovec) in block.iovecs.iter().enumerate() {
            let token = self.entries.len() as u32;
            let queue = (index as u32 % u32::from(self.queues)) as u16;
            self.entries.push(Entry {
                queue,
                commit_id: 0,
                unique: 0,
                len: 0,
                is_write: false,
                is_read: false,
            });
            let register = command(
                self.device.as_raw_fd(),
                REGISTER,
                queue,
                0,
                token,
                Some(iovec),
            );
            // SAFETY: iovecs, headers and data live until the transport is dropped, after the ring.
            unsafe { ring.push_wide(&register)? };
        }
        Ok(())
    }

    fn poll(&self, ring: &mut Ring) -> io::Result<()> {
        let poll = entry::PollAdd::new(types::Fd(self.device.as_raw_fd()), libc::POLLIN as u32)
            .build()
            .user_data(label(Owner::Transport, POLL_TOKEN));
        // SAFETY: the entry points to no memory.
        unsafe { ring.push(poll) }
    }

    /// Takes FORGETs and INTERRUPTs, which need no answer. Anything else cannot come here once all queues
    /// have entries.
    fn drain_device(&mut self, ring: &mut Ring) -> Result<(), Gone> {
        loop {
            // SAFETY: a buffer of the given length that nobody else uses.
            let len = unsafe {
                libc::read(
                    self.device.as_raw_fd(),
                    self.scratch.as_ptr().cast(),
                    self.scratch.len(),
                )
            };
            if len >= 0 {
                continue;
            }
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => self.poll(ring).map_err(|_| Gone),
                Some(libc::ENOENT | libc::EINTR) => continue,
                _ => Err(Gone),
            };
        }
    }

    fn place(&self, token: u32) -> (&Block, usize) {
        let per_block = u32::from(self.queues) * self.per_queue;
        let block = &self.blocks[(token / per_block) as usize];
        (block, (token % per_block) as usize)
    }

    fn place_mut(&mut self, token: u32) -> (&mut Block, usize) {
        let per_block = u32::from(self.queues) * self.per_queue;
        let block = &mut self.blocks[(token / per_block) as usize];
        (block, (token % per_block) as usize)
    }

    /// Replies with the first `len` bytes of the entry's data and asks for the next request.
    fn commit(&mut self, ring: &mut Ring, token: u32, error: i32, len: u32) {
        let (queue, commit_id, unique) = {
            let entry = &self.entries[token as usize];
            (entry.queue, entry.commit_id, entry.unique)
        };
        let out = OutHeader {
            len: size_of::<OutHeader>() as u32 + len,
            error,
            unique,
        };
        let state = EntryInOut {
            commit_id,
            payload_size: len,
            ..EntryInOut::default()
        };
        let (block, index) = self.place_mut(token);
        let header = block.headers.slice_mut(index * HEADER_STRIDE, HEADER);
        header[..size_of::<OutHeader>()].copy_from_slice(bytes_of(&out));
        header[STATE..].copy_from_slice(bytes_of(&state));
        let commit = command(
            self.device.as_raw_fd(),
            COMMIT_AND_FETCH,
            queue,
            commit_id,
            token,
            None,
        );
        // SAFETY: the entry's memory lives until the transport is dropped. A ring that takes no entries has
        // gone, which the driver's next wait tells.
        let _ = unsafe { ring.push_wide(&commit) };
    }
}

impl Transport for UringTransport {
    fn complete(
        &mut self,
        ring: &mut Ring,
        token: u32,
        result: i32,
        requests: &mut Vec<Request>,
    ) -> Result<(), Gone> {
        if token == POLL_TOKEN {
            return self.drain_device(ring);
        }
        if result < 0 {
            // ENOTCONN and ECONNABORTED at the end of the mount; anything else is as final for this entry.
            return Err(Gone);
        }
        let (block, index) = self.place_mut(token);
        let header = block.headers.slice(index * HEADER_STRIDE, HEADER);
        let (Some(message), Some(state)) = (
            read::<InHeader>(header),
            read::<EntryInOut>(&header[STATE..]),
        ) else {
            return Err(Gone);
        };
        let mut operation = [0; 128];
        operation.copy_from_slice(&header[OPERATION..STATE]);
        let entry = &mut self.entries[token as usize];
        entry.commit_id = state.commit_id;
        entry.unique = message.unique;
        entry.is_read = message.opcode == opcode::READ;
        entry.is_write = message.opcode == opcode::WRITE;
        let mut name = [0; 256];
        if message.opcode == opcode::LOOKUP {
            let len = name.len().min(state.payload_size as usize);
            let (block, index) = self.place(token);
            name[..len].copy_from_slice(block.data.slice(index * MAX_IO_BYTES as usize, len));
        }
        let slot_data = index * MAX_IO_BYTES as usize;
        let per_block = u32::from(self.queues) * self.per_queue;
        let block = &mut self.blocks[(token / per_block) as usize];
        let out = block.data.slice_mut(slot_data, MAX_IO_BYTES as usize);
        match self.session.answer(&message, &operation, &name, out) {
            Answer::Io {
                volume,
                op,
                offset,
                len,
            } => {
                self.entries[token as usize].len = len.min(MAX_IO_BYTES);
                requests.push(Request {
                    slot: Slot(token),
                    volume,
                    op,
                    offset,
                    len,
                });
            }
            Answer::Reply(len) => self.commit(ring, token, 0, len as u32),
            Answer::Error(Errno(errno)) => self.commit(ring, token, -errno, 0),
            // Such requests do not come through the ring; should one come, it ends here.
            Answer::Silence => self.commit(ring, token, 0, 0),
        }
        Ok(())
    }

    fn data(&mut self, slot: Slot) -> &mut [u8] {
        let len = self.entries[slot.0 as usize].len as usize;
        let (block, index) = self.place_mut(slot.0);
        block.data.slice_mut(index * MAX_IO_BYTES as usize, len)
    }

    fn reply(&mut self, ring: &mut Ring, slot: Slot, result: Result<u32, Errno>) {
        let entry = &self.entries[slot.0 as usize];
        match result {
            Ok(len) if entry.is_read => self.commit(ring, slot.0, 0, len),
            Ok(size) if entry.is_write => {
                let out = WriteOut { size, padding: 0 };
                let bytes = bytes_of(&out);
                let (block, index) = self.place_mut(slot.0);
                block
                    .data
                    .slice_mut(index * MAX_IO_BYTES as usize, bytes.len())
                    .copy_from_slice(bytes);
                self.commit(ring, slot.0, 0, bytes.len() as u32);
            }
            Ok(_) => self.commit(ring, slot.0, 0, 0),
            Err(Errno(errno)) => self.commit(ring, slot.0, -errno, 0),
        }
    }

    fn show(&mut self, ring: &mut Ring, volume: VolumeIndex, shown: Option<Shown>) -> u32 {
        // Without memory for more entries the volumes share those that are there.
        if shown.is_some() {
            let _ = self.grow(ring);
        }
        self.session.show(volume, shown);
        self.entries.len() as u32
    }
}

/// A command entry for /dev/fuse, written byte by byte: the crate's builder cannot set `len`, which
/// REGISTER needs. Layout: struct io_uring_sqe with 128 bytes.
fn command(
    fd: i32,
    operation: u32,
    queue: u16,
    commit_id: u64,
    token: u32,
    iovecs: Option<&[libc::iovec; 2]>,
) -> squeue::Entry128 {
    let mut sqe = [0u8; 128];
    sqe[0] = entry::UringCmd80::CODE;
    sqe[4..8].copy_from_slice(&fd.to_ne_bytes());
    sqe[8..12].copy_from_slice(&operation.to_ne_bytes());
    if let Some(iovecs) = iovecs {
        let address = iovecs.as_ptr() as u64;
        sqe[16..24].copy_from_slice(&address.to_ne_bytes());
        sqe[24..28].copy_from_slice(&2u32.to_ne_bytes());
    }
    sqe[32..40].copy_from_slice(&label(Owner::Transport, token).to_ne_bytes());
    let part = UringCommand {
        commit_id,
        queue,
        ..UringCommand::default()
    };
    sqe[48..48 + size_of::<UringCommand>()].copy_from_slice(bytes_of(&part));
    // SAFETY: an Entry128 is the kernel's 128-byte struct io_uring_sqe (`repr(C)`), plain old data.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(sqe) }
}

/// The kernel makes a queue for each CPU that could ever be there.
fn possible_cpus() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // Such as `0-1` or `0,2-7`: the count is that of all numbers named.
    let mut count = 0;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parse = |number: &str| number.parse::<u16>().map_err(io::Error::other);
        count += parse(last)?.saturating_sub(parse(first)?) + 1;
    }
    Ok(count)
}
