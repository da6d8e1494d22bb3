//! One device under fio: jobs that keep so many I/Os under way, past the page cache or through it.

mod journal;
mod pages;

use std::collections::VecDeque;

use disklab_disk::{Io, Op, Refusal, VolumeCounters, VolumeId};
use disklab_units::random::Stream;
use disklab_units::{Bytes, Instant};

use crate::disks::Disks;
use crate::engine::{Code, Queue};
use crate::event::{Happening, events};
use crate::job::{CacheState, DeviceJob, Fio};
use crate::machine::own_profile;
use crate::model::Setting;
use crate::record::Recorder;
use crate::station::Servers;
use journal::{Joined, Journal, Request, Step};
use pages::{MOST_DIRTY_BYTES, PAGE_BYTES, Pages};

/// What the I/Os of a section are called, in the order of the recorder's kinds.
pub const KINDS: [&str; 3] = ["read", "write", "sync"];
const READ: usize = 0;
const WRITE: usize = 1;
const SYNC: usize = 2;

events! {
    /// What happens beside I/Os: those of slots, and beyond them those of the page cache.
    pub enum Event in 32 bits {
        /// A slot of a job's queue submits an I/O.
        Submit(slot: u32),
    }
}

/// One section of a job file.
struct Section {
    fio: Fio,
    /// Blocks of each job's file.
    blocks: u64,
    /// When its last I/O ended.
    last_end: u64,
}

/// A process of fio.
struct JobState {
    section: usize,
    /// First byte of its file.
    base: u64,
    /// Its own thread, which submits one I/O after the other.
    thread: Servers,
    /// Of reads and of writes, which each follow their own order: the next byte, in bytes of the file.
    cursors: [u64; 2],
    /// I/Os submitted, and how many there will be.
    submitted: u64,
    most: u64,
    writes: u64,
    writes_since_sync: u32,
    pages: Pages,
    /// Slots whose write waits until pages are written.
    waiting: VecDeque<u32>,
    /// What the slot that syncs asks of the journal.
    syncing: Option<Request>,
    /// The slot that waits for what is read ahead, up to this byte of the file.
    reader: Option<(u32, u64)>,
}

#[derive(Clone, Copy)]
struct Slot {
    job: u32,
    start: u64,
    kind: usize,
}

/// An I/O of the kernel's.
#[derive(Clone, Copy)]
enum Kernel {
    /// Pages are written.
    Flush(u32, u32),
    /// A step of the journal's commit.
    Journal,
    /// A file is read ahead up to this byte.
    Ahead(u32, u64),
}

/// A device under load in virtual time.
pub struct Device {
    /// The volume and its records.
    pub bench: Bench<Event>,
    warm_up_ns: u64,
    /// Of the whole load.
    ends_ns: u64,
    sections: Vec<Section>,
    jobs: Vec<JobState>,
    journal: Journal,
    slots: Vec<Slot>,
    /// Slots that go on.
    active: usize,
    /// Under way, by the number that follows those of the slots; and free ones.
    kernel: Vec<Kernel>,
    free: Vec<u32>,
    places: Stream,
    directions: Stream,
    sizes: Stream,
    /// Busy time of the jobs' threads until then.
    busy_before_ns: u64,
}

