//! The one io_uring of the driver: requests, replies, backing I/O and waiting go through it.

use std::io;
use std::os::fd::RawFd;

use disklab_disk::Op;
use disklab_units::Duration;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// Who gets a completion. Kept in the top byte of an entry's user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// The transport; the low half is its token.
    Transport = 1,
    /// A data transfer to or from a backing file; the low half is the slot.
    Backing = 2,
    /// The eventfd that announces commands.
    Command = 3,
}

/// User data: an owner and a number for it.
pub fn label(owner: Owner, number: u32) -> u64 {
    u64::from(owner as u8) << 56 | u64::from(number)
}

/// A completion: whose, which, result.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The user data of the entry.
    pub label: u64,
    /// Result, or a negated errno.
    pub result: i32,
}

impl Done {
    /// Whose it is; `None` when nobody's, which is a bug.
    pub fn owner(self) -> Option<Owner> {
        match (self.label >> 56) as u8 {
            1 => Some(Owner::Transport),
            2 => Some(Owner::Backing),
            3 => Some(Owner::Command),
            _ => None,
        }
    }

    /// The number given with the entry.
    pub fn number(self) -> u32 {
        self.label as u32
    }
}

/// Data on their way between memory and a file; for a discard the hole.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The file.
    pub fd: RawFd,
    /// Read, write or discard.
    pub op: Op,
    /// First byte in the file.
    pub offset: u64,
    /// Where the data go or come from.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: u32,
    /// User data of its completion.
    pub label: u64,
}

impl Transfer {
    fn entry(self) -> squeue::Entry {
        let fd = types::Fd(self.fd);
        let entry = match self.op {
            Op::Read => opcode::Read::new(fd, self.data, self.len)
                .offset(self.offset)
                .build(),
            Op::Write => opcode::Write::new(fd, self.data, self.len)
                .offset(self.offset)
                .build(),
            Op::Discard | Op::Flush => opcode::Fallocate::new(fd, u64::from(self.len))
                .offset(self.offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        };
        entry.user_data(self.label)
    }
}

enum Uring {
    /// 128-byte entries, which FUSE over io_uring needs (Linux 5.19).
    Wide(IoUring<squeue::Entry128, cqueue::Entry>),
    /// The usual 64-byte entries.
    Narrow(IoUring<squeue::Entry, cqueue::Entry>),
    /// Nothing of the kernel's: a test decides what ends, and when.
    #[cfg(test)]
    Simulated(simulated::Queues),
}

/// A submission and a completion queue. Made and used by one thread.
pub struct Ring {
    uring: Uring,
}

/// Entries of the submission queue. A push to a full queue submits first, so this bounds the batch, not
/// the work.
const SUBMISSIONS: u32 = 512;
/// Entries of the completion queue: more than can be outstanding on a host of a few volumes; the kernel
/// keeps what does not fit (FEAT_NODROP).
const COMPLETIONS: u32 = 8192;

impl Ring {
    /// A ring with 128-byte entries, as FUSE over io_uring needs.
    pub fn wide() -> io::Result<Ring> {
        // DEFER_TASKRUN (6.1) runs completions only when this thread asks for them: no interruption in
        // the middle of a batch. Everything that has FUSE over io_uring has it.
        let uring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .dontfork()
            .build(SUBMISSIONS)?;
        Ok(Ring {
            uring: Uring::Wide(uring),
        })
    }

    /// A ring that every kernel from 5.15 on has.
    pub fn narrow() -> io::Result<Ring> {
        let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
        builder.setup_cqsize(COMPLETIONS).dontfork();
        let best = builder
            .clone()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS);
        let uring = best.or_else(|_| builder.build(SUBMISSIONS))?;
        Ok(Ring {
            uring: Uring::Narrow(uring),
        })
    }

    /// Queues a transfer; it is submitted with the next wait.
    ///
    /// # Safety
    /// Memory and file must stay valid until its completion.
    pub unsafe fn transfer(&mut self, transfer: Transfer) -> io::Result<()> {
        #[cfg(test)]
        if let Uring::Simulated(queues) = &mut self.uring {
            queues.borrow_mut().under_way.push(transfer);
            return Ok(());
        }
        // SAFETY: promised by the caller.
        unsafe { self.push(transfer.entry()) }
    }

