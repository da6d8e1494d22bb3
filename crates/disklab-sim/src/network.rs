//! A machine's network: a bandwidth that its messages share, and how long they are on their way.

use disklab_units::random::Stream;

use crate::chance::exponential;
use crate::job::{Delay, Mechanism, Network};

/// What one machine sends.
#[derive(Clone, Debug)]
pub struct Link {
    bytes_per_s: Option<u64>,
    free_at: u64,
    sent_bytes: u64,
}

impl Link {
    /// An idle link; without a rate it never makes anybody wait.
    pub fn new(bytes_per_s: Option<u64>) -> Link {
        Link {
            bytes_per_s: bytes_per_s.filter(|&rate| rate > 0),
            free_at: 0,
            sent_bytes: 0,
        }
    }

    /// Sends a message, decided at `now`, that is ready at `at`; returns when its last byte has
    /// left. `now` never runs backwards.
    ///
    /// **Divergence:** the message takes its place in the queue at `now`, one service time early:
    /// two messages that are decided within that time of each other may change places.
    #[inline]
    pub fn send(&mut self, now: u64, at: u64, bytes: u64) -> u64 {
        self.sent_bytes += bytes;
        let Some(rate) = self.bytes_per_s else {
            return at;
        };
        // Below 18 GB, which every message is, a division of 64 bits will do.
        let span = match bytes.checked_mul(1_000_000_000) {
            Some(product) => product / rate,
            None => (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64,
        };
        self.free_at = self.free_at.max(now) + span;
        at + (self.free_at - now)
    }

    /// Has another rate from now on; None: it never makes anybody wait.
    pub fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        self.bytes_per_s = bytes_per_s.filter(|&rate| rate > 0);
    }

    /// Bytes sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Its rate in bytes per second.
    pub fn bytes_per_s(&self) -> Option<u64> {
        self.bytes_per_s
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.sent_bytes = 0;
    }
}

/// The ways between machines: each message draws its own delay.
///
/// **Source** of the form: sockperf's ping-pong within a zone of a cloud took 82 us at the median, 131 at the 99th and
/// 198 at the 99.9th percentile there and back, between two zones 724, 919 and 1,104: a fixed time and an exponential
/// one in each direction fit the first two and leave the third 10 to 15 % too low.
#[derive(Clone, Debug)]
pub struct Paths {
    within: Delay,
    between: Delay,
    zones: usize,
    times: Stream,
}

impl Paths {
    /// The ways of a network whose machines are spread over so many zones in turn.
    pub fn new(network: &Network, zones: u32, seed: u64, off: &[Mechanism]) -> Paths {
        let constant = Delay {
            fixed_ns: network.one_way_ns,
            spread_ns: 0,
        };
        let within = network.within_zone.unwrap_or(constant);
        let between = network.between_zones.unwrap_or(within);
        let mean = |delay: Delay| Delay {
            fixed_ns: delay.fixed_ns + delay.spread_ns,
            spread_ns: 0,
        };
        let always = off.contains(&Mechanism::NetworkSpread);
        Paths {
            within: if always { mean(within) } else { within },
            between: if always { mean(between) } else { between },
            zones: zones.max(1) as usize,
            times: Stream::new(seed, "network"),
        }
    }

    /// Whether two machines are in one zone.
    #[inline]
    pub fn are_near(&self, one: usize, other: usize) -> bool {
        self.zones == 1 || one % self.zones == other % self.zones
    }

    /// How long a message takes on average from one machine to another.
    pub fn mean_delay(&self, from: usize, to: usize) -> u64 {
        let delay = if self.are_near(from, to) {
            self.within
        } else {
            self.between
        };
        delay.fixed_ns + delay.spread_ns
    }

    /// How long a message takes from one machine to another.
    #[inline]
    pub fn delay(&mut self, from: usize, to: usize) -> u64 {
        let delay = if self.are_near(from, to) {
            self.within
        } else {
            self.between
        };
        if delay.spread_ns == 0 {
            return delay.fixed_ns;
        }
        delay.fixed_ns + exponential(&mut self.times, delay.spread_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_draws_its_delay() {
        let network = Network {
            one_way_ns: 50_000,
            within_zone: Some(Delay {
                fixed_ns: 40_000,
                spread_ns: 10_000,
            }),
            between_zones: Some(Delay {
                fixed_ns: 330_000,
                spread_ns: 40_000,
            }),
        };
        let mean = |off: &[Mechanism], from, to| {
            let mut paths = Paths::new(&network, 3, 7, off);
            let sum: u64 = (0..100_000).map(|_| paths.delay(from, to)).sum();
            (
                sum / 100_000,
                paths.delay(from, to) != paths.delay(from, to),
            )
        };
        let (within, varies) = mean(&[], 1, 4);
        assert!(within.abs_diff(50_000) < 200 && varies, "{within}");
        let (between, varies) = mean(&[], 1, 5);
        assert!(between.abs_diff(370_000) < 800 && varies, "{between}");
        let off = [Mechanism::NetworkSpread];
        assert_eq!(mean(&off, 1, 4), (50_000, false));
        let plain = Network {
            within_zone: None,
            between_zones: None,
            ..network.clone()
        };
        assert_eq!(Paths::new(&plain, 3, 7, &[]).delay(0, 1), 50_000);
    }

    #[test]
    fn messages_share_the_bandwidth() {
        let mut link = Link::new(Some(1_000_000_000));
        assert_eq!(link.send(100, 100, 50), 150);
        assert_eq!(link.send(100, 120, 50), 220, "behind the first");
        assert_eq!(link.send(300, 300, 50), 350);
        assert_eq!(Link::new(None).send(7, 100, 1 << 30), 100);
        assert_eq!(link.sent_bytes(), 150);
    }
}
