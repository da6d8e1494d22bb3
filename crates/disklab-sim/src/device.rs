//! One device under fio: jobs that keep so many direct I/Os under way.

use disklab_disk::{Host, Io, Op, Refusal, VolumeCounters, VolumeId};
use disklab_units::random::Stream;
use disklab_units::{Bytes, Instant};

use crate::client::Kind;
use crate::disks::Disks;
use crate::engine::{Code, Queue};
use crate::job::{CacheState, DeviceJob, Fio, Mechanism};
use crate::record::Recorder;
use crate::station::Servers;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A slot of a job's queue submits an I/O.
    Submit(u32),
    /// The I/O of a slot has ended.
    Ended(u32),
    /// The disk model is due.
    Due,
}

impl Code for Event {
    fn encode(self) -> u32 {
        match self {
            Event::Submit(n) => n << 2,
            Event::Ended(n) => n << 2 | 1,
            Event::Due => 2,
        }
    }

    fn decode(code: u32) -> Event {
        match code & 3 {
            0 => Event::Submit(code >> 2),
            1 => Event::Ended(code >> 2),
            _ => Event::Due,
        }
    }
}

/// A device under load in virtual time.
pub struct Device {
    queue: Queue<Event>,
    disks: Disks,
    volume: VolumeId,
    random: bool,
    read_ppm: u32,
    block: u64,
    blocks: u64,
    depth: u32,
    submit_ns: u64,
    warm_up_ns: u64,
    /// Of the whole load.
    ends_ns: u64,
    /// Each job's own thread, which submits one I/O after the other.
    threads: Vec<Servers>,
    /// Of reads and of writes, which each follow their own order: by job and kind.
    cursors: Vec<[u64; 2]>,
    places: Stream,
    directions: Stream,
    /// When each slot's I/O was submitted, and what it is.
    starts: Vec<(u64, Kind)>,
    recorder: Recorder,
    /// Of the volume, where the measurement begins.
    before: VolumeCounters,
    /// Busy time of the jobs' threads until then.
    busy_before_ns: u64,
}

impl Device {
    /// Builds the device. Refuses what the disk model refuses; the job is checked.
    pub fn new(
        job: &DeviceJob,
        fio: &Fio,
        seed: u64,
        off: &[Mechanism],
    ) -> Result<Device, Refusal> {
        let mut profile = job.host.clone();
        profile.seed = crate::cluster::hash(seed, 1);
        if off.contains(&Mechanism::ThrottleWindows) {
            crate::storage::set_windows(&mut profile, 0);
        }
        let mut disks = Disks::new(profile)?;
        let host = &mut disks.host;
        let volume = host.volume_named(&job.volume);
        let volume = volume.expect("the job was checked: the volume exists");
        let size = host.volume(volume).map_or(0, |v| v.size_bytes);
        if job.host_cache != CacheState::Cold {
            let files = fio.size_bytes.saturating_mul(u64::from(fio.jobs)).min(size);
            host.warm(volume, Bytes::ZERO, Bytes::new(files));
        }
        let before = host.counters(Instant::EPOCH, volume);
        let jobs = fio.jobs as usize;
        // Files of several jobs share a device that is too small for all.
        let file = fio.size_bytes.min(size / u64::from(fio.jobs));
        Ok(Device {
            queue: Queue::default(),
            disks,
            volume,
            random: fio.random,
            read_ppm: fio.read_ppm,
            block: u64::from(fio.block_bytes),
            blocks: (file / u64::from(fio.block_bytes)).max(1),
            depth: fio.depth,
            submit_ns: fio.submit_ns,
            warm_up_ns: fio.warm_up_ns,
            ends_ns: fio.warm_up_ns.saturating_add(fio.runtime_ns),
            threads: vec![Servers::new(1, false); jobs],
            cursors: vec![[0; 2]; jobs],
            places: Stream::new(seed, "fio places"),
            directions: Stream::new(seed, "fio directions"),
            starts: vec![(0, Kind::Read); jobs * fio.depth as usize],
            recorder: Recorder::new(),
            before,
            busy_before_ns: 0,
        })
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        for slot in 0..self.starts.len() as u32 {
            self.next(0, slot);
        }
        let mut warm = self.warm_up_ns == 0;
        while let Some(event) = self.queue.pop() {
            let now = self.queue.now();
            if now >= self.ends_ns {
                break;
            }
            if !warm && now >= self.warm_up_ns {
                warm = true;
                self.measure(now);
            }
            match event {
                Event::Submit(slot) => self.submit(now, slot),
                Event::Ended(slot) => {
                    let (start, kind) = self.starts[slot as usize];
                    self.recorder.ended(now, kind, start);
                    self.next(now, slot);
                }
                Event::Due => {
                    if self.disks.step(now) {
                        self.schedule(now);
                    }
                }
            }
        }
        self.recorder.end(self.queue.now());
        assert!(
            self.recorder.littles_law_holds(),
            "Little's law does not hold: some I/O was lost or counted twice"
        );
    }

    /// The warm-up is over: what was done before does not count.
    fn measure(&mut self, now: u64) {
        self.recorder.measure(now);
        self.before = self
            .disks
            .host
            .counters(Instant::from_nanos(now), self.volume);
        self.busy_before_ns = self.busy_ns();
    }

    fn busy_ns(&self) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.usage().busy_ns)
            .sum()
    }

    /// A slot gets its turn with the job's thread.
    fn next(&mut self, now: u64, slot: u32) {
        let job = (slot / self.depth) as usize;
        let at = self.threads[job].serve(now, self.submit_ns);
        self.queue.push(at, Event::Submit(slot));
    }

    fn submit(&mut self, now: u64, slot: u32) {
        let job = (slot / self.depth) as usize;
        let (kind, op) = if self.directions.chance(self.read_ppm) {
            (Kind::Read, Op::Read)
        } else {
            (Kind::Write, Op::Write)
        };
        let block = if self.random {
            self.places.below(self.blocks)
        } else {
            let cursor = &mut self.cursors[job][usize::from(kind)];
            *cursor = (*cursor + 1) % self.blocks;
            *cursor
        };
        let io = Io {
            tag: u64::from(slot),
            volume: self.volume,
            op,
            offset: Bytes::new((job as u64 * self.blocks + block) * self.block),
            len: self.block as u32,
        };
        self.starts[slot as usize] = (now, kind);
        self.recorder.started(now);
        self.disks.submit(now, io);
        self.schedule(now);
    }

    fn schedule(&mut self, now: u64) {
        self.disks
            .schedule(now, &mut self.queue, Event::Ended, Event::Due);
    }

    /// What was recorded.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The disk model and the volume.
    pub fn host(&self) -> (&Host, VolumeId) {
        (&self.disks.host, self.volume)
    }

    /// Counters of the volume at the start.
    pub fn before(&self) -> &VolumeCounters {
        &self.before
    }

    /// Jobs' threads: how many, and their busy time.
    pub fn thread_usage(&self) -> (u64, u64) {
        (
            self.threads.len() as u64,
            self.busy_ns() - self.busy_before_ns,
        )
    }

    /// Events scheduled.
    pub fn events(&self) -> u64 {
        self.queue.scheduled()
    }
}
