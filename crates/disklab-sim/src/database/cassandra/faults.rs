//! Nodes that go away and come back: who notices when, what fails, and how a node starts again.
//!
//! A node that is away ends what it has begun, but nothing that it says arrives any more. The others send it
//! requests until they have convicted it; clients take it for a coordinator until they notice.
//!
//! A node that moves to another host takes its seat in the ring there. Hosts that are not yet, or no longer, part of
//! the cluster are nodes without a seat. **Divergence:** what is written while a new node streams its data is not sent
//! to it as well; credits and pending compactions do not move with disks.

use std::collections::VecDeque;

use disklab_disk::Fault;
use disklab_units::Instant;

use super::Cassandra;
use super::rebuild::Rebuilds;
use crate::client::Kind;
use crate::database::event::Event;
use crate::faults::{Course, FaultReport, StepReport};
use crate::job::faults::{Faults, What};
use crate::job::{Cluster, Load};

/// How often the timetable is looked at: events, time-outs and phases are as exact as that.
const LOOK_NS: u64 = 10_000_000;

/// `slow` makes I/Os take ten times as long, as a rehearsal's does.
const SLOW_PERMILLE: u32 = 10_000;

/// What a node that is away does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It serves.
    Up,
    /// Nothing.
    Away,
    /// It writes its memtables before it ends.
    Draining,
    /// Its process starts.
    Starting(u64),
    /// It reads its commit log.
    Replaying,
    /// It writes what it has replayed.
    Flushing,
    /// Its process starts empty, and listens to the others.
    Joining(u64),
    /// It streams its data.
    Streaming,
    /// Its link is cut: it works, and nobody hears of it.
    Cut,
    /// Its link is back; the others take it for alive at this time.
    Joined(u64),
    /// Another node has its seat, and it ends what it has begun.
    Leaving(u64),
    /// It does not belong to the cluster.
    Outside,
}

impl Phase {
    fn serves(self) -> bool {
        matches!(self, Phase::Up | Phase::Leaving(_))
    }
}

/// A node as the others see it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    phase: Phase,
    /// When the other nodes know that it is away.
    convicted_at: u64,
    /// When clients know.
    noticed_at: u64,
    /// Bytes of its commit log that are in no table.
    to_replay: u64,
    /// The step that brings it back.
    step: usize,
    lost_memory: bool,
    /// The host that it moves to when it has ended.
    moves_to: Option<u8>,
}

/// A step under way or over.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    /// The seat, by which the timetable names a node.
    seat: u8,
    /// The node that ends it.
    node: usize,
    begun: u64,
    ended: Option<u64>,
}

/// What a run with faults knows.
pub struct Broken {
    job: Faults,
    next: usize,
    seen: Vec<Seen>,
    /// The node on each seat of the ring.
    node_on: Vec<u8>,
    /// The seat of each node, that which it is to take included.
    pub seat_of: Vec<u8>,
    /// The next host that nobody has moved to yet.
    next_spare: u8,
    steps: Vec<Step>,
    /// When operations expire: reads, writes, those sent to a machine that had vanished.
    due: [VecDeque<(u64, u32, u32)>; 3],
    pub course: Course,
    pub rebuilds: Rebuilds,
    unavailable: u64,
    hint_bytes: u64,
    /// When measuring began.
    from: u64,
}

/// Deadlines of operations that no coordinator took.
const UNTAKEN: usize = 2;

