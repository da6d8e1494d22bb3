//! `disklab-engine switch`: carries frames between emulated hosts, each as late as a real network would.
//!
//! It runs in the network namespace in which the hosts' links end, takes its orders as JSON lines on
//! standard input, answers each with one line, and ends with its input.

mod frames;
mod network;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;

use disklab_emulator::precedence;
use disklab_units::{Dilation, Duration, Instant};
use serde::{Deserialize, Serialize};

use frames::{Frame, Port};
use network::{Between, Distance, Link, Lost, Network};

/// Frames on their way take at most so much memory; what comes then is lost, as in a switch without room.
const MOST_BYTES_ON_THE_WAY: usize = 512 << 20;
/// Frames that are read from one port before the others have their turn.
const TURN: usize = 64;
/// The longest wait: nothing to do but to listen.
const IDLE_NS: u64 = 1_000_000_000;
/// An order is a few kilobytes.
const MOST_ORDER_BYTES: usize = 1 << 20;
/// The wait ends this long before a frame is due, and the rest is spent polling: a timer of a virtual machine is late by
/// tens of microseconds, which is much of a round trip of 200 us.
const LEAD_NS: u64 = 60_000;

/// An order on standard input.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
enum Order {
    /// Opens the ports and begins.
    Start {
        ports: Vec<PortOrder>,
        distances: Vec<Distance>,
        seed: u64,
        /// The part of a round trip that the machine takes by itself.
        own_ns: u64,
        dilation: NonZeroU32,
    },
    /// Changes one link.
    Link { port: String, link: Link },
    /// Changes the way between two hosts.
    Between {
        ports: (String, String),
        link: Between,
    },
    /// Lets time run slower by this factor.
    Dilate { factor: NonZeroU32 },
    /// Changes the machine's own part of a round trip.
    Own { own_ns: u64 },
    /// Asks for the counters.
    Counters,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortOrder {
    name: String,
    link: Link,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Counters {
    frames: u64,
    wire_bytes: u64,
    lost_cut: u64,
    lost_chance: u64,
    lost_queue: u64,
    /// Frames that the kernel did not take at the far end.
    refused: u64,
    /// The latest that a frame left the switch after it was due, on this machine's clock.
    late_most_ns: u64,
    late_sum_ns: u64,
}

/// Runs until standard input ends.
pub fn run() -> io::Result<()> {
    be_prompt();
    let mut orders = Orders::new()?;
    let mut switch = Switch::default();
    while switch.turn(&mut orders)? {}
    Ok(())
}

/// Asks for timers without slack and for a place before ordinary programs; both are a matter of exactness only.
fn be_prompt() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    let _refused = precedence::become_urgent();
}

/// Lines of standard input, as they come.
struct Orders {
    pending: Vec<u8>,
    ended: bool,
}

impl Orders {
    fn new() -> io::Result<Orders> {
        let handle = io::stdin().as_raw_fd();
        // SAFETY: no memory is passed.
        let set = unsafe {
            let flags = libc::fcntl(handle, libc::F_GETFL);
            libc::fcntl(handle, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Orders {
            pending: Vec::new(),
            ended: false,
        })
    }

    /// The next whole line; none: no more for now.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(line) = self.whole_line() {
            return Ok(Some(line));
        }
        let mut chunk = [0; 4096];
        loop {
            match io::stdin().lock().read(&mut chunk) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(count) => self.pending.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.whole_line());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.pending.len() > MOST_ORDER_BYTES {
                return Err(io::Error::other("an order of more than 1 MiB"));
            }
        }
    }

    fn whole_line(&mut self) -> Option<Vec<u8>> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        Some(self.pending.drain(..=end).collect())
    }
}

/// A frame on its way, in the order in which they are due.
type Due = Reverse<(u64, u64)>;

