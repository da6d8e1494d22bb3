//! Who owns what: the ring, its replicas, and how many answers a request waits for.

use disklab_units::random::{Stream, mix};

use crate::chance::exponential;
use crate::database::cassandra::job::Consistency;
use crate::job::Cluster;
use crate::job::faults::{Event, Faults, What};
use crate::permutation::Permutation;

/// Most replicas of a row that the simulator keeps.
pub const MOST_REPLICAS: usize = 8;

/// Tokens of the ring: fine enough that a node's share comes out to a thousandth.
const SLOTS: usize = 4096;

/// Most rows of a table: so many times the slots are still a number of 64 bits.
pub const MOST_ROWS: u64 = 1 << 50;

const MILLION: u64 = 1_000_000;

/// Where a row lies on the ring.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    slot: u16,
    /// Which of the table's files has it, on each of its nodes.
    table: u8,
    /// Of those of its slot and file.
    row: u64,
}

/// Rows with keys that were written one after the other, and lie in files of their own.
#[derive(Clone, Debug)]
struct Written {
    /// The first one's key.
    first: u64,
    /// Of these rows.
    positions: Permutation,
    /// By slot and replica: rows that the node stores of the files before, and of the slots before in this one.
    before: Vec<u64>,
}

/// A node joins the ring or leaves it, by its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It takes its share from those that are there.
    Joins(u8),
    /// The others take what it has.
    Leaves(u8),
}

/// How faults change the ring, in the order of time.
pub fn changes_of(faults: &Faults) -> Vec<Change> {
    let of = |event: &Event| match event.what {
        What::Add => Some(Change::Joins(event.node as u8)),
        What::Decommission => Some(Change::Leaves(event.node as u8)),
        _ => None,
    };
    faults.in_order().iter().filter_map(of).collect()
}

impl Change {
    /// Whose it is.
    pub fn seat(self) -> u8 {
        match self {
            Change::Joins(seat) | Change::Leaves(seat) => seat,
        }
    }
}

/// A copy of a slot's rows goes from one seat to another.
#[derive(Clone, Copy, Debug)]
struct Handover {
    slot: u16,
    /// Which of the slot's copies.
    copy: u8,
    from: u8,
    to: u8,
    /// Rows that the new owner stores before these.
    before: u64,
}

/// The ring: which nodes hold a token's rows, and where on each of them.
///
/// Each row has a position on the ring and no other row has it, so that a node holds every row of its token ranges once,
/// in their order. **Divergence:** positions are as far apart as can be, where the tokens of a real table lie by chance.
#[derive(Clone, Debug)]
pub struct Ring {
    slots: Vec<[u8; MOST_REPLICAS]>,
    replicas: usize,
    /// Of the table.
    rows: u64,
    /// In the order of their keys.
    written: Vec<Written>,
    zones: usize,
    /// What becomes of it, in the order of time.
    later: Vec<(Change, Vec<Handover>)>,
}

impl Ring {
    /// The ring of a cluster with so many rows, at least one; `even` gives every node the same share.
    ///
    /// The primary owner of a token follows the shares. The other replicas are other nodes in random
    /// order, as with many virtual nodes, where the next owners around the ring have no pattern.
    pub fn new(cluster: &Cluster, replicas: usize, even: bool, rows: u64, seed: u64) -> Ring {
        Ring::of_tables(cluster, replicas, even, rows, seed, &[])
    }