impl Device {
    /// Builds the device. Refuses what the disk model refuses; the job is checked.
    pub fn new(job: &DeviceJob, first: &Fio, setting: &Setting) -> Result<Device, Refusal> {
        let mut bench = Bench::new(job, setting)?;
        let (host, volume) = (&mut bench.disks.host, bench.volume);
        let size = host.volume(volume).map_or(0, |v| v.size_bytes);
        let loads: Vec<&Fio> = std::iter::once(first).chain(&job.beside).collect();
        let (sections, jobs) = laid_out(&loads, size);
        if job.host_cache != CacheState::Cold {
            let files = loads
                .iter()
                .map(|fio| fio.size_bytes.saturating_mul(u64::from(fio.jobs)));
            let files = files.fold(0, u64::saturating_add).min(size);
            host.warm(volume, Bytes::ZERO, Bytes::new(files));
        }
        let mut slots = Vec::new();
        for (number, state) in jobs.iter().enumerate() {
            let slot = Slot {
                job: number as u32,
                start: 0,
                kind: READ,
            };
            slots.extend(std::iter::repeat_n(
                slot,
                depth(&sections[state.section].fio),
            ));
        }
        bench.recorder = Recorder::of_kinds(KINDS.len() * sections.len());
        Ok(Device {
            bench,
            warm_up_ns: first.warm_up_ns,
            ends_ns: first.warm_up_ns.saturating_add(first.runtime_ns),
            active: slots.len(),
            sections,
            jobs,
            journal: Journal::default(),
            slots,
            kernel: Vec::new(),
            free: Vec::new(),
            places: Stream::new(setting.seed, "fio places"),
            directions: Stream::new(setting.seed, "fio directions"),
            sizes: Stream::new(setting.seed, "fio sizes"),
            busy_before_ns: 0,
        })
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            self.next(0, slot);
        }
        let mut warm = self.warm_up_ns == 0;
        while self.active > 0 {
            let Some(event) = self.bench.queue.pop() else {
                break;
            };
            let now = self.bench.queue.now();
            if now >= self.ends_ns {
                break;
            }
            if !warm && now >= self.warm_up_ns {
                warm = true;
                self.measure(now);
            }
            match event {
                Happening::Own(Event::Submit(slot)) => self.submit(now, slot),
                Happening::Io(number) => self.ended(now, number),
                Happening::Due(_) => self.bench.step(now),
            }
        }
        self.bench.end();
    }

    /// The warm-up is over: what was done before does not count.
    fn measure(&mut self, now: u64) {
        self.bench.measure(now);
        self.busy_before_ns = self.busy_ns();
    }

    fn busy_ns(&self) -> u64 {
        self.jobs.iter().map(|job| job.thread.usage().busy_ns).sum()
    }

    /// A slot gets its turn with the job's thread, when the job's rate allows it; or has nothing left to do.
    #[inline]
    fn next(&mut self, now: u64, slot: u32) {
        let job = &mut self.jobs[self.slots[slot as usize].job as usize];
        if job.submitted == job.most {
            self.active -= 1;
            return;
        }
        let fio = &self.sections[job.section].fio;
        let due = match fio.rate_iops {
            0 => now,
            rate => now.max((u128::from(job.submitted) * 1_000_000_000 / u128::from(rate)) as u64),
        };
        job.submitted += 1;
        let at = job.thread.serve(due, fio.submit_ns);
        self.bench.queue.push(at, Event::Submit(slot));
    }

    fn submit(&mut self, now: u64, slot: u32) {
        let number = self.slots[slot as usize].job as usize;
        let job = &mut self.jobs[number];
        let section = &self.sections[job.section];
        let fio = &section.fio;
        let kind = if self.directions.chance(fio.read_ppm) {
            READ
        } else {
            WRITE
        };
        let block = u64::from(fio.block_bytes);
        let file = section.blocks * block;
        let len = block_of(fio, &mut self.sizes);
        let offset = if fio.random {
            self.places.below(section.blocks) * block
        } else if fio.split.is_empty() {
            let cursor = &mut job.cursors[kind];
            *cursor = (*cursor + block) % file;
            *cursor
        } else {
            let cursor = &mut job.cursors[kind];
            let offset = if *cursor + len > file { 0 } else { *cursor };
            *cursor = offset + len;
            offset
        };
        job.writes += u64::from(kind == WRITE);
        let first_kind = KINDS.len() * job.section;
        let at = job.base + offset;
        let buffered = fio.buffered.is_some();
        let state = &mut self.slots[slot as usize];
        (state.start, state.kind) = (now, first_kind + kind);
        self.bench.recorder.started(now);
        if buffered {
            self.submit_buffered(now, slot, kind, offset, len);
        } else {
            self.send(now, u64::from(slot), kind, at, len as u32);
        }
        self.bench.schedule(now);
    }

    /// An I/O of a slot that goes through the page cache.
    #[inline(never)]
    fn submit_buffered(&mut self, now: u64, slot: u32, kind: usize, offset: u64, len: u64) {
        let job = &self.jobs[self.slots[slot as usize].job as usize];
        let fio = &self.sections[job.section].fio;
        let window = (fio.buffered.as_ref()).map_or(0, |buffered| buffered.read_ahead_bytes);
        let at = job.base + offset;
        if kind == WRITE {
            self.write_pages(now, slot, offset, len);
        } else if fio.random {
            let first = at / PAGE_BYTES * PAGE_BYTES;
            let end = (at + len).div_ceil(PAGE_BYTES) * PAGE_BYTES;
            self.send(now, u64::from(slot), READ, first, (end - first) as u32);
        } else {
            self.read_in_order(now, slot, offset, len, u64::from(window));
        }
    }

    fn send(&mut self, now: u64, tag: u64, kind: usize, offset: u64, len: u32) {
        let op = match kind {
            READ => Op::Read,
            SYNC => Op::Flush,
            _ => Op::Write,
        };
        self.bench.submit(now, tag, op, offset, len);
    }

    /// Sends an I/O of the kernel's.
    fn send_own(&mut self, now: u64, own: Kernel, kind: usize, offset: u64, len: u32) {
        let index = self.free.pop().unwrap_or(self.kernel.len() as u32) as usize;
        if index == self.kernel.len() {
            self.kernel.push(own);
        } else {
            self.kernel[index] = own;
        }
        self.send(now, (self.slots.len() + index) as u64, kind, offset, len);
    }

    fn write_pages(&mut self, now: u64, slot: u32, offset: u64, len: u64) {
        let number = self.slots[slot as usize].job;
        let job = &mut self.jobs[number as usize];
        job.pages.write(offset, len);
        let synced = self.sections[job.section].fio.sync.is_some();
        // A job that syncs leaves its pages to that; else the kernel writes them as they come together.
        if !synced || job.pages.unwritten_bytes() >= MOST_DIRTY_BYTES {
            let random = self.sections[job.section].fio.random;
            if random || job.pages.waiting() >= (1 << 20) / PAGE_BYTES {
                self.flush(now, number);
            }
        }
        let job = &mut self.jobs[number as usize];
        if !synced && job.pages.unwritten_bytes() >= MOST_DIRTY_BYTES {
            job.waiting.push_back(slot);
        } else {
            self.complete(now, slot);
        }
    }

    fn flush(&mut self, now: u64, number: u32) {
        let job = &mut self.jobs[number as usize];
        let base = job.base;
        for (offset, len) in job.pages.take_writes() {
            self.send_own(now, Kernel::Flush(number, len), WRITE, base + offset, len);
        }
    }

    fn read_in_order(&mut self, now: u64, slot: u32, offset: u64, len: u64, window: u64) {
        let number = self.slots[slot as usize].job;
        let job = &mut self.jobs[number as usize];
        let section = &self.sections[job.section];
        let file = section.blocks * u64::from(section.fio.block_bytes);
        if offset == 0 {
            job.pages.rewind();
        }
        let (base, end) = (job.base, offset + len);
        let window = window.max(PAGE_BYTES);
        for (at, bytes) in job.pages.read_ahead(end, window, file) {
            let own = Kernel::Ahead(number, at + u64::from(bytes));
            self.send_own(now, own, READ, base + at, bytes);
        }
        let job = &mut self.jobs[number as usize];
        if job.pages.has(end, window) {
            self.complete(now, slot);
        } else {
            job.reader = Some((slot, end));
        }
    }

    #[inline]
    fn ended(&mut self, now: u64, number: u32) {
        match (number as usize).checked_sub(self.slots.len()) {
            None => self.complete(now, number),
            Some(index) => self.ended_own(now, index),
        }
    }

    /// An I/O of the kernel's has ended.
    #[inline(never)]
    fn ended_own(&mut self, now: u64, index: usize) {
        self.free.push(index as u32);
        match self.kernel[index] {
            Kernel::Flush(number, len) => {
                let job = &mut self.jobs[number as usize];
                job.pages.writing_bytes -= u64::from(len);
                if job.pages.writing_bytes == 0 && job.syncing.is_some() {
                    self.commit(now, number);
                } else if job.pages.unwritten_bytes() < MOST_DIRTY_BYTES
                    && let Some(slot) = job.waiting.pop_front()
                {
                    self.complete(now, slot);
                }
            }
            Kernel::Journal => self.commit_step(now),
            Kernel::Ahead(number, end) => {
                let job = &mut self.jobs[number as usize];
                job.pages.came(end);
                let section = &self.sections[job.section];
                let window = section
                    .fio
                    .buffered
                    .as_ref()
                    .map_or(0, |b| b.read_ahead_bytes);
                let window = u64::from(window).max(PAGE_BYTES);
                if let Some((slot, _)) = job.reader.filter(|&(_, end)| job.pages.has(end, window)) {
                    job.reader = None;
                    self.complete(now, slot);
                }
            }
        }
        self.bench.schedule(now);
    }

    /// An I/O of a slot is done, as far as its job can see.
    #[inline(always)]
    fn complete(&mut self, now: u64, slot: u32) {
        let Slot { job, start, kind } = self.slots[slot as usize];
        self.bench.recorder.ended(now, kind, start);
        let section = &mut self.sections[self.jobs[job as usize].section];
        section.last_end = now;
        if section.fio.sync.is_none() || !self.sync(now, slot) {
            self.next(now, slot);
        }
    }

    /// Has a slot sync what its job wrote, when that is due; false: it is not.
    #[inline(never)]
    fn sync(&mut self, now: u64, slot: u32) -> bool {
        let Slot { job, kind, .. } = self.slots[slot as usize];
        let state = &mut self.jobs[job as usize];
        let section = &self.sections[state.section];
        let wrote = kind % KINDS.len() == WRITE;
        state.writes_since_sync += u32::from(wrote);
        let Some(sync) = section.fio.sync.as_ref().filter(|sync| {
            wrote && state.writes_since_sync >= sync.every && state.syncing.is_none()
        }) else {
            return false;
        };
        state.writes_since_sync = 0;
        // Blocks that were written before change neither the file's size nor its extents.
        let logs = !sync.data_only || state.writes <= section.blocks;
        state.syncing = Some(Request {
            slot,
            writes: if logs { sync.journal_writes } else { 0 },
            flush: true,
            transaction: self.journal.running(),
        });
        let state = &mut self.slots[slot as usize];
        (state.start, state.kind) = (now, kind - WRITE + SYNC);
        self.bench.recorder.started(now);
        self.flush(now, job);
        if self.jobs[job as usize].pages.writing_bytes == 0 {
            self.commit(now, job);
        }
        self.bench.schedule(now);
        true
    }

    /// The data of a sync are on the disk: the journal's next commit serves it, if it needs one.
    fn commit(&mut self, now: u64, number: u32) {
        let syncing = self.jobs[number as usize].syncing;
        let request = syncing.expect("a sync is under way");
        match self.journal.join(request) {
            Joined::Synced => self.synced(now, request.slot),
            Joined::Begins => self.commit_step(now),
            Joined::Waits => {}
        }
    }

    /// Sends what a commit does next, or ends the syncs that it serves and begins the next.
    fn commit_step(&mut self, now: u64) {
        loop {
            // At the first page of the device, which nobody tells from the journal's.
            match self.journal.step() {
                Step::Write => {
                    return self.send_own(now, Kernel::Journal, WRITE, 0, PAGE_BYTES as u32);
                }
                Step::Flush => return self.send_own(now, Kernel::Journal, SYNC, 0, 0),
                Step::Done(slots) => {
                    for slot in slots {
                        self.synced(now, slot);
                    }
                }
                Step::Idle => return,
            }
        }
    }

    fn synced(&mut self, now: u64, slot: u32) {
        self.jobs[self.slots[slot as usize].job as usize].syncing = None;
        self.complete(now, slot);
    }

    /// The name of each section, and the measured time until its last I/O.
    pub fn sections(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sections.iter().map(|section| {
            let elapsed = section.last_end.saturating_sub(self.warm_up_ns).max(1);
            let whole = !section.fio.once;
            let span = if whole {
                self.bench.recorder.elapsed_ns()
            } else {
                elapsed
            };
            (section.fio.name.as_str(), span)
        })
    }

    /// Jobs' threads: how many, and their busy time.
    pub fn thread_usage(&self) -> (u64, u64) {
        (self.jobs.len() as u64, self.busy_ns() - self.busy_before_ns)
    }
}

