//! How Linux reads more than it is asked for: read-around of page faults, read-ahead of reads.
//!
//! **Source:** mm/filemap.c (`do_sync_mmap_readahead`, `do_async_mmap_readahead`) and mm/readahead.c
//! (`ondemand_readahead`) of Linux 3.10, which the 2019 study ran; the rules are the same up to 5.x.

/// Beyond so many more misses than hits a fault reads its own page only (`MMAP_LOTSAMISS`).
const LOTS_OF_MISSES: u32 = 100;
/// The counter stops at so many times that, so that hits can bring it back.
const MOST_MISSES: u32 = 10;

/// Pages to read in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Page after the last.
    pub end: u64,
    /// Touching this page starts the next window.
    pub mark: Option<u64>,
}

impl Window {
    /// Pages from `start` to before `end`, with nothing to follow.
    pub fn plain(start: u64, end: u64) -> Window {
        Window {
            start,
            end,
            mark: None,
        }
    }

    fn single(page: u64) -> Window {
        Window::plain(page, page + 1)
    }
}

/// The state that Linux keeps with an open file (`struct file_ra_state`), shared by all threads
/// that read it.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// Pages of the file: first, and after the last.
    file: (u64, u64),
    /// `read_ahead_kb` in pages.
    most: u64,
    misses: u32,
    lots_of_misses: u32,
    start: u64,
    size: u64,
    asynchronous: u64,
    /// Last page of the previous read.
    previous: Option<u64>,
}

impl ReadAhead {
    /// A file that nobody has read yet. Of a file that is `scale` times smaller than the real one, and is
    /// read whole, the counter of misses is as much shorter, or it would never matter.
    pub fn new(first: u64, end: u64, most: u64, scale: u64) -> ReadAhead {
        ReadAhead {
            file: (first, end),
            most,
            misses: 0,
            lots_of_misses: (u64::from(LOTS_OF_MISSES) / scale.max(1)).max(1) as u32,
            start: first,
            size: 0,
            asynchronous: 0,
            previous: None,
        }
    }

    /// A fault on a page that is not in memory.
    #[inline]
    pub fn fault_missed(&mut self, page: u64) -> Window {
        if self.most == 0 {
            return Window::single(page);
        }
        self.misses = (self.misses + 1).min(self.lots_of_misses * MOST_MISSES);
        if self.misses > self.lots_of_misses {
            return Window::single(page);
        }
        self.start = page.saturating_sub(self.most / 2).max(self.file.0);
        self.size = self.most;
        self.asynchronous = self.most / 4;
        self.window()
    }

    /// A fault on a page that is in memory, or on its way.
    #[inline]
    pub fn fault_hit(&mut self) {
        self.misses = self.misses.saturating_sub(1);
    }

    /// A read of `wanted` pages of which the first is not in memory. `history` tells how many
    /// pages before it are (asked only if it matters).
    pub fn read_missed(&mut self, page: u64, wanted: u64, history: impl Fn(u64) -> u64) -> Window {
        if self.most == 0 {
            return Window::single(page);
        }
        if page == self.file.0 || wanted > self.most || self.follows_previous(page) {
            return self.initial(page, wanted);
        }
        if self.follows_window(page) {
            return self.next_window(page);
        }
        let before = history(self.most);
        if before > wanted {
            self.start = page;
            self.size = initial_size(before + wanted, self.most);
            self.asynchronous = 1;
            return self.window();
        }
        Window {
            start: page,
            end: (page + wanted).min(self.file.1),
            mark: None,
        }
    }

    /// A marked page was touched; `hole` is the first absent page behind it.
    pub fn mark_touched(&mut self, page: u64, wanted: u64, hole: u64) -> Option<Window> {
        if self.most == 0 {
            return None;
        }
        if self.follows_window(page) {
            return Some(self.next_window(page));
        }
        if hole - page > self.most {
            return None;
        }
        self.start = hole;
        self.size = next_size(hole - page + wanted, self.most);
        self.asynchronous = self.size;
        Some(self.window())
    }

    /// Notes the last page of a read.
    pub fn read_ended(&mut self, page: u64) {
        self.previous = Some(page);
    }

    /// `read_ahead_kb` in pages.
    pub fn most(&self) -> u64 {
        self.most
    }

    fn follows_previous(&self, page: u64) -> bool {
        self.previous
            .is_some_and(|previous| page == previous || page == previous + 1)
    }