    /// The same whose rows lie in several files on each node. `tables`: in millionths of all rows, what each file has, in
    /// the order in which they were written; none: there is one file.
    pub fn of_tables(
        cluster: &Cluster,
        replicas: usize,
        even: bool,
        rows: u64,
        seed: u64,
        tables: &[u32],
    ) -> Ring {
        let nodes = cluster.nodes as usize;
        let zones = cluster.zones.max(1) as usize;
        let mut stream = Stream::new(seed, "ring");
        let shares = match &cluster.ownership_ppm {
            _ if even => vec![1; nodes],
            Some(shares) => shares.iter().map(|&ppm| u64::from(ppm)).collect(),
            None => drawn_shares(nodes, cluster.tokens_per_node, &mut stream),
        };
        let total: u64 = shares.iter().sum();
        let mut slots = Vec::with_capacity(SLOTS);
        let mut owed = vec![0_i128; nodes];
        for _ in 0..SLOTS {
            // The node that is furthest behind its share owns the next token.
            for (owed, &share) in owed.iter_mut().zip(&shares) {
                *owed += i128::from(share);
            }
            let furthest = (0..nodes).max_by_key(|&n| (owed[n], usize::MAX - n));
            let primary = furthest.unwrap_or(0);
            owed[primary] -= i128::from(total);
            slots.push(placed(primary, nodes, replicas, zones, &mut stream));
        }
        let rows = rows.max(1);
        let mut counts = vec![0_u64; nodes];
        let mut written = Vec::new();
        for (number, (first, count)) in ranges(rows, tables).into_iter().enumerate() {
            let positions = Permutation::new(
                count,
                if number == 0 {
                    seed
                } else {
                    hash(seed, number as u64)
                },
            );
            let mut before = Vec::with_capacity(SLOTS * replicas);
            for (number, slot) in slots.iter().enumerate() {
                let rows = start(number + 1, count) - start(number, count);
                for &node in &slot[..replicas] {
                    before.push(counts[usize::from(node)]);
                    counts[usize::from(node)] += rows;
                }
            }
            written.push(Written {
                first,
                positions,
                before,
            });
        }
        Ring {
            slots,
            replicas,
            rows,
            written,
            zones,
            later: Vec::new(),
        }
    }

    /// Lays down who gets what when nodes join and leave, in this order.
    ///
    /// A node that joins has the share that an even ring would give it, of those that have most (of its own zone,
    /// where each zone has copies of all rows); one that leaves is followed by those that have least, in zones that
    /// have no copy yet where there are any. **Divergence:** a real node with `num_tokens` of its own draws them, so
    /// its share varies.
    pub fn plan(&mut self, changes: &[Change], seats: usize) {
        let rows = self.rows;
        let highest = changes.iter().map(|one| usize::from(one.seat()) + 1).max();
        let all = seats.max(highest.unwrap_or(0));
        let mut slots = self.slots.clone();
        let mut members: Vec<bool> = (0..all).map(|seat| seat < seats).collect();
        // What each holds now, and has ever stored: rows that are given away stay in its files.
        let mut held: Vec<u64> = (0..all).map(|seat| self.rows_of(seat, rows)).collect();
        let mut stored = held.clone();
        for &change in changes {
            let seat = change.seat();
            members[usize::from(seat)] = matches!(change, Change::Joins(_));
            let mut owed = 0;
            let mut handed = Vec::new();
            for (number, slot) in slots.iter_mut().enumerate() {
                let count = start(number + 1, rows) - start(number, rows);
                let copies = &slot[..self.replicas];
                let found = match change {
                    Change::Joins(_) => self.donor(copies, seat, &members, &held, &mut owed),
                    Change::Leaves(_) => self.heir(copies, seat, &members, &held),
                };
                let Some((copy, to)) = found else { continue };
                let from = std::mem::replace(&mut slot[copy], to);
                handed.push(Handover {
                    slot: number as u16,
                    copy: copy as u8,
                    from,
                    to,
                    before: stored[usize::from(to)],
                });
                held[usize::from(from)] -= count;
                held[usize::from(to)] += count;
                stored[usize::from(to)] += count;
            }
            self.later.push((change, handed));
        }
    }

    /// Which of a slot's copies a node that joins takes; `owed`: of a copy that it has not got yet, in millionths.
    fn donor(
        &self,
        copies: &[u8],
        seat: u8,
        members: &[bool],
        held: &[u64],
        owed: &mut u64,
    ) -> Option<(usize, u8)> {
        let zone_of = |seat: u8| usize::from(seat) % self.zones;
        let by_zone = self.zones > 1 && self.replicas >= self.zones;
        let is_near = |one: u8| !by_zone || zone_of(one) == zone_of(seat);
        let near = (0..members.len()).filter(|&one| members[one] && is_near(one as u8));
        let here = copies.iter().filter(|&&one| is_near(one)).count() as u64;
        *owed += here * MILLION / near.count() as u64;
        if *owed < MILLION {
            return None;
        }
        *owed -= MILLION;
        let taken = (0..copies.len()).filter(|&at| is_near(copies[at]));
        let copy = taken.max_by_key(|&at| (held[usize::from(copies[at])], at))?;
        Some((copy, seat))
    }

    /// Who takes a slot's copy of a node that leaves.
    fn heir(&self, copies: &[u8], seat: u8, members: &[bool], held: &[u64]) -> Option<(usize, u8)> {
        let copy = copies.iter().position(|&one| one == seat)?;
        let zone_of = |seat: u8| usize::from(seat) % self.zones;
        let others = (0..members.len() as u8)
            .filter(|&one| members[usize::from(one)] && !copies.contains(&one));
        let in_zone = |one: u8| {
            let rest = copies.iter().filter(|&&other| other != seat);
            rest.filter(|&&other| zone_of(other) == zone_of(one))
                .count()
        };
        let to = others.min_by_key(|&one| (in_zone(one), held[usize::from(one)], one))?;
        Some((copy, to))
    }

