//! Servers of PostgreSQL that go away: known answers of replays, and what clients see meanwhile.

use crate::jobs::postgresql;
use crate::jobs::servers::{MS, RATE, SECOND, at, job, limited, run};
use disklab_disk::profile::Scope;
use disklab_sim::cell::faults::{Event, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, simulate};

fn killed(at_s: u64, back_s: u64) -> Vec<Event> {
    vec![at(at_s, 0, What::Kill), at(back_s, 0, What::Start)]
}

fn lost(at_s: u64, back_s: u64) -> Vec<Event> {
    vec![at(at_s, 0, What::Lose), at(back_s, 0, What::Start)]
}

/// How long the server took from its start until it served.
fn start_s(faults: &FaultReport) -> f64 {
    let step = faults.steps.iter().find(|one| one.what == What::Start);
    let step = step.expect("it starts");
    assert!(!step.extrapolated);
    step.ended_s - step.begun_s
}

#[test]
fn nothing_is_served_while_the_server_is_away_and_everything_is_accounted_for() {
    let (report, faults) = run(&job(20, killed(5, 8)));
    let course = &faults.course;
    assert_eq!(course.completed[5..8], [0, 0, 0]);
    assert!(course.failed[5..8].iter().all(|&count| count >= RATE - 1));
    assert!(faults.unavailable > 0 && faults.unavailable <= faults.failed_operations);
    // Clients come back within a second: their pauses have grown to that.
    for second in [1, 3, 10, 15] {
        assert!(course.completed[second].abs_diff(RATE) <= 1, "{course:?}");
        assert_eq!(course.failed[second], 0);
    }
    let served: u64 = course.completed.iter().sum();
    let told = served + faults.failed_operations;
    // The last second is not whole.
    let whole = course.completed.len() as u64;
    assert!(told.abs_diff(whole * RATE) <= 4, "{told} in {whole} s");
    assert_eq!(report.unsent, 0);
}

#[test]
fn an_undisturbed_run_is_the_same_with_a_timetable_that_comes_too_late() {
    let mut without = job(10, Vec::new());
    postgresql(&mut without).faults = None;
    let alone = simulate(&without).expect("valid");
    let (report, faults) = run(&job(10, vec![at(9, 0, What::Mend)]));
    assert_eq!(alone.ops_per_s, report.ops_per_s);
    assert_eq!(alone.latency_ms.p99, report.latency_ms.p99);
    assert_eq!(faults.failed_operations, 0);
    assert!(faults.rebuilds.is_empty());
}

#[test]
fn the_log_of_a_lost_machine_is_read_at_the_rate_of_its_disk() {
    let mut job = job(60, lost(30, 31));
    limited(&mut job, Scope::Read, 4_000_000);
    let (_, faults) = run(&job);
    let [replay] = &faults.rebuilds[..] else {
        panic!("one replay: {:?}", faults.rebuilds);
    };
    // Some 15,000 updates in 30 s, whose pages, 10,000 of them, have images.
    assert!(
        (60_000_000..90_000_000).contains(&replay.bytes),
        "{replay:?}"
    );
    assert_eq!(replay.done_bytes, replay.bytes);
    // Behind it 10,000 pages are written, four at a time and a millisecond each.
    let seconds = replay.bytes as f64 / 4e6 + 2.5;
    assert!((replay.seconds / seconds - 1.0).abs() < 0.02, "{replay:?}");
    assert_eq!(replay.bound.resource, "data disk read MB/s");
}

#[test]
fn a_start_that_outlasts_the_run_is_told_with_the_rate_that_was_seen() {
    let told = |seconds| {
        let mut job = job(seconds, killed(30, 31));
        // Its checkpoint writes for 10 s.
        limited(&mut job, Scope::Write, 8_000_000);
        let faults = run(&job).1;
        let step = faults.steps.into_iter().find(|one| one.what == What::Start);
        step.expect("it starts")
    };
    let (whole, cut) = (told(90), told(36));
    assert!(!whole.extrapolated && cut.extrapolated);
    assert!(whole.ended_s > 38.0, "{whole:?}");
    let ratio = (cut.ended_s - cut.begun_s) / (whole.ended_s - whole.begun_s);
    assert!((0.9..1.1).contains(&ratio), "{cut:?} of {whole:?}");
}

