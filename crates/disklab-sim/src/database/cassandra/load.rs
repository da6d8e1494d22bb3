//! What clients do: operations begin, are sent to a coordinator, and end.

use super::links::Traffic;
use super::{Cassandra, MESSAGE_BYTES, Operation};
use crate::client::What;
use crate::database::cassandra::event::Event;
use crate::job::Load;
use crate::storage::NOBODY;

/// A part of an operation that is to be sent.
struct Drawn {
    what: What,
    part: What,
    rows: u32,
    key: u64,
    /// Where the time of the parts before it went.
    carries: u32,
}

impl Cassandra {
    /// A thread starts its next operation, unless the run has had all of them.
    pub(super) fn start(&mut self, now: u64, thread: u32) {
        if self.course.issued < self.course.most_issued {
            self.course.recorder.started(now);
            self.issue(now, thread, now);
        }
    }

    /// Sends an operation that counts since `intended`.
    fn issue(&mut self, now: u64, thread: u32, intended: u64) {
        self.course.issued += 1;
        let (what, rows, key) = self.clients.next();
        let drawn = Drawn {
            what,
            part: what.first_part(),
            rows,
            key,
            carries: NOBODY,
        };
        self.send(now, thread, (intended, intended), drawn);
    }

    /// Sends a part of an operation: what it was meant to begin at, and what this part of it was.
    fn send(&mut self, now: u64, thread: u32, (intended, since): (u64, u64), drawn: Drawn) {
        let Drawn {
            what,
            part,
            rows,
            key,
            carries,
        } = drawn;
        let place = self.ring.place(key);
        let replicas = self.ring.replicas(place);
        let first = self.node_on(replicas[0]);
        let size = self.rules.size_of(|| self.row_at(key, place, first));
        let costs = self.rules.costs_of(part, rows, size);
        let bytes = MESSAGE_BYTES + costs.sent_bytes;
        let cores = &mut self.nodes[0].machine.cores;
        let cores = self.clients.on_server.then_some(cores);
        let left = self
            .clients
            .send(now, thread, costs.client_ns, bytes, cores);
        let coordinator = if self.rules.token_aware {
            // Any of the replicas, in turn.
            replicas[self.course.issued as usize % replicas.len()]
        } else {
            (self.course.issued % self.seats) as u8
        };
        let coordinator = self.node_on(coordinator);
        let coordinator = self.coordinator_of(now, coordinator, replicas);
        let operation = self.operations.add(Operation {
            what,
            part,
            kind: part.kind(),
            rows,
            size,
            carries,
            coordinator: u16::from(coordinator),
            thread,
            intended,
            since,
            key,
            place,
            needed: 0,
            holds: 1,
            spare: None,
            serial: self.course.issued as u32,
            issued: now,
            left,
            begun: 0,
        });
        let seat = self.seat(usize::from(coordinator));
        let way = self.paths.delay(self.clients.machine_of(thread), seat);
        let ends = (self.client_end(), seat);
        let at = self.arrives(left, way, ends, bytes, Traffic::Messages);
        self.course.queue.push(at, Event::Arrive(operation));
    }

    /// An open loop's operation is due.
    pub(super) fn offer(&mut self, now: u64) {
        let Load::Open { max_in_flight, .. } = self.rules.load else {
            return;
        };
        if self.course.issued + self.unsent.len() as u64 >= self.course.most_issued {
            return;
        }
        self.course.recorder.started(now);
        if self.operations.in_use() < max_in_flight as usize {
            let thread = self.course.issued as u32;
            self.issue(now, thread, now);
        } else {
            self.unsent.push_back(now);
        }
        self.next_offer += self.clients.next_distance(&self.rules.load);
        self.course.queue.push(self.next_offer, Event::Offer);
    }

    /// A client has its answer.
    pub(super) fn done(&mut self, now: u64, number: u32) {
        let Operation {
            what,
            part,
            thread,
            intended,
            key,
            carries,
            ..
        } = self.operations[number];
        if what == What::ReadModifyWrite && part == What::Read {
            // What it was until now goes with its other part.
            self.operations[number].carries = NOBODY;
            self.let_go(number);
            let drawn = Drawn {
                what,
                part: What::Write,
                rows: 1,
                key,
                carries,
            };
            return self.send(now, thread, (intended, now), drawn);
        }
        self.course.recorder.ended(now, what as usize, intended);
        self.note_success(now, intended);
        self.let_go(number);
        match self.rules.load {
            Load::Closed { .. } => self.start(now, thread),
            Load::Open { .. } => self.send_next(now, thread),
        }
    }

    /// Sends the operation that has waited longest because too many were under way.
    pub(super) fn send_next(&mut self, now: u64, thread: u32) {
        if let Some(intended) = self.unsent.pop_front() {
            self.issue(now, thread, self.rules.load.counted_from(intended, now));
        }
    }
}
