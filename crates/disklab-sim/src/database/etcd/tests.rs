//! etcd: known answers. A disk writes and flushes in constant times, so that each wait can be counted.

use disklab_disk::profile::Distribution;

use serde_json::json;

use crate::cell::*;
use crate::job::faults::What;
use crate::report::{LogReport, Report};
use crate::simulate;
use crate::tests::cluster;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ONE_WAY: u64 = 100 * US;
const WRITE: u64 = 2 * MS;
const FLUSH: u64 = 500 * US;

/// Members whose processors and clients take no time, under puts of 3,900 bytes: each fills a block of the log.
fn job(members: u32, load: Load) -> Job {
    let etcd = EtcdJob {
        cluster: constant(cluster(members, None)),
        client: json(json!({"nodes": 1, "cores": 64, "token_aware": false})),
        network: json(json!({"one_way_ns": ONE_WAY})),
        database: settings(),
        tables: vec![json(json!({
            "name": "rows", "rows": 10_000, "row_bytes": 3_900, "entry_bytes": 0,
        }))],
        workload: json(json!({
            "transactions": [{
                "name": "write", "share_ppm": 1_000_000,
                "statements": [statement(AccessKind::Update)],
            }],
            "load": load, "keys": "uniform", "stop": {"duration_ns": 60 * SECOND},
        })),
        before: Before::default(),
        parameters: EtcdParameters {
            entry_bytes: 196,
            ..EtcdParameters::default()
        },
        faults: None,
    };
    Job {
        cell: 0,
        seed: 1,
        fidelity: Fidelity::Full,
        ablate: Vec::new(),
        journal: None,
        kind: Kind::Etcd(etcd),
        then: Vec::new(),
    }
}

/// What a job has in this form, and the rest as usual.
fn json<T: serde::de::DeserializeOwned>(form: serde_json::Value) -> T {
    serde_json::from_value(form).expect("it is of that form")
}

/// Members whose disks always take the same times.
fn constant(mut cluster: Cluster) -> Cluster {
    let latency = &mut cluster.host.volumes[0].disks[0].latency;
    latency.write = Distribution::constant(WRITE);
    latency.flush = Distribution::constant(FLUSH);
    cluster
}

/// What etcd has without a setting.
fn settings() -> EtcdSettings {
    EtcdSettings {
        tls: false,
        heartbeat_ns: 100 * MS,
        election_ns: SECOND,
        batch_interval_ns: 100 * MS,
        batch_puts: 10_000,
        snapshot_entries: 100_000,
        journal_writes: 0,
    }
}

fn statement(kind: AccessKind) -> Statement {
    json(json!({
        "commits": true, "bytes": 4_100,
        "accesses": [{"table": "rows", "kind": kind, "draw": "keys"}],
    }))
}

fn etcd(job: &mut Job) -> &mut EtcdJob {
    match &mut job.kind {
        Kind::Etcd(etcd) => etcd,
        other => panic!("a job of etcd, not {other:?}"),
    }
}

fn closed(threads: u32) -> Load {
    Load::Closed { threads }
}

/// Puts at a rate at which two hardly ever meet.
fn seldom() -> Load {
    Load::Open {
        rate_per_ks: 2_000,
        arrivals: Arrivals::Even,
        max_in_flight: 100,
    }
}

fn run(job: &Job) -> (Report, LogReport) {
    let report = simulate(job).expect("a sound job");
    let log = report.log.clone().expect("etcd tells of its log");
    (report, log)
}

/// Whether a figure in milliseconds is a time, as far as a histogram's buckets tell.
fn is(figure_ms: f64, time_ns: u64) -> bool {
    let time_ms = time_ns as f64 / 1e6;
    (figure_ms - time_ms).abs() <= time_ms / 100.0
}

#[test]
fn a_put_of_a_single_member_waits_for_a_write_and_a_flush() {
    let (report, log) = run(&job(1, seldom()));
    assert!(is(log.sync_ms.p50, WRITE + FLUSH), "{:?}", log.sync_ms);
    let put = 2 * ONE_WAY + WRITE + FLUSH;
    assert!(is(report.latency_ms.p50, put), "{:?}", report.latency_ms);
    assert_eq!(log.late_heartbeats_per_hour, None, "it sends none");
}

