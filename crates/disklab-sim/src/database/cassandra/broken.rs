//! What is known of nodes that go away and come back: how each stands, on which seat, in which step.

use std::collections::VecDeque;

use super::links::Links;
use super::rebuild::{Rebuilds, Throttles};
use crate::faults::Story;
use crate::job::Cluster;
use crate::job::faults::{Event as JobEvent, Faults, What};

/// What a node that is away does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
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
    /// It serves, and tells the others that it will leave.
    Announcing(u64),
    /// It serves, and sends what it has to the others.
    Sending,
}

impl Phase {
    pub fn serves(self) -> bool {
        matches!(
            self,
            Phase::Up | Phase::Leaving(_) | Phase::Announcing(_) | Phase::Sending
        )
    }
}

/// A node as the others see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub phase: Phase,
    /// When the other nodes know that it is away.
    pub convicted_at: u64,
    /// When clients know.
    pub noticed_at: u64,
    /// Bytes of its commit log that are in no table.
    pub to_replay: u64,
    /// The step that brings it back.
    pub step: usize,
    pub lost_memory: bool,
    /// Bytes that the one whose place it takes is to give back to others behind that.
    pub gives_back: u64,
    /// How long it will take to give back what it must, as far as is known before it does.
    pub owes_ns: u64,
    /// The host that it moves to when it has ended.
    pub moves_to: Option<u8>,
    /// When the volume with its tables serves again.
    pub stalled_until: u64,
    /// Whether the others miss what it says, because its process stands still.
    pub is_held: bool,
}

/// An event whose time has come.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub event: JobEvent,
    /// The host that it brings, if it brings one.
    pub spare: usize,
}

/// What a run with faults knows.
#[derive(Clone)]
pub struct Broken {
    pub job: Faults,
    pub next: usize,
    pub seen: Vec<Seen>,
    /// The node on each seat of the ring.
    pub node_on: Vec<u8>,
    /// The first host that nobody is on at first.
    pub first_spare: usize,
    /// The seat of each node, that which it is to take included.
    pub seat_of: Vec<u8>,
    /// What happened.
    pub story: Story,
    /// Events that change the ring while another does.
    pub waiting: VecDeque<Due>,
    /// The step that changes the ring.
    pub changing: Option<usize>,
    /// None: no event concerns a way between two, or changes a link but by cutting it off.
    pub links: Option<Links>,
    /// When nodes take each other for away whose ways are cut, by the one and the other.
    pub apart: Vec<u64>,
    /// Reads that a cut way has swallowed: when their coordinator knows, and who did not answer.
    pub silent: VecDeque<(u64, u16, u16)>,
    /// What each node's link could send at first.
    pub first_rates: Vec<Option<u64>>,
    /// Nodes that are repaired, with their steps.
    pub repairs: Vec<(usize, usize)>,
    /// When operations expire: reads, writes, those sent to a machine that had vanished, those of a coordinator that stands
    /// still.
    pub due: [VecDeque<(u64, u32, u32)>; 4],
    pub rebuilds: Rebuilds,
    pub hint_bytes: u64,
}

/// Deadlines of operations that no coordinator took.
pub const UNTAKEN: usize = 2;

/// Deadlines of operations that their clients give up.
pub const GIVEN_UP: usize = 3;

