//! Pages in the order in which a page cache looks at them, and the moments at which they left.

use std::collections::VecDeque;

use crate::groups::{Group, groups};

/// So many runs ahead the processor fetches what is known of their pages: two looks at memory take as long as one.
const AHEAD: usize = 2;
/// When a page left is known to this part of the capacity.
const EPOCHS: u64 = 24;
/// So many moments have names of their own: more than what is remembered lasts.
const NAMES: u8 = 31;

/// Pages in the order in which they are looked at.
#[derive(Clone, Debug, Default)]
pub struct List {
    queue: VecDeque<Run>,
    /// How many are on it; what stands in line may have left it meanwhile.
    pub pages: u64,
}

impl List {
    /// Puts pages at the end; they follow those that came last, or begin a run.
    #[inline]
    pub fn push(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        if let Some(last) = self.queue.back_mut() {
            let (first, end) = last.bounds();
            if end == from && to - first <= Run::MOST {
                *last = Run::new(first, to - first);
                return;
            }
        }
        self.queue.push_back(Run::new(from, to - from));
    }

    /// Puts pages of a group at the end.
    #[inline]
    pub fn push_all(&mut self, number: u64, mask: u64) {
        for (from, to) in runs(number, mask) {
            self.push(from, to);
        }
    }

    /// The oldest pages.
    pub fn next(&self) -> Option<Run> {
        self.queue.front().copied()
    }

    /// Pages that will be looked at soon.
    #[inline]
    pub fn ahead(&self) -> Option<Run> {
        self.queue.get(AHEAD).copied()
    }

    /// Takes the oldest pages, of one group and so many at most: its number, and a mask.
    #[inline]
    pub fn pop(&mut self, most: u64) -> Option<(u64, u64)> {
        let (from, to) = self.queue.front()?.bounds();
        let end = (from | 63).saturating_add(1).min(from + most);
        if end < to {
            self.queue[0] = Run::new(end, to - end);
        } else {
            self.queue.pop_front();
        }
        groups(from, end.min(to)).next()
    }
}

/// Pages that came together.
#[derive(Clone, Copy, Debug)]
pub struct Run(u64);

impl Run {
    /// Bits for the number of pages; those above are the first page's.
    const COUNT_BITS: u32 = 28;
    const MOST: u64 = (1 << Run::COUNT_BITS) - 1;

    /// So many pages from one on.
    pub fn new(first: u64, pages: u64) -> Run {
        debug_assert!(pages <= Run::MOST && first < 1 << (64 - Run::COUNT_BITS));
        Run(first << Run::COUNT_BITS | pages)
    }

    /// First page, and the page after the last.
    pub fn bounds(self) -> (u64, u64) {
        let first = self.0 >> Run::COUNT_BITS;
        (first, first + (self.0 & Run::MOST))
    }
}

/// Names for the moments at which pages left: few enough for the bits that a page which is not there has no use for.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// How much older the cache becomes within one.
    length: u64,
}

impl Moments {
    /// Those of a cache with so many pages.
    pub fn of(capacity: u64) -> Moments {
        Moments {
            length: capacity / EPOCHS + 1,
        }
    }

    /// The name of the moment with this age; never zero.
    pub fn name(self, age: u64) -> u8 {
        1 + (age / self.length % u64::from(NAMES)) as u8
    }

    /// The pages of a mask that left when the cache was younger by `most` at most.
    pub fn since(self, group: &Group, mask: u64, age: u64, most: u64) -> u64 {
        let (mut left, mut found) = (group.left(mask), 0);
        let now = self.name(age);
        while left != 0 {
            let name = group.left_when(left.trailing_zeros());
            let its = group.left_at(left, name);
            let past = u64::from((now + NAMES - name) % NAMES);
            // A page left in the middle of its moment, on the average.
            let ago = (past * self.length + age % self.length).saturating_sub(self.length / 2);
            if ago <= most {
                found |= its;
            }
            left &= !its;
        }
        found
    }
}

/// The runs of a mask's pages in a group.
#[inline]
pub fn runs(number: u64, mask: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let first = left.trailing_zeros();
        let length = (left >> first).trailing_ones();
        left &= !(mask_of(length) << first);
        let from = number * 64 + u64::from(first);
        Some((from, from + u64::from(length)))
    })
}

/// So many ones.
fn mask_of(ones: u32) -> u64 {
    u64::MAX >> (64 - ones)
}
