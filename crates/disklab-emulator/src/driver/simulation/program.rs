//! A program, its administrator and the machine, as a seed wants them.

use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, sync_channel};

use disklab_disk::profile::{Caching, Medium, VolumeProfile};
use disklab_disk::{Change, Fault, Op, Operations, Refusal};
use disklab_units::random::Stream;
use disklab_units::{Bytes, Dilation, Duration, Instant};

use crate::awake::Awake;
use crate::backing::{Backing, FileBacking, MemoryBacking};
use crate::clock;
use crate::command::{Command, Commands, Timing, channel};
use crate::dilated::DilatedHost;
use crate::driver::Driver;
use crate::overhead::{Overhead, WAITS};
use crate::ring::{Owner, simulated};
use crate::transport::{Request, Slot, TransportKind, VolumeIndex};
use crate::watchdog::Heartbeat;

use super::history::{History, Moment, UNIT, ZEROS, fill};
use super::kernel::{
    LONGEST, Reply, SLOTS, Shared, SimulatedTransport, Way, announce, end_transfer,
};
use super::profiles::{VOLUME_BYTES, host, limits, volume};

/// What happens in a history before it comes to its end.
const STEPS: u64 = 160;
/// Looks until a history must have come to rest.
const LAST_LOOKS: u32 = 20_000;

/// A volume as program and administrator know it.
struct Known {
    name: String,
    index: VolumeIndex,
    medium: Medium,
    history: History,
    caching: Caching,
    /// Changes of its caching so far: one when it is asked for, one when it is answered.
    changes: u64,
    /// Valid requests that reached the driver, and what became of them.
    reached: u64,
    failed: u64,
}

/// A request under way.
#[derive(Clone, Copy)]
struct UnderWay {
    request: Request,
    number: u64,
    submitted: Moment,
    /// Ends promised to stay: no ReadWrite cache when it came, and no change since the count.
    direct: Option<u64>,
}

/// What the administrator waits for.
enum Asked {
    Attach(VolumeProfile, Receiver<Result<VolumeIndex, Refusal>>),
    Detach(VolumeIndex, Receiver<Option<Backing>>),
    Set(
        VolumeIndex,
        Option<Caching>,
        Receiver<Result<VolumeProfile, Refusal>>,
    ),
    Fail(Fault, Moment, Receiver<Result<Vec<Backing>, Refusal>>),
    Other,
}

/// One history.
pub struct Simulation {
    chance: Stream,
    driver: Driver,
    commands: Commands,
    queues: simulated::Queues,
    exchange: Shared,
    now: Instant,
    moment: Moment,
    numbers: u64,
    volumes: Vec<Known>,
    under_way: Vec<Option<UnderWay>>,
    asked: Option<Asked>,
    /// Volumes that were detached, with their data.
    shelved: Vec<(Known, Backing)>,
    /// What is known of the volume that is being attached again.
    returning: Option<History>,
    /// Whether data are kept in files, and whether these fail.
    files: bool,
    errors: bool,
    /// FLUSHes among twenty I/Os.
    flushes: u64,
    /// How far ahead time usually goes: some histories see each I/O end, others each destage.
    stride: u64,
    is_down: bool,
    log: Option<Vec<String>>,
}

impl Simulation {
    /// The history of a seed, from its beginning.
    pub fn new(seed: u64, log: bool) -> Simulation {
        let mut chance = Stream::new(seed, "history");
        let now = Instant::from_nanos(1_000_000_000);
        clock::simulated::set(now);
        let (ring, queues) = simulated::ring();
        let exchange = Shared::default();
        let (commands, inbox) = channel().expect("an eventfd");
        let host = DilatedHost::new(host(&mut chance), now).expect("a valid host");
        let mut driver = Driver::new(
            ring,
            Box::new(SimulatedTransport::new(exchange.clone())),
            TransportKind::Fuse,
            host,
            inbox,
            Heartbeat::new().expect("a page"),
            Awake::new(true),
        );
        // Found once, when the machine is measured.
        let overhead = Duration::from_micros(chance.below(2) * chance.below(100));
        driver.tuning.overhead = Overhead::new([overhead; WAITS.len()]);
        Simulation {
            files: chance.below(2) == 1,
            errors: chance.below(4) == 0,
            flushes: 1 + chance.below(4),
            stride: 1 << (14 + chance.below(18)),
            is_down: false,
            chance,
            driver,
            commands,
            queues,
            exchange,
            now,
            moment: 1,
            numbers: 0,
            volumes: Vec::new(),
            under_way: vec![None; SLOTS as usize],
            asked: None,
            shelved: Vec::new(),
            returning: None,
            log: log.then(Vec::new),
        }
    }

