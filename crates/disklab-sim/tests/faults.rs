//! Nodes that go away: known answers of rebuilds, and what each consistency level still does.

use crate::jobs::faulty::{MB, SECOND, at, faults, job, run};
use crate::jobs::{answer, broken, close, database, disk, limit, near, open, told};
use disklab_disk::profile::{Limit, Scope, Unit};
use disklab_sim::cell::faults::{Event, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, RebuildReport, Report, simulate};

/// The only rebuild; `bytes` came back in about so many seconds, bound by what is named.
fn comes_back(job: &Job, seconds: f64, bound: &str) -> RebuildReport {
    let mut rebuilds = run(job).rebuilds;
    assert_eq!(rebuilds.len(), 1);
    let found = rebuilds.remove(0);
    let ratio = found.seconds / seconds;
    assert!(
        (ratio - 1.0).abs() < 0.02,
        "{} s, not {seconds}: {found:?}",
        found.seconds
    );
    assert_eq!(found.bound.resource, bound, "{found:?}");
    found
}

#[test]
fn one_stream_takes_its_bytes_over_the_rate_of_the_disk() {
    for (scope, name) in [
        (Scope::Read, "read "),
        (Scope::Write, "write "),
        (Scope::All, ""),
    ] {
        let mut job = job(2, 2, 30);
        disk(database(&mut job)).limits = vec![limit(scope, Unit::Bytes, 100 * MB)];
        let found = comes_back(&job, 10.0, &format!("data disk {name}MB/s"));
        assert_eq!(found.done_bytes, found.bytes);
        assert_eq!(found.sources, 1);
    }
}

#[test]
fn two_streams_share_the_disk_that_they_are_written_to() {
    let mut job = job(3, 3, 30);
    disk(database(&mut job)).limits = vec![limit(Scope::Write, Unit::Bytes, 100 * MB)];
    let found = comes_back(&job, 10.0, "data disk write MB/s");
    assert_eq!(found.sources, 2);
}

#[test]
fn two_streams_read_from_two_disks() {
    let mut job = job(3, 3, 30);
    disk(database(&mut job)).limits = vec![limit(Scope::Read, Unit::Bytes, 50 * MB)];
    comes_back(&job, 10.0, "data disk read MB/s");
}

#[test]
fn a_link_bounds_what_one_node_sends() {
    for (nodes, seconds) in [(2, 20.0), (3, 10.0)] {
        let mut job = job(nodes, nodes, 30);
        database(&mut job).cluster.network_bytes_per_s = Some(50 * MB);
        comes_back(&job, seconds, "node network");
    }
}

#[test]
fn the_throttle_of_streams_bounds_what_one_node_sends() {
    for (nodes, seconds) in [(2, 40.0), (3, 20.0), (5, 10.0)] {
        let mut job = job(nodes, nodes, 60);
        let faults = faults(&mut job);
        faults.stream_bytes_per_s = 25 * MB;
        comes_back(&job, seconds, "stream throughput");
    }
}

#[test]
fn one_thread_writes_what_one_node_sends() {
    let mut job = job(2, 2, 30);
    database(&mut job).database.table_write_bytes_per_s = 80 * MB;
    comes_back(&job, 12.5, "stream writer");
}

#[test]
fn without_a_limit_two_pieces_at_a_time_wait_for_their_disk() {
    // A read takes 1 ms, and two of 256 KiB are under way.
    let seconds = 1_000.0 * 1e6 / (2.0 * 262_144.0 * 1_000.0);
    comes_back(&job(2, 2, 30), seconds, "latency");
}

#[test]
fn what_the_run_does_not_reach_goes_on_at_the_same_rate() {
    let rate = |seconds| {
        let mut job = job(2, 2, seconds);
        disk(database(&mut job)).limits = vec![limit(Scope::Write, Unit::Bytes, 20 * MB)];
        job
    };
    let (short, long) = (run(&rate(12)), run(&rate(70)));
    let step = &short.steps[1];
    assert!(step.extrapolated && !long.steps[1].extrapolated);
    close(step.ended_s, long.steps[1].ended_s, 0.02);
    let rebuild = &short.rebuilds[0];
    assert!(rebuild.done_bytes < rebuild.bytes / 4, "{rebuild:?}");
}

