//! Where rows lie: the data file and the index file of a node's table, in pages of a volume.

use std::sync::Arc;

use disklab_units::sizes::BINS;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of an index entry: a key of 10 bytes with its length, the position as a variable-length
/// integer, and the size of the promoted index. **Source:** findings of the 2019 study's table, 19
/// bytes a key.
const INDEX_ENTRY_BYTES: u64 = 19;

/// Keys from one sample of the index summary to the next (`min_index_interval`): the index is read
/// from the sample before the key.
const INDEX_INTERVAL: u64 = 128;

/// A range of pages, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// First page.
    pub first: u64,
    /// Last page.
    pub last: u64,
}

/// A table on one node's data volume.
///
/// **Divergence:** one table file a node, as after a major compaction. Of rows that are written whole
/// Cassandra reads one file too, the newest that has the row; Bloom filters let past 1 % of the others, 10 % with
/// leveled compaction. A row whose columns were updated one by one lies in several. **Source:** Apache Cassandra,
/// `SinglePartitionReadCommand.queryMemtableAndSSTablesInTimestampOrder`; `bloom_filter_fp_chance`.
#[derive(Clone, Debug)]
pub struct FileLayout {
    row_bytes: u64,
    /// Where the first rows begin, and where the last of them ends, if rows have several sizes; those behind have the
    /// same sizes again.
    starts: Option<Arc<[u64]>>,
    /// Plain and stored bytes of a compression chunk.
    chunk: Option<(u64, u64)>,
    data_pages: u64,
    index_pages: u64,
    index_entry_bytes: u64,
}

impl FileLayout {
    /// The layout of `rows` rows of `row_bytes` each; at least one.
    pub fn new(rows: u64, row_bytes: u64, chunk: Option<(u64, u64)>) -> FileLayout {
        let rows = rows.max(1);
        let mut layout = FileLayout::of_pages(0);
        layout.row_bytes = row_bytes;
        layout.chunk = chunk;
        layout.filled(rows)
    }

    /// The layout of `rows` rows, of which each [`BINS`] have these sizes, one after the other.
    pub fn of_sizes(rows: u64, sizes: &[u64], chunk: Option<(u64, u64)>) -> FileLayout {
        assert_eq!(sizes.len(), BINS, "a size for each bin");
        let mut at = 0;
        let starts = std::iter::once(0).chain(sizes.iter().map(|bytes| {
            at += bytes;
            at
        }));
        let mut layout = FileLayout::of_pages(0);
        layout.starts = Some(starts.collect());
        layout.chunk = chunk;
        layout.filled(rows.max(1))
    }

    /// The first byte of a row.
    #[inline]
    fn start_of(&self, row: u64) -> u64 {
        match &self.starts {
            None => row * self.row_bytes,
            Some(starts) => {
                let (times, at) = (row / BINS as u64, row as usize % BINS);
                times * starts[BINS] + starts[at]
            }
        }
    }

    /// The same with so many rows, and entries of the usual size.
    fn filled(self, rows: u64) -> FileLayout {
        let plain = self.start_of(rows);
        let stored = match self.chunk {
            None => plain,
            Some((plain_chunk, stored_chunk)) => plain.div_ceil(plain_chunk) * stored_chunk,
        };
        FileLayout {
            data_pages: stored.div_ceil(PAGE_BYTES),
            index_pages: (rows * INDEX_ENTRY_BYTES).div_ceil(PAGE_BYTES),
            index_entry_bytes: INDEX_ENTRY_BYTES,
            ..self
        }
    }

    /// The same table with index entries of another size, of `rows` rows.
    pub fn with_index_entries(self, rows: u64, bytes: u64) -> FileLayout {
        FileLayout {
            index_pages: (rows.max(1) * bytes).div_ceil(PAGE_BYTES),
            index_entry_bytes: bytes,
            ..self
        }
    }

    /// A data file of so many pages, without an index: whoever reads it knows where things lie.
    pub fn of_pages(pages: u64) -> FileLayout {
        FileLayout {
            row_bytes: PAGE_BYTES,
            starts: None,
            chunk: None,
            data_pages: pages,
            index_pages: 0,
            index_entry_bytes: INDEX_ENTRY_BYTES,
        }
    }

    /// Pages of the data file, which starts at page 0.
    pub fn data_pages(&self) -> u64 {
        self.data_pages
    }

    /// Pages of both.
    pub fn all_pages(&self) -> u64 {
        self.data_pages + self.index_pages
    }

