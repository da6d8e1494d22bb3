//! Pauses of a node: its collector, and what requests leave for it.

use disklab_units::random::Stream;

use crate::chance::{exponential, work};
use crate::client::Kind;
use crate::database::cassandra::parameters::Parameters;
use crate::job::Collector;

/// What requests are counted in: a thousandth of one whose row has the bytes that the parameters hold for.
const REQUEST: u64 = 1000;

/// Of a hundredth of the rows that are asked for, next to none is written twice.
const FEW: u128 = 100;

/// Thousandths, as the parameters have them.
const WHOLE: u64 = 1000;

/// A JVM comes to a safepoint as often as this, without a collection. **Source:** `GuaranteedSafepointInterval` of JDK 8 to
/// 17, 1,000 ms.
const SAFEPOINT_NS: u64 = 1_000_000_000;

/// What a request leaves in the heap, in thousandths of what one of its kind leaves at the bytes of a row that the
/// parameters of pauses were found on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Of the young generation.
    pub filled: u64,
    /// Of what a collection finds alive of reads: keys in the key cache.
    pub keys: u64,
    /// The same of writes: rows in the memtable.
    pub rows: u64,
}

impl Garbage {
    /// That of a request that reads or writes so many bytes of a row.
    pub fn of(parameters: &Parameters, kind: Kind, bytes: u64) -> Garbage {
        let (fixed, permille) = match kind {
            Kind::Read => (
                parameters.read_allocated_bytes,
                parameters.read_allocated_permille,
            ),
            Kind::Write => (
                parameters.write_allocated_bytes,
                parameters.write_allocated_permille,
            ),
        };
        let at = parameters.at_row_bytes;
        let filled = share(fixed, permille, bytes, at).max(1);
        let kept = (parameters.write_kept_bytes, parameters.write_kept_permille);
        match kind {
            Kind::Read => Garbage {
                filled,
                keys: REQUEST,
                rows: 0,
            },
            Kind::Write => Garbage {
                filled,
                keys: 0,
                rows: share(kept.0, kept.1, bytes, at),
            },
        }
    }

    /// What a further row of so many bytes adds to that of a read.
    pub fn of_further_row(parameters: &Parameters, bytes: u64) -> Garbage {
        let of = |bytes| Garbage::of(parameters, Kind::Read, bytes).filled;
        Garbage {
            filled: of(bytes).saturating_sub(of(0)),
            ..Garbage::default()
        }
    }
}

/// What `fixed` bytes and `permille` of `bytes` are of the same at `at`, in thousandths; all of it where nothing is known.
fn share(fixed: u64, permille: u64, bytes: u64, at: u64) -> u64 {
    let of = |bytes: u64| u128::from(fixed) + u128::from(permille) * u128::from(bytes) / 1000;
    match of(at) {
        0 => REQUEST,
        whole => (of(bytes) * u128::from(REQUEST) / whole) as u64,
    }
}

/// Garbage collection as a server feels it: everything stands still for a while, once requests have filled the young
/// generation.
///
/// How often and how long is known for one JVM and one size of rows; the rest follows from what a collection is. **How
/// often**: a request allocates bytes of its own and some for each byte of its row, and a collection comes when they have
/// filled the young generation. **How long**: a part is always there, for thread stacks and what the old generation points to.
/// What a read allocates is dead when it has been answered, but for a key that is new to the key cache; what a write leaves in
/// the memtable lives until the flush. Both are moved, so a pause is longer by the keys and rows since the last one. Threads of
/// the collector share all of that but a part.
///
/// **Divergence:** G1 makes its young generation smaller when its pauses are longer than it is asked for; here it stays.
/// A coordinator's request and a replica's fill alike.
///
/// **A safepoint waits for every thread**, and one that waits for a page of a mapped file does not come to it: where the
/// volume serves nothing, all others stand still from the next safepoint until it does again. **Source:** our own rehearsal
/// of 2026-11-29 (Cassandra 5.0, JDK 17, a volume stalled for 30 s): `Reaching safepoint: 28928717965 ns` in the GC log.
/// **Divergence:** nobody waits for a page of a volume that is only slow, which comes within tens of milliseconds, or half a
/// second at worst.
///
/// **Source** of how much pauses vary: in our own rehearsals of 2026-11-21 and 22 (Cassandra 5.0, JDK 17, G1;
/// six runs with 19 to 381 young collections each) they deviate by 0.3 to 0.9 of their mean, by 0.6 in the
/// median run, and what fills the heap between two of them by up to 0.2. Exponential lengths, which deviate by
/// all of their mean, made the 99th percentile of writes half as long again.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// Length when nothing is moved.
    bare_ns: u64,
    /// By how much longer one is after reads alone, and after writes alone.
    moved_ns: [i64; 2],
    /// Requests of the known size from one to the next.
    every: u64,
    /// Rows that requests ask for: a memtable keeps the last version of each.
    asked: u64,
    left: u64,
    /// Since the last pause.
    seen: Garbage,
    until: u64,
    total_ns: u64,
    times: Stream,
    /// The time of the next safepoint, and when the page comes that a thread waits for. That thread does not reach the
    /// safepoint.
    page: Option<(u64, u64)>,
    /// From when to when everything stands still for a page.
    held: (u64, u64),
    none: bool,
}

