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

impl Pages {
    /// So many pages, at least one, from one on.
    pub fn from(first: u64, count: u64) -> Pages {
        Pages {
            first,
            last: first + count - 1,
        }
    }

    /// Those of bytes up to `end`, where page zero is page `before` of all.
    pub fn of_bytes(before: u64, start: u64, end: u64) -> Pages {
        Pages {
            first: before + start / PAGE_BYTES,
            last: before + (end - 1) / PAGE_BYTES,
        }
    }
}

/// Where one of the files of a table begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first row.
    pub first_row: u64,
    /// First page of its data.
    pub data: u64,
    /// First page of its index.
    pub index: u64,
}

/// A table on one node's data volume, in one file of data and one of index, or in several, each with its own rows.
///
/// **Divergence:** of rows that are written whole Cassandra reads one file, the newest that has the row; Bloom filters
/// let past 1 % of the others, 10 % with leveled compaction, which is not simulated. A row whose columns were updated
/// one by one lies in several. **Source:** Apache Cassandra,
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
    rows: u64,
    /// In the order of their rows; the first one begins with row 0.
    parts: Arc<[Part]>,
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
        FileLayout { rows, ..self }.divided(&[0])
    }

    /// The same table with index entries of another size.
    pub fn with_index_entries(self, bytes: u64) -> FileLayout {
        let first_rows: Vec<u64> = self.parts.iter().map(|part| part.first_row).collect();
        FileLayout {
            index_entry_bytes: bytes,
            ..self
        }
        .divided(&first_rows)
    }

    /// The same rows in files of their own, which begin with these; the first one is row 0. Data of all files come first.
    pub fn divided(self, first_rows: &[u64]) -> FileLayout {
        debug_assert!(first_rows.first() == Some(&0) && first_rows.is_sorted());
        let ends = first_rows.iter().copied().skip(1).chain([self.rows]);
        let rows_of = || first_rows.iter().copied().zip(ends.clone());
        let mut data = 0;
        let mut parts: Vec<Part> = rows_of()
            .map(|(first_row, end)| {
                let part = Part {
                    first_row,
                    data,
                    index: 0,
                };
                let plain = self.start_of(end) - self.start_of(first_row);
                let stored = match self.chunk {
                    None => plain,
                    Some((plain_chunk, stored_chunk)) => plain.div_ceil(plain_chunk) * stored_chunk,
                };
                data += stored.div_ceil(PAGE_BYTES);
                part
            })
            .collect();
        let mut index = data;
        for (part, (first_row, end)) in parts.iter_mut().zip(rows_of()) {
            part.index = index;
            index += ((end - first_row) * self.index_entry_bytes).div_ceil(PAGE_BYTES);
        }
        FileLayout {
            data_pages: data,
            index_pages: index - data,
            parts: parts.into(),
            ..self
        }
    }

    /// Its files.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Which of its files has a row.
    #[inline]
    pub fn part_of(&self, row: u64) -> usize {
        if self.parts.len() == 1 {
            return 0;
        }
        let behind = self.parts.iter().skip(1);
        behind.take_while(|part| part.first_row <= row).count()
    }

    /// The file that has a row; of a table with one file its pages are known without a look into the list.
    #[inline]
    fn part(&self, row: u64) -> Part {
        if self.parts.len() == 1 {
            return Part {
                first_row: 0,
                data: 0,
                index: self.data_pages,
            };
        }
        self.parts[self.part_of(row)]
    }

    /// The file that has a row, and where the row begins and ends in it.
    #[inline]
    fn bytes_of(&self, first: u64, last: u64) -> (Part, u64, u64) {
        let part = self.part(first);
        let begin = self.start_of(part.first_row);
        let (start, end) = (self.start_of(first), self.start_of(last + 1));
        (part, start - begin, end - begin)
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
            rows: pages,
            parts: Arc::new([Part {
                first_row: 0,
                data: 0,
                index: pages,
            }]),
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
        let (part, start, end) = self.bytes_of(row, row);
        let (start, end) = match self.chunk {
            None => (start, end),
            Some((plain, stored)) => (start / plain * stored, (end - 1) / plain * stored + stored),
        };
        Pages::of_bytes(part.data, start, end)
    }

    /// Pages of the data file that a read of rows that follow each other touches.
    #[inline]
    pub fn data_of_run(&self, first: u64, last: u64) -> Pages {
        let pages = self.data_of(first);
        let last = if last == first {
            pages.last
        } else {
            self.data_of(last).last
        };
        Pages { last, ..pages }
    }

    /// The chunks in which such a read asks for its bytes, the last one included; None: it asks for all of them at once.
    #[inline]
    pub fn chunks_of_run(&self, first: u64, last: u64) -> Option<(u64, u64)> {
        let (plain, _) = self.chunk?;
        let (_, start, end) = self.bytes_of(first, last);
        Some((start / plain, (end - 1) / plain))
    }

    /// Pages of a chunk of the file that has a row, and whether it ends where a page does.
    #[inline]
    pub fn pages_of_chunk(&self, row: u64, chunk: u64) -> (Pages, bool) {
        let (_, stored) = self.chunk.expect("the data file is read by chunks");
        let (start, end) = (chunk * stored, (chunk + 1) * stored);
        let before = self.part(row).data;
        let pages = Pages::of_bytes(before, start, end);
        (pages, end.is_multiple_of(PAGE_BYTES))
    }

    /// Pages of the index file that such a read touches: it goes from entry to entry.
    #[inline]
    pub fn index_of_run(&self, first: u64, last: u64) -> Pages {
        let pages = self.index_of(first);
        let last = if last == first {
            pages.last
        } else {
            self.index_of(last).last
        };
        Pages { last, ..pages }
    }

    /// Plain bytes of the compressed chunks that a read of rows opens; zero: nothing is compressed.
    #[inline]
    pub fn chunk_bytes_of(&self, first: u64, last: u64) -> u64 {
        self.chunk.map_or(0, |(plain, _)| {
            let (_, start, end) = self.bytes_of(first, last);
            ((end - 1) / plain - start / plain + 1) * plain
        })
    }

    /// Pages of the index file that a read of a row touches, from the summary's sample on.
    #[inline]
    pub fn index_of(&self, row: u64) -> Pages {
        let part = self.part(row);
        let row = row - part.first_row;
        let start = row / INDEX_INTERVAL * INDEX_INTERVAL * self.index_entry_bytes;
        let end = (row + 1) * self.index_entry_bytes;
        Pages::of_bytes(part.index, start, end)
    }
}

