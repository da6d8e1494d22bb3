//! The way of an I/O through the model: arrival, gates, service, end.

use disklab_units::Instant;

use crate::agenda::Event;
use crate::gate::{Passage, Turn};
use crate::host::Host;
use crate::io::{Completion, Io, Op, Outcome};
use crate::parents::Parent;
use crate::part::{Owner, Part, Route};
use crate::profile::Caching;
use crate::volume::Stall;

impl Host {
    /// Does everything that is due up to `now`, each thing at its own time: how late the caller
    /// comes changes no decision, only that nothing can end before he asks.
    #[inline]
    pub(crate) fn run(&mut self, now: u64, out: &mut Vec<Completion>) {
        self.clock = self.clock.max(now);
        if self.agenda.next_at() <= self.clock {
            self.run_due(out);
        }
        self.moment = self.clock;
    }

    /// Apart from [`Host::run`], so that a call which finds nothing due costs a comparison.
    #[inline(never)]
    fn run_due(&mut self, out: &mut Vec<Completion>) {
        while self.agenda.next_at() <= self.clock
            && let Some((at, event)) = self.agenda.pop()
        {
            self.moment = at;
            match event {
                Event::Gate(gate) => self.open_gate(gate, at, out),
                Event::Resume(volume) => self.resume(volume, at, out),
                Event::DestageDue(lane) => {
                    self.lanes[lane as usize].destager.look();
                    self.destage(lane, at, out);
                }
                Event::Destaged(lane) => self.take_arrived(lane, at, out),
                Event::Room => self.admit_waiting(at, out),
            }
        }
    }

    /// Takes a new I/O.
    #[inline]
    pub(crate) fn arrive(&mut self, io: Io, at: u64, out: &mut Vec<Completion>) {
        let down = self.is_down();
        let Some(volume) = self.volume_mut(io.volume.0) else {
            // Its volume is gone, and with it the place to count it.
            out.push(completion(io.tag, at, true));
            return;
        };
        volume.submitted += 1;
        let fits = volume.holds(io.offset.get(), io.len);
        if down || !fits {
            self.end_whole(io, at, true, out);
        } else if matches!(io.op, Op::Read | Op::Write)
            && let Some((lane, offset)) = volume.place_at_once(io.offset.get(), io.len)
        {
            let part = Part {
                offset,
                ..Part::whole(&io, lane, false)
            };
            if volume.profile.caching == Caching::None {
                self.pass(part, at, out);
            } else {
                self.start_part(part, at, out);
            }
        } else if volume.is_stalled() || volume.draining {
            volume.held.push_back(io);
        } else {
            self.start(io, at, out);
        }
    }

    /// Starts an I/O that arrived, or that was held back before.
    pub(crate) fn start(&mut self, io: Io, at: u64, out: &mut Vec<Completion>) {
        let Some(volume) = self.volume_mut(io.volume.0) else {
            return;
        };
        let fails = volume.error_ppm > 0 && volume.chance.chance(volume.error_ppm);
        match io.op {
            Op::Discard => {
                if !fails {
                    self.discard(io, at, out);
                }
                self.end_whole(io, at, fails, out);
            }
            Op::Flush => self.start_flush(io, fails, at, out),
            Op::Read | Op::Write => self.start_transfer(io, fails, at, out),
        }
    }

    fn start_flush(&mut self, io: Io, fails: bool, at: u64, out: &mut Vec<Completion>) {
        let Some(volume) = self.volumes[io.volume.0 as usize].as_deref() else {
            return;
        };
        let lanes = volume.lanes.clone();
        let parent = self.parents.add(Parent {
            tag: io.tag,
            volume: io.volume.0,
            op: io.op,
            len: io.len,
            left: lanes.len() as u32,
            at,
            failed: fails,
        });
        // All disks flush at the same time; the slowest decides.
        for lane in lanes {
            self.flush_lane(lane, parent, at, out);
        }
    }

    fn start_transfer(&mut self, io: Io, fails: bool, at: u64, out: &mut Vec<Completion>) {
        let volume = self.volumes[io.volume.0 as usize].as_deref();
        let Some(volume) = volume else { return };
        let mut part = Part::whole(&io, volume.lanes[0], fails);
        // An empty I/O has no place in a stripe; it counts on the first disk.
        let Some(stripe) = volume.stripe.filter(|_| io.len > 0) else {
            self.start_part(part, at, out);
            return;
        };
        if let Some((member, offset)) = stripe.only_member(io.offset.get(), io.len) {
            (part.lane, part.offset) = (volume.lanes[member], offset);
            self.start_part(part, at, out);
            return;
        }
        let pieces = |member| stripe.on_member(member, io.offset.get(), u64::from(io.len));
        let count = (0..stripe.disks).filter(|&m| pieces(m).is_some()).count();
        if count > 1 {
            let parent = Parent {
                tag: io.tag,
                volume: io.volume.0,
                op: io.op,
                len: io.len,
                left: count as u32,
                at,
                failed: false,
            };
            part.owner = Owner::Child(self.parents.add(parent));
        }
        for member in 0..stripe.disks {
            let Some((offset, len)) = pieces(member) else {
                continue;
            };
            let Some(volume) = self.volumes[io.volume.0 as usize].as_deref() else {
                return;
            };
            part.lane = volume.lanes[member as usize];
            part.offset = offset;
            part.len = u32::try_from(len).expect("no longer than the whole");
            part.disk_len = part.len;
            self.start_part(part, at, out);
        }
    }

