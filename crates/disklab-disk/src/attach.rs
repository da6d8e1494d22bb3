//! Building a host, adding volumes to it, taking them away.

use crate::agenda::Agenda;
use crate::gate::{Gate, Place};
use crate::host::caching::HostCache;
use crate::host::{Host, Power};
use crate::io::{Completion, VolumeId};
use crate::lane::{Lane, ServiceTimes, Streams};
use crate::limit::Meter;
use crate::parents::Parents;
use crate::part::{Part, Route};
use crate::profile::{Caching, DiskProfile, HostProfile, Limit, Medium, Scope, VolumeProfile};
use crate::refusal::Refusal;
use crate::validate;
use crate::volume::Volume;
use disklab_units::random::Stream;

impl Host {
    pub(crate) fn build(mut profile: HostProfile, now: u64) -> Result<Host, Refusal> {
        validate::host(&profile)?;
        let volumes = std::mem::take(&mut profile.volumes);
        let mut host = Host {
            clock: now,
            moment: now,
            power: Power::On,
            volumes: Vec::new(),
            lanes: Vec::new(),
            free_lanes: Vec::new(),
            gates: Vec::new(),
            free_gates: Vec::new(),
            uncached: Vec::new(),
            shared: Vec::new(),
            cached: Vec::new(),
            parents: Parents::default(),
            agenda: Agenda::new(),
            cache: profile.cache.as_ref().map(HostCache::new),
            destaged: Vec::new(),
            journal: None,
            profile,
        };
        host.uncached = host.add_gates(&host.profile.uncached.clone(), Place::Uncached, now);
        host.cached = host.add_gates(&host.profile.cached.clone(), Place::Cached, now);
        for volume in volumes {
            host.put_volume(now, volume);
        }
        Ok(host)
    }

    pub(crate) fn add_volume(
        &mut self,
        now: u64,
        volume: VolumeProfile,
    ) -> Result<VolumeId, Refusal> {
        let attached: Vec<&VolumeProfile> = self.volumes().map(|(_, volume)| volume).collect();
        validate::volume(&volume, &self.profile, &attached)?;
        Ok(self.put_volume(now, volume))
    }

    fn put_volume(&mut self, now: u64, profile: VolumeProfile) -> VolumeId {
        let id = u32::try_from(self.volumes.len()).expect("fewer volumes than 2^32");
        let mut lanes = Vec::new();
        for (member, disk) in profile.disks.iter().enumerate() {
            let streams = Streams::new(self.profile.seed, &profile.name, member);
            let times = ServiceTimes::new(&disk.latency);
            let mut lane = Lane::new(id, member as u32, times, streams);
            lane.gates = self.add_gates(&disk.limits, Place::Disk, now);
            lanes.push(self.put_lane(lane));
        }
        for &lane in &lanes {
            self.lay_routes(lane, &profile);
        }
        let chance = Stream::new(self.profile.seed, &format!("{} faults", profile.name));
        let name = profile.disks[0].name.clone();
        let volume = Volume::new(profile, lanes, chance);
        self.volumes.push(Some(Box::new(volume)));
        self.share(&name, now);
        VolumeId(id)
    }

    /// Gives all disks of a name what they have together, once there are several volumes of them.
    fn share(&mut self, name: &str, now: u64) {
        let shares = |disk: &DiskProfile| disk.name == name && !disk.shared.is_empty();
        let volumes = self.volumes.iter().flatten();
        let alike: Vec<(VolumeProfile, Vec<u32>)> = volumes
            .filter(|volume| shares(&volume.profile.disks[0]))
            .map(|volume| (volume.profile.clone(), volume.lanes.clone()))
            .collect();
        let known = self.shared.iter().position(|(disk, _)| disk == name);
        let Some((first, _)) = alike.first() else {
            return;
        };
        if alike.len() == 1 && known.is_none() {
            return;
        }
        let sum = |index: usize| -> u64 {
            let disks = alike.iter().flat_map(|(volume, _)| &volume.disks);
            disks
                .filter_map(|disk| disk.shared.get(index))
                .map(|limit| limit.part)
                .sum()
        };
        let together = first.disks[0].shared.iter().enumerate();
        let limits: Vec<Limit> = together
            .map(|(index, limit)| Limit {
                scope: limit.scope,
                unit: limit.unit,
                per_s: (limit.of_host + sum(index)).min(limit.most),
                io_unit_bytes: None,
                window_ns: 0,
                burst: None,
            })
            .collect();
        if let Some(known) = known {
            for (gate, limit) in self.shared[known].1.clone().into_iter().zip(&limits) {
                self.gates[gate as usize].meter_mut().change(limit, now);
                self.plan_gate(gate, now);
            }
        } else {
            let gates = self.add_gates(&limits, Place::Shared, now);
            for &gate in &gates {
                self.gates[gate as usize].reserve_lines(self.lanes.len());
            }
            self.uncached.splice(0..0, gates.iter().copied());
            self.shared.push((name.to_owned(), gates));
        }
        for (volume, lanes) in alike {
            for lane in lanes {
                let waiting = self.clear_lines(lane, now);
                self.lay_routes(lane, &volume);
                self.resume_elsewhere(lane, waiting, now);
            }
        }
    }