impl Broken {
    /// A cluster of so many nodes, those without a seat included, whose run begins to be measured at `from`.
    pub fn new(job: &Faults, cluster: &Cluster, nodes: usize, from: u64) -> Broken {
        let up = Seen {
            phase: Phase::Up,
            convicted_at: u64::MAX,
            noticed_at: u64::MAX,
            to_replay: 0,
            step: 0,
            lost_memory: false,
            moves_to: None,
        };
        let outside = Seen {
            phase: Phase::Outside,
            ..up
        };
        let seats = cluster.nodes as usize;
        let profiles = job.hosts.iter().map(|other| &other.host);
        let profiles = std::iter::once(&cluster.host).chain(profiles);
        Broken {
            course: Course::new(job.interval_ns),
            rebuilds: Rebuilds::new(profiles.cloned().collect(), nodes, job.stream_bytes_per_s),
            next: 0,
            seen: (0..nodes)
                .map(|n| if n < seats { up } else { outside })
                .collect(),
            node_on: (0..cluster.nodes as u8).collect(),
            seat_of: (0..nodes as u8).collect(),
            next_spare: cluster.nodes as u8,
            steps: Vec::new(),
            due: Default::default(),
            unavailable: 0,
            hint_bytes: 0,
            from,
            job: in_order(job),
        }
    }

    fn is_up(&self, node: usize) -> bool {
        self.seen[node].phase.serves()
    }

    /// Whether all is not as it was at first.
    fn any_away(&self) -> bool {
        let is_settled = |phase| matches!(phase, Phase::Up | Phase::Outside);
        self.seen.iter().any(|seen| !is_settled(seen.phase))
    }

    fn step(&mut self, now: u64, what: What, node: usize, ended: Option<u64>) -> usize {
        self.steps.push(Step {
            what,
            seat: self.seat_of[node],
            node,
            begun: now,
            ended,
        });
        self.steps.len() - 1
    }

    /// A node goes away; the others and the clients know at these times.
    fn leaves(&mut self, node: usize, phase: Phase, convicted_at: u64, noticed_at: u64) {
        let seen = &mut self.seen[node];
        (seen.phase, seen.convicted_at, seen.noticed_at) = (phase, convicted_at, noticed_at);
    }

    fn returns(&mut self, now: u64, node: usize) {
        let seen = &mut self.seen[node];
        (seen.phase, seen.convicted_at, seen.noticed_at) = (Phase::Up, u64::MAX, u64::MAX);
        let step = seen.step;
        self.steps[step].ended = Some(now);
    }

    /// The next host takes a node's seat, or is to take it; returns it.
    fn bring(&mut self, node: usize) -> usize {
        let spare = usize::from(self.next_spare);
        self.next_spare += 1;
        self.seat_of[spare] = self.seat_of[node];
        spare
    }

    fn sits_down(&mut self, node: usize) {
        self.node_on[usize::from(self.seat_of[node])] = node as u8;
    }

    /// A node starts on the host that its disks were moved to.
    fn starts_there(&mut self, now: u64, node: usize, there: usize) {
        let old = self.seen[node];
        self.seen[node].phase = Phase::Outside;
        self.seen[there] = Seen {
            phase: Phase::Starting(now + self.job.start_ns),
            lost_memory: true,
            moves_to: None,
            ..old
        };
        self.steps[old.step].node = there;
        self.sits_down(there);
    }

    /// A new node has its data: it serves, and the one on its seat leaves.
    fn takes_over(&mut self, now: u64, node: usize) {
        let old = usize::from(self.node_on[usize::from(self.seat_of[node])]);
        let step = self.seen[node].step;
        self.sits_down(node);
        self.seen[node].phase = Phase::Up;
        self.seen[old].phase = Phase::Leaving(now + self.job.leave_ns);
        self.seen[old].step = step;
        self.steps[step].node = old;
    }

    /// The one that a new node takes its data from; None: it is not new.
    fn predecessor(&self, node: usize) -> Option<usize> {
        let old = usize::from(self.node_on[usize::from(self.seat_of[node])]);
        (old != node).then_some(old)
    }

