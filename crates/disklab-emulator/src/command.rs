//! What the control thread asks of the driver, and how.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use disklab_disk::profile::VolumeProfile;
use disklab_disk::{CacheCounters, Change, Fault, Refusal, VolumeCounters};
use disklab_units::{Bytes, Dilation};
use serde::Serialize;

use crate::backing::Backing;
use crate::error::EmulatorError;
use crate::issue_times::{DeviceNumber, IssueTimes};
use crate::lateness::Lateness;
use crate::transport::VolumeIndex;

/// How a volume's I/Os get their time.
#[derive(Clone, Debug)]
pub enum Timing {
    /// By the model.
    Model(Box<VolumeProfile>),
    /// All take this long: for measuring the machine. Unknown to the model.
    Constant {
        /// The name of the file.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// The latency.
        latency: disklab_units::Duration,
    },
}

/// Something for the driver to do between two I/Os. Each carries the way back for its answer.
pub enum Command {
    /// Shows a new volume.
    Attach(Timing, Backing, SyncSender<Result<VolumeIndex, Refusal>>),
    /// From now on the kernel tells when requests are issued.
    IssueTimes(Box<IssueTimes>, SyncSender<()>),
    /// It does so for this volume's device.
    Device(VolumeIndex, DeviceNumber, SyncSender<()>),
    /// Forgets a volume and gives its backing back.
    Detach(VolumeIndex, SyncSender<Option<Backing>>),
    /// Tells how a volume is doing.
    Show(VolumeIndex, SyncSender<Option<View>>),
    /// Changes a volume.
    Set(
        VolumeIndex,
        Change,
        SyncSender<Result<VolumeProfile, Refusal>>,
    ),
    /// Breaks or mends something. Local volumes get a fresh, empty backing when the host fails; the old
    /// ones come back to be freed.
    Fail(
        VolumeIndex,
        Fault,
        Vec<(VolumeIndex, Backing)>,
        SyncSender<Result<Vec<Backing>, Refusal>>,
    ),
    /// Fills the host cache with ranges of a volume (offset, length); answers what it holds then, and nothing
    /// when the volume does not use it.
    Warm(
        VolumeIndex,
        Vec<(Bytes, Bytes)>,
        SyncSender<Option<CacheCounters>>,
    ),
    /// Empties a volume's part of the host cache, but for dirty data.
    DropCache(VolumeIndex, SyncSender<Option<CacheCounters>>),
    /// Gives a volume with constant timing another latency.
    Pace(VolumeIndex, disklab_units::Duration, SyncSender<()>),
    /// Sets what is subtracted from every latency, and the last stretch that is spun, not slept.
    Tune(Tuning, SyncSender<()>),
    /// Sets all burst credits to a share of their buckets, in parts per million.
    Credits(u32, SyncSender<()>),
    /// Lets time run slower or faster.
    Dilate(Dilation, SyncSender<()>),
    /// Leaves the loop.
    Stop,
}

/// How the driver keeps time on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How much earlier than due a reply leaves.
    pub overhead: crate::overhead::Overhead,
    /// How far before a reply is due the driver stops sleeping.
    pub spin: disklab_units::Duration,
}

/// One volume as the driver sees it.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// As attached and changed.
    pub profile: VolumeProfile,
    /// From the model.
    pub counters: VolumeCounters,
    /// About this program.
    pub emulator: EmulatorCounters,
    /// What was injected and not mended.
    pub faults: Vec<Fault>,
    /// Why it takes no more writes: this machine lost some of its data.
    pub failure: Option<String>,
}

/// How well the emulator keeps the model's time.
#[derive(Clone, Debug, Serialize)]
pub struct EmulatorCounters {
    /// How requests arrive.
    pub transport: crate::transport::TransportKind,
    /// I/Os ended.
    pub replies: u64,
    /// Those whose time began when the block layer issued them, not when they arrived.
    pub timed_from_issue: u64,
    /// Those that left later than the model said, by more than the tolerance.
    pub late_replies: u64,
    /// By how much replies with a wait were late, since the attach.
    pub lateness_ns: LatenessSummary,
    /// From issue to reply, by kind of I/O, since the attach; kinds that did not occur are left out.
    pub latency_ns: BTreeMap<&'static str, LatenessSummary>,
    /// What is subtracted from every wait.
    pub overhead_ns: u64,
    /// Reads of the backing.
    pub backing_read_ios: u64,
    /// Writes to the backing.
    pub backing_write_ios: u64,
    /// Un-flushed sectors whose old content could not be kept, so that a host failure will not undo them.
    pub unkept_sectors: u64,
    /// For how long the driver stood still, each time that it did, since the host began: no I/O of any volume was
    /// taken or answered meanwhile.
    pub still_ns: LatenessSummary,
}

/// Lateness, or latency, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatenessSummary {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// The histogram: (largest value of a bucket, replies in it), empty buckets left out. Counts only grow, so
    /// the difference of two views is the histogram of the time between them.
    pub buckets: Vec<(u64, u64)>,
}

impl LatenessSummary {
    /// Sums a histogram up.
    pub fn of(counted: &Lateness) -> LatenessSummary {
        LatenessSummary {
            p50: counted.quantile(500_000).as_nanos(),
            p99: counted.quantile(990_000).as_nanos(),
            max: counted.max().as_nanos(),
            buckets: counted.buckets().collect(),
        }
    }
}

/// Commands that may wait; the control socket has fewer clients.
const QUEUE: usize = 32;
/// The driver answers between two I/Os; a host failure has old content to write back first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The control threads' end.
#[derive(Clone)]
pub struct Commands {
    queue: SyncSender<Command>,
    bell: std::sync::Arc<OwnedFd>,
}

/// The driver's end.
pub struct Inbox {
    queue: Receiver<Command>,
    bell: std::sync::Arc<OwnedFd>,
}

/// A bounded queue with an eventfd as its bell.
pub fn channel() -> io::Result<(Commands, Inbox)> {
    // SAFETY: no memory involved.
    let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if bell < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let bell = std::sync::Arc::new(unsafe { OwnedFd::from_raw_fd(bell) });
    let (sender, receiver) = sync_channel(QUEUE);
    let commands = Commands {
        queue: sender,
        bell: bell.clone(),
    };
    let inbox = Inbox {
        queue: receiver,
        bell,
    };
    Ok((commands, inbox))
}

fn gone() -> EmulatorError {
    EmulatorError::new(
        "driver",
        "no answer",
        "the emulated host has stopped or hangs",
        "see its log, then run `disklab clean` and attach again",
    )
}

impl Commands {
    /// Sends a command and waits for its answer.
    pub fn ask<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> Command,
    ) -> Result<T, EmulatorError> {
        let (answer, answered) = sync_channel(1);
        self.send(command(answer))?;
        answered.recv_timeout(ANSWER_TIMEOUT).map_err(|_| gone())
    }

    /// Sends a command.
    pub fn send(&self, command: Command) -> Result<(), EmulatorError> {
        self.queue.try_send(command).map_err(|_| gone())?;
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd wants. It fails only when the counter is full, and then the
        // bell rings already.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        Ok(())
    }
}

impl Inbox {
    /// To poll.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Silences the bell; then take everything.
    pub fn silence(&self) {
        let mut count = [0; 8];
        // SAFETY: eight bytes, as an eventfd gives. An empty one refuses, which is fine.
        unsafe {
            libc::read(
                self.bell.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }

    /// The next command.
    pub fn take(&self) -> Option<Command> {
        self.queue.try_recv().ok()
    }
}
