//! The page cache of a node, page by page: a few bits for each page of its data volume.

use std::collections::VecDeque;

use crate::groups::{Group, Groups, bit, groups};

/// What a page cache holds.
///
/// Eviction is second chance over runs of pages in the order in which they came: a page that was
/// used again since then goes round once more. **Source:** Linux's two lists do the same for file
/// pages: one use leaves them on the inactive list, a second one saves them. **Divergence:** one list,
/// and no balance with other memory. Linux's second list keeps pages that were found used twice, and what it keeps splits
/// later windows. With room for 43 MB of a mapped file of 96 MB that one thread read at random, our kernel (6.18) sent 1,475
/// I/Os with a read-ahead of 512 KiB where 1,374 are simulated (rows of 4,136 B; a model of the same reads page by page sent
/// 1,442 with the second list and 1,338 without), 3,130 for 3,000 with 64 KiB, 3,786 for 3,789 of rows of 16,431 B, and
/// 1,437 for 1,278 of rows of 1,071 B with 512 KiB. Their pages differ by 0.4 to 4 %.
#[derive(Clone, Debug)]
pub struct PageCache {
    groups: Groups,
    queue: VecDeque<Run>,
    held: u64,
    capacity: u64,
}

/// Pages that came together.
#[derive(Clone, Copy, Debug)]
struct Run(u64);

impl Run {
    /// Bits for the number of pages; those above are the first page's.
    const COUNT_BITS: u32 = 28;
    const MOST: u64 = (1 << Run::COUNT_BITS) - 1;

    fn new(first: u64, pages: u64) -> Run {
        debug_assert!(pages <= Run::MOST && first < 1 << (64 - Run::COUNT_BITS));
        Run(first << Run::COUNT_BITS | pages)
    }

    /// First page, and the page after the last.
    fn bounds(self) -> (u64, u64) {
        let first = self.0 >> Run::COUNT_BITS;
        (first, first + (self.0 & Run::MOST))
    }
}

/// What is known of a page at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    group: Group,
    bit: u64,
}

impl Known {
    /// Whether the page is there or on its way.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.group.present & self.bit != 0
    }

    /// Whether it is on its way.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.group.locked & self.bit != 0
    }

    /// Whether the process has it in its page table.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.group.mapped & self.bit != 0
    }
}

impl PageCache {
    /// An empty cache for a volume of `pages` pages, holding `capacity` pages at most.
    pub fn new(pages: u64, capacity: u64) -> PageCache {
        PageCache {
            groups: Groups::new(pages),
            queue: VecDeque::new(),
            held: 0,
            capacity: capacity.max(1024),
        }
    }

    /// Pages that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Pages held.
    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Has the processor fetch what is known of a page that will be touched soon.
    ///
    /// **Lesson:** without it a run of cold reads spent a quarter of its time in the first look at a
    /// random page of a table far larger than the processor's caches.
    #[inline]
    pub fn announce(&self, page: u64) {
        self.groups.announce(page / 64);
    }

    /// What is known of a page, and of those beside it; nothing: none of them is here.
    #[inline]
    pub fn known(&self, page: u64) -> Known {
        Known {
            group: self.groups.get(page / 64).copied().unwrap_or_default(),
            bit: bit(page),
        }
    }

    /// Whether a page is there or on its way.
    #[inline]
    pub fn is_present(&self, page: u64) -> bool {
        self.known(page).is_present()
    }

    /// Notes a use of a page that is present.
    #[inline]
    pub fn touch(&mut self, page: u64) {
        self.touch_all(page, page + 1);
    }

    /// Notes a use of pages that are present.
    #[inline]
    pub fn touch_all(&mut self, from: u64, to: u64) {
        self.each(from, to, |group, mask| group.used |= mask);
    }

    /// Puts a page into the page table of the process, if it is still there.
    #[inline]
    pub fn map(&mut self, page: u64) {
        self.each(page, page + 1, |group, mask| {
            group.mapped |= mask & group.present;
        });
    }

