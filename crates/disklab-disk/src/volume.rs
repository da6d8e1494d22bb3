//! One volume: its lanes, what is wrong with it, what it did.

use std::collections::VecDeque;

use crate::counters::{CacheCounters, OperationCounters, Operations};
use crate::io::{Io, Op};
use crate::part::Part;
use crate::profile::VolumeProfile;
use crate::stripe::Stripe;
use disklab_units::random::Stream;

/// How long a volume stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Not at all.
    No,
    /// Until this time, in nanoseconds.
    Until(u64),
    /// Until somebody mends it.
    UntilMended,
}

/// An attached volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its profile as it is now.
    pub profile: VolumeProfile,
    /// Its member disks, in stripe order.
    pub lanes: Vec<u32>,
    /// The layout, when there is more than one disk.
    pub stripe: Option<Stripe>,
    /// Share of its I/Os that fail, in parts per million.
    pub error_ppm: u32,
    /// Decides which.
    pub chance: Stream,
    /// Whether it stands still.
    pub stall: Stall,
    /// Whether it waits for its dirty data before its caching changes.
    pub draining: bool,
    /// I/Os that have not started: they arrived during a stall or while it drained.
    pub held: VecDeque<Io>,
    /// Parts that had passed every gate when the stall kept them.
    pub kept: VecDeque<Part>,
    /// What it did.
    pub operations: Operations,
    /// Its use of the host cache.
    pub cache: CacheCounters,
    /// I/Os taken; those decided are in `operations`.
    pub submitted: u64,
    /// Ends of decided I/Os.
    pub in_flight: InFlight,
}

impl Volume {
    /// A healthy volume that has done nothing yet.
    pub fn new(profile: VolumeProfile, lanes: Vec<u32>, chance: Stream) -> Volume {
        let stripe = profile.chunk_bytes.map(|chunk_bytes| Stripe {
            chunk_bytes: u64::from(chunk_bytes),
            disks: lanes.len() as u64,
        });
        Volume {
            profile,
            stripe: stripe.filter(|_| lanes.len() > 1),
            lanes,
            error_ppm: 0,
            chance,
            stall: Stall::No,
            draining: false,
            held: VecDeque::new(),
            kept: VecDeque::new(),
            operations: Operations::default(),
            cache: CacheCounters::default(),
            submitted: 0,
            in_flight: InFlight::default(),
        }
    }

    /// Whether nothing starts or ends now.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stall != Stall::No
    }

    /// The one disk on which an I/O lies, and where on it, if it starts there at once: most do. `None`: it has several
    /// disks, or the volume is not healthy.
    #[inline]
    pub fn place_at_once(&self, offset: u64, len: u32) -> Option<(u32, u64)> {
        if self.error_ppm > 0 || self.is_stalled() || self.draining {
            return None;
        }
        match self.stripe {
            None => Some((self.lanes[0], offset)),
            // An empty I/O has no place in a stripe.
            Some(_) if len == 0 => None,
            Some(stripe) => {
                let (member, offset) = stripe.only_member(offset, len)?;
                Some((self.lanes[member], offset))
            }
        }
    }

    /// Whether a range lies inside the volume.
    #[inline]
    pub fn holds(&self, offset: u64, len: u32) -> bool {
        offset
            .checked_add(u64::from(len))
            .is_some_and(|end| end <= self.profile.size_bytes)
    }

    /// Counts an I/O whose end is decided.
    #[inline]
    pub fn count(&mut self, op: Op, len: u32, failed: bool, at: u64, now: u64) {
        let counters: &mut OperationCounters = match op {
            Op::Read => &mut self.operations.read,
            Op::Write => &mut self.operations.write,
            Op::Flush => &mut self.operations.flush,
            Op::Discard => &mut self.operations.discard,
        };
        counters.ios += 1;
        counters.bytes += u64::from(len);
        counters.failed += u64::from(failed);
        self.in_flight.add(at, now);
    }

    /// I/Os whose end is not decided yet.
    pub fn queued(&self) -> u64 {
        let Operations {
            read,
            write,
            flush,
            discard,
        } = &self.operations;
        self.submitted - read.ios - write.ios - flush.ios - discard.ios
    }
}

/// Ends of decided I/Os, to count those that lie ahead.
///
/// An unsorted list that is swept when it has doubled: a few instructions for each I/O, where a
/// heap of ends would cost as much as the rest of the model.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    ends: Vec<u64>,
    sweep_at: usize,
}

impl InFlight {
    /// Fewest entries worth a sweep: two kilobytes, most of which have ended when it comes.
    const LEAST: usize = 256;

    #[inline]
    fn add(&mut self, end: u64, now: u64) {
        if end <= now {
            return;
        }
        if self.ends.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.ends.push(end);
    }

    fn sweep(&mut self, now: u64) {
        self.ends.retain(|&end| end > now);
        self.sweep_at = (self.ends.len() * 2).max(InFlight::LEAST);
    }

    /// How many end after `now`.
    pub fn count(&self, now: u64) -> u64 {
        self.ends.iter().filter(|&&end| end > now).count() as u64
    }
}
