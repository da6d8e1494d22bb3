//! InnoDB's buffer pool: a list of pages by use, into whose middle a page comes that is read.

use std::ops::Range;

/// Nothing: the end of a list, or no place in the pool.
const NONE: u32 = u32::MAX;

/// No place in the pool, and no content on the disk, either: the page is made, and not read.
const BLANK: u32 = NONE - 1;

/// Pages below which the list has no middle. **Source:** `BUF_LRU_OLD_MIN_LEN` of buf0lru.h: 8 MiB of pages.
const LEAST_WITH_MIDDLE: u32 = 512;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    newer: u32,
    older: u32,
    first_used: u64,
    /// How many pages had left when it came to the young end.
    clock: u64,
    old: bool,
    dirty: bool,
}

/// The pool.
///
/// **Source:** buf0lru.cc of MariaDB 10.11: `buf_LRU_add_block` puts a page that was read at the head of the old part,
/// `innodb_old_blocks_pct` of the list; `buf_page_peek_if_too_old` (buf0buf.inl) makes it young when it is used again
/// `innodb_old_blocks_time` or more after its first use, and `buf_page_peek_if_young` leaves a young one where it is while it is
/// in the first quarter of the young part.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The place in the pool of each page that there is.
    places: Vec<u32>,
    pages: Vec<Page>,
    /// Places of pages that were given up.
    given_up: Vec<u32>,
    capacity: u32,
    length: u32,
    newest: u32,
    oldest: u32,
    /// The newest page of the old part, and how many it has.
    middle: u32,
    old: u32,
    old_pct: u32,
    old_ns: u64,
    left: u64,
    counts: (u64, u64),
}

impl Pool {
    /// An empty pool of so many pages, of `pages` in all.
    pub fn new(pages: u64, capacity: u64, (old_pct, old_ns): (u32, u64)) -> Pool {
        Pool {
            places: vec![NONE; pages as usize],
            pages: Vec::new(),
            given_up: Vec::new(),
            capacity: capacity.clamp(64, u64::from(NONE) - 1) as u32,
            length: 0,
            newest: NONE,
            oldest: NONE,
            middle: NONE,
            old: 0,
            old_pct,
            old_ns,
            left: 0,
            counts: (0, 0),
        }
    }

    /// The same, with pages that have no content on the disk.
    pub fn with_blank(mut self, pages: Range<u64>) -> Pool {
        self.places[pages.start as usize..pages.end as usize].fill(BLANK);
        self
    }

    fn page(&mut self, number: u32) -> &mut Page {
        &mut self.pages[self.places[number as usize] as usize]
    }

    /// Whether a page has no content, here or on the disk.
    pub fn is_blank(&self, number: u32) -> bool {
        self.places[number as usize] == BLANK
    }

    /// Pages without content.
    pub fn free(&self) -> u32 {
        self.capacity - self.length
    }

    /// Pages that it has room for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Pages looked for, and found.
    pub fn counts(&self) -> (u64, u64) {
        self.counts
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.counts = (0, 0);
    }

    /// Uses a page, if it is there.
    pub fn find(&mut self, now: u64, number: u32) -> bool {
        self.counts.0 += 1;
        if !self.holds(number) {
            return false;
        }
        let page = *self.page(number);
        self.counts.1 += 1;
        let moves = if page.old {
            now - page.first_used >= self.old_ns
        } else {
            let young = u64::from(self.length - self.old);
            self.left - page.clock > young / 4
        };
        if moves {
            self.unlink(number);
            self.link_newest(number);
        }
        true
    }

    /// Makes a page, which is as young as one that is used. **Source:** `buf_page_create_low` of buf0buf.cc.
    pub fn make(&mut self, now: u64, number: u32) {
        self.fill(now, number);
        self.link_newest(number);
    }

    /// Gives a free page its content.
    fn fill(&mut self, now: u64, number: u32) {
        assert!(
            self.free() > 0,
            "whoever takes a page has waited for a free one"
        );
        let page = Page {
            first_used: now,
            ..Page::default()
        };
        let place = self.given_up.pop().unwrap_or(self.pages.len() as u32);
        match self.pages.get_mut(place as usize) {
            Some(free) => *free = page,
            None => self.pages.push(page),
        }
        self.places[number as usize] = place;
    }

