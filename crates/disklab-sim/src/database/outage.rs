//! What clients make of a server that goes away and comes back, PostgreSQL's as MariaDB's, and what is told of it.
//!
//! **A killed server** closes its connections: what was under way fails at once, and so does what is due while nobody
//! takes connections. A client tries again after a pause that doubles, as the load engine of a rehearsal does. **A machine
//! that has vanished** closes nothing: statements wait for their time-out, or for the server that is back, which knows none
//! of its old connections.
//!
//! **Source:** `crates/disklab-load/src/clients/postgres.rs`.

use std::collections::VecDeque;

use disklab_disk::profile::HostProfile;
use disklab_units::random::Stream;

use crate::faults::Story;
use crate::job::faults::{Event, What, in_order};
use crate::job::{Load, SqlFaults};

/// A session of a closed loop waits so long after a failure. **Source:** `PAUSE_AFTER_FAILURE` of the load engine.
const PAUSE_NS: u64 = 10_000_000;

/// What clients know of the server.
struct Tries {
    /// None: they have connections. Else when the next try is due, and how long the pause behind it is at most.
    next: Option<(u64, u64)>,
    /// Which server they take for the primary.
    primary: usize,
    chance: Stream,
}

impl Tries {
    /// A try has failed: the upper half of a span that doubles.
    fn failed(&mut self, now: u64, most: u64, longest: u64) {
        let half = (most / 2).max(1);
        let pause = half + self.chance.below(half);
        self.next = Some((now + pause, (most * 2).min(longest)));
    }
}

/// A timetable, and what clients met of it.
pub struct Outage {
    /// What happens, in order, and how long clients wait.
    pub job: SqlFaults,
    /// What happened.
    pub story: Story,
    /// The machines with their disks.
    pub profile: HostProfile,
    next: usize,
    tries: Tries,
    /// Statements in the order in which they were sent: when, by which session, and the number of its transaction.
    sent: VecDeque<(u64, u32, u32)>,
}

impl Outage {
    /// A timetable that begins; `from`: when measuring does.
    pub fn new(job: &SqlFaults, profile: &HostProfile, from: u64, seed: u64) -> Outage {
        Outage {
            job: SqlFaults {
                events: in_order(&job.events),
                ..job.clone()
            },
            story: Story::new(job.interval_ns, from),
            profile: profile.clone(),
            next: 0,
            tries: Tries {
                next: None,
                primary: 0,
                chance: Stream::new(seed, "pauses between tries"),
            },
            sent: VecDeque::new(),
        }
    }

    /// When its first event comes.
    pub fn begins(&self) -> Option<u64> {
        let first = self.job.events.first()?;
        Some(self.story.from.saturating_add(first.at_ns))
    }

    /// The next event, if it is due.
    pub fn due(&mut self, now: u64) -> Option<Event> {
        let event = *self.job.events.get(self.next)?;
        let is_due = self.story.from + event.at_ns <= now;
        self.next += usize::from(is_due);
        is_due.then_some(event)
    }

    /// Notes a step and returns its number; `ended`: None where it goes on.
    pub fn step(&mut self, now: u64, what: What, node: usize, ended: Option<u64>) -> usize {
        self.story.step(now, what, (node, node), ended)
    }

    /// Clients lose their connections: the next try is due at once.
    pub fn disconnect(&mut self, now: u64) {
        if self.tries.next.is_none() {
            self.tries.next = Some((now, self.job.first_retry_ns));
        }
    }

    /// Whether a client has a connection, or gets one now; `is_up`: whether the primary takes any.
    pub fn connects(&mut self, now: u64, primary: usize, is_up: bool) -> bool {
        let Some((at, most)) = self.tries.next else {
            return true;
        };
        if now < at || !is_up {
            if now >= at {
                self.tries.failed(now, most, self.job.most_retry_ns);
            }
            self.story.refused += 1;
            return false;
        }
        (self.tries.next, self.tries.primary) = (None, primary);
        true
    }

    /// Whether clients take this server for the primary.
    pub fn is_theirs(&self, primary: usize) -> bool {
        self.tries.primary == primary
    }

    /// A session has sent a statement of its transaction.
    pub fn sent(&mut self, now: u64, session: u32, serial: u32) {
        self.sent.push_back((now, session, serial));
    }

    /// The next statement whose time is over: its session, and the number of its transaction.
    pub fn expired(&mut self, now: u64) -> Option<(u32, u32)> {
        let &(sent, session, serial) = self.sent.front()?;
        if sent + self.job.timeout_ns > now {
            return None;
        }
        self.sent.pop_front();
        Some((session, serial))
    }
}

/// How long a session waits after a failure.
pub fn pause_ns(load: &Load) -> u64 {
    match load {
        Load::Open { .. } if !load.is_paced() => 0,
        _ => PAUSE_NS,
    }
}