    /// How long the present phase of an unfinished step still takes, at the rate that was seen.
    fn left_ns(&self, now: u64, node: usize) -> u64 {
        let job = &self.job;
        match self.seen[node].phase {
            Phase::Starting(until) => until.saturating_sub(now),
            // Nothing was streamed yet: a time in which only the throttle counts would mislead.
            Phase::Joining(until) => until.saturating_sub(now),
            Phase::Leaving(until) | Phase::Joined(until) => until.saturating_sub(now),
            Phase::Streaming if self.predecessor(node).is_some() => {
                self.rebuilds.left_ns(now, node) + job.leave_ns
            }
            Phase::Replaying | Phase::Streaming => self.rebuilds.left_ns(now, node),
            _ => job.start_ns,
        }
    }
}

/// The faults with their events in the order of time.
fn in_order(job: &Faults) -> Faults {
    let mut job = job.clone();
    job.events.sort_by_key(|event| event.at_ns);
    job
}

impl Cassandra {
    /// The seat of a node: its number, where none has moved.
    #[inline]
    pub(super) fn seat(&self, node: usize) -> usize {
        match &self.broken {
            Some(broken) => usize::from(broken.seat_of[node]),
            None => node,
        }
    }

    /// The one that a new node takes its data from; None: it is not new.
    pub(super) fn predecessor(&self, node: usize) -> Option<usize> {
        self.broken.as_ref()?.predecessor(node)
    }

    /// What nodes move to.
    pub fn other_hosts(&self) -> &[Cluster] {
        self.broken.as_ref().map_or(&[], |broken| &broken.job.hosts)
    }

    /// The node on a seat.
    #[inline]
    pub(super) fn node_on(&self, seat: u8) -> u8 {
        match &self.broken {
            Some(broken) => broken.node_on[usize::from(seat)],
            None => seat,
        }
    }

    /// Begins to look at the timetable.
    pub(super) fn begin_faults(&mut self) {
        if let Some(broken) = &self.broken {
            let first = broken.job.events.first().map_or(u64::MAX, |one| one.at_ns);
            let at = broken.from.saturating_add(first);
            if at < u64::MAX {
                self.course.queue.push(at, Event::Faults);
            }
        }
    }

    /// Whether a node serves nobody.
    #[inline]
    pub(super) fn is_away(&self, node: usize) -> bool {
        self.broken.as_ref().is_some_and(|one| !one.is_up(node))
    }

    /// Leaves those of `replicas` that the others take for alive, in their order; returns how many.
    pub(super) fn keep_alive(&self, now: u64, replicas: &mut [u8]) -> usize {
        let Some(broken) = &self.broken else {
            return replicas.len();
        };
        let mut count = 0;
        for at in 0..replicas.len() {
            if broken.seen[usize::from(replicas[at])].convicted_at > now {
                replicas[count] = replicas[at];
                count += 1;
            }
        }
        count
    }

    /// The coordinator that a client takes instead of `wished`, if it knows that it is away: another replica, or else any
    /// node.
    pub(super) fn coordinator_of(&self, now: u64, wished: u8, replicas: &[u8]) -> u8 {
        let Some(broken) = &self.broken else {
            return wished;
        };
        let is_known = |node: u8| broken.seen[usize::from(node)].noticed_at > now;
        if is_known(wished) {
            return wished;
        }
        let nodes = broken.node_on.len() as u64;
        let turn = self.course.issued % nodes;
        let others = (0..nodes).map(|step| broken.node_on[((turn + step) % nodes) as usize]);
        let count = replicas.len();
        let start = self.course.issued as usize % count;
        let near = (0..count).map(|step| self.node_on(replicas[(start + step) % count]));
        near.chain(others).find(|&n| is_known(n)).unwrap_or(wished)
    }

    /// An operation comes to a coordinator that is away: nobody answers it.
    pub(super) fn is_untaken(&mut self, now: u64, number: u32, coordinator: usize) -> bool {
        if !self.is_away(coordinator) {
            return false;
        }
        let serial = self.operations[number].serial;
        self.operations[number].needed = u8::MAX;
        if let Some(broken) = &mut self.broken {
            // A killed process closes its connections, and its clients know; a machine that vanishes does not.
            let seen = broken.seen[coordinator];
            let at = if seen.noticed_at <= now {
                now
            } else {
                now + broken.job.notice_ns
            };
            broken.due[UNTAKEN].push_back((at, number, serial));
        }
        true
    }

