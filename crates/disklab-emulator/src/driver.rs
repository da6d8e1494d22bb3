//! The one thread between requests and replies.
//!
//! A request goes to the model at once, its data move while it waits, and the reply leaves when the model
//! says so, less this program's own part of the latency. Handing requests to other threads would
//! halve the I/Os per second on a small machine, so there are none; what could block (a backing file)
//! goes through the same ring.

mod command;
mod data;
#[cfg(test)]
mod simulation;
mod volume;

use std::io;
use std::os::fd::RawFd;

use disklab_disk::{Completion, Destaged, Io, Op, Outcome};
use disklab_units::{Bytes, Duration, Instant};
use io_uring::{opcode, types};

use crate::awake::Awake;
use crate::clock;
use crate::command::{Inbox, Tuning};
use crate::dilated::DilatedHost;
use crate::due::DueHeap;
use crate::issue_times::IssueTimes;
use crate::lateness::Lateness;
use crate::nap::nap;
use crate::precedence::Urgency;
use crate::preimage::Preimages;
use crate::ring::{Done, Owner, Ring, label};
use crate::softirq::Softirqs;
use crate::transport::{Errno, Gone, Request, Slot, Transport, TransportKind};
use crate::watchdog::Heartbeat;

use command::Erasure;
use volume::{Timed, Volume};

/// The loop turns at least this often, so that the watchdog sees it alive.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Replies of at least this many bytes leave one by one, not in a batch: the kernel copies the data of a reply
/// when it takes it, and then they are still in the CPU's own cache.
const LARGE: u32 = 128 << 10;
/// Completions taken at once: a bound on the time until due replies are looked at again.
const BATCH: usize = 256;
/// A turn that begins this much too late is counted. What stops programs for less is for the replies' own lateness.
const STILL: Duration = Duration::from_millis(50);
/// Between two looks whether this machine's disk has taken what was flushed.
const LOOK: Duration = Duration::from_secs(1);

/// What is known about the request in a slot.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    request: Request,
    /// When the program's I/O began; where the kernel does not tell, when it arrived.
    issued: Instant,
    /// When the model wants it to end.
    due: Instant,
    /// The model has decided.
    decided: bool,
    /// The model wants it to fail, and has counted it so.
    failed: bool,
    /// It had ended well for the model when the host failed under it.
    lost: bool,
    /// The reply's time has come.
    ready: bool,
    /// Its data are on the way to or from a file.
    moving: bool,
    /// A read from memory whose time has come already: its data go straight from there into the reply.
    direct: bool,
    /// Bytes that have moved.
    moved: u32,
    /// What the backing said; zero when nothing.
    errno: i32,
}

/// See the module.
pub struct Driver {
    ring: Ring,
    transport: Box<dyn Transport>,
    kind: TransportKind,
    host: DilatedHost,
    volumes: Vec<Option<Volume>>,
    slots: Vec<Option<InFlight>>,
    due: DueHeap,
    inbox: Inbox,
    heartbeat: Heartbeat,
    awake: Awake,
    urgency: Urgency,
    softirqs: Softirqs,
    /// Where the kernel tells them.
    issue_times: Option<IssueTimes>,
    /// A reply has been made in this turn.
    replied: bool,
    tuning: Tuning,
    /// Made with the first volume that has a ReadWrite cache.
    preimages: Option<Preimages>,
    /// Data transfers that the ring has not completed.
    transfers: usize,
    /// What remains to be done after a host failure, once nothing moves any more.
    erasure: Option<Erasure>,
    /// When the backings are looked at again.
    look_again: Instant,
    /// For how long it stood still. Replies do not tell: an I/O that comes meanwhile may have no issue time, and none
    /// may come.
    still: Lateness,
    stopping: bool,
    // Filled and emptied in every turn; kept so that no turn allocates.
    done: Vec<Done>,
    requests: Vec<Request>,
    completions: Vec<Completion>,
    destaged: Vec<Destaged>,
    kept: Vec<u64>,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// The mount was taken away or aborted.
    Gone,
}

