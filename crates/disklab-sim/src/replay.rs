//! A recorded trace on one volume: its I/Os at its times, or one after the other.

use disklab_disk::{Host, Io, Op, Refusal, VolumeCounters, VolumeId};
use disklab_units::{Bytes, Instant};

use crate::client::Kind;
use crate::disks::Disks;
use crate::engine::{Code, Queue};
use crate::job::{CacheState, DeviceJob, Mechanism, Trace};
use crate::record::Recorder;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next I/O of the trace is due.
    Arrival,
    /// The I/O of that number has ended.
    Ended(u32),
    /// The disk model is due.
    Due,
}

impl Code for Event {
    fn encode(self) -> u32 {
        match self {
            Event::Ended(n) => n << 2 | 1,
            Event::Arrival => 0,
            Event::Due => 2,
        }
    }

    fn decode(code: u32) -> Event {
        match code & 3 {
            0 => Event::Arrival,
            1 => Event::Ended(code >> 2),
            _ => Event::Due,
        }
    }
}

/// A volume under a trace in virtual time.
///
/// In an open loop each I/O is submitted when the trace says, whatever became of those before it; so
/// a latency begins at its intended start. In a closed loop so many are under way at a time.
pub struct Replay<'a> {
    queue: Queue<Event>,
    disks: Disks,
    volume: VolumeId,
    trace: &'a Trace,
    next: usize,
    starts: Vec<u64>,
    recorder: Recorder,
    first_end: Option<u64>,
    last_end: u64,
    before: VolumeCounters,
}

impl<'a> Replay<'a> {
    /// Builds the volume. Refuses what the disk model refuses; the job is checked.
    pub fn new(
        job: &DeviceJob,
        trace: &'a Trace,
        seed: u64,
        off: &[Mechanism],
    ) -> Result<Replay<'a>, Refusal> {
        let mut profile = job.host.clone();
        profile.seed = crate::cluster::hash(seed, 1);
        if off.contains(&Mechanism::ThrottleWindows) {
            crate::storage::set_windows(&mut profile, 0);
        }
        let mut disks = Disks::new(profile)?;
        let host = &mut disks.host;
        let volume = host.volume_named(&job.volume);
        let volume = volume.expect("the job was checked: the volume exists");
        if job.host_cache == CacheState::Warm {
            for (&offset, &len) in trace.offset_bytes.iter().zip(&trace.len_bytes) {
                host.warm(volume, Bytes::new(offset), Bytes::new(u64::from(len)));
            }
        }
        let before = host.counters(Instant::EPOCH, volume);
        Ok(Replay {
            queue: Queue::default(),
            disks,
            volume,
            trace,
            next: 0,
            starts: vec![0; trace.at_ns.len()],
            recorder: Recorder::new(),
            first_end: None,
            last_end: 0,
            before,
        })
    }

    /// Runs until the last I/O has ended.
    pub fn run(&mut self) {
        match self.trace.depth {
            None => self.expect_next(),
            Some(depth) => {
                for _ in 0..u64::from(depth).min(self.trace.at_ns.len() as u64) {
                    self.submit(0);
                }
            }
        }
        while let Some(event) = self.queue.pop() {
            let now = self.queue.now();
            match event {
                Event::Arrival => {
                    self.submit(now);
                    self.expect_next();
                }
                Event::Ended(number) => self.ended(now, number as usize),
                Event::Due => {
                    if self.disks.step(now) {
                        self.schedule(now);
                    }
                }
            }
        }
        self.recorder.end(self.queue.now());
        assert!(
            self.recorder.littles_law_holds() && self.recorder.under_way() == 0,
            "some I/O of the trace was lost or counted twice"
        );
    }

    fn expect_next(&mut self) {
        if let Some(&at) = self.trace.at_ns.get(self.next) {
            self.queue.push(at, Event::Arrival);
        }
    }

    fn submit(&mut self, now: u64) {
        let number = self.next;
        self.next += 1;
        self.starts[number] = now;
        self.recorder.started(now);
        let io = Io {
            tag: number as u64,
            volume: self.volume,
            op: if self.trace.is_write[number] {
                Op::Write
            } else {
                Op::Read
            },
            offset: Bytes::new(self.trace.offset_bytes[number]),
            len: self.trace.len_bytes[number],
        };
        self.disks.submit(now, io);
        self.schedule(now);
    }

    fn ended(&mut self, now: u64, number: usize) {
        let kind = if self.trace.is_write[number] {
            Kind::Write
        } else {
            Kind::Read
        };
        self.recorder.ended(now, kind, self.starts[number]);
        self.first_end.get_or_insert(now);
        self.last_end = now;
        if self.trace.depth.is_some() && self.next < self.trace.at_ns.len() {
            self.submit(now);
        }
    }

    fn schedule(&mut self, now: u64) {
        self.disks
            .schedule(now, &mut self.queue, Event::Ended, Event::Due);
    }

    /// I/Os a second between the first end and the last: that of the trace's arrivals when the volume keeps up, however
    /// short the trace is.
    pub fn rate(&self) -> Option<f64> {
        let span = self.last_end - self.first_end?;
        (span > 0).then(|| (self.trace.at_ns.len() - 1) as f64 * 1e9 / span as f64)
    }

    /// What was recorded.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The disk model and the volume.
    pub fn host(&self) -> (&Host, VolumeId) {
        (&self.disks.host, self.volume)
    }

    /// The disk model.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.disks.host
    }

    /// Counters of the volume at the start.
    pub fn before(&self) -> &VolumeCounters {
        &self.before
    }

    /// Events scheduled.
    pub fn events(&self) -> u64 {
        self.queue.scheduled()
    }
}