    /// Queues an entry; it is submitted with the next wait.
    ///
    /// # Safety
    /// Memory that the entry points to must stay valid until its completion.
    pub unsafe fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        match &mut self.uring {
            // SAFETY: promised by the caller.
            Uring::Wide(uring) => unsafe { push(uring, &entry.into()) },
            // SAFETY: promised by the caller.
            Uring::Narrow(uring) => unsafe { push(uring, &entry) },
            #[cfg(test)]
            Uring::Simulated(_) => Ok(()),
        }
    }

    /// Queues a wide entry. Panics on a ring without them.
    ///
    /// # Safety
    /// Memory that the entry points to must stay valid until its completion.
    pub unsafe fn push_wide(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        match &mut self.uring {
            // SAFETY: promised by the caller.
            Uring::Wide(uring) => unsafe { push(uring, entry) },
            _ => panic!("wide entries need a wide ring"),
        }
    }

    /// Submits what was queued, now.
    pub fn submit(&mut self) -> io::Result<()> {
        let submitted = match &self.uring {
            Uring::Wide(uring) => uring.submit(),
            Uring::Narrow(uring) => uring.submit(),
            #[cfg(test)]
            Uring::Simulated(_) => return Ok(()),
        };
        submitted.map(|_| ())
    }

    /// Submits what was queued and runs what the kernel has ready, without waiting; no system call when
    /// there is neither.
    pub fn look(&mut self) -> io::Result<()> {
        let idle = match &mut self.uring {
            Uring::Wide(uring) => idle(&mut uring.submission()),
            Uring::Narrow(uring) => idle(&mut uring.submission()),
            #[cfg(test)]
            Uring::Simulated(_) => true,
        };
        if idle {
            return Ok(());
        }
        self.wait(Duration::ZERO)
    }

    /// Submits what was queued and waits for a completion, at most `timeout`. A zero timeout only looks.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let submitter = match &self.uring {
            Uring::Wide(uring) => uring.submitter(),
            Uring::Narrow(uring) => uring.submitter(),
            #[cfg(test)]
            Uring::Simulated(_) => return Ok(()),
        };
        let timespec = types::Timespec::new()
            .sec(timeout.as_nanos() / 1_000_000_000)
            .nsec((timeout.as_nanos() % 1_000_000_000) as u32);
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        match submitter.submit_with_args(usize::from(timeout > Duration::ZERO), &arguments) {
            Ok(_) => Ok(()),
            // ETIME: nothing came. EINTR: a signal. EBUSY: completions wait to be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Moves the completions that are there into `done`, as far as its capacity goes.
    pub fn take(&mut self, done: &mut Vec<Done>) {
        let room = done.capacity() - done.len();
        let convert = |entry: cqueue::Entry| Done {
            label: entry.user_data(),
            result: entry.result(),
        };
        match &mut self.uring {
            Uring::Wide(uring) => done.extend(uring.completion().take(room).map(convert)),
            Uring::Narrow(uring) => done.extend(uring.completion().take(room).map(convert)),
            #[cfg(test)]
            Uring::Simulated(queues) => {
                let mut queues = queues.borrow_mut();
                let ended = queues.done.len().min(room);
                done.extend(queues.done.drain(..ended));
            }
        }
    }
}

fn idle<S: squeue::EntryMarker>(submission: &mut squeue::SubmissionQueue<'_, S>) -> bool {
    submission.is_empty() && !submission.taskrun() && !submission.cq_overflow()
}

/// # Safety
/// As [`Ring::push`].
unsafe fn push<S: squeue::EntryMarker>(
    uring: &mut IoUring<S, cqueue::Entry>,
    entry: &S,
) -> io::Result<()> {
    // SAFETY: promised by the caller.
    while unsafe { uring.submission().push(entry) }.is_err() {
        uring.submit()?;
    }
    Ok(())
}

/// A ring whose other side is a test.
#[cfg(test)]
pub mod simulated {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::{Done, Ring, Transfer, Uring};

    /// What the two sides share.
    pub type Queues = Rc<RefCell<Outstanding>>;

    /// What was asked, and what is to be told.
    #[derive(Default)]
    pub struct Outstanding {
        /// Transfers that the test has to end.
        pub under_way: Vec<Transfer>,
        /// What the next look finds.
        pub done: Vec<Done>,
    }

    /// A ring and the test's end of it.
    pub fn ring() -> (Ring, Queues) {
        let queues = Queues::default();
        let uring = Uring::Simulated(queues.clone());
        (Ring { uring }, queues)
    }
}
