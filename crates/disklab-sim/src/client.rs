//! The load generators: threads or arrivals, keys, and the CPU that each operation costs them.

use disklab_units::random::Stream;

use crate::chance::{exponential, work};
use crate::job::{Arrivals, Client, Keys, Load, Parameters, Workload};
use crate::network::Link;
use crate::station::{Servers, Usage};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a row.
    Read,
    /// Writes a row.
    Write,
}

/// All client machines.
#[derive(Debug)]
pub struct Clients {
    machines: Vec<(Servers, Link)>,
    keys: Keys,
    rows: u64,
    next_key: u64,
    read_ppm: u32,
    cpu_ns: [u64; 2],
    draws: Stream,
    kinds: Stream,
    times: Stream,
    arrivals: Stream,
}

impl Clients {
    /// Idle clients; `endless`: CPU never makes an operation wait.
    pub fn new(
        client: &Client,
        workload: &Workload,
        rows: u64,
        parameters: &Parameters,
        seed: u64,
        endless: bool,
    ) -> Clients {
        let machine = |_| {
            let link = Link::new(client.network_bytes_per_s);
            (Servers::new(client.cores, endless), link)
        };
        Clients {
            machines: (0..client.nodes.max(1)).map(machine).collect(),
            keys: workload.keys,
            rows,
            next_key: 0,
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

    /// Draws the next operation: what it does, and its key.
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
        };
        (if reads { Kind::Read } else { Kind::Write }, key)
    }

    /// Sends a request of `bytes`; returns when it has left the machine.
    #[inline]
    pub fn send(&mut self, now: u64, thread: u32, kind: Kind, bytes: u64) -> u64 {
        let count = self.machines.len();
        let (cores, link) = &mut self.machines[thread as usize % count];
        let ready = cores.serve(now, work(&mut self.times, self.cpu_ns[kind as usize]));
        link.send(now, ready, bytes)
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
        for (servers, _) in &self.machines {
            let usage = servers.usage();
            cores += servers.count();
            sum.served += usage.served;
            sum.busy_ns += usage.busy_ns;
            sum.waited_ns += usage.waited_ns;
        }
        (cores, sum)
    }

    /// Bytes that the busiest machine sent, and its rate.
    pub fn link(&self) -> (u64, Option<u64>) {
        let busiest = self.machines.iter().map(|(_, link)| link);
        busiest
            .max_by_key(|link| link.sent_bytes())
            .map_or((0, None), |link| (link.sent_bytes(), link.bytes_per_s()))
    }

    /// Counts anew from here.
    pub fn reset(&mut self) {
        for (servers, link) in &mut self.machines {
            servers.reset();
            link.reset();
        }
    }
}
