//! The load generators: threads or arrivals, keys, and the CPU that each operation costs them.

use disklab_units::popularity::{Spread, YCSB_THETA, Zipf};
use disklab_units::random::Stream;

use crate::chance::{exponential, work};
use crate::job::{Arrivals, Client, Keys, Load, Mechanism, Parameters, Workload};
use crate::network::Link;
use crate::node::Pauses;
use crate::station::{Servers, Usage};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a row.
    Read,
    /// Writes a row.
    Write,
}

impl From<Kind> for usize {
    fn from(kind: Kind) -> usize {
        kind as usize
    }
}

/// One load generator.
#[derive(Debug)]
struct Machine {
    cores: Servers,
    link: Link,
    pauses: Pauses,
}

/// All client machines.
#[derive(Debug)]
pub struct Clients {
    machines: Vec<Machine>,
    keys: Keys,
    rows: u64,
    next_key: u64,
    zipf: Zipf,
    spread: Spread,
    read_ppm: u32,
    cpu_ns: [u64; 2],
    draws: Stream,
    kinds: Stream,
    times: Stream,
    arrivals: Stream,
}

impl Clients {
    /// Idle clients. Without [`Mechanism::ClientCpu`] CPU never makes an operation wait.
    pub fn new(
        client: &Client,
        workload: &Workload,
        rows: u64,
        parameters: &Parameters,
        seed: u64,
        off: &[Mechanism],
    ) -> Clients {
        let has_not = |mechanism| off.contains(&mechanism);
        let machine = |number: u32| Machine {
            cores: Servers::new(client.cores, has_not(Mechanism::ClientCpu)),
            link: Link::new(client.network_bytes_per_s),
            pauses: Pauses::of_client(
                parameters,
                number as usize,
                seed,
                has_not(Mechanism::ClientPauses),
            ),
        };
        Clients {
            machines: (0..client.nodes.max(1)).map(machine).collect(),
            keys: workload.keys,
            rows,
            next_key: 0,
            zipf: Zipf::new(rows, YCSB_THETA),
            spread: Spread::new(rows),
            read_ppm: workload.read_ppm,
            cpu_ns: [
                parameters.client_read_cpu_ns,
                parameters.client_write_cpu_ns,
            ],
            draws: Stream::new(seed, "keys"),
            kinds: Stream::new(seed, "operations"),
            times: Stream::new(seed, "client cpu"),
            arrivals: Stream::new(seed, "arrivals"),
        }
    }

    /// Draws the next operation: what it does, and its key; keys from the number of rows on are rows
    /// that the run has added.
    ///
    /// **Divergence:** with `latest` a row is read as soon as its write was sent. It is in memory
    /// either way.
    #[inline]
    pub fn next(&mut self) -> (Kind, u64) {
        let reads = match self.read_ppm {
            0 => false,
            1_000_000.. => true,
            ppm => self.kinds.chance(ppm),
        };
        let key = match self.keys {
            Keys::Uniform => self.draws.below(self.rows),
            Keys::Sequential => {
                self.next_key += 1;
                (self.next_key - 1) % self.rows
            }
            Keys::Zipfian => self.spread.place(self.zipf.draw(&mut self.draws) - 1),
            Keys::Latest if reads => {
                let distance = self.zipf.draw(&mut self.draws) - 1;
                if distance < self.next_key {
                    self.rows + self.next_key - 1 - distance
                } else {
                    self.rows - 1 - (distance - self.next_key) % self.rows
                }
            }
            Keys::Latest => {
                self.next_key += 1;
                self.rows + self.next_key - 1
            }
        };
        (if reads { Kind::Read } else { Kind::Write }, key)
    }

    /// Whether a key is that of a row that the run has added.
    #[inline]
    pub fn added(&self, key: u64) -> bool {
        key >= self.rows
    }

    /// Sends a request of `bytes`; returns when it has left the machine.
    #[inline]
    pub fn send(&mut self, now: u64, thread: u32, kind: Kind, bytes: u64) -> u64 {
        let count = self.machines.len();
        let machine = &mut self.machines[thread as usize % count];
        if let Some(span) = machine.pauses.count(now, kind) {
            machine.cores.pause(now, span);
        }
        let span = work(&mut self.times, self.cpu_ns[kind as usize]);
        let ready = machine.cores.serve(now, span);
        machine.link.send(now, ready, bytes)
    }

    /// When the thread's machine goes on, if it pauses; in the past, if it does not.
    #[inline]
    pub fn paused_until(&self, thread: u32) -> u64 {
        self.machines[thread as usize % self.machines.len()]
            .pauses
            .until()
    }

    /// Time from one arrival of an open loop to the next.
    pub fn next_distance(&mut self, load: &Load) -> u64 {
        match *load {
            Load::Closed { .. } => u64::MAX,
            Load::Open {
                rate_per_ks,
                arrivals,
                ..
            } => {
                let mean = 1_000_000_000_000 / rate_per_ks.max(1);
                match arrivals {
                    Arrivals::Even => mean,
                    Arrivals::Poisson => exponential(&mut self.arrivals, mean),
                }
            }
        }
    }

    /// CPU of all machines: their cores, and what they did.
    pub fn cpu(&self) -> (u64, Usage) {
        let mut sum = Usage::default();
        let mut cores = 0;
        for machine in &self.machines {
            let usage = machine.cores.usage();
            cores += machine.cores.count();
            sum.served += usage.served;
            sum.busy_ns += usage.busy_ns;
            sum.waited_ns += usage.waited_ns;
        }
        (cores, sum)
    }

    /// Bytes that the busiest machine sent, and its rate.
    pub fn link(&self) -> (u64, Option<u64>) {
        let busiest = self.machines.iter().map(|machine| &machine.link);
        busiest
            .max_by_key(|link| link.sent_bytes())
            .map_or((0, None), |link| (link.sent_bytes(), link.bytes_per_s()))
    }

    /// Counts anew from here.
    pub fn reset(&mut self) {
        for machine in &mut self.machines {
            machine.cores.reset();
            machine.link.reset();
            machine.pauses.reset();
        }
    }
}