#[test]
fn a_put_of_three_members_waits_for_the_sync_of_a_follower() {
    let (report, _) = run(&job(3, seldom()));
    // There and back, to a follower while the leader syncs and back; two of three are asked through another member, which
    // the request and the news of its commit take one way more each to.
    let of_leader = 2 * ONE_WAY + WRITE + FLUSH + 2 * ONE_WAY;
    let (least, most) = (
        of_leader as f64 / 1e6,
        (of_leader + 2 * ONE_WAY) as f64 / 1e6,
    );
    let mean = report.latency_ms.mean;
    assert!(mean > least * 0.99 && mean < most * 1.2, "{mean} ms");
}

#[test]
fn puts_that_come_meanwhile_share_the_next_sync() {
    let rate = |threads| run(&job(1, closed(threads))).0.ops_per_s;
    let one = rate(1);
    // Each round takes all that have come: nearly as many rounds a second, with 64 puts each.
    assert!(rate(64) > 25.0 * one, "{} against {one}", rate(64));
}

#[test]
fn a_commit_of_the_database_takes_two_syncs_and_holds_puts_up() {
    let mut held = job(1, closed(1));
    let (report, log) = run(&held);
    // The pages, a sync, the page that names the newest tree, a sync.
    assert!(
        is(log.commit_ms.p50, 2 * (WRITE + FLUSH)),
        "{:?}",
        log.commit_ms
    );
    etcd(&mut held).database.batch_interval_ns = 10 * SECOND;
    let rare = run(&held).0;
    assert!(report.latency_ms.p99 > 1.5 * rare.latency_ms.p95);
    assert!(report.ops_per_s < rare.ops_per_s);
}

#[test]
fn so_many_puts_are_committed_before_their_time() {
    let mut early = job(1, closed(16));
    let commits = |job: &Job| run(job).1.backend_commits;
    let by_time = commits(&early);
    etcd(&mut early).database.batch_puts = 10;
    assert!(commits(&early) > 3 * by_time);
}

#[test]
fn a_log_of_its_own_volume_is_not_held_up_by_commits() {
    let mut apart = job(1, closed(32));
    let sum = |job: &Job| run(job).1.wal_fsyncs;
    let shared = sum(&apart);
    let mut log = etcd(&mut apart).cluster.host.volumes[0].clone();
    log.name = "wal".to_owned();
    etcd(&mut apart).cluster.host.volumes.push(log);
    etcd(&mut apart).cluster.commitlog_volume = Some("wal".to_owned());
    assert!(sum(&apart) >= shared);
}

#[test]
fn the_journal_is_written_where_a_put_begins_a_block() {
    let mut journaled = job(1, seldom());
    let writes = |job: &Job| run(job).0.telemetry.write_ios_per_operation;
    let bare = writes(&journaled);
    etcd(&mut journaled).database.journal_writes = 2;
    // Two of the log's sync, two of the commit's.
    assert!((writes(&journaled) - bare - 4.0).abs() < 0.1);
    let sync_ms = run(&journaled).1.sync_ms.p50;
    assert!(is(sync_ms, 3 * WRITE + FLUSH), "{sync_ms}");
}

#[test]
fn a_disk_that_takes_long_makes_heartbeats_late_and_begins_elections() {
    let mut slow = job(3, closed(8));
    let (_, quick) = run(&slow);
    assert_eq!(quick.late_heartbeats_per_hour, Some(0.0));
    assert_eq!(quick.elections_per_hour, Some(0.0));
    let of_disk = |slow: &mut Job, write_ns| {
        let disk = &mut etcd(slow).cluster.host.volumes[0].disks[0];
        disk.latency.write = Distribution::constant(write_ns);
    };
    of_disk(&mut slow, 300 * MS);
    let (_, late) = run(&slow);
    assert!(late.late_heartbeats_per_hour > Some(1_000.0), "{late:?}");
    assert_eq!(late.elections_per_hour, Some(0.0));
    of_disk(&mut slow, 3 * SECOND);
    let (_, gone) = run(&slow);
    assert!(gone.elections_per_hour > Some(100.0), "{gone:?}");
}

#[test]
fn a_read_waits_for_the_leaders_loop_and_a_majority() {
    let mut reads = job(3, seldom());
    etcd(&mut reads).workload.transactions[0].statements = vec![statement(AccessKind::Read)];
    let (report, log) = run(&reads);
    assert_eq!(log.wal_fsyncs, 0);
    let least = (4 * ONE_WAY) as f64 / 1e6;
    assert!(report.latency_ms.p50 >= least * 0.99 && report.latency_ms.max < 2.0 * least);
    let mut alone = job(1, seldom());
    etcd(&mut alone).workload.transactions[0].statements = vec![statement(AccessKind::Read)];
    assert!(is(run(&alone).0.latency_ms.p50, 2 * ONE_WAY));
}