    fn put_lane(&mut self, lane: Lane) -> u32 {
        let number = match self.free_lanes.pop() {
            Some(number) => {
                self.lanes[number as usize] = lane;
                number
            }
            None => {
                self.lanes.push(lane);
                u32::try_from(self.lanes.len() - 1).expect("fewer lanes than 2^32")
            }
        };
        for &gate in self.uncached.iter().chain(&self.cached) {
            self.gates[gate as usize].reserve_lines(self.lanes.len());
            self.gates[gate as usize].reset_line(number);
        }
        if let Some(cache) = &mut self.cache {
            cache.contents.reset_share(number);
        }
        number
    }

    pub(crate) fn add_gates(&mut self, limits: &[Limit], place: Place, now: u64) -> Vec<u32> {
        let mut numbers = Vec::new();
        for limit in limits {
            let gate = Gate::new(Meter::new(limit, now), place);
            let number = match self.free_gates.pop() {
                Some(number) => {
                    self.gates[number as usize] = gate;
                    number
                }
                None => {
                    self.gates.push(gate);
                    u32::try_from(self.gates.len() - 1).expect("fewer gates than 2^32")
                }
            };
            numbers.push(number);
        }
        numbers
    }

    /// Lays the routes of a lane. The private limits come before the shared ones, so that nobody
    /// spends a token of the VM before he can use it.
    pub(crate) fn lay_routes(&mut self, lane: u32, volume: &VolumeProfile) {
        let (mut disk, own) = (
            self.lanes[lane as usize].gates.clone(),
            &volume.disks[self.lanes[lane as usize].member as usize],
        );
        let medium = own.medium;
        let shares = |name: &String| *name == own.name && !own.shared.is_empty();
        if self.shared.iter().any(|(name, _)| shares(name)) {
            disk.clear();
        }
        let of_others = |gate: &u32| {
            let mut groups = self.shared.iter();
            groups.any(|(name, gates)| !shares(name) && gates.contains(gate))
        };
        let caches = volume.caching != Caching::None;
        let (network, ssd): (&[u32], &[u32]) = match medium {
            Medium::Remote if caches => (&self.uncached, &self.cached),
            Medium::Remote => (&self.uncached, &[]),
            Medium::Temp => (&[], &self.cached),
            Medium::Nvme => (&[], &[]),
        };
        let join = |scope, groups: [&[u32]; 3]| -> Vec<u32> {
            let all = groups.into_iter().flatten().copied();
            all.filter(|&gate| {
                if of_others(&gate) {
                    return false;
                }
                let counts = self.gates[gate as usize].meter().limit().scope;
                counts == Scope::All || counts == scope
            })
            .collect()
        };
        let charges = (self.cache.as_ref()).is_some_and(|cache| cache.charges_writes);
        let (at_ack, at_destage) = if charges {
            ([&disk, network, ssd], [&[][..]; 3])
        } else {
            ([&[][..], &[], ssd], [&disk[..], network, &[]])
        };
        let routes = [
            (Route::Read, join(Scope::Read, [&disk, network, ssd])),
            (Route::Write, join(Scope::Write, [&disk, network, ssd])),
            (Route::Hit, join(Scope::Read, [&[], &[], ssd])),
            (Route::WriteBack, join(Scope::Write, at_ack)),
            (Route::Destage, join(Scope::Write, at_destage)),
        ];
        for (route, gates) in routes {
            self.lanes[lane as usize].set_route(route, gates);
        }
    }

    pub(crate) fn remove_volume(&mut self, volume: u32, out: &mut Vec<Completion>) {
        if self.volume_mut(volume).is_none() {
            return;
        }
        self.fail_waiting(volume, out);
        self.forget_dirty(volume, true, out);
        let Some(entry) = self.volumes[volume as usize].take() else {
            return;
        };
        for lane in entry.lanes {
            if let Some(cache) = &mut self.cache {
                cache.contents.drop_lane(lane, |_| 0);
            }
            let gates = std::mem::take(&mut self.lanes[lane as usize].gates);
            self.free_gates.extend(gates);
            self.free_lanes.push(lane);
        }
        let name = entry.profile.disks[0].name.clone();
        self.share(&name, self.clock);
    }

    /// Fails every I/O of a volume whose end is not decided.
    pub(crate) fn fail_waiting(&mut self, volume: u32, out: &mut Vec<Completion>) {
        let now = self.clock;
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        let held = std::mem::take(&mut entry.held);
        let mut parts: Vec<Part> = std::mem::take(&mut entry.kept).into();
        for lane in entry.lanes.clone() {
            let waiting = self.clear_lines(lane, now);
            parts.extend(waiting.into_iter().map(|(_, part)| part));
            parts.extend(self.leave_room_queue(lane));
        }
        for part in parts {
            self.give_back_room(&part);
            self.end_part(part, now, true, out);
        }
        for io in held {
            self.end_whole(io, now, true, out);
        }
    }
}
