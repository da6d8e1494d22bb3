//! One member disk of a volume: its gates, its service times, its chance.

use crate::destage::Destager;
use crate::latency::Sampler;
use crate::part::{Part, ROUTES, Route};
use crate::profile::Latency;
use disklab_units::random::Stream;

/// Compiled service times of a disk or of the host cache.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    /// Of reads.
    pub read: Sampler,
    /// Of writes.
    pub write: Sampler,
    /// Of flushes.
    pub flush: Sampler,
}

impl ServiceTimes {
    /// Compiles a valid latency.
    pub fn new(latency: &Latency) -> ServiceTimes {
        ServiceTimes {
            read: Sampler::new(&latency.read),
            write: Sampler::new(&latency.write),
            flush: Sampler::new(&latency.flush),
        }
    }
}

/// A random stream for each path and operation, so that a change of the load on one path, or a
/// disk more, changes no other path's samples.
#[derive(Clone, Debug)]
pub struct Streams {
    read: Stream,
    write: Stream,
    flush: Stream,
    hit: Stream,
    write_back: Stream,
    destage: Stream,
}

impl Streams {
    /// The streams of a member disk of the volume called `volume`.
    pub fn new(seed: u64, volume: &str, member: usize) -> Streams {
        let stream = |path: &str| Stream::new(seed, &format!("{volume} {member} {path}"));
        Streams {
            read: stream("read"),
            write: stream("write"),
            flush: stream("flush"),
            hit: stream("hit"),
            write_back: stream("write back"),
            destage: stream("destage"),
        }
    }
}

/// The promise in permille: a service time as the profile says.
pub const AS_PROMISED: u32 = 1000;

/// One member disk of a volume.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Number of its volume.
    pub volume: u32,
    /// Its place in the stripe.
    pub member: u32,
    /// Its own gates.
    pub gates: Vec<u32>,
    /// For each route the gates in the order in which they are passed.
    routes: [Box<[u32]>; ROUTES],
    /// Service times of the disk.
    pub times: ServiceTimes,
    /// What its service times are multiplied by, in permille.
    pub slow_permille: u32,
    /// What a ReadWrite cache owes the disk.
    pub destager: Destager,
    streams: Streams,
}

impl Lane {
    /// A lane without routes; [`Lane::set_route`] lays them.
    pub fn new(volume: u32, member: u32, times: ServiceTimes, streams: Streams) -> Lane {
        Lane {
            volume,
            member,
            gates: Vec::new(),
            routes: Default::default(),
            times,
            slow_permille: AS_PROMISED,
            destager: Destager::new(),
            streams,
        }
    }

    /// Lays a route.
    pub fn set_route(&mut self, route: Route, gates: Vec<u32>) {
        self.routes[route as usize] = gates.into_boxed_slice();
    }

    /// The gates of a route.
    #[inline]
    pub fn route(&self, route: Route) -> &[u32] {
        &self.routes[route as usize]
    }

    /// Whether some route passes a gate.
    pub fn passes(&self, gate: u32) -> bool {
        self.routes.iter().any(|route| route.contains(&gate))
    }

    /// Draws the service time of a part that passed all its gates, in nanoseconds.
    #[inline]
    pub fn service_ns(&mut self, part: &Part, cache: Option<&ServiceTimes>) -> u64 {
        let Streams {
            read,
            write,
            hit,
            write_back,
            destage,
            ..
        } = &mut self.streams;
        let disk_ns = match (part.route, cache) {
            (Route::Hit, Some(cache)) => return cache.read.sample(hit, part.len),
            (Route::WriteBack, Some(cache)) => return cache.write.sample(write_back, part.len),
            (Route::Read | Route::Hit, _) => self.times.read.sample(read, part.disk_len),
            (Route::Write | Route::WriteBack, _) => self.times.write.sample(write, part.len),
            (Route::Destage, _) => self.times.write.sample(destage, part.len),
        };
        self.slowed(disk_ns)
    }

    /// Draws the service time of a FLUSH that has nothing to destage, in nanoseconds.
    pub fn flush_ns(&mut self) -> u64 {
        let ns = self.times.flush.sample(&mut self.streams.flush, 0);
        self.slowed(ns)
    }

    #[inline]
    fn slowed(&self, ns: u64) -> u64 {
        if self.slow_permille == AS_PROMISED {
            return ns;
        }
        let slowed = u128::from(ns) * u128::from(self.slow_permille) / u128::from(AS_PROMISED);
        u64::try_from(slowed).unwrap_or(u64::MAX)
    }
}
