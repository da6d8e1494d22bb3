//! What is known of the pages of a volume: a few bits a page, kept for the groups that have any.

use disklab_disk::prefetch;

/// What is known of 64 pages, a bit each. The bits of a page lie in one line of the processor's cache: a
/// touched page of a large table costs one access to memory, where five bitmaps cost five, and where
/// groups that cross the lines cost half as much again.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Group {
    /// In the cache, perhaps still on its way from the disk.
    pub present: u64,
    /// On its way.
    pub locked: u64,
    /// Used again since it last stood at the end of the queue.
    pub used: u64,
    /// Linux's PG_readahead: reading on starts when it is touched.
    pub marked: u64,
    /// In the page table of the process: touching it is no fault, and Linux hears nothing of it.
    pub mapped: u64,
    /// On the active list.
    pub active: u64,
    /// Linux's PG_referenced: found used when it was last looked at, or read by one call.
    pub referenced: u64,
    /// One more than the group's number; zero: nothing stands here.
    name: u64,
}

/// Of a page that is not there, five bits say when it left: a number of which zero means nothing.
impl Group {
    /// The pages of a mask that are known to have left.
    #[inline]
    pub fn left(&self, mask: u64) -> u64 {
        let bits = self.active | self.referenced | self.used | self.mapped | self.locked;
        bits & !self.present & mask
    }

    /// The bits that say of a page that is not there when it left, the lowest first.
    fn planes(&self) -> [u64; 5] {
        [
            self.active,
            self.referenced,
            self.used,
            self.mapped,
            self.locked,
        ]
    }

    /// The pages of a mask that left then.
    pub fn left_at(&self, mask: u64, when: u8) -> u64 {
        let same = |(bit, plane): (usize, u64)| if when >> bit & 1 == 1 { plane } else { !plane };
        let both = self.planes().into_iter().enumerate().map(same);
        both.fold(mask & !self.present, |mask, plane| mask & plane)
    }

    /// When a page left.
    pub fn left_when(&self, bit: u32) -> u8 {
        let parts = self.planes().into_iter().enumerate();
        parts.fold(0, |when, (at, plane)| {
            when | ((plane >> bit & 1) as u8) << at
        })
    }

    /// Notes when pages left, which are not there.
    pub fn note_left(&mut self, mask: u64, when: u8) {
        let planes = [
            &mut self.active,
            &mut self.referenced,
            &mut self.used,
            &mut self.mapped,
            &mut self.locked,
        ];
        for (bit, plane) in planes.into_iter().enumerate() {
            let set = if when >> bit & 1 == 1 { mask } else { 0 };
            *plane = *plane & !mask | set;
        }
    }

    /// Whether nothing is known of any page.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.present | self.left(u64::MAX) == 0
    }
}

/// Pages of a group.
const PAGES: u64 = 64;

/// The groups that a range of pages touches, each with a mask of the pages in it.
#[inline]
pub fn groups(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let (number, end) = (at / PAGES, (at | (PAGES - 1)) + 1);
        let high = end.min(to) - (at & !(PAGES - 1));
        let mask = (u64::MAX >> (PAGES - high)) & (u64::MAX << (at % PAGES));
        at = end;
        Some((number, mask))
    })
}

/// The bit of a page in its group.
#[inline]
pub fn bit(page: u64) -> u64 {
    1 << (page % PAGES)
}

/// Groups that a table has room for at first: 64 MiB. A volume with fewer, 256 GiB, has them all at their
/// own numbers from the start, where a look-up is an addition.
const FIRST_WIDTH: usize = 1 << 20;

/// Tables are filled to three quarters: two of three groups then stand where they are looked for first.
const MOST_FULL: (usize, usize) = (3, 4);

/// 2^64 divided by the golden ratio: neighbours come to lie far apart, and evenly (Knuth, TAOCP 6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The groups of a volume of which something is known.
///
/// Each group stands at its own number, unless there are too many for that: then it is a table with
/// open addressing that grows with what is known.
///
/// **Lesson:** an array with all groups of six nodes with 2000 M rows took 2 GiB, of which a run of three
/// million reads touched a tenth. A table for every volume made runs a tenth slower: a page is looked up
/// ten times on its way.
#[derive(Clone, Debug)]
pub struct Groups {
    entries: Vec<Group>,
    /// Groups of the volume.
    all: usize,
    count: usize,
}

impl Groups {
    /// Nothing known of a volume of `pages` pages.
    pub fn new(pages: u64) -> Groups {
        Groups::with_room(pages, FIRST_WIDTH)
    }

    fn with_room(pages: u64, groups: usize) -> Groups {
        let all = usize::try_from(pages / PAGES + 1).expect("fits memory");
        Groups {
            entries: vec![Group::default(); all.min(groups)],
            all,
            count: 0,
        }
    }

    /// The page after the last that may be known.
    pub fn end(&self) -> u64 {
        self.all as u64 * PAGES
    }

    /// Whether each group stands at its own number.
    #[inline]
    fn is_direct(&self) -> bool {
        self.entries.len() == self.all
    }

