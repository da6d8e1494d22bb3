//! A journal tells the truth about single I/Os, and changes nothing.

use crate::driver::*;
use disklab_disk::profile::{Caching, Unit};
use disklab_disk::{JournalEntry, JournalSpan, Route};
use disklab_units::Instant;

const MOST: u32 = 100;

fn waited(entry: &JournalEntry) -> u64 {
    let spans = entry.waits.iter();
    spans
        .map(|wait| wait.to.as_nanos() - wait.from.as_nanos())
        .sum()
}

/// 64 under way at 5,000 I/Os a second of 3.3 ms: each takes 12.8 ms, of which 9.5 ms are the limit's.
#[test]
fn each_nanosecond_is_a_limits_or_the_disks() {
    let profile = || bare(vec![volume("data", vec![p30(0)])]);
    let load = || Load::reads(0, 4096, 64);
    let alone = run_one(&mut host(profile()), load(), 2 * SECOND);
    let mut watched = host(profile());
    assert_eq!(watched.journal(), None);
    let from = Instant::from_nanos(SECOND);
    watched.keep_journal(JournalSpan { from, most: MOST });
    assert_eq!(run_one(&mut watched, load(), 2 * SECOND).ends, alone.ends);
    let entries = watched.journal().expect("it is kept");
    assert_eq!(entries.len(), MOST as usize);
    for entry in &entries {
        assert!(entry.arrived >= from && entry.route == Route::Read);
        assert_eq!(
            entry.passed.as_nanos() - entry.arrived.as_nanos(),
            waited(entry)
        );
        assert_eq!(entry.ended.as_nanos() - entry.passed.as_nanos(), 3_300_000);
        assert_near(waited(entry) as f64, 9_500_000.0, 1.0);
        let (wait, more) = (&entry.waits[0], entry.waits.len() - 1);
        assert_eq!(
            (wait.place.as_str(), wait.unit, more),
            ("disk 0", Unit::Ios, 0)
        );
        let ends = (
            entry.ended.as_nanos(),
            entry.ended.as_nanos() - entry.arrived.as_nanos(),
        );
        assert!(
            alone.ends.contains(&ends),
            "no I/O of the load took that time"
        );
    }
    assert!(entries.is_sorted_by_key(|entry| entry.arrived));
}

#[test]
fn what_a_cache_serves_and_brings_to_its_disks_is_told_by_disk() {
    let stripe = volume("data", vec![p30(0), p30(0)]);
    let mut watched = host(ds14_v2(0, vec![cached(stripe, Caching::ReadWrite)]));
    let from = Instant::EPOCH;
    watched.keep_journal(JournalSpan { from, most: 1_000 });
    let load = |load: Load| load.within(1 << 20);
    let loads = [
        load(Load::writes(0, 4096, 4)),
        load(Load::reads(0, 4096, 4)),
        Load::reads(0, 4096, 4),
    ];
    run(&mut watched, &loads, 0, 20 * SECOND);
    let entries = watched.journal().expect("it is kept");
    for route in [Route::Hit, Route::Read, Route::WriteBack] {
        for member in [0, 1] {
            let own = |entry: &&JournalEntry| (entry.route, entry.member) == (route, member);
            let entry = entries.iter().find(own);
            let entry = entry.unwrap_or_else(|| panic!("no {route:?} of disk {member}"));
            let served = entry.ended.as_nanos() - entry.passed.as_nanos();
            let of_disk = route == Route::Read;
            assert_eq!(served, if of_disk { 3_300_000 } else { 200_000 });
        }
    }
    // A block that the cache brings to its disk is an entry too.
    let later = Instant::from_nanos(20 * SECOND);
    watched.keep_journal(JournalSpan {
        from: later,
        most: 10,
    });
    run(&mut watched, &loads, 20 * SECOND, 60 * SECOND);
    watched.keep_journal(JournalSpan {
        from: later,
        most: 1_000,
    });
    watched.advance(at(600 * SECOND), &mut Vec::new());
    let destaged = watched.journal().expect("it is kept");
    assert!(destaged.iter().any(|entry| entry.route == Route::Destage));
}
