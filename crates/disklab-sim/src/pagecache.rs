//! The page cache of a node, page by page: a few bits for each page of its data volume.

use std::collections::VecDeque;

use disklab_disk::prefetch;

/// What is known of 64 pages, a bit each. The bits of a page lie in one line of the processor's cache: a
/// touched page of a large table costs one access to memory, where five bitmaps cost five, and where
/// groups that cross the lines cost half as much again.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Group {
    /// In the cache, perhaps still on its way from the disk.
    present: u64,
    /// On its way.
    locked: u64,
    /// Used again since it last stood at the end of the queue.
    used: u64,
    /// Linux's PG_readahead: reading on starts when it is touched.
    marked: u64,
    /// In the page table of the process: touching it is no fault, and Linux hears nothing of it.
    mapped: u64,
}

/// The groups that a range of pages touches, each with a mask of the pages in it.
#[inline]
fn groups(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let (index, end) = (at >> 6, (at | 63) + 1);
        let high = end.min(to) - (at & !63);
        let mask = (u64::MAX >> (64 - high)) & (u64::MAX << (at & 63));
        at = end;
        Some((index as usize, mask))
    })
}

#[inline]
fn bit(page: u64) -> u64 {
    1 << (page & 63)
}

/// What a page cache holds.
///
/// Eviction is second chance over runs of pages in the order in which they came: a page that was
/// used again since then goes round once more. **Source:** Linux's two lists do the same for file
/// pages: one use leaves them on the inactive list, a second one saves them. **Divergence:** one list,
/// and no balance with other memory.
#[derive(Clone, Debug)]
pub struct PageCache {
    groups: Vec<Group>,
    queue: VecDeque<(u64, u32)>,
    held: u64,
    capacity: u64,
}

impl PageCache {
    /// An empty cache for a volume of `pages` pages, holding `capacity` pages at most.
    pub fn new(pages: u64, capacity: u64) -> PageCache {
        let groups = usize::try_from(pages / 64 + 1).expect("fits memory");
        PageCache {
            groups: vec![Group::default(); groups],
            queue: VecDeque::new(),
            held: 0,
            capacity: capacity.max(1024),
        }
    }

    /// Pages held.
    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.held
    }

    #[inline]
    fn group(&self, page: u64) -> &Group {
        &self.groups[(page >> 6) as usize]
    }

    #[inline]
    fn group_mut(&mut self, page: u64) -> &mut Group {
        &mut self.groups[(page >> 6) as usize]
    }

    /// Has the processor fetch what is known of a page that will be touched soon.
    ///
    /// **Lesson:** without it a run of cold reads spent a quarter of its time in the first look at a
    /// random page of a table far larger than the processor's caches.
    #[inline]
    pub fn announce(&self, page: u64) {
        prefetch(self.group(page));
    }

    /// Whether a page is there or on its way.
    #[inline]
    pub fn is_present(&self, page: u64) -> bool {
        self.group(page).present & bit(page) != 0
    }

    /// Whether a page is on its way.
    #[inline]
    pub fn is_locked(&self, page: u64) -> bool {
        self.group(page).locked & bit(page) != 0
    }

    /// Notes a use of a page that is present.
    #[inline]
    pub fn touch(&mut self, page: u64) {
        self.group_mut(page).used |= bit(page);
    }

    /// Notes a use of pages that are present.
    #[inline]
    pub fn touch_all(&mut self, from: u64, to: u64) {
        for (index, mask) in groups(from, to) {
            self.groups[index].used |= mask;
        }
    }

    /// Whether the process has a page in its page table.
    #[inline]
    pub fn is_mapped(&self, page: u64) -> bool {
        self.group(page).mapped & bit(page) != 0
    }

    /// Puts a page into the page table of the process.
    #[inline]
    pub fn map(&mut self, page: u64) {
        self.group_mut(page).mapped |= bit(page);
    }

    /// Marks a page, so that touching it starts reading on.
    pub fn mark(&mut self, page: u64) {
        self.group_mut(page).marked |= bit(page);
    }

    /// Takes the mark off a page; whether it had one.
    #[inline]
    pub fn take_mark(&mut self, page: u64) -> bool {
        let group = self.group_mut(page);
        let marked = group.marked & bit(page) != 0;
        group.marked &= !bit(page);
        marked
    }

    /// The first page from `from` on, below `to`, that is present, or that is absent; else `to`.
    #[inline]
    fn find(&self, from: u64, to: u64, present: bool) -> u64 {
        for (index, mask) in groups(from, to) {
            let word = self.groups[index].present;
            let found = mask & if present { word } else { !word };
            if found != 0 {
                return index as u64 * 64 + u64::from(found.trailing_zeros());
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
        let known = self.groups.len() as u64 * 64;
        self.find(from, to.min(known), false)
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
        for (index, mask) in groups(from, to) {
            self.groups[index].locked |= mask;
        }
        self.insert(from, to);
    }

    /// The pages have come.
    #[inline]
    pub fn arrive(&mut self, from: u64, to: u64) {
        for (index, mask) in groups(from, to) {
            self.groups[index].locked &= !mask;
        }
    }

    /// Forgets pages at once, as if nobody had read them.
    pub fn forget(&mut self, from: u64, to: u64) {
        let mut gone = 0;
        for (index, mask) in groups(from, to) {
            let group = &mut self.groups[index];
            gone += u64::from((group.present & mask).count_ones());
            group.present &= !mask;
            group.marked &= !mask;
            group.mapped &= !mask;
        }
        self.held -= gone;
    }

    /// Puts pages in that are absent.
    pub fn insert(&mut self, from: u64, to: u64) {
        for (index, mask) in groups(from, to) {
            let group = &mut self.groups[index];
            group.present |= mask;
            group.used &= !mask;
        }
        self.held += to - from;
        self.queue.push_back((from, (to - from) as u32));
        self.evict();
        if self.held + (to - from) > self.capacity
            && let Some(&(next, _)) = self.queue.front()
        {
            self.announce(next);
        }
    }

    fn is_kept(&self, page: u64) -> bool {
        let group = self.group(page);
        (group.used | group.locked) & bit(page) != 0
    }

    /// How many pages of a run are in use, or on their way.
    #[inline]
    fn kept_of(&self, from: u64, to: u64) -> u64 {
        groups(from, to)
            .map(|(index, mask)| {
                let group = &self.groups[index];
                u64::from(((group.used | group.locked) & mask).count_ones())
            })
            .sum()
    }

    #[inline]
    fn unuse(&mut self, from: u64, to: u64) {
        for (index, mask) in groups(from, to) {
            self.groups[index].used &= !mask;
        }
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
                self.queue.push_back((at, (run_end - at) as u32));
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
            let Some((start, count)) = self.queue.pop_front() else {
                return;
            };
            let end = start + u64::from(count);
            match self.kept_of(start, end) {
                0 => self.forget(start, end),
                kept if kept == end - start => {
                    self.unuse(start, end);
                    self.queue.push_back((start, count));
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
        assert!(cache.is_present(7) && cache.is_locked(7));
        cache.arrive(0, 8);
        assert!(!cache.is_locked(0));
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
