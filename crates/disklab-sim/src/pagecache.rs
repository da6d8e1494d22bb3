//! The page cache of a node, page by page: a few bits for each page of its data volume.

use std::collections::VecDeque;

use crate::groups::{Group, Groups, bit, groups};
use crate::pagelists::{List, Moments, Run, runs};

/// What a page cache holds.
///
/// **Source:** mm/vmscan.c, mm/swap.c and mm/workingset.c of Linux 6.18 with its two lists of file pages (without
/// `CONFIG_LRU_GEN`, or with `/sys/kernel/mm/lru_gen/enabled` at 0). Pages come onto the inactive list. At its end a page that
/// was used through a mapping goes round once more, and one that was so used twice in a row onto the active list, as does at
/// once a page that a second `read` finds. The active list gives its oldest pages back where it is longer than the
/// inactive one. Since 3.15 a page that comes back before as many others have left or moved up as the active list has goes
/// straight onto it, whether it was asked for or read ahead. What the kernel goes by for both rules are counts that it
/// brings up to date every two seconds (`FLUSH_TIME` in mm/memcontrol.c): [`PageCache::tell`].
///
/// **Divergence:** a large folio comes and goes page by page; nothing else takes memory; where the clock of the counts
/// stands when a run begins is not known.
#[derive(Clone, Debug)]
pub struct PageCache {
    groups: Groups,
    inactive: List,
    active: List,
    capacity: u64,
    rule: Rule,
    /// Pages of both lists as the kernel last counted them.
    told: (u64, u64),
    /// Pages that left, or came onto the active list, so far (`nonresident_age`).
    age: u64,
    /// What left, oldest first, with the age at that time.
    left: VecDeque<(Run, u64)>,
}

/// How pages leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One list; what was used goes round once more.
    OneList,
    /// Two lists, as Linux 3.10 has them.
    Linux3,
    /// Two lists, and pages that come back soon, as Linux 6.18 has them.
    Linux6,
}

/// Pages that are taken back at least, and looked at in one go. **Source:** `SWAP_CLUSTER_MAX`.
const CLUSTER: u64 = 32;
/// At first so small a part of a list is looked at, two to the power of this, then twice as much, and so on
/// (`DEF_PRIORITY`).
const FIRST_PRIORITY: u32 = 12;
/// GiB of pages, as a power of two.
const GIB_PAGES_BITS: u32 = 18;
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
        self.group.present & self.group.locked & self.bit != 0
    }

    /// Whether the process has it in its page table.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.group.present & self.group.mapped & self.bit != 0
    }
}

impl PageCache {
    /// An empty cache for a volume of `pages` pages, holding `capacity` pages at most.
    pub fn new(pages: u64, capacity: u64, rule: Rule) -> PageCache {
        PageCache {
            groups: Groups::new(pages),
            inactive: List::default(),
            active: List::default(),
            capacity: capacity.max(1024),
            rule,
            told: (0, 0),
            age: 0,
            left: VecDeque::new(),
        }
    }

    /// An empty cache like this one, for a volume of `pages` pages.
    pub fn emptied(&self, pages: u64) -> PageCache {
        PageCache::new(pages, self.capacity, self.rule)
    }

    /// Pages that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Pages held.
    #[inline]
    pub fn held(&self) -> u64 {
        self.inactive.pages + self.active.pages
    }