#[test]
fn a_log_is_replayed_from_its_disk_and_its_rows_cost_cpu() {
    // 1,000 writes a second of 4096 B for ten seconds, none of them flushed.
    let replay = |kind: What| {
        let mut job = job(2, 2, 30);
        let database = database(&mut job);
        database.workload.read_ppm = 0;
        database.workload.load = open(1_000_000, Arrivals::Even, 4096);
        database.database.memtable_bytes = 1 << 40;
        disk(database).limits = vec![limit(Scope::Read, Unit::Bytes, 10 * MB)];
        let faults = database.faults.as_mut().expect("there are some");
        faults.events = vec![at(10, kind), at(12, What::Start)];
        run(&job)
    };
    let found = replay(What::Kill);
    let log = &found.rebuilds[0];
    assert_eq!(log.kind, "replay");
    close(log.bytes as f64, 10_000.0 * 4096.0, 0.01);
    assert!((log.seconds - 4.096).abs() < 0.1, "{log:?}");
    // What was replayed is flushed before the node serves.
    assert!(
        found.steps[1].ended_s > 12.0 + log.seconds,
        "{:?}",
        found.steps
    );
}

/// Operations that fail at a level when one of three nodes is killed for 15 seconds.
fn failures(level: Consistency, copies: u32, read_ppm: u32) -> (u64, Report) {
    let mut job = job(3, copies, 20);
    let database = database(&mut job);
    database.database.consistency = level;
    database.workload.read_ppm = read_ppm;
    let faults = database.faults.as_mut().expect("there are some");
    faults.events = vec![at(5, What::Kill)];
    let report = simulate(&job).expect("the job is valid");
    let found = report.faults.clone().expect("it has a timetable");
    (found.failed_operations, report)
}

#[test]
fn a_level_that_needs_the_lost_copy_fails_and_no_other() {
    let all = 100.0 * 15.0;
    for read_ppm in [0, 1_000_000] {
        for (level, copies, share) in [
            (Consistency::One, 3, 0.0),
            (Consistency::Quorum, 3, 0.0),
            (Consistency::All, 3, 1.0),
            (Consistency::One, 1, 1.0 / 3.0),
            // Of two copies on three nodes, two thirds of the rows have one on the lost node.
            (Consistency::Quorum, 2, 2.0 / 3.0),
            (Consistency::One, 2, 0.0),
        ] {
            let (failed, _) = failures(level, copies, read_ppm);
            let off = (failed as f64 - share * all).abs();
            assert!(
                off < 0.06 * all,
                "{level:?} of {copies}: {failed} of {all}, not {share}"
            );
        }
    }
}

#[test]
fn before_a_node_is_convicted_operations_that_ask_it_expire() {
    let mut job = job(3, 3, 20);
    let database = database(&mut job);
    database.database.consistency = Consistency::Quorum;
    let faults = database.faults.as_mut().expect("there are some");
    faults.events = vec![at(5, What::Kill)];
    faults.detect_ns = 4 * SECOND;
    let found = run(&job);
    // A third of the reads would have asked it beside the coordinator, which is one of the others: half of those that
    // two of three copies answer ask the lost one, for four seconds.
    let asked = 100.0 * 4.0 / 2.0;
    close(found.failed_operations as f64, asked, 0.2);
    assert_eq!(found.unavailable, 0);
    // They fail when their time is over.
    assert_eq!(found.course.failed[..10].iter().sum::<u64>(), 0);
}

#[test]
fn a_machine_that_vanishes_holds_its_clients_up_until_they_notice() {
    let mut job = job(3, 3, 30);
    let faults = faults(&mut job);
    faults.events = vec![at(5, What::Lose)];
    faults.notice_ns = 4 * SECOND;
    let found = run(&job);
    // A third of the operations goes to it.
    // 133, and by chance 9 more or fewer.
    let sent = 100.0 * 4.0 / 3.0;
    let off = (found.failed_operations as f64 - sent).abs();
    assert!(off < 30.0, "{found:?}");
}