    /// What has happened, if it was to be logged.
    pub fn steps(&self) -> &[String] {
        self.log.as_deref().unwrap_or_default()
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now.as_nanos();
        let moment = self.moment;
        if let Some(log) = &mut self.log {
            log.push(format!("{moment:5} {now:>14} ns  {}", text()));
        }
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Result<(), String> {
        self.attach_new();
        self.look(true)?;
        for _ in 0..STEPS {
            // Several things may have happened since the driver last looked.
            for _ in 0..=self.chance.below(3) {
                self.step();
            }
            let all = self.chance.below(3) > 0;
            self.look(all)?;
        }
        self.come_to_rest()
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..50 => self.submit(),
            50..66 => self.end_some_transfer(),
            66..84 => self.pass_time(),
            _ => self.administer(),
        }
    }

    fn submit(&mut self) {
        if self.volumes.is_empty() {
            return;
        }
        let which = self.chance.below(self.volumes.len() as u64) as usize;
        let op = match self.chance.below(20) {
            0..9 => Op::Write,
            9..15 => Op::Read,
            15 => Op::Discard,
            other if other < 16 + self.flushes => Op::Flush,
            _ => Op::Write,
        };
        let (offset, len) = match op {
            Op::Flush => (0, 0),
            _ => self.range(),
        };
        self.submit_io(which, op, offset, len);
    }

    /// Submits an I/O, unless as many are under way as may be.
    pub fn submit_io(&mut self, which: usize, op: Op, offset: u64, len: u32) {
        let Some(slot) = self.under_way.iter().position(Option::is_none) else {
            return;
        };
        let slot = Slot(slot as u32);
        let index = self.volumes[which].index;
        let request = Request {
            slot,
            volume: index,
            op,
            offset,
            len,
        };
        self.moment += 1;
        self.numbers += 1;
        let (number, moment) = (self.numbers, self.moment);
        let mut data = Vec::new();
        let volume = &mut self.volumes[which];
        match op {
            Op::Write => {
                data.resize(len as usize, 0);
                fill(&mut data, number);
                volume.history.begin(number, number, offset, len, moment);
            }
            Op::Discard => volume.history.begin(number, ZEROS, offset, len, moment),
            Op::Read | Op::Flush => {}
        }
        let direct = (volume.caching != Caching::ReadWrite).then_some(volume.changes);
        self.under_way[slot.0 as usize] = Some(UnderWay {
            request,
            number,
            submitted: moment,
            direct,
        });
        self.exchange
            .borrow_mut()
            .arriving
            .push_back((request, data));
        self.note(|| {
            format!(
                "{number}: {op:?} of volume {} at {offset}, {len} bytes",
                index.0
            )
        });
    }

    /// Half of them in the same few sectors.
    fn range(&mut self) -> (u64, u32) {
        let units = VOLUME_BYTES / UNIT as u64;
        let first = match self.chance.below(2) {
            0 => self.chance.below(24),
            _ => self.chance.below(units),
        };
        let first = if self.chance.below(2) == 0 {
            first / 8 * 8
        } else {
            first
        };
        let most = u64::from(LONGEST) / UNIT as u64;
        let count = [8, 1 + self.chance.below(8), 1 + self.chance.below(most)]
            [self.chance.below(3) as usize];
        let count = count.min(units - first);
        (first * UNIT as u64, (count * UNIT as u64) as u32)
    }

    fn end_some_transfer(&mut self) {
        let count = self.queues.borrow().under_way.len();
        if count == 0 {
            return;
        }
        let index = self.chance.below(count as u64) as usize;
        let way = match self.chance.below(12) {
            0 => Way::Part(UNIT as u32 * (1 + self.chance.below(8) as u32)),
            1 => Way::Error(libc::EINTR),
            2 => Way::Error(libc::EAGAIN),
            3 if self.errors => Way::Error(libc::EIO),
            4 if self.errors => Way::Error(libc::ENOSPC),
            _ => Way::Whole,
        };
        self.note(|| format!("a transfer ends: {way:?}"));
        end_transfer(&self.queues, index, way);
    }

