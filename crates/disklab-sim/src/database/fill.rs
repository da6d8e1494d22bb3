//! In which order the rows of a fill are done, which several sessions write in the order of their keys.

use disklab_units::random::Stream;

/// Sessions with the rows that they end, one after the other: of `sessions`, each of which has the next row of `rows` in hand.
///
/// **Assumed:** each session is as likely as the others to end its row next, as the CPU times of a run are drawn. Those of a real
/// server queue for its CPUs and locks.
pub fn ended_rows(rows: u64, sessions: u32) -> impl Iterator<Item = (usize, u64)> {
    let sessions = u64::from(sessions.max(1)).min(rows) as usize;
    let mut held: Vec<u64> = (0..sessions as u64).collect();
    let mut next_row = sessions as u64;
    let mut draws = Stream::new(1, "order of a fill");
    (0..rows).map(move |_| {
        let mut session = draws.below(sessions as u64) as usize;
        while held[session] >= rows {
            session = (session + 1) % sessions;
        }
        let row = std::mem::replace(&mut held[session], next_row);
        next_row += 1;
        (session, row)
    })
}