    /// Puts the pages of `from..to`, of one group, that are there and not marked into the page table of the process;
    /// how many those are, and whether `page` is one of them.
    ///
    /// Each of them counts as used. **Source:** mm/memory.c of Linux, `set_pte_range`: entries made around a fault are
    /// young, except on arm64 with its access flag; mm/vmscan.c, `folio_check_references`: a page with a young entry
    /// goes round once more. Without it, rehearsals with a read-ahead of 512 KiB had a fifth fewer I/Os than predicted.
    #[inline]
    pub fn map_around(&mut self, page: u64, from: u64, to: u64) -> (u32, bool) {
        let (mut pages, mut found) = (0, false);
        self.each(from, to, |group, mask| {
            let ready = group.present & !group.locked & !group.marked & mask;
            group.mapped |= ready;
            group.used |= ready;
            pages += ready.count_ones();
            found |= ready & bit(page) != 0;
        });
        (pages, found)
    }

    /// Marks pages that will be read now, so that touching one of them starts reading on.
    pub fn mark(&mut self, from: u64, to: u64) {
        for (number, mask) in groups(from, to) {
            self.groups.get_or_add(number).marked |= mask;
        }
    }

    /// Whether a page has a mark.
    #[inline]
    pub fn is_marked(&self, page: u64) -> bool {
        self.known(page).group.marked & bit(page) != 0
    }

    /// Takes the marks off pages; whether one of them had one.
    #[inline]
    pub fn take_mark(&mut self, from: u64, to: u64) -> bool {
        let mut marked = false;
        self.each(from, to, |group, mask| {
            marked |= group.marked & mask != 0;
            group.marked &= !mask;
        });
        marked
    }

    /// Changes the groups of a range, each with a mask of its pages in it, as far as they are known.
    #[inline]
    fn each(&mut self, from: u64, to: u64, mut change: impl FnMut(&mut Group, u64)) {
        for (number, mask) in groups(from, to) {
            if let Some(group) = self.groups.get_mut(number) {
                change(group, mask);
            }
        }
    }

    /// The first page from `from` on, below `to`, that is present, or that is absent; else `to`.
    #[inline]
    fn find(&self, from: u64, to: u64, present: bool) -> u64 {
        for (number, mask) in groups(from, to) {
            let word = self.groups.get(number).map_or(0, |group| group.present);
            let found = mask & if present { word } else { !word };
            if found != 0 {
                return number * 64 + u64::from(found.trailing_zeros());
            }
        }
        to
    }

    /// The next run of absent pages in `from..to`.
    #[inline]
    pub fn absent_run(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let start = self.find(from, to, false);
        (start < to).then(|| (start, self.find(start, to, true)))
    }

    /// The first absent page in `from..to`, or `to`.
    pub fn next_hole(&self, from: u64, to: u64) -> u64 {
        self.find(from, to.min(self.groups.end()), false)
    }

    /// How many of the pages right before `page` are present, `most` at most.
    pub fn history(&self, page: u64, most: u64) -> u64 {
        (1..=most.min(page))
            .find(|back| !self.is_present(page - back))
            .map_or(most.min(page), |back| back - 1)
    }

    /// Puts absent pages in; they are on their way until [`PageCache::arrive`].
    #[inline]
    pub fn expect(&mut self, from: u64, to: u64) {
        self.put(from, to, u64::MAX);
    }

    /// The pages have come.
    #[inline]
    pub fn arrive(&mut self, from: u64, to: u64) {
        self.each(from, to, |group, mask| group.locked &= !mask);
    }

    /// Forgets pages at once, as if nobody had read them.
    fn forget(&mut self, from: u64, to: u64) {
        for (number, mask) in groups(from, to) {
            let Some(group) = self.groups.get_mut(number) else {
                continue;
            };
            self.held -= u64::from((group.present & mask).count_ones());
            group.present &= !mask;
            group.marked &= !mask;
            group.mapped &= !mask;
            if group.present == 0 {
                self.groups.remove(number);
            }
        }
    }