/// A volume that is measured, its events and its records; of fio by [`KINDS`] of each section.
pub struct Bench<E> {
    pub queue: Queue<Happening<E>>,
    pub disks: Disks,
    pub volume: VolumeId,
    pub recorder: Recorder,
    /// Of the volume, where the measurement begins.
    pub before: VolumeCounters,
}

impl<E: Code> Bench<E> {
    /// The idle volume of a checked job. Refuses what the disk model refuses.
    pub fn new(job: &DeviceJob, setting: &Setting) -> Result<Bench<E>, Refusal> {
        let disks = Disks::new(own_profile(&job.host, 0, setting))?;
        let volume = disks.host.volume_named(&job.volume);
        let volume = volume.expect("the job was checked: the volume exists");
        Ok(Bench {
            queue: Queue::default(),
            before: disks.host.counters(Instant::EPOCH, volume),
            disks,
            volume,
            recorder: Recorder::new(),
        })
    }

    /// Sends an I/O; [`Bench::schedule`] it and what came with it before time goes on.
    #[inline]
    pub fn submit(&mut self, now: u64, tag: u64, op: Op, offset: u64, len: u32) {
        let (volume, offset) = (self.volume, Bytes::new(offset));
        let io = Io {
            tag,
            volume,
            op,
            offset,
            len,
        };
        self.disks.submit(now, io);
    }

