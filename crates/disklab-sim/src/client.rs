//! The load generators: threads or arrivals, keys, and the CPU that each operation costs them.

mod keys;
mod what;

use disklab_units::random::Stream;

use crate::chance::exponential;
pub use crate::client::keys::RowKeys;
use crate::client::what::Shares;
pub use crate::client::what::{NAMES, What};
use crate::database::cassandra::job::Workload;
use crate::database::cassandra::parameters::Parameters;
use crate::job::{Arrivals, Client, Load, Mechanism};
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

impl From<Kind> for usize {
    fn from(kind: Kind) -> usize {
        kind as usize
    }
}

/// One load generator.
#[derive(Clone, Debug)]
struct Machine {
    cores: Servers,
    link: Link,
    warm_up: WarmUp,
}

/// How a load generator that runs in a virtual machine becomes fast: at first its code is interpreted, or
/// compiled in haste, and each operation costs more CPU; that goes down to nothing, in a straight line.
/// What a run of a fixed number of operations loses by it is in its rate, and in its tail, not in its median.
///
/// **Source:** the study of 2019 read 3 million rows by a new process of cassandra-stress 3.11.4 each time, with
/// `no-warmup` (its page on page caches has the command). The same program pinned to one core of an AMD EPYC
/// (OpenJDK 17, 16 threads, rows of 4 KiB from memory) did 24,900 of 800,000 reads a second, and 32,100 of the last
/// 519,000. After its own warm-up of 50,000, 1.5 million reads still had 8 % fewer a second than later on, the
/// median 1 % longer and the 99th percentile 55 %. Its collections of garbage took 0.4 % of the time.
///
/// Servers were restarted before cold reads too, but that needs no mechanism: a node (Cassandra 5.0, JDK 17, 2,300 reads
/// of 4 KiB a second, all from memory) spent two seconds of CPU on its first 20,000 reads beyond what later ones took,
/// of 500,000 that a node answered in the study.
#[derive(Clone, Debug)]
struct WarmUp {
    permille: u64,
    operations: u64,
    left: u64,
}

impl WarmUp {
    fn new(permille: u64, operations: u64) -> WarmUp {
        WarmUp {
            permille,
            operations,
            left: operations,
        }
    }

    /// CPU of the next operation, of which a warm machine's is known.
    #[inline]
    fn cost(&mut self, warm_ns: u64) -> u64 {
        if self.left == 0 {
            return warm_ns;
        }
        // Permille first: the product of all three could leave 64 bits.
        let more_permille = self.permille * self.left / self.operations;
        self.left -= 1;
        warm_ns + warm_ns * more_permille / 1000
    }
}

/// All client machines.
#[derive(Clone, Debug)]
pub struct Clients {
    machines: Vec<Machine>,
    /// Whether they are the servers' own machines.
    pub on_server: bool,
    keys: RowKeys,
    shares: Shares,
    times: Stream,
    arrivals: Stream,
}

impl Clients {
    /// Idle clients. Without [`Mechanism::ClientCpu`] CPU never makes an operation wait.
    pub fn new(
        client: &Client,
        workload: &Workload,
        (rows, scale): (u64, u64),
        parameters: &Parameters,
        seed: u64,
        off: &[Mechanism],
    ) -> Clients {
        let has = |mechanism| !off.contains(&mechanism);
        let cold_operations = if !has(Mechanism::ClientWarmUp) {
            0
        } else {
            parameters.client_warm_operations
        };
        let machine = |_| Machine {
            cores: Servers::new(client.cores, !has(Mechanism::ClientCpu)),
            link: Link::new(client.network_bytes_per_s),
            warm_up: WarmUp::new(parameters.client_cold_permille, cold_operations),
        };
        Clients {
            machines: (0..client.nodes.max(1)).map(machine).collect(),
            on_server: client.on_server,
            keys: RowKeys::new(workload.keys, workload.asked_rows, rows, scale, seed)
                .drawn_from(workload.key_stream.as_ref()),
            shares: Shares::new(workload, seed),
            times: Stream::new(seed, "client cpu"),
            arrivals: Stream::new(seed, "arrivals"),
        }
    }

    /// Draws the next operation: what it does, how many rows it reads, and its key; keys from the number of rows on are
    /// rows that the run has added.
    #[inline]
    pub fn next(&mut self) -> (What, u32, u64) {
        let (what, rows) = self.shares.draw();
        let key = match what {
            What::Insert => self.keys.append(),
            _ => self.keys.draw(what != What::Write),
        };
        (what, rows, key)
    }

    /// Whether a key is that of a row that the run has added.
    #[inline]
    pub fn added(&self, key: u64) -> bool {
        self.keys.added(key)
    }

    /// The machine of a thread.
    #[inline]
    pub fn machine_of(&self, thread: u32) -> usize {
        thread as usize % self.machines.len()
    }

    /// Sends a request of `bytes` that costs a warm client so much CPU, on those cores instead of its own if any are
    /// given; returns when it has left the machine.
    #[inline]
    pub fn send(
        &mut self,
        now: u64,
        thread: u32,
        cpu_ns: u64,
        bytes: u64,
        others: Option<&mut Servers>,
    ) -> u64 {
        let count = self.machines.len();
        let machine = &mut self.machines[thread as usize % count];
        let mean_ns = machine.warm_up.cost(cpu_ns);
        let span = exponential(&mut self.times, mean_ns);
        let cores = others.unwrap_or(&mut machine.cores);
        let ready = cores.serve_at_home(thread as usize / count, now, span);
        machine.link.send(now, ready, bytes)
    }

    /// Time from one arrival of an open loop to the next.
    pub fn next_distance(&mut self, load: &Load) -> u64 {
        distance(load, &mut self.arrivals)
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

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        for machine in &mut self.machines {
            machine.cores.reset();
            machine.link.reset();
        }
    }
}

/// Time from one arrival of an open loop to the next, in nanoseconds.
pub fn distance(load: &Load, stream: &mut Stream) -> u64 {
    match *load {
        Load::Closed { .. } => u64::MAX,
        Load::Open {
            rate_per_ks,
            arrivals,
            ..
        } => {
            let mean = 1_000_000_000_000 / rate_per_ks.max(1);
            match arrivals {
                Arrivals::Even | Arrivals::Paced => mean,
                Arrivals::Poisson => exponential(stream, mean),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_client_becomes_warm_in_a_straight_line() {
        let mut warm_up = WarmUp::new(1_500, 1_000);
        let costs: Vec<u64> = (0..2_000).map(|_| warm_up.cost(200_000)).collect();
        assert_eq!(costs[0], 500_000);
        assert_eq!(costs[500], 350_000);
        assert_eq!(costs[1_000..], [200_000; 1_000]);
        assert!(costs.is_sorted_by(|one, next| one >= next));
    }

    #[test]
    fn a_warm_client_costs_the_same_from_the_start() {
        for mut warm_up in [WarmUp::new(0, 1_000), WarmUp::new(1_500, 0)] {
            assert_eq!(warm_up.cost(200_000), 200_000);
        }
    }
}
