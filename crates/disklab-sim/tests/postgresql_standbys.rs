//! Standbys of PostgreSQL: copies of the primary's data, and one that becomes the primary.

use crate::jobs::servers::{MS, RATE, at, job, limited, run};
use crate::jobs::{close, open, postgresql};
use disklab_disk::profile::Scope;
use disklab_sim::cell::faults::{Event, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, RebuildReport, StepReport, simulate};

/// 70,000 rows of 1,052 B, seven of which have room in a page, and an index.
const FILES: std::ops::Range<u64> = 82_000_000..90_000_000;

/// Three servers, of which one standby is lost and gets a copy, beside so many updates a second.
fn replaced(rate: u64, seconds: u64) -> Job {
    let mut job = job(seconds, vec![at(5, 2, What::Lose), at(6, 2, What::Replace)]);
    let servers = postgresql(&mut job);
    servers.cluster.nodes = 3;
    servers.database.synchronous_standbys = 1;
    servers.workload.load = open(rate * 1000, Arrivals::Even, 200);
    job
}

fn stream(faults: &FaultReport) -> &RebuildReport {
    let found = faults.rebuilds.iter().find(|one| one.kind == "stream");
    found.expect("a copy was made")
}

fn step(faults: &FaultReport, what: What) -> &StepReport {
    let found = faults.steps.iter().find(|one| one.what == what);
    found.expect("it is in the timetable")
}

#[test]
fn a_copy_has_every_page_and_costs_no_operation() {
    let (_, faults) = run(&replaced(20, 30));
    let copy = stream(&faults);
    assert!(FILES.contains(&copy.bytes), "{copy:?}");
    assert_eq!(
        (copy.done_bytes, copy.node, copy.sources),
        (copy.bytes, 2, 1)
    );
    assert_eq!((faults.failed_operations, faults.lost_updates), (0, None));
    let step = step(&faults, What::Replace);
    assert!(!step.extrapolated);
    // The checkpoint is looked for every 100 ms, its end as well, and the process starts in as long.
    let rest = step.ended_s - step.begun_s - copy.seconds;
    assert!((0.1..0.6).contains(&rest), "{rest} s beside the copy");
}

#[test]
fn a_copy_is_written_at_the_rate_of_the_new_disk() {
    let mut job = replaced(2, 40);
    limited(&mut job, Scope::Write, 8_000_000);
    let (_, faults) = run(&job);
    let copy = stream(&faults);
    close(copy.seconds, copy.bytes as f64 / 8e6, 0.02);
    assert_eq!(copy.bound.resource, "data disk write MB/s");
    assert_eq!(copy.bound.place, "node 2 disk 0");
}

#[test]
fn a_copy_reads_one_window_at_a_time_where_no_cache_has_the_files() {
    let seconds = |read_ahead_bytes| {
        let mut job = replaced(2, 30);
        let servers = postgresql(&mut job);
        servers.before.page_cache = CacheState::Cold;
        servers.cluster.read_ahead_bytes = read_ahead_bytes;
        let (_, faults) = run(&job);
        let copy = stream(&faults);
        assert_eq!(copy.bound.resource, "reads of the copy");
        (copy.bytes as f64, copy.seconds)
    };
    // Each read takes a millisecond; the last write and the sync come on top.
    for window in [64 << 10, 128 << 10] {
        let (bytes, seconds) = seconds(window);
        let ideal = bytes / window as f64 * 1e-3;
        assert!(
            (1.0..1.15).contains(&(seconds / ideal)),
            "{seconds} of {ideal}"
        );
    }
}

#[test]
fn one_process_sends_a_copy_and_one_program_takes_it() {
    let of = |send_ps, take_ps| {
        let mut job = replaced(2, 40);
        let servers = postgresql(&mut job);
        servers.cluster.cores = 8;
        let faults = servers.faults.as_mut().expect("some");
        (faults.copy_send_byte_ps, faults.copy_take_byte_ps) = (send_ps, take_ps);
        let (_, faults) = run(&job);
        stream(&faults).clone()
    };
    // 10 MB/s, and beside each other.
    for (send, take, bound) in [
        (100_000, 1_000, "sending process"),
        (1_000, 100_000, "copying program"),
        (100_000, 90_000, "sending process"),
    ] {
        let copy = of(send, take);
        let ratio = copy.seconds / (copy.bytes as f64 / 1e7);
        assert!((0.99..1.03).contains(&ratio), "{copy:?}");
        assert_eq!(copy.bound.resource, bound);
    }
}