#[test]
fn rows_without_another_copy_are_lost() {
    let found = run(&job(3, 1, 10));
    let rows = 1_000.0 * 1e6 / 4096.0;
    close(found.lost_rows as f64, rows / 3.0, 0.01);
    assert_eq!(run(&job(3, 2, 10)).lost_rows, 0);
}

#[test]
fn a_slow_disk_is_slow_until_it_is_mended() {
    let mut job = job(1, 1, 40);
    let faults = faults(&mut job);
    faults.events = [(10, What::Slow), (20, What::Mend)]
        .map(|(second, what)| Event {
            node: 0,
            ..at(second, what)
        })
        .to_vec();
    let report = simulate(&job).expect("the job is valid");
    // A quarter of the reads takes 10 ms, the others 1.
    let latency = &report.latency_ms;
    assert!((latency.p50 - 1.0).abs() < 0.05, "{latency:?}");
    assert!((latency.p95 - 10.0).abs() < 0.5, "{latency:?}");
    assert!((latency.mean - 3.25).abs() < 0.1, "{latency:?}");
}

#[test]
fn a_slow_disk_is_as_slow_as_its_event_says() {
    let mut job = job(1, 1, 40);
    let faults = faults(&mut job);
    faults.events = vec![Event {
        node: 0,
        slow_permille: Some(4_000),
        ..at(0, What::Slow)
    }];
    let report = simulate(&job).expect("the job is valid");
    assert!((report.latency_ms.p50 - 4.0).abs() < 0.2, "{report:?}");
}

#[test]
fn only_what_is_slow_says_how_slow() {
    for (what, permille) in [
        (What::Stall, 4_000),
        (What::Slow, 0),
        (What::Slow, 2_000_000),
    ] {
        let mut job = job(1, 1, 40);
        let faults = faults(&mut job);
        faults.events = vec![Event {
            node: 0,
            slow_permille: Some(permille),
            ..at(0, what)
        }];
        assert_eq!(broken(&job), ["faults.events.slow_permille"]);
    }
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let told = || serde_json::to_string(&run(&job(3, 3, 10))).expect("it is JSON");
    assert_eq!(told(), told());
}

/// The only event is that node 1 moves at 5 s to a host of its own, with such a data disk.
fn moves(job: &mut Job, what: What, limits: Vec<Limit>) {
    let database = database(job);
    let mut other = database.cluster.clone();
    other.host.volumes[0].disks[0].limits = limits;
    let faults = database.faults.as_mut().expect("there are some");
    faults.events = vec![Event {
        host: Some(0),
        ..at(5, what)
    }];
    faults.hosts = vec![other];
}

/// All that happens, happens to node 0.
fn only_node(job: &mut Job) {
    let faults = faults(job);
    faults.events.iter_mut().for_each(|event| event.node = 0);
}

#[test]
fn a_migrated_node_streams_from_those_that_lose_a_copy_and_the_old_one_gives_them_back() {
    let mut job = job(3, 3, 40);
    moves(
        &mut job,
        What::Migrate,
        vec![limit(Scope::Write, Unit::Bytes, 100 * MB)],
    );
    let faults = faults(&mut job);
    (faults.start_ns, faults.join_ns) = (2 * SECOND, SECOND);
    (faults.announce_ns, faults.leave_ns) = (3 * SECOND, SECOND);
    faults.stream_bytes_per_s = 50 * MB;
    let found = run(&job);
    let [comes, goes] = &found.rebuilds[..] else {
        panic!("{:?}", found.rebuilds)
    };
    // All three send a third each, which the new disk takes more slowly than they could send it.
    assert_eq!((comes.sources, comes.node), (3, 1));
    assert_eq!(comes.done_bytes, comes.bytes);
    assert!((comes.seconds - 10.0).abs() < 0.2, "{comes:?}");
    assert_eq!(comes.bound.resource, "data disk write MB/s");
    // Two thirds are of copies that the other two had lost, and go through the throttle of one.
    assert_eq!((goes.sources, goes.node), (1, 1));
    assert!((goes.bytes as f64 / 667e6 - 1.0).abs() < 0.03, "{goes:?}");
    assert!((goes.seconds - 13.3).abs() < 0.5, "{goes:?}");
    assert_eq!(goes.bound.resource, "stream throughput");
    let [step] = &found.steps[..] else {
        panic!("{:?}", found.steps)
    };
    assert_eq!((step.what, step.node), (What::Migrate, 1));
    assert!((step.ended_s - step.begun_s - 30.3).abs() < 0.8, "{step:?}");
    // Nobody waits for a node that moves.
    assert_eq!((found.failed_operations, found.lost_rows), (0, 0));
    assert!(found.course.completed.iter().all(|&count| count == 100));
}

