//! A host of the disk model in virtual time: what it decides becomes events.

use disklab_disk::profile::HostProfile;
use disklab_disk::{Completion, Fault, Host, Io, Refusal, VolumeId};
use disklab_units::Instant;

use crate::engine::{Code, Queue};

/// The disks of one machine.
#[derive(Clone)]
pub struct Disks {
    /// The disk model.
    pub host: Host,
    /// Decisions that are not events yet.
    decided: Vec<Completion>,
    /// When the disk model is due next, as scheduled; `u64::MAX`: not at all.
    due: u64,
}

impl Disks {
    /// Idle disks. Refuses what the disk model refuses.
    pub fn new(profile: HostProfile) -> Result<Disks, Refusal> {
        Ok(Disks {
            host: Host::new(profile, Instant::EPOCH)?,
            decided: Vec::new(),
            due: u64::MAX,
        })
    }

    /// Sends an I/O; [`Disks::schedule`] it and what came with it before time goes on.
    #[inline]
    pub fn submit(&mut self, now: u64, io: Io) {
        self.host
            .submit(Instant::from_nanos(now), io, &mut self.decided);
    }

    /// The I/Os that the disk model has let pass all limits just now, by their tags.
    pub fn passed(&self) -> impl Iterator<Item = u32> {
        self.decided.iter().map(|completion| completion.tag as u32)
    }

    /// Breaks a volume or mends it.
    pub fn inject(&mut self, now: u64, volume: VolumeId, fault: &Fault) {
        self.host
            .inject(Instant::from_nanos(now), volume, fault, &mut self.decided)
            .expect("a volume of its own, and a fault within the rules");
    }

    /// Schedules the ends of I/Os that are decided, and the disk model's next step as `due`.
    pub fn schedule<E: Code>(
        &mut self,
        now: u64,
        queue: &mut Queue<E>,
        ended: impl Fn(u32) -> E,
        due: E,
    ) {
        for completion in self.decided.drain(..) {
            queue.push(completion.at.as_nanos(), ended(completion.tag as u32));
        }
        if let Some(next) = self.host.next_event() {
            // What should have been done happens now, and must find its time.
            let next = next.as_nanos().max(now);
            if next < self.due || self.due < now {
                self.due = next;
                queue.push(next, due);
            }
        }
    }

    /// Lets the disk model do what is due; false: an earlier step has done it.
    pub fn step(&mut self, now: u64) -> bool {
        if self.due != now {
            return false;
        }
        self.due = u64::MAX;
        self.host
            .advance(Instant::from_nanos(now), &mut self.decided);
        true
    }

    /// Takes the decisions out, without a queue.
    pub fn take_decided(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.decided)
    }
}

#[cfg(test)]
mod tests {
    use disklab_disk::Op;
    use disklab_disk::profile::{Limit, Scope, Unit};
    use disklab_units::Bytes;

    use super::*;
    use crate::tests::host;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        Ended,
        Due,
    }

    impl Code for Event {
        fn encode(self) -> u32 {
            self as u32
        }

        fn decode(code: u32) -> Event {
            if code == 0 { Event::Ended } else { Event::Due }
        }
    }

    #[test]
    fn a_step_that_is_late_is_done_all_the_same() {
        let mut slow = host(1_000);
        slow.volumes[0].disks[0].limits.push(Limit {
            scope: Scope::All,
            unit: Unit::Ios,
            per_s: 1_000,
            io_unit_bytes: None,
            window_ns: 100_000_000,
            burst: None,
        });
        let mut disks = Disks::new(slow).expect("a host");
        let (volume, _) = disks.host.volumes().next().expect("a volume");
        // More than the disk takes at once: the rest waits for its limits.
        for tag in 0..1_000 {
            let io = Io {
                tag,
                volume,
                op: Op::Read,
                offset: Bytes::new(0),
                len: 4096,
            };
            disks.submit(0, io);
        }
        // Nobody schedules them before the time of the disk's next step is over.
        let next = disks.host.next_event().expect("I/Os wait").as_nanos();
        let mut queue = Queue::default();
        queue.push(next + 5, Event::Ended);
        queue.pop();
        disks.schedule(queue.now(), &mut queue, |_| Event::Ended, Event::Due);
        while let Some(event) = queue.pop() {
            if event == Event::Due {
                return assert!(disks.step(queue.now()), "the step was missed");
            }
        }
        panic!("no step was scheduled");
    }
}
