//! The page cache of a node, page by page: a few bits for each page of its data volume.

use std::collections::VecDeque;

/// One bit for each page.
#[derive(Clone, Debug)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(count: u64) -> Bits {
        let words = usize::try_from(count.div_ceil(64) + 1).expect("fits memory");
        // Zeroed memory is taken from the system only where somebody writes.
        Bits {
            words: vec![0; words],
        }
    }

    #[inline]
    fn get(&self, at: u64) -> bool {
        self.words[(at >> 6) as usize] >> (at & 63) & 1 == 1
    }

    #[inline]
    fn set(&mut self, at: u64) {
        self.words[(at >> 6) as usize] |= 1 << (at & 63);
    }

    #[inline]
    fn clear(&mut self, at: u64) {
        self.words[(at >> 6) as usize] &= !(1 << (at & 63));
    }

    /// Applies a mask to each word of a range.
    #[inline]
    fn each_word(&mut self, from: u64, to: u64, mut change: impl FnMut(&mut u64, u64)) {
        let mut at = from;
        while at < to {
            let end = (at | 63) + 1;
            let high = end.min(to) - (at & !63);
            let mask = (u64::MAX >> (64 - high)) & (u64::MAX << (at & 63));
            change(&mut self.words[(at >> 6) as usize], mask);
            at = end;
        }
    }

    #[inline]
    fn fill(&mut self, from: u64, to: u64) {
        self.each_word(from, to, |word, mask| *word |= mask);
    }

    #[inline]
    fn wipe(&mut self, from: u64, to: u64) {
        self.each_word(from, to, |word, mask| *word &= !mask);
    }

    /// The first page from `from` on, below `to`, whose bit is `value`; else `to`.
    #[inline]
    fn find(&self, from: u64, to: u64, value: bool) -> u64 {
        let mut at = from;
        while at < to {
            let word = self.words[(at >> 6) as usize];
            let word = if value { word } else { !word } >> (at & 63);
            if word != 0 {
                return (at + u64::from(word.trailing_zeros())).min(to);
            }
            at = (at | 63) + 1;
        }
        to
    }
}

/// What a page cache holds.
///
/// Eviction is second chance over runs of pages in the order in which they came: a page that was
/// used again since then goes round once more. **Source:** Linux's two lists do the same for file
/// pages: one use leaves them on the inactive list, a second one saves them. **Divergence:** one list,
/// and no balance with other memory.
#[derive(Clone, Debug)]
pub struct PageCache {
    /// In the cache, perhaps still on its way from the disk.
    present: Bits,
    /// On its way.
    locked: Bits,
    /// Used again since it last stood at the end of the queue.
    used: Bits,
    /// Linux's PG_readahead: reading on starts when it is touched.
    marked: Bits,
    /// In the page table of the process: touching it is no fault, and Linux hears nothing of it.
    mapped: Bits,
    queue: VecDeque<(u64, u32)>,
    held: u64,
    capacity: u64,
}

impl PageCache {
    /// An empty cache for a volume of `pages` pages, holding `capacity` pages at most.
    pub fn new(pages: u64, capacity: u64) -> PageCache {
        PageCache {
            present: Bits::new(pages),
            locked: Bits::new(pages),
            used: Bits::new(pages),
            marked: Bits::new(pages),
            mapped: Bits::new(pages),
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

    /// Whether a page is there or on its way.
    #[inline]
    pub fn is_present(&self, page: u64) -> bool {
        self.present.get(page)
    }

    /// Whether a page is on its way.
    #[inline]
    pub fn is_locked(&self, page: u64) -> bool {
        self.locked.get(page)
    }

    /// Notes a use of a page that is present.
    #[inline]
    pub fn touch(&mut self, page: u64) {
        self.used.set(page);
    }

    /// Whether the process has a page in its page table.
    #[inline]
    pub fn is_mapped(&self, page: u64) -> bool {
        self.mapped.get(page)
    }

    /// Puts a page into the page table of the process.
    #[inline]
    pub fn map(&mut self, page: u64) {
        self.mapped.set(page);
    }

    /// Marks a page, so that touching it starts reading on.
    pub fn mark(&mut self, page: u64) {
        self.marked.set(page);
    }

    /// Takes the mark off a page; whether it had one.
    #[inline]
    pub fn take_mark(&mut self, page: u64) -> bool {
        let marked = self.marked.get(page);
        if marked {
            self.marked.clear(page);
        }
        marked
    }

    /// The next run of absent pages in `from..to`.
    #[inline]
    pub fn absent_run(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let start = self.present.find(from, to, false);
        (start < to).then(|| (start, self.present.find(start, to, true)))
    }

    /// The first absent page in `from..to`, or `to`.
    pub fn next_hole(&self, from: u64, to: u64) -> u64 {
        self.present.find(from, to, false)
    }

    /// How many of the pages right before `page` are present, `most` at most.
    pub fn history(&self, page: u64, most: u64) -> u64 {
        (1..=most.min(page))
            .find(|back| !self.present.get(page - back))
            .map_or(most.min(page), |back| back - 1)
    }

    /// Puts absent pages in; they are on their way until [`PageCache::arrive`].
    #[inline]
    pub fn expect(&mut self, from: u64, to: u64) {
        self.locked.fill(from, to);
        self.insert(from, to);
    }

    /// The pages have come.
    #[inline]
    pub fn arrive(&mut self, from: u64, to: u64) {
        self.locked.wipe(from, to);
    }

    /// Forgets pages at once, as if nobody had read them.
    pub fn forget(&mut self, from: u64, to: u64) {
        let mut gone = 0;
        self.present.each_word(from, to, |word, mask| {
            gone += u64::from((*word & mask).count_ones());
            *word &= !mask;
        });
        self.marked.wipe(from, to);
        self.mapped.wipe(from, to);
        self.held -= gone;
    }

    /// Puts pages in that are absent.
    pub fn insert(&mut self, from: u64, to: u64) {
        self.present.fill(from, to);
        self.used.wipe(from, to);
        self.held += to - from;
        self.queue.push_back((from, (to - from) as u32));
        self.evict();
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
            let mut at = start;
            while at < end {
                let keeps = self.used.get(at) || self.locked.get(at);
                let run_end = (at + 1..end)
                    .find(|&page| (self.used.get(page) || self.locked.get(page)) != keeps)
                    .unwrap_or(end);
                if keeps {
                    self.used.wipe(at, run_end);
                    self.queue.push_back((at, (run_end - at) as u32));
                } else {
                    self.forget(at, run_end);
                }
                at = run_end;
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