    fn pass_time(&mut self) {
        let next = [self.driver.due.next(), self.driver.host.next_event()];
        let next = next.into_iter().flatten().min();
        let far = self.chance.below(20) == 0;
        let stride = if far { 1 << 32 } else { self.stride };
        let then = self.now + Duration::from_nanos(self.chance.below(stride));
        let then = match next {
            Some(next) if next < then || self.chance.below(3) > 0 => next.max(self.now),
            _ => then,
        };
        let most = self.now + Duration::from_nanos(stride);
        self.set_time(then.min(most));
    }

    fn set_time(&mut self, now: Instant) {
        self.now = now;
        clock::simulated::set(now);
    }

    /// Lets the driver look at what has come, all of it or some.
    fn look(&mut self, all: bool) -> Result<(), String> {
        let waiting = self.exchange.borrow().arriving.len();
        let arrive = match all {
            true => waiting,
            false => self.chance.below(waiting as u64 + 1) as usize,
        };
        if arrive > 0 {
            self.exchange.borrow_mut().arrive = arrive;
            let reached: Vec<Request> = {
                let exchange = self.exchange.borrow();
                exchange
                    .arriving
                    .iter()
                    .take(arrive)
                    .map(|(request, _)| *request)
                    .collect()
            };
            for request in reached {
                if let Some(volume) = self.volume_mut(request.volume) {
                    volume.reached += 1;
                }
            }
            announce(&self.queues, Owner::Transport);
        }
        self.driver
            .turn()
            .map_err(|_| "the driver gave up".to_owned())?;
        let replies = std::mem::take(&mut self.exchange.borrow_mut().replies);
        for reply in replies {
            self.take_reply(&reply)?;
        }
        self.take_answer()?;
        self.check_counters()
    }

    fn volume_mut(&mut self, index: VolumeIndex) -> Option<&mut Known> {
        self.volumes.iter_mut().find(|volume| volume.index == index)
    }

    fn take_reply(&mut self, reply: &Reply) -> Result<(), String> {
        self.moment += 1;
        let moment = self.moment;
        let under_way = self.under_way[reply.slot.0 as usize].take();
        let UnderWay {
            request,
            number,
            submitted,
            direct,
        } = under_way.ok_or("a reply that nobody waits for")?;
        let result = reply.result;
        self.note(|| format!("{number}: {result:?}"));
        let len = result.as_ref().copied().unwrap_or(request.len);
        if len != request.len {
            return Err(format!("{number}: {len} bytes instead of {}", request.len));
        }
        let Some(volume) = self.volume_mut(request.volume) else {
            return Ok(());
        };
        let well = result.is_ok();
        volume.failed += u64::from(!well);
        match request.op {
            Op::Read if well => volume
                .history
                .check_read(request.offset, &reply.data, submitted)
                .map_err(|error| format!("{number}: {error}")),
            Op::Flush if well => {
                volume.history.flushed(submitted);
                Ok(())
            }
            Op::Write | Op::Discard => {
                let durable = direct == Some(volume.changes);
                volume.history.end(number, well, durable, moment);
                Ok(())
            }
            Op::Read | Op::Flush => Ok(()),
        }
    }

    /// Whether some request of a volume is under way.
    fn is_busy(&self, index: VolumeIndex) -> bool {
        let mut under_way = self.under_way.iter().flatten();
        under_way.any(|one| one.request.volume == index)
    }

    fn send(&mut self, command: Command, asked: Asked) {
        self.commands.send(command).expect("room for one command");
        announce(&self.queues, Owner::Command);
        self.asked = Some(asked);
    }

