//! A recorded trace on one volume: its I/Os at its times, or one after the other.

use disklab_disk::{Op, Refusal};
use disklab_units::Bytes;

use crate::client::Kind;
use crate::device::Bench;
use crate::event::{Happening, events};
use crate::job::{CacheState, DeviceJob, Trace};
use crate::model::Setting;

events! {
    /// What happens beside I/Os, which have their numbers in the trace.
    pub enum Event in 32 bits {
        /// The next I/O of the trace is due.
        Arrival,
    }
}

/// A volume under a trace in virtual time.
///
/// In an open loop each I/O is submitted when the trace says, whatever became of those before it; so
/// a latency begins at its intended start. In a closed loop so many are under way at a time.
pub struct Replay<'a> {
    /// The volume and its records.
    pub bench: Bench<Event>,
    trace: &'a Trace,
    next: usize,
    starts: Vec<u64>,
    first_end: Option<u64>,
    last_end: u64,
}

impl<'a> Replay<'a> {
    /// Builds the volume. Refuses what the disk model refuses; the job is checked.
    pub fn new(
        job: &DeviceJob,
        trace: &'a Trace,
        setting: &Setting,
    ) -> Result<Replay<'a>, Refusal> {
        let mut bench = Bench::new(job, setting)?;
        let (host, volume) = (&mut bench.disks.host, bench.volume);
        if job.host_cache == CacheState::Warm {
            for (&offset, &len) in trace.offset_bytes.iter().zip(&trace.len_bytes) {
                host.warm(volume, Bytes::new(offset), Bytes::new(u64::from(len)));
            }
        }
        Ok(Replay {
            bench,
            trace,
            next: 0,
            starts: vec![0; trace.at_ns.len()],
            first_end: None,
            last_end: 0,
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
        while let Some(event) = self.bench.queue.pop() {
            let now = self.bench.queue.now();
            match event {
                Happening::Own(Event::Arrival) => {
                    self.submit(now);
                    self.expect_next();
                }
                Happening::Io(number) => self.ended(now, number as usize),
                Happening::Due(_) => self.bench.step(now),
            }
        }
        self.bench.end();
        assert_eq!(self.bench.recorder.under_way(), 0, "some I/O was lost");
    }

    fn expect_next(&mut self) {
        if let Some(&at) = self.trace.at_ns.get(self.next) {
            self.bench.queue.push(at, Event::Arrival);
        }
    }

    fn submit(&mut self, now: u64) {
        let number = self.next;
        self.next += 1;
        self.starts[number] = now;
        self.bench.recorder.started(now);
        let op = match self.trace.is_write[number] {
            true => Op::Write,
            false => Op::Read,
        };
        let (offset, len) = (
            self.trace.offset_bytes[number],
            self.trace.len_bytes[number],
        );
        self.bench.submit(now, number as u64, op, offset, len);
        self.bench.schedule(now);
    }

    fn ended(&mut self, now: u64, number: usize) {
        let kind = if self.trace.is_write[number] {
            Kind::Write
        } else {
            Kind::Read
        };
        self.bench.recorder.ended(now, kind, self.starts[number]);
        self.first_end.get_or_insert(now);
        self.last_end = now;
        if self.trace.depth.is_some() && self.next < self.trace.at_ns.len() {
            self.submit(now);
        }
    }

    /// I/Os a second between the first end and the last: that of the trace's arrivals when the volume keeps up, however
    /// short the trace is.
    pub fn rate(&self) -> Option<f64> {
        let span = self.last_end - self.first_end?;
        (span > 0).then(|| (self.trace.at_ns.len() - 1) as f64 * 1e9 / span as f64)
    }
}