    /// Rows that go from whom to whom when a seat joins or leaves next.
    pub fn handed(&self, seat: usize) -> Vec<(u8, u8, u64)> {
        let mut found: Vec<(u8, u8, u64)> = Vec::new();
        let next = self
            .later
            .iter()
            .find(|one| usize::from(one.0.seat()) == seat);
        for one in next.map_or(&[][..], |(_, handed)| handed) {
            let count = self.slot_rows(usize::from(one.slot), self.rows);
            match found
                .iter_mut()
                .find(|known| (known.0, known.1) == (one.from, one.to))
            {
                Some(known) => known.2 += count,
                None => found.push((one.from, one.to, count)),
            }
        }
        found
    }

    /// A seat has joined, or left: from now on others own what it was given, or had.
    pub fn change(&mut self, seat: usize) {
        let next = self
            .later
            .iter()
            .position(|one| usize::from(one.0.seat()) == seat);
        let Some(next) = next else { return };
        for one in self.later.remove(next).1 {
            let (slot, copy) = (usize::from(one.slot), usize::from(one.copy));
            self.slots[slot][copy] = one.to;
            // Rows that move lie behind those that were written (see `plan`).
            self.written[0].before[slot * self.replicas + copy] = one.before;
        }
    }

    /// Rows of a table with so many that a node has stored when all changes are over, those given away included.
    pub fn most_rows_of(&self, seat: usize, rows: u64) -> u64 {
        let handed = self.later.iter().flat_map(|(_, handed)| handed);
        let came = handed.filter(|one| usize::from(one.to) == seat);
        let came = came.map(|one| self.slot_rows(usize::from(one.slot), rows));
        self.rows_of(seat, rows) + came.sum::<u64>()
    }

    /// Rows of a slot, of a table with so many.
    fn slot_rows(&self, slot: usize, rows: u64) -> u64 {
        start(slot + 1, rows) - start(slot, rows)
    }

