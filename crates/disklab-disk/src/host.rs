//! The whole model of one host behind one type.
//!
//! This first version grants everything at once; the layers replace its inside, not its face.

use disklab_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::io::{Completion, Destaged, Io, Outcome, VolumeId};
use crate::profile::{Caching, HostProfile, Latency, Limit, Medium, VolumeProfile};

/// A profile or a change that the model refuses: every reason, each with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One sentence each: place, value, rule, way out.
    pub reasons: Vec<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reasons.join("\n"))
    }
}

impl std::error::Error for Refusal {}

/// A change of a running volume. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// New limits of each disk of the volume. Credits keep their level, cut to the new capacity.
    #[serde(default)]
    pub limits: Option<Vec<Limit>>,
    /// New service times of each disk.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// New host caching. Leaving ReadWrite destages; leaving the cache empties the volume's part.
    #[serde(default)]
    pub caching: Option<Caching>,
    /// Credits left in each I/O bucket, in I/Os.
    #[serde(default)]
    pub credit_ios: Option<u64>,
    /// Credits left in each byte bucket, in bytes.
    #[serde(default)]
    pub credit_bytes: Option<u64>,
}

/// Something going wrong, or being mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Fault {
    /// This share of the volume's I/Os fails, in parts per million.
    ErrorRate {
        /// 0 to 1 000 000.
        ppm: u32,
    },
    /// Service times of one disk (or all) are multiplied by `permille / 1000`.
    Slow {
        /// 1000 is as promised.
        permille: u32,
        /// Which disk of the stripe; absent: all.
        #[serde(default)]
        disk: Option<u32>,
    },
    /// Nothing completes for this long; absent: until mended.
    Stall {
        /// Nanoseconds.
        #[serde(default)]
        for_ns: Option<u64>,
    },
    /// The host dies: every I/O of every volume fails, caches are gone.
    HostFailure,
    /// The VM is stopped and deallocated after a clean flush: local data gone, caches empty.
    Deallocate,
    /// Mends everything above: the VM runs again, on a new host when the old one died.
    Recover,
}

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
}
