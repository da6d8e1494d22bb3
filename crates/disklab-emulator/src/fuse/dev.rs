//! FUSE by read(2) and write(2) on /dev/fuse: works everywhere, costs two system calls a request.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{opcode as entry, types};

use crate::fuse::protocol::{InHeader, OutHeader, TransferIn, WriteOut, bytes_of, opcode, read};
use crate::fuse::session::{Answer, Session};
use crate::mapping::Mapping;
use crate::ring::{Owner, Ring, label};
use crate::transport::{Errno, Gone, MAX_IO_BYTES, Request, Shown, Slot, Transport, VolumeIndex};

/// A WRITE's header and arguments: exactly this many bytes, so that its data land at the start of the data
/// buffer.
const HEAD: usize = size_of::<InHeader>() + size_of::<TransferIn>();
/// Data buffer of a slot. The page beyond the largest I/O is for the fixed part of other requests.
const DATA: usize = MAX_IO_BYTES as usize + 4096;
/// Requests of one volume that can be in the driver: a loop device's 128 and some for programs that use the
/// file itself. The memory of a slot is taken from the kernel when first touched.
const SLOTS_PER_VOLUME: u32 = 160;

#[derive(Clone, Copy, Default)]
struct InSlot {
    unique: u64,
    len: u32,
    is_read: bool,
    is_write: bool,
}

/// See the module.
pub struct DevTransport {
    device: OwnedFd,
    session: Session,
    data: Vec<Mapping>,
    slots: Vec<InSlot>,
    /// Last in, first out: warm memory first.
    free: Vec<Slot>,
    polling: bool,
}

impl DevTransport {
    /// Takes over a negotiated connection.
    pub fn new(device: OwnedFd, ring: &mut Ring) -> io::Result<DevTransport> {
        let mut transport = DevTransport {
            device,
            session: Session::default(),
            data: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            polling: false,
        };
        transport.grow(SLOTS_PER_VOLUME)?;
        transport.poll(ring)?;
        Ok(transport)
    }

    fn grow(&mut self, more: u32) -> io::Result<()> {
        self.data.reserve(more as usize);
        self.free.reserve(self.slots.len() + more as usize);
        for _ in 0..more {
            self.data.push(Mapping::new(DATA, false)?);
            self.free.push(Slot(self.slots.len() as u32));
            self.slots.push(InSlot::default());
        }
        Ok(())
    }

    fn poll(&mut self, ring: &mut Ring) -> io::Result<()> {
        if self.polling {
            return Ok(());
        }
        let poll = entry::PollAdd::new(types::Fd(self.device.as_raw_fd()), libc::POLLIN as u32)
            .build()
            .user_data(label(Owner::Transport, 0));
        // SAFETY: the entry points to no memory; the descriptor lives as long as the ring's user.
        unsafe { ring.push(poll)? };
        self.polling = true;
        Ok(())
    }

    /// Reads one request; `Ok(None)`: there is none.
    fn read_one(&mut self, slot: Slot, head: &mut [u8; HEAD]) -> Result<Option<usize>, Gone> {
        let data = &mut self.data[slot.0 as usize];
        let parts = [
            libc::iovec {
                iov_base: head.as_mut_ptr().cast(),
                iov_len: HEAD,
            },
            libc::iovec {
                iov_base: data.as_ptr().cast(),
                iov_len: DATA,
            },
        ];
        loop {
            // SAFETY: both parts are buffers of the given lengths that nobody else uses.
            let len = unsafe { libc::readv(self.device.as_raw_fd(), parts.as_ptr(), 2) };
            if let Ok(len) = usize::try_from(len) {
                return Ok(Some(len));
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // The request was interrupted before it was read.
                Some(libc::ENOENT | libc::EINTR) => {}
                // ENODEV: unmounted. ECONNABORTED: aborted.
                _ => return Err(Gone),
            }
        }
    }

