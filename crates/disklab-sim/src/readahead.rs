//! How Linux reads more than it is asked for: read-around of page faults, read-ahead of reads.
//!
//! **Source:** mm/filemap.c (`do_sync_mmap_readahead`, `do_async_mmap_readahead`, `filemap_map_pages`)
//! and mm/readahead.c (`ondemand_readahead`, `page_cache_sync_ra`, `page_cache_async_ra`) of Linux 3.10,
//! which the 2019 study ran, and of 6.18. They differ: since 3.15 a fault maps what is
//! there of the sixteen pages around it, and counts each as a hit; since 4.10 a read may fetch more than
//! `read_ahead_kb` if it wants more; since 6.13 a miss right behind a window does not continue it, and since 6.17
//! windows end where a large folio does.

use crate::job::Kernel;

/// Beyond so many more misses than hits a fault reads its own page only (`MMAP_LOTSAMISS`).
const LOTS_OF_MISSES: u32 = 100;
/// The counter stops at so many times that, so that hits can bring it back.
const MOST_MISSES: u32 = 10;

/// Largest read that goes beyond `read_ahead_kb` (`bdi->io_pages`): 1 MiB. Assumed: disks take 512 KiB to
/// 4 MiB (`max_sectors_kb`), and no row is so long.
const MOST_IO_PAGES: u64 = 256;

/// Pages around a fault that are mapped with it, where they are there (`fault_around_bytes`, 64 KiB).
pub const FAULT_AROUND_PAGES: u64 = 16;

/// Pages to read in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Page after the last.
    pub end: u64,
    /// Touching this page starts the next window.
    pub mark: Option<u64>,
    /// That page begins a piece (a large folio) of two to the power of this pages, of which each has the mark.
    pub mark_order: u32,
    /// Its pieces have two to the power of this pages.
    order: u32,
    /// First page of its file.
    origin: u64,
}

impl Window {
    /// Pages from `start` to before `end`, with nothing to follow.
    pub fn plain(start: u64, end: u64) -> Window {
        Window {
            start,
            end,
            mark: None,
            mark_order: 0,
            order: 0,
            origin: 0,
        }
    }