    fn follows_window(&self, page: u64) -> bool {
        self.size > 0
            && (page == self.start + self.size - self.asynchronous
                || page == self.start + self.size)
    }

    fn initial(&mut self, page: u64, wanted: u64) -> Window {
        self.start = page;
        self.size = initial_size(wanted, self.most);
        self.asynchronous = if self.size > wanted {
            self.size - wanted
        } else {
            self.size
        };
        self.stretch(page);
        self.window()
    }

    fn next_window(&mut self, page: u64) -> Window {
        self.start += self.size;
        self.size = next_size(self.size, self.most);
        self.asynchronous = self.size;
        self.stretch(page);
        self.window()
    }

    /// A window that would be all ahead of the reader, and begins where he stands, gets the next one
    /// on top.
    fn stretch(&mut self, page: u64) {
        if page == self.start && self.size == self.asynchronous {
            self.asynchronous = next_size(self.size, self.most);
            self.size += self.asynchronous;
        }
    }

    fn window(&self) -> Window {
        let end = (self.start + self.size).min(self.file.1);
        let mark = self.start + self.size - self.asynchronous;
        Window {
            start: self.start,
            end,
            mark: (self.asynchronous > 0 && mark < end).then_some(mark),
        }
    }
}

/// `get_init_ra_size`.
fn initial_size(wanted: u64, most: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        size * 4
    } else {
        (size * 2).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 1_000_000;

    #[test]
    fn a_fault_reads_around_and_marks() {
        let mut ahead = ReadAhead::new(0, END, 16, 1);
        let window = ahead.fault_missed(100);
        assert_eq!(
            (window.start, window.end, window.mark),
            (92, 108, Some(104))
        );
        let first = ReadAhead::new(0, END, 16, 1).fault_missed(3);
        assert_eq!((first.start, first.end), (0, 16));
        let last = ReadAhead::new(0, END, 16, 1).fault_missed(END - 1);
        assert_eq!((last.start, last.end, last.mark), (END - 9, END, None));
    }

    #[test]
    fn sixteen_kib_put_the_mark_on_the_next_page() {
        let window = ReadAhead::new(0, END, 4, 1).fault_missed(100);
        assert_eq!(
            (window.start, window.end, window.mark),
            (98, 102, Some(101))
        );
    }

    #[test]
    fn eight_kib_do_not_reach_the_next_page() {
        let window = ReadAhead::new(0, END, 2, 1).fault_missed(100);
        assert_eq!((window.start, window.end, window.mark), (99, 101, None));
    }

    #[test]
    fn lots_of_misses_end_the_read_around_and_hits_bring_it_back() {
        let mut ahead = ReadAhead::new(0, END, 16, 1);
        for _ in 0..100 {
            assert_eq!(ahead.fault_missed(500).end, 508);
        }
        assert_eq!(ahead.fault_missed(500), Window::single(500));
        ahead.fault_hit();
        ahead.fault_hit();
        assert_eq!(ahead.fault_missed(500).end, 508);
    }

    #[test]
    fn a_touched_mark_reads_on_behind_the_hole() {
        let mut ahead = ReadAhead::new(0, END, 4, 1);
        ahead.fault_missed(100);
        ahead.fault_missed(9_000);
        let window = ahead.mark_touched(101, 4, 102).expect("there is room");
        assert_eq!(
            (window.start, window.end, window.mark),
            (102, 106, Some(102))
        );
    }

    #[test]
    fn reads_in_order_double_the_window() {
        let mut ahead = ReadAhead::new(0, END, 32, 1);
        let sizes = |window: Window| window.end - window.start;
        let first = ahead.read_missed(0, 1, |_| 0);
        assert_eq!((sizes(first), first.mark), (4, Some(1)));
        let second = ahead.mark_touched(1, 1, 4).expect("reads on");
        assert_eq!((second.start, sizes(second), second.mark), (4, 8, Some(4)));
        let third = ahead.mark_touched(4, 1, 12).expect("reads on");
        assert_eq!((third.start, sizes(third)), (12, 16));
    }

    #[test]
    fn a_single_random_read_reads_what_it_wants() {
        let mut ahead = ReadAhead::new(0, END, 32, 1);
        let window = ahead.read_missed(777, 4, |_| 0);
        assert_eq!((window.start, window.end, window.mark), (777, 781, None));
    }
}