    /// Pages of the data file that a read of a row touches.
    #[inline]
    pub fn data_of(&self, row: u64) -> Pages {
        let (start, end) = (self.start_of(row), self.start_of(row + 1));
        let (start, end) = match self.chunk {
            None => (start, end),
            Some((plain, stored)) => (start / plain * stored, (end - 1) / plain * stored + stored),
        };
        Pages {
            first: start / PAGE_BYTES,
            last: (end - 1) / PAGE_BYTES,
        }
    }

    /// Pages of the data file that a read of rows that follow each other touches.
    #[inline]
    pub fn data_of_run(&self, first: u64, last: u64) -> Pages {
        Pages {
            first: self.data_of(first).first,
            last: self.data_of(last).last,
        }
    }

    /// Pages of the index file that such a read touches: it goes from entry to entry.
    #[inline]
    pub fn index_of_run(&self, first: u64, last: u64) -> Pages {
        Pages {
            first: self.index_of(first).first,
            last: self.index_of(last).last,
        }
    }

    /// Plain bytes of the compressed chunks that a read of rows opens; zero: nothing is compressed.
    #[inline]
    pub fn chunk_bytes_of(&self, first: u64, last: u64) -> u64 {
        self.chunk.map_or(0, |(plain, _)| {
            let (start, end) = (self.start_of(first), self.start_of(last + 1));
            ((end - 1) / plain - start / plain + 1) * plain
        })
    }

    /// Pages of the index file that a read of a row touches, from the summary's sample on.
    #[inline]
    pub fn index_of(&self, row: u64) -> Pages {
        let start = row / INDEX_INTERVAL * INDEX_INTERVAL * self.index_entry_bytes;
        let end = (row + 1) * self.index_entry_bytes;
        Pages {
            first: self.data_pages + start / PAGE_BYTES,
            last: self.data_pages + (end - 1) / PAGE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_study_touches_2_04_pages() {
        let layout = FileLayout::new(1_000_000, 4255, None);
        let touched: u64 = (0..1_000_000)
            .map(|row| layout.data_of(row))
            .map(|pages| pages.last - pages.first + 1)
            .sum();
        assert!((2_030_000..2_050_000).contains(&touched), "{touched}");
        assert_eq!(layout.data_of(999_999).last, layout.data_pages() - 1);
        assert_eq!(layout.index_of(0).first, layout.data_pages());
        assert_eq!(layout.index_of(999_999).last, layout.all_pages() - 1);
    }

    #[test]
    fn rows_of_several_sizes_lie_one_after_the_other() {
        let sizes: Vec<u64> = (0..BINS as u64).map(|row| 100 + row % 3 * 4096).collect();
        let layout = FileLayout::of_sizes(10_000, &sizes, None);
        let mut at = 0;
        for row in 0..10_000_u64 {
            let bytes = sizes[row as usize % BINS];
            let pages = Pages {
                first: at / PAGE_BYTES,
                last: (at + bytes - 1) / PAGE_BYTES,
            };
            assert_eq!(layout.data_of(row), pages, "row {row}");
            at += bytes;
        }
        assert_eq!(layout.data_pages(), at.div_ceil(PAGE_BYTES));
        let alike = FileLayout::of_sizes(10_000, &[4255; BINS], Some((16_384, 8_000)));
        let one = FileLayout::new(10_000, 4255, Some((16_384, 8_000)));
        for row in 0..10_000 {
            assert_eq!(alike.data_of(row), one.data_of(row));
            assert_eq!(alike.chunk_bytes_of(row, row), one.chunk_bytes_of(row, row));
        }
    }

    #[test]
    fn a_run_of_rows_is_read_once_from_its_first_page_to_its_last() {
        let layout = FileLayout::new(1_000_000, 1000, None);
        assert_eq!(layout.data_of_run(0, 99), Pages { first: 0, last: 24 });
        let one = layout.index_of(70);
        assert_eq!(layout.index_of_run(70, 70), one);
        assert!(layout.index_of_run(70, 1069).last > one.last);
    }

    #[test]
    fn a_row_in_a_compressed_table_is_a_whole_chunk() {
        let layout = FileLayout::new(1000, 4096, Some((16_384, 8_192)));
        assert_eq!(layout.data_of(0), Pages { first: 0, last: 1 });
        assert_eq!(layout.data_of(5), Pages { first: 2, last: 3 });
        assert_eq!(layout.data_pages(), 500);
        assert_eq!(layout.chunk_bytes_of(5, 5), 16_384);
        let crossing = FileLayout::new(1000, 4255, Some((16_384, 16_384)));
        assert_eq!(crossing.chunk_bytes_of(3, 3), 2 * 16_384);
        assert_eq!(FileLayout::new(1000, 4255, None).chunk_bytes_of(3, 3), 0);
    }
}