#[test]
fn a_migration_that_the_run_does_not_reach_the_end_of_goes_on_with_both_streams() {
    let ends = |seconds: u64| {
        let mut job = job(3, 3, seconds);
        moves(&mut job, What::Migrate, Vec::new());
        let given = faults(&mut job);
        (given.announce_ns, given.leave_ns) = (2 * SECOND, SECOND);
        given.stream_bytes_per_s = 50 * MB;
        let mut steps = run(&job).steps;
        steps.remove(0)
    };
    // 6.7 s to come and 13.3 to give back, seen to the end, in the first stream, and between the two.
    let whole = ends(40);
    assert!(!whole.extrapolated, "{whole:?}");
    for seconds in [9, 13] {
        let part = ends(seconds);
        assert!(part.extrapolated);
        close(part.ended_s, whole.ended_s, 0.03);
    }
}

#[test]
fn what_is_read_after_a_migration_is_read_from_the_new_disk() {
    let reads_of = |limits: Vec<Limit>| {
        let mut job = job(1, 1, 40);
        moves(&mut job, What::Migrate, limits);
        only_node(&mut job);
        simulate(&job).expect("the job is valid").latency_ms.p99
    };
    // One read in two or so is made after it; a disk of 20 I/Os a second cannot serve 100.
    let slow = limit(Scope::Read, Unit::Ios, 20);
    let (fast, slow) = (reads_of(Vec::new()), reads_of(vec![slow]));
    assert!(slow > 100.0 * fast, "{slow} ms against {fast} ms");
}

#[test]
fn disks_that_move_bring_their_data() {
    let mut job = job(3, 3, 30);
    moves(&mut job, What::Move, Vec::new());
    let faults = faults(&mut job);
    faults.start_ns = 3 * SECOND;
    let found = run(&job);
    assert!(found.rebuilds.is_empty(), "{:?}", found.rebuilds);
    let step = &found.steps[0];
    assert!((step.ended_s - step.begun_s - 3.0).abs() < 0.1, "{step:?}");
    // The others serve what it has: it said so before it went.
    assert_eq!(found.failed_operations, 0);
    // It has what a VM that was lost does not: the same with one copy, of which a part is away for a while.
    let mut alone = job.clone();
    database(&mut alone).database.replication_factor = 1;
    let found = run(&alone);
    assert!(found.failed_operations > 0);
    assert_eq!(found.lost_rows, 0);
    let last = found.course.completed.len() - 1;
    assert_eq!(found.course.failed[last], 0, "{:?}", found.course);
}

#[test]
fn a_cut_node_is_back_when_its_link_is() {
    let mut job = job(2, 1, 30);
    let faults = faults(&mut job);
    faults.events = vec![at(5, What::Cut), at(15, What::Join)];
    faults.gossip_ns = SECOND;
    let found = run(&job);
    let failed = &found.course.failed;
    assert!(
        failed[..5]
            .iter()
            .chain(&failed[17..])
            .all(|&count| count == 0),
        "{failed:?}"
    );
    // Half of the rows are on the other node.
    let away: u64 = failed[6..15].iter().sum();
    assert!((350..550).contains(&away), "{failed:?}");
    let join = &found.steps[1];
    assert_eq!(join.what, What::Join);
    assert!((join.ended_s - 16.0).abs() < 0.1, "{join:?}");
    assert!(found.rebuilds.is_empty(), "it kept its memory");
}

