//! What bound a piece of work: the fullest of the limits between its beginning and its end.

use disklab_disk::VolumeCounters;

use crate::machine::Machine;
use crate::report::{Resource, Uses};

/// Where nothing is used more than this, what bounds the work is how long each part of it takes on its way.
const BOUND: f64 = 0.85;

/// What a machine had done when the work began.
#[derive(Clone, Debug, Default)]
pub struct Before {
    volumes: Vec<VolumeCounters>,
    busy_ns: u64,
    sent_bytes: u64,
}

impl Before {
    /// The counters of a machine now.
    pub fn of(now: u64, machine: &Machine) -> Before {
        Before {
            volumes: machine.storage.volumes(now),
            busy_ns: machine.cores.usage().busy_ns,
            sent_bytes: machine.link.sent_bytes(),
        }
    }

    /// Adds what disks, machine, processors and network did in the `elapsed_ns` since then.
    pub fn add_uses(
        &self,
        uses: &mut Uses,
        place: String,
        (now, elapsed_ns): (u64, u64),
        machine: &Machine,
    ) {
        let (cores, link, storage) = (&machine.cores, &machine.link, &machine.storage);
        let at = storage.volumes(now);
        let volumes = storage.host().volumes();
        for (((_, volume), now), before) in volumes.zip(&at).zip(&self.volumes) {
            uses.add_limits(&place, &volume.name, now, before, elapsed_ns);
        }
        // The measurement set its counters back: they are less than before.
        let busy = cores.usage().busy_ns.saturating_sub(self.busy_ns);
        let share = busy as f64 / elapsed_ns as f64 / cores.count() as f64;
        uses.add("node CPU", place.clone(), share, 0);
        if let Some(rate) = link.bytes_per_s() {
            let sent = link.sent_bytes().saturating_sub(self.sent_bytes);
            let share = sent as f64 * 1e9 / elapsed_ns as f64 / rate as f64;
            uses.add("node network", place, share, 0);
        }
    }
}

/// What bounds the work: what was used most, if it was full.
pub fn bound_of(uses: Uses) -> Resource {
    match uses.resources(1).into_iter().next() {
        Some(found) if found.utilisation >= BOUND => found,
        Some(found) => Resource {
            utilisation: found.utilisation,
            ..Resource::none()
        },
        None => Resource::none(),
    }
}