    /// Takes a part through its gates as far as they let it.
    #[inline]
    pub(crate) fn pass(&mut self, mut part: Part, at: u64, out: &mut Vec<Completion>) {
        if let Some(journal) = &mut self.journal {
            journal.arrived(part, at);
        }
        let gates = self.lanes[part.lane as usize].route(part.route);
        while let Some(&gate) = gates.get(usize::from(part.step)) {
            match self.gates[gate as usize].enter(at, &part) {
                Passage::Granted => part.step += 1,
                Passage::Waits(opens_at) => {
                    if let Some(journal) = &mut self.journal {
                        journal.waits(part, gate, at);
                    }
                    if let Some(opens_at) = opens_at {
                        self.agenda.push(opens_at, Event::Gate(gate));
                    }
                    return;
                }
            }
        }
        self.serve(part, at, out);
    }

    fn open_gate(&mut self, gate: u32, at: u64, out: &mut Vec<Completion>) {
        if !self.gates[gate as usize].is_due(at) {
            return;
        }
        loop {
            match self.gates[gate as usize].serve(at) {
                Turn::Granted(mut part) => {
                    if let Some(journal) = &mut self.journal {
                        journal.goes_on(part, at);
                    }
                    part.step += 1;
                    self.pass(part, at, out);
                }
                Turn::Closed(opens_at) => {
                    return self.agenda.push(opens_at, Event::Gate(gate));
                }
                Turn::Idle => return,
            }
        }
    }

    /// Gives a part that has passed every gate its service time, and so its end.
    #[inline]
    pub(crate) fn serve(&mut self, part: Part, at: u64, out: &mut Vec<Completion>) {
        let lane = &mut self.lanes[part.lane as usize];
        let Some(volume) = self.volumes[lane.volume as usize].as_deref_mut() else {
            return;
        };
        if volume.is_stalled() {
            volume.kept.push_back(part);
            return;
        }
        let times = self.cache.as_ref().map(|cache| &cache.times);
        let end = at.saturating_add(lane.service_ns(&part, times));
        if let Some(journal) = &mut self.journal {
            journal.served(part, at, end);
        }
        // Most I/Os are whole, and leave the cache as it is.
        if (volume.profile.caching == Caching::None || part.route == Route::Hit)
            && !volume.draining
            && let Owner::Whole(tag) = part.owner
        {
            let end = end.max(self.clock);
            volume.count(op_of(part.route), part.len, part.fails, end, self.clock);
            out.push(completion(tag, end, part.fails));
            return;
        }
        self.update_cache(&part, at, end, out);
        self.end_part(part, end, part.fails, out);
    }

    /// Notes the end of a part.
    pub(crate) fn end_part(
        &mut self,
        part: Part,
        at: u64,
        failed: bool,
        out: &mut Vec<Completion>,
    ) {
        let (at, now) = (at.max(self.clock), self.clock);
        match part.owner {
            Owner::Whole(tag) => {
                let number = self.lanes[part.lane as usize].volume;
                if let Some(volume) = self.volume_mut(number) {
                    volume.count(op_of(part.route), part.len, failed, at, now);
                    if volume.draining {
                        self.agenda.push(self.moment, Event::Resume(number));
                    }
                }
                out.push(completion(tag, at, failed));
            }
            Owner::Child(parent) => self.end_child(parent, at, failed, out),
            Owner::Destage => {}
        }
    }

    /// Notes the end of one lane's share of a parent.
    pub(crate) fn end_child(
        &mut self,
        parent: u32,
        at: u64,
        failed: bool,
        out: &mut Vec<Completion>,
    ) {
        let at = at.max(self.clock);
        if let Some(parent) = self.parents.end_part(parent, at, failed) {
            self.end_parent(parent, out);
        }
    }

    fn end_parent(&mut self, parent: Parent, out: &mut Vec<Completion>) {
        let now = self.clock;
        if let Some(volume) = self.volume_mut(parent.volume) {
            volume.count(parent.op, parent.len, parent.failed, parent.at, now);
            if volume.draining {
                self.agenda.push(self.moment, Event::Resume(parent.volume));
            }
        }
        out.push(completion(parent.tag, parent.at, parent.failed));
    }

    /// Ends an I/O that never had parts.
    pub(crate) fn end_whole(&mut self, io: Io, at: u64, failed: bool, out: &mut Vec<Completion>) {
        let now = self.clock;
        let at = at.max(now);
        if let Some(volume) = self.volume_mut(io.volume.0) {
            volume.count(io.op, io.len, failed, at, now);
        }
        out.push(completion(io.tag, at, failed));
    }

    /// Lets a volume go on, unless something still holds it back: first what had started, then what
    /// was held at the start.
    pub(crate) fn resume(&mut self, volume: u32, at: u64, out: &mut Vec<Completion>) {
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        if matches!(entry.stall, Stall::Until(end) if end <= at) {
            entry.stall = Stall::No;
        }
        if entry.is_stalled() {
            return;
        }
        for part in std::mem::take(&mut entry.kept) {
            self.pass(part, at, out);
        }
        self.end_drain(volume);
        let held = match self.volume_mut(volume) {
            Some(entry) if !entry.draining => std::mem::take(&mut entry.held),
            _ => return,
        };
        for io in held {
            self.start(io, at, out);
        }
    }
}

fn op_of(route: Route) -> Op {
    match route {
        Route::Read | Route::Hit => Op::Read,
        Route::Write | Route::WriteBack | Route::Destage => Op::Write,
    }
}

fn completion(tag: u64, at: u64, failed: bool) -> Completion {
    Completion {
        tag,
        at: Instant::from_nanos(at),
        outcome: if failed {
            Outcome::Failed
        } else {
            Outcome::Done
        },
    }
}