impl Driver {
    /// A driver without volumes. Must run on the thread that made the ring.
    pub fn new(
        ring: Ring,
        transport: Box<dyn Transport>,
        kind: TransportKind,
        host: DilatedHost,
        inbox: Inbox,
        heartbeat: Heartbeat,
        awake: Awake,
    ) -> Driver {
        Driver {
            ring,
            transport,
            kind,
            host,
            volumes: Vec::new(),
            slots: Vec::new(),
            due: DueHeap::default(),
            inbox,
            heartbeat,
            awake,
            urgency: Urgency::new(clock::now()),
            softirqs: Softirqs::new(),
            issue_times: None,
            replied: false,
            tuning: Tuning::default(),
            preimages: None,
            transfers: 0,
            erasure: None,
            look_again: clock::now(),
            still: Lateness::default(),
            stopping: false,
            done: Vec::with_capacity(BATCH),
            requests: Vec::with_capacity(BATCH),
            completions: Vec::with_capacity(BATCH),
            destaged: Vec::with_capacity(BATCH),
            // The sectors of the largest write.
            kept: Vec::with_capacity(BATCH),
        }
    }

    /// Serves until told to stop.
    pub fn run(&mut self) -> io::Result<End> {
        listen(&mut self.ring, self.inbox.bell())?;
        let mut woken = clock::now();
        while !self.stopping {
            self.heartbeat.beat();
            if std::mem::take(&mut self.replied) {
                self.ring.submit()?;
                self.softirqs.run();
            }
            let now = clock::now();
            self.urgency.look(now);
            let sleep = self.sleep(now);
            match sleep {
                Duration::ZERO => self.ring.look()?,
                time => self.ring.wait(time)?,
            }
            // Before the turn, which may be asked how it was.
            let last = std::mem::replace(&mut woken, clock::now());
            self.woke(woken.saturating_since(last).saturating_sub(sleep));
            if self.turn().is_err() {
                return Ok(End::Gone);
            }
        }
        Ok(End::Stopped)
    }

    /// Takes note of how long a turn and its sleep took beyond what was to be slept.
    fn woke(&mut self, late: Duration) {
        if late >= STILL {
            self.still.record(self.host.lateness(late));
        }
    }

    /// How long to sleep now.
    fn sleep(&self, now: Instant) -> Duration {
        let next = match (self.due.next(), self.host.next_event()) {
            (Some(due), Some(event)) => due.min(event),
            (Some(next), None) | (None, Some(next)) => next,
            (None, None) => return HEARTBEAT,
        };
        nap(next.saturating_since(now), self.tuning.spin).min(HEARTBEAT)
    }

    fn turn(&mut self) -> Result<(), Gone> {
        self.done.clear();
        self.ring.take(&mut self.done);
        for index in 0..self.done.len() {
            let done = self.done[index];
            match done.owner() {
                Some(Owner::Transport) => self.transport.complete(
                    &mut self.ring,
                    done.number(),
                    done.result,
                    &mut self.requests,
                )?,
                Some(Owner::Backing) => self.moved(Slot(done.number()), done.result),
                Some(Owner::Command) => {
                    self.commands();
                    listen(&mut self.ring, self.inbox.bell()).map_err(|_| Gone)?;
                }
                None => unreachable!("a ring entry without an owner"),
            }
        }
        if let Some(times) = &mut self.issue_times
            && !self.requests.is_empty()
        {
            times.look();
        }
        for index in 0..self.requests.len() {
            self.start(self.requests[index]);
        }
        if self.requests.is_empty() {
            // Nothing has come and nothing is to be done: a whole heartbeat has passed like that.
            let still = self.due.next().is_none() && self.host.next_event().is_none();
            if self.done.is_empty() && still {
                self.awake.release();
            }
        } else {
            self.awake.hold();
        }
        self.requests.clear();
        let now = clock::now();
        if self.host.next_event().is_some_and(|event| event <= now) {
            self.host.advance(now, &mut self.completions);
            self.settle(now);
        }
        while let Some(slot) = self.due.pop_due(now) {
            self.ready(slot, now);
        }
        self.look_at_backings(now);
        self.erase_when_still();
        Ok(())
    }

    fn start(&mut self, request: Request) {
        let now = clock::now();
        let slot = request.slot;
        let timed = match self.volume(request) {
            Ok(timed) => timed,
            Err(errno) => return self.transport.reply(&mut self.ring, slot, Err(errno)),
        };
        if self.refused(request) {
            return self
                .transport
                .reply(&mut self.ring, slot, Err(Errno(libc::EIO)));
        }
        let issued = self.issued(request, now);
        self.slots[slot.0 as usize] = Some(InFlight {
            request,
            issued,
            due: now,
            decided: false,
            failed: false,
            lost: false,
            ready: false,
            moving: false,
            direct: false,
            moved: 0,
            errno: 0,
        });
        match timed {
            Timed::Model(volume) => {
                let io = Io {
                    tag: u64::from(slot.0),
                    volume,
                    op: request.op,
                    offset: Bytes::new(request.offset),
                    len: request.len,
                };
                self.host.submit(issued, io, &mut self.completions);
            }
            Timed::Constant(latency) => self.completions.push(Completion {
                tag: u64::from(slot.0),
                at: issued + latency,
                outcome: Outcome::Done,
            }),
        }
        // Before the data move: what was destaged up to now is durable as it is.
        self.forget_destaged();
        let tag = u64::from(slot.0);
        let known = self.completions.iter().find(|known| known.tag == tag);
        match known {
            // Nothing may be written any more after a host failure, and what is known to fail needs no data.
            Some(known) if known.outcome == Outcome::Failed => {}
            Some(known) => {
                let at_once = self.tuning.overhead.sends(issued, known.at) <= now;
                self.move_data(slot, at_once);
            }
            None => self.move_data(slot, false),
        }
        self.settle(now);
    }