    #[inline]
    fn home(&self, number: u64) -> usize {
        if self.is_direct() {
            return number as usize;
        }
        let fraction = number.wrapping_mul(FACTOR);
        ((u128::from(fraction) * self.entries.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() {
            0
        } else {
            at + 1
        }
    }

    /// Where a group stands, or where it would have to be put.
    #[inline]
    fn search(&self, number: u64) -> Result<usize, usize> {
        let mut at = self.home(number);
        loop {
            match self.entries[at].name {
                0 => return Err(at),
                name if name == number + 1 => return Ok(at),
                _ => at = self.next(at),
            }
        }
    }

    /// A group, if something is known of it.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Group> {
        self.search(number).ok().map(|at| &self.entries[at])
    }

    /// A group to be changed, if something is known of it.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Group> {
        match self.search(number) {
            Ok(at) => Some(&mut self.entries[at]),
            Err(_) => None,
        }
    }

    /// A group to be changed; an unknown one is added.
    #[inline]
    pub fn get_or_add(&mut self, number: u64) -> &mut Group {
        let at = match self.search(number) {
            Ok(at) => at,
            Err(at) => self.add(number, at),
        };
        &mut self.entries[at]
    }

    fn add(&mut self, number: u64, mut at: usize) -> usize {
        let full = self.count * MOST_FULL.1 >= self.entries.len() * MOST_FULL.0;
        if full && !self.is_direct() {
            self.grow();
            at = self.search(number).unwrap_or_else(|at| at);
        }
        self.entries[at].name = number + 1;
        self.count += 1;
        at
    }

    fn grow(&mut self) {
        let width = (self.entries.len() * 2).min(self.all);
        let wider = vec![Group::default(); width];
        let entries = std::mem::replace(&mut self.entries, wider);
        for entry in entries.into_iter().filter(|entry| entry.name != 0) {
            if let Err(at) = self.search(entry.name - 1) {
                self.entries[at] = entry;
            }
        }
    }

    /// Forgets a group of which nothing is known any more.
    pub fn remove(&mut self, number: u64) {
        let Ok(mut hole) = self.search(number) else {
            return;
        };
        self.count -= 1;
        let mut at = hole;
        // Those behind it move up, unless they would come to stand before their home.
        while !self.is_direct() {
            at = self.next(at);
            let entry = self.entries[at];
            if entry.name == 0 {
                break;
            }
            let width = self.entries.len();
            let behind = |from: usize| (at + width - from) % width;
            if behind(self.home(entry.name - 1)) >= behind(hole) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = Group::default();
    }

    /// Has the processor fetch what is known of a group. Changes nothing.
    #[inline]
    pub fn announce(&self, number: u64) {
        prefetch(&self.entries[self.home(number)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn takes_memory_only_for_what_is_known() {
        let mut groups = Groups::with_room(1 << 32, 1024);
        for number in 0..100_000_u64 {
            groups.get_or_add(number * 641).present = 1;
        }
        let bytes = groups.entries.len() * size_of::<Group>();
        assert!(bytes < 100_000 * 192, "{bytes}");
    }

    #[test]
    fn is_an_array_when_all_is_known() {
        let mut groups = Groups::with_room(1 << 20, 1024);
        for number in 0..=1 << 14 {
            groups.get_or_add(number).present = number;
        }
        assert!(groups.is_direct());
        assert_eq!(groups.entries.len(), (1 << 14) + 1);
        assert_eq!(groups.get(77).map(|group| group.present), Some(77));
    }

    #[test]
    fn pages_that_are_not_there_have_left_at_a_moment() {
        let mut group = Group {
            present: 0b1,
            mapped: 0b1,
            ..Group::default()
        };
        assert_eq!(group.left(u64::MAX), 0);
        for when in 1..32 {
            group.note_left(0b0110, when);
            group.note_left(0b1000, 32 - when);
            assert_eq!(group.left(u64::MAX), 0b1110);
            assert_eq!((group.left_when(2), group.left_when(3)), (when, 32 - when));
            let both = if when == 16 { 0b1110 } else { 0b0110 };
            assert_eq!(group.left_at(u64::MAX, when), both);
        }
        group.note_left(0b1110, 0);
        assert!(group.left(u64::MAX) == 0 && !group.is_empty());
        assert_eq!(group.mapped, 0b1);
    }

    proptest! {
        #[test]
        fn is_a_map(
            steps in prop::collection::vec((0..3_u8, 0..6_000_u64), 1..6_000),
            pages in prop::sample::select(vec![6_000 * PAGES, 1 << 40]),
        ) {
            let mut groups = Groups::with_room(pages, 16);
            let mut map = BTreeMap::new();
            for (step, (what, number)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        groups.remove(number);
                        map.remove(&number);
                    }
                    _ => {
                        groups.get_or_add(number).used = step as u64;
                        map.insert(number, step as u64);
                    }
                }
                prop_assert_eq!(groups.count, map.len());
            }
            for number in 0..6_000 {
                let found = groups.get(number).map(|group| group.used);
                prop_assert_eq!(found, map.get(&number).copied());
            }
        }
    }
}