    /// Rows of a seat by the node that loses them while two nodes are on its place: the one that is furthest from it on the
    /// ring, which gets them back when one of the two has left.
    pub fn displaced(&self, seat: usize) -> Vec<(u8, u64)> {
        let mut found: Vec<(u8, u64)> = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            let copies = &slot[..self.replicas];
            if !copies.iter().any(|&one| usize::from(one) == seat) {
                continue;
            }
            let last = copies[self.replicas - 1];
            let rows = self.slot_rows(number, self.rows);
            match found.iter_mut().find(|known| known.0 == last) {
                Some(known) => known.1 += rows,
                None => found.push((last, rows)),
            }
        }
        found
    }

    /// Rows that two nodes both have.
    pub fn shared_rows(&self, one: usize, other: usize) -> u64 {
        let rows = self.rows;
        let has = |slot: &[u8], seat: usize| slot.iter().any(|&at| usize::from(at) == seat);
        let slots = self.slots.iter().map(|slot| &slot[..self.replicas]);
        let both = slots
            .enumerate()
            .filter(|(_, s)| has(s, one) && has(s, other));
        both.map(|(number, _)| self.slot_rows(number, rows)).sum()
    }

    /// Where a row lies. A row that the run has added, which has a key beyond the others, lies among them.
    #[inline]
    pub fn place(&self, key: u64) -> Place {
        let behind = self.written.iter().skip(1);
        let table = behind.take_while(|one| one.first <= key).count();
        let Written {
            first, positions, ..
        } = &self.written[table];
        let count = positions.count();
        let position = if key < self.rows {
            positions.place(key - first)
        } else {
            ((u128::from(hash(key, 0)) * u128::from(count)) >> 64) as u64
        };
        let slot = (position * SLOTS as u64 / count) as usize;
        Place {
            slot: slot as u16,
            table: table as u8,
            row: position - start(slot, count),
        }
    }

    /// The replicas of a row, the primary owner first.
    #[inline]
    pub fn replicas(&self, place: Place) -> &[u8] {
        &self.slots[usize::from(place.slot)][..self.replicas]
    }

    /// Which of its rows it is of a node, in the order of files and of their tokens in each; the node is one of its replicas.
    #[inline]
    pub fn row_of(&self, place: Place, node: u8) -> u64 {
        let at = self.replicas(place).iter().position(|&one| one == node);
        let before = &self.written[usize::from(place.table)].before;
        before[usize::from(place.slot) * self.replicas + at.unwrap_or(0)] + place.row
    }

    /// Files of the table on each node.
    pub fn files(&self) -> usize {
        self.written.len()
    }

    /// The first row of each of a node's files, of a table with so many rows.
    pub fn first_rows(&self, node: usize, rows: u64) -> Vec<u64> {
        let (mine, all) = (self.rows_of(node, rows), self.rows_of(node, self.rows));
        let mut before = 0;
        let mut first_of = |one: &Written| {
            let first = u128::from(before) * u128::from(mine) / u128::from(all.max(1));
            before += self.rows_of_file(node, one.positions.count());
            first as u64
        };
        self.written.iter().map(&mut first_of).collect()
    }

    /// Rows that each node would send to rebuild one, and those of which no other has a copy. Each token's are sent by the
    /// copy that has the least to send. **Source:** `RangeFetchMapCalculator` of Cassandra spreads them likewise.
    pub fn rows_from(&self, node: usize, may_send: impl Fn(usize) -> bool) -> (Vec<u64>, u64) {
        let rows = self.rows;
        let mut from = vec![0_u64; usize::from(u8::MAX)];
        let mut lost = 0;
        for (number, slot) in self.slots.iter().enumerate() {
            let copies = &slot[..self.replicas];
            if !copies.iter().any(|&one| usize::from(one) == node) {
                continue;
            }
            let count = start(number + 1, rows) - start(number, rows);
            let others = copies.iter().map(|&one| usize::from(one));
            let able = others.filter(|&one| one != node && may_send(one));
            match able.min_by_key(|&one| from[one]) {
                Some(source) => from[source] += count,
                None => lost += count,
            }
        }
        (from, lost)
    }

    /// Seats of all nodes, those that come later included.
    pub fn seats(&self) -> usize {
        let now = self.slots.iter().flat_map(|slot| &slot[..self.replicas]);
        let later = self.later.iter().map(|(change, _)| change.seat());
        now.copied()
            .chain(later)
            .max()
            .map_or(0, |seat| usize::from(seat) + 1)
    }

    /// Copies of each row.
    pub fn count(&self) -> usize {
        self.replicas
    }

    /// Rows that a node stores of a table with so many, copies included.
    pub fn rows_of(&self, node: usize, rows: u64) -> u64 {
        if rows != self.rows {
            return self.rows_of_file(node, rows);
        }
        let files = self.written.iter();
        files
            .map(|one| self.rows_of_file(node, one.positions.count()))
            .sum()
    }

    /// Rows that a node stores of a file with so many.
    fn rows_of_file(&self, node: usize, rows: u64) -> u64 {
        let holds = |slot: &[u8; MOST_REPLICAS]| {
            let mut all = slot[..self.replicas].iter();
            all.any(|&one| usize::from(one) == node)
        };
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| holds(slot))
            .map(|(number, _)| start(number + 1, rows) - start(number, rows))
            .sum()
    }
}

/// The first position of a slot, of so many.
#[inline]
fn start(slot: usize, rows: u64) -> u64 {
    (slot as u64 * rows).div_ceil(SLOTS as u64)
}

/// The first key and the number of rows of each file, at least one; of so many rows in all.
fn ranges(rows: u64, shares: &[u32]) -> Vec<(u64, u64)> {
    let mut sum = 0;
    let mut ends: Vec<u64> = shares
        .iter()
        .map(|&share| {
            sum += u64::from(share);
            (u128::from(rows) * u128::from(sum) / u128::from(MILLION)).min(u128::from(rows)) as u64
        })
        .collect();
    ends.pop();
    ends.push(rows);
    ends.dedup();
    let firsts = std::iter::once(0).chain(ends.iter().copied());
    let ranges = firsts.zip(ends.iter().copied());
    ranges
        .map(|(first, end)| (first, end - first))
        .filter(|&(_, count)| count > 0)
        .collect()
}

/// Shares as random tokens make them: the distances between neighbours on a ring are exponential.
fn drawn_shares(nodes: usize, tokens: u32, stream: &mut Stream) -> Vec<u64> {
    let mut share = |_| {
        (0..tokens.max(1))
            .map(|_| exponential(stream, MILLION))
            .sum()
    };
    (0..nodes).map(&mut share).collect()
}

