//! What links that a timetable changed do to requests, answers and streams.

use super::Cassandra;
use super::broken::Phase;
use super::links::Traffic;
use crate::chance::exponential;
use crate::client::Kind;
use crate::job::faults::{Event, Peer, What};

impl Cassandra {
    /// Changes a link: all of a node's, or its way to one other.
    pub(super) fn change_link(&mut self, now: u64, node: usize, event: &Event) {
        let seat = self.seat(node);
        let changed = event.link.filter(|_| event.what != What::Join);
        let whole_cut = event.what == What::Cut && event.peer.is_none();
        let broken = self.broken.as_mut().expect("there is a timetable");
        let links = broken.links.as_mut().expect("an event changes one");
        links.change(seat, event.peer, changed.filter(|_| !whole_cut));
        let rate = links.own_rate(seat);
        let first = broken.first_rates[node];
        let narrow = first.into_iter().chain(rate).min();
        self.nodes[node].machine.link.set_rate(narrow);
        match (event.what, event.peer) {
            (What::Cut, None) => self.cut_off(now, node),
            (What::Join, None) => self.join_again(now, node),
            _ => {
                let step = broken.step(now, event.what, node, Some(now));
                let back = now + broken.job.gossip_ns;
                let seen = &mut broken.seen[node];
                if event.peer.is_none() && seen.phase == Phase::Cut {
                    // A link that is slow carries something.
                    (seen.phase, seen.step) = (Phase::Joined(back), step);
                }
            }
        }
        self.look_who_is_apart(now, event);
    }

    /// What each node's link sends at first.
    pub(super) fn note_first_rates(&mut self) {
        if let Some(broken) = &mut self.broken
            && broken.first_rates.is_empty()
        {
            let rates = self
                .nodes
                .iter()
                .map(|node| node.machine.link.bytes_per_s());
            broken.first_rates = rates.collect();
        }
    }

    /// Notes which nodes hear nothing of each other any more, or do so again: gossip goes over every node that is up, so
    /// a way that is cut parts two nodes only where no other one joins them. **Source:** `Gossiper` of Cassandra tells
    /// the failure detector of news of a node, and does not ask who brought them.
    fn look_who_is_apart(&mut self, now: u64, event: &Event) {
        let up: Vec<bool> = (0..self.nodes.len())
            .map(|one| !self.is_away(one))
            .collect();
        let seats: Vec<usize> = (0..self.nodes.len()).map(|one| self.seat(one)).collect();
        let broken = self.broken.as_mut().expect("there is a timetable");
        let (detect_ns, notice_ns) = (broken.job.detect_ns, broken.job.notice_ns);
        let links = broken.links.as_ref().expect("an event changes one");
        let on_seat = &broken.node_on;
        let is_up = |seat: usize| on_seat.get(seat).is_some_and(|&node| up[usize::from(node)]);
        for one in 0..seats.len() {
            for other in 0..seats.len() {
                let hears = one == other || links.hears(seats[one], seats[other], is_up);
                let apart = &mut broken.apart[one * seats.len() + other];
                *apart = match hears {
                    true => u64::MAX,
                    false => (*apart).min(now + detect_ns),
                };
            }
        }
        if event.peer == Some(Peer::Client) {
            let client = links.client();
            let node = usize::from(broken.node_on[event.node as usize]);
            if up[node] {
                let is_cut = links.is_cut(client, event.node as usize);
                let seen = &mut broken.seen[node];
                seen.noticed_at = if is_cut { now + notice_ns } else { u64::MAX };
            }
        }
    }

    /// How long a message takes from one node to another.
    #[inline]
    pub(super) fn on_its_way(&mut self, from: usize, to: usize) -> u64 {
        let overhead_ns = match self.rules.message_overhead_ns {
            0 => 0,
            mean_ns => exponential(&mut self.times, mean_ns),
        };
        self.paths.delay(self.seat(from), self.seat(to)) + overhead_ns
    }