    /// The first page of the piece that has a page of the window.
    ///
    /// **Source:** `page_cache_ra_order` of mm/readahead.c. A piece that would cover a page which is in memory already is
    /// not made: what came before it is sent, and the pages up to that one follow by themselves, in an I/O of their own. Our own
    /// kernel (6.18) did so: of 16 pages from 15,165 on, of which 15,167 was in memory, it read the first two by two I/Os.
    #[inline]
    pub fn piece_of(&self, page: u64) -> u64 {
        if self.order == 0 {
            return page;
        }
        let mut at = self.start;
        loop {
            let order = piece_order(self.order, at - self.origin, self.end - self.origin);
            if at + (1 << order) > page {
                return at;
            }
            at += 1 << order;
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
    kernel: Kernel,
    /// Pages of the file: first, and after the last.
    file: (u64, u64),
    /// `read_ahead_kb` in pages.
    most: u64,
    misses: u32,
    lots_of_misses: u32,
    start: u64,
    size: u64,
    asynchronous: u64,
    /// The pages of a window come in pieces of two to the power of this, which grows from window to window.
    order: u32,
    /// The page of the last byte of the previous read; of today's kernels that of the byte behind it. **Source:**
    /// `prev_pos` in mm/filemap.c, `do_generic_file_read` of 3.10 and `filemap_read` of 6.18.
    previous: Option<u64>,
}

impl ReadAhead {
    /// A file that nobody has read yet. Of a file that is `scale` times smaller than the real one, and is
    /// read whole, the counter of misses is as much shorter, or it would never matter.
    pub fn new(kernel: Kernel, first: u64, end: u64, most: u64, scale: u64) -> ReadAhead {
        ReadAhead {
            kernel,
            file: (first, end),
            most,
            misses: 0,
            lots_of_misses: (u64::from(LOTS_OF_MISSES) / scale.max(1)).max(1) as u32,
            start: first,
            size: 0,
            asynchronous: 0,
            order: 0,
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
        self.order = 0;
        self.start = page.saturating_sub(self.most / 2).max(self.file.0);
        self.size = self.most;
        self.asynchronous = self.most / 4;
        self.window()
    }

    /// A fault on a page that is in memory, or on its way (`locked`).
    #[inline]
    pub fn fault_hit(&mut self, locked: bool) {
        if !(locked && self.maps_around()) {
            self.mapped(1);
        }
    }

    /// Pages were found in memory around a fault.
    #[inline]
    pub fn mapped(&mut self, pages: u32) {
        self.misses = self.misses.saturating_sub(pages);
    }

    /// Whether a fault maps the pages around it.
    #[inline]
    pub fn maps_around(&self) -> bool {
        self.kernel == Kernel::Linux6
    }

    /// The pages that a fault maps where they are there: first, and after the last.
    #[inline]
    pub fn around(&self, page: u64) -> (u64, u64) {
        let first = page / FAULT_AROUND_PAGES * FAULT_AROUND_PAGES;
        let (start, end) = self.file;
        (first.max(start), (first + FAULT_AROUND_PAGES).min(end))
    }

    /// Most pages of a window for a reader that wants so many.
    fn most_for(&self, wanted: u64) -> u64 {
        match self.kernel {
            Kernel::Linux3 => self.most,
            Kernel::Linux6 => self.most.max(wanted.min(MOST_IO_PAGES)),
        }
    }

    /// A read of `wanted` pages of which the first is not in memory. `history` tells how many
    /// pages before it are (asked only if it matters).
    pub fn read_missed(&mut self, page: u64, wanted: u64, history: impl Fn(u64) -> u64) -> Window {
        if self.most == 0 {
            return Window::single(page);
        }
        let most = self.most_for(wanted);
        if page == self.file.0 || wanted > most || self.follows_previous(page) {
            return self.initial(page, wanted, most);
        }
        let old = self.kernel == Kernel::Linux3;
        if old && self.follows_window(page) {
            return self.next_window(page, most);
        }
        let before = history(most);
        if before > wanted {
            self.start = page;
            self.size = if old {
                initial_size(before + wanted, most)
            } else {
                // Cached from its beginning: a strong sign that the file is read whole.
                let whole = page - self.file.0 == before;
                (before * (1 + u64::from(whole)) + wanted).min(most)
            };
            self.asynchronous = 1;
            self.order = 0;
            return self.window();
        }
        Window::plain(page, (page + wanted).min(self.file.1))
    }

    /// A marked page was touched; `hole` is the first absent page behind it. `inside`: where in its large folio the next
    /// page is; zero: it is in another one.
    ///
    /// **Source** of pages that are left out behind a large folio: lib/xarray.c and mm/filemap.c, `page_cache_next_miss` begins
    /// inside the folio, where the array's state stands on its first page, and counts from there. Our own kernel (6.18) did so:
    /// behind pages 10 and 11, in one folio, it read from 13 on; touched in the third of four pages from 13,300 on, and with
    /// pages up to 13,311 in memory, it read from 13,315 on.
    pub fn mark_touched(
        &mut self,
        page: u64,
        wanted: u64,
        hole: u64,
        inside: u64,
    ) -> Option<Window> {
        if self.most == 0 {
            return None;
        }
        let most = self.most_for(wanted);
        if self.follows_window(page) {
            return Some(self.next_window(page, most));
        }
        let hole = hole + inside;
        if hole - page > most {
            return None;
        }
        self.start = hole;
        self.size = next_size(hole - page + wanted, most);
        self.align(most);
        self.asynchronous = self.size;
        Some(self.window())
    }

    /// Notes the last page of a read, and whether all of it was read.
    pub fn read_ended(&mut self, page: u64, whole: bool) {
        let old = self.kernel == Kernel::Linux3;
        self.previous = Some(page + u64::from(whole && !old));
    }

    /// Most pages of a large folio, as a power of two: no folio is larger than its window.
    pub fn most_order(&self) -> u32 {
        self.most_for(MOST_IO_PAGES).max(1).ilog2()
    }

    /// First page of the file.
    pub fn first(&self) -> u64 {
        self.file.0
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
        let end = self.start + self.size;
        let old = self.kernel == Kernel::Linux3;
        self.size > 0 && (page == end - self.asynchronous || old && page == end)
    }

    fn initial(&mut self, page: u64, wanted: u64, most: u64) -> Window {
        self.order = 0;
        self.start = page;
        self.size = initial_size(wanted, most);
        self.asynchronous = match self.kernel {
            _ if self.size > wanted => self.size - wanted,
            Kernel::Linux3 => self.size,
            Kernel::Linux6 => self.size / 2,
        };
        self.stretch(page, most);
        self.window()
    }

    fn next_window(&mut self, page: u64, most: u64) -> Window {
        self.start += self.size;
        self.size = match self.kernel {
            Kernel::Linux3 => next_size(self.size, most),
            Kernel::Linux6 => next_size(self.size, most).max(self.size),
        };
        self.align(most);
        self.asynchronous = self.size;
        self.stretch(page, most);
        self.window()
    }

    /// Ends a window that follows another one where a large piece ends.
    fn align(&mut self, most: u64) {
        if self.kernel == Kernel::Linux3 {
            return;
        }
        self.order += 2;
        // Pages of the file are counted from its beginning.
        let start = self.start - self.file.0;
        let end = start + self.size;
        let aligned = end & (u64::MAX << self.order.min(most.trailing_zeros()));
        if aligned > start {
            self.size = aligned - start;
        }
        // No piece is larger than its window.
        self.order = self.order.min(self.size.ilog2());
    }

    /// A window that would be all ahead of the reader, and begins where he stands, gets the next one
    /// on top.
    fn stretch(&mut self, page: u64, most: u64) {
        let old = self.kernel == Kernel::Linux3;
        if old && page == self.start && self.size == self.asynchronous {
            self.asynchronous = next_size(self.size, most);
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
            mark_order: self.order_at(mark, end),
            order: self.order,
            origin: self.file.0,
        }
    }

    /// How large a piece begins with a page of a window up to `end`, as a power of two.
    fn order_at(&self, page: u64, end: u64) -> u32 {
        piece_order(self.order, page - self.file.0, end - self.file.0)
    }
}

/// How large a piece begins with a page of a file in a window up to `end`. **Source:** `page_cache_ra_order` of
/// mm/readahead.c: pieces of the window's order, smaller ones where a page or the end lies in the middle of one.
#[inline]
fn piece_order(most: u32, page: u64, end: u64) -> u32 {
    if most == 0 || page >= end {
        return 0;
    }
    most.min(page.trailing_zeros()).min((end - page).ilog2())
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
        let mut ahead = ReadAhead::new(Kernel::Linux3, 0, END, 16, 1);
        let window = ahead.fault_missed(100);
        assert_eq!(
            (window.start, window.end, window.mark),
            (92, 108, Some(104))
        );
        let first = ReadAhead::new(Kernel::Linux3, 0, END, 16, 1).fault_missed(3);
        assert_eq!((first.start, first.end), (0, 16));
        let last = ReadAhead::new(Kernel::Linux3, 0, END, 16, 1).fault_missed(END - 1);
        assert_eq!((last.start, last.end, last.mark), (END - 9, END, None));
    }

    #[test]
    fn sixteen_kib_put_the_mark_on_the_next_page() {
        let window = ReadAhead::new(Kernel::Linux3, 0, END, 4, 1).fault_missed(100);
        assert_eq!(
            (window.start, window.end, window.mark),
            (98, 102, Some(101))
        );
    }

    #[test]
    fn eight_kib_do_not_reach_the_next_page() {
        let window = ReadAhead::new(Kernel::Linux3, 0, END, 2, 1).fault_missed(100);
        assert_eq!((window.start, window.end, window.mark), (99, 101, None));
    }

    #[test]
    fn lots_of_misses_end_the_read_around_and_hits_bring_it_back() {
        let mut ahead = ReadAhead::new(Kernel::Linux3, 0, END, 16, 1);
        for _ in 0..100 {
            assert_eq!(ahead.fault_missed(500).end, 508);
        }
        assert_eq!(ahead.fault_missed(500), Window::single(500));
        ahead.fault_hit(false);
        ahead.fault_hit(false);
        assert_eq!(ahead.fault_missed(500).end, 508);
    }

    #[test]
    fn a_touched_mark_reads_on_behind_the_hole() {
        let mut ahead = ReadAhead::new(Kernel::Linux3, 0, END, 4, 1);
        ahead.fault_missed(100);
        ahead.fault_missed(9_000);
        let window = ahead.mark_touched(101, 4, 102, 0).expect("there is room");
        assert_eq!(
            (window.start, window.end, window.mark),
            (102, 106, Some(102))
        );
    }

    #[test]
    fn reads_in_order_double_the_window() {
        let mut ahead = ReadAhead::new(Kernel::Linux3, 0, END, 32, 1);
        let sizes = |window: Window| window.end - window.start;
        let first = ahead.read_missed(0, 1, |_| 0);
        assert_eq!((sizes(first), first.mark), (4, Some(1)));
        let second = ahead.mark_touched(1, 1, 4, 0).expect("reads on");
        assert_eq!((second.start, sizes(second), second.mark), (4, 8, Some(4)));
        let third = ahead.mark_touched(4, 1, 12, 0).expect("reads on");
        assert_eq!((third.start, sizes(third)), (12, 16));
    }

    #[test]
    fn a_single_random_read_reads_what_it_wants() {
        let mut ahead = ReadAhead::new(Kernel::Linux3, 0, END, 32, 1);
        let window = ahead.read_missed(777, 4, |_| 0);
        assert_eq!((window.start, window.end, window.mark), (777, 781, None));
    }

    #[test]
    fn a_page_is_left_out_behind_a_large_folio_that_another_reader_has_marked() {
        // Three readers took turns with pages 0 and 1, 2 and 3, ... of a file; this is what our kernel read.
        let readers = || ReadAhead::new(Kernel::Linux6, 0, END, 16, 1);
        let (mut second, mut third) = (readers(), readers());
        let window = second.mark_touched(9, 1, 10, 0).expect("reads on");
        assert_eq!((window.start, window.end, window.mark_order), (10, 12, 1));
        let window = third.mark_touched(10, 2, 12, 1).expect("reads on");
        assert_eq!((window.start, window.end, window.mark_order), (13, 20, 0));
    }

    #[test]
    fn pages_are_left_out_by_where_in_its_folio_a_reader_stands() {
        // Of our own kernel: pages 13,300 to 13,303 were one marked folio, and 13,302 was touched.
        let mut ahead = ReadAhead::new(Kernel::Linux6, 0, END, 16, 1);
        let window = ahead.mark_touched(13_302, 16, 13_312, 1).expect("reads on");
        assert_eq!(window.start, 13_313);
        let window = ahead.mark_touched(13_302, 16, 13_312, 3).expect("reads on");
        assert_eq!((window.start, window.end), (13_315, 13_328));
    }

    #[test]
    fn a_read_of_whole_pages_that_leaves_one_out_goes_on_in_order_today() {
        let window = |kernel, whole| {
            let mut ahead = ReadAhead::new(kernel, 0, END, 16, 1);
            ahead.read_missed(10, 2, |_| 0);
            ahead.read_ended(11, whole);
            let window = ahead.read_missed(13, 2, |_| 0);
            window.end - window.start
        };
        // The kernel of our own machine (6.18) read 2 and 4 pages.
        assert_eq!(window(Kernel::Linux6, true), 4);
        assert_eq!(window(Kernel::Linux6, false), 2);
        assert_eq!(window(Kernel::Linux3, true), 2);
    }

    #[test]
    fn a_piece_begins_where_a_window_of_large_folios_has_one() {
        let mut ahead = ReadAhead::new(Kernel::Linux6, 0, END, 16, 1);
        ahead.fault_missed(15_157);
        // The window goes from 15,165 to before 15,180, in pieces of 1, 2, 4, 4 and 4 pages.
        let window = ahead.mark_touched(15_161, 16, 15_165, 0).expect("reads on");
        assert_eq!((window.start, window.end), (15_165, 15_180));
        let pieces = [15_165, 15_166, 15_167, 15_168, 15_171, 15_179];
        let firsts = [15_165, 15_166, 15_166, 15_168, 15_168, 15_176];
        assert_eq!(pieces.map(|page| window.piece_of(page)), firsts);
        // Reading around a fault has single pages.
        assert_eq!(ahead.fault_missed(500).piece_of(505), 505);
    }

    #[test]
    fn windows_of_today_end_where_a_large_folio_does() {
        let mut ahead = ReadAhead::new(Kernel::Linux6, 0, END, 4, 1);
        assert_eq!(ahead.fault_missed(101).mark, Some(102));
        let window = ahead.mark_touched(102, 4, 103, 0).expect("reads on");
        // Four pages from 103 on would end at 107.
        assert_eq!((window.start, window.end), (103, 104));
        let next = ahead.mark_touched(103, 4, 104, 0).expect("reads on");
        assert_eq!((next.start, next.end), (104, 106));
    }

    #[test]
    fn a_read_of_today_may_want_more_than_is_read_ahead() {
        let mut ahead = ReadAhead::new(Kernel::Linux6, 0, END, 1, 1);
        let window = ahead.read_missed(500, 9, |_| 0);
        assert_eq!((window.start, window.end, window.mark), (500, 509, None));
        let old = ReadAhead::new(Kernel::Linux3, 0, END, 1, 1).read_missed(500, 9, |_| 0);
        assert_eq!(old.end - old.start, 2);
    }

    #[test]
    fn pages_that_a_fault_maps_count_as_hits() {
        let mut ahead = ReadAhead::new(Kernel::Linux6, 0, END, 16, 1);
        for _ in 0..1000 {
            assert_eq!(ahead.fault_missed(500).end, 508);
            ahead.mapped(1);
        }
        assert_eq!(ahead.around(505), (496, 512));
    }
}