#[test]
fn a_killed_server_finds_its_log_in_memory() {
    let wait = |events| {
        let mut job = job(60, events);
        limited(&mut job, Scope::Read, 4_000_000);
        start_s(&run(&job).1)
    };
    let (killed, lost) = (wait(killed(30, 31)), wait(lost(30, 31)));
    assert!(killed < 4.0 && lost > 15.0, "{killed} s and {lost} s");
}

#[test]
fn more_log_since_the_last_checkpoint_takes_longer() {
    let wait = |every_s: u64| {
        let mut job = job(60, killed(40, 41));
        let servers = postgresql(&mut job);
        servers.database.checkpoint_timeout_ns = every_s * SECOND;
        servers.faults.as_mut().expect("some").replay_record_cpu_ns = MS / 10;
        let (_, faults) = run(&job);
        (start_s(&faults), faults.rebuilds[0].bytes)
    };
    let (seldom, often) = (wait(3600), wait(8));
    assert!(seldom.0 > 2.0 * often.0, "{seldom:?} {often:?}");
    assert!(seldom.1 > 2 * often.1, "{seldom:?} {often:?}");
}

#[test]
fn one_process_replays_as_fast_as_its_core() {
    let mut job = job(60, killed(30, 31));
    let servers = postgresql(&mut job);
    servers.cluster.cores = 8;
    servers.faults.as_mut().expect("some").replay_record_cpu_ns = MS / 4;
    let (_, faults) = run(&job);
    // An update has a record of its page, some of a new page or a leaf, and one of its commit.
    let records = start_s(&faults) / 0.25e-3 / (30.0 * RATE as f64);
    assert!((2.0..4.5).contains(&records), "{records} an update");
    assert_eq!(faults.rebuilds[0].bound.resource, "replay process");
}

#[test]
fn pages_without_images_are_read_and_those_with_them_are_not() {
    let reads = |images| {
        let mut job = job(60, lost(30, 31));
        let servers = postgresql(&mut job);
        servers.database.full_page_writes = images;
        start_s(&run(&job).1)
    };
    // Each of 10,000 pages is a read of 1 ms, ten of them at a time; with images it is 82 MB of log in reads of 128 KiB.
    let (with, without) = (reads(true), reads(false));
    assert!((0.95..1.15).contains(&without), "{without}");
    assert!((0.63..0.85).contains(&with), "{with}");
}

#[test]
fn a_restart_in_order_replays_nothing() {
    let (_, faults) = run(&job(20, vec![at(5, 0, What::Restart)]));
    assert!(faults.rebuilds.is_empty());
    assert_eq!(faults.steps.len(), 1);
    assert!(faults.steps[0].ended_s > faults.steps[0].begun_s);
    assert!(faults.course.completed[10].abs_diff(RATE) <= 1);
}

#[test]
fn statements_to_a_machine_that_has_vanished_wait_for_their_time_out() {
    let mut job = job(40, lost(5, 30));
    let servers = postgresql(&mut job);
    servers.faults.as_mut().expect("some").vanishes = true;
    let (_, faults) = run(&job);
    // 200 sessions wait for 12 s; what is due meanwhile has none, and waits, too.
    assert_eq!(faults.course.failed[5..16].iter().sum::<u64>(), 0);
    assert!(faults.course.failed[17] > 200);
    let gone = job_gone_for_a_while();
    let (_, faults) = run(&gone);
    assert_eq!(faults.failed_operations, 200, "{:?}", faults.course);
}

/// It is back before its clients have noticed: they learn then that their connections are gone.
fn job_gone_for_a_while() -> Job {
    let mut job = job(40, lost(5, 8));
    postgresql(&mut job).faults.as_mut().expect("some").vanishes = true;
    job
}