    /// A coordinator begins with an operation that needs so many of the replicas it takes for alive. False: there are too
    /// few, and it says so.
    pub(super) fn is_served(&mut self, now: u64, number: u32, alive: usize, copies: usize) -> bool {
        let needed = usize::from(self.rules.needed);
        let (kind, serial) = {
            let operation = &self.operations[number];
            (operation.kind, operation.serial)
        };
        let row_bytes = self.rules.row_bytes;
        let Some(broken) = &mut self.broken else {
            return true;
        };
        if alive < needed {
            broken.unavailable += 1;
            self.fail(now, number);
            return false;
        }
        if kind == Kind::Write {
            broken.hint_bytes += (copies - alive) as u64 * row_bytes;
        }
        let limit = match kind {
            Kind::Read => broken.job.read_timeout_ns,
            Kind::Write => broken.job.write_timeout_ns,
        };
        broken.due[kind as usize].push_back((now + limit, number, serial));
        true
    }

    /// A request, or an answer to it, gets lost with the node that it is for.
    pub(super) fn lose(&mut self, number: u32) {
        let operation = self.requests[number].operation;
        self.requests.release(number);
        self.let_go(operation);
    }

    /// An operation fails.
    fn fail(&mut self, now: u64, number: u32) {
        let entry = &mut self.operations[number];
        (entry.needed, entry.spare) = (0, None);
        let (intended, thread) = (entry.intended, entry.thread);
        self.course.recorder.failed(now, intended);
        if let Some(broken) = &mut self.broken
            && now >= broken.from
        {
            broken.course.failed(now - broken.from);
        }
        self.let_go(number);
        match self.rules.load {
            Load::Closed { .. } => self.start(now, thread),
            Load::Open { .. } => self.send_next(now, thread),
        }
    }

    /// An operation has succeeded.
    #[inline]
    pub(super) fn note_success(&mut self, now: u64, intended: u64) {
        if let Some(broken) = &mut self.broken
            && now >= broken.from
        {
            broken.course.ended(now - broken.from);
            if broken.any_away() {
                broken.course.degraded(now - intended);
            }
        }
    }

    /// Looks at the timetable.
    pub(super) fn look_at_faults(&mut self, now: u64) {
        while let Some(event) = self.next_fault(now) {
            let node = self.node_on(event.node as u8);
            self.take_fault(now, usize::from(node), event.what);
        }
        self.expire(now);
        self.tell_rebuilds(now, false);
        for node in 0..self.nodes.len() {
            self.advance_node(now, node);
        }
        self.course.queue.push(now + LOOK_NS, Event::Faults);
    }

    fn next_fault(&mut self, now: u64) -> Option<crate::job::faults::Event> {
        let broken = self.broken.as_mut()?;
        let event = *broken.job.events.get(broken.next)?;
        (broken.from + event.at_ns <= now).then(|| {
            broken.next += 1;
            event
        })
    }

    /// Ends the operations whose time is over.
    fn expire(&mut self, now: u64) {
        for line in 0..3 {
            while let Some(broken) = &mut self.broken
                && let Some(&(at, number, serial)) = broken.due[line].front()
                && at <= now
            {
                broken.due[line].pop_front();
                let operation = self.operations[number];
                if operation.serial == serial && operation.needed > 0 && operation.holds > 0 {
                    self.fail(now, number);
                }
            }
        }
    }

