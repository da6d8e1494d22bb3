//! A limit with the I/Os that wait for it.
//!
//! An I/O passes the gates of its route one after another: its disk's first, the VM's last. Each
//! gate has a queue of its own, so an I/O has paid every gate behind it and waits for exactly one.
//! Three things follow. Nobody can starve: each gate serves in turn and a paid token is never given
//! back. A disk that waits for its own limit holds nothing that others need, and cache hits never
//! stand behind misses, because the two meet only at the cached budget. And the time an I/O waits
//! is always charged to one limit: the one at whose gate it stands.
//!
//! At a gate of the VM each disk has a line of its own, and the lines are served in turn, one I/O
//! each: a disk with a deep queue slows the others down but cannot lock them out.

use std::collections::VecDeque;

use crate::limit::Meter;
use crate::part::Part;

/// Where a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On one member disk, with one line.
    Disk,
    /// On all disks of a name, with a line for each member disk.
    Shared,
    /// On the VM's storage network, with a line for each member disk.
    Uncached,
    /// On the VM's host SSD, with a line for each member disk.
    Cached,
}

impl Place {
    /// As counters and journals call it, for this disk of a stripe.
    pub fn name(self, member: u32) -> String {
        match self {
            Place::Disk => format!("disk {member}"),
            Place::Shared => "vm shared".to_owned(),
            Place::Uncached => "vm uncached".to_owned(),
            Place::Cached => "vm cached".to_owned(),
        }
    }
}

/// A waiting part.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    part: Part,
    /// Since when, in nanoseconds.
    since: u64,
}

/// One member disk's line at a gate, with what it was granted so far.
#[derive(Clone, Debug, Default)]
pub struct Line {
    queue: VecDeque<Waiting>,
    granted: u64,
    delayed_ios: u64,
    delayed_ns: u64,
}

impl Line {
    /// Units granted.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// I/Os that had to wait.
    pub fn delayed_ios(&self) -> u64 {
        self.delayed_ios
    }

    /// For how long they waited up to `now`, in nanoseconds.
    pub fn delayed_ns(&self, now: u64) -> u64 {
        let still = self
            .queue
            .iter()
            .map(|waiting| now.saturating_sub(waiting.since));
        self.delayed_ns + still.sum::<u64>()
    }

    /// Whether somebody waits.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// What became of a part at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It paid and goes on.
    Granted,
    /// It waits; the gate must be opened at the time given, if this was not known before.
    Waits(Option<u64>),
}

/// What an open gate does for those who wait.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// This part has paid and goes on.
    Granted(Part),
    /// It is closed until then.
    Closed(u64),
    /// Nobody waits.
    Idle,
}

/// A limit with its queue.
#[derive(Clone, Debug)]
pub struct Gate {
    meter: Meter,
    place: Place,
    /// The only line of a disk's gate. Inline, since every I/O comes here.
    own: Line,
    /// The lines of a gate of the VM, by lane.
    lines: Vec<Line>,
    /// Lanes of which somebody waits at a gate of the VM, in the order of service.
    turn: VecDeque<u32>,
    /// When it opens for those who wait.
    opens_at: u64,
    /// Whether somebody waits.
    busy: bool,
}

impl Gate {
    /// A gate where nobody waits.
    pub fn new(meter: Meter, place: Place) -> Gate {
        Gate {
            meter,
            place,
            own: Line::default(),
            lines: Vec::new(),
            turn: VecDeque::new(),
            opens_at: u64::MAX,
            busy: false,
        }
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Its limit.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Its limit, to be changed. Call [`Gate::reschedule`] afterwards.
    pub fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// The line of a lane.
    pub fn line(&self, lane: u32) -> &Line {
        match self.place {
            Place::Disk => &self.own,
            _ => &self.lines[lane as usize],
        }
    }

    /// Makes room for the lines of `lanes` lanes.
    pub fn reserve_lines(&mut self, lanes: usize) {
        if self.place != Place::Disk && self.lines.len() < lanes {
            self.lines.resize_with(lanes, Line::default);
        }
    }

    /// Forgets what the line of a lane was granted, for a new disk in its place.
    pub fn reset_line(&mut self, lane: u32) {
        *self.line_mut(lane) = Line::default();
    }

    #[inline]
    fn line_mut(&mut self, lane: u32) -> &mut Line {
        match self.place {
            Place::Disk => &mut self.own,
            _ => &mut self.lines[lane as usize],
        }
    }

    #[inline]
    fn cost(&self, part: &Part) -> u64 {
        self.meter.cost(match self.place {
            Place::Cached => part.len,
            Place::Disk | Place::Shared | Place::Uncached => part.disk_len,
        })
    }

    /// Takes a part that arrives at `now`.
    #[inline]
    pub fn enter(&mut self, now: u64, part: &Part) -> Passage {
        if self.busy {
            self.wait(now, part);
            return Passage::Waits(None);
        }
        let cost = self.cost(part);
        if self.meter.try_take(now, cost) {
            self.line_mut(part.lane).granted += cost;
            return Passage::Granted;
        }
        self.wait(now, part);
        self.opens_at = self.meter.opens_at();
        Passage::Waits(Some(self.opens_at))
    }

    #[inline]
    fn wait(&mut self, now: u64, part: &Part) {
        self.busy = true;
        let shared = self.place != Place::Disk;
        let line = self.line_mut(part.lane);
        line.delayed_ios += 1;
        let first = line.queue.is_empty();
        line.queue.push_back(Waiting {
            part: *part,
            since: now,
        });
        if shared && first {
            self.turn.push_back(part.lane);
        }
    }

    /// Whether an opening planned for `now` still holds.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        self.opens_at == now
    }

    /// Serves the next waiting part, if the gate is open.
    ///
    /// One call for a part and the time of the next opening together: a saturated disk comes here
    /// twice for each I/O.
    #[inline]
    pub fn serve(&mut self, now: u64) -> Turn {
        if !self.busy {
            self.opens_at = u64::MAX;
            return Turn::Idle;
        }
        if !self.meter.is_open(now) {
            self.opens_at = self.meter.opens_at().max(now);
            return Turn::Closed(self.opens_at);
        }
        let lane = self.turn.front().copied().unwrap_or_default();
        let line = self.line_mut(lane);
        let Some(Waiting { part, since }) = line.queue.pop_front() else {
            return Turn::Idle;
        };
        line.delayed_ns += now - since;
        let emptied = line.queue.is_empty();
        if self.place == Place::Disk {
            self.busy = !emptied;
        } else if emptied {
            self.turn.pop_front();
            self.busy = !self.turn.is_empty();
        } else if self.turn.len() > 1 {
            self.turn.rotate_left(1);
        }
        let cost = self.cost(&part);
        self.meter.take(cost);
        self.line_mut(lane).granted += cost;
        Turn::Granted(part)
    }

    /// When the gate opens next for those who wait; `None`: nobody does.
    #[inline]
    pub fn reschedule(&mut self, now: u64) -> Option<u64> {
        if !self.busy {
            self.opens_at = u64::MAX;
            return None;
        }
        self.opens_at = if self.meter.is_open(now) {
            now
        } else {
            self.meter.opens_at().max(now)
        };
        Some(self.opens_at)
    }

    /// Removes everybody in the line of a lane, in order.
    pub fn clear_line(&mut self, now: u64, lane: u32, out: &mut Vec<Part>) {
        self.turn.retain(|&other| other != lane);
        self.busy = !self.turn.is_empty();
        let line = self.line_mut(lane);
        for waiting in line.queue.drain(..) {
            line.delayed_ns += now.saturating_sub(waiting.since);
            out.push(waiting.part);
        }
    }
}
