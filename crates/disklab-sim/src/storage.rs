//! The storage of one node: page cache and read-ahead above, volumes of the disk model beneath.

use std::collections::{HashMap, VecDeque};

use disklab_disk::profile::HostProfile;
use disklab_disk::{CacheContents, Fault, Host, Io, Op, Refusal, VolumeCounters, VolumeId};
use disklab_units::{Bytes, Instant};

use crate::disks::Disks;
use crate::engine::Slab;
use crate::filelayout::{FileLayout, PAGE_BYTES, Pages, spread};
use crate::job::Kernel;
use crate::job::faults::{Event, What};
use crate::pagecache::{PageCache, Rule};
use crate::readahead::{ReadAhead, Window};

/// `slow` makes I/Os take ten times as long where an event does not say it, as a rehearsal's does.
const SLOW_PERMILLE: u32 = 10_000;

/// Nobody: the end of a list of waiting requests.
pub const NOBODY: u32 = u32::MAX;

/// Largest I/O that the file system sends down. **Source:** a bio of Linux 3.10 to 5.0 carries at
/// most 256 pages (`BIO_MAX_PAGES`).
const MOST_BIO_PAGES: u64 = 256;

/// Why an I/O is under way.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// It reads pages into the page cache; requests wait for it, the first one named.
    Pages {
        /// First page.
        from: u64,
        /// Page after the last.
        to: u64,
        /// First of the waiting requests; each knows the next.
        waiter: u32,
        /// Where the node's list of ranges on their way has it.
        place: u32,
    },
    /// It belongs to a background stream of the node.
    Stream(u8),
    /// It syncs the log of this tablet.
    Log(u32),
    /// It reads or writes this piece of a rebuild.
    Piece(u32),
}

/// An I/O under way.
#[derive(Clone, Copy, Debug)]
pub struct PendingIo {
    /// Whose.
    pub node: u16,
    /// Why.
    pub purpose: Purpose,
    /// When the disk model had let it pass all limits; zero: not yet.
    pub passed: u64,
}

impl PendingIo {
    /// One that waits for the disk model.
    pub fn new(node: u16, purpose: Purpose) -> PendingIo {
        PendingIo {
            node,
            purpose,
            passed: 0,
        }
    }
}

/// I/Os under way, on all machines, and the machines whose disks may have decided something.
#[derive(Clone, Debug, Default)]
pub struct PendingIos {
    all: Slab<PendingIo>,
    noted: VecDeque<u16>,
}

impl PendingIos {
    /// An I/O that is submitted in the same event; returns its number.
    #[inline]
    pub fn add(&mut self, io: PendingIo) -> u32 {
        self.note(io.node);
        self.all.add(io)
    }

    /// The disks of a machine may have decided something.
    #[inline]
    pub fn note(&mut self, machine: u16) {
        if self.noted.back() != Some(&machine) {
            self.noted.push_back(machine);
        }
    }

    /// Takes the next machine whose disks may have decided something.
    #[inline]
    pub fn next_noted(&mut self) -> Option<u16> {
        self.noted.pop_front()
    }

    /// An I/O has ended; its number is used again.
    #[inline]
    pub fn end(&mut self, number: u32) -> PendingIo {
        self.all.release(number);
        self.all[number]
    }
}

impl std::ops::Index<u32> for PendingIos {
    type Output = PendingIo;
    #[inline]
    fn index(&self, number: u32) -> &PendingIo {
        &self.all[number]
    }
}

impl std::ops::IndexMut<u32> for PendingIos {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut PendingIo {
        &mut self.all[number]
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// By page faults on a mapping.
    Mapped,
    /// By pread.
    Buffered,
}

/// What became of a touched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// It is there.
    Ready,
    /// It is on its way with this I/O.
    Awaits(u32),
}

/// What the page cache did.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageCounters {
    /// Pages touched that were there.
    pub hits: u64,
    /// Pages touched that had to be read, or were on their way.
    pub misses: u64,
    /// I/Os sent to read pages.
    pub read_ios: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
}

/// A file that is open: reading ahead has its state here, shared by all who read through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File(u32);

#[expect(
    non_upper_case_globals,
    reason = "they are the two files that every table has"
)]
impl File {
    /// The rows.
    pub const Data: File = File(0);
    /// The index.
    pub const Index: File = File(1);