    fn take_fault(&mut self, now: u64, node: usize, what: What) {
        let unflushed = self.nodes[node].background.unflushed_bytes();
        let broken = self.broken.as_mut().expect("there is a timetable");
        let (detect_ns, notice_ns) = (broken.job.detect_ns, broken.job.notice_ns);
        let started = now + broken.job.start_ns;
        let joined = started + broken.job.join_ns;
        match what {
            What::Kill | What::Lose => {
                let lost = what == What::Lose;
                if broken.is_up(node) || broken.seen[node].phase == Phase::Cut {
                    let noticed = if lost { now + notice_ns } else { now };
                    broken.leaves(node, Phase::Away, now + detect_ns, noticed);
                    broken.seen[node].to_replay = unflushed;
                    self.nodes[node].background.forget();
                }
                let broken = self.broken.as_mut().expect("there is a timetable");
                broken.seen[node].lost_memory |= lost;
                broken.step(now, what, node, Some(now));
                if lost {
                    self.drop_host_cache(node);
                }
            }
            What::Restart => {
                // It says so before it ends.
                broken.leaves(node, Phase::Draining, now, now);
                broken.seen[node].step = broken.step(now, what, node, None);
                broken.seen[node].lost_memory = true;
                self.nodes[node].background.flush();
                self.course.queue.push(now, Event::Pump(node as u32));
            }
            What::Start => {
                broken.seen[node].phase = Phase::Starting(started);
                broken.seen[node].step = broken.step(now, what, node, None);
            }
            What::Replace => {
                broken.seen[node].phase = Phase::Joining(joined);
                broken.seen[node].step = broken.step(now, what, node, None);
                broken.seen[node].lost_memory = true;
            }
            _ => self.take_other(now, node, what),
        }
    }

