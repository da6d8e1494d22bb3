//! What the control threads ask for, done between two I/Os.

use std::sync::mpsc::SyncSender;

use disklab_disk::profile::Caching;
use disklab_disk::profile::VolumeProfile;
use disklab_disk::{CacheCounters, Change, Destaged, Fault, Reason, Refusal};
use disklab_units::{Bytes, Dilation};

use crate::backing::Backing;
use crate::clock;
use crate::command::{Command, EmulatorCounters, LatenessSummary, Timing, View};
use crate::driver::Driver;
use crate::driver::volume::{Timed, Volume};
use crate::preimage::Preimages;
use crate::transport::{Shown, Slot, VolumeIndex};

/// What a host failure leaves to do once no data move any more.
pub struct Erasure {
    /// Un-flushed writes that the cache takes with it.
    lost: Vec<Destaged>,
    /// Empty backings for the disks of the host itself.
    fresh: Vec<(VolumeIndex, Backing)>,
    answer: SyncSender<Result<Vec<Backing>, Refusal>>,
}

impl Driver {
    /// Does every command that waits. A client that has gone does not want its answer.
    pub(super) fn commands(&mut self) {
        self.inbox.silence();
        while let Some(command) = self.inbox.take() {
            match command {
                Command::Attach(timing, backing, answer) => {
                    let _ = answer.send(self.attach(timing, backing));
                }
                Command::IssueTimes(times, answer) => {
                    self.issue_times = Some(*times);
                    let _ = answer.send(());
                }
                Command::Device(index, device, answer) => {
                    if let Some(Some(volume)) = self.volumes.get_mut(index.0 as usize) {
                        volume.device = Some(device);
                    }
                    let _ = answer.send(());
                }
                Command::Detach(index, answer) => {
                    let _ = answer.send(self.detach(index));
                }
                Command::Show(index, answer) => {
                    let _ = answer.send(self.view(index));
                }
                Command::Set(index, change, answer) => {
                    let _ = answer.send(self.set(index, &change));
                }
                Command::Fail(index, fault, fresh, answer) => {
                    self.fail(index, fault, fresh, answer)
                }
                Command::Warm(index, ranges, answer) => {
                    let _ = answer.send(self.warm(index, &ranges));
                }
                Command::DropCache(index, answer) => {
                    let _ = answer.send(self.drop_cache(index));
                }
                Command::Pace(index, latency, answer) => {
                    if let Some(Some(volume)) = self.volumes.get_mut(index.0 as usize)
                        && let Timed::Constant(old) = &mut volume.timed
                    {
                        *old = latency;
                    }
                    let _ = answer.send(());
                }
                Command::Tune(tuning, answer) => {
                    self.tuning = tuning;
                    let _ = answer.send(());
                }
                Command::Credits(ppm, answer) => {
                    let now = clock::now();
                    self.host.set_credits(now, ppm);
                    self.host.advance(now, &mut self.completions);
                    self.settle(now);
                    let _ = answer.send(());
                }
                Command::Dilate(dilation, answer) => {
                    self.dilate(dilation);
                    let _ = answer.send(());
                }
                Command::Stop => self.stopping = true,
            }
        }
    }

    /// Takes the memory that a ReadWrite cache needs.
    fn prepare_for(&mut self, caching: Caching) -> Result<(), Refusal> {
        if caching == Caching::ReadWrite && self.preimages.is_none() {
            let preimages = Preimages::new().map_err(|error| {
                refusal(
                    "caching",
                    "ReadWrite",
                    &format!("the kernel has no memory for what may have to be undone: {error}"),
                    "free some memory or choose ReadOnly",
                )
            })?;
            self.preimages = Some(preimages);
        }
        Ok(())
    }

