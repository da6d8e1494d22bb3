//! Readers of one file through the page cache, read after read: how many I/Os its reads cost.
//!
//! It is what tests hold against the kernel's own page cache; a database's reads go the same way.

use disklab_disk::Refusal;
use disklab_disk::profile::{Distribution, HostProfile, Latency};

use crate::filelayout::{FileLayout, PAGE_BYTES, Pages};
use crate::job::{FileJob, Mechanism};
use crate::storage::{File, PageCounters, PendingIos, Reading, ReadingRules, Storage, Touched};

const VOLUME: &str = "data";

/// Reads a file; returns what its page cache did.
///
/// **Divergence:** whenever the reader waits, everything under way arrives; on a device that is faster
/// or slower, what is read ahead may arrive sooner or later.
pub fn read(job: &FileJob, off: &[Mechanism]) -> Result<PageCounters, Refusal> {
    let pages = job.size_bytes.div_ceil(PAGE_BYTES);
    let reading = if job.mapped {
        Reading::Mapped
    } else {
        Reading::Buffered
    };
    let rules = ReadingRules {
        data: reading,
        index: reading,
        read_ahead_pages: job.read_ahead_bytes / PAGE_BYTES,
        kernel: job.kernel,
        one_list: off.contains(&Mechanism::ActiveList),
        counted_every: job.counted_every,
        cache_pages: job.page_cache_bytes / PAGE_BYTES,
        scale: 1,
        cuts_at_chunks: false,
    };
    let layout = FileLayout::of_pages(pages);
    let mut storage = Storage::new(0, host(job.size_bytes), VOLUME, layout, rules)?;
    let mut ios = PendingIos::default();
    let readers: Vec<File> = (0..job.readers.max(1))
        .map(|_| storage.open(0, pages))
        .collect();
    for (now, &(start, bytes)) in job.reads.iter().enumerate() {
        let file = readers[now % readers.len()];
        let pages = Pages::of_bytes(0, start, start + bytes);
        for page in pages.first..=pages.last {
            if let Touched::Awaits(_) = storage.touch(now as u64, file, page, pages, &mut ios) {
                arrive(&mut storage, &mut ios);
                storage.waited_for(file, page);
            }
        }
        let whole = (start + bytes).is_multiple_of(PAGE_BYTES);
        storage.read_ended(file, pages.last, whole);
    }
    Ok(storage.counters())
}

/// Everything under way arrives.
fn arrive(storage: &mut Storage, ios: &mut PendingIos) {
    for ended in storage.disks.take_decided() {
        let number = ended.tag as u32;
        let io = ios.end(number);
        storage.arrived(io.purpose, ios);
    }
}

/// A disk that answers at once.
fn host(size_bytes: u64) -> HostProfile {
    let at_once = Distribution::constant(1);
    let latency = Latency {
        read: at_once.clone(),
        write: at_once.clone(),
        flush: at_once,
    };
    HostProfile::of_one_disk("file", size_bytes.next_multiple_of(PAGE_BYTES), latency)
}