#[derive(Default)]
struct Switch {
    names: Vec<String>,
    ports: Vec<Port>,
    counters: Vec<Counters>,
    network: Option<Network>,
    dilation: Dilation,
    /// Which port an address was seen at last.
    seen: HashMap<[u8; 6], usize>,
    due: BinaryHeap<Due>,
    frames: HashMap<u64, (usize, Frame)>,
    bytes: usize,
    count: u64,
}

impl Switch {
    /// Waits for the next thing to do, and does all there is. Returns false at the end of the orders.
    fn turn(&mut self, orders: &mut Orders) -> io::Result<bool> {
        let wait = match self.due.peek() {
            Some(Reverse((at, _))) => at.saturating_sub(now_ns()).saturating_sub(LEAD_NS),
            None => IDLE_NS,
        };
        let ready = self.poll(wait.min(IDLE_NS))?;
        self.deliver();
        if ready[0] {
            while let Some(line) = orders.next()? {
                let answer = match self.obey(&line) {
                    Ok(answer) => answer,
                    Err(why) => serde_json::json!({"event": "refused", "why": why}),
                };
                let mut out = io::stdout().lock();
                writeln!(out, "{answer}")?;
                out.flush()?;
            }
        }
        let ahead = real_ns().saturating_sub(now_ns());
        // An order may have opened ports since: they have their turn next.
        let talking = (0..).zip(&ready[1..]).filter(|(_, has)| **has);
        for (port, _) in talking {
            for _ in 0..TURN {
                let Some(frame) = self.ports[port].receive()? else {
                    break;
                };
                self.take(port, frame, ahead);
            }
            self.deliver();
        }
        Ok(!orders.ended)
    }

    /// Waits so long for orders (first) and frames (by port); returns who has something.
    fn poll(&self, wait_ns: u64) -> io::Result<Vec<bool>> {
        let handles = [io::stdin().as_raw_fd()]
            .into_iter()
            .chain(self.ports.iter().map(Port::handle));
        let mut polled: Vec<libc::pollfd> = handles
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let time = libc::timespec {
            tv_sec: (wait_ns / 1_000_000_000) as _,
            tv_nsec: (wait_ns % 1_000_000_000) as _,
        };
        let count = polled.len() as libc::nfds_t;
        // SAFETY: the list is as long as is said; list and time outlive the call.
        let found = unsafe {
            libc::ppoll(
                polled.as_mut_ptr(),
                count,
                &raw const time,
                std::ptr::null(),
            )
        };
        if found < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(polled.iter().map(|one| one.revents != 0).collect())
    }

    /// Puts a frame on its way. `ahead` is what the system's clock shows more than the one that we wait by.
    fn take(&mut self, port: usize, frame: Frame, ahead: u64) {
        let Some(network) = &mut self.network else {
            return;
        };
        let here = now_ns();
        // A frame without a time, or from before a step of the system's clock, came just now.
        let came = frame
            .arrived_ns
            .saturating_sub(ahead)
            .clamp(here.saturating_sub(IDLE_NS), here);
        let came = self.dilation.of_system(Instant::from_nanos(came));
        self.seen.insert(frame.source(), port);
        let bytes = frame.wire_bytes();
        let counters = &mut self.counters[port];
        counters.frames += 1;
        counters.wire_bytes += bytes;
        let left = match network.leave(came, port, bytes) {
            Ok(left) => left,
            Err(lost) => return counters.lose(lost),
        };
        let target = frame.target();
        let everybody = target[0] & 1 == 1;
        let known = if everybody {
            None
        } else {
            self.seen.get(&target).copied()
        };
        let targets: Vec<usize> = match known {
            Some(one) => vec![one],
            None => (0..self.ports.len()).collect(),
        };
        for to in targets {
            if to == port {
                continue;
            }
            let crossed = network.cross(left, port, to, bytes);
            match crossed.and_then(|out| network.arrive(out, port, to)) {
                Err(lost) => counters.lose(lost),
                Ok(_) if self.bytes + frame.len() > MOST_BYTES_ON_THE_WAY => {
                    counters.lost_queue += 1
                }
                Ok(at) => {
                    let due = self.dilation.of_machine(at).as_nanos();
                    self.bytes += frame.len();
                    self.due.push(Reverse((due, self.count)));
                    self.frames.insert(self.count, (to, frame.copy()));
                    self.count += 1;
                }
            }
        }
    }