    fn attach(&mut self, timing: Timing, backing: Backing) -> Result<VolumeIndex, Refusal> {
        let (timed, name, size) = match timing {
            Timing::Model(profile) => {
                self.prepare_for(profile.caching)?;
                let (name, size) = (profile.name.clone(), profile.size_bytes);
                let id = self.host.attach(clock::now(), *profile)?;
                (Timed::Model(id), name, size)
            }
            Timing::Constant {
                name,
                size,
                latency,
            } => (Timed::Constant(latency), name, size),
        };
        let index = VolumeIndex(u32::try_from(self.volumes.len()).expect("few volumes"));
        self.volumes.push(Some(Volume::new(timed, size, backing)));
        let shown = Shown { name, size };
        let slots = self.transport.show(&mut self.ring, index, Some(shown)) as usize;
        self.slots.resize(slots, None);
        self.due.reserve(slots);
        let more = slots.saturating_sub(self.requests.len());
        self.requests.reserve(more);
        self.completions.reserve(more);
        self.destaged.reserve(more);
        Ok(index)
    }

    /// The loop device has gone by now, so that nothing is in flight except what a program does to the file
    /// itself; that fails.
    fn detach(&mut self, index: VolumeIndex) -> Option<Backing> {
        let now = clock::now();
        self.transport.show(&mut self.ring, index, None);
        if let Some(preimages) = &mut self.preimages {
            preimages.forget_all(Some(index));
        }
        if let Some(id) = self.model_id(index) {
            self.host.detach(now, id, &mut self.completions);
            self.settle(now);
        }
        let moving = self
            .slots
            .iter()
            .flatten()
            .any(|in_flight| in_flight.moving && in_flight.request.volume == index);
        // A file in use by the kernel stays open until this process ends.
        if moving {
            return None;
        }
        let slots = &self.slots;
        self.due.retain(|slot| {
            slots[slot.0 as usize].is_some_and(|in_flight| in_flight.request.volume != index)
        });
        for number in 0..self.slots.len() {
            let slot = Slot(number as u32);
            if let Some(in_flight) = &mut self.slots[number]
                && in_flight.request.volume == index
            {
                in_flight.lost = true;
                self.finish(slot, now);
            }
        }
        self.volumes
            .get_mut(index.0 as usize)?
            .take()
            .map(|volume| volume.backing)
    }

    pub(super) fn view(&self, index: VolumeIndex) -> Option<View> {
        let id = self.model_id(index)?;
        let volume = self.volumes[index.0 as usize].as_ref()?;
        let mut counters = self.host.counters(clock::now(), id);
        volume.add_failed(&mut counters.operations);
        Some(View {
            profile: self.host.volume(id)?.clone(),
            counters,
            emulator: EmulatorCounters {
                transport: self.kind,
                replies: volume.replies,
                timed_from_issue: volume.timed_from_issue,
                late_replies: volume.late_replies,
                lateness_ns: LatenessSummary::of(&volume.lateness),
                latency_ns: volume.latency_summaries(),
                overhead_ns: self
                    .tuning
                    .overhead
                    .after(disklab_units::Duration::from_millis(1))
                    .as_nanos(),
                backing_read_ios: volume.backing_reads,
                backing_write_ios: volume.backing_writes,
                unkept_sectors: self.preimages.as_ref().map_or(0, Preimages::evicted),
                still_ns: LatenessSummary::of(&self.still),
            },
            faults: self.host.faults(id),
            failure: volume.backing.failure().map(str::to_owned),
        })
    }

    fn warm(&mut self, index: VolumeIndex, ranges: &[(Bytes, Bytes)]) -> Option<CacheCounters> {
        let id = self.model_id(index)?;
        for &(offset, len) in ranges {
            self.host.warm(id, offset, len);
        }
        self.host.counters(clock::now(), id).cache
    }

    fn drop_cache(&mut self, index: VolumeIndex) -> Option<CacheCounters> {
        let id = self.model_id(index)?;
        self.host.drop_cache(id);
        self.host.counters(clock::now(), id).cache
    }

