//! The network between emulated hosts: who waits how long, and what is lost. No clock, no I/O.
//!
//! A frame leaves its host through a queue at the VM's bandwidth, then travels for as long as the two
//! zones are apart. Frames of one host to another keep their order.

use std::collections::HashMap;

use disklab_units::random::Stream;
use disklab_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// A queue holds this much time at its rate before it drops what comes. A cloud's virtual network card holds about as
/// much; a TCP stream needs more than one round trip of it to keep the line full.
const QUEUE: Duration = Duration::from_millis(10);
/// And at least this much: some frames of 64 KiB, which segmentation offload makes.
const LEAST_QUEUE_BYTES: u64 = 1 << 20;
/// Parts of a round trip's distribution, in millionths.
const WHOLE_PPM: u64 = 1_000_000;

/// How long a round trip takes: points of its quantile function, straight lines between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u64)>", into = "Vec<(u32, u64)>")]
pub struct RoundTrip(Vec<(u32, u64)>);

impl TryFrom<Vec<(u32, u64)>> for RoundTrip {
    type Error = String;

    fn try_from(points: Vec<(u32, u64)>) -> Result<RoundTrip, String> {
        let rising = points
            .windows(2)
            .all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        let whole = points.first().is_some_and(|first| first.0 == 0)
            && points.last().is_some_and(|last| last.0 == WHOLE_PPM as u32);
        if rising && whole && points.len() >= 2 {
            Ok(RoundTrip(points))
        } else {
            Err("a round trip is points [ppm, ns], rising, from 0 to 1000000 ppm".to_owned())
        }
    }
}

impl From<RoundTrip> for Vec<(u32, u64)> {
    fn from(trip: RoundTrip) -> Vec<(u32, u64)> {
        trip.0
    }
}

impl RoundTrip {
    /// The shortest.
    fn least(&self) -> u64 {
        self.0[0].1
    }

    /// The round trip at a place of the distribution.
    fn at(&self, ppm: u64) -> u64 {
        let next = self.0.partition_point(|point| u64::from(point.0) <= ppm);
        let Some(&(right, high)) = self.0.get(next) else {
            return self.0[self.0.len() - 1].1;
        };
        let (left, low) = self.0[next - 1];
        let (left, right) = (u64::from(left), u64::from(right));
        low + (high - low) * (ppm - left) / (right - left)
    }
}

/// What one host's link is like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// What the VM may send; none: as fast as the machine.
    pub bytes_per_s: Option<u64>,
    /// The zone that the host is in.
    pub zone: String,
    /// Added to each frame's way out, and in: a link that is slow.
    pub extra_ns: u64,
    /// The share of its frames, in and out, that is lost.
    pub loss_ppm: u32,
    /// Nothing comes through, in or out, and nobody is told.
    pub cut: bool,
}

/// What the way between two hosts is like beside their links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Between {
    /// What each of the two may send to the other; none: what its link allows.
    pub bytes_per_s: Option<u64>,
    /// Added to each frame's way.
    pub extra_ns: u64,
    /// The share of frames that is lost.
    pub loss_ppm: u32,
    /// Nothing comes through, and nobody is told; both still reach the others.
    pub cut: bool,
}

/// How far two zones are from each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distance {
    /// The zones, in any order; the same twice: within it.
    pub zones: (String, String),
    /// The round trip between hosts in them.
    pub round_trip_ns: RoundTrip,
}

/// Why a frame is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A link of its way is cut.
    Cut,
    /// Chance, at the rate that was asked for.
    Chance,
    /// The queue of its host is full.
    Queue,
}

/// Frames of a host that wait for its bandwidth.
#[derive(Clone, Debug, Default)]
struct Queue {
    free_at: u64,
    /// What the division by the rate left over, so that no nanosecond is ever lost.
    rest: u64,
}

impl Queue {
    /// Takes a frame of so many bytes at a rate; returns when its last byte is out.
    fn take(&mut self, now: u64, rate: u64, bytes: u64) -> Result<u64, Lost> {
        if self.free_at <= now {
            *self = Queue {
                free_at: now,
                rest: 0,
            };
        }
        let waiting = u128::from(self.free_at - now) * u128::from(rate) / 1_000_000_000;
        let room = u128::from(rate) * u128::from(QUEUE.as_nanos()) / 1_000_000_000;
        if waiting + u128::from(bytes) > room.max(u128::from(LEAST_QUEUE_BYTES)) {
            return Err(Lost::Queue);
        }
        let cost = u128::from(bytes) * 1_000_000_000 + u128::from(self.rest);
        self.free_at += (cost / u128::from(rate)) as u64;
        self.rest = (cost % u128::from(rate)) as u64;
        Ok(self.free_at)
    }
}

