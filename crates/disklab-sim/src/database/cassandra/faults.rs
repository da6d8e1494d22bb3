//! Nodes that go away and come back: who notices when, what fails, and how a node starts again.
//!
//! A node that is away ends what it has begun, but nothing that it says arrives any more. The others send it
//! requests until they have convicted it; clients take it for a coordinator until they notice.
//!
//! A node that moves to another host takes its seat in the ring there. Hosts that are not yet, or no longer, part of
//! the cluster are nodes without a seat. **Divergence:** what is written while a new node streams its data is not sent
//! to it as well; credits and pending compactions do not move with disks.

use disklab_units::Instant;

use super::Cassandra;
use super::broken::{Due, Phase, UNTAKEN};
use super::job::DatabaseJob;
use crate::client::Kind;
use crate::database::cassandra::event::Event;
use crate::faults::{LOOK_NS, Step};
use crate::job::Load;
use crate::job::faults::What;
use crate::report::FaultReport;

impl Cassandra {
    /// The seat of a node: its number, where none has moved.
    #[inline]
    pub(super) fn seat(&self, node: usize) -> usize {
        match &self.broken {
            Some(broken) => usize::from(broken.seat_of[node]),
            None => node,
        }
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
            let at = broken.story.from.saturating_add(first);
            if at < u64::MAX {
                self.course.queue.push(at, Event::Faults);
            }
        }
    }

    /// Goes on from the end of its warm-up, in which nothing broke, with the timetable and the end of a like job.
    pub fn goes_on_as(&mut self, job: &DatabaseJob) {
        let duration_ns = job.workload.stop.duration_ns;
        self.course.ends_at(duration_ns.unwrap_or(u64::MAX));
        if let (Some(broken), Some(faults)) = (&mut self.broken, &job.faults) {
            broken.job.events = faults.in_order();
        }
        self.begin_faults();
    }

    /// Whether a node serves nobody.
    #[inline]
    pub(super) fn is_away(&self, node: usize) -> bool {
        self.broken.as_ref().is_some_and(|one| !one.is_up(node))
    }

    /// Leaves those of `replicas` that the others take for alive, in their order; returns how many.
    pub(super) fn keep_alive(&self, now: u64, at: usize, replicas: &mut [u8]) -> usize {
        let Some(broken) = &self.broken else {
            return replicas.len();
        };
        let mut count = 0;
        for place in 0..replicas.len() {
            let node = usize::from(replicas[place]);
            if broken.seen[node].convicted_at > now && !broken.are_apart(now, at, node) {
                replicas[count] = replicas[place];
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
        if !self.is_away(coordinator) && !self.is_cut_from_client(coordinator) {
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
            broken.story.refused += 1;
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
        if let Some(broken) = &mut self.broken {
            broken.story.failed(now);
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
        if let Some(broken) = &mut self.broken {
            let is_degraded = broken.any_away();
            broken.story.succeeded(now, intended, is_degraded);
        }
    }

    /// Looks at the timetable.
    pub(super) fn look_at_faults(&mut self, now: u64) {
        self.note_first_rates();
        while let Some(due) = self.next_fault(now) {
            let node = usize::from(self.node_on(due.event.node as u8));
            self.take_fault(now, node, due);
        }
        self.expire(now);
        self.note_silence(now);
        self.tell_rebuilds(now, false);
        for node in 0..self.nodes.len() {
            self.look_at_standstill(now, node);
            self.advance_node(now, node);
        }
        self.end_repairs(now);
        self.course.queue.push(now + LOOK_NS, Event::Faults);
    }

    /// The next event that is due. One that changes the ring waits for another that does: Cassandra refuses two at a
    /// time, and a rehearsal asks for one after the other.
    fn next_fault(&mut self, now: u64) -> Option<Due> {
        let broken = self.broken.as_mut()?;
        if broken.changing.is_none()
            && let Some(&due) = broken.waiting.front()
            && (due.event.what == What::Add || broken.is_up(broken.node_of(due)))
        {
            return broken.waiting.pop_front();
        }
        loop {
            let event = *broken.job.events.get(broken.next)?;
            if broken.story.from + event.at_ns > now {
                return None;
            }
            let before = broken.job.events[..broken.next].iter();
            let moved = before.filter(|one| one.what.needs_host()).count();
            let spare = broken.first_spare + moved;
            broken.next += 1;
            let due = Due { event, spare };
            if !event.what.changes_ring() || broken.changing.is_none() {
                return Some(due);
            }
            broken.waiting.push_back(due);
        }
    }

    /// Ends the operations whose time is over.
    fn expire(&mut self, now: u64) {
        for line in 0..4 {
            while let Some(broken) = &mut self.broken
                && let Some(&(at, number, serial)) = broken.due[line].front()
                && at <= now
            {
                broken.due[line].pop_front();
                let operation = self.operations[number];
                if operation.serial != serial || operation.needed == 0 || operation.holds == 0 {
                    continue;
                }
                if line < UNTAKEN && self.stands_still(now, usize::from(operation.coordinator)) {
                    self.gives_up(number);
                } else {
                    self.fail(now, number);
                }
            }
        }
    }

    fn take_fault(&mut self, now: u64, node: usize, due: Due) {
        let what = due.event.what;
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
                    self.nodes[node].machine.storage.drop_host_cache();
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
            _ => self.take_other(now, node, due),
        }
    }

    /// What concerns a node's disks, its link or its host.
    fn take_other(&mut self, now: u64, node: usize, due: Due) {
        let Due { event, spare } = due;
        let what = event.what;
        let broken = self.broken.as_mut().expect("there is a timetable");
        match what {
            What::Slow | What::Stall | What::Mend => {
                broken.step(now, what, node, Some(now));
                self.break_volume(now, node, &event);
            }
            What::Credits => {
                broken.step(now, what, node, Some(now));
                let host = &mut self.nodes[node].machine.storage.disks.host;
                host.set_credits(Instant::from_nanos(now), 0);
            }
            _ if what.is_of_a_link() && (event.peer.is_some() || broken.links.is_some()) => {
                self.change_link(now, node, &event);
            }
            What::Cut => self.cut_off(now, node),
            What::Join => self.join_again(now, node),
            What::Migrate => {
                broken.bring(node, spare);
                let joined = now + broken.job.start_ns + broken.job.join_ns;
                broken.seen[spare].phase = Phase::Joining(joined);
                broken.seen[spare].step = broken.step(now, what, spare, None);
            }
            What::Move => {
                broken.bring(node, spare);
                let step = broken.step(now, what, node, None);
                broken.seen[node].step = step;
                if broken.is_up(node) {
                    broken.leaves(node, Phase::Draining, now, now);
                    broken.seen[node].moves_to = Some(spare as u8);
                    self.nodes[node].background.flush();
                    self.course.queue.push(now, Event::Pump(node as u32));
                } else {
                    broken.starts_there(now, node, spare);
                }
            }
            What::Add => {
                assert_eq!(spare, node, "seats were laid down in the order of time");
                broken.seat_of[node] = event.node as u8;
                let joined = now + broken.job.start_ns + broken.job.join_ns;
                broken.seen[node].phase = Phase::Joining(joined);
                let step = broken.step(now, what, node, None);
                broken.seen[node].step = step;
                broken.changing = Some(step);
            }
            What::Decommission => {
                let step = broken.step(now, what, node, None);
                broken.seen[node].phase = Phase::Announcing(now + broken.job.announce_ns);
                broken.seen[node].step = step;
                broken.changing = Some(step);
            }
            What::Repair => {
                let step = broken.step(now, what, node, None);
                broken.repairs.push((node, step));
                self.begin_validation(now, node);
            }
            _ => unreachable!("it concerns the process"),
        }
    }

    /// A node's link carries nothing from now on.
    pub(super) fn cut_off(&mut self, now: u64, node: usize) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let (detect_ns, notice_ns) = (broken.job.detect_ns, broken.job.notice_ns);
        broken.step(now, What::Cut, node, Some(now));
        if broken.is_up(node) {
            broken.leaves(node, Phase::Cut, now + detect_ns, now + notice_ns);
        }
    }

    /// A node's link carries what it did at first.
    pub(super) fn join_again(&mut self, now: u64, node: usize) {
        let broken = self.broken.as_mut().expect("there is a timetable");
        let back = now + broken.job.gossip_ns;
        let is_cut = broken.seen[node].phase == Phase::Cut;
        let step = broken.step(now, What::Join, node, (!is_cut).then_some(now));
        if is_cut {
            broken.seen[node].phase = Phase::Joined(back);
            broken.seen[node].step = step;
        }
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
                broken.story.steps[seen.step].ended = Some(now);
                broken.changing = broken.changing.filter(|&step| step != seen.step);
            }
            Phase::Announcing(until) if until <= now => {
                broken.seen[node].phase = Phase::Sending;
                match broken.story.steps[seen.step].what {
                    What::Decommission => self.begin_handing(now, node),
                    _ => self.begin_giving_back(now, node),
                }
            }
            Phase::Sending if broken.rebuilds.is_done(node) => {
                // Requests that are on their way to it find it: it ends what it has begun.
                broken.leaves(node, Phase::Leaving(now + broken.job.leave_ns), now, now);
                self.ring_has_changed(now, node);
            }
            Phase::Starting(until) if until <= now => {
                if seen.lost_memory && !self.nodes[node].machine.storage.drop_page_cache() {
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
                if broken.joins(node) {
                    self.begin_handing(now, node);
                } else if broken.predecessor(node).is_some() {
                    self.begin_taking_over(now, node);
                } else {
                    self.begin_streams(now, node);
                }
            }
            Phase::Streaming if broken.rebuilds.is_done(node) => self.has_streamed(now, node),
            _ => {}
        }
    }

    /// A node has its data: it serves with them.
    fn has_streamed(&mut self, now: u64, node: usize) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let storage = &mut self.nodes[node].machine.storage;
        if !storage.drop_page_cache() {
            return;
        }
        // What was streamed was written through the page cache.
        storage.warm_page_cache(storage.page_cache_pages(), false);
        broken.seen[node].lost_memory = false;
        broken.seen[node].to_replay = 0;
        let joins = broken.joins(node);
        if broken.predecessor(node).is_some() {
            broken.takes_over(now, node);
        } else {
            broken.returns(now, node);
        }
        if joins {
            self.seats += 1;
            return self.ring_has_changed(now, node);
        }
        self.compact_received(now, node);
    }

    /// Others own what a node that joined has, or one that leaves had.
    fn ring_has_changed(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        self.ring.change(seat);
        if let Some(broken) = &mut self.broken {
            // One that leaves is in the others' way until it has gone.
            let steps = &broken.story.steps;
            broken.changing = broken.changing.filter(|&one| steps[one].ended.is_none());
        }
        self.compact_received(now, node);
    }

    /// What was streamed on behalf of a node is compacted where it came.
    fn compact_received(&mut self, now: u64, node: usize) {
        let Some(broken) = &self.broken else { return };
        for (target, bytes) in broken.rebuilds.received(node) {
            self.nodes[target].background.receive(bytes);
            self.course.queue.push(now, Event::Pump(target as u32));
        }
    }

    /// Ends the repairs whose copies are all compared.
    fn end_repairs(&mut self, now: u64) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let (rebuilds, steps) = (&broken.rebuilds, &mut broken.story.steps);
        broken.repairs.retain(|&(node, step)| {
            let is_done = rebuilds.is_done(node);
            if is_done {
                steps[step].ended = Some(now);
            }
            !is_done
        });
    }

    /// Which nodes have their data and could send them.
    pub(super) fn may_send(&self, node: usize) -> bool {
        !self.is_away(node)
    }

    /// What the faults did; None: there were none.
    pub(super) fn fault_report(&mut self) -> Option<FaultReport> {
        let now = self.course.recorder.measured_to();
        self.tell_rebuilds(now, true);
        let broken = self.broken.as_ref()?;
        let left_ns = |step: &Step| broken.left_ns(now, step.node);
        Some(FaultReport {
            hint_bytes: broken.hint_bytes,
            lost_rows: broken.rebuilds.lost_rows(),
            ..broken.story.report(now, left_ns)
        })
    }
}