    /// Takes a page that was read into a free one.
    pub fn take(&mut self, now: u64, number: u32) {
        self.fill(now, number);
        if self.middle == NONE {
            return self.link_newest(number);
        }
        let newer = self.page(self.middle).newer;
        self.link(number, newer, self.middle, true);
        self.middle = number;
        self.balance();
    }

    /// Gives a page up.
    pub fn evict(&mut self, number: u32) {
        self.unlink(number);
        let place = std::mem::replace(&mut self.places[number as usize], NONE);
        self.given_up.push(place);
        self.left += 1;
    }

    /// Gives all pages up.
    pub fn empty(&mut self) {
        while let Some(page) = self.oldest() {
            self.evict(page);
        }
    }

    /// Whether it has a page.
    pub fn holds(&self, number: u32) -> bool {
        self.places[number as usize] < BLANK
    }

    /// Whether a page has changed.
    pub fn is_dirty(&self, number: u32) -> bool {
        self.holds(number) && self.pages[self.places[number as usize] as usize].dirty
    }

    /// Notes a change of a page, or that it is about to be written; returns whether it had changed before.
    pub fn mark(&mut self, number: u32, dirty: bool) -> bool {
        self.holds(number) && std::mem::replace(&mut self.page(number).dirty, dirty)
    }

    /// The page that was not used for the longest time.
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The page that was used after that one.
    pub fn newer(&self, number: u32) -> Option<u32> {
        let newer = self.pages[self.places[number as usize] as usize].newer;
        (newer != NONE).then_some(newer)
    }

    fn link_newest(&mut self, number: u32) {
        self.link(number, NONE, self.newest, false);
        self.page(number).clock = self.left;
        self.balance();
    }

    fn link(&mut self, number: u32, newer: u32, older: u32, old: bool) {
        let page = self.page(number);
        (page.newer, page.older, page.old) = (newer, older, old);
        match newer {
            NONE => self.newest = number,
            _ => self.page(newer).older = number,
        }
        match older {
            NONE => self.oldest = number,
            _ => self.page(older).newer = number,
        }
        self.length += 1;
        self.old += u32::from(old);
    }

    fn unlink(&mut self, number: u32) {
        let page = *self.page(number);
        if self.middle == number {
            self.middle = page.older;
        }
        match page.newer {
            NONE => self.newest = page.older,
            newer => self.page(newer).older = page.older,
        }
        match page.older {
            NONE => self.oldest = page.newer,
            older => self.page(older).newer = page.newer,
        }
        self.length -= 1;
        self.old -= u32::from(page.old);
    }

    /// Moves the middle, so that the old part has its share.
    fn balance(&mut self) {
        if self.length < LEAST_WITH_MIDDLE {
            return;
        }
        let wanted = (u64::from(self.length) * u64::from(self.old_pct) / 100) as u32;
        while self.old < wanted {
            let next = match self.middle {
                NONE => self.oldest,
                middle => self.page(middle).newer,
            };
            self.page(next).old = true;
            (self.middle, self.old) = (next, self.old + 1);
        }
        while self.old > wanted && self.middle != NONE {
            let page = self.page(self.middle);
            page.old = false;
            self.middle = page.older;
            self.old -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Whether a page that is used every ten ms outlives a scan of 20,000 pages, one each ms.
    fn survives(old_pct: u32, old_ns: u64) -> bool {
        let mut pool = Pool::new(30_000, 1_000, (old_pct, old_ns));
        let mut read = |now: u64, page: u32| {
            if !pool.find(now, page) {
                if pool.free() == 0 {
                    pool.evict(pool.oldest().expect("it is full"));
                }
                pool.take(now, page);
                return false;
            }
            true
        };
        (0..20_000_u32).all(|step| {
            let now = u64::from(step) * SECOND / 1000;
            read(now, 100 + step);
            step % 10 != 0 || read(now, 7) || step == 0
        })
    }

    #[test]
    fn a_page_that_is_used_again_is_young_only_after_its_time() {
        assert!(
            survives(37, 100 * SECOND / 1000),
            "370 pages of a ms each are its time"
        );
        assert!(!survives(37, SECOND), "it leaves the old part before");
        assert!(survives(95, 0), "nothing but the last use counts");
    }
}