#[test]
fn without_credits_a_disk_falls_to_its_baseline() {
    let burst = Limit {
        unit: Unit::Ios,
        burst: Some(disklab_disk::profile::Burst {
            per_s: 1_000,
            credits: Some(1_000_000),
            start: Some(1_000_000),
        }),
        ..limit(Scope::All, Unit::Bytes, 20)
    };
    let rate_after = |what| {
        let mut job = job(1, 1, 20);
        disk(database(&mut job)).limits = vec![burst.clone()];
        let faults = faults(&mut job);
        faults.events = vec![at(10, what)];
        only_node(&mut job);
        run(&job).course.completed[15]
    };
    assert_eq!(rate_after(What::Mend), 100);
    assert!(rate_after(What::Credits) < 40);
}

#[test]
fn a_move_without_a_host_is_refused() {
    let mut job = job(3, 3, 30);
    moves(&mut job, What::Move, Vec::new());
    let faults = faults(&mut job);
    faults.events[0].host = Some(1);
    assert_eq!(broken(&job), ["faults.events.host"]);
}

/// The steps and rebuilds of a job in which all that happens is this, to this node, at 5 s.
fn only(job: &mut Job, what: What, node: u32) -> FaultReport {
    let database = database(job);
    let other = database.cluster.clone();
    let faults = database.faults.as_mut().expect("there are some");
    let host = (what == What::Add).then_some(0);
    faults.events = vec![Event {
        node,
        host,
        ..at(5, what)
    }];
    faults.hosts = host.map(|_| other).into_iter().collect();
    run(job)
}

#[test]
fn an_added_node_streams_an_even_share_from_all_that_have_it() {
    let mut job = job(3, 3, 40);
    let given = faults(&mut job);
    (given.start_ns, given.join_ns) = (2 * SECOND, SECOND);
    given.stream_bytes_per_s = 25 * MB;
    let found = only(&mut job, What::Add, 3);
    // Three of four copies of what a node had come to it, a third from each.
    let [rebuild] = &found.rebuilds[..] else {
        panic!("{:?}", found.rebuilds)
    };
    assert_eq!((rebuild.sources, rebuild.node), (3, 3));
    close(rebuild.bytes as f64, 750e6, 0.02);
    assert!((rebuild.seconds - 10.0).abs() < 0.3, "{rebuild:?}");
    assert_eq!(rebuild.bound.resource, "stream throughput");
    let step = &found.steps[0];
    assert_eq!(
        (step.what, step.node, step.extrapolated),
        (What::Add, 3, false)
    );
    assert!((step.ended_s - step.begun_s - 13.0).abs() < 0.4, "{step:?}");
    assert_eq!((found.failed_operations, found.lost_rows), (0, 0));
}

#[test]
fn an_added_node_serves_what_it_has_streamed() {
    // A disk of 20 I/Os a second cannot serve half of 100 reads.
    let p99 = |limits: Vec<Limit>| {
        let mut job = job(1, 1, 40);
        let database = database(&mut job);
        let mut other = database.cluster.clone();
        other.host.volumes[0].disks[0].limits = limits;
        let given = faults(&mut job);
        given.events = vec![Event {
            node: 1,
            host: Some(0),
            ..at(1, What::Add)
        }];
        given.hosts = vec![other];
        simulate(&job).expect("the job is valid").latency_ms.p99
    };
    let slow = limit(Scope::Read, Unit::Ios, 20);
    let (fast, slow) = (p99(Vec::new()), p99(vec![slow]));
    assert!(slow > 100.0 * fast, "{slow} ms against {fast} ms");
}

