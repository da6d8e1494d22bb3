//! Rows of several sizes in pages: which page a row lies in after a fill, and what is left free there.

use disklab_units::sizes::{BINS, Bins, Size};

use crate::job::RowSize;

/// Bytes of a page. **Source:** PostgreSQL's `BLCKSZ`.
pub const PAGE_BYTES: u64 = 8192;

/// Bytes of a page that rows and their pointers can have. **Source:** bufpage.h: a header of 24 bytes.
pub const ROOM_BYTES: u64 = PAGE_BYTES - 24;

/// Rows after which the pattern begins again, with a page of its own: a loss of half a page in hundreds.
const PERIOD: usize = 16 * BINS;

/// The map of free space knows a page's room to so many bytes. **Source:** freespace.c, `FSM_CAT_STEP`.
const STEP_BYTES: u64 = 32;

/// Where the rows of a period lie.
///
/// A row that does not fit the page where the last one went goes to a page whose room the map of free space knows, or
/// to a new one. **Source:** `RelationGetBufferForTuple` of PostgreSQL's hio.c.
#[derive(Clone, Debug)]
pub struct Packing {
    bins: Bins,
    bytes: Vec<u16>,
    pages: Vec<u32>,
    free: Vec<u16>,
}

impl Packing {
    /// The packing of sizes that are a distribution, none of which is larger than a page.
    pub fn new(sizes: &[RowSize]) -> Packing {
        let as_size = |size: &RowSize| Size {
            column_bytes: size.row_bytes,
            share_ppm: size.share_ppm,
        };
        let listed: Vec<Size> = sizes.iter().map(as_size).collect();
        let bytes = sizes.iter().map(|size| size.row_bytes as u16).collect();
        let mut packing = Packing {
            bins: Bins::new(&listed, 0),
            bytes,
            pages: Vec::with_capacity(PERIOD),
            free: Vec::new(),
        };
        packing.fill();
        packing
    }

    fn fill(&mut self) {
        let least = self.bytes.iter().copied().map(u64::from).min().unwrap_or(1);
        let mut open: Vec<u32> = Vec::new();
        let (mut target, mut next) = (None, 0);
        for row in 0..PERIOD as u64 {
            let bytes = self.bytes_of(row);
            let fits = |free: u16| u64::from(free) / STEP_BYTES >= bytes.div_ceil(STEP_BYTES);
            let page = match target {
                Some(page) if u64::from(self.free[page as usize]) >= bytes => page,
                left => {
                    open.extend(left.filter(|&page| u64::from(self.free[page as usize]) >= least));
                    // The map goes round: it looks on behind the page that it gave last.
                    let place = (0..open.len())
                        .map(|step| (next + step) % open.len())
                        .find(|&place| fits(self.free[open[place] as usize]));
                    match place {
                        Some(place) => {
                            next = place;
                            open.remove(place)
                        }
                        None => {
                            self.free.push(ROOM_BYTES as u16);
                            self.free.len() as u32 - 1
                        }
                    }
                }
            };
            self.free[page as usize] -= bytes as u16;
            self.pages.push(page);
            target = Some(page);
        }
    }

    /// Bytes of a row in its page.
    #[inline]
    pub fn bytes_of(&self, row: u64) -> u64 {
        u64::from(self.bytes[self.bins.of_row(row)])
    }

    /// The page of a row, from the first one on.
    #[inline]
    pub fn page_of(&self, row: u64) -> u64 {
        let (times, at) = (row / PERIOD as u64, row as usize % PERIOD);
        times * self.free.len() as u64 + u64::from(self.pages[at])
    }

    /// How many pages so many rows take.
    pub fn pages(&self, rows: u64) -> u64 {
        let (times, rest) = (rows / PERIOD as u64, rows as usize % PERIOD);
        let last = self.pages[..rest].iter().max().map_or(0, |&page| page + 1);
        times * self.free.len() as u64 + u64::from(last)
    }

    /// Bytes that are left free in a page.
    pub fn free_of(&self, page: u64) -> u16 {
        self.free[page as usize % self.free.len()]
    }

    /// Bytes of rows in a page, on average.
    pub fn filled_bytes(&self) -> u64 {
        let free: u64 = self.free.iter().copied().map(u64::from).sum();
        ROOM_BYTES - free / self.free.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(listed: &[(u32, u32)]) -> Vec<RowSize> {
        let one = |&(row_bytes, share_ppm): &(u32, u32)| RowSize {
            row_bytes,
            share_ppm,
        };
        listed.iter().map(one).collect()
    }

    #[test]
    fn rows_of_one_size_lie_as_they_do_without_a_list() {
        let packing = Packing::new(&sizes(&[(1_052, 1)]));
        for row in [0, 6, 7, 65_000] {
            assert_eq!(packing.page_of(row), row / 7);
        }
        assert_eq!(packing.filled_bytes(), 7 * 1_052);
        assert_eq!(packing.pages(14), 2);
        assert_eq!(
            packing.pages(PERIOD as u64 + 1),
            packing.pages(PERIOD as u64) + 1
        );
    }

    #[test]
    fn no_page_has_more_rows_than_fit_and_small_ones_fill_what_large_ones_leave() {
        let listed = sizes(&[(240, 600_000), (4_132, 400_000)]);
        let packing = Packing::new(&listed);
        let mut used = vec![0; packing.free.len()];
        for row in 0..PERIOD as u64 {
            used[packing.page_of(row) as usize] += packing.bytes_of(row);
        }
        let room = |(page, &used): (usize, &u64)| used + u64::from(packing.free_of(page as u64));
        assert!(
            used.iter()
                .enumerate()
                .map(room)
                .all(|all| all == ROOM_BYTES)
        );
        // Each large row has a page of its own, and the small ones, 0.6 x 240 of 0.4 x 4,036 bytes, lie beside them.
        let large = PERIOD as f64 * 0.4;
        assert!(
            (used.len() as f64 / large - 1.0).abs() < 0.01,
            "{}",
            used.len()
        );
    }
}
