//! Changing a running volume, breaking it, mending it.

use crate::agenda::Event;
use crate::fault::{Change, Fault};
use crate::gate::Place;
use crate::host::{Host, Power};
use crate::io::{Completion, VolumeId};
use crate::lane::{AS_PROMISED, ServiceTimes};
use crate::part::Part;
use crate::profile::{Limit, Unit, VolumeProfile};
use crate::refusal::Refusal;
use crate::validate;
use crate::volume::Stall;

impl Host {
    pub(crate) fn change_volume(
        &mut self,
        now: u64,
        id: VolumeId,
        change: &Change,
    ) -> Result<(), Refusal> {
        let profile = self.volume(id).ok_or_else(|| validate::not_attached(id))?;
        let changed = validate::change(profile, &self.profile, change)?;
        let Some(entry) = self.volume_mut(id.0) else {
            return Ok(());
        };
        let was = entry.profile.caching;
        entry.profile = changed.clone();
        let lanes = entry.lanes.clone();
        for &lane in &lanes {
            if let Some(limits) = &change.limits {
                self.change_limits(lane, limits, &changed, now);
            }
            if let Some(latency) = &change.latency {
                self.lanes[lane as usize].times = ServiceTimes::new(latency);
            }
            self.set_disk_credits(lane, Unit::Ios, change.credit_ios, now);
            self.set_disk_credits(lane, Unit::Bytes, change.credit_bytes, now);
        }
        self.change_caching(id.0, was, now);
        Ok(())
    }

    /// Gives a disk other limits. Where the new ones count the same as the old, in the same order,
    /// everybody keeps his place; otherwise those who waited at the old ones start again.
    fn change_limits(&mut self, lane: u32, limits: &[Limit], changed: &VolumeProfile, now: u64) {
        let old = self.lanes[lane as usize].gates.clone();
        let counts = |limit: &Limit| (limit.unit, limit.scope);
        let same = old.len() == limits.len()
            && old.iter().zip(limits).all(|(&gate, limit)| {
                counts(self.gates[gate as usize].meter().limit()) == counts(limit)
            });
        let shared = self
            .shared
            .iter()
            .any(|(disk, _)| *disk == changed.disks[0].name);
        if same && !shared {
            for (&gate, limit) in old.iter().zip(limits) {
                self.gates[gate as usize].meter_mut().change(limit, now);
                self.plan_gate(gate, now);
            }
            return;
        }
        let waiting = self.clear_lines(lane, now);
        let new = self.add_gates(limits, Place::Disk, now);
        self.lanes[lane as usize].gates = new;
        self.free_gates.extend(old);
        self.lay_routes(lane, changed);
        self.resume_elsewhere(lane, waiting, now);
    }

    /// Takes everybody out of a lane's lines, those who had come furthest first, each with the gate
    /// at which he stood.
    pub(crate) fn clear_lines(&mut self, lane: u32, now: u64) -> Vec<(u32, Part)> {
        let mut all = Vec::new();
        let shared = self.cached.iter().chain(&self.uncached);
        let own = self.lanes[lane as usize].gates.iter().rev();
        for gate in shared.chain(own).copied().collect::<Vec<u32>>() {
            let mut waiting = Vec::new();
            self.gates[gate as usize].clear_line(now, lane, &mut waiting);
            all.extend(waiting.into_iter().map(|part| (gate, part)));
            self.plan_gate(gate, now);
        }
        all
    }

    /// Lets parts go on at the gate at which they stood, if their route still has it; those who
    /// stood at a limit of the disk that is gone begin again, others have nothing left to pay.
    pub(crate) fn resume_elsewhere(&mut self, lane: u32, waiting: Vec<(u32, Part)>, now: u64) {
        let entry = &self.lanes[lane as usize];
        let volume = entry.volume;
        let moved: Vec<Part> = waiting
            .into_iter()
            .map(|(gate, mut part)| {
                let route = entry.route(part.route);
                let shared = self.uncached.contains(&gate) || self.cached.contains(&gate);
                let place = route.iter().position(|&other| other == gate);
                let step = place.unwrap_or(if shared { route.len() } else { 0 });
                part.step = u8::try_from(step).expect("validation bounds the limits");
                part
            })
            .collect();
        if let Some(entry) = self.volume_mut(volume) {
            entry.kept.extend(moved);
            self.agenda.push(now, Event::Resume(volume));
        }
    }