#[test]
fn a_node_that_leaves_streams_what_it_has_to_the_others() {
    let mut job = job(4, 3, 50);
    let given = faults(&mut job);
    (given.announce_ns, given.leave_ns) = (SECOND, 3 * SECOND);
    given.stream_bytes_per_s = 50 * MB;
    let found = only(&mut job, What::Decommission, 1);
    let [rebuild] = &found.rebuilds[..] else {
        panic!("{:?}", found.rebuilds)
    };
    // Each of four has three quarters of the rows, and all of its own go through its own throttle.
    assert_eq!((rebuild.sources, rebuild.node), (1, 1));
    assert!((rebuild.seconds - 15.0).abs() < 0.4, "{rebuild:?}");
    assert_eq!(rebuild.bound.resource, "stream throughput");
    let step = &found.steps[0];
    assert!((step.ended_s - step.begun_s - 19.0).abs() < 0.5, "{step:?}");
    assert_eq!((found.failed_operations, found.lost_rows), (0, 0));
    assert!(
        found
            .course
            .completed
            .iter()
            .all(|&count| count.abs_diff(100) < 5)
    );
}

#[test]
fn what_a_node_left_behind_is_not_lost_with_it() {
    let lost = |leaves: bool| {
        let mut job = job(3, 1, 60);
        let given = faults(&mut job);
        given.events = [
            (5, What::Decommission),
            (40, What::Lose),
            (41, What::Replace),
        ]
        .map(|(second, what)| at(second, what))
        .to_vec();
        given.events[1].node = 2;
        given.events[2].node = 2;
        if !leaves {
            given.events.remove(0);
        }
        run(&job).lost_rows
    };
    // The third node has half of the rows by then, not a third.
    let ratio = lost(true) as f64 / lost(false) as f64;
    assert!((ratio - 1.5).abs() < 0.02, "{ratio}");
}

#[test]
fn one_change_of_the_ring_waits_for_another() {
    let mut job = job(4, 3, 60);
    let other = database(&mut job).cluster.clone();
    let given = faults(&mut job);
    given.stream_bytes_per_s = 50 * MB;
    given.events = vec![
        at(1, What::Decommission),
        Event {
            node: 4,
            host: Some(0),
            ..at(2, What::Add)
        },
    ];
    given.hosts = vec![other];
    let found = run(&job);
    let [leaves, joins] = &found.steps[..] else {
        panic!("{:?}", found.steps)
    };
    assert!(joins.begun_s >= leaves.ended_s, "{leaves:?} {joins:?}");
    assert!(!joins.extrapolated, "{joins:?}");
}

#[test]
fn a_repair_reads_every_copy_at_what_its_throttle_thread_or_disk_allows() {
    for (throttle, thread, read, seconds, bound) in [
        (50, 0, 0, 20.0, "compaction throughput"),
        (0, 40, 0, 25.0, "validation"),
        (0, 0, 100, 10.0, "data disk read MB/s"),
    ] {
        let mut job = job(3, 3, 40);
        let given = faults(&mut job);
        given.validate_bytes_per_s = throttle * MB;
        given.validate_thread_bytes_per_s = thread * MB;
        if read > 0 {
            disk(database(&mut job)).limits = vec![limit(Scope::Read, Unit::Bytes, read * MB)];
        }
        let found = only(&mut job, What::Repair, 1);
        let [rebuild] = &found.rebuilds[..] else {
            panic!("{:?}", found.rebuilds)
        };
        assert_eq!((rebuild.kind, rebuild.sources), ("validation", 3));
        close(rebuild.bytes as f64, 3000e6, 0.02);
        assert!((rebuild.seconds - seconds).abs() < 0.4, "{rebuild:?}");
        assert_eq!(rebuild.bound.resource, bound, "{rebuild:?}");
        let step = &found.steps[0];
        near(step.ended_s - step.begun_s, seconds, 0.4);
    }
}

#[test]
fn streams_whose_threads_share_a_core_are_bound_by_it() {
    let mut job = job(3, 3, 40);
    let database = database(&mut job);
    // Two threads want all of the only core.
    database.database.table_write_bytes_per_s = 80 * MB;
    database.cluster.cores = 1;
    comes_back(&job, 12.5, "node CPU");
}