/// The way from one host to another.
#[derive(Clone, Debug, Default)]
struct Way {
    /// When the last frame arrives: none overtakes it.
    last: u64,
    drawn_at: Option<u64>,
    drawn: u64,
    /// Used only where the way is narrower than the link.
    queue: Queue,
}

/// The network. `now` never runs backwards.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    distances: Vec<Distance>,
    queues: Vec<Queue>,
    ways: Vec<Way>,
    /// Pairs whose way was changed, the lower number first.
    pairs: HashMap<(usize, usize), Between>,
    chance: Stream,
    own_ns: u64,
}

impl Network {
    /// A network of these links. `own` is the part of a round trip that the machine takes by itself.
    pub fn new(links: Vec<Link>, distances: Vec<Distance>, seed: u64, own: Duration) -> Network {
        let count = links.len();
        Network {
            queues: vec![Queue::default(); count],
            ways: vec![Way::default(); count * count],
            links,
            distances,
            pairs: HashMap::new(),
            chance: Stream::new(seed, "network"),
            own_ns: own.as_nanos(),
        }
    }

    /// What a link is like.
    pub fn link(&mut self, port: usize) -> &mut Link {
        &mut self.links[port]
    }

    /// Changes the way between two hosts, in both directions.
    pub fn between(&mut self, one: usize, other: usize, changed: Between) {
        let pair = (one.min(other), one.max(other));
        if changed == Between::default() {
            self.pairs.remove(&pair);
        } else {
            self.pairs.insert(pair, changed);
        }
    }

    /// Changes the part of a round trip that is the machine's own.
    pub fn set_own(&mut self, own: Duration) {
        self.own_ns = own.as_nanos();
    }

    /// Starts again with another clock: what the old one said about queues means nothing on it.
    pub fn forget_times(&mut self) {
        self.queues.fill(Queue::default());
        self.ways.fill(Way::default());
    }

    /// Lets a frame of so many bytes leave its host; returns when its last byte is out.
    pub fn leave(&mut self, now: Instant, from: usize, bytes: u64) -> Result<Instant, Lost> {
        let (link, now) = (&self.links[from], now.as_nanos());
        if link.cut {
            return Err(Lost::Cut);
        }
        let Some(rate) = link.bytes_per_s.filter(|&rate| rate > 0) else {
            return Ok(Instant::from_nanos(now));
        };
        let out = self.queues[from].take(now, rate, bytes)?;
        Ok(Instant::from_nanos(out))
    }

    /// Lets a frame that has left its host through the queue of the way to another, where that is narrower than its link.
    pub fn cross(
        &mut self,
        left: Instant,
        from: usize,
        to: usize,
        bytes: u64,
    ) -> Result<Instant, Lost> {
        let pair = self.pairs.get(&(from.min(to), from.max(to)));
        let Some(rate) = pair
            .and_then(|pair| pair.bytes_per_s)
            .filter(|&rate| rate > 0)
        else {
            return Ok(left);
        };
        let way = &mut self.ways[from * self.links.len() + to];
        let out = way.queue.take(left.as_nanos(), rate, bytes)?;
        Ok(Instant::from_nanos(out))
    }

    /// When a frame that left its host at a time arrives at another.
    pub fn arrive(&mut self, left: Instant, from: usize, to: usize) -> Result<Instant, Lost> {
        let pair = self.pairs.get(&(from.min(to), from.max(to)));
        let (cut, lost, slow) = pair.map_or((false, 0, 0), |pair| {
            (pair.cut, pair.loss_ppm, pair.extra_ns)
        });
        if self.links[from].cut || self.links[to].cut || cut {
            return Err(Lost::Cut);
        }
        let loss = [self.links[from].loss_ppm, self.links[to].loss_ppm, lost];
        if loss.into_iter().any(|ppm| self.chance.chance(ppm)) {
            return Err(Lost::Chance);
        }
        let extra = self.links[from].extra_ns + self.links[to].extra_ns + slow;
        let travel = self
            .travel(left.as_nanos(), from, to)
            .saturating_sub(self.own_ns / 2);
        let way = &mut self.ways[from * self.links.len() + to];
        way.last = way.last.max(left.as_nanos() + travel + extra);
        Ok(Instant::from_nanos(way.last))
    }