    /// Whether a volume that has lost data is asked for more than what it has.
    fn refused(&mut self, request: Request) -> bool {
        let Some(volume) = self.volumes[request.volume.0 as usize].as_mut() else {
            return false;
        };
        let refused = request.op != Op::Read && volume.backing.failure().is_some();
        if refused {
            volume.replies += 1;
            volume.failed_here(request.op);
        }
        refused
    }

    /// When the time of a request began that has arrived now.
    fn issued(&mut self, request: Request, now: Instant) -> Instant {
        let Request {
            op, offset, len, ..
        } = request;
        if let Some(volume) = self.volumes[request.volume.0 as usize].as_mut()
            && let (Some(times), Some(device)) = (&mut self.issue_times, volume.device)
            && let Some(issued) = times.take(device, op, offset, len, now)
        {
            volume.timed_from_issue += 1;
            return issued;
        }
        now
    }

    /// Takes note of the model's decisions.
    fn settle(&mut self, now: Instant) {
        self.forget_destaged();
        for index in 0..self.completions.len() {
            let completion = self.completions[index];
            let slot = Slot(completion.tag as u32);
            let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
                continue;
            };
            in_flight.decided = true;
            in_flight.due = completion.at;
            in_flight.failed = completion.outcome == Outcome::Failed;
            let (request, issued) = (in_flight.request, in_flight.issued);
            self.forget_clean(request);
            let send = self.tuning.overhead.sends(issued, completion.at);
            if send <= now {
                self.ready(slot, now);
            } else {
                self.due.push(send, slot);
            }
        }
        self.completions.clear();
    }

    /// The time of the reply has come; it leaves unless its data are still on the way.
    fn ready(&mut self, slot: Slot, now: Instant) {
        let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
            return;
        };
        in_flight.ready = true;
        if !in_flight.moving {
            self.finish(slot, now);
        }
    }

    fn finish(&mut self, slot: Slot, now: Instant) {
        let Some(in_flight) = self.slots[slot.0 as usize].take() else {
            return;
        };
        let request = in_flight.request;
        self.replied = true;
        #[cfg(test)]
        simulation::check_time(&in_flight, self.tuning.overhead, now);
        let broken = in_flight.lost || in_flight.errno != 0 || self.missed_write_back(request);
        match in_flight.failed || broken {
            false if in_flight.direct => self.reply_from_memory(request),
            false => self.transport.reply(&mut self.ring, slot, Ok(request.len)),
            // Whatever this machine's own disk says: the program's is broken, not full.
            true => {
                let eio = Err(Errno(libc::EIO));
                self.transport.reply(&mut self.ring, slot, eio);
            }
        }
        if request.len >= LARGE {
            // A ring that takes no entries has gone, which the next wait tells.
            let _ = self.ring.submit();
        }
        if let Some(volume) = self.volumes[request.volume.0 as usize].as_mut() {
            let (issued, due) = (in_flight.issued, in_flight.due);
            let overhead = self.tuning.overhead.after(due.saturating_since(issued));
            let took = (now + overhead).max(due).saturating_since(issued);
            volume.latencies[request.op as usize].record(self.host.lateness(took));
            volume.replies += 1;
            if broken && !in_flight.failed {
                volume.failed_here(request.op);
            }
            // One that had no wait cannot be late. It was sent `overhead` before it was due.
            if due > issued + overhead {
                let late = (now + overhead).saturating_since(due);
                volume.waited(self.host.lateness(late));
                self.urgency.replied(now, late);
            }
        }
    }
}

/// Waits for the bell of the command queue, once.
fn listen(ring: &mut Ring, bell: RawFd) -> io::Result<()> {
    let poll = opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32)
        .build()
        .user_data(label(Owner::Command, 0));
    // SAFETY: the entry points to no memory.
    unsafe { ring.push(poll) }
}