    /// Delivers what is due, and what is due within the time for which no wait is worth while.
    fn deliver(&mut self) {
        while let Some(&Reverse((at, number))) = self.due.peek() {
            let mut now = now_ns();
            if at > now + LEAD_NS {
                return;
            }
            while now < at {
                std::hint::spin_loop();
                now = now_ns();
            }
            self.due.pop();
            let Some((to, frame)) = self.frames.remove(&number) else {
                continue;
            };
            self.bytes -= frame.len();
            let counters = &mut self.counters[to];
            counters.late_most_ns = counters.late_most_ns.max(now - at);
            counters.late_sum_ns += now - at;
            if !self.ports[to].send(&frame) {
                counters.refused += 1;
            }
        }
    }

    fn obey(&mut self, line: &[u8]) -> Result<serde_json::Value, String> {
        let order: Order = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match order {
            Order::Start {
                ports,
                distances,
                seed,
                own_ns,
                dilation,
            } => {
                self.start(ports, distances, seed, own_ns, dilation)?;
            }
            Order::Counters => return Ok(self.counted()),
            Order::Link { port, link } => {
                let port = self.port(&port)?;
                *self.network()?.link(port) = link;
            }
            Order::Between { ports, link } => {
                let (one, other) = (self.port(&ports.0)?, self.port(&ports.1)?);
                self.network()?.between(one, other, link);
            }
            Order::Dilate { factor } => {
                self.network()?.forget_times();
                // Frames on their way keep their time: at most one trip of each.
                self.dilation = Dilation::new(factor);
            }
            Order::Own { own_ns } => self.network()?.set_own(Duration::from_nanos(own_ns)),
        }
        Ok(serde_json::json!({"event": "done"}))
    }

    fn start(
        &mut self,
        ports: Vec<PortOrder>,
        distances: Vec<Distance>,
        seed: u64,
        own_ns: u64,
        dilation: NonZeroU32,
    ) -> Result<(), String> {
        if self.network.is_some() {
            return Err("the switch has been started".to_owned());
        }
        let mut opened = Vec::new();
        for port in &ports {
            let end = Port::open(&port.name).map_err(|error| format!("{}: {error}", port.name))?;
            opened.push(end);
        }
        self.ports = opened;
        self.names = ports.iter().map(|port| port.name.clone()).collect();
        self.counters = vec![Counters::default(); ports.len()];
        let links = ports.into_iter().map(|port| port.link).collect();
        let own = Duration::from_nanos(own_ns);
        self.network = Some(Network::new(links, distances, seed, own));
        self.dilation = Dilation::new(dilation);
        Ok(())
    }

    fn network(&mut self) -> Result<&mut Network, String> {
        self.network
            .as_mut()
            .ok_or_else(|| "the switch has not been started".to_owned())
    }

    fn port(&self, name: &str) -> Result<usize, String> {
        let found = self.names.iter().position(|known| known == name);
        found.ok_or_else(|| format!("{name}: there is no such port"))
    }

    fn counted(&self) -> serde_json::Value {
        let ports: serde_json::Map<String, serde_json::Value> = self
            .names
            .iter()
            .zip(&self.counters)
            .map(|(name, counters)| (name.clone(), serde_json::json!(counters)))
            .collect();
        serde_json::json!({"event": "counters", "ports": ports})
    }
}

impl Counters {
    fn lose(&mut self, lost: Lost) {
        match lost {
            Lost::Cut => self.lost_cut += 1,
            Lost::Chance => self.lost_chance += 1,
            Lost::Queue => self.lost_queue += 1,
        }
    }
}

/// This machine's clock that never steps, in nanoseconds.
fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The clock of the kernel's times of arrival.
fn real_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time outlives the call, which fills it; the clocks asked for always exist.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
