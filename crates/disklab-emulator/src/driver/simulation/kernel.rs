//! The other side of the driver: a transport and a machine whose files take their time and fail.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;

use disklab_disk::Op;

use crate::ring::Done;
use crate::ring::{Owner, Ring, Transfer, label, simulated};
use crate::transport::{Errno, Gone, Request, Shown, Slot, Transport, VolumeIndex};

/// Requests at a time.
pub const SLOTS: u32 = 24;
/// The longest request.
pub const LONGEST: u32 = 32 << 10;

/// A reply, as the program sees it.
pub struct Reply {
    pub slot: Slot,
    pub result: Result<u32, Errno>,
    /// What a read got.
    pub data: Vec<u8>,
}

/// What program and transport exchange.
#[derive(Default)]
pub struct Exchange {
    /// Requests on their way, each with what it writes.
    pub arriving: VecDeque<(Request, Vec<u8>)>,
    /// How many arrive at the next look.
    pub arrive: usize,
    pub replies: Vec<Reply>,
}

pub type Shared = Rc<RefCell<Exchange>>;

/// A transport with a fixed number of slots.
pub struct SimulatedTransport {
    exchange: Shared,
    data: Vec<Box<[u8]>>,
    requests: Vec<Option<Request>>,
}

impl SimulatedTransport {
    pub fn new(exchange: Shared) -> SimulatedTransport {
        let data = || vec![0; LONGEST as usize].into_boxed_slice();
        SimulatedTransport {
            exchange,
            data: (0..SLOTS).map(|_| data()).collect(),
            requests: vec![None; SLOTS as usize],
        }
    }

    fn end(&mut self, slot: Slot, result: Result<u32, Errno>, data: Vec<u8>) {
        let ended = self.requests[slot.0 as usize].take();
        assert!(ended.is_some(), "a second reply for slot {}", slot.0);
        self.exchange
            .borrow_mut()
            .replies
            .push(Reply { slot, result, data });
    }
}

impl Transport for SimulatedTransport {
    fn complete(
        &mut self,
        _ring: &mut Ring,
        _token: u32,
        _result: i32,
        requests: &mut Vec<Request>,
    ) -> Result<(), Gone> {
        let mut exchange = self.exchange.borrow_mut();
        let count = std::mem::take(&mut exchange.arrive);
        for (request, data) in exchange.arriving.drain(..count) {
            let slot = request.slot.0 as usize;
            self.data[slot][..data.len()].copy_from_slice(&data);
            self.requests[slot] = Some(request);
            requests.push(request);
        }
        Ok(())
    }

    fn data(&mut self, slot: Slot) -> &mut [u8] {
        let len = self.requests[slot.0 as usize].map_or(0, |request| request.len as usize);
        &mut self.data[slot.0 as usize][..len]
    }

    fn reply(&mut self, _ring: &mut Ring, slot: Slot, result: Result<u32, Errno>) {
        let data = match self.requests[slot.0 as usize] {
            Some(Request { op: Op::Read, .. }) if result.is_ok() => self.data(slot).to_vec(),
            _ => Vec::new(),
        };
        self.end(slot, result, data);
    }

    fn reply_with(&mut self, _ring: &mut Ring, slot: Slot, data: &[u8]) {
        self.end(slot, Ok(data.len() as u32), data.to_vec());
    }

    fn show(&mut self, _ring: &mut Ring, _volume: VolumeIndex, _shown: Option<Shown>) -> u32 {
        SLOTS
    }
}

/// How a transfer ends.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// All of it.
    Whole,
    /// A part of it, so that the rest must be asked for again.
    Part(u32),
    /// Not at all.
    Error(i32),
}

/// Ends one of the transfers under way.
pub fn end_transfer(queues: &simulated::Queues, index: usize, way: Way) {
    let mut queues = queues.borrow_mut();
    let transfer = queues.under_way.swap_remove(index);
    let result = match way {
        Way::Error(errno) => -errno,
        Way::Part(len) if transfer.op != Op::Discard => {
            moved(&transfer, len.clamp(1, transfer.len.max(1)))
        }
        _ => moved(&transfer, transfer.len),
    };
    queues.done.push(Done {
        label: transfer.label,
        result,
    });
}

/// Tells the driver that something of a kind waits.
pub fn announce(queues: &simulated::Queues, owner: Owner) {
    queues.borrow_mut().done.push(Done {
        label: label(owner, 0),
        result: 0,
    });
}

/// Moves the data, as the kernel would.
fn moved(transfer: &Transfer, len: u32) -> i32 {
    let &Transfer {
        fd,
        op,
        offset,
        data,
        ..
    } = transfer;
    let at = offset as libc::off_t;
    // SAFETY: the driver keeps memory and file until it is told of the end.
    let done = unsafe {
        match op {
            Op::Read => libc::pread(fd, data.cast(), len as usize, at),
            Op::Write => libc::pwrite(fd, data.cast(), len as usize, at),
            Op::Discard | Op::Flush => punch(fd, at, len),
        }
    };
    i32::try_from(done).expect("a short transfer")
}

fn punch(fd: RawFd, at: libc::off_t, len: u32) -> isize {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a valid descriptor; the call touches no memory of ours.
    unsafe { libc::fallocate(fd, mode, at, libc::off_t::from(len)) as isize }
}
