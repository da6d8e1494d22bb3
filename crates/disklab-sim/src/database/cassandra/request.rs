//! A request at one replica, and the calls in which it reads.

use crate::client::Kind;
use crate::filelayout::Pages;
use crate::storage::{File, Storage};

use super::way::Way;

/// A request at one replica.
///
/// **Lesson:** it is changed where it lies, and only the fields that are needed are taken out of it. Copies of all of it, page
/// after page, took a fiftieth of the instructions of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub operation: u32,
    pub node: u16,
    pub kind: Kind,
    /// Whether the replica is the coordinator itself.
    pub local: bool,
    /// Whether the answer carries the row, not a digest or an acknowledgement.
    pub carries_row: bool,
    /// When the coordinator sent it.
    pub sent: u64,
    /// CPU work of the replica, in nanoseconds.
    pub cpu_ns: u64,
    pub file: File,
    pub page: u64,
    /// What the call under way reads.
    pub pages: Pages,
    /// The chunk of the data file behind the one that the call under way reads; zero: the file is not read by chunks.
    pub next_chunk: u64,
    pub row: u64,
    /// The last row that it reads.
    pub last_row: u64,
    /// When it began to wait for an I/O.
    pub since: u64,
    pub way: Way,
    /// The next request that waits for the same I/O.
    pub next: u32,
}

impl Request {
    /// Begins to read the index.
    #[inline]
    pub fn read_index(&mut self, storage: &Storage) {
        let layout = storage.layout();
        self.file = File::of_part(layout.part_of(self.row)).1;
        self.pages = layout.index_of_run(self.row, self.last_row);
        self.page = self.pages.first;
    }

    /// Begins to read the data file.
    ///
    /// **Source** of the calls: Cassandra's `BufferManagingRebufferer.Aligned`, `SimpleChunkReader` and
    /// `CompressedChunkReader.Standard` fill a reader's one buffer with the chunk that has the byte it wants; a row that
    /// goes on behind it is a further `pread`. A mapped file has faults instead, whatever its chunks are.
    #[inline]
    pub fn read_data(&mut self, storage: &Storage) {
        let layout = storage.layout();
        let (data, _) = File::of_part(layout.part_of(self.row));
        self.file = data;
        let chunks = layout.chunks_of_run(self.row, self.last_row);
        self.pages = match chunks {
            Some((first, _)) if storage.is_buffered(data) => {
                self.next_chunk = first + 1;
                layout.pages_of_chunk(self.row, first).0
            }
            _ => layout.data_of_run(self.row, self.last_row),
        };
        self.page = self.pages.first;
    }

    /// Ends a call; whether it was the last one, or else begins the next.
    #[inline]
    pub fn is_done(&mut self, storage: &mut Storage) -> bool {
        let next = self.next_chunk;
        let layout = storage.layout();
        let whole = next > 0 && layout.pages_of_chunk(self.row, next - 1).1;
        storage.read_ended(self.file, self.pages.last, whole);
        if self.file.is_index() {
            self.read_data(storage);
            return false;
        }
        if next == 0 {
            return true;
        }
        let layout = storage.layout();
        let chunks = layout.chunks_of_run(self.row, self.last_row);
        if chunks.is_none_or(|(_, last)| next > last) {
            return true;
        }
        self.pages = layout.pages_of_chunk(self.row, next).0;
        self.page = self.pages.first;
        self.next_chunk = next + 1;
        false
    }
}
