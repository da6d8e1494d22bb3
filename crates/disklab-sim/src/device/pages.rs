//! What a job of fio has in the page cache: pages that are to be written, and what was read ahead.

use std::collections::BTreeSet;

/// Of the page cache of x86-64 and of most arm64 kernels.
pub const PAGE_BYTES: u64 = 4096;

/// The largest write that the kernel makes of pages that follow each other. **Source:** `BIO_MAX_VECS` is 256 pages.
const MOST_PAGES: u64 = 256;

/// Dirty bytes of a job from which on its writes wait for the disk: the page cache is taken to be as full of them as
/// it gets (`dirty_ratio`), as in every test that is long enough. **Divergence:** a short test, or one of less than a
/// tenth of the memory, writes at the speed of memory.
pub const MOST_DIRTY_BYTES: u64 = 64 << 20;

/// Pages of one job's file.
#[derive(Debug, Default)]
pub struct Pages {
    dirty: BTreeSet<u64>,
    /// Bytes of dirty pages that are being written.
    pub writing_bytes: u64,
    /// First byte that was not read ahead, in order; what lies before it has been asked for.
    asked_to: u64,
    /// Ends of what is read ahead and has not come.
    coming: BTreeSet<u64>,
}

impl Pages {
    /// Writes bytes into the cache.
    pub fn write(&mut self, offset: u64, len: u64) {
        for page in offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES) {
            self.dirty.insert(page);
        }
    }

    /// Bytes that are not on the disk.
    pub fn unwritten_bytes(&self) -> u64 {
        self.dirty.len() as u64 * PAGE_BYTES + self.writing_bytes
    }

    /// Dirty pages that nobody writes yet.
    pub fn waiting(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Takes the dirty pages out as the writes that they become: first byte and length, pages in a row together.
    pub fn take_writes(&mut self) -> Vec<(u64, u32)> {
        let mut writes: Vec<(u64, u64)> = Vec::new();
        for page in std::mem::take(&mut self.dirty) {
            match writes.last_mut() {
                Some((first, count)) if *first + *count == page && *count < MOST_PAGES => {
                    *count += 1
                }
                _ => writes.push((page, 1)),
            }
        }
        let bytes = |(first, count): (u64, u64)| (first * PAGE_BYTES, (count * PAGE_BYTES) as u32);
        let writes: Vec<(u64, u32)> = writes.into_iter().map(bytes).collect();
        self.writing_bytes += writes.iter().map(|&(_, len)| u64::from(len)).sum::<u64>();
        writes
    }

    /// What a reader in order who reads up to `end` makes the kernel read: one window beyond what he needs.
    pub fn read_ahead(&mut self, end: u64, window: u64, file: u64) -> Vec<(u64, u32)> {
        let mut reads = Vec::new();
        while self.asked_to < (end + window).min(file) {
            let len = window.min(file - self.asked_to);
            reads.push((self.asked_to, len as u32));
            self.asked_to += len;
            self.coming.insert(self.asked_to);
        }
        reads
    }

    /// A window has come.
    pub fn came(&mut self, end: u64) {
        self.coming.remove(&end);
    }

    /// Whether everything before `end` is there.
    pub fn has(&self, end: u64, window: u64) -> bool {
        self.coming
            .first()
            .is_none_or(|&first| first - first.min(window) >= end)
    }

    /// The reader starts over, with nothing of the file in memory.
    pub fn rewind(&mut self) {
        self.asked_to = 0;
        self.coming.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_a_row_are_written_together_and_a_page_is_written_once() {
        let mut pages = Pages::default();
        pages.write(0, 2300);
        pages.write(2300, 2300);
        pages.write(1 << 20, 512);
        assert_eq!(pages.unwritten_bytes(), 3 * PAGE_BYTES);
        assert_eq!(pages.take_writes(), [(0, 8192), (1 << 20, 4096)]);
        assert_eq!(
            pages.unwritten_bytes(),
            3 * PAGE_BYTES,
            "they are being written"
        );
        pages.write(0, 2 << 20);
        assert_eq!(pages.take_writes(), [(0, 1 << 20), (1 << 20, 1 << 20)]);
    }

    #[test]
    fn a_reader_in_order_is_one_window_behind_the_kernel() {
        let mut pages = Pages::default();
        assert_eq!(
            pages.read_ahead(4096, 131_072, 1 << 20),
            [(0, 131_072), (131_072, 131_072)]
        );
        assert!(!pages.has(4096, 131_072));
        pages.came(131_072);
        assert!(pages.has(131_072, 131_072));
        assert!(!pages.has(131_073, 131_072));
        assert!(pages.read_ahead(131_072, 131_072, 1 << 20).is_empty());
    }
}