fn placed(
    primary: usize,
    nodes: usize,
    replicas: usize,
    zones: usize,
    stream: &mut Stream,
) -> [u8; MOST_REPLICAS] {
    let mut others: Vec<u8> = (0..nodes as u8)
        .filter(|&n| usize::from(n) != primary)
        .collect();
    let mut slot = [0; MOST_REPLICAS];
    slot[0] = primary as u8;
    // A zone that has no copy yet comes before one that has. **Source:** NetworkTopologyStrategy, racks.
    let mut copies = vec![0; zones];
    copies[primary % zones] += 1;
    for place in slot.iter_mut().take(replicas).skip(1) {
        let fewest = others.iter().map(|&n| copies[usize::from(n) % zones]).min();
        let next: Vec<usize> = (0..others.len())
            .filter(|&at| Some(copies[usize::from(others[at]) % zones]) == fewest)
            .collect();
        let at = next[stream.below(next.len() as u64) as usize];
        copies[usize::from(others[at]) % zones] += 1;
        *place = others.swap_remove(at);
    }
    slot
}

/// How many of `replicas` must answer.
pub fn answers_needed(consistency: Consistency, replicas: usize) -> usize {
    match consistency {
        Consistency::One | Consistency::LocalOne => 1,
        Consistency::Two => 2.min(replicas),
        Consistency::Three => 3.min(replicas),
        Consistency::Quorum | Consistency::LocalQuorum => replicas / 2 + 1,
        Consistency::All => replicas,
    }
}