    /// Whether it is an index, of the files that a table has.
    #[inline]
    pub fn is_index(self) -> bool {
        self.0 % 2 == 1
    }

    /// The two files of a part of a table.
    #[inline]
    pub fn of_part(part: usize) -> (File, File) {
        (File(2 * part as u32), File(2 * part as u32 + 1))
    }
}

/// Pages on their way.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: u64,
    to: u64,
    io: u32,
}

/// Disks and caches of one node.
#[derive(Clone)]
pub struct Storage {
    number: u16,
    /// The disk model in virtual time.
    pub disks: Disks,
    /// The volume with the table.
    pub data: VolumeId,
    layout: FileLayout,
    /// Page cache of the table.
    cache: PageCache,
    /// When its lists are counted next.
    counted_next: u64,
    /// Files that are open, by number.
    files: Vec<(ReadAhead, Reading)>,
    rules: ReadingRules,
    /// Marked large folios that are or were in memory: first page, and pages as a power of two.
    large_marks: HashMap<u64, u32>,
    chunk_pages: u64,
    /// Ranges on their way, for requests that touch them meanwhile.
    on_the_way: Vec<Way>,
    counters: PageCounters,
}

/// How a node reads its table.
#[derive(Clone, Copy, Debug)]
pub struct ReadingRules {
    /// Of the data file.
    pub data: Reading,
    /// Of the index file.
    pub index: Reading,
    /// `read_ahead_kb` in pages.
    pub read_ahead_pages: u64,
    /// Whose rules of reading ahead.
    pub kernel: Kernel,
    /// Whether the page cache has one list of pages, and not two.
    pub one_list: bool,
    /// How often the kernel counts its lists, in the time of its reads.
    pub counted_every: u64,
    /// Memory for the page cache, in pages.
    pub cache_pages: u64,
    /// By how much the system is smaller than the real one.
    pub scale: u64,
    /// Whether an I/O that crosses chunks of the stripe is cut there.
    pub cuts_at_chunks: bool,
}

impl ReadingRules {
    fn lists(&self) -> Rule {
        match self.kernel {
            _ if self.one_list => Rule::OneList,
            Kernel::Linux3 => Rule::Linux3,
            Kernel::Linux6 => Rule::Linux6,
        }
    }
}

