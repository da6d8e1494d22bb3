//! The model behind this machine's clock.

use std::ops::{Deref, DerefMut};

use disklab_disk::profile::VolumeProfile;
use disklab_disk::{Change, Completion, Fault, Host, Io, Refusal, VolumeCounters, VolumeId};
use disklab_units::{Dilation, Duration, Instant};

/// A host that keeps the described system's time, asked and answering in this machine's: the one place in the
/// emulator where the two differ. Counters and lateness are the described system's. What has no time in it is the
/// host's own. It begins in real time.
pub struct DilatedHost {
    host: Host,
    clocks: Clocks,
}

/// The described system's clock and this machine's, as they run at a time.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    dilation: Dilation,
    /// Since when the dilation is what it is, on both clocks.
    machine_from: Instant,
    system_from: Instant,
}

impl Clocks {
    /// The described system's time at a time of this machine.
    pub fn of_system(&self, machine: Instant) -> Instant {
        let since = machine.saturating_since(self.machine_from);
        self.system_from
            .saturating_add(self.dilation.span_of_system(since))
    }

    /// The first time of this machine at which the described system has this time.
    pub fn of_machine(&self, system: Instant) -> Instant {
        let since = system.saturating_since(self.system_from);
        self.machine_from
            .saturating_add(self.dilation.span_of_machine(since))
    }
}

impl DilatedHost {
    /// A host whose clock starts with `start`, of this machine.
    pub fn new(
        profile: disklab_disk::profile::HostProfile,
        start: Instant,
    ) -> Result<DilatedHost, Refusal> {
        Ok(DilatedHost {
            host: Host::new(profile, start)?,
            clocks: Clocks {
                dilation: Dilation::default(),
                machine_from: start,
                system_from: start,
            },
        })
    }

    /// Lets time run slower or faster from now on. What the model has decided before keeps its time of the described
    /// system; the caller, who holds it in this machine's, converts it with the clocks before ([`DilatedHost::clocks`])
    /// and after.
    pub fn set_dilation(&mut self, now: Instant, dilation: Dilation) {
        self.clocks = Clocks {
            dilation,
            machine_from: now,
            system_from: self.of_system(now),
        };
    }

    /// How both clocks run now.
    pub fn clocks(&self) -> Clocks {
        self.clocks
    }

    fn of_system(&self, machine: Instant) -> Instant {
        self.clocks.of_system(machine)
    }

    fn of_machine(&self, system: Instant) -> Instant {
        self.clocks.of_machine(system)
    }

    pub fn attach(&mut self, now: Instant, volume: VolumeProfile) -> Result<VolumeId, Refusal> {
        let now = self.of_system(now);
        self.host.attach(now, volume)
    }

    pub fn detach(&mut self, now: Instant, volume: VolumeId, out: &mut Vec<Completion>) {
        let before = out.len();
        let now = self.of_system(now);
        self.host.detach(now, volume, out);
        self.to_machine(&mut out[before..]);
    }

    pub fn submit(&mut self, now: Instant, io: Io, out: &mut Vec<Completion>) {
        let before = out.len();
        let now = self.of_system(now);
        self.host.submit(now, io, out);
        self.to_machine(&mut out[before..]);
    }

    pub fn advance(&mut self, now: Instant, out: &mut Vec<Completion>) {
        let before = out.len();
        let now = self.of_system(now);
        self.host.advance(now, out);
        self.to_machine(&mut out[before..]);
    }

    pub fn next_event(&self) -> Option<Instant> {
        let event = self.host.next_event()?;
        Some(self.of_machine(event))
    }

    pub fn change(
        &mut self,
        now: Instant,
        volume: VolumeId,
        change: &Change,
    ) -> Result<(), Refusal> {
        let now = self.of_system(now);
        self.host.change(now, volume, change)
    }

    pub fn set_credits(&mut self, now: Instant, ppm: u32) {
        let now = self.of_system(now);
        self.host.set_credits(now, ppm);
    }