#[test]
fn cells_that_go_on_from_one_warm_up_answer_as_they_do_alone() {
    let cells = [(0, What::Lose, 10), (1, What::Stall, 6), (2, What::Slow, 8)];
    let jobs = cells.map(|(cell, what, seconds)| {
        let mut job = job(3, 3, seconds);
        job.cell = cell;
        database(&mut job).workload.warm_up_ns = SECOND;
        faults(&mut job).events = vec![at(1, what)];
        job
    });
    let mut together = jobs[0].clone();
    together.then = [1, 2]
        .map(|cell| Follower {
            cell,
            database: database(&mut jobs[cell as usize].clone()).clone(),
            from_warm: true,
        })
        .to_vec();
    let reports = disklab_sim::simulate_all(&together).expect("they are alike");
    assert_eq!(reports.len(), 3);
    for (job, report) in jobs.iter().zip(reports) {
        assert_eq!(told(report), answer(job));
    }
    together.then[1].database.dataset.rows -= 1;
    let refusal = disklab_sim::simulate_all(&together).expect_err("other rows");
    assert!(refusal.to_string().contains("then.from_warm"), "{refusal}");
}

/// 300 even operations a second for 60 s, half of them reads, of three nodes with three copies at a quorum; node 1's volume
/// serves nothing from 5 to 35 s.
fn stalling(access: Access) -> Job {
    let mut job = job(3, 3, 60);
    let database = database(&mut job);
    database.database.access = access;
    database.database.consistency = Consistency::Quorum;
    database.database.speculative_percentile = 99;
    database.workload.read_ppm = 500_000;
    database.workload.load = open(300_000, Arrivals::Even, 1 << 20);
    let faults = faults(&mut job);
    faults.events = vec![at(5, What::Stall), at(35, What::Mend)];
    faults.detect_ns = 19 * SECOND;
    job
}

/// Operations a second that succeed from one second to another.
fn rate(told: &FaultReport, from: usize, to: usize) -> f64 {
    let completed = &told.course.completed[from..to];
    completed.iter().sum::<u64>() as f64 / (to - from) as f64
}

#[test]
fn a_node_whose_mapped_pages_do_not_come_answers_none_of_its_clients() {
    let told = run(&stalling(Access::Mmap));
    close(rate(&told, 0, 5), 300.0, 0.02);
    close(rate(&told, 15, 35), 200.0, 0.02);
    // From the safepoint within a second on, until 12 s before it goes on: what came later is answered then.
    near(
        told.failed_operations as f64,
        100.0 * (30.0 - 12.0 - 1.0),
        50.0,
    );
    close(
        rate(&told, 34, 37),
        (2.0 * 300.0 + 200.0 + 100.0 * 12.0) / 3.0,
        0.1,
    );
    close(rate(&told, 40, 59), 300.0, 0.02);
    assert_eq!(told.unavailable, 0);
    // The others call it down in the end: then writes leave hints from the start.
    assert!(told.hint_bytes > 0, "{told:?}");
}

#[test]
fn a_node_that_reads_by_calls_goes_on_while_its_volume_stalls() {
    for (job, is_index_read) in [
        (stalling(Access::Standard), true),
        (stalling(Access::MmapIndexOnly), false),
    ] {
        let mut job = job;
        // Where the index is mapped and in memory, nobody waits for a page of it.
        job.ablate = if is_index_read {
            vec![]
        } else {
            vec![Mechanism::IndexPages]
        };
        let told = run(&job);
        assert!(rate(&told, 15, 35) > 290.0, "{told:?}");
    }
    let mut off = stalling(Access::Mmap);
    off.ablate = vec![Mechanism::Pauses];
    let (off, standard) = (run(&off), run(&stalling(Access::Standard)));
    close(rate(&off, 15, 35), rate(&standard, 15, 35), 0.02);
}

#[test]
fn threads_of_a_closed_loop_end_up_at_the_node_that_stands_still() {
    let mut job = stalling(Access::Mmap);
    database(&mut job).workload.load = Load::Closed { threads: 16 };
    let told = run(&job);
    assert!(rate(&told, 10, 16) < 0.02 * rate(&told, 0, 5), "{told:?}");
    assert!(rate(&told, 40, 59) > 0.9 * rate(&told, 0, 5), "{told:?}");
}