#[test]
fn a_copy_shares_the_network_of_its_primary() {
    let mut job = replaced(2, 40);
    postgresql(&mut job).cluster.network_bytes_per_s = Some(10_000_000);
    let (_, faults) = run(&job);
    let copy = stream(&faults);
    assert!((0.98..1.05).contains(&(copy.bytes_per_s / 1e7)), "{copy:?}");
    assert_eq!(copy.bound.resource, "node network");
    assert_eq!(copy.bound.place, "node 0");
}

#[test]
fn the_log_that_is_written_meanwhile_comes_along_and_is_replayed() {
    let of = |rate| {
        let mut job = replaced(rate, 40);
        let servers = postgresql(&mut job);
        let faults = servers.faults.as_mut().expect("some");
        faults.copy_send_byte_ps = 100_000;
        faults.replay_record_cpu_ns = MS / 10;
        let (_, faults) = run(&job);
        let replays = faults.rebuilds.iter().filter(|one| one.kind == "replay");
        let replayed: u64 = replays.map(|one| one.bytes).sum();
        (stream(&faults).bytes, replayed)
    };
    let (idle, busy) = (of(2), of(RATE));
    // Nearly each of 4,000 updates beside it puts a page of 8 KB into the log.
    assert!((15_000_000..50_000_000).contains(&busy.1), "{busy:?}");
    // New pages of rows that have moved before are copied, too.
    let more = busy.0 - idle.0;
    assert!(
        more > busy.1 - idle.1 && more < 2 * busy.1,
        "{idle:?} {busy:?}"
    );
}

#[test]
fn a_copy_begins_with_a_checkpoint_that_writes_what_has_changed() {
    let before = |rate| {
        let mut job = replaced(rate, 60);
        limited(&mut job, Scope::Write, 20_000_000);
        let (_, faults) = run(&job);
        let step = step(&faults, What::Replace);
        assert!(!step.extrapolated, "{faults:?}");
        step.ended_s - step.begun_s - stream(&faults).seconds
    };
    // Pages that 2,500 updates have changed, at 20 MB/s beside the log.
    let (idle, busy) = (before(2), before(RATE));
    assert!(busy > idle + 1.0, "{idle} and {busy} s");
}

#[test]
fn a_copy_that_outlasts_the_run_is_told_with_the_rate_that_was_seen() {
    let told = |seconds| {
        let mut job = replaced(2, seconds);
        limited(&mut job, Scope::Write, 4_000_000);
        let (_, faults) = run(&job);
        step(&faults, What::Replace).clone()
    };
    let (whole, cut) = (told(60), told(16));
    assert!(!whole.extrapolated && cut.extrapolated);
    let ratio = (cut.ended_s - cut.begun_s) / (whole.ended_s - whole.begun_s);
    assert!((0.9..1.1).contains(&ratio), "{cut:?} of {whole:?}");
}

#[test]
fn a_copy_begins_again_when_its_primary_or_its_own_server_is_killed() {
    for node in [0, 2] {
        let mut job = replaced(2, 60);
        limited(&mut job, Scope::Write, 8_000_000);
        let servers = postgresql(&mut job);
        let faults = servers.faults.as_mut().expect("some");
        faults
            .events
            .extend([at(10, node, What::Kill), at(12, node, What::Start)]);
        let (_, faults) = run(&job);
        let copies = faults.rebuilds.iter().filter(|one| one.kind == "stream");
        let copies: Vec<_> = copies.collect();
        let [copy] = copies[..] else {
            panic!("one copy is whole: {copies:?}");
        };
        assert_eq!(copy.done_bytes, copy.bytes);
        let last = faults
            .steps
            .iter()
            .map(|one| one.ended_s)
            .fold(0.0, f64::max);
        assert!(last > 12.0 + 0.9 * copy.seconds, "{:?}", faults.steps);
    }
}

/// The primary is lost, and a standby becomes it.
fn promoted(seconds: u64, more: &[Event]) -> Job {
    let mut events = vec![at(5, 0, What::Lose), at(10, 1, What::Promote)];
    events.extend(more);
    let mut job = job(seconds, events);
    let servers = postgresql(&mut job);
    servers.cluster.nodes = 3;
    servers.database.synchronous_standbys = 1;
    job
}