#[test]
fn a_server_that_is_killed_while_it_replays_begins_again() {
    let mut events = lost(30, 31);
    events.extend([at(33, 0, What::Lose), at(34, 0, What::Start)]);
    let mut job = job(80, events);
    limited(&mut job, Scope::Read, 4_000_000);
    let (_, faults) = run(&job);
    let [replay] = &faults.rebuilds[..] else {
        panic!("one replay ends: {:?}", faults.rebuilds);
    };
    assert_eq!(replay.done_bytes, replay.bytes);
    let step = faults.steps.last().expect("four");
    // It reads all of its log again.
    assert!(step.ended_s - step.begun_s > 15.0, "{step:?}");
    assert!(
        faults.course.completed[75].abs_diff(RATE) <= 1,
        "{:?}",
        faults.course
    );
}

#[test]
fn a_standby_that_is_away_costs_nothing_while_another_confirms() {
    let of = |events| {
        let mut job = job(40, events);
        let servers = postgresql(&mut job);
        servers.cluster.nodes = 3;
        servers.database.synchronous_standbys = 1;
        run(&job).1
    };
    let one = of(vec![at(5, 1, What::Kill), at(20, 1, What::Start)]);
    assert_eq!(one.failed_operations, 0);
    assert!(
        one.course.completed[6..]
            .iter()
            .all(|&n| n.abs_diff(RATE) <= 1)
    );
    let both = of(vec![
        at(5, 1, What::Kill),
        at(5, 2, What::Kill),
        at(25, 1, What::Start),
    ]);
    // Commits wait for a standby until their clients give them up.
    assert_eq!(both.course.completed[6..25].iter().sum::<u64>(), 0);
    assert!(both.failed_operations >= 200);
    assert!(
        both.course.completed[35].abs_diff(RATE) <= 1,
        "{:?}",
        both.course
    );
}

#[test]
fn standbys_find_their_primary_again_within_seconds() {
    let mut job = job(40, killed(5, 6));
    let servers = postgresql(&mut job);
    servers.cluster.nodes = 3;
    servers.database.synchronous_standbys = 1;
    let (_, faults) = run(&job);
    assert_eq!(faults.course.completed[7..9].iter().sum::<u64>(), 0);
    assert!(
        faults.course.completed[15].abs_diff(RATE) <= 1,
        "{:?}",
        faults.course
    );
}

#[test]
fn a_closed_loop_goes_on_behind_a_kill() {
    let mut job = job(20, killed(5, 8));
    postgresql(&mut job).workload.load = Load::Closed { threads: 16 };
    let (_, faults) = run(&job);
    let course = &faults.course;
    assert_eq!(course.completed[6], 0);
    // 16 threads with a pause of 10 ms.
    assert!((1_400..=1_600).contains(&course.failed[6]), "{course:?}");
    let ratio = course.completed[15] as f64 / course.completed[3] as f64;
    assert!((0.9..1.1).contains(&ratio), "{course:?}");
}

#[test]
fn a_stalled_disk_fails_statements_by_their_time_out_and_mends() {
    let events = vec![at(5, 0, What::Stall), at(25, 0, What::Mend)];
    let (_, faults) = run(&job(40, events));
    assert_eq!(faults.course.completed[6..24].iter().sum::<u64>(), 0);
    assert!(faults.failed_operations >= 200);
    assert!(faults.course.completed[35].abs_diff(RATE) <= 1);
}

#[test]
fn the_same_seed_has_the_same_faults() {
    let tell = |job: &Job| format!("{:?}", run(job).1);
    let job = job(30, lost(5, 10));
    assert_eq!(tell(&job), tell(&job));
}

#[test]
fn a_server_that_is_not_there_and_an_event_of_other_databases_are_refused() {
    for event in [at(1, 1, What::Kill), at(1, 0, What::Replace)] {
        assert!(simulate(&job(10, vec![event])).is_err());
    }
}