    /// Puts pages in that are absent.
    pub fn insert(&mut self, from: u64, to: u64) {
        self.put(from, to, 0);
    }

    /// Puts absent pages in, those of the mask `locked` still on their way.
    #[inline]
    fn put(&mut self, from: u64, to: u64, locked: u64) {
        for (number, mask) in groups(from, to) {
            let group = self.groups.get_or_add(number);
            group.present |= mask;
            group.used &= !mask;
            group.locked |= mask & locked;
        }
        self.held += to - from;
        self.queue.push_back(Run::new(from, to - from));
        self.evict();
        if self.held + (to - from) > self.capacity
            && let Some(&next) = self.queue.front()
        {
            self.announce(next.bounds().0);
        }
    }

    fn is_kept(&self, page: u64) -> bool {
        self.kept_of(page, page + 1) > 0
    }

    /// How many pages of a run are in use, or on their way.
    #[inline]
    fn kept_of(&self, from: u64, to: u64) -> u64 {
        groups(from, to)
            .filter_map(|(number, mask)| Some((self.groups.get(number)?, mask)))
            .map(|(group, mask)| u64::from(((group.used | group.locked) & mask).count_ones()))
            .sum()
    }

    #[inline]
    fn unuse(&mut self, from: u64, to: u64) {
        self.each(from, to, |group, mask| group.used &= !mask);
    }

    /// Forgets the pages of a run that nobody used, and puts the others back, run by run.
    fn split(&mut self, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let keeps = self.is_kept(at);
            let run_end = (at + 1..end)
                .find(|&page| self.is_kept(page) != keeps)
                .unwrap_or(end);
            if keeps {
                self.unuse(at, run_end);
                self.queue.push_back(Run::new(at, run_end - at));
            } else {
                self.forget(at, run_end);
            }
            at = run_end;
        }
    }

    fn evict(&mut self) {
        // Each run is looked at twice at most: once to clear its marks of use, once to go.
        let mut looks = 2 * self.queue.len();
        while self.held > self.capacity && looks > 0 {
            looks -= 1;
            let Some(run) = self.queue.pop_front() else {
                return;
            };
            let (start, end) = run.bounds();
            match self.kept_of(start, end) {
                0 => self.forget(start, end),
                kept if kept == end - start => {
                    self.unuse(start, end);
                    self.queue.push_back(run);
                }
                _ => self.split(start, end),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_oldest_pages_leave_unless_they_were_used() {
        let mut cache = PageCache::new(100_000, 1024);
        cache.insert(0, 512);
        cache.insert(512, 1024);
        cache.touch(3);
        cache.insert(2000, 2100);
        assert!(cache.is_present(3) && !cache.is_present(4));
        assert!(cache.is_present(600));
        assert!(cache.held() <= 1024);
    }

    #[test]
    fn pages_on_their_way_stay() {
        let mut cache = PageCache::new(100_000, 1024);
        cache.expect(0, 8);
        cache.insert(1000, 2000);
        cache.insert(3000, 4000);
        assert!(cache.known(7).is_present() && cache.known(7).is_locked());
        cache.arrive(0, 8);
        assert!(!cache.known(0).is_locked());
    }

    proptest! {
        #[test]
        fn runs_are_those_of_a_set(
            inserts in prop::collection::vec((0..900_u64, 1..100_u64), 1..20),
            from in 0..500_u64, len in 0..500_u64,
        ) {
            let mut cache = PageCache::new(1_000, 10_000);
            let mut set = BTreeSet::new();
            for (start, count) in inserts {
                let mut at = start;
                while let Some((a, b)) = cache.absent_run(at, start + count) {
                    cache.insert(a, b);
                    at = b;
                }
                set.extend(start..start + count);
            }
            prop_assert_eq!(cache.held(), set.len() as u64);
            let hole = (from..from + len).find(|page| !set.contains(page)).unwrap_or(from + len);
            prop_assert_eq!(cache.next_hole(from, from + len), hole);
        }
    }
}