/// A number without pattern for a key, or for a key on a node.
#[inline]
pub fn hash(key: u64, salt: u64) -> u64 {
    // The paper's increment keeps key 0 from the finaliser's fixed point.
    mix((key ^ salt.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROWS: u64 = 1_000_000;

    #[test]
    fn rows_of_several_files_have_places_of_their_own() {
        let (rows, shares) = (30_011, [500_000, 300_000, 200_000]);
        let ring = Ring::of_tables(&crate::tests::cluster(6, None), 2, false, rows, 5, &shares);
        assert_eq!(ring.files(), 3);
        let nodes = ring.seats();
        let mut stored: Vec<Vec<u32>> = (0..nodes)
            .map(|node| vec![0; ring.rows_of(node, rows) as usize])
            .collect();
        for key in 0..rows {
            let place = ring.place(key);
            for &node in ring.replicas(place) {
                let (row, firsts) = (
                    ring.row_of(place, node),
                    ring.first_rows(usize::from(node), rows),
                );
                stored[usize::from(node)][row as usize] += 1;
                let file = firsts.iter().rposition(|&first| first <= row);
                let written = [15_005, 24_008].iter().filter(|&&end| key >= end).count();
                assert_eq!(file, Some(written), "key {key}, row {row} of {firsts:?}");
            }
        }
        assert!(stored.iter().flatten().all(|&count| count == 1));
    }

    fn ring(replicas: usize, shares: Option<Vec<u32>>) -> Ring {
        let cluster = crate::tests::cluster(6, shares);
        Ring::new(&cluster, replicas, false, ROWS, 1)
    }

    #[test]
    fn nodes_own_their_shares() {
        let shares = vec![154_000, 155_000, 184_000, 158_000, 182_000, 166_000];
        let ring = ring(1, Some(shares.clone()));
        let mut seen = [0_u32; 6];
        for key in 0..1_000_000 {
            seen[usize::from(ring.replicas(ring.place(key))[0])] += 1;
        }
        for (seen, share) in seen.iter().zip(shares) {
            assert!(seen.abs_diff(share) < 2_500, "{seen} of {share}");
        }
    }

    #[test]
    fn replicas_are_different_nodes() {
        let ring = ring(5, None);
        for key in 0..10_000 {
            let mut nodes = ring.replicas(ring.place(key)).to_vec();
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.len(), 5);
        }
        let rows: u64 = (0..6).map(|node| ring.rows_of(node, 1_000_000)).sum();
        assert_eq!(rows, 5_000_000);
    }

    proptest! {
        #[test]
        fn a_node_has_each_of_its_rows_once(
            nodes in 1_u32..7,
            copies in 1_usize..7,
            rows in 1_u64..9_000,
            seed in any::<u64>(),
        ) {
            let copies = copies.min(nodes as usize);
            let cluster = crate::tests::cluster(nodes, None);
            let ring = Ring::new(&cluster, copies, false, rows, seed);
            let mut stored: Vec<Vec<u32>> = (0..nodes as usize)
                .map(|node| vec![0; ring.rows_of(node, rows) as usize])
                .collect();
            for key in 0..rows {
                let place = ring.place(key);
                for &node in ring.replicas(place) {
                    stored[usize::from(node)][ring.row_of(place, node) as usize] += 1;
                }
            }
            prop_assert!(stored.iter().flatten().all(|&times| times == 1));
        }
    }

    proptest! {
        #[test]
        fn a_ring_that_changes_keeps_every_copy_of_a_row_on_a_node_of_its_own(
            nodes in 2_u32..7,
            copies in 1_usize..4,
            zones in 1_u32..4,
            seed in any::<u64>(),
        ) {
            let rows = 5_000;
            let copies = copies.min(nodes as usize);
            let mut cluster = crate::tests::cluster(nodes, None);
            cluster.zones = zones;
            let mut ring = Ring::new(&cluster, copies, true, rows, seed);
            let new = nodes as u8;
            ring.plan(&[Change::Joins(new), Change::Leaves(0)], nodes as usize);
            let room: Vec<u64> = (0..=nodes as usize)
                .map(|seat| ring.most_rows_of(seat, rows))
                .collect();
            for change in [Change::Joins(new), Change::Leaves(0)] {
                let moved = ring.handed(usize::from(change.seat()));
                prop_assert!(moved.iter().any(|&(_, _, rows)| rows > 0));
                ring.change(usize::from(change.seat()));
                let mut seen = vec![std::collections::HashSet::new(); room.len()];
                for key in 0..rows {
                    let place = ring.place(key);
                    let mut owners = ring.replicas(place).to_vec();
                    for &owner in &owners {
                        let row = ring.row_of(place, owner);
                        prop_assert!(row < room[usize::from(owner)]);
                        prop_assert!(seen[usize::from(owner)].insert(row));
                    }
                    owners.sort_unstable();
                    owners.dedup();
                    prop_assert_eq!(owners.len(), copies);
                }
            }
            prop_assert_eq!(ring.rows_of(0, rows), 0);
            prop_assert!(ring.rows_of(nodes as usize, rows) > 0);
        }
    }

    #[test]
    fn who_joins_has_an_even_share_and_in_zones_half_of_its_neighbour() {
        for (zones, share) in [(1, 3.0 / 4.0), (3, 1.0 / 2.0)] {
            let mut cluster = crate::tests::cluster(3, None);
            cluster.zones = zones;
            let mut ring = Ring::new(&cluster, 3, true, ROWS, 1);
            ring.plan(&[Change::Joins(3)], 3);
            ring.change(3);
            let found = ring.rows_of(3, ROWS) as f64 / ROWS as f64;
            assert!((found - share).abs() < 0.01, "{found}, not {share}");
        }
    }

    #[test]
    fn a_row_added_by_the_run_lies_among_the_others() {
        let ring = ring(3, None);
        for key in ROWS..ROWS + 10_000 {
            let place = ring.place(key);
            for &node in ring.replicas(place) {
                assert!(ring.row_of(place, node) < ring.rows_of(usize::from(node), ROWS));
            }
        }
    }

    #[test]
    fn copies_are_in_different_zones() {
        let mut cluster = crate::tests::cluster(6, None);
        cluster.zones = 3;
        for (replicas, most) in [(3, 1), (5, 2)] {
            let ring = Ring::new(&cluster, replicas, false, ROWS, 1);
            for key in 0..10_000 {
                let mut copies = [0; 3];
                for &node in ring.replicas(ring.place(key)) {
                    copies[usize::from(node) % 3] += 1;
                }
                assert!(copies.iter().all(|&n| n <= most), "{copies:?}");
            }
        }
    }

    #[test]
    fn answers_needed_are_those_of_cassandra() {
        let needed = |consistency| [1, 2, 3, 4, 5, 6].map(|n| answers_needed(consistency, n));
        assert_eq!(needed(Consistency::One), [1; 6]);
        assert_eq!(needed(Consistency::LocalOne), [1; 6]);
        assert_eq!(needed(Consistency::Two), [1, 2, 2, 2, 2, 2]);
        assert_eq!(needed(Consistency::Three), [1, 2, 3, 3, 3, 3]);
        assert_eq!(needed(Consistency::Quorum), [1, 2, 2, 3, 3, 4]);
        assert_eq!(needed(Consistency::LocalQuorum), [1, 2, 2, 3, 3, 4]);
        assert_eq!(needed(Consistency::All), [1, 2, 3, 4, 5, 6]);
    }
}