    /// Schedules what the disk model has decided.
    pub fn schedule(&mut self, now: u64) {
        let due = Happening::Due(0);
        self.disks
            .schedule(now, &mut self.queue, Happening::Io, due);
    }

    /// The disk model does what is due.
    pub fn step(&mut self, now: u64) {
        if self.disks.step(now) {
            self.schedule(now);
        }
    }

    /// The warm-up is over: what was done before does not count.
    pub fn measure(&mut self, now: u64) {
        self.recorder.measure(now);
        let host = &self.disks.host;
        self.before = host.counters(Instant::from_nanos(now), self.volume);
    }

    /// The run is over.
    pub fn end(&mut self) {
        self.recorder.end(self.queue.now());
        assert!(
            self.recorder.littles_law_holds(),
            "Little's law does not hold: some I/O was lost or counted twice"
        );
    }
}

/// How many I/Os a job has under way: the page cache has each caller wait.
fn depth(fio: &Fio) -> usize {
    if fio.buffered.is_some() {
        1
    } else {
        fio.depth as usize
    }
}

fn block_of(fio: &Fio, sizes: &mut Stream) -> u64 {
    if fio.split.is_empty() {
        return u64::from(fio.block_bytes);
    }
    let mut part = sizes.below(1_000_000);
    for size in &fio.split {
        if part < u64::from(size.share_ppm) {
            return u64::from(size.block_bytes);
        }
        part -= u64::from(size.share_ppm);
    }
    u64::from(fio.block_bytes)
}