impl Pauses {
    /// The pauses of node `number`; `none` switches them off.
    pub fn of_node(
        parameters: &Parameters,
        collector: Option<Collector>,
        number: usize,
        asked: u64,
        seed: u64,
        none: bool,
    ) -> Pauses {
        let every = requests_between(parameters, collector);
        let by_threads = |ns: u64| times_threads(ns, parameters, collector);
        let reads = parameters.read_pause_ns;
        let keys = (u128::from(reads) * u128::from(parameters.read_moved_permille.min(WHOLE))
            / u128::from(WHOLE)) as u64;
        let bare = reads - keys;
        // More requests between two pauses leave more to move.
        let moved = |ns: u64| {
            let known = parameters.pause_every_requests.max(1);
            (u128::from(by_threads(ns)) * u128::from(every) / u128::from(known)) as i64
        };
        let new_keys = collector.map_or(WHOLE, |one| u64::from(one.new_keys_permille));
        let rows = moved(parameters.write_pause_ns) - moved(bare);
        let keys = moved(keys) * new_keys as i64 / WHOLE as i64;
        let name = format!("node {number} pauses");
        let mut times = Stream::new(seed, &name);
        // Machines do not collect at the same time: each starts somewhere in its cycle.
        let left = (times.below(every) + 1).saturating_mul(REQUEST);
        Pauses {
            bare_ns: if none { 0 } else { by_threads(bare) },
            moved_ns: if none { [0, 0] } else { [keys, rows] },
            every,
            asked: asked.max(1).saturating_mul(REQUEST),
            left,
            seen: Garbage::default(),
            until: 0,
            total_ns: 0,
            times,
            page: None,
            held: (0, 0),
            none,
        }
    }

    /// A thread waits for a page of a mapped file, which comes at that time.
    pub fn page_comes(&mut self, now: u64, until: u64) {
        if !self.none && self.page.is_none() && self.held.1 <= now {
            self.page = Some((now.next_multiple_of(SAFEPOINT_NS), until));
        }
    }

    /// The node's next safepoint, if one is due for which a thread does not stop; returns how long all others wait for it.
    pub fn safepoint(&mut self, now: u64) -> Option<u64> {
        let (due, until) = self.page?;
        if now < due.min(until) {
            return None;
        }
        let span = self.wait_for_page(now);
        (span > 0).then_some(span)
    }

    fn wait_for_page(&mut self, now: u64) -> u64 {
        let Some((_, until)) = self.page.take().filter(|page| page.1 > now) else {
            return 0;
        };
        self.total_ns += self.held.1 - self.held.0;
        self.held = (now, until);
        self.until = self.until.max(until);
        until - now
    }

    /// From when to when everything stood still for a page the last time.
    #[inline]
    pub fn held(&self) -> (u64, u64) {
        self.held
    }

    /// Counts a request; returns the length of the pause that begins with it, if one does.
    #[inline]
    pub fn count(&mut self, now: u64, garbage: Garbage) -> Option<u64> {
        if self.bare_ns == 0 && self.moved_ns == [0, 0] || now < self.held.1 {
            return None;
        }
        self.seen.filled += garbage.filled;
        self.seen.keys += garbage.keys;
        self.seen.rows += garbage.rows;
        if self.left > garbage.filled {
            self.left -= garbage.filled;
            return None;
        }
        // The young generation is as large every time, what a request allocates varies: the
        // number of requests between two pauses varies little, the live data that is copied more.
        let next = (self.every * 9 / 10).max(1) + exponential(&mut self.times, self.every / 10);
        self.left = next.saturating_mul(REQUEST);
        let Garbage { filled, keys, rows } = std::mem::take(&mut self.seen);
        let [after_reads, after_writes] = self.moved_ns.map(i128::from);
        // Rows that are written again before the collection leave nothing of the version before. Of so many that are
        // asked for, writes at random meet about this many others.
        let (asked, rows) = (u128::from(self.asked), u128::from(rows));
        let rows = if rows < asked / FEW {
            rows
        } else {
            rows * asked / (rows + asked)
        } as i128;
        let moved = (i128::from(keys) * after_reads + rows * after_writes) / i128::from(filled);
        let mean_ns = (i128::from(self.bare_ns) + moved).max(0) as u64;
        let collects = work(&mut self.times, mean_ns);
        let span = self.wait_for_page(now) + collects;
        self.until = now + span;
        self.total_ns += collects;
        Some(span)
    }