#[test]
fn snapshots_are_written_beside() {
    let mut many = job(1, closed(4));
    let ios = |job: &Job| run(job).0.disk_ios;
    let few = ios(&many);
    etcd(&mut many).database.snapshot_entries = 100;
    assert!(ios(&many) > few);
}

#[test]
fn the_same_job_gives_the_same_answer_and_every_bad_one_a_reason() {
    let same = job(3, closed(16));
    let answer = |job: &Job| run(job).0.ops_per_s.to_bits();
    assert_eq!(answer(&same), answer(&same));
    let mut bad = job(2, closed(16));
    etcd(&mut bad).database.heartbeat_ns = 0;
    etcd(&mut bad).tables[0].rows = 1 << 40;
    let refusal = simulate(&bad)
        .expect_err("three rules are broken")
        .to_string();
    for rule in ["cluster.nodes", "heartbeat_ns", "tables"] {
        assert!(refusal.contains(rule), "{refusal}");
    }
}

/// Three members of 48 sessions, of which something happens to one at 5 s, for 30 s of a minute.
fn broken(what: What, member: u32) -> Report {
    run(&breaking(what, member)).0
}

fn breaking(what: What, member: u32) -> Job {
    let mut job = job(3, closed(48));
    let event =
        |at_s: u64, what: What| json!({"at_ns": at_s * SECOND, "node": member, "what": what});
    let back = if what == What::Lose {
        What::Start
    } else {
        What::Mend
    };
    etcd(&mut job).faults = Some(json(json!({
        "events": [event(5, what), event(35, back)], "interval_ns": SECOND, "start_ns": 300 * MS,
        "timeout_ns": 7 * SECOND, "vanishes": false, "first_retry_ns": 100 * MS, "most_retry_ns": SECOND, "follow_ns": SECOND,
    })));
    job
}

/// Rates of the seconds before, late in the fault, and behind it; and how many seconds without success it had.
fn rates(report: &Report) -> (u64, u64, u64, usize) {
    let course = &report.faults.as_ref().expect("there was one").course;
    let done = &course.completed;
    let none = done.iter().filter(|&&count| count == 0).count();
    (done[3], done[30], done[55], none)
}

#[test]
fn followers_of_a_leader_without_a_disk_elect_another_and_clients_lose_a_time_out() {
    let report = broken(What::Stall, 0);
    let (before, late, _, none) = rates(&report);
    assert_eq!(
        report.log.expect("it has one").elections_per_hour,
        Some(60.0)
    );
    // Who had asked the old leader waits for 7 s, its own clients all the while.
    assert!((6..=8).contains(&none), "{none} s");
    assert!(
        late * 3 > before * 3 / 2 && late < before,
        "{late} of {before}"
    );
    // Messages of one length hold a member that was away one round behind the others for good.
    let mut job = breaking(What::Stall, 0);
    etcd(&mut job).parameters.message_cpu_ns = 100 * US;
    let (before, _, after, _) = rates(&run(&job).0);
    assert!(after * 10 > before * 9, "{after} of {before}");
}

#[test]
fn a_follower_without_a_disk_costs_its_own_clients_alone() {
    let report = broken(What::Stall, 1);
    let (before, late, _, none) = rates(&report);
    assert_eq!(none, 0);
    assert!(
        late * 3 > before * 3 / 2 && late < before,
        "{late} of {before}"
    );
    let lost = report.faults.expect("there was one").failed_operations;
    // Sixteen sessions, each 7 s.
    assert!((16 * 3..=16 * 5).contains(&lost), "{lost}");
}

#[test]
fn clients_of_a_lost_member_go_to_the_next_one() {
    let (before, late, after, none) = rates(&broken(What::Lose, 2));
    assert_eq!(none, 0);
    assert!(
        late * 10 > before * 8 && after * 10 > before * 8,
        "{before} {late} {after}"
    );
    let (_, late, _, none) = rates(&broken(What::Lose, 0));
    assert!(late * 10 > before * 8, "{late} of {before}");
    assert!((1..=8).contains(&none), "{none} s");
}

#[test]
fn a_slow_follower_holds_nobody_up_but_its_own_clients() {
    let (before, late, _, _) = rates(&broken(What::Slow, 1));
    assert!(
        late * 3 > before * 3 / 2 && late < before,
        "{late} of {before}"
    );
    let (_, of_leader, _, _) = rates(&broken(What::Slow, 0));
    assert!(of_leader * 4 < before, "{of_leader} of {before}");
}