    pub fn inject(
        &mut self,
        now: Instant,
        volume: VolumeId,
        fault: &Fault,
        out: &mut Vec<Completion>,
    ) -> Result<(), Refusal> {
        let before = out.len();
        let now = self.of_system(now);
        let injected = self.host.inject(now, volume, fault, out);
        self.to_machine(&mut out[before..]);
        injected
    }

    pub fn counters(&self, now: Instant, volume: VolumeId) -> VolumeCounters {
        self.host.counters(self.of_system(now), volume)
    }

    /// By how much a reply was late in the described system's time, as its latencies are.
    pub fn lateness(&self, late: Duration) -> Duration {
        self.clocks.dilation.span_of_system(late)
    }

    fn to_machine(&self, completions: &mut [Completion]) {
        for completion in completions {
            completion.at = self.of_machine(completion.at);
        }
    }
}

impl Deref for DilatedHost {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for DilatedHost {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use disklab_disk::Op;
    use disklab_units::Bytes;

    use super::*;

    fn host(factor: u32) -> DilatedHost {
        // A disk of 100 IOPS that answers after 1 ms.
        let latency =
            serde_json::json!({"quantiles_ppm_ns": [[500_000, 1_000_000]], "per_kib_ns": 0});
        let all = serde_json::json!({"read": latency, "write": latency, "flush": latency});
        let limit = serde_json::json!({
            "scope": "all", "unit": "ios", "per_s": 100, "io_unit_bytes": null, "window_ns": 0, "burst": null
        });
        let disk = serde_json::json!(
            {"name": "slow", "medium": "remote", "limits": [limit], "latency": all}
        );
        let volume = serde_json::json!({
            "name": "data", "size_bytes": 1 << 20, "caching": "None", "chunk_bytes": null, "disks": [disk]
        });
        let profile = serde_json::json!({
            "version": 1, "name": "vm", "seed": 1, "cached": [], "uncached": [], "cache": null, "volumes": [volume]
        });
        let profile = serde_json::from_value(profile).expect("a profile");
        let dilation = Dilation::new(NonZeroU32::new(factor).expect("not zero"));
        let mut host = DilatedHost::new(profile, Instant::EPOCH).expect("a host");
        host.set_dilation(Instant::EPOCH, dilation);
        host
    }

    /// When the last of so many reads ends that come at once.
    fn last_end(factor: u32, reads: u64) -> Instant {
        let mut host = host(factor);
        let volume = host.volume_named("data").expect("attached");
        let mut out = Vec::new();
        for tag in 0..reads {
            let io = Io {
                tag,
                volume,
                op: Op::Read,
                offset: Bytes::new(0),
                len: 4096,
            };
            host.submit(Instant::EPOCH, io, &mut out);
        }
        while let Some(event) = host.next_event() {
            host.advance(event, &mut out);
        }
        assert_eq!(out.len() as u64, reads);
        out.iter().map(|done| done.at).max().expect("reads")
    }

    #[test]
    fn latencies_and_rates_are_slower_by_the_factor() {
        for reads in [1, 400] {
            let usual = last_end(1, reads).as_nanos();
            assert_eq!(last_end(8, reads).as_nanos(), 8 * usual, "{reads} reads");
        }
    }

    #[test]
    fn the_clock_goes_on_from_where_it_was() {
        let dilation = |factor| Dilation::new(NonZeroU32::new(factor).expect("not zero"));
        let at = |s| Instant::EPOCH.saturating_add(Duration::from_secs(s));
        let mut host = host(1);
        host.set_dilation(at(10), dilation(8));
        assert_eq!(host.of_system(at(10)), at(10));
        assert_eq!(host.of_system(at(26)), at(12));
        assert_eq!(host.of_machine(at(12)), at(26));
        host.set_dilation(at(26), dilation(1));
        assert_eq!(host.of_system(at(30)), at(16));
        assert_eq!(host.of_machine(at(16)), at(30));
        // Decided before the change: its time has come.
        assert_eq!(host.of_machine(at(11)), at(26));
    }
}