#[test]
fn a_standby_serves_when_it_is_promoted_and_nothing_acknowledged_is_lost() {
    let (_, faults) = run(&promoted(30, &[]));
    let course = &faults.course;
    assert_eq!(course.completed[6..10].iter().sum::<u64>(), 0);
    // Clients find it within the second that their pauses have grown to.
    assert!(course.completed[13].abs_diff(RATE) <= 1, "{course:?}");
    assert!(course.completed[28].abs_diff(RATE) <= 1, "{course:?}");
    assert_eq!(faults.lost_updates, Some(0));
    let step = step(&faults, What::Promote);
    assert!((10.1..10.12).contains(&step.ended_s), "{step:?}");
}

#[test]
fn commits_that_wait_for_no_disk_are_lost_with_the_primary() {
    let mut job = promoted(30, &[]);
    postgresql(&mut job).database.synchronous_commit = false;
    let lost = run(&job).1.lost_updates.expect("a standby was promoted");
    // The log's writer comes by every 200 ms.
    assert!((1..=RATE / 5 + 1).contains(&lost), "{lost}");
    let mut later = promoted(30, &[]);
    let servers = postgresql(&mut later);
    servers.database.synchronous_commit = false;
    servers.network.one_way_ns = 400 * MS;
    let more = run(&later).1.lost_updates.expect("a standby was promoted");
    // Log that is on its way comes, although its sender is gone.
    assert!(more <= RATE / 5 + 1, "{more}");
}

#[test]
fn clients_of_a_machine_that_has_vanished_find_the_new_primary_behind_their_time_out() {
    let mut job = promoted(40, &[]);
    postgresql(&mut job).faults.as_mut().expect("some").vanishes = true;
    let (_, faults) = run(&job);
    // The first of them give up 12 s behind the loss.
    assert_eq!(faults.course.completed[6..16].iter().sum::<u64>(), 0);
    assert!(faults.failed_operations >= 200);
    assert!(
        faults.course.completed[35].abs_diff(RATE) <= 1,
        "{:?}",
        faults.course
    );
}

#[test]
fn the_old_primary_comes_back_as_a_copy_of_the_new_one() {
    let more = [at(15, 0, What::Replace), at(30, 2, What::Kill)];
    let (_, faults) = run(&promoted(45, &more));
    let copy = stream(&faults);
    assert_eq!((copy.node, copy.done_bytes), (0, copy.bytes));
    assert!(!step(&faults, What::Replace).extrapolated);
    // It confirms commits: without it none would be, with the third one killed.
    assert!(
        faults.course.completed[40].abs_diff(RATE) <= 1,
        "{:?}",
        faults.course
    );
}

#[test]
fn a_promoted_standby_reads_what_is_not_in_its_memory() {
    let mean = |state| {
        let mut job = promoted(40, &[]);
        let servers = postgresql(&mut job);
        servers.before.page_cache = state;
        servers.cluster.page_cache_bytes = 1 << 30;
        let (_, faults) = run(&job);
        let found = faults.degraded_latency_ms;
        found.expect("some ended meanwhile").mean
    };
    let (warm, cold) = (mean(CacheState::Warm), mean(CacheState::Cold));
    // A millisecond for most of the updates at first, of which half find their page at the end.
    assert!(cold > warm + 0.2, "{warm} and {cold} ms");
}

#[test]
fn what_copies_and_promotions_cannot_be_is_refused() {
    let of = |events: Vec<Event>| {
        let mut job = job(30, events);
        let servers = postgresql(&mut job);
        servers.cluster.nodes = 3;
        simulate(&job).is_err()
    };
    assert!(of(vec![at(1, 0, What::Replace)]));
    assert!(of(vec![at(1, 0, What::Promote)]));
    assert!(of(vec![at(1, 1, What::Promote), at(2, 1, What::Replace)]));
    let fine = vec![
        at(1, 0, What::Kill),
        at(2, 1, What::Promote),
        at(3, 0, What::Replace),
    ];
    assert!(!of(fine));
}

#[test]
fn the_same_seed_makes_the_same_copy_and_the_same_primary() {
    let tell = |job: &Job| format!("{:?}", run(job).1);
    for job in [replaced(50, 20), promoted(20, &[at(12, 0, What::Replace)])] {
        assert_eq!(tell(&job), tell(&job));
    }
}