    /// The kernel counts its lists.
    pub fn tell(&mut self) {
        self.told = (self.inactive.pages, self.active.pages);
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

    /// Notes a use of a page that is mapped.
    #[inline]
    pub fn touch(&mut self, page: u64) {
        self.touch_all(page, page + 1);
    }

    /// Notes a use of pages that are mapped.
    #[inline]
    fn touch_all(&mut self, from: u64, to: u64) {
        self.each(from, to, |group, mask| group.used |= mask & group.present);
    }

    /// Notes a use of pages by a call.
    ///
    /// **Source:** mm/swap.c, `folio_mark_accessed`: the second one puts a page onto the active list.
    #[inline]
    pub fn access(&mut self, from: u64, to: u64) {
        if self.rule == Rule::OneList {
            return self.touch_all(from, to);
        }
        for (number, mask) in groups(from, to) {
            let Some(group) = self.groups.get_mut(number) else {
                continue;
            };
            let known = mask & group.present & !group.active;
            let again = known & group.referenced;
            // On the active list the mark stays until it is looked for.
            group.referenced |= mask & group.present;
            if again != 0 {
                group.referenced &= !again;
                group.active |= again;
                let pages = u64::from(again.count_ones());
                self.inactive.pages -= pages;
                self.active.pages += pages;
                self.age += pages;
                self.active.push_all(number, again);
            }
        }
    }

    /// Puts a page into the page table of the process, if it is still there.
    #[inline]
    pub fn map(&mut self, page: u64) {
        self.each(page, page + 1, |group, mask| {
            group.mapped |= mask & group.present;
            group.used |= mask & group.present;
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
            group.used |= ready & !group.mapped;
            group.mapped |= ready;
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

    /// Puts pages in that are absent.
    pub fn insert(&mut self, from: u64, to: u64) {
        self.put(from, to, 0);
    }

    /// Puts absent pages in, those of the mask `locked` still on their way.
    #[inline]
    fn put(&mut self, from: u64, to: u64, locked: u64) {
        let (mut at, mut again) = (from, 0);
        for (number, mask) in groups(from, to) {
            let group = self.groups.get_or_add(number);
            let soon = if self.left.is_empty() || group.left(mask) == 0 {
                0
            } else {
                let moments = Moments::of(self.capacity);
                moments.since(group, mask, self.age, self.told.1)
            };
            group.present |= mask;
            group.used &= !mask;
            group.mapped &= !mask;
            group.referenced &= !mask;
            group.active = group.active & !mask | soon;
            group.locked = group.locked & !mask | mask & locked;
            if soon != 0 {
                let first = (number * 64).max(from);
                self.inactive.push(at, first);
                self.inactive.push_all(number, mask & !soon);
                self.active.push_all(number, soon);
                again += u64::from(soon.count_ones());
                at = (number * 64 + 64).min(to);
            }
        }
        self.inactive.push(at, to);
        self.age += again;
        self.active.pages += again;
        self.inactive.pages += to - from - again;
        self.evict();
        if self.held() + (to - from) > self.capacity
            && let Some(next) = self.inactive.next()
        {
            self.announce(next.bounds().0);
        }
    }

    /// Takes pages back until the rest has room.
    #[inline]
    fn evict(&mut self) {
        while self.held() > self.capacity {
            let wanted = (self.held() - self.capacity).max(CLUSTER);
            let low = self.is_low();
            if !self.take_back(wanted, low) && (low || !self.take_back(wanted, true)) {
                // All of it is on its way.
                return;
            }
        }
    }

    /// Whether the inactive list is short, so that the active one gives pages back.
    ///
    /// **Source:** mm/vmscan.c, `inactive_is_low` of 6.18 (by the pages last counted) and
    /// `inactive_file_is_low` of 3.10.
    fn is_low(&self) -> bool {
        let (inactive, active) = match self.rule {
            Rule::OneList => return false,
            Rule::Linux3 => (self.inactive.pages, self.active.pages),
            Rule::Linux6 => self.told,
        };
        let gib = (inactive + active) >> GIB_PAGES_BITS;
        let ratio = if self.rule == Rule::Linux6 && gib > 0 {
            (10 * gib).isqrt()
        } else {
            1
        };
        inactive * ratio < active
    }

    /// Takes at least so many pages back, if it can; whether it did any. `gives`: the active list gives pages to the
    /// inactive one meanwhile.
    ///
    /// **Source:** mm/vmscan.c, `do_try_to_free_pages`, `get_scan_count` and `shrink_lruvec`: both lists are looked at in
    /// proportion to their lengths.
    fn take_back(&mut self, wanted: u64, gives: bool) -> bool {
        let mut taken = 0;
        for priority in (0..=FIRST_PRIORITY).rev() {
            let mut inactive = self.inactive.pages >> priority;
            let mut active = if gives {
                self.active.pages >> priority
            } else {
                0
            };
            while inactive > 0 || active > 0 {
                if inactive > 0 {
                    taken += self.look_at_inactive(inactive.min(CLUSTER));
                    inactive -= inactive.min(CLUSTER);
                }
                if active > 0 {
                    self.look_at_active(active.min(CLUSTER));
                    active -= active.min(CLUSTER);
                }
                if taken >= wanted {
                    return true;
                }
            }
        }
        taken > 0
    }

    /// Looks at so many of the oldest inactive pages; how many left.
    fn look_at_inactive(&mut self, pages: u64) -> u64 {
        let moments = Moments::of(self.capacity);
        let remembers = self.rule == Rule::Linux6;
        let (mut seen, mut taken) = (0, 0);
        while seen < pages
            && let Some((number, mask)) = self.inactive.pop(pages - seen)
        {
            if let Some(next) = self.inactive.ahead() {
                self.groups.announce(next.bounds().0 / 64);
            }
            let Some(group) = self.groups.get_mut(number) else {
                continue;
            };
            // Others were put onto the active list meanwhile, or were forgotten.
            let here = mask & group.present & !group.active;
            let locked = here & group.locked;
            let young = here & group.used & !locked;
            let gone = here & !young & !locked;
            seen += u64::from(here.count_ones());
            if gone != here {
                let twice = match self.rule {
                    Rule::OneList => 0,
                    Rule::Linux3 | Rule::Linux6 => young & group.referenced,
                };
                group.used &= !young;
                group.active |= twice;
                group.referenced |= young;
                let moved = u64::from(twice.count_ones());
                self.inactive.pages -= moved;
                self.active.pages += moved;
                self.age += moved;
                self.inactive.push_all(number, (young | locked) & !twice);
                self.active.push_all(number, twice);
            }
            if gone != 0 {
                group.present &= !gone;
                group.marked &= !gone;
                let when = if remembers { moments.name(self.age) } else { 0 };
                group.note_left(gone, when);
                if group.is_empty() {
                    self.groups.remove(number);
                }
                let pages = u64::from(gone.count_ones());
                self.inactive.pages -= pages;
                taken += pages;
                if remembers {
                    for (from, to) in runs(number, gone) {
                        self.left.push_back((Run::new(from, to - from), self.age));
                    }
                    self.age += pages;
                }
            }
        }
        if remembers {
            self.forget_who_left(moments);
        }
        taken
    }

    /// Takes so many of the oldest active pages back onto the inactive list.
    fn look_at_active(&mut self, pages: u64) {
        let mut seen = 0;
        while seen < pages
            && let Some((number, mask)) = self.active.pop(pages - seen)
        {
            let Some(group) = self.groups.get_mut(number) else {
                continue;
            };
            let here = mask & group.present & group.active;
            group.active &= !here;
            group.used &= !here;
            let moved = u64::from(here.count_ones());
            seen += moved;
            self.active.pages -= moved;
            self.inactive.pages += moved;
            self.inactive.push_all(number, here);
        }
    }

    /// Forgets what left so long ago that it will not count as back soon.
    fn forget_who_left(&mut self, moments: Moments) {
        while let Some(&(run, age)) = self.left.front()
            && age + self.capacity < self.age
        {
            self.left.pop_front();
            let (from, to) = run.bounds();
            for (number, mask) in groups(from, to) {
                let Some(group) = self.groups.get_mut(number) else {
                    continue;
                };
                let its = group.left_at(mask, moments.name(age));
                group.note_left(its, 0);
                if group.is_empty() {
                    self.groups.remove(number);
                }
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
        let mut cache = PageCache::new(100_000, 1024, Rule::Linux6);
        cache.insert(0, 512);
        cache.insert(512, 1024);
        cache.touch(3);
        cache.insert(2000, 2100);
        assert!(cache.is_present(3) && !cache.is_present(4));
        assert!(cache.is_present(600));
        assert!(cache.held() <= 1024);
    }

    /// A cache of 1,024 pages that is full, of pages from 0 on.
    fn full(rule: Rule) -> PageCache {
        let mut cache = PageCache::new(1_000_000, 1024, rule);
        cache.insert(0, 1024);
        cache
    }

    /// So many pages come that nobody uses, each time from another place.
    fn crowd(cache: &mut PageCache, from: u64, pages: u64) {
        for at in (from..from + pages).step_by(16) {
            cache.insert(at, (at + 16).min(from + pages));
        }
    }

    #[test]
    fn a_page_that_two_calls_read_stays_and_one_of_one_call_goes() {
        for rule in [Rule::Linux3, Rule::Linux6] {
            let mut cache = full(rule);
            cache.access(3, 5);
            cache.access(4, 5);
            crowd(&mut cache, 100_000, 3_000);
            assert!(!cache.is_present(3) && cache.is_present(4), "{rule:?}");
            assert_eq!(cache.active.pages, 1);
        }
        let mut cache = full(Rule::OneList);
        cache.access(4, 5);
        crowd(&mut cache, 100_000, 1_000);
        assert!(cache.is_present(4));
        crowd(&mut cache, 200_000, 3_000);
        assert!(!cache.is_present(4));
    }

    #[test]
    fn a_mapped_page_stays_when_it_was_found_used_twice() {
        let mut cache = full(Rule::Linux6);
        cache.touch(3);
        cache.touch(4);
        // Once round the list, and both are still there.
        crowd(&mut cache, 100_000, 1_000);
        assert!(cache.is_present(3) && cache.is_present(4));
        cache.touch(4);
        crowd(&mut cache, 200_000, 3_000);
        assert!(!cache.is_present(3) && cache.is_present(4));
    }

    #[test]
    fn a_page_that_comes_back_soon_goes_onto_the_active_list() {
        let mut cache = full(Rule::Linux6);
        for _ in 0..2 {
            cache.access(624, 1024);
        }
        crowd(&mut cache, 100_000, 100);
        assert!(!cache.is_present(3));
        // The kernel has not counted its active pages yet: none are as few as have left meanwhile.
        cache.insert(3, 4);
        assert_eq!(cache.active.pages, 400);
        cache.tell();
        cache.insert(4, 6);
        assert_eq!(cache.active.pages, 402);
        crowd(&mut cache, 200_000, 3_000);
        assert!(!cache.is_present(3) && cache.is_present(4));
        // After so many others it has not come back soon.
        cache.insert(6, 7);
        assert_eq!(cache.active.pages, 402);
        let mut old = full(Rule::Linux3);
        old.tell();
        crowd(&mut old, 100_000, 100);
        old.insert(3, 4);
        assert_eq!(old.active.pages, 0);
    }

    #[test]
    fn a_long_active_list_gives_pages_back_once_the_kernel_has_counted() {
        let long = || {
            let mut cache = full(Rule::Linux6);
            for _ in 0..2 {
                cache.access(0, 900);
            }
            cache
        };
        let mut stale = long();
        crowd(&mut stale, 100_000, 2_000);
        assert_eq!(stale.active.pages, 900);
        let mut told = long();
        told.tell();
        crowd(&mut told, 100_000, 2_000);
        assert!(told.active.pages < 600, "{}", told.active.pages);
        assert!(!told.is_present(3) && told.is_present(899));
    }

    proptest! {
        #[test]
        fn both_lists_have_what_is_there(
            steps in prop::collection::vec((0..5_u8, 0..4_000_u64, 1..200_u64), 1..150),
            rule in prop::sample::select(vec![Rule::OneList, Rule::Linux3, Rule::Linux6]),
        ) {
            let mut cache = PageCache::new(5_000, 1024, rule);
            for (what, from, pages) in steps {
                match what {
                    0 => cache.tell(),
                    1 => cache.access(from, from + pages),
                    2 => cache.touch_all(from, from + pages),
                    _ => {
                        let mut at = from;
                        while let Some((a, b)) = cache.absent_run(at, from + pages) {
                            cache.insert(a, b);
                            at = b;
                        }
                    }
                }
                let there = (0..5_000).filter(|&page| cache.is_present(page)).count() as u64;
                prop_assert_eq!(cache.held(), there);
                prop_assert!(there <= 1024);
                let active = |&page: &u64| {
                    let known = cache.known(page);
                    known.group.present & known.group.active & known.bit != 0
                };
                let active = (0..5_000).filter(active).count() as u64;
                prop_assert_eq!(cache.active.pages, active);
            }
        }
    }

    #[test]
    fn pages_on_their_way_stay() {
        let mut cache = PageCache::new(100_000, 1024, Rule::Linux6);
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
            let mut cache = PageCache::new(1_000, 10_000, Rule::Linux6);
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
