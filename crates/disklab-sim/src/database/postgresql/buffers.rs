//! `shared_buffers`: pages of 8 KiB under a clock.

/// Uses that a page's count keeps at most. **Source:** `BM_MAX_USAGE_COUNT` of PostgreSQL's buf_internals.h.
const MOST_USES: u8 = 5;

/// Nothing: a page that has no buffer, a buffer that has no page.
const NONE: u32 = u32::MAX;

/// How far the background writer looks ahead of what was asked for last. **Source:** `bgwriter_lru_multiplier`, 2.0.
const LOOK_AHEAD: u64 = 2;

/// Rounds over which it smooths what was asked for. **Source:** `smoothing_samples` of bufmgr.c.
const SMOOTHING: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u32,
    uses: u8,
    dirty: bool,
}

/// The buffers of a server.
///
/// **Source:** `StrategyGetBuffer` (freelist.c) and `BgBufferSync` (bufmgr.c) of PostgreSQL 15.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// By page.
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    filled: usize,
    hand: usize,
    /// Pages looked for, and found.
    counts: (u64, u64),
    /// Buffers that were asked for since the background writer looked, and what it reckons with.
    asked: u64,
    smoothed: u64,
}

impl Buffers {
    /// Empty buffers for so many pages of relations.
    pub fn new(pages: u64, buffers: u64) -> Buffers {
        let empty = Frame {
            page: NONE,
            uses: 0,
            dirty: false,
        };
        Buffers {
            frame_of: vec![NONE; pages as usize],
            frames: vec![empty; buffers.clamp(16, u64::from(NONE) - 1) as usize],
            filled: 0,
            hand: 0,
            counts: (0, 0),
            asked: 0,
            smoothed: 0,
        }
    }

    /// How many pages there is room for.
    pub fn capacity(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Pages looked for, and found.
    pub fn counts(&self) -> (u64, u64) {
        self.counts
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.counts = (0, 0);
    }

    /// Empties them; what they counted stays.
    pub fn empty(&mut self) {
        let counts = self.counts;
        *self = Buffers::new(self.frame_of.len() as u64, self.capacity());
        self.counts = counts;
    }

    /// Whether a page is in a buffer; it is not used.
    #[inline]
    pub fn holds(&self, page: u32) -> bool {
        self.frame_of[page as usize] != NONE
    }

    /// Uses a page, if it is in a buffer.
    #[inline]
    pub fn find(&mut self, page: u32) -> bool {
        self.counts.0 += 1;
        let at = self.frame_of[page as usize];
        if at == NONE {
            return false;
        }
        self.counts.1 += 1;
        let uses = &mut self.frames[at as usize].uses;
        *uses = (*uses + 1).min(MOST_USES);
        true
    }

    /// Puts a page into a buffer, unless another backend has; returns the page that was there, if that had changed.
    #[inline]
    pub fn keep(&mut self, page: u32) -> Option<u32> {
        if self.frame_of[page as usize] != NONE {
            return None;
        }
        self.asked += 1;
        let at = self.victim();
        let old = std::mem::replace(
            &mut self.frames[at],
            Frame {
                page,
                uses: 1,
                dirty: false,
            },
        );
        self.frame_of[page as usize] = at as u32;
        if old.page == NONE {
            return None;
        }
        self.frame_of[old.page as usize] = NONE;
        old.dirty.then_some(old.page)
    }

    fn victim(&mut self) -> usize {
        if self.filled < self.frames.len() {
            self.filled += 1;
            return self.filled - 1;
        }
        // Ends within six rounds: each lowers every count by one.
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            if self.frames[at].uses == 0 {
                return at;
            }
            self.frames[at].uses -= 1;
        }
    }

    /// Notes that a page in a buffer has changed.
    #[inline]
    pub fn change(&mut self, page: u32) {
        let at = self.frame_of[page as usize];
        if at != NONE {
            self.frames[at as usize].dirty = true;
        }
    }

    /// Notes that a page is written; false: it is not in a buffer, or has not changed.
    pub fn written(&mut self, page: u32) -> bool {
        let at = self.frame_of[page as usize];
        at != NONE && std::mem::take(&mut self.frames[at as usize].dirty)
    }

    /// The pages that have changed, in order.
    pub fn changed(&self) -> Vec<u32> {
        let frames = self.frames[..self.filled].iter();
        let mut pages: Vec<u32> = frames.filter(|f| f.dirty).map(|f| f.page).collect();
        pages.sort_unstable();
        pages
    }

    /// A round of the background writer: pages that it writes now, so that backends find clean buffers.
    pub fn clean(&mut self, most: usize) -> Vec<u32> {
        let asked = std::mem::take(&mut self.asked);
        self.smoothed = if asked > self.smoothed {
            asked
        } else {
            self.smoothed - (self.smoothed - asked) / SMOOTHING
        };
        let upcoming = self.smoothed * LOOK_AHEAD;
        let (mut reusable, mut pages) = (0, Vec::new());
        if self.filled < self.frames.len() {
            return pages;
        }
        for ahead in 0..self.frames.len() {
            if reusable >= upcoming || pages.len() >= most {
                break;
            }
            let at = (self.hand + ahead) % self.frames.len();
            let frame = &mut self.frames[at];
            if frame.uses == 0 {
                reusable += 1;
                if std::mem::take(&mut frame.dirty) {
                    pages.push(frame.page);
                }
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_used_often_outlives_those_that_are_read_once() {
        let mut buffers = Buffers::new(1000, 16);
        assert_eq!(buffers.keep(7), None);
        for page in 100..400 {
            assert!(buffers.find(7), "before page {page}");
            buffers.keep(page);
        }
        assert!(!buffers.find(100) && buffers.find(399));
    }

    #[test]
    fn a_changed_page_is_told_when_it_leaves_and_once() {
        let mut buffers = Buffers::new(1000, 16);
        buffers.keep(3);
        buffers.change(3);
        assert_eq!(buffers.changed(), [3]);
        let left: Vec<u32> = (100..300).filter_map(|page| buffers.keep(page)).collect();
        assert_eq!(left, [3]);
        assert!(buffers.changed().is_empty() && !buffers.written(3));
    }

    #[test]
    fn the_background_writer_cleans_what_will_be_asked_for() {
        let mut buffers = Buffers::new(10_000, 100);
        for page in 0..200 {
            buffers.keep(page);
            buffers.change(page);
        }
        // Two hundred were asked for: all that can be had is cleaned, in rounds of so many at most.
        let first = buffers.clean(30);
        assert!(first.len() <= 30);
        for page in 500..540 {
            if let Some(old) = buffers.keep(page) {
                assert!(!first.contains(&old), "{old} was written");
            }
        }
    }
}
