//! In which order the rows of a table lie that several sessions have filled.
//!
//! **Source:** hio.c of PostgreSQL, `RelationGetBufferForTuple`: each backend has a page of its own, and takes a new one when
//! that is full; so neighbouring keys lie in as many pages as there are sessions, and pages come in the order in which sessions
//! needed them. Seen in PostgreSQL 15 (2026-11-25, 20,000 rows written by 16 sessions in the order of keys): of rows of 4,090 B
//! the next key lay 3 pages away in the median and 19 or more in a tenth of all cases; of rows of 1 KiB 5 and 13.

use crate::database::fill::ended_rows;

/// Rows after which the pattern begins again, at most.
const MOST_ROWS: u64 = 1 << 16;

/// Where rows lie: places in the order of pages, for the rows of a period.
#[derive(Clone, Debug)]
pub struct FillOrder {
    places: Vec<u32>,
}

impl FillOrder {
    /// The order of `rows` rows, so many to a page, that sessions write in the order of their keys, a row each at a time.
    ///
    /// In the server above, whose processes queue for two CPUs and for the lock under which a table grows, rows of a page each lay
    /// closer than those of [`ended_rows`].
    pub fn new(rows: u64, per_page: u64, sessions: u32) -> FillOrder {
        let periods = rows.div_ceil(MOST_ROWS).max(1);
        let pages = rows / periods / per_page.max(1);
        let rows = pages * per_page;
        let mut places = vec![0; rows as usize];
        let sessions = sessions.max(1);
        // Of each session: the first free place of its page, and how many are behind that.
        let mut targets = vec![(0, 0); sessions as usize];
        let mut next_page = 0;
        for (session, row) in ended_rows(rows, sessions) {
            if targets[session].1 == 0 && next_page < pages {
                targets[session] = (next_page * per_page, per_page);
                next_page += 1;
            }
            // The last rows of a period go where there is room.
            let count = targets.len();
            let with_room = (0..count).map(|step| (session + step) % count);
            let target = with_room.into_iter().find(|&one| targets[one].1 > 0);
            let (place, left) = &mut targets[target.expect("there is a place for each row")];
            places[row as usize] = *place as u32;
            (*place, *left) = (*place + 1, *left - 1);
        }
        FillOrder { places }
    }

    /// The place of a row among all. What is behind the last period lies in the order of keys.
    #[inline]
    pub fn place(&self, row: u64, rows: u64) -> u64 {
        let period = self.places.len() as u64;
        if period == 0 || row >= rows / period * period {
            return row;
        }
        row / period * period + u64::from(self.places[(row % period) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages from the row of a key to that of the next one, in order of size.
    fn steps(rows: u64, per_page: u64, sessions: u32) -> Vec<u64> {
        let order = FillOrder::new(rows, per_page, sessions);
        let mut places: Vec<u64> = (0..rows).map(|row| order.place(row, rows)).collect();
        let pages: Vec<u64> = places.iter().map(|place| place / per_page).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..rows), "each place has one row");
        let mut steps: Vec<u64> = pages
            .windows(2)
            .map(|two| two[0].abs_diff(two[1]))
            .collect();
        steps.sort_unstable();
        steps
    }

    #[test]
    fn one_session_leaves_rows_in_the_order_of_their_keys() {
        assert_eq!(steps(1_000, 1, 1), [1; 999]);
        let order = FillOrder::new(200_000, 7, 1);
        assert!((0..200_000).all(|row| order.place(row, 200_000) == row));
    }

    #[test]
    fn neighbours_lie_in_the_pages_of_all_sessions() {
        let seven = steps(20_000, 7, 16);
        // A real server had 5 and 13.
        assert_eq!(seven[10_000], 5);
        assert!((11..16).contains(&seven[18_000]), "{}", seven[18_000]);
        let one = steps(150_000, 1, 16);
        assert!((3..12).contains(&one[75_000]), "{}", one[75_000]);
    }

    #[test]
    fn a_table_of_a_few_rows_has_them_all() {
        for rows in 1..40 {
            steps(rows, 7, 16);
        }
    }
}
