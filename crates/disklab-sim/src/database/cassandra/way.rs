//! When a request came where, and what of it was waiting for what.

use crate::tail::{Split, Stretch};

/// Moments of a request on its way to a replica and back, in virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// The coordinator has done its CPU work for it.
    pub ready: u64,
    /// It came to its replica.
    pub entered: u64,
    /// It has a slot.
    pub began: u64,
    /// The replica's CPU work is done; zero: not yet.
    pub worked: u64,
    /// The replica has done its part.
    pub finished: u64,
    /// While everything stood still, of its CPU work.
    pub paused_ns: u64,
    /// While everything stood still, of the end of its replica's part.
    pub rested_ns: u64,
    /// Of its I/Os: before the disk model let them pass.
    pub limited_ns: u64,
    /// Of its I/Os: while they were served.
    pub disk_ns: u64,
}

/// Moments of an operation outside of its request.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// When it was meant to be sent.
    pub intended: u64,
    /// When its client began with it.
    pub issued: u64,
    /// When it had left the client.
    pub left: u64,
    /// When its coordinator began with it.
    pub begun: u64,
    /// When the coordinator sent the request that counted.
    pub sent: u64,
    /// When the coordinator heard of the answer.
    pub heard: u64,
    /// When it had taken the answer in.
    pub taken: u64,
    /// When the client has it, the overhead included.
    pub done: u64,
    /// The overhead at the end.
    pub overhead_ns: u64,
    /// Of what came after the replica's part: while everything stood still.
    pub paused_ns: u64,
}

impl Way {
    /// The way of a request that its coordinator has done the work for at `ready`, of which it stood still for a while.
    pub fn of_work(ready: u64, paused_ns: u64) -> Way {
        Way {
            ready,
            paused_ns,
            ..Way::default()
        }
    }

    /// Its answer leaves at `ready`, when the pause at its replica is over.
    #[inline]
    pub fn rests(&mut self, ready: u64) {
        self.rested_ns = ready - self.finished;
        self.finished = ready;
    }

    /// Whether an I/O has held the request up so far.
    #[inline]
    pub fn has_waited(&self) -> bool {
        self.limited_ns > 0 || self.disk_ns > 0
    }

    /// An I/O that the request waited for since `since` has ended; the disk model let it pass at `passed`.
    #[inline]
    pub fn waited(&mut self, since: u64, passed: u64, now: u64) {
        let passed = passed.clamp(since, now);
        self.limited_ns += passed - since;
        self.disk_ns += now - passed;
    }

    /// What the time of an operation was, when this request's answer was the one that it waited for.
    pub fn split(&self, ends: &Ends) -> Split {
        let mut split = Split::default();
        split.add(Stretch::Unsent, ends.issued - ends.intended);
        split.add(Stretch::Client, ends.left - ends.issued);
        let to_replica = (ends.begun - ends.left) + (self.entered - self.ready);
        let back = (ends.heard - self.finished) + (ends.done - ends.overhead_ns - ends.taken);
        split.add(Stretch::Network, to_replica + back);
        let cpu = (self.ready - ends.sent) + (self.worked - self.began) + (ends.taken - ends.heard);
        let paused = self.paused_ns + ends.paused_ns;
        split.add(Stretch::Cpu, cpu - paused);
        split.add(Stretch::Pause, paused + self.rested_ns);
        split.add(Stretch::Slots, self.began - self.entered);
        split.add(Stretch::Limits, self.limited_ns);
        split.add(Stretch::Disk, self.disk_ns);
        let there = self.finished - self.rested_ns - self.worked;
        split.add(Stretch::Held, there - self.limited_ns - self.disk_ns);
        split.add(Stretch::Retry, ends.sent - ends.begun);
        split.add(Stretch::Overhead, ends.overhead_ns);
        split
    }
}