    /// One thing at a time, as the control socket has it.
    fn administer(&mut self) {
        if self.asked.is_some() {
            return;
        }
        if self.volumes.is_empty() {
            return self.attach_new();
        }
        let which = self.chance.below(self.volumes.len() as u64) as usize;
        let index = self.volumes[which].index;
        if self.is_down && self.chance.below(2) == 0 {
            return self.fail(index, Fault::Recover);
        }
        match self.chance.below(16) {
            0 if self.volumes.len() + self.shelved.len() < 2 => self.attach_new(),
            0 | 1 if !self.shelved.is_empty() => self.attach_again(),
            2 if !self.is_busy(index) => {
                let (answer, answered) = sync_channel(1);
                self.note(|| format!("detach volume {}", index.0));
                self.send(
                    Command::Detach(index, answer),
                    Asked::Detach(index, answered),
                );
            }
            3..8 => self.change(index),
            8..10 => self.fail(index, Fault::Recover),
            10..14 => {
                let fault = self.fault(which);
                self.fail(index, fault);
            }
            _ => self.tweak(index),
        }
    }

    fn change(&mut self, index: VolumeIndex) {
        let mut change = Change::default();
        let caching = [Caching::None, Caching::ReadOnly, Caching::ReadWrite];
        let caching = caching[self.chance.below(3) as usize];
        let medium = self.volume_mut(index).map(|volume| volume.medium);
        if self.chance.below(4) > 0 && medium == Some(Medium::Remote) {
            change.caching = Some(caching);
        } else {
            change.limits = Some(limits(&mut self.chance));
        }
        self.set(index, change);
    }

    /// Changes a volume.
    pub fn set(&mut self, index: VolumeIndex, change: Change) {
        if let (Some(_), Some(volume)) = (change.caching, self.volume_mut(index)) {
            volume.changes += 1;
        }
        self.note(|| format!("set volume {}: {change:?}", index.0));
        let (answer, answered) = sync_channel(1);
        let asked = Asked::Set(index, change.caching, answered);
        self.send(Command::Set(index, change, answer), asked);
    }

    fn fault(&mut self, which: usize) -> Fault {
        let disks = self.driver.host.volume_named(&self.volumes[which].name);
        let disks = disks.and_then(|id| self.driver.host.volume(id));
        let disks = disks.map_or(1, |profile| profile.disks.len()) as u64;
        match self.chance.below(10) {
            0..5 => Fault::HostFailure,
            5 => Fault::Deallocate,
            6 => Fault::ErrorRate { ppm: 300_000 },
            7 => Fault::Slow {
                permille: 20_000,
                disk: Some(self.chance.below(disks) as u32),
            },
            8 => Fault::Stall { for_ns: None },
            _ => Fault::Stall {
                for_ns: Some(self.chance.below(1 << 30)),
            },
        }
    }

    /// Breaks or mends something.
    pub fn fail(&mut self, index: VolumeIndex, fault: Fault) {
        let mut fresh = Vec::new();
        if matches!(fault, Fault::HostFailure | Fault::Deallocate) {
            for volume in &self.volumes {
                if volume.medium != Medium::Remote {
                    fresh.push((volume.index, backing(self.files)));
                }
            }
        }
        self.note(|| format!("{fault:?} of volume {}", index.0));
        let (answer, answered) = sync_channel(1);
        let asked = Asked::Fail(fault.clone(), self.moment, answered);
        self.send(Command::Fail(index, fault, fresh, answer), asked);
    }

    /// What changes times or contents of the cache only.
    fn tweak(&mut self, index: VolumeIndex) {
        let what = self.chance.below(4);
        self.note(|| format!("tweak {what} of volume {}", index.0));
        let command = match what {
            0 => {
                let range = (Bytes::new(0), Bytes::new(VOLUME_BYTES / 2));
                Command::Warm(index, vec![range], sync_channel(1).0)
            }
            1 => Command::DropCache(index, sync_channel(1).0),
            2 => Command::Credits(self.chance.below(1_000_001) as u32, sync_channel(1).0),
            _ => {
                let factor = NonZeroU32::new(1 + self.chance.below(8) as u32);
                let dilation = Dilation::new(factor.expect("not zero"));
                Command::Dilate(dilation, sync_channel(1).0)
            }
        };
        self.send(command, Asked::Other);
    }

    fn attach_new(&mut self) {
        self.numbers += 1;
        let name = format!("v{}", self.numbers);
        let profile = volume(&mut self.chance, &name);
        self.attach(profile, backing(self.files));
    }