    /// Answers or hands on the request in `slot`; returns whether the slot is still needed.
    fn take_in(
        &mut self,
        slot: Slot,
        head: &[u8; HEAD],
        len: usize,
        requests: &mut Vec<Request>,
    ) -> bool {
        let Some(header) = read::<InHeader>(&head[..len.min(HEAD)]) else {
            return false;
        };
        // The arguments of small requests lie in the head; names may run over into the data.
        let arguments = size_of::<InHeader>();
        let mut text = [0; HEAD + 256];
        let inline = len.min(HEAD);
        let over = if header.opcode == opcode::LOOKUP {
            len.saturating_sub(HEAD).min(256)
        } else {
            0
        };
        text[..inline].copy_from_slice(&head[..inline]);
        text[inline..inline + over].copy_from_slice(self.data[slot.0 as usize].slice(0, over));
        let rest = &text[arguments..inline + over];
        let out = self.data[slot.0 as usize].slice_mut(0, DATA);
        let answer = self
            .session
            .answer(&header, &head[arguments..inline], rest, out);
        let state = &mut self.slots[slot.0 as usize];
        state.unique = header.unique;
        match answer {
            Answer::Io {
                volume,
                op,
                offset,
                len,
            } => {
                state.len = len.min(MAX_IO_BYTES);
                state.is_read = header.opcode == opcode::READ;
                state.is_write = header.opcode == opcode::WRITE;
                requests.push(Request {
                    slot,
                    volume,
                    op,
                    offset,
                    len,
                });
                true
            }
            Answer::Reply(len) => {
                self.send(slot, 0, len);
                false
            }
            Answer::Error(Errno(errno)) => {
                self.send(slot, -errno, 0);
                false
            }
            Answer::Silence => false,
        }
    }

    /// Sends a reply with the first `len` bytes of the slot's data.
    fn send(&self, slot: Slot, error: i32, len: usize) {
        self.send_with(slot, error, self.data[slot.0 as usize].slice(0, len));
    }

    /// Sends a reply. The only failures are that the request was interrupted or that the mount has gone, which
    /// the next read tells.
    fn send_with(&self, slot: Slot, error: i32, data: &[u8]) {
        let header = OutHeader {
            len: (size_of::<OutHeader>() + data.len()) as u32,
            error,
            unique: self.slots[slot.0 as usize].unique,
        };
        let parts = [
            libc::iovec {
                iov_base: std::ptr::from_ref(&header).cast_mut().cast(),
                iov_len: size_of::<OutHeader>(),
            },
            libc::iovec {
                iov_base: data.as_ptr().cast_mut().cast(),
                iov_len: data.len(),
            },
        ];
        // SAFETY: both parts are initialised buffers of at least the given lengths.
        let _ = unsafe { libc::writev(self.device.as_raw_fd(), parts.as_ptr(), 2) };
    }
}

impl Transport for DevTransport {
    fn complete(
        &mut self,
        ring: &mut Ring,
        _token: u32,
        _result: i32,
        requests: &mut Vec<Request>,
    ) -> Result<(), Gone> {
        self.polling = false;
        let mut head = [0; HEAD];
        // Bounded by the free slots; what answers itself gives its slot back at once.
        while let Some(slot) = self.free.pop() {
            let Some(len) = self.read_one(slot, &mut head)? else {
                self.free.push(slot);
                return self.poll(ring).map_err(|_| Gone);
            };
            if !self.take_in(slot, &head, len, requests) {
                self.free.push(slot);
            }
        }
        // All slots are taken: the next reply asks again.
        Ok(())
    }

    fn data(&mut self, slot: Slot) -> &mut [u8] {
        let len = self.slots[slot.0 as usize].len as usize;
        self.data[slot.0 as usize].slice_mut(0, len)
    }

    fn reply(&mut self, ring: &mut Ring, slot: Slot, result: Result<u32, Errno>) {
        let state = self.slots[slot.0 as usize];
        match result {
            Ok(len) if state.is_read => self.send(slot, 0, len as usize),
            Ok(size) if state.is_write => {
                let out = WriteOut { size, padding: 0 };
                let bytes = bytes_of(&out);
                self.data[slot.0 as usize]
                    .slice_mut(0, bytes.len())
                    .copy_from_slice(bytes);
                self.send(slot, 0, bytes.len());
            }
            Ok(_) => self.send(slot, 0, 0),
            Err(Errno(errno)) => self.send(slot, -errno, 0),
        }
        self.free.push(slot);
        // A ring that takes no entries has gone, which the driver's next wait tells.
        let _ = self.poll(ring);
    }

    /// One copy less: the kernel takes the data from where they are.
    fn reply_with(&mut self, ring: &mut Ring, slot: Slot, data: &[u8]) {
        self.send_with(slot, 0, data);
        self.free.push(slot);
        let _ = self.poll(ring);
    }

    fn show(&mut self, _ring: &mut Ring, volume: VolumeIndex, shown: Option<Shown>) -> u32 {
        // Without memory for more slots the volumes share those that are there.
        if shown.is_some() {
            let _ = self.grow(SLOTS_PER_VOLUME);
        }
        self.session.show(volume, shown);
        self.slots.len() as u32
    }
}
