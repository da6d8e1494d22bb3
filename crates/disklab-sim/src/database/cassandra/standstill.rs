//! Nodes whose process stands still until a volume serves again: see `crate::pauses`.
//!
//! Their machines take messages, so nobody's connection closes. Others call such a node down when they have heard nothing of
//! it for long enough; its own clients wait until they give up. A read or write that it takes from another node when its
//! time is over is dropped. **Source:** `MessagingService` of Cassandra drops what has expired.

use disklab_disk::VolumeId;

use super::Cassandra;
use super::broken::{GIVEN_UP, Phase};
use crate::client::Kind;
use crate::database::cassandra::event::Event;
use crate::job::faults::{Event as JobEvent, What};
use crate::storage::File;

/// Of the reads of mapped tables that are in memory here, so many miss: a page cache also holds the mapped commit log and what
/// compactions write, which is left out of it here. One of them is enough: a node with some reads a second stops within
/// seconds with a tenth of this, too. **Source:** 20 of 100 reads a second were I/Os in the rehearsal of `crate::pauses`,
/// where all tables would have been in memory without the commit log. Writes to a mapped commit log do not wait: in our own
/// trial of 2026-11-29 (Linux 6.18, XFS, a mapped file that was synced every 10 s) none did before a new segment was made.
const MISSED_PPM: u32 = 10_000;

impl Cassandra {
    /// Whether a node's process stands still for a page.
    #[inline]
    pub(super) fn stands_still(&self, now: u64, node: usize) -> bool {
        self.nodes[node].pauses.held().1 > now
    }

    /// A volume becomes slow, stalls or is well.
    pub(super) fn break_volume(&mut self, now: u64, node: usize, event: &JobEvent) {
        let storage = &mut self.nodes[node].machine.storage;
        let has_tables = event
            .volume
            .is_none_or(|number| VolumeId(number) == storage.data);
        if let Some(broken) = &mut self.broken
            && has_tables
        {
            let stalls = event.what == What::Stall;
            broken.seen[node].stalled_until = if stalls {
                broken.serves_again(now, event)
            } else {
                0
            };
        }
        storage.break_data(now, event, &mut self.course.ios);
    }

    /// A request waits for a page, or for a slot among those that do.
    #[inline]
    pub(super) fn waits(&mut self, now: u64, number: u32, file: Option<File>) {
        let Some(broken) = &mut self.broken else {
            return;
        };
        let request = &self.requests[number];
        let node = usize::from(request.node);
        let until = broken.seen[node].stalled_until;
        if until <= now {
            return;
        }
        let expired = now + broken.job.read_timeout_ns;
        if until > expired && !request.local && request.kind == Kind::Read {
            let coordinator = self.operations[request.operation].coordinator;
            broken
                .silent
                .push_back((expired, coordinator, request.node));
        }
        let node = &mut self.nodes[node];
        if file.is_some_and(|file| !node.machine.storage.is_buffered(file)) {
            node.pauses.page_comes(now, until);
        }
    }

    /// A read looks for pages, which may be in memory here and not in a real page cache.
    #[inline]
    pub(super) fn may_miss(&mut self, now: u64, number: u32) {
        let Some(broken) = &self.broken else {
            return;
        };
        let node = usize::from(self.requests[number].node);
        let until = broken.seen[node].stalled_until;
        if until > now && self.chances.chance(MISSED_PPM) {
            let node = &mut self.nodes[node];
            if !node.machine.storage.is_buffered(File::Data) {
                node.pauses.page_comes(now, until);
            }
        }
    }

    /// An operation comes to a coordinator that stands still: it is taken when that goes on, unless its client has given up.
    pub(super) fn is_left_waiting(&mut self, now: u64, number: u32, coordinator: usize) -> bool {
        let is_still = self.stands_still(now, coordinator);
        if is_still {
            self.operations[number].needed = u8::MAX;
            self.gives_up(number);
        }
        is_still
    }

    /// Whether a coordinator that stands still will tell a client nothing before that gives up.
    pub(super) fn comes_too_late(&mut self, now: u64, number: u32, back: u64) -> bool {
        let operation = &self.operations[number];
        let is_late = self.stands_still(now, usize::from(operation.coordinator))
            && back > self.given_up_at(number);
        if is_late {
            self.operations[number].needed = u8::MAX;
            self.gives_up(number);
        }
        is_late
    }

    /// When its client gives an operation up.
    fn given_up_at(&self, number: u32) -> u64 {
        let timeout_ns = self
            .broken
            .as_ref()
            .map_or(u64::MAX, |broken| broken.job.timeout_ns);
        self.operations[number].issued.saturating_add(timeout_ns)
    }

    /// Notes when a client gives an operation up.
    pub(super) fn gives_up(&mut self, number: u32) {
        let (at, serial) = (self.given_up_at(number), self.operations[number].serial);
        if let Some(broken) = &mut self.broken {
            let due = &mut broken.due[GIVEN_UP];
            let place = due.partition_point(|&(other, _, _)| other <= at);
            due.insert(place, (at, number, serial));
        }
    }

    /// Whether a replica that stands still drops a request, because the time of that is over when it goes on.
    pub(super) fn is_dropped(&mut self, now: u64, number: u32) -> bool {
        let request = &self.requests[number];
        let (_, until) = self.nodes[usize::from(request.node)].pauses.held();
        let Some(broken) = &self.broken else {
            return false;
        };
        let limit = match request.kind {
            Kind::Read => broken.job.read_timeout_ns,
            Kind::Write => broken.job.write_timeout_ns,
        };
        let is_dropped = !request.local && until > now + limit;
        if is_dropped {
            self.miss(now, number);
        }
        is_dropped
    }

    /// Sees whether a node's process stands still, or goes on again.
    pub(super) fn look_at_standstill(&mut self, now: u64, node: usize) {
        self.nodes[node].reach_safepoint(now);
        let (since, until) = self.nodes[node].pauses.held();
        let Some(broken) = &mut self.broken else {
            return;
        };
        let seen = &mut broken.seen[node];
        if until > now {
            if !seen.is_held {
                seen.is_held = true;
                seen.convicted_at = seen.convicted_at.min(since + broken.job.detect_ns);
            }
        } else if seen.is_held {
            if until + broken.job.gossip_ns <= now {
                seen.is_held = false;
                if seen.phase.serves() && !matches!(seen.phase, Phase::Leaving(_)) {
                    seen.convicted_at = u64::MAX;
                }
            }
            for &(_, number, serial) in &broken.due[GIVEN_UP] {
                let operation = &self.operations[number];
                let waits =
                    seen.phase.serves() && operation.needed == u8::MAX && operation.begun == 0;
                if operation.serial == serial && waits && usize::from(operation.coordinator) == node
                {
                    self.course.queue.push(now, Event::Arrive(number));
                }
            }
        }
    }
}