    fn attach(&mut self, profile: VolumeProfile, backing: Backing) {
        self.note(|| format!("attach {profile:?}"));
        let (answer, answered) = sync_channel(1);
        let timing = Timing::Model(Box::new(profile.clone()));
        let asked = Asked::Attach(profile, answered);
        self.send(Command::Attach(timing, backing, answer), asked);
    }

    fn attach_again(&mut self) {
        let (known, backing) = self.shelved.remove(0);
        let mut profile = volume(&mut self.chance, &known.name);
        for disk in &mut profile.disks {
            disk.medium = Medium::Remote;
        }
        // Its history goes on with its answer.
        self.note(|| format!("again: {}", known.name));
        self.returning = Some(known.history);
        self.attach(profile, backing);
    }

    fn take_answer(&mut self) -> Result<(), String> {
        self.moment += 1;
        match self.asked.take() {
            None | Some(Asked::Other) => Ok(()),
            Some(Asked::Attach(profile, answered)) => match answered.try_recv() {
                Ok(attached) => self.attached(&profile, attached),
                Err(_) => Err("an attach without an answer".to_owned()),
            },
            Some(Asked::Detach(index, answered)) => {
                let backing = answered.try_recv();
                self.detached(index, backing.map_err(|_| "a detach without an answer")?)
            }
            Some(Asked::Set(index, caching, answered)) => {
                let set = answered.try_recv().map_err(|_| "a set without an answer")?;
                let refused = set.is_err();
                if let (Some(caching), Some(volume)) = (caching, self.volume_mut(index)) {
                    // Nobody knows what held for an I/O that came meanwhile.
                    volume.changes += 1;
                    if !refused {
                        volume.caching = caching;
                    }
                }
                self.note(|| format!("set: refused {refused}"));
                Ok(())
            }
            Some(Asked::Fail(fault, since, answered)) => match answered.try_recv() {
                Ok(Ok(_)) => self.failed(&fault, since),
                Ok(Err(refusal)) => Err(format!("a fault was refused: {refusal:?}")),
                // It waits for data that move.
                Err(_) => {
                    self.asked = Some(Asked::Fail(fault, since, answered));
                    Ok(())
                }
            },
        }
    }

    fn attached(
        &mut self,
        profile: &VolumeProfile,
        answer: Result<VolumeIndex, Refusal>,
    ) -> Result<(), String> {
        let index = answer.map_err(|refusal| format!("an attach was refused: {refusal:?}"))?;
        let history = self.returning.take();
        self.volumes.push(Known {
            name: profile.name.clone(),
            index,
            medium: profile.disks[0].medium,
            history: history.unwrap_or_else(|| History::new(VOLUME_BYTES)),
            caching: profile.caching,
            changes: 0,
            reached: 0,
            failed: 0,
        });
        Ok(())
    }

    fn detached(&mut self, index: VolumeIndex, backing: Option<Backing>) -> Result<(), String> {
        let place = self.volumes.iter().position(|volume| volume.index == index);
        let mut known = self
            .volumes
            .remove(place.ok_or("a volume that nobody knows")?);
        let backing = backing.ok_or("an idle volume kept its data")?;
        // A detach in good order writes back all that was acknowledged.
        known.history.flushed(self.moment);
        let found = content(&backing);
        known.history.check_failure(&found, self.moment)?;
        if known.medium == Medium::Remote {
            self.shelved.push((known, backing));
        }
        Ok(())
    }

    /// The whole host has failed, or something of a volume.
    fn failed(&mut self, fault: &Fault, since: Moment) -> Result<(), String> {
        if !matches!(fault, Fault::HostFailure | Fault::Deallocate) {
            self.is_down &= *fault != Fault::Recover;
            return Ok(());
        }
        self.is_down = true;
        let moment = self.moment;
        self.note(|| "the failure is over".to_owned());
        for volume in &mut self.volumes {
            let driven = self.driver.volumes[volume.index.0 as usize].as_ref();
            let found = content(&driven.ok_or("a volume is gone")?.backing);
            if volume.medium != Medium::Remote {
                if found.iter().any(|&byte| byte != 0) {
                    return Err(format!("{}: local data survived {fault:?}", volume.name));
                }
                volume.history.settle(&found, moment);
                continue;
            }
            if *fault == Fault::Deallocate {
                volume.history.flushed(since + 1);
            }
            volume
                .history
                .check_failure(&found, moment)
                .map_err(|error| format!("volume {}: {error}", volume.index.0))?;
        }
        Ok(())
    }

