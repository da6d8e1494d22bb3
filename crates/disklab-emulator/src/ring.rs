//! The one io_uring of the driver: requests, replies, backing I/O and waiting go through it.

use std::io;

use disklab_units::Duration;
use io_uring::{IoUring, cqueue, squeue, types};

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

enum Uring {
    /// 128-byte entries, which FUSE over io_uring needs (Linux 5.19).
    Wide(IoUring<squeue::Entry128, cqueue::Entry>),
    /// The usual 64-byte entries.
    Narrow(IoUring<squeue::Entry, cqueue::Entry>),
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
            Uring::Narrow(_) => panic!("wide entries need a wide ring"),
        }
    }

    /// Submits what was queued, now.
    pub fn submit(&mut self) -> io::Result<()> {
        let submitted = match &self.uring {
            Uring::Wide(uring) => uring.submit(),
            Uring::Narrow(uring) => uring.submit(),
        };
        submitted.map(|_| ())
    }

    /// Submits what was queued and runs what the kernel has ready, without waiting; no system call when
    /// there is neither.
    pub fn look(&mut self) -> io::Result<()> {
        let idle = match &mut self.uring {
            Uring::Wide(uring) => idle(&mut uring.submission()),
            Uring::Narrow(uring) => idle(&mut uring.submission()),
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
