//! The whole model of one host behind one type.
//!
//! This first version grants everything at once; the layers replace its inside, not its face.

use disklab_units::{Bytes, Duration, Instant};

use crate::counters::{Operations, VolumeCounters};
use crate::fault::{Change, Fault};
use crate::io::{Completion, Destaged, Io, Outcome, VolumeId};
use crate::profile::{HostProfile, Medium, VolumeProfile};
use crate::refusal::Refusal;

/// The model of one host. Pure: time is an argument, randomness comes from the profile's seed.
///
/// Protocol: call [`Host::submit`] for each I/O; it and [`Host::advance`] append the decisions that
/// became known to `out`. A decision may lie in the future: the caller holds it until `at`. Call
/// [`Host::advance`] when [`Host::next_event`] is due. `now` never runs backwards.
pub struct Host {
    profile: HostProfile,
}

impl Host {
    /// Builds the model. Refuses an inconsistent profile with every reason.
    pub fn new(profile: HostProfile, _start: Instant) -> Result<Host, Refusal> {
        Ok(Host { profile })
    }

    /// Adds a volume; its id is the number of volumes ever attached before.
    pub fn attach(&mut self, _now: Instant, volume: VolumeProfile) -> Result<VolumeId, Refusal> {
        self.profile.volumes.push(volume);
        Ok(VolumeId(
            u32::try_from(self.profile.volumes.len() - 1).expect("few volumes"),
        ))
    }

    /// Removes a volume. Its queued I/Os fail; its part of the cache is dropped.
    pub fn detach(&mut self, _now: Instant, _volume: VolumeId, _out: &mut Vec<Completion>) {}

    /// The volumes of the profile, in order, with their ids.
    pub fn volume_named(&self, name: &str) -> Option<VolumeId> {
        let index = self
            .profile
            .volumes
            .iter()
            .position(|volume| volume.name == name)?;
        u32::try_from(index).ok().map(VolumeId)
    }

    /// Takes an I/O.
    pub fn submit(&mut self, now: Instant, io: Io, out: &mut Vec<Completion>) {
        out.push(Completion {
            tag: io.tag,
            at: now + Duration::ZERO,
            outcome: Outcome::Done,
        });
    }

    /// Lets time pass up to `now`: refills, destages, unblocks.
    pub fn advance(&mut self, _now: Instant, _out: &mut Vec<Completion>) {}

    /// When [`Host::advance`] has something to do next; `None`: not until the next submit.
    pub fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Changes a running volume at once: I/Os that still wait obey the new limits.
    pub fn change(
        &mut self,
        _now: Instant,
        _volume: VolumeId,
        _change: &Change,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    /// Injects a fault. `HostFailure`, `Deallocate` and `Recover` concern the whole host, whatever
    /// the volume.
    pub fn inject(
        &mut self,
        _now: Instant,
        _volume: VolumeId,
        _fault: &Fault,
        _out: &mut Vec<Completion>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    /// Moves the ranges destaged since the last call into `out` (in order of completion).
    pub fn take_destaged(&mut self, _out: &mut Vec<Destaged>) {}

    /// Whether an acknowledged write survives only after FLUSH or destage (ReadWrite caching).
    pub fn write_is_volatile(&self, _volume: VolumeId) -> bool {
        false
    }

    /// Where the volume's data live.
    pub fn medium(&self, volume: VolumeId) -> Medium {
        self.profile.volumes[volume.0 as usize].disks[0].medium
    }
    /// The profile of a volume as it is now, changes included; `None`: no longer attached.
    pub fn volume(&self, volume: VolumeId) -> Option<&VolumeProfile> {
        self.profile.volumes.get(volume.0 as usize)
    }

    /// The attached volumes, in order of attachment.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, &VolumeProfile)> {
        (0..).map(VolumeId).zip(&self.profile.volumes)
    }

    /// What is wrong with a volume now: the faults that were injected and not mended.
    pub fn faults(&self, _volume: VolumeId) -> Vec<Fault> {
        Vec::new()
    }

    /// What a volume did up to now and which limits held it up.
    pub fn counters(&self, _now: Instant, _volume: VolumeId) -> VolumeCounters {
        VolumeCounters {
            operations: Operations::default(),
            in_flight: 0,
            queued: 0,
            cache: None,
            limits: Vec::new(),
        }
    }

    /// Appends the ranges that a host failure would lose now: acknowledged by a ReadWrite cache, not
    /// yet destaged. In units of whole 4 KiB sectors, ascending, at most 4 GiB each. Ask before
    /// injecting [`Fault::HostFailure`]; afterwards there are none.
    pub fn dirty_ranges(&self, _volume: VolumeId, _out: &mut Vec<Destaged>) {}

    /// Fills the host cache with a range of a volume, as reads at some earlier time would have done.
    /// Takes no time and no tokens; does nothing without host caching.
    pub fn warm(&mut self, _now: Instant, _volume: VolumeId, _offset: Bytes, _len: Bytes) {}

    /// Empties a volume's part of the host cache, except what is dirty.
    pub fn drop_cache(&mut self, _now: Instant, _volume: VolumeId) {}
}
