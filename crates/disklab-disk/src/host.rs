//! The whole model of one host behind one type.

use disklab_units::{Bytes, Instant};

use crate::agenda::Agenda;
use crate::cache::BlockCache;
use crate::counters::VolumeCounters;
use crate::fault::{Change, Fault};
use crate::gate::Gate;
use crate::io::{Completion, Destaged, Io, VolumeId};
use crate::lane::Lane;
use crate::parents::Parents;
use crate::profile::{Caching, HostProfile, Medium, VolumeProfile};
use crate::refusal::Refusal;
use crate::volume::Volume;

pub(crate) mod caching;
pub(crate) mod journal;

use caching::HostCache;
use journal::Journal;

/// What a host cache held; all of it clean.
#[derive(Clone, Debug)]
pub struct CacheContents(pub(crate) BlockCache);

/// Why no I/O gets through to any volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// It does get through.
    On,
    /// The host died.
    Failed,
    /// The VM is stopped and deallocated.
    Deallocated,
}

/// The model of one host. Pure: time is an argument, randomness comes from the profile's seed.
///
/// Protocol: call [`Host::submit`] for each I/O; it and [`Host::advance`] append the decisions that
/// became known to `out`. A decision may lie in the future: the caller holds it until `at`. Call
/// [`Host::advance`] when [`Host::next_event`] is due. `now` never runs backwards; where it does,
/// the latest time seen counts. A caller who comes late changes no decision: what was due happens
/// at its own time, and only an end that has passed meanwhile moves to `now`.
///
/// A clone goes on exactly as the original would. It costs a copy of the index of the host cache, about
/// twenty bytes for each block held.
#[derive(Clone)]
pub struct Host {
    /// The host as it was given, without its volumes.
    pub(crate) profile: HostProfile,
    /// The latest time seen, in nanoseconds.
    pub(crate) clock: u64,
    /// The time of what is happening: a due event's own time, which the clock may have passed.
    pub(crate) moment: u64,
    pub(crate) power: Power,
    /// By [`VolumeId`]; detached ones are empty.
    pub(crate) volumes: Vec<Option<Box<Volume>>>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) free_lanes: Vec<u32>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) free_gates: Vec<u32>,
    /// Gates of the VM's storage network, those of disks that share theirs first.
    pub(crate) uncached: Vec<u32>,
    /// The names of those disks, and their gates among `uncached`.
    pub(crate) shared: Vec<(String, Vec<u32>)>,
    /// Gates of the VM's host SSD.
    pub(crate) cached: Vec<u32>,
    pub(crate) parents: Parents,
    pub(crate) agenda: Agenda,
    pub(crate) cache: Option<HostCache>,
    /// What was destaged since somebody asked.
    pub(crate) destaged: Vec<Destaged>,
    /// What single I/Os did, where somebody wants to know.
    pub(crate) journal: Option<Box<Journal>>,
}

impl Host {
    /// Builds the model. Refuses an inconsistent profile with every reason.
    pub fn new(profile: HostProfile, start: Instant) -> Result<Host, Refusal> {
        Host::build(profile, start.as_nanos())
    }

    /// Adds a volume; its id is the number of volumes ever attached before.
    pub fn attach(&mut self, now: Instant, volume: VolumeProfile) -> Result<VolumeId, Refusal> {
        self.add_volume(now.as_nanos().max(self.clock), volume)
    }

    /// Removes a volume. Its waiting I/Os fail; its part of the cache is dropped.
    ///
    /// **Divergence:** dirty data of a ReadWrite cache are destaged at once, in no time: a cloud
    /// flushes before it lets a disk go, and whoever wants to see the time sends a FLUSH first.
    pub fn detach(&mut self, now: Instant, volume: VolumeId, out: &mut Vec<Completion>) {
        self.run(now.as_nanos(), out);
        self.remove_volume(volume.0, out);
    }

    /// The attached volume of that name.
    pub fn volume_named(&self, name: &str) -> Option<VolumeId> {
        self.volumes()
            .find_map(|(id, volume)| (volume.name == name).then_some(id))
    }

    /// Takes an I/O. One that does not lie within its volume, or whose volume is not attached,
    /// fails at once.
    pub fn submit(&mut self, now: Instant, io: Io, out: &mut Vec<Completion>) {
        self.run(now.as_nanos(), out);
        self.arrive(io, self.clock, out);
    }

    /// Has the processor fetch what the model will look up for an I/O that comes soon. Changes no
    /// decision and may be left out.
    ///
    /// A lookup in a large host cache waits for memory two thirds of its time. A caller who knows
    /// the next I/O before he submits this one, as one that takes requests in batches does, spares
    /// that wait by announcing it here. Of a long I/O only the first block is fetched.
    #[inline]
    pub fn announce(&self, io: &Io) {
        let entry = self.volumes.get(io.volume.0 as usize);
        if let Some(cache) = &self.cache
            && let Some(volume) = entry.and_then(|entry| entry.as_deref())
            && volume.profile.caching != Caching::None
        {
            let (member, offset) = match volume.stripe {
                None => (0, io.offset.get()),
                Some(stripe) => stripe.place(io.offset.get()),
            };
            cache.contents.prefetch(volume.lanes[member], offset);
        }
    }