    /// What reached a volume is decided or waits; what failed is counted once its reply has left.
    fn check_counters(&self) -> Result<(), String> {
        for volume in &self.volumes {
            let view = self
                .driver
                .view(volume.index)
                .ok_or("a volume without a view")?;
            let counters = view.counters;
            let decided = sum(&counters.operations, |one| one.ios);
            if decided + counters.queued != volume.reached {
                return Err(format!(
                    "volume {}: {decided} decided and {} queued of {}",
                    volume.index.0, counters.queued, volume.reached
                ));
            }
            let failed = sum(&counters.operations, |one| one.failed);
            let idle = !self.is_busy(volume.index);
            if failed < volume.failed || idle && failed != volume.failed {
                return Err(format!(
                    "volume {}: {failed} counted as failed, {} did",
                    volume.index.0, volume.failed
                ));
            }
        }
        Ok(())
    }

    /// Attaches a volume and returns its number.
    pub fn with(&mut self, profile: VolumeProfile) -> Result<VolumeIndex, String> {
        self.attach(profile, backing(false));
        self.look(true)?;
        let last = self.volumes.last().ok_or("no volume was attached")?;
        Ok(last.index)
    }

    /// Lets the driver do what it can now, and what is due until everything has ended that was submitted.
    pub fn go_on(&mut self, until_all_ended: bool) -> Result<(), String> {
        self.look(true)?;
        for _ in 0..LAST_LOOKS {
            let resting = self.under_way.iter().all(Option::is_none);
            if self.asked.is_none() && (resting || !until_all_ended) {
                return Ok(());
            }
            let next = [self.driver.due.next(), self.driver.host.next_event()];
            if let Some(next) = next.into_iter().flatten().min() {
                self.set_time(next.max(self.now));
            }
            self.look(true)?;
        }
        Err("something never ends".to_owned())
    }

    /// Everything that is under way must end once everything is mended.
    fn come_to_rest(&mut self) -> Result<(), String> {
        let mut mended = false;
        for _ in 0..LAST_LOOKS {
            let moving = self.queues.borrow().under_way.len();
            for _ in 0..moving {
                end_transfer(&self.queues, 0, Way::Whole);
            }
            let resting = self.under_way.iter().all(Option::is_none);
            if self.asked.is_none() && mended && resting {
                return self.check_rest();
            }
            if self.asked.is_none() && !mended {
                mended = true;
                match self.volumes.first().map(|volume| volume.index) {
                    Some(index) => self.fail(index, Fault::Recover),
                    None => return self.check_rest(),
                }
            }
            let next = [self.driver.due.next(), self.driver.host.next_event()];
            if let Some(next) = next.into_iter().flatten().min() {
                self.set_time(next.max(self.now));
            }
            self.look(true)?;
        }
        let left: Vec<u64> = self
            .under_way
            .iter()
            .flatten()
            .map(|one| one.number)
            .collect();
        Err(format!("{left:?} were never answered"))
    }

    fn check_rest(&self) -> Result<(), String> {
        for volume in &self.volumes {
            let driven = self.driver.volumes[volume.index.0 as usize].as_ref();
            let found = content(&driven.ok_or("a volume is gone")?.backing);
            volume.history.check_read(0, &found, self.moment + 1)?;
        }
        Ok(())
    }
}

fn sum(operations: &Operations, of: impl Fn(&disklab_disk::OperationCounters) -> u64) -> u64 {
    let Operations {
        read,
        write,
        flush,
        discard,
    } = operations;
    [read, write, flush, discard].into_iter().map(of).sum()
}

fn content(backing: &Backing) -> Vec<u8> {
    let mut found = vec![0; VOLUME_BYTES as usize];
    backing.read_now(0, &mut found).expect("a readable backing");
    found
}

fn backing(file: bool) -> Backing {
    match file {
        true => Backing::File(FileBacking::in_memory(VOLUME_BYTES).expect("memory")),
        false => Backing::Memory(MemoryBacking::new(VOLUME_BYTES, false).expect("memory")),
    }
}