    /// When a message that has left one node comes to another.
    #[inline]
    pub(super) fn comes(&mut self, left: u64, from: usize, to: usize, bytes: u64) -> u64 {
        let way = self.on_its_way(from, to);
        let ends = (self.seat(from), self.seat(to));
        self.arrives(left, way, ends, bytes, Traffic::Messages)
    }

    /// The client's end of links; without links any number will do.
    #[inline]
    pub(super) fn client_end(&self) -> usize {
        let links = self
            .broken
            .as_ref()
            .and_then(|broken| broken.links.as_ref());
        links.map_or(usize::MAX, |links| links.client())
    }

    /// When bytes that have left one end come to the other, whose plain way takes so long.
    #[inline]
    pub(super) fn arrives(
        &mut self,
        left: u64,
        way_ns: u64,
        ends: (usize, usize),
        bytes: u64,
        traffic: Traffic,
    ) -> u64 {
        match &mut self.broken {
            Some(broken) => match &mut broken.links {
                Some(links) => links.arrives(left, way_ns, ends, bytes, traffic),
                None => left + way_ns,
            },
            None => left + way_ns,
        }
    }

    /// Whether the way between two nodes carries nothing.
    #[inline]
    pub(super) fn is_way_cut(&self, one: usize, other: usize) -> bool {
        let Some(broken) = &self.broken else {
            return false;
        };
        let seats = (self.seat(one), self.seat(other));
        let links = broken.links.as_ref();
        links.is_some_and(|links| links.is_cut(seats.0, seats.1))
    }

    /// Whether a client's way to a node carries nothing.
    #[inline]
    pub(super) fn is_cut_from_client(&self, node: usize) -> bool {
        let Some(broken) = &self.broken else {
            return false;
        };
        let links = broken.links.as_ref();
        links.is_some_and(|links| links.is_cut(links.client(), self.seat(node)))
    }

    /// Whether a request, or its answer, was on a way that is cut. The coordinator learns so from a read's time-out, which
    /// the dynamic snitch takes for a very slow answer. **Source:** `MessagingService` (3.x), `RequestCallbacks` (4.0 on).
    pub(super) fn is_swallowed(&mut self, now: u64, number: u32) -> bool {
        if self.broken.is_none() {
            return false;
        }
        let request = self.requests[number];
        let coordinator = self.operations[request.operation].coordinator;
        if request.local || !self.is_way_cut(usize::from(coordinator), usize::from(request.node)) {
            return false;
        }
        self.miss(now, number);
        true
    }

    /// A request that nobody answers: the coordinator learns so from its time-out.
    pub(super) fn miss(&mut self, now: u64, number: u32) {
        let request = self.requests[number];
        let coordinator = self.operations[request.operation].coordinator;
        let row_bytes = self.rules.row_bytes;
        if let Some(broken) = &mut self.broken {
            match request.kind {
                Kind::Read => {
                    let at = now + broken.job.read_timeout_ns;
                    broken.silent.push_back((at, coordinator, request.node));
                }
                // A write that was not acknowledged leaves a hint.
                Kind::Write => broken.hint_bytes += row_bytes,
            }
        }
    }

    /// Tells coordinators of the reads that nobody answered in time.
    pub(super) fn note_silence(&mut self, now: u64) {
        while let Some(broken) = &mut self.broken
            && let Some(&(at, coordinator, node)) = broken.silent.front()
            && at <= now
        {
            broken.silent.pop_front();
            let span = broken.job.read_timeout_ns;
            if let Some(snitch) = &mut self.snitch {
                snitch.note(usize::from(coordinator), usize::from(node), span);
            }
        }
    }

    /// An operation's answer does not come to its client, who gives it up in the end.
    pub(super) fn never_told(&mut self, now: u64, number: u32) {
        self.operations[number].needed = u8::MAX;
        let serial = self.operations[number].serial;
        if let Some(broken) = &mut self.broken {
            let at = now + broken.job.notice_ns;
            broken.due[super::broken::UNTAKEN].push_back((at, number, serial));
        }
    }
}