    /// Lets time pass up to `now`: refills, destages, unblocks.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Completion>) {
        self.run(now.as_nanos(), out);
    }

    /// When [`Host::advance`] has something to do next; `None`: not until the next submit.
    pub fn next_event(&self) -> Option<Instant> {
        let at = self.agenda.next_at();
        (at != u64::MAX).then(|| Instant::from_nanos(at))
    }

    /// Changes a running volume at once: I/Os that still wait obey the new limits.
    ///
    /// Call [`Host::advance`] when [`Host::next_event`] is due, as always: what the change lets
    /// through is due now.
    pub fn change(
        &mut self,
        now: Instant,
        volume: VolumeId,
        change: &Change,
    ) -> Result<(), Refusal> {
        self.change_volume(now.as_nanos().max(self.clock), volume, change)
    }

    /// Sets every bucket of burst credits, of the VM's budgets and of all disks, to a share of what
    /// it holds, in parts per million; more than a million is full. Nothing is earned until the next
    /// I/O, which finds just these.
    ///
    /// As after [`Host::change`], what this lets through is due now.
    pub fn set_credits(&mut self, now: Instant, ppm: u32) {
        self.set_credits_of_all(now.as_nanos().max(self.clock), ppm);
    }

    /// Injects a fault. `HostFailure`, `Deallocate` and `Recover` concern the whole host, whatever
    /// the volume.
    pub fn inject(
        &mut self,
        now: Instant,
        volume: VolumeId,
        fault: &Fault,
        out: &mut Vec<Completion>,
    ) -> Result<(), Refusal> {
        self.run(now.as_nanos(), out);
        self.inject_fault(volume, fault, out)
    }

    /// Moves the ranges destaged since the last call into `out` (in order of completion). They are
    /// kept until then, so a caller with ReadWrite volumes asks from time to time.
    pub fn take_destaged(&mut self, out: &mut Vec<Destaged>) {
        out.append(&mut self.destaged);
    }

    /// Whether an acknowledged write survives only after FLUSH or destage (ReadWrite caching).
    pub fn write_is_volatile(&self, volume: VolumeId) -> bool {
        let entry = self.volumes.get(volume.0 as usize);
        entry
            .and_then(|entry| entry.as_deref())
            .is_some_and(|volume| {
                // What had started before the caching changed still ends in the cache.
                volume.profile.caching == Caching::ReadWrite || volume.draining
            })
    }

    /// Where the volume's data live. Of a volume no longer attached: remote.
    pub fn medium(&self, volume: VolumeId) -> Medium {
        self.volume(volume)
            .map_or(Medium::Remote, |profile| profile.disks[0].medium)
    }

    /// The profile of a volume as it is now, changes included; `None`: not attached.
    pub fn volume(&self, volume: VolumeId) -> Option<&VolumeProfile> {
        let entry = self.volumes.get(volume.0 as usize)?.as_deref()?;
        Some(&entry.profile)
    }

    /// The attached volumes, in order of attachment.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, &VolumeProfile)> {
        (0..)
            .map(VolumeId)
            .zip(&self.volumes)
            .filter_map(|(id, entry)| {
                let entry = entry.as_deref()?;
                Some((id, &entry.profile))
            })
    }

    /// What is wrong with a volume now: the faults that were injected and not mended.
    pub fn faults(&self, volume: VolumeId) -> Vec<Fault> {
        self.faults_of(volume)
    }

    /// What a volume did up to now and which limits held it up. Of a volume no longer attached:
    /// nothing.
    pub fn counters(&self, now: Instant, volume: VolumeId) -> VolumeCounters {
        self.count(now.as_nanos().max(self.clock), volume)
    }

    /// Appends the ranges that a host failure would lose now: acknowledged by a ReadWrite cache, not
    /// yet destaged. In units of whole 4 KiB sectors, ascending, at most 4 GiB each. Ask before
    /// injecting [`Fault::HostFailure`]; afterwards there are none.
    pub fn dirty_ranges(&self, volume: VolumeId, out: &mut Vec<Destaged>) {
        self.list_dirty(volume, out);
    }

    /// Whether a host failure would lose the 4 KiB sector at `offset` now: one of [`Host::dirty_ranges`] has it.
    pub fn is_dirty(&self, volume: VolumeId, offset: Bytes) -> bool {
        self.sector_is_dirty(volume, offset.get())
    }

    /// Fills the host cache with a range of a volume, as reads at some earlier time would have done.
    /// Takes no time and no tokens; does nothing without host caching.
    pub fn warm(&mut self, volume: VolumeId, offset: Bytes, len: Bytes) {
        self.fill_cache(volume, offset.get(), len.get());
    }

    /// Takes what the host cache holds out of it; `None`: the host has none. For a host that nobody asks any more.
    pub fn take_cache(&mut self) -> Option<CacheContents> {
        self.remove_cache().map(CacheContents)
    }

    /// Fills the host cache with what another host of the same volumes had, without volumes that use none now. Does
    /// nothing where size or block differ.
    pub fn put_cache(&mut self, contents: CacheContents) {
        self.replace_cache(contents.0);
    }

    /// Empties a volume's part of the host cache, except what is dirty.
    pub fn drop_cache(&mut self, volume: VolumeId) {
        self.empty_cache(volume.0);
    }

    #[inline]
    pub(crate) fn is_down(&self) -> bool {
        self.power != Power::On
    }

    #[inline]
    pub(crate) fn volume_mut(&mut self, volume: u32) -> Option<&mut Volume> {
        self.volumes.get_mut(volume as usize)?.as_deref_mut()
    }
}
