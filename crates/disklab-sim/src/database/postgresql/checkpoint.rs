//! Checkpoints: when they begin, which pages they write, how fast, and which changes put an image into the log.

use super::job::PostgresqlSettings;

/// How often a checkpointer that is on time looks whether it still is. **Source:** `CheckpointWriteDelay`, 100 ms.
pub const LOOK_NS: u64 = 100_000_000;

/// Pages after which the checkpointer asks Linux to write them. **Source:** `checkpoint_flush_after`, 256 kB.
const FLUSH_AFTER: usize = 32;

/// A checkpoint under way.
#[derive(Debug)]
struct UnderWay {
    pages: Vec<u32>,
    next: usize,
    /// The sync at its end has been asked for.
    syncs: bool,
}

/// The checkpoints of a server.
#[derive(Debug)]
pub struct Checkpoints {
    /// Log from one to the next.
    every_bytes: u64,
    every_ns: u64,
    target_permille: u64,
    images: bool,
    /// Pages that have an image in the log since the last one began, a bit each.
    imaged: Vec<u64>,
    /// Where in the log, and when, the last one began.
    began: (u64, u64),
    under_way: Option<UnderWay>,
    /// Somebody waits for it: it writes as fast as it can.
    hurries: bool,
}

impl Checkpoints {
    /// A server whose last checkpoint has just ended, with so many pages. `images`: whether the log has any.
    ///
    /// **Source:** `CalculateCheckpointSegments` of xlog.c: `max_wal_size` holds a checkpoint and the part of the next one
    /// over which its writes are spread.
    pub fn new(settings: &PostgresqlSettings, pages: u64, images: bool) -> Checkpoints {
        let target = u64::from(settings.checkpoint_completion_permille);
        Checkpoints {
            every_bytes: (settings.max_wal_bytes * 1000 / (1000 + target)).max(1),
            every_ns: settings.checkpoint_timeout_ns.max(1),
            target_permille: target,
            images,
            imaged: vec![0; pages.div_ceil(64) as usize],
            began: (0, 0),
            under_way: None,
            hurries: false,
        }
    }

    /// Notes a change of a page; whether its image comes into the log.
    #[inline]
    pub fn changes(&mut self, page: u32) -> bool {
        let (word, bit) = (page as usize / 64, 1_u64 << (page % 64));
        let new = self.imaged[word] & bit == 0;
        self.imaged[word] |= bit;
        new && self.images
    }

    /// Whether one is due.
    pub fn is_due(&self, now: u64, log: u64) -> bool {
        let (log_then, then) = self.began;
        self.under_way.is_none()
            && log > log_then
            && (log - log_then >= self.every_bytes || now - then >= self.every_ns)
    }

    /// Begins one with the pages that have changed.
    pub fn begin(&mut self, now: u64, log: u64, pages: Vec<u32>) {
        self.began = (log, now);
        self.imaged.fill(0);
        self.under_way = Some(UnderWay {
            pages,
            next: 0,
            syncs: false,
        });
    }

    /// The next pages that are to be written now; none: it is on time.
    ///
    /// **Source:** `IsCheckpointOnSchedule` of checkpointer.c.
    pub fn next(&mut self, now: u64, log: u64) -> Option<&[u32]> {
        let (log_then, then) = self.began;
        let elapsed = |part: u64, whole: u64| u128::from(part) * 1_000_000 / u128::from(whole);
        let elapsed =
            elapsed(log - log_then, self.every_bytes).max(elapsed(now - then, self.every_ns));
        let under_way = self.under_way.as_mut()?;
        let all = under_way.pages.len();
        let progress = under_way.next as u128 * u128::from(self.target_permille) * 1000;
        let is_on_time = !self.hurries && progress >= elapsed * all as u128;
        if under_way.next == all || is_on_time {
            return None;
        }
        let from = under_way.next;
        under_way.next = (from + FLUSH_AFTER).min(all);
        Some(&under_way.pages[from..under_way.next])
    }

    /// Whether all pages are written, and the sync has not been asked for.
    pub fn wants_sync(&mut self) -> bool {
        let Some(under_way) = &mut self.under_way else {
            return false;
        };
        under_way.next == under_way.pages.len() && !std::mem::replace(&mut under_way.syncs, true)
    }

    /// Whether the sync has been asked for and waits for the writes before it.
    pub fn syncs(&self) -> bool {
        self.under_way.as_ref().is_some_and(|one| one.syncs)
    }

    /// It has ended.
    pub fn end(&mut self) {
        self.under_way = None;
        self.hurries = false;
    }

    /// Somebody waits for the one under way. **Source:** `CHECKPOINT_IMMEDIATE` of `CheckpointWriteDelay`.
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Whether the one under way is waited for.
    pub fn hurries(&self) -> bool {
        self.hurries
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// A server has started with a checkpoint at the end of its log: none is under way, and no page has an image since.
    pub fn start(&mut self, now: u64, log: u64) {
        self.began = (log, now);
        self.imaged.fill(0);
        self.under_way = None;
        self.hurries = false;
    }
}