impl Broken {
    /// A cluster of so many nodes, those without a seat included, whose run begins to be measured at `from`.
    pub fn new(job: &Faults, cluster: &Cluster, nodes: usize, from: u64, seed: u64) -> Broken {
        let up = Seen {
            phase: Phase::Up,
            convicted_at: u64::MAX,
            noticed_at: u64::MAX,
            to_replay: 0,
            step: 0,
            lost_memory: false,
            gives_back: 0,
            owes_ns: 0,
            moves_to: None,
            stalled_until: 0,
            is_held: false,
        };
        let outside = Seen {
            phase: Phase::Outside,
            convicted_at: 0,
            noticed_at: 0,
            ..up
        };
        let seats = cluster.nodes as usize;
        let profiles = job.hosts.iter().map(|other| &other.host);
        let profiles = std::iter::once(&cluster.host).chain(profiles);
        Broken {
            story: Story::new(job.interval_ns, from),
            rebuilds: Rebuilds::new(profiles.cloned().collect(), nodes, throttles_of(job)),
            next: 0,
            seen: (0..nodes)
                .map(|n| if n < seats { up } else { outside })
                .collect(),
            node_on: nodes_on_seats(job, cluster.nodes as u8),
            first_spare: seats,
            waiting: VecDeque::new(),
            changing: None,
            links: has_links(job).then(|| Links::new(nodes, seed)),
            apart: vec![u64::MAX; nodes * nodes],
            silent: VecDeque::new(),
            first_rates: Vec::new(),
            repairs: Vec::new(),
            seat_of: (0..nodes as u8).collect(),
            due: Default::default(),
            hint_bytes: 0,
            job: in_order(job),
        }
    }

    pub fn is_up(&self, node: usize) -> bool {
        self.seen[node].phase.serves()
    }

    /// Whether all is not as it was at first.
    pub fn any_away(&self) -> bool {
        let is_settled = |phase| matches!(phase, Phase::Up | Phase::Outside);
        !self.repairs.is_empty()
            || self.links.as_ref().is_some_and(Links::any)
            || self
                .seen
                .iter()
                .any(|seen| seen.is_held || !is_settled(seen.phase))
    }

    pub fn step(&mut self, now: u64, what: What, node: usize, ended: Option<u64>) -> usize {
        let seat = usize::from(self.seat_of[node]);
        self.story.step(now, what, (node, seat), ended)
    }

    /// A node goes away; the others and the clients know at these times.
    pub fn leaves(&mut self, node: usize, phase: Phase, convicted_at: u64, noticed_at: u64) {
        let seen = &mut self.seen[node];
        (seen.phase, seen.convicted_at, seen.noticed_at) = (phase, convicted_at, noticed_at);
    }

    pub fn returns(&mut self, now: u64, node: usize) {
        let seen = &mut self.seen[node];
        (seen.phase, seen.convicted_at, seen.noticed_at) = (Phase::Up, u64::MAX, u64::MAX);
        let step = seen.step;
        self.story.end(step, now);
    }

    /// A host takes a node's seat, or is to take it.
    pub fn bring(&mut self, node: usize, spare: usize) {
        self.seat_of[spare] = self.seat_of[node];
    }

    pub fn sits_down(&mut self, node: usize) {
        self.node_on[usize::from(self.seat_of[node])] = node as u8;
    }

    /// A node starts on the host that its disks were moved to.
    pub fn starts_there(&mut self, now: u64, node: usize, there: usize) {
        let old = self.seen[node];
        self.seen[node].phase = Phase::Outside;
        self.seen[there] = Seen {
            phase: Phase::Starting(now + self.job.start_ns),
            lost_memory: true,
            moves_to: None,
            ..old
        };
        self.story.steps[old.step].node = there;
        self.sits_down(there);
    }

    /// A new node has its data: it serves, and the one on its seat leaves.
    pub fn takes_over(&mut self, now: u64, node: usize) {
        let old = usize::from(self.node_on[usize::from(self.seat_of[node])]);
        let step = self.seen[node].step;
        self.sits_down(node);
        let seen = &mut self.seen[node];
        (seen.phase, seen.convicted_at, seen.noticed_at) = (Phase::Up, u64::MAX, u64::MAX);
        let gives_back = self.seen[node].gives_back;
        self.seen[old].owes_ns = self.rebuilds.one_source_ns(now, node, gives_back);
        self.seen[old].phase = Phase::Announcing(now + self.job.announce_ns);
        self.seen[old].step = step;
        self.story.steps[step].node = old;
    }

