//! What comes back to a server that crashed, or to an empty one: how long it still takes, and what is told of it.

use crate::bound::{Before, bound_of};
use crate::database::outage::Outage;
use crate::machine::Machine;
use crate::report::RebuildReport;
use crate::report::Uses;

/// How long work still takes at the rate that was seen since it began.
pub fn left_ns(now: u64, since: u64, done: u64, left: u64) -> u64 {
    let spent = u128::from(now.saturating_sub(since));
    (spent * u128::from(left) / u128::from(done.max(1))) as u64
}

/// A rebuild that has ended, or goes on at the end of the run.
pub struct Rebuild<'a> {
    pub node: usize,
    pub kind: &'static str,
    pub begun: u64,
    pub bytes: u64,
    pub done_bytes: u64,
    pub sources: u32,
    /// The machines that it uses, by their numbers, with what they had done before.
    pub machines: &'a [(usize, &'a Before, &'a Machine)],
    /// Processes, and for how long each was at work.
    pub processes: &'a [(&'a str, u64)],
}

impl Outage {
    /// Tells of a rebuild; None: there was nothing of it.
    pub fn tell(&mut self, now: u64, rebuild: &Rebuild) -> Option<&mut RebuildReport> {
        let elapsed_ns = now.saturating_sub(rebuild.begun);
        if rebuild.bytes == 0 || elapsed_ns == 0 {
            return None;
        }
        let mut uses = Uses::new([&self.profile]);
        for (number, before, machine) in rebuild.machines {
            let place = format!("node {number}");
            before.add_uses(&mut uses, place, (now, elapsed_ns), machine);
        }
        for &(name, busy_ns) in rebuild.processes {
            let busy = busy_ns as f64 / elapsed_ns as f64;
            uses.add(name, String::new(), busy, 0);
        }
        let rate = rebuild.done_bytes as f64 * 1e9 / elapsed_ns as f64;
        let rebuilds = &mut self.story.rebuilds;
        rebuilds.push(RebuildReport {
            node: rebuild.node as u32,
            kind: rebuild.kind,
            bytes: rebuild.bytes,
            done_bytes: rebuild.done_bytes,
            bytes_per_s: rate,
            seconds: rebuild.bytes as f64 / rate.max(1.0),
            sources: rebuild.sources,
            bound: bound_of(uses),
        });
        rebuilds.last_mut()
    }
}