    /// How long the way takes for a frame that begins it now.
    ///
    /// One direction of each pair takes half of the shortest round trip, the other one the rest: so the round trips have
    /// exactly the distribution that was asked for, which two halves drawn by themselves would not.
    /// **Divergence:** the two directions of a real network vary both.
    fn travel(&mut self, now: u64, from: usize, to: usize) -> u64 {
        let zones = (&self.links[from].zone, &self.links[to].zone);
        let Some(distance) = self.distances.iter().find(|one| {
            let (left, right) = (&one.zones.0, &one.zones.1);
            (left, right) == zones || (right, left) == zones
        }) else {
            return 0;
        };
        let trip = &distance.round_trip_ns;
        let half = trip.least() / 2;
        if from < to {
            return half;
        }
        // Frames close behind each other share what delays them; a draw for each would give a stream the longest of
        // many, because none may overtake.
        let way = &mut self.ways[from * self.links.len() + to];
        if way.drawn_at.is_none_or(|at| now >= at.saturating_add(half)) {
            way.drawn_at = Some(now);
            way.drawn = trip.at(self.chance.below(WHOLE_PPM));
        }
        way.drawn - half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(points: &[(u32, u64)]) -> RoundTrip {
        RoundTrip::try_from(points.to_vec()).expect("a distribution")
    }

    fn two(rate: Option<u64>, trip: RoundTrip) -> Network {
        let link = Link {
            bytes_per_s: rate,
            zone: "1".to_owned(),
            ..Link::default()
        };
        let zones = ("1".to_owned(), "1".to_owned());
        let distance = Distance {
            zones,
            round_trip_ns: trip,
        };
        Network::new(vec![link; 2], vec![distance], 1, Duration::ZERO)
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_round_trip_has_the_asked_distribution() {
        let points = [
            (0, 200_000),
            (500_000, 300_000),
            (990_000, 900_000),
            (1_000_000, 2_000_000),
        ];
        let mut network = two(None, trip(&points));
        let mut seen: Vec<u64> = (0..20_000_u64)
            .map(|turn| {
                let start = turn * 10_000_000;
                let there = network.arrive(at(start), 0, 1).expect("delivered");
                network.arrive(there, 1, 0).expect("delivered").as_nanos() - start
            })
            .collect();
        seen.sort_unstable();
        let near = |part: usize, wanted: u64, percent: u64| {
            let found = seen[seen.len() * part / 1000];
            assert!(
                found.abs_diff(wanted) * 100 <= wanted * percent,
                "{part}: {found}"
            );
        };
        near(500, 300_000, 1);
        // Beyond it the distribution is steep: of 20,000 the share above is known to a fifteenth.
        near(990, 900_000, 25);
        assert!(seen[0] >= 200_000 && seen[seen.len() - 1] <= 2_000_000);
    }

    #[test]
    fn bandwidth_is_exact_and_the_queue_bounded() {
        // A rate that divides nothing evenly.
        let rate = 999_999_937;
        let mut network = two(Some(rate), trip(&[(0, 0), (1_000_000, 0)]));
        let mut out = Instant::EPOCH;
        for _ in 0..100_000 {
            out = network.leave(out, 0, 1_500).expect("room");
        }
        // Each frame begins when the one before is out: rounding down once for each is what a fresh queue costs.
        let exact = 100_000 * 1_500 * 1_000_000_000_u128 / u128::from(rate);
        assert!(exact.abs_diff(u128::from(out.as_nanos())) <= 100_000);

        let mut network = two(Some(rate), trip(&[(0, 0), (1_000_000, 0)]));
        let mut sent = 0_u64;
        let mut last = Instant::EPOCH;
        while let Ok(out) = network.leave(Instant::EPOCH, 0, 1_500) {
            (sent, last) = (sent + 1_500, out);
        }
        let exact = u128::from(sent) * 1_000_000_000 / u128::from(rate);
        assert!(
            exact.abs_diff(u128::from(last.as_nanos())) <= 1,
            "no remainder is lost"
        );
        assert!(
            (rate / 100 - 3_000..=rate / 100).contains(&sent),
            "{sent} bytes wait"
        );
        assert_eq!(network.leave(Instant::EPOCH, 0, 1_500), Err(Lost::Queue));
        assert!(network.leave(last, 0, 1_500).is_ok());
    }

    #[test]
    fn nothing_overtakes_and_nothing_passes_a_cut() {
        let mut network = two(None, trip(&[(0, 100_000), (1_000_000, 5_000_000)]));
        let mut last = Instant::EPOCH;
        for turn in 0..10_000_u64 {
            let arrived = network.arrive(at(turn * 1_000), 1, 0).expect("delivered");
            assert!(arrived >= last);
            last = arrived;
        }
        let cut = Between {
            cut: true,
            ..Between::default()
        };
        network.between(1, 0, cut);
        assert_eq!(network.arrive(at(1 << 40), 1, 0), Err(Lost::Cut));
        network.between(0, 1, Between::default());
        assert!(network.arrive(at(1 << 40), 1, 0).is_ok());
        network.link(0).cut = true;
        assert_eq!(network.leave(at(1 << 40), 0, 60), Err(Lost::Cut));
        assert_eq!(network.arrive(at(1 << 40), 1, 0), Err(Lost::Cut));
    }

    #[test]
    fn slow_and_lossy_links() {
        let mut network = two(None, trip(&[(0, 100_000), (1_000_000, 100_000)]));
        network.link(0).extra_ns = 7_000;
        assert_eq!(network.arrive(at(0), 0, 1), Ok(at(57_000)));
        network.link(0).loss_ppm = 100_000;
        let lost = (0..100_000)
            .filter(|turn| network.arrive(at(*turn), 0, 1).is_err())
            .count();
        assert!((9_500..10_500).contains(&lost), "{lost}");
    }

    #[test]
    fn a_way_between_two_is_slow_narrow_and_lossy_for_them_alone() {
        let zones = ("1".to_owned(), "1".to_owned());
        let distance = Distance {
            zones,
            round_trip_ns: trip(&[(0, 100_000), (1_000_000, 100_000)]),
        };
        let link = Link {
            zone: "1".to_owned(),
            ..Link::default()
        };
        let mut network = Network::new(vec![link; 3], vec![distance], 1, Duration::ZERO);
        let changed = Between {
            bytes_per_s: Some(1_000_000),
            extra_ns: 7_000,
            loss_ppm: 0,
            cut: false,
        };
        network.between(2, 0, changed.clone());
        assert_eq!(network.arrive(at(0), 0, 2), Ok(at(57_000)));
        assert_eq!(network.arrive(at(0), 2, 0), Ok(at(57_000)));
        assert_eq!(network.arrive(at(0), 0, 1), Ok(at(50_000)));
        // A thousand bytes take a millisecond, in each direction by itself; the others take none.
        assert_eq!(network.cross(at(0), 0, 2, 1_000), Ok(at(1_000_000)));
        assert_eq!(network.cross(at(0), 0, 2, 1_000), Ok(at(2_000_000)));
        assert_eq!(network.cross(at(0), 2, 0, 1_000), Ok(at(1_000_000)));
        assert_eq!(network.cross(at(0), 0, 1, 1_000), Ok(at(0)));
        let lossy = Between {
            loss_ppm: 100_000,
            ..Between::default()
        };
        network.between(0, 2, lossy);
        let lost = (0..100_000)
            .filter(|turn| network.arrive(at(*turn), 2, 0).is_err())
            .count();
        assert!((9_500..10_500).contains(&lost), "{lost}");
        assert!((0..1_000).all(|turn| network.arrive(at(turn), 1, 0).is_ok()));
    }

    #[test]
    fn the_machines_own_part_is_taken_off() {
        let mut network = two(None, trip(&[(0, 200_000), (1_000_000, 200_000)]));
        network.set_own(Duration::from_micros(60));
        assert_eq!(network.arrive(at(0), 0, 1), Ok(at(70_000)));
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for points in [
            vec![],
            vec![(0, 1)],
            vec![(0, 2), (1_000_000, 1)],
            vec![(1, 1), (1_000_000, 2)],
        ] {
            assert!(RoundTrip::try_from(points).is_err());
        }
    }
}