    fn set(&mut self, index: VolumeIndex, change: &Change) -> Result<VolumeProfile, Refusal> {
        let id = self.model_id(index).ok_or_else(unknown)?;
        let now = clock::now();
        self.prepare_for(change.caching.unwrap_or_default())?;
        self.host.change(now, id, change)?;
        self.host.advance(now, &mut self.completions);
        self.settle(now);
        self.host.volume(id).cloned().ok_or_else(unknown)
    }

    /// Changes the clock, and with it the times of the replies that wait: until the host's own clock is there the model
    /// holds what they acknowledge for undone, and a host failure would take back what a FLUSH has promised.
    fn dilate(&mut self, dilation: Dilation) {
        let now = clock::now();
        let before = self.host.clocks();
        self.host.set_dilation(now, dilation);
        let after = self.host.clocks();
        let waiting: Vec<Slot> = std::iter::from_fn(|| self.due.pop()).collect();
        for slot in waiting {
            let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
                continue;
            };
            if in_flight.due > now {
                in_flight.due = after.of_machine(before.of_system(in_flight.due));
            }
            let send = self.tuning.overhead.sends(in_flight.issued, in_flight.due);
            self.due.push(send, slot);
        }
    }

    fn fail(
        &mut self,
        index: VolumeIndex,
        fault: Fault,
        fresh: Vec<(VolumeIndex, Backing)>,
        answer: SyncSender<Result<Vec<Backing>, Refusal>>,
    ) {
        let now = clock::now();
        let Some(id) = self.model_id(index) else {
            let _ = answer.send(Err(unknown()));
            return;
        };
        let lost = match fault {
            Fault::HostFailure => {
                // A FLUSH is answered by so much before it ends for the model, and what it waited for until then must
                // not be taken back.
                let told = now + self.tuning.overhead.most();
                self.host.advance(told, &mut self.completions);
                self.settle(now);
                self.doomed()
            }
            _ => Vec::new(),
        };
        if let Err(refusal) = self.host.inject(now, id, &fault, &mut self.completions) {
            let _ = answer.send(Err(refusal));
            return;
        }
        let ends = matches!(fault, Fault::HostFailure | Fault::Deallocate);
        if ends {
            // Before anything ends: what it overwrote may have to go back.
            self.erasure = Some(Erasure {
                lost,
                fresh,
                answer: answer.clone(),
            });
        }
        self.host.advance(now, &mut self.completions);
        self.settle(now);
        if !ends {
            let _ = answer.send(Ok(Vec::new()));
            return;
        }
        // What was decided before the failure but not yet told fails as well: the host is gone.
        while let Some(slot) = self.due.pop() {
            if let Some(in_flight) = &mut self.slots[slot.0 as usize] {
                in_flight.lost = true;
            }
            self.ready(slot, now);
        }
    }

    /// Ends a host failure: once no data move, so that nothing is written after it.
    pub(super) fn erase_when_still(&mut self) {
        if self.erasure.is_none() || self.transfers > 0 {
            return;
        }
        let Some(Erasure {
            lost,
            fresh,
            answer,
        }) = self.erasure.take()
        else {
            return;
        };
        self.put_back(&lost);
        let mut old = Vec::with_capacity(fresh.len());
        for (index, backing) in fresh {
            if let Some(Some(volume)) = self.volumes.get_mut(index.0 as usize) {
                old.push(std::mem::replace(&mut volume.backing, backing));
            }
        }
        let _ = answer.send(Ok(old));
    }
}

fn unknown() -> Refusal {
    refusal(
        "volume",
        "not attached",
        "the volume was detached meanwhile",
        "list the volumes",
    )
}

fn refusal(place: &str, value: &str, rule: &str, way_out: &str) -> Refusal {
    Refusal {
        reasons: vec![Reason {
            place: place.to_owned(),
            value: value.to_owned(),
            rule: rule.to_owned(),
            way_out: way_out.to_owned(),
        }],
    }
}