impl Storage {
    /// The storage of node `number`. Refuses what the disk model refuses.
    pub fn new(
        number: u16,
        profile: HostProfile,
        data: &str,
        layout: FileLayout,
        rules: ReadingRules,
    ) -> Result<Storage, Refusal> {
        let chunk = profile
            .volumes
            .iter()
            .find(|volume| volume.name == data)
            .and_then(|volume| volume.chunk_bytes);
        let disks = Disks::new(profile)?;
        let data = disks
            .host
            .volume_named(data)
            .expect("the job was checked: the volume exists");
        let file = |first, end, reading, scale| {
            let most = rules.read_ahead_pages;
            (
                ReadAhead::new(rules.kernel, first, end, most, scale),
                reading,
            )
        };
        let end = layout.all_pages();
        let parts = layout.parts();
        let mut files = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let next = parts.get(number + 1);
            let (data, index) = match next {
                Some(next) => (next.data, next.index),
                None => (layout.data_pages(), end),
            };
            files.push(file(part.data, data, rules.data, 1));
            files.push(file(part.index, index, rules.index, rules.scale));
        }
        Ok(Storage {
            number,
            disks,
            data,
            layout,
            cache: PageCache::new(end, rules.cache_pages, rules.lists()),
            counted_next: rules.counted_every / 2,
            files,
            rules,
            large_marks: HashMap::new(),
            chunk_pages: match chunk {
                Some(bytes) if rules.cuts_at_chunks => u64::from(bytes) / PAGE_BYTES,
                _ => u64::MAX,
            },
            on_the_way: Vec::new(),
            counters: PageCounters::default(),
        })
    }

    /// Opens the pages from `first` to before `end` of the data file as a file that nobody else reads through.
    pub fn open(&mut self, first: u64, end: u64) -> File {
        let (rules, number) = (&self.rules, self.files.len() as u32);
        let ahead = ReadAhead::new(rules.kernel, first, end, rules.read_ahead_pages, 1);
        self.files.push((ahead, rules.data));
        File(number)
    }

    /// The number of its node.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The disk model.
    pub fn host(&self) -> &Host {
        &self.disks.host
    }

    /// A volume of a checked job by its name, and its size.
    pub fn volume_named(&self, name: &str) -> (VolumeId, u64) {
        let volume = self.host().volume_named(name);
        let volume = volume.expect("the job was checked: the volume exists");
        let size = self.host().volume(volume).map_or(0, |v| v.size_bytes);
        (volume, size)
    }

    /// Counters of all volumes at `now`, in order of attachment.
    pub fn volumes(&self, now: u64) -> Vec<VolumeCounters> {
        let (host, at) = (self.host(), Instant::from_nanos(now));
        let volumes = host.volumes();
        volumes.map(|(id, _)| host.counters(at, id)).collect()
    }

    /// The volume with the table.
    pub fn data_volume(&self) -> VolumeId {
        self.data
    }

    /// The table's files.
    pub fn layout(&self) -> &FileLayout {
        &self.layout
    }

    /// What the page cache did.
    pub fn counters(&self) -> PageCounters {
        self.counters
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.counters = PageCounters::default();
    }

    /// Fills the host cache with the table, the part written last when not all of it fits.
    pub fn warm_host_cache(&mut self, capacity_bytes: u64) {
        self.warm_host_cache_up_to(self.layout.all_pages(), capacity_bytes);
    }

    /// The same where only the first `pages` have been written: behind them is room to grow.
    pub fn warm_host_cache_up_to(&mut self, pages: u64, capacity_bytes: u64) {
        let end = pages * PAGE_BYTES;
        let start = end.saturating_sub(capacity_bytes) / PAGE_BYTES * PAGE_BYTES;
        let bytes = Bytes::new(end - start);
        self.disks.host.warm(self.data, Bytes::new(start), bytes);
    }

    /// Fills the page cache with the table's pages, those of the index first.
    pub fn warm_page_cache(&mut self, pages: u64, index_only: bool) {
        let (data, all) = (self.layout.data_pages(), self.layout.all_pages());
        self.cache.insert(data, all);
        if !index_only {
            let most = pages.saturating_sub(all - data).min(data);
            self.cache.insert(0, most);
        }
    }

    /// Pages that the page cache holds at most.
    pub fn page_cache_pages(&self) -> u64 {
        self.cache.capacity()
    }

    /// Gives the node another number.
    pub fn renumber(&mut self, number: u16) {
        self.number = number;
    }

    /// Fills the page cache with pages from all over the first `pages`, as reading them at random leaves it.
    pub fn fill_page_cache(&mut self, pages: u64) {
        /// Pages of a piece: those of the largest page of a database.
        const PIECE: u64 = 2;
        for piece in spread(self.cache.capacity() / PIECE, pages / PIECE, 0) {
            self.cache.insert(piece * PIECE, (piece + 1) * PIECE);
        }
    }

    /// Pages are written into the page cache, whether or not they were there.
    pub fn written(&mut self, from: u64, to: u64) {
        let mut at = from;
        while let Some((first, last)) = self.cache.absent_run(at, to) {
            self.cache.insert(first, last);
            at = last;
        }
        self.cache.access(from, to);
    }

    /// The page cache as it is left, what was on its way included.
    pub fn leave_page_cache(&mut self) -> PageCache {
        for way in std::mem::take(&mut self.on_the_way) {
            self.cache.arrive(way.from, way.to);
        }
        let empty = self.cache.emptied(0);
        std::mem::replace(&mut self.cache, empty)
    }

    /// Takes the page cache of the same node over, as a run before this one left it.
    pub fn take_page_cache(&mut self, left: PageCache) {
        if left.capacity() == self.cache.capacity() {
            self.cache = left;
            // Between two runs there is time to count.
            self.cache.tell();
        }
    }

    /// Empties the page cache, unless pages are on their way; whether it is empty.
    pub fn drop_page_cache(&mut self) -> bool {
        let is_quiet = self.on_the_way.is_empty();
        if is_quiet {
            self.cache = self.cache.emptied(self.layout.all_pages());
        }
        is_quiet
    }

    /// Empties the host caches of all volumes.
    pub fn drop_host_cache(&mut self) {
        let host = &mut self.disks.host;
        for volume in host.volumes().map(|(id, _)| id).collect::<Vec<_>>() {
            host.drop_cache(volume);
        }
    }

    /// Breaks the volume with the table, or another one, or mends it, as an event of a timetable does.
    pub fn break_data(&mut self, now: u64, event: &Event, ios: &mut PendingIos) {
        ios.note(self.number);
        let fault = match event.what {
            What::Slow => Fault::Slow {
                permille: event.slow_permille.unwrap_or(SLOW_PERMILLE),
                disk: None,
            },
            What::Stall => Fault::Stall { for_ns: None },
            What::Credits => return self.disks.host.set_credits(Instant::from_nanos(now), 0),
            _ => Fault::Recover,
        };
        self.disks
            .inject(now, event.volume.map_or(self.data, VolumeId), &fault);
    }

    /// The runs of so many pages from one on that the page cache does not have.
    pub fn absent_runs(&self, from: u64, pages: u64) -> Vec<(u64, u64)> {
        let (mut at, end) = (from, (from + pages).min(self.layout.all_pages()));
        let mut found = Vec::new();
        while let Some((first, last)) = self.cache.absent_run(at, end) {
            found.push((first, last));
            at = last;
        }
        found
    }

    /// Takes the host cache of the same node over.
    pub fn take_host_cache(&mut self, left: CacheContents) {
        self.disks.host.put_cache(left);
    }

    /// The host cache as it is left; None: there is none.
    pub fn leave_host_cache(&mut self) -> Option<CacheContents> {
        self.disks.host.take_cache()
    }

    /// Has the processor fetch what page cache and host cache know of a row that will be read soon.
    #[inline]
    pub fn announce(&self, row: u64) {
        let data = self.layout.data_of(row).first;
        self.cache.announce(self.layout.index_of(row).first);
        // What is read around it may begin in the group before, or end in the next one.
        let around = self.files[File::Data.0 as usize].0.most() / 2;
        self.cache.announce(data.saturating_sub(around));
        self.cache
            .announce((data + around).min(self.layout.data_pages()));
        self.disks.host.announce(&Io {
            tag: 0,
            volume: self.data,
            op: Op::Read,
            offset: Bytes::new(data * PAGE_BYTES),
            len: PAGE_BYTES as u32,
        });
    }

    /// A request reads a page of `pages`; more of them will follow in order.
    #[inline]
    pub fn touch(
        &mut self,
        now: u64,
        file: File,
        page: u64,
        pages: Pages,
        ios: &mut PendingIos,
    ) -> Touched {
        let known = self.cache.known(page);
        if known.is_mapped() {
            // No fault: only the accessed bit of the page table tells.
            self.counters.hits += 1;
            self.cache.touch(page);
            return Touched::Ready;
        }
        let (ahead, reading) = &mut self.files[file.0 as usize];
        let mapped = *reading == Reading::Mapped;
        if mapped && ahead.maps_around() && map_around(ahead, &mut self.cache, page) {
            self.counters.hits += 1;
            self.cache.touch(page);
            return Touched::Ready;
        }
        if known.is_present() {
            let locked = known.is_locked();
            return self.touch_present(now, file, page, pages, (mapped, locked), ios);
        }
        self.counters.misses += 1;
        let mut window = if mapped {
            ahead.fault_missed(page)
        } else {
            let cache = &self.cache;
            let wanted = pages.last - page + 1;
            ahead.read_missed(page, wanted, |most| cache.history(page, most))
        };
        if !(window.start..window.end).contains(&page) {
            // It was evicted between the window that it marked and the next one.
            window = Window::plain(page, page + 1);
        }
        let io = self.read(now, &window, page, ios);
        Touched::Awaits(io.expect("the page is absent and inside its window"))
    }

    /// A request reads pages that come and go together, all at once; whether they are there. After
    /// the wait it asks again: a stripe may have cut the read in two.
    #[inline]
    pub fn touch_all(&mut self, now: u64, pages: Pages, ios: &mut PendingIos) -> Touched {
        let (first, last) = (pages.first, pages.last);
        if !self.cache.is_present(first) {
            self.counters.misses += 1;
            let window = Window::plain(first, last + 1);
            let io = self.read(now, &window, first, ios);
            return Touched::Awaits(io.expect("the page is absent and inside its window"));
        }
        for page in [first, last] {
            if self.cache.known(page).is_locked() {
                return Touched::Awaits(self.bringer(page));
            }
        }
        self.counters.hits += 1;
        self.cache.access(first, last + 1);
        Touched::Ready
    }

    fn touch_present(
        &mut self,
        now: u64,
        file: File,
        page: u64,
        pages: Pages,
        (mapped, locked): (bool, bool),
        ios: &mut PendingIos,
    ) -> Touched {
        let ahead = &mut self.files[file.0 as usize].0;
        if mapped {
            ahead.fault_hit(locked);
        }
        if let Some(inside) = self.take_mark(file, page) {
            let ahead = &mut self.files[file.0 as usize].0;
            let most = ahead.most();
            let hole = self.cache.next_hole(page + 1, page + 2 + most);
            let wanted = if mapped { most } else { pages.last - page + 1 };
            if let Some(window) = ahead.mark_touched(page, wanted, hole, inside) {
                self.read(now, &window, u64::MAX, ios);
            }
        }
        if locked {
            self.counters.misses += 1;
            return Touched::Awaits(self.bringer(page));
        }
        self.counters.hits += 1;
        if mapped {
            self.map(file, page);
            self.cache.touch(page);
        } else {
            self.cache.access(page, page + 1);
        }
        Touched::Ready
    }

    /// Takes the mark off a page, and off its large folio, which has it as a whole; where in that the next page is, or zero.
    /// None: there was no mark. **Source:** `PG_readahead` is a flag of the folio (include/linux/page-flags.h).
    fn take_mark(&mut self, file: File, page: u64) -> Option<u64> {
        if !self.cache.take_mark(page, page + 1) {
            return None;
        }
        if self.large_marks.is_empty() {
            return Some(0);
        }
        // A large folio has more than one page with the mark.
        let alone =
            !self.cache.is_marked(page + 1) && (page == 0 || !self.cache.is_marked(page - 1));
        if alone {
            return Some(0);
        }
        let origin = self.files[file.0 as usize].0.first();
        for order in 1..=self.files[file.0 as usize].0.most_order() {
            let first = origin + ((page - origin) >> order << order);
            let is_its = self.large_marks.get(&first) == Some(&order);
            if is_its && (first == page || self.cache.take_mark(first, first + 1)) {
                let end = first + (1 << order);
                self.cache.take_mark(first, end);
                self.large_marks.remove(&first);
                return Some(if page + 1 < end { page + 1 - first } else { 0 });
            }
        }
        Some(0)
    }

    /// A fault ends: its page is in memory, and is mapped.
    #[inline]
    fn map(&mut self, file: File, page: u64) {
        let ahead = &mut self.files[file.0 as usize].0;
        if !ahead.maps_around() || !map_around(ahead, &mut self.cache, page) {
            self.cache.map(page);
        }
    }

    /// A page that a request waited for has come, and the request goes on with it.
    #[inline]
    pub fn waited_for(&mut self, file: File, page: u64) {
        if self.files[file.0 as usize].1 == Reading::Mapped {
            self.map(file, page);
        } else {
            self.cache.access(page, page + 1);
        }
    }

    /// Notes the end of a request's reading of a file, in this page; `whole`: with the last byte of it.
    pub fn read_ended(&mut self, file: File, page: u64, whole: bool) {
        if self.files[file.0 as usize].1 == Reading::Buffered {
            self.files[file.0 as usize].0.read_ended(page, whole);
        }
    }

    /// Whether a file is read by calls, and not by page faults.
    #[inline]
    pub fn is_buffered(&self, file: File) -> bool {
        self.files[file.0 as usize].1 == Reading::Buffered
    }

    /// The I/O that brings a locked page.
    fn bringer(&self, page: u64) -> u32 {
        let mut ways = self.on_the_way.iter();
        let way = ways.find(|way| (way.from..way.to).contains(&page));
        way.expect("a locked page is on its way").io
    }

    /// Reads the absent pages of a window; returns the I/O that brings `wanted`.
    fn read(
        &mut self,
        now: u64,
        window: &Window,
        wanted: u64,
        ios: &mut PendingIos,
    ) -> Option<u32> {
        let mut found = None;
        let mut at = window.start;
        while at < window.end
            && let Some((from, to)) = self.cache.absent_run(at, window.end)
        {
            at = to;
            // Up to the first page that is there, a window's pages come in pieces.
            let cut = if from == window.start && to < window.end {
                window.piece_of(to)
            } else {
                to
            };
            if let Some(mark) = window.mark
                && (from..to).contains(&mark)
            {
                let order = if mark < cut { window.mark_order } else { 0 };
                self.cache.mark(mark, mark + (1 << order));
                if order > 0 {
                    self.large_marks.insert(mark, order);
                } else if !self.large_marks.is_empty() {
                    // An empty map would hash the page all the same, which was a fiftieth of a run of random reads.
                    self.large_marks.remove(&mark);
                }
            }
            let mut start = from;
            while start < to {
                let chunk_end = (start / self.chunk_pages + 1).saturating_mul(self.chunk_pages);
                let mut end = to.min(chunk_end).min(start + MOST_BIO_PAGES);
                if start < cut {
                    end = end.min(cut);
                }
                let io = self.send_read(now, start, end, ios);
                if (start..end).contains(&wanted) {
                    found = Some(io);
                }
                start = end;
            }
        }
        found
    }

    fn send_read(&mut self, now: u64, from: u64, to: u64, ios: &mut PendingIos) -> u32 {
        let purpose = Purpose::Pages {
            from,
            to,
            waiter: NOBODY,
            place: self.on_the_way.len() as u32,
        };
        let io = ios.add(PendingIo::new(self.number, purpose));
        if now >= self.counted_next {
            let every = self.rules.counted_every.max(1);
            self.counted_next += (now - self.counted_next) / every * every + every;
            self.cache.tell();
        }
        self.cache.expect(from, to);
        self.on_the_way.push(Way { from, to, io });
        let len = ((to - from) * PAGE_BYTES) as u32;
        self.counters.read_ios += 1;
        self.counters.read_bytes += u64::from(len);
        self.submit(now, self.data, Op::Read, from * PAGE_BYTES, len, io);
        io
    }

    /// Sends an I/O to a volume; its end comes with [`Disks::schedule`].
    pub fn submit(&mut self, now: u64, volume: VolumeId, op: Op, at: u64, len: u32, tag: u32) {
        let io = Io {
            tag: u64::from(tag),
            volume,
            op,
            offset: Bytes::new(at),
            len,
        };
        self.disks.submit(now, io);
    }

    /// Sends an I/O for a purpose to the volume with the table.
    pub fn send(
        &mut self,
        now: u64,
        ios: &mut PendingIos,
        purpose: Purpose,
        (op, at, bytes): (Op, u64, u64),
    ) {
        let io = ios.add(PendingIo::new(self.number, purpose));
        self.submit(now, self.data, op, at, bytes as u32, io);
    }

    /// Forgets the last hit: it was part of something that is counted already.
    #[inline]
    pub fn uncount_hit(&mut self) {
        self.counters.hits -= 1;
    }

    /// The pages of an I/O have come.
    #[inline]
    pub fn arrived(&mut self, purpose: Purpose, ios: &mut PendingIos) {
        let Purpose::Pages {
            from, to, place, ..
        } = purpose
        else {
            return;
        };
        let place_of_last = self.on_the_way.len() as u32 - 1;
        self.on_the_way.swap_remove(place as usize);
        if place != place_of_last
            && let Purpose::Pages { place: moved, .. } =
                &mut ios[self.on_the_way[place as usize].io].purpose
        {
            *moved = place;
        }
        self.cache.arrive(from, to);
    }
}

/// Maps what is in memory around a fault, where the kernel does; whether its page is among it.
#[inline]
fn map_around(ahead: &mut ReadAhead, cache: &mut PageCache, page: u64) -> bool {
    let (from, to) = ahead.around(page);
    let (pages, found) = cache.map_around(page, from, to);
    ahead.mapped(pages);
    found
}