    fn set_disk_credits(&mut self, lane: u32, unit: Unit, units: Option<u64>, now: u64) {
        let Some(units) = units else { return };
        for gate in self.lanes[lane as usize].gates.clone() {
            let meter = self.gates[gate as usize].meter_mut();
            if meter.limit().unit == unit {
                meter.set_credits(now, units);
                self.plan_gate(gate, now);
            }
        }
    }

    pub(crate) fn set_credits_of_all(&mut self, now: u64, ppm: u32) {
        for gate in 0..self.gates.len() as u32 {
            self.gates[gate as usize].meter_mut().set_credit_share(ppm);
            self.plan_gate(gate, now);
        }
    }

    /// Plans the opening of a gate anew, after its limit or its queue changed.
    pub(crate) fn plan_gate(&mut self, gate: u32, now: u64) {
        if let Some(opens_at) = self.gates[gate as usize].reschedule(now) {
            self.agenda.push(opens_at, Event::Gate(gate));
        }
    }

    pub(crate) fn inject_fault(
        &mut self,
        id: VolumeId,
        fault: &Fault,
        out: &mut Vec<Completion>,
    ) -> Result<(), Refusal> {
        let profile = self.volume(id).ok_or_else(|| validate::not_attached(id))?;
        validate::fault(profile, fault)?;
        let now = self.clock;
        match *fault {
            Fault::ErrorRate { ppm } => {
                if let Some(volume) = self.volume_mut(id.0) {
                    volume.error_ppm = ppm;
                }
            }
            Fault::Slow { permille, disk } => self.slow(id.0, permille, disk),
            Fault::Stall { for_ns } => {
                let stall = match for_ns {
                    None => Stall::UntilMended,
                    Some(ns) => Stall::Until(now.saturating_add(ns)),
                };
                if let Stall::Until(end) = stall {
                    self.agenda.push(end, Event::Resume(id.0));
                }
                if let Some(volume) = self.volume_mut(id.0) {
                    volume.stall = stall;
                }
                self.run(now, out);
            }
            Fault::HostFailure => self.power_off(Power::Failed, out),
            Fault::Deallocate => self.power_off(Power::Deallocated, out),
            Fault::Recover => self.recover(out),
        }
        Ok(())
    }

    fn slow(&mut self, volume: u32, permille: u32, disk: Option<u32>) {
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        for (member, lane) in entry.lanes.clone().into_iter().enumerate() {
            if disk.is_none_or(|disk| disk as usize == member) {
                self.lanes[lane as usize].slow_permille = permille;
            }
        }
    }

    fn power_off(&mut self, power: Power, out: &mut Vec<Completion>) {
        self.power = power;
        for volume in 0..self.volumes.len() as u32 {
            self.fail_waiting(volume, out);
            // A clean stop destages first; it takes no time here.
            self.forget_dirty(volume, power == Power::Deallocated, out);
        }
        if let Some(cache) = &mut self.cache {
            cache.contents.clear();
        }
    }

    fn recover(&mut self, out: &mut Vec<Completion>) {
        let now = self.clock;
        self.power = Power::On;
        for volume in 0..self.volumes.len() as u32 {
            let Some(entry) = self.volume_mut(volume) else {
                continue;
            };
            entry.error_ppm = 0;
            entry.stall = Stall::No;
            self.slow(volume, AS_PROMISED, None);
            self.resume(volume, now, out);
        }
    }

    pub(crate) fn faults_of(&self, id: VolumeId) -> Vec<Fault> {
        let mut faults = Vec::new();
        let entry = self.volumes.get(id.0 as usize);
        let Some(entry) = entry.and_then(|entry| entry.as_deref()) else {
            return faults;
        };
        match self.power {
            Power::On => {}
            Power::Failed => faults.push(Fault::HostFailure),
            Power::Deallocated => faults.push(Fault::Deallocate),
        }
        if entry.error_ppm > 0 {
            let ppm = entry.error_ppm;
            faults.push(Fault::ErrorRate { ppm });
        }
        for (&lane, disk) in entry.lanes.iter().zip(0..) {
            let permille = self.lanes[lane as usize].slow_permille;
            if permille != AS_PROMISED {
                let disk = Some(disk);
                faults.push(Fault::Slow { permille, disk });
            }
        }
        match entry.stall {
            Stall::No => {}
            Stall::UntilMended => faults.push(Fault::Stall { for_ns: None }),
            Stall::Until(end) => faults.push(Fault::Stall {
                for_ns: Some(end.saturating_sub(self.clock)),
            }),
        }
        faults
    }
}