    /// When the present pause ends; in the past, if there is none.
    #[inline]
    pub fn until(&self) -> u64 {
        self.until
    }

    /// Time spent in pauses up to now.
    pub fn total_ns(&self, now: u64) -> u64 {
        self.total_ns + self.held.1.min(now).saturating_sub(self.held.0)
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.total_ns = 0;
    }
}

/// Requests of the known size from one pause to the next.
pub fn requests_between(parameters: &Parameters, collector: Option<Collector>) -> u64 {
    let known = parameters.pause_every_requests.max(1);
    match collector {
        Some(one) if parameters.at_young_bytes > 0 => {
            let scaled = u128::from(known) * u128::from(one.young_bytes);
            u64::try_from(scaled / u128::from(parameters.at_young_bytes))
                .unwrap_or(u64::MAX / REQUEST)
                .clamp(1, u64::MAX / REQUEST / 16)
        }
        _ => known,
    }
}

/// How long a piece of a collection takes whose time is known for another number of threads.
fn times_threads(ns: u64, parameters: &Parameters, collector: Option<Collector>) -> u64 {
    let Some(Collector { threads, .. }) = collector else {
        return ns;
    };
    if parameters.at_collector_threads == 0 || parameters.at_collector_threads == u64::from(threads)
    {
        return ns;
    }
    let alone = parameters.collector_alone_permille.min(WHOLE);
    // Of a thousandth of the work of one thread, in parts of a million.
    let of = |threads: u64| {
        u128::from(alone) * 1000 + u128::from(WHOLE - alone) * 1000 / u128::from(threads)
    };
    (u128::from(ns) * of(u64::from(threads)) / of(parameters.at_collector_threads)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many rows that none is written again.
    const ALL: u64 = 1 << 40;

    const READ: Garbage = Garbage {
        filled: REQUEST,
        keys: REQUEST,
        rows: 0,
    };
    const WRITE: Garbage = Garbage {
        filled: REQUEST,
        keys: 0,
        rows: REQUEST,
    };

    /// A JVM with 1 MB between two collections, which 4 threads do: known with rows of 1,000 B, of which a read takes
    /// 1,000 B and one for each byte, a write half of that. A write keeps 200 B and its bytes.
    fn parameters() -> Parameters {
        serde_json::from_value(serde_json::json!({
            "overhead_ns": 0, "client_read_cpu_ns": 0, "client_write_cpu_ns": 0,
            "client_cold_permille": 0, "client_warm_operations": 0, "coordinator_cpu_ns": 0,
            "message_cpu_ns": 0, "read_cpu_ns": 0, "write_cpu_ns": 0, "message_overhead_ns": 0,
            "client_byte_ps": 0, "coordinator_byte_ps": 0, "message_byte_ps": 0,
            "read_byte_ps": 0, "write_byte_ps": 0,
            "at_row_bytes": 1000, "at_young_bytes": 1_000_000, "at_collector_threads": 4,
            "read_pause_ns": 1_000_000, "write_pause_ns": 10_000_000, "pause_every_requests": 500,
            "read_moved_permille": 0, "collector_alone_permille": 0,
            "read_allocated_bytes": 1000, "read_allocated_permille": 1000,
            "write_allocated_bytes": 500, "write_allocated_permille": 500,
            "write_kept_bytes": 200, "write_kept_permille": 1000
        }))
        .expect("it is a whole set of parameters")
    }

    /// Pauses of a node and time in them, with requests of one kind for rows of so many bytes.
    fn seen(collector: Option<Collector>, kind: Kind, bytes: u64) -> (f64, f64) {
        let parameters = parameters();
        let mut pauses = Pauses::of_node(&parameters, collector, 0, ALL, 7, false);
        let garbage = Garbage::of(&parameters, kind, bytes);
        let count = 1_000_000;
        let pauses_seen = (0..count)
            .filter(|_| pauses.count(0, garbage).is_some())
            .count();
        (pauses_seen as f64, pauses.total_ns(0) as f64)
    }

    fn close(seen: f64, wanted: f64) {
        // A thousand exponential times or more: their mean is known to 3 %, three of these deviations are allowed.
        assert!((seen / wanted - 1.0).abs() < 0.1, "{seen} for {wanted}");
    }

    fn collector(young_bytes: u64, threads: u32) -> Option<Collector> {
        Some(Collector {
            young_bytes,
            threads,
            new_keys_permille: 1000,
        })
    }

    #[test]
    fn what_is_known_is_told_again() {
        for one in [None, collector(1_000_000, 4)] {
            let (often, ns) = seen(one, Kind::Read, 1000);
            close(often, 2000.0);
            close(ns, 2000.0 * 1e6);
            let (often, ns) = seen(one, Kind::Write, 1000);
            close(often, 2000.0);
            close(ns, 2000.0 * 1e7);
        }
    }

    #[test]
    fn reads_and_writes_share_a_pause_by_what_they_leave() {
        let mut pauses = Pauses::of_node(&parameters(), None, 0, ALL, 7, false);
        for n in 0..1_000_000 {
            pauses.count(0, if n % 2 == 0 { READ } else { WRITE });
        }
        close(pauses.total_ns(0) as f64, 2000.0 * 5.5e6);
    }

    #[test]
    fn larger_rows_fill_the_heap_sooner() {
        let (often, ns) = seen(None, Kind::Read, 9000);
        // 10,000 B a read instead of 2,000, and each pause as long.
        close(often, 5.0 * 2000.0);
        close(ns, often * 1e6);
        assert!(seen(None, Kind::Read, 0).0 < 1100.0);
    }

    #[test]
    fn a_larger_heap_is_collected_less_often_and_no_longer_for_reads() {
        let (often, ns) = seen(collector(2_000_000, 4), Kind::Read, 1000);
        close(often, 1000.0);
        close(ns, 1000.0 * 1e6);
        // What writes keep is moved once, however seldom: 9 ms for 500 of them.
        let (often, ns) = seen(collector(2_000_000, 4), Kind::Write, 1000);
        close(often, 1000.0);
        close(ns, 1000.0 * (1e6 + 18e6));
    }

    #[test]
    fn larger_writes_leave_more_to_move() {
        let (often, ns) = seen(None, Kind::Write, 3000);
        close(often, 2.0 * 2000.0);
        // 3,200 B of each are moved instead of 1,200: 9 ms for 500 of 1,200.
        close(ns, often * 1e6 + 1e6 * 9e6 / 500.0 * 3200.0 / 1200.0);
    }

    #[test]
    fn rows_that_are_written_again_are_kept_once() {
        let parameters = parameters();
        let mean_ns = |asked| {
            let mut pauses = Pauses::of_node(&parameters, None, 0, asked, 7, false);
            let count = (0..1_000_000)
                .filter(|_| pauses.count(0, WRITE).is_some())
                .count();
            pauses.total_ns(0) as f64 / count as f64
        };
        close(mean_ns(ALL), 1e7);
        // 500 writes of 50 rows leave 45 of them.
        close(mean_ns(50), 1e6 + 9e6 * 45.0 / 500.0);
    }

    #[test]
    fn more_threads_collect_faster_but_for_what_they_do_not_share() {
        close(seen(collector(1_000_000, 2), Kind::Write, 1000).1, 4e10);
        let mut parameters = parameters();
        parameters.collector_alone_permille = 200;
        let one = |threads| times_threads(1_000_000, &parameters, collector(1, threads));
        // 0.2 + 0.8 / 2 of one thread's time instead of 0.2 + 0.8 / 4.
        assert_eq!(one(2), 1_500_000);
        assert_eq!(one(4), 1_000_000);
    }

    #[test]
    fn keys_that_are_new_to_the_cache_are_moved() {
        let mut parameters = parameters();
        parameters.read_moved_permille = 800;
        let mean_ns = |young_bytes, new_keys_permille| {
            let collector = Collector {
                young_bytes,
                threads: 4,
                new_keys_permille,
            };
            let mut pauses = Pauses::of_node(&parameters, Some(collector), 0, ALL, 7, false);
            let garbage = Garbage::of(&parameters, Kind::Read, 1000);
            let count = (0..1_000_000)
                .filter(|_| pauses.count(0, garbage).is_some())
                .count();
            pauses.total_ns(0) as f64 / count as f64
        };
        close(mean_ns(1_000_000, 1000), 1e6);
        // Of 1 ms, 0.2 are always there.
        close(mean_ns(1_000_000, 0), 2e5);
        close(mean_ns(1_000_000, 500), 6e5);
        // Twice the reads since the last one have brought twice the keys.
        close(mean_ns(2_000_000, 1000), 2e5 + 16e5);
    }

    #[test]
    fn pauses_that_are_off_never_begin() {
        let mut pauses = Pauses::of_node(&parameters(), None, 0, ALL, 7, true);
        assert!((0..10_000).all(|now| pauses.count(now, WRITE).is_none()));
    }
}