/// Files of several jobs share a device that is too small for all, in equal parts.
fn laid_out(loads: &[&Fio], size: u64) -> (Vec<Section>, Vec<JobState>) {
    let count: u64 = loads.iter().map(|fio| u64::from(fio.jobs)).sum();
    let (mut sections, mut jobs) = (Vec::new(), Vec::new());
    let mut base = 0;
    for (number, fio) in loads.iter().enumerate() {
        let block = u64::from(fio.block_bytes);
        let blocks = (fio.size_bytes.min(size / count) / block).max(1);
        let mean = match fio
            .split
            .iter()
            .map(|s| u64::from(s.block_bytes) * u64::from(s.share_ppm))
            .sum()
        {
            0 => block,
            sum => (sum / 1_000_000).max(1),
        };
        let most = if fio.once {
            blocks * block / mean
        } else {
            u64::MAX
        };
        sections.push(Section {
            fio: (*fio).clone(),
            blocks,
            last_end: 0,
        });
        for _ in 0..fio.jobs {
            jobs.push(JobState {
                section: number,
                base,
                thread: Servers::new(1, false),
                cursors: [0; 2],
                submitted: 0,
                most,
                writes: 0,
                writes_since_sync: 0,
                pages: Pages::default(),
                waiting: VecDeque::new(),
                syncing: None,
                reader: None,
            });
            base += (blocks * block).div_ceil(PAGE_BYTES) * PAGE_BYTES;
        }
    }
    (sections, jobs)
}