    /// Whether a node takes another for away because no way leads there.
    pub fn are_apart(&self, now: u64, one: usize, other: usize) -> bool {
        self.links.is_some() && self.apart[one * self.seen.len() + other] <= now
    }

    /// When a volume that serves nothing from an event on is well again; a day later, if never.
    pub fn serves_again(&self, now: u64, stall: &JobEvent) -> u64 {
        const DAY_NS: u64 = 86_400_000_000_000;
        let mut later = self.job.events[self.next..].iter();
        let ends = later.find(|event| {
            let is_same = (event.node, event.volume) == (stall.node, stall.volume);
            is_same && matches!(event.what, What::Mend | What::Slow)
        });
        ends.map_or(now + DAY_NS, |event| self.story.from + event.at_ns)
    }

    /// The node that an event is about.
    pub fn node_of(&self, due: Due) -> usize {
        usize::from(self.node_on[due.event.node as usize])
    }

    /// Whether a node is the one that joins the ring.
    pub fn joins(&self, node: usize) -> bool {
        let step = self.changing.map(|step| &self.story.steps[step]);
        step.is_some_and(|one| one.what == What::Add && one.node == node)
    }

    /// The one whose place a new node is to take; None: it is not new.
    pub fn predecessor(&self, node: usize) -> Option<usize> {
        let old = usize::from(self.node_on[usize::from(self.seat_of[node])]);
        (old != node).then_some(old)
    }

    /// How long the present phase of an unfinished step still takes, at the rate that was seen.
    pub fn left_ns(&self, now: u64, node: usize) -> u64 {
        let job = &self.job;
        match self.seen[node].phase {
            Phase::Starting(until) => until.saturating_sub(now),
            // Nothing was streamed yet: a time in which only the throttle counts would mislead.
            Phase::Joining(until) => until.saturating_sub(now),
            Phase::Leaving(until) | Phase::Joined(until) => until.saturating_sub(now),
            Phase::Streaming if self.predecessor(node).is_some() => {
                let gives_back = self.seen[node].gives_back;
                let back_ns = self.rebuilds.one_source_ns(now, node, gives_back);
                self.rebuilds.left_ns(now, node) + back_ns + job.announce_ns + job.leave_ns
            }
            Phase::Replaying | Phase::Streaming => self.rebuilds.left_ns(now, node),
            Phase::Announcing(until) => {
                until.saturating_sub(now) + self.seen[node].owes_ns + job.leave_ns
            }
            Phase::Sending => self.rebuilds.left_ns(now, node) + job.leave_ns,
            Phase::Up => self.rebuilds.left_ns(now, node),
            _ => job.start_ns,
        }
    }
}

/// The faults with their events in the order of time.
fn in_order(job: &Faults) -> Faults {
    let events = job.in_order();
    Faults {
        events,
        ..job.clone()
    }
}

/// Whether events change links otherwise than by cutting a node off.
fn has_links(job: &Faults) -> bool {
    let mut events = job.events.iter();
    events.any(|one| one.peer.is_some() || one.link.is_some_and(|link| !link.cut))
}

fn throttles_of(job: &Faults) -> Throttles {
    Throttles {
        stream: job.stream_bytes_per_s,
        validate: job.validate_bytes_per_s,
        validate_thread: job.validate_thread_bytes_per_s,
    }
}

/// The node on each seat: behind those of the beginning the ones that are added, on the next hosts in the order of time.
fn nodes_on_seats(job: &Faults, seats: u8) -> Vec<u8> {
    let mut on: Vec<u8> = (0..seats).collect();
    let events = job.in_order();
    let brought = events.iter().filter(|event| event.what.needs_host());
    for (number, event) in brought.enumerate() {
        let seat = event.node as usize;
        if event.what == What::Add {
            on.resize(on.len().max(seat + 1), 0);
            on[seat] = seats + number as u8;
        }
    }
    on
}
