//! A record of single I/Os: when each came, what it waited for, and what served it.

use disklab_units::{Bytes, Instant};

use crate::host::Host;
use crate::io::VolumeId;
use crate::part::{Part, Route};
use crate::profile::{Scope, Unit};

/// Which I/Os a journal has: those that come from then on, and no more than so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSpan {
    /// From when on.
    pub from: Instant,
    /// How many at most; an I/O on several disks counts for each.
    pub most: u32,
}

/// A limit that an I/O waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalWait {
    /// `disk 0`, `vm shared` (by all disks of its name), `vm cached` or `vm uncached`.
    pub place: String,
    /// What it counts.
    pub unit: Unit,
    /// Which I/Os pay.
    pub scope: Scope,
    /// Since when.
    pub from: Instant,
    /// When it was granted.
    pub to: Instant,
}

/// What one disk, or the host cache, did for an I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The volume.
    pub volume: VolumeId,
    /// The disk's place in its stripe.
    pub member: u32,
    /// First byte, on that disk.
    pub offset: Bytes,
    /// Bytes.
    pub len: u32,
    /// Which way it took.
    pub route: Route,
    /// When it came.
    pub arrived: Instant,
    /// What it waited for, in order.
    pub waits: Vec<JournalWait>,
    /// When it had passed every limit.
    pub passed: Instant,
    /// When it ends.
    pub ended: Instant,
}

/// An entry that may not be complete.
#[derive(Clone, Debug)]
struct Draft {
    part: Part,
    arrived: u64,
    /// Gates waited for: since when, and until when.
    waits: Vec<(u32, u64, u64)>,
    /// When it had passed and when it ends.
    served: Option<(u64, u64)>,
}

/// The journal of a host.
///
/// It is given copies of parts: a reference that escaped into it would keep every part of every I/O in memory, journal or
/// not, and cost the simulator a tenth of its rate.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    from: u64,
    most: usize,
    drafts: Vec<Draft>,
    /// Drafts that are not complete.
    under_way: usize,
}

impl Journal {
    fn new(span: JournalSpan) -> Journal {
        Journal {
            from: span.from.as_nanos(),
            most: span.most as usize,
            drafts: Vec::new(),
            under_way: 0,
        }
    }

    /// The draft of a part under way. A caller's tag is used again once its I/O has ended.
    fn draft(&mut self, part: &Part) -> Option<&mut Draft> {
        if self.under_way == 0 {
            return None;
        }
        let key = |part: &Part| (part.owner, part.lane, part.offset);
        let mut drafts = self.drafts.iter_mut();
        drafts.find(|draft| draft.served.is_none() && key(&draft.part) == key(part))
    }

    /// Notes a part that begins its way: it has passed no gate, and does not begin it a second time.
    #[cold]
    pub fn arrived(&mut self, part: Part, at: u64) {
        let begins = part.step == 0 && at >= self.from;
        if begins && self.drafts.len() < self.most && self.draft(&part).is_none() {
            self.under_way += 1;
            self.drafts.push(Draft {
                part,
                arrived: at,
                waits: Vec::new(),
                served: None,
            });
        }
    }

    /// Notes that a part waits at a gate.
    #[cold]
    pub fn waits(&mut self, part: Part, gate: u32, at: u64) {
        if let Some(draft) = self.draft(&part) {
            draft.waits.push((gate, at, at));
        }
    }

    /// Notes that the gate where a part waited let it through.
    #[cold]
    pub fn goes_on(&mut self, part: Part, at: u64) {
        if let Some((.., until)) = self.draft(&part).and_then(|draft| draft.waits.last_mut()) {
            *until = at;
        }
    }

    /// Notes that a part has passed every gate, and when it ends.
    #[cold]
    pub fn served(&mut self, part: Part, at: u64, ends: u64) {
        if let Some(draft) = self.draft(&part) {
            draft.part.route = part.route;
            draft.served = Some((at, ends));
            self.under_way -= 1;
        }
    }
}

impl Host {
    /// Keeps a journal from now on, instead of the one that it may have kept. Changes no decision.
    pub fn keep_journal(&mut self, span: JournalSpan) {
        self.journal = Some(Box::new(Journal::new(span)));
    }

    /// What the journal has, in the order in which I/Os came, without those that still wait; `None`: none is kept.
    pub fn journal(&self) -> Option<Vec<JournalEntry>> {
        let drafts = &self.journal.as_deref()?.drafts;
        Some(
            drafts
                .iter()
                .filter_map(|draft| self.entry_of(draft))
                .collect(),
        )
    }

    fn entry_of(&self, draft: &Draft) -> Option<JournalEntry> {
        let (passed, ended) = draft.served?;
        let part = &draft.part;
        let lane = &self.lanes[part.lane as usize];
        let waits = draft.waits.iter().map(|&(number, from, to)| {
            let gate = &self.gates[number as usize];
            let limit = gate.meter().limit();
            JournalWait {
                place: gate.place().name(lane.member),
                unit: limit.unit,
                scope: limit.scope,
                from: Instant::from_nanos(from),
                to: Instant::from_nanos(to),
            }
        });
        Some(JournalEntry {
            volume: VolumeId(lane.volume),
            member: lane.member,
            offset: Bytes::new(part.offset),
            len: part.len,
            route: part.route,
            arrived: Instant::from_nanos(draft.arrived),
            waits: waits.collect(),
            passed: Instant::from_nanos(passed),
            ended: Instant::from_nanos(ended),
        })
    }
}