/// So many of `pages` at even distances, as reading them at random leaves a cache; `shift`, less than `pages`, moves them
/// by its share of a distance.
pub fn spread(wanted: u64, pages: u64, shift: u64) -> impl Iterator<Item = u64> {
    let wanted = wanted.min(pages);
    (1..=wanted).map(move |number| (number * pages - shift).div_ceil(wanted) - 1)
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
            let pages = Pages::of_bytes(0, at, at + bytes);
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
    fn rows_of_several_files_begin_with_pages_of_their_own() {
        let layout = FileLayout::new(1000, 4255, None).with_index_entries(15);
        let divided = layout.clone().divided(&[0, 400, 900]);
        let one = |rows| FileLayout::new(rows, 4255, None).with_index_entries(15);
        let pages: u64 = [400, 500, 100]
            .map(|rows| one(rows).data_pages())
            .iter()
            .sum();
        assert_eq!(divided.data_pages(), pages);
        assert_eq!(divided.data_of(399), layout.data_of(399));
        let (first, alone) = (divided.data_of(400), one(500).data_of(0));
        assert_eq!(first.first, one(400).data_pages());
        assert_eq!(first.last - first.first, alone.last - alone.first);
        assert_eq!(divided.data_of(999).last + 1, divided.data_pages());
        // The summary of each index begins with its first entry.
        let index = divided.index_of(400);
        assert_eq!(index.first, index.last);
        assert_eq!(index.first, divided.parts()[1].index);
        assert_eq!(divided.index_of(999).last + 1, divided.all_pages());
        assert_eq!(
            [0, 399, 400, 899, 900].map(|row| divided.part_of(row)),
            [0, 0, 1, 1, 2]
        );
    }

    #[test]
    fn a_row_in_a_compressed_table_is_a_whole_chunk() {
        let layout = FileLayout::new(1000, 4096, Some((16_384, 8_192)));
        assert_eq!(layout.data_of(0), Pages { first: 0, last: 1 });
        assert_eq!(layout.data_of(5), Pages { first: 2, last: 3 });
        assert_eq!(layout.data_pages(), 500);
        assert_eq!(layout.chunk_bytes_of(5, 5), 16_384);
        assert_eq!(layout.chunks_of_run(3, 4), Some((0, 1)));
        assert_eq!(
            layout.pages_of_chunk(0, 1),
            (Pages { first: 2, last: 3 }, true)
        );
        let unaligned = FileLayout::new(1000, 4096, Some((16_384, 16_400)));
        assert_eq!(
            unaligned.pages_of_chunk(0, 1),
            (Pages { first: 4, last: 8 }, false)
        );
        let crossing = FileLayout::new(1000, 4255, Some((16_384, 16_384)));
        assert_eq!(crossing.chunk_bytes_of(3, 3), 2 * 16_384);
        assert_eq!(FileLayout::new(1000, 4255, None).chunk_bytes_of(3, 3), 0);
    }

    #[test]
    fn pages_at_even_distances_are_those_where_a_share_becomes_whole() {
        for (wanted, pages) in [
            (0, 0),
            (0, 9),
            (1, 9),
            (4, 9),
            (9, 9),
            (12, 9),
            (7, 1000),
            (999, 1000),
        ] {
            for shift in [0, pages / 2] {
                let most = wanted.min(pages);
                let share = |page: u64| (page * most + shift) / pages;
                let each: Vec<u64> = (0..pages)
                    .filter(|&page| share(page + 1) > share(page))
                    .collect();
                assert_eq!(spread(wanted, pages, shift).collect::<Vec<_>>(), each);
            }
        }
    }
}
