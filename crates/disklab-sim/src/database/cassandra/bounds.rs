//! What bound a rebuild: the fullest of the limits between its beginning and its end.

use super::Cassandra;
use super::links::Links;
use super::rebuild::{Kind, Rebuild, Rebuilds};
use crate::bound::bound_of;
use crate::node::Node;
use crate::report::RebuildReport;
use crate::report::Uses;

impl Cassandra {
    /// Notes what bound each rebuild that has ended; at the `last` look those that go on, too.
    pub(super) fn tell_rebuilds(&mut self, now: u64, last: bool) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let seat_of = &broken.seat_of;
        for index in 0..broken.rebuilds.all.len() {
            let rebuilds = &mut broken.rebuilds;
            let rebuild = &mut rebuilds.all[index];
            let ended = rebuild.ended.unwrap_or(now);
            let goes_on = rebuild.ended.is_none() && !last;
            if rebuild.told || goes_on || rebuild.bytes == 0 || ended <= rebuild.begun {
                continue;
            }
            rebuild.told = true;
            let rebuild = &rebuilds.all[index];
            let mut uses = Uses::new(&rebuilds.hosts);
            add_nodes(&mut uses, now, rebuild, &self.nodes);
            let spent_s = (ended - rebuild.begun) as f64 / 1e9;
            let rate = rebuild.done as f64 / spent_s;
            let pace = self.rules.table_write_bytes_per_s;
            add_throttles(&mut uses, rebuilds, rebuild, rate, pace);
            if let Some(links) = &broken.links {
                let delay_of = |from, to| self.paths.mean_delay(from, to);
                add_links(&mut uses, (links, seat_of), rebuilds, index, rate, delay_of);
            }
            let report = RebuildReport {
                node: u32::from(seat_of[rebuild.node]),
                kind: rebuild.kind.name(),
                bytes: rebuild.bytes,
                done_bytes: rebuild.done,
                bytes_per_s: rate,
                seconds: rebuild.bytes as f64 / rate.max(1.0),
                sources: rebuild.sources,
                bound: bound_of(uses),
            };
            broken.story.rebuilds.push(report);
        }
    }
}

/// Adds what disks, machines, processors and networks of all nodes did since a rebuild began.
fn add_nodes(uses: &mut Uses, now: u64, rebuild: &Rebuild, nodes: &[Node]) {
    let span = (now, now - rebuild.begun);
    for (number, (node, before)) in nodes.iter().zip(&rebuild.before).enumerate() {
        before.add_uses(uses, format!("node {number}"), span, &node.machine);
    }
}

/// Adds what the database itself allows; `pace`: of a thread that writes a table.
fn add_throttles(uses: &mut Uses, all: &Rebuilds, rebuild: &Rebuild, rate: f64, pace: u64) {
    let throttles = all.throttles;
    let own = match rebuild.kind {
        Kind::Stream => [
            ("stream throughput", rebuild.most_from, throttles.stream),
            ("stream writer", rebuild.largest, pace),
        ],
        Kind::Validation => [
            ("compaction throughput", rebuild.largest, throttles.validate),
            ("validation", rebuild.largest, throttles.validate_thread),
        ],
        Kind::Replay => [("", 0, 0); 2],
    };
    for (name, part, limit) in own.into_iter().filter(|one| one.2 > 0) {
        // Of the node, or thread, that has the largest part: the others are ready before.
        let each = rate * part as f64 / rebuild.bytes as f64;
        uses.add(name, String::new(), each / limit as f64, 0);
    }
}

/// Adds links that are not as they were at first.
fn add_links(
    uses: &mut Uses,
    (links, seat_of): (&Links, &[u8]),
    rebuilds: &Rebuilds,
    index: usize,
    rate: f64,
    delay_of: impl Fn(usize, usize) -> u64,
) {
    let streams = rebuilds.streams.iter();
    let streams = streams.filter(|one| one.rebuild as usize == index && one.kind == Kind::Stream);
    for stream in streams {
        let from = usize::from(seat_of[usize::from(stream.source)]);
        let to = usize::from(seat_of[usize::from(stream.target)]);
        if let Some(limit) = links.stream_rate(from, to, delay_of(from, to)) {
            let each = rate * stream.bytes as f64 / rebuilds.all[index].bytes as f64;
            uses.add("link", String::new(), each / limit.max(1) as f64, 0);
        }
    }
}