    /// What concerns a node's disks, its link or its host.
    fn take_other(&mut self, now: u64, node: usize, what: What) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let (detect_ns, notice_ns) = (broken.job.detect_ns, broken.job.notice_ns);
        match what {
            What::Slow | What::Stall | What::Mend => {
                broken.step(now, what, node, Some(now));
                self.break_disk(now, node, what);
            }
            What::Credits => {
                broken.step(now, what, node, Some(now));
                let host = &mut self.nodes[node].storage.disks.host;
                host.set_credits(Instant::from_nanos(now), 0);
            }
            What::Cut => {
                broken.step(now, what, node, Some(now));
                if broken.is_up(node) {
                    broken.leaves(node, Phase::Cut, now + detect_ns, now + notice_ns);
                }
            }
            What::Join => {
                let back = now + broken.job.gossip_ns;
                let is_cut = broken.seen[node].phase == Phase::Cut;
                let step = broken.step(now, what, node, (!is_cut).then_some(now));
                if is_cut {
                    broken.seen[node].phase = Phase::Joined(back);
                    broken.seen[node].step = step;
                }
            }
            What::Migrate => {
                let new = broken.bring(node);
                let joined = now + broken.job.start_ns + broken.job.join_ns;
                broken.seen[new].phase = Phase::Joining(joined);
                broken.seen[new].step = broken.step(now, what, new, None);
            }
            What::Move => {
                let there = broken.bring(node);
                let step = broken.step(now, what, node, None);
                broken.seen[node].step = step;
                if broken.is_up(node) {
                    broken.leaves(node, Phase::Draining, now, now);
                    broken.seen[node].moves_to = Some(there as u8);
                    self.nodes[node].background.flush();
                    self.course.queue.push(now, Event::Pump(node as u32));
                } else {
                    broken.starts_there(now, node, there);
                }
            }
            _ => unreachable!("it concerns the process"),
        }
    }

    fn drop_host_cache(&mut self, node: usize) {
        let host = &mut self.nodes[node].storage.disks.host;
        let volumes: Vec<_> = host.volumes().map(|(id, _)| id).collect();
        for volume in volumes {
            host.drop_cache(volume);
        }
    }

    fn break_disk(&mut self, now: u64, node: usize, what: What) {
        let fault = match what {
            What::Slow => Fault::Slow {
                permille: SLOW_PERMILLE,
                disk: None,
            },
            What::Stall => Fault::Stall { for_ns: None },
            _ => Fault::Recover,
        };
        let storage = &mut self.nodes[node].storage;
        let volume = storage.data_volume();
        storage.disks.inject(now, volume, &fault);
        self.take_decisions(now, node);
    }

    /// Lets a node that is away go on with coming back.
    fn advance_node(&mut self, now: u64, node: usize) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let seen = broken.seen[node];
        match seen.phase {
            Phase::Draining if self.nodes[node].background.is_flushed() => match seen.moves_to {
                Some(there) => broken.starts_there(now, node, usize::from(there)),
                None => broken.seen[node].phase = Phase::Starting(now + broken.job.start_ns),
            },
            Phase::Joined(until) if until <= now => broken.returns(now, node),
            Phase::Leaving(until) if until <= now => {
                broken.seen[node].phase = Phase::Outside;
                broken.steps[seen.step].ended = Some(now);
            }
            Phase::Starting(until) if until <= now => {
                if seen.lost_memory && !self.nodes[node].storage.drop_page_cache() {
                    return;
                }
                broken.seen[node].lost_memory = false;
                broken.seen[node].phase = Phase::Replaying;
                self.begin_replay(now, node, seen.to_replay);
            }
            Phase::Replaying if broken.rebuilds.is_done(node) => {
                broken.seen[node].phase = Phase::Flushing;
                self.nodes[node].background.replayed(seen.to_replay);
                self.course.queue.push(now, Event::Pump(node as u32));
            }
            Phase::Flushing if self.nodes[node].background.is_flushed() => {
                broken.seen[node].to_replay = 0;
                broken.returns(now, node);
            }
            Phase::Joining(until) if until <= now => {
                broken.seen[node].phase = Phase::Streaming;
                self.begin_streams(now, node);
            }
            Phase::Streaming if broken.rebuilds.is_done(node) => {
                let storage = &mut self.nodes[node].storage;
                if !storage.drop_page_cache() {
                    return;
                }
                // What was streamed was written through the page cache.
                storage.warm_page_cache(storage.page_cache_pages(), false);
                let received = broken.rebuilds.received(node);
                broken.seen[node].lost_memory = false;
                broken.seen[node].to_replay = 0;
                if broken.predecessor(node).is_some() {
                    broken.takes_over(now, node);
                } else {
                    broken.returns(now, node);
                }
                self.nodes[node].background.receive(received);
                self.course.queue.push(now, Event::Pump(node as u32));
            }
            _ => {}
        }
    }

    /// Which nodes have their data and could send them.
    pub(super) fn may_send(&self, node: usize) -> bool {
        !self.is_away(node)
    }

    /// What the faults did; None: there were none.
    pub fn fault_report(&mut self) -> Option<FaultReport> {
        let now = self.course.recorder.measured_to();
        self.tell_rebuilds(now, true);
        let broken = self.broken.as_ref()?;
        let from = broken.from;
        let seconds = |at: u64| at.saturating_sub(from) as f64 / 1e9;
        let steps = broken.steps.iter().map(|step| {
            let left = || now + broken.left_ns(now, step.node);
            StepReport {
                what: step.what,
                node: u32::from(step.seat),
                begun_s: seconds(step.begun),
                ended_s: seconds(step.ended.unwrap_or_else(left)),
                extrapolated: step.ended.is_none(),
            }
        });
        Some(FaultReport {
            course: broken.course.report(now.saturating_sub(from)),
            failed_operations: broken.course.failures(),
            unavailable: broken.unavailable,
            degraded_latency_ms: broken.course.degraded_latencies(),
            steps: steps.collect(),
            rebuilds: broken.rebuilds.reports().to_vec(),
            hint_bytes: broken.hint_bytes,
            lost_rows: broken.rebuilds.lost_rows(),
        })
    }
}
