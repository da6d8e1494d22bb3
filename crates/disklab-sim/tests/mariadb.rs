//! MariaDB: known answers, an ablation for each mechanism, and I/Os and bytes beside those of a real server.
//!
//! **Source** of the real ones: mariadb-server 10.11.19 on this project's machine (2 CPUs, one virtual disk), 2026-11-27, sysbench 1.0.20
//! with `--table-size=2000000 --rand-type=uniform`, `innodb_buffer_pool_size` 128 MB, `innodb_log_file_size` 96 MB, deltas of SHOW GLOBAL
//! STATUS and /proc/PID/io over 15 to 20 s after a warm-up.

use crate::jobs;
use crate::jobs::servers::at;
use crate::jobs::{close, host, json, mariadb, network, postgresql, postgresql_job};
use disklab_disk::profile::{Distribution, HostProfile};
use disklab_sim::cell::faults::{Event, What};
use disklab_sim::cell::*;
use disklab_sim::{FaultReport, Report, simulate};
use serde_json::json;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn access(table: &str, kind: AccessKind, rows: u32, bytes: Option<u32>) -> RowAccess {
    RowAccess {
        table: table.to_owned(),
        kind,
        rows,
        draw: if rows > 1 {
            RowDraw::Run
        } else {
            RowDraw::Uniform
        },
        written_bytes: bytes,
    }
}

fn statement(times: u32, commits: bool, accesses: Vec<RowAccess>) -> Statement {
    Statement {
        times,
        inside: false,
        commits,
        reported_as: None,
        bytes: 200,
        accesses,
    }
}

fn writes() -> Vec<Statement> {
    use AccessKind::{Insert, Update};
    let entry = || access("k", Insert, 1, None);
    vec![
        statement(
            1,
            false,
            vec![access("sbtest", Update, 1, Some(20)), entry()],
        ),
        statement(1, false, vec![access("sbtest", Update, 1, Some(140))]),
        statement(
            1,
            false,
            vec![access("sbtest", Update, 1, Some(20)), entry()],
        ),
        statement(1, false, vec![access("sbtest", Insert, 1, None), entry()]),
        statement(1, true, vec![]),
    ]
}

fn reads() -> Vec<Statement> {
    use AccessKind::Read;
    vec![
        statement(10, false, vec![access("sbtest", Read, 1, None)]),
        statement(4, false, vec![access("sbtest", Read, 100, None)]),
    ]
}

/// A disk about as fast as the real server's was, and two CPUs.
fn fast() -> HostProfile {
    let mut host = host();
    let latency = &mut host.volumes[0].disks[0].latency;
    latency.read = Distribution::constant(100 * US);
    latency.write = Distribution::constant(100 * US);
    latency.flush = Distribution::constant(150 * US);
    host
}

/// sysbench on the server that was measured, for 20 s after 20.
fn job(statements: Vec<Statement>, threads: u32, pool_mib: u64) -> Job {
    let mut template = postgresql_job(AccessKind::Read, threads, 40 * SECOND, 1);
    let mut other = postgresql(&mut template).clone();
    other.workload.transactions[0].statements = statements;
    other.workload.warm_up_ns = 20 * SECOND;
    let table = |name: &str, row_bytes, entry_bytes| Relation {
        name: name.to_owned(),
        rows: 2_000_000,
        row_bytes,
        entry_bytes,
        ..Relation::default()
    };
    let job = MariadbJob {
        cluster: Cluster {
            host: fast(),
            cores: 2,
            ..other.cluster
        },
        client: other.client,
        network: network(10 * US),
        database: json(json!({
            "tls": false, "buffer_pool_bytes": pool_mib << 20, "log_file_bytes": 96 << 20,
            "syncs_redo": true, "writes_binlog": true, "sync_binlog": 1, "doublewrite": true,
            "io_capacity": 200, "io_capacity_max": 2000, "lru_scan_depth": 1536,
            "old_blocks_pct": 37, "old_blocks_time_ns": SECOND,
        })),
        tables: vec![table("sbtest", 208, 8), table("k", 0, 13)],
        workload: other.workload,
        before: Before::default(),
        parameters: json(json!({
            "overhead_ns": 0, "client_cpu_ns": 0, "statement_cpu_ns": 17 * US, "tls_cpu_ns": 0,
            "row_read_cpu_ns": 4 * US, "row_write_cpu_ns": 12 * US, "scan_row_cpu_ns": 380,
            "page_read_cpu_ns": 55 * US, "page_write_cpu_ns": 3 * US, "commit_cpu_ns": 108 * US,
            "replication_cpu_ns": 10 * US, "redo_row_bytes": 110, "redo_commit_bytes": 70,
            "binlog_commit_bytes": 367,
        })),
        faults: None,
    };
    template.kind = Kind::Mariadb(job);
    template
}

fn run(job: &Job) -> Report {
    let report = simulate(job).expect("the job is valid");
    let sums = &report.telemetry;
    println!(
        "{:.1}/s, reads {:.3} of {:.0} B, writes {:.3}, {:.0} B, hits {:?}",
        report.ops_per_s,
        sums.read_ios_per_operation,
        sums.read_bytes_per_operation,
        sums.write_ios_per_operation,
        sums.write_bytes_per_operation,
        sums.block_cache_hit_ratio
    );
    report
}

fn without(mechanism: Mechanism, job: &Job) -> Report {
    run(&Job {
        ablate: vec![mechanism],
        ..job.clone()
    })
}

#[test]
fn reads_are_as_many_as_the_real_servers() {
    let select = statement(1, false, vec![access("sbtest", AccessKind::Read, 1, None)]);
    close(
        run(&job(vec![select], 4, 128))
            .telemetry
            .read_ios_per_operation,
        0.767,
        0.05,
    );
    let sums = run(&job(reads(), 4, 128)).telemetry;
    close(sums.read_ios_per_operation, 14.88, 0.05);
    close(sums.read_bytes_per_operation, 243_858.0, 0.05);
}

#[test]
fn a_write_transaction_has_the_ios_and_bytes_of_the_real_servers() {
    // Of one thread. With eight the real one did 3.66 reads and 137,302 B: purge, which is not simulated, and an index that
    // had split by then.
    let sums = run(&job(writes(), 1, 128)).telemetry;
    close(sums.read_ios_per_operation, 2.681, 0.12);
    close(sums.write_bytes_per_operation, 107_016.0, 0.1);
}

#[test]
fn purge_of_deleted_rows_holds_searches_up_and_reads_and_writes_neighbours() {
    use AccessKind::{Delete, Read};
    let select = || statement(1, false, vec![access("sbtest", Read, 1, None)]);
    let rows = |statements| {
        let mut job = job(statements, 16, 64);
        let settings = mariadb(&mut job);
        settings.tables[0].rows = 400_000;
        settings.workload.warm_up_ns = 2 * SECOND;
        settings.workload.stop.duration_ns = Some(6 * SECOND);
        let latency = &mut settings.cluster.host.volumes[0].disks[0].latency;
        latency.read = Distribution::constant(2 * MS);
        settings.tables[0].row_bytes = 4_126;
        settings.tables[0].fill_sessions = 16;
        settings.database.writes_binlog = false;
        settings.database.sync_binlog = 0;
        job
    };
    let delete = statement(1, true, vec![access("sbtest", Delete, 1, None)]);
    let deletes = rows(vec![statement(4, false, select().accesses), delete]);
    let free = without(Mechanism::Purge, &deletes);
    let usual = run(&deletes);
    let unlocked = without(Mechanism::IndexLocks, &deletes);
    assert!(unlocked.ops_per_s > 1.2 * usual.ops_per_s);
    let sums = (&unlocked.telemetry, &free.telemetry);
    assert!(sums.0.read_ios_per_operation > 1.05 * sums.1.read_ios_per_operation);
    assert!(sums.0.write_bytes_per_operation > 1.1 * sums.1.write_bytes_per_operation);
    // MySQL's searches go on.
    let mut mysql = deletes.clone();
    mariadb(&mut mysql).database.splits_exclude_searches = false;
    assert_eq!(run(&mysql).ops_per_s, unlocked.ops_per_s);
    // Nothing is deleted: nothing is purged.
    let reads = rows(vec![select()]);
    assert_eq!(run(&reads).events, without(Mechanism::Purge, &reads).events);
}

#[test]
fn without_doublewrite_a_page_is_written_once() {
    let with = job(writes(), 8, 128);
    let mut off = with.clone();
    mariadb(&mut off).database.doublewrite = false;
    let off = run(&off).telemetry.write_bytes_per_operation;
    let twice = run(&with).telemetry.write_bytes_per_operation;
    // Real, with and without: 137,302 and 78,217 B, of which logs are some 7,500.
    close((twice - 8_500.0) / (off - 8_500.0), 2.0, 0.05);
    let ablated = without(Mechanism::Doublewrite, &with).telemetry;
    close(ablated.write_bytes_per_operation, off, 0.01);
}

/// Updates and reads of rows of 1 KiB from a pool of 8 MiB and a slow disk.
fn small_pool() -> Job {
    use AccessKind::{Read, Update};
    let select = statement(4, false, vec![access("sbtest", Read, 1, None)]);
    let update = statement(1, true, vec![access("sbtest", Update, 1, Some(1_000))]);
    let mut job = job(vec![select, update], 16, 8);
    let server = mariadb(&mut job);
    server.tables[0].row_bytes = 1_061;
    server.tables[0].rows = 200_000;
    server.database.writes_binlog = false;
    server.database.sync_binlog = 0;
    let latency = &mut server.cluster.host.volumes[0].disks[0].latency;
    latency.read = Distribution::constant(4 * MS);
    latency.write = Distribution::constant(8 * MS);
    job
}

#[test]
fn a_pass_of_the_cleaner_writes_all_changed_pages_that_it_meets() {
    let job = small_pool();
    let (usual, without) = (run(&job), without(Mechanism::LruPasses, &job));
    let writes = |report: &Report| report.telemetry.write_ios_per_operation;
    assert!(writes(&usual) > 1.05 * writes(&without));
}

#[test]
fn batches_of_the_doublewrite_buffer_hold_each_other_up() {
    let mut small = small_pool();
    mariadb(&mut small).database.lru_passes = false;
    mariadb(&mut small).database.doublewrite_pages = 4;
    let one = run(&small);
    let mut cleaners = small.clone();
    mariadb(&mut cleaners).database.doublewrite_batches = 4;
    let four = run(&cleaners);
    assert!(four.ops_per_s > 1.5 * one.ops_per_s);
    let free = without(Mechanism::DoublewriteBatches, &small);
    assert!(free.ops_per_s > 0.98 * four.ops_per_s);
    // With O_DIRECT no copy waits for a sync.
    let latency = |job: &mut Job| {
        let latency = &mut mariadb(job).cluster.host.volumes[0].disks[0].latency;
        latency.flush = Distribution::constant(10 * MS);
    };
    latency(&mut small);
    let mut direct = small.clone();
    mariadb(&mut direct).database.doublewrite_until = BatchEnd::Placed;
    assert!(run(&direct).ops_per_s > 1.2 * run(&small).ops_per_s);
}

#[test]
fn entries_of_an_index_wait_in_the_change_buffer_for_their_leaves() {
    let add = statement(1, true, vec![access("k", AccessKind::Insert, 1, None)]);
    let mut job = job(vec![add], 8, 64);
    mariadb(&mut job).tables[1].rows = 20_000_000;
    let reads = |report: &Report| report.telemetry.read_ios_per_operation;
    let usual = reads(&run(&job));
    mariadb(&mut job).database.change_buffering = true;
    let buffered = run(&job);
    // Ten leaves a second are read for what waits for them: 5 % of `io_capacity`.
    assert!(reads(&buffered) * buffered.ops_per_s < 12.0);
    let ablated = reads(&without(Mechanism::ChangeBuffering, &job));
    assert!(usual > 0.5 && (ablated / usual - 1.0).abs() < 0.01);
}

#[test]
fn adaptive_flushing_writes_pages_before_the_log_is_full() {
    let mut job = job(writes(), 8, 800);
    mariadb(&mut job).database.log_file_bytes = 1 << 30;
    let with = run(&job);
    let late = without(Mechanism::AdaptiveFlushing, &job);
    // Its age is beyond a tenth of the log's size, and not close to it.
    let bytes = |report: &Report| report.telemetry.write_bytes_per_operation;
    assert!(
        bytes(&with) > bytes(&late) * 1.2,
        "{} of {}",
        bytes(&with),
        bytes(&late)
    );
}

#[test]
fn a_commit_waits_for_the_redo_log_and_then_for_the_binary_log() {
    let mut alone = job(writes(), 1, 800);
    let server = mariadb(&mut alone);
    server.parameters.commit_cpu_ns = 0;
    let latency = &mut server.cluster.host.volumes[0].disks[0].latency;
    latency.flush = Distribution::constant(5 * MS);
    let both = run(&alone).latency_ms.mean;
    mariadb(&mut alone).database.sync_binlog = 0;
    let redo = run(&alone).latency_ms.mean;
    mariadb(&mut alone).database.syncs_redo = false;
    let none = run(&alone).latency_ms.mean;
    // Reads of pages that have not come yet move a little with the rate.
    close(both - redo, 5.1, 0.1);
    close(redo - none, 5.1, 0.1);
}

#[test]
fn a_binary_log_that_grows_waits_for_the_file_systems_journal() {
    let mut plain = job(writes(), 1, 800);
    let server = mariadb(&mut plain);
    server.parameters.commit_cpu_ns = 0;
    let latency = &mut server.cluster.host.volumes[0].disks[0].latency;
    latency.write = Distribution::constant(3 * MS);
    let mut ext4 = plain.clone();
    mariadb(&mut ext4).database.binlog_journal_writes = 2;
    close(
        run(&ext4).latency_ms.mean - run(&plain).latency_ms.mean,
        6.0,
        0.1,
    );
}

#[test]
fn every_tenth_group_of_commits_waits_for_the_binary_log() {
    let mut each = job(writes(), 1, 800);
    let server = mariadb(&mut each);
    server.parameters.commit_cpu_ns = 0;
    let latency = &mut server.cluster.host.volumes[0].disks[0].latency;
    latency.flush = Distribution::constant(5 * MS);
    let mut tenth = each.clone();
    mariadb(&mut tenth).database.sync_binlog = 10;
    let mut never = each.clone();
    mariadb(&mut never).database.sync_binlog = 0;
    let mean = |report: Report| report.latency_ms.mean;
    let (all, none) = (mean(run(&each)), mean(run(&never)));
    close(all - mean(run(&tenth)), 0.9 * (all - none), 0.1);
    // As if it were synced with each.
    close(mean(without(Mechanism::SyncPeriod, &tenth)), all, 0.001);
    assert_eq!(mean(without(Mechanism::SyncPeriod, &never)), none);
}

#[test]
fn a_commit_waits_for_the_other_servers() {
    let mut alone = job(writes(), 1, 800);
    let server = mariadb(&mut alone);
    server.parameters.commit_cpu_ns = 0;
    server.parameters.replication_cpu_ns = 0;
    let usual = run(&alone).latency_ms.mean;
    // Five statements with a way of 1 ms there and back, and one of both for the commit's changes.
    for (replication, nodes) in [(Replication::SemiSync, 2), (Replication::Galera, 3)] {
        let mut copies = alone.clone();
        let server = mariadb(&mut copies);
        server.network = network(MS);
        server.cluster.nodes = nodes;
        server.database.replication = replication;
        let waiting = run(&copies).latency_ms.mean;
        let server = mariadb(&mut copies);
        server.cluster.nodes = 1;
        server.database.replication = Replication::Alone;
        let far = run(&copies).latency_ms.mean;
        close(waiting - far, 2.0, 0.1);
        assert!(far > usual, "{far} of {usual}");
    }
}

#[test]
fn a_node_of_galera_that_cannot_keep_up_holds_commits_up() {
    let update = statement(
        1,
        true,
        vec![access("sbtest", AccessKind::Update, 1, Some(100))],
    );
    let mut galera = job(vec![update], 64, 64);
    let server = mariadb(&mut galera);
    (server.cluster.nodes, server.cluster.cores) = (3, 64);
    let database = &mut server.database;
    database.replication = Replication::Galera;
    (database.syncs_redo, database.sync_binlog) = (false, 0);
    database.writes_binlog = false;
    let latency = &mut server.cluster.host.volumes[0].disks[0].latency;
    latency.read = Distribution::constant(4 * MS);
    let all = run(&galera);
    // A thread reads a leaf for nearly each change, in 4 ms: a pool of 64 MiB has a seventh of 450.
    close(
        all.ops_per_s,
        1000.0 / (4.0 * (1.0 - 64.0 / 450.0) + 0.13),
        0.1,
    );
    mariadb(&mut galera).database.applier_threads = 4;
    let four = run(&galera);
    close(four.ops_per_s, 4.0 * all.ops_per_s, 0.1);
    let free = without(Mechanism::FlowControl, &galera);
    assert!(free.ops_per_s > 2.0 * four.ops_per_s, "nobody waits");
}

#[test]
fn logs_that_nobody_waits_for_are_written_in_larger_pieces() {
    let mut all = job(writes(), 1, 800);
    // So large that its age has no page written.
    mariadb(&mut all).database.log_file_bytes = 8 << 30;
    let mut none = all.clone();
    let database = &mut mariadb(&mut none).database;
    (database.syncs_redo, database.sync_binlog) = (false, 0);
    let mut without = none.clone();
    mariadb(&mut without).database.writes_binlog = false;
    let (all, none, without) = (run(&all), run(&none), run(&without));
    let bytes = |report: &Report| report.telemetry.write_bytes_per_operation;
    assert!(none.ops_per_s > 1.2 * all.ops_per_s, "no commit waits");
    // Two blocks and more of each log for each commit, against their bytes.
    assert!(
        bytes(&all) - bytes(&none) > 5_000.0,
        "{} {}",
        bytes(&all),
        bytes(&none)
    );
    let binlog = 20.0 + 20.0 + 140.0 + 208.0 + 3.0 * 13.0 + 367.0;
    close(bytes(&none) - bytes(&without), binlog, 0.4);
}

/// Writes for 30 s of which a server is killed in the twentieth, and started in the next.
pub fn killed(pool_mib: u64) -> Job {
    let mut job = job(writes(), 4, pool_mib);
    let server = mariadb(&mut job);
    server.workload.warm_up_ns = 0;
    server.workload.stop.duration_ns = Some(30 * SECOND);
    server.faults = Some(SqlFaults {
        events: vec![at(20, 0, What::Kill), at(21, 0, What::Start)],
        ..jobs::servers::waits()
    });
    job
}

#[test]
fn a_server_that_comes_back_purges_what_was_deleted_before() {
    let delete = || statement(1, true, vec![access("sbtest", AccessKind::Delete, 1, None)]);
    for events in [
        vec![at(3, 0, What::Kill), at(4, 0, What::Start)],
        vec![at(3, 0, What::Restart)],
    ] {
        let mut job = killed(64);
        let server = mariadb(&mut job);
        server.workload.transactions[0].statements = vec![delete()];
        server.tables[0].rows = 400_000;
        server.tables[0].row_bytes = 4_126;
        server.faults.as_mut().expect("some").events = events;
        let reads = |report: &Report| report.telemetry.read_ios_per_operation;
        let (usual, free) = (run(&job), without(Mechanism::Purge, &job));
        assert!(reads(&usual) > 1.1 * reads(&free));
        let course = usual.faults.expect("it has a timetable").course;
        assert!(course.completed[28] > 100, "{course:?}");
    }
}

fn faults(job: &Job) -> FaultReport {
    run(job).faults.expect("it has a timetable")
}

fn start_s(faults: &FaultReport) -> f64 {
    let step = faults.steps.iter().find(|step| step.what == What::Start);
    let step = step.expect("it starts");
    assert!(!step.extrapolated, "{step:?}");
    step.ended_s - step.begun_s
}

#[test]
fn a_killed_server_serves_when_it_has_read_its_log_and_the_pages_of_it() {
    let mut job = killed(800);
    mariadb(&mut job).database.log_file_bytes = 2 << 20;
    // A page in a millisecond, one at a time.
    mariadb(&mut job)
        .faults
        .as_mut()
        .expect("some")
        .replay_depth = 1;
    let latency = &mut mariadb(&mut job).cluster.host.volumes[0].disks[0].latency;
    latency.read = Distribution::constant(MS);
    let told = faults(&job);
    let [replay] = &told.rebuilds[..] else {
        panic!("one recovery: {:?}", told.rebuilds);
    };
    assert_eq!((replay.kind, replay.done_bytes), ("replay", replay.bytes));
    let without = start_s(&faults(&Job {
        ablate: vec![Mechanism::RecoveryReads],
        ..job.clone()
    }));
    let slow = start_s(&told);
    mariadb(&mut job)
        .faults
        .as_mut()
        .expect("some")
        .replay_depth = 8;
    let quick = start_s(&faults(&job));
    // 100 ms of the process's start and a few reads of a log of some MB; then pages, one by one or eight at a time.
    assert!((0.1..0.3).contains(&without), "{without}");
    assert!(slow > 1.0, "{slow}");
    // The CPU of a page is beside its read.
    close((slow - without) / (quick - without), 8.0, 0.2);
    let course = &told.course;
    assert_eq!(course.completed[20], 0, "{course:?}");
    assert!(course.completed[28] > 0, "{course:?}");
    assert!(told.unavailable > 0 && told.unavailable <= told.failed_operations);
}

#[test]
fn a_smaller_log_leaves_less_to_recover() {
    let told = |mib: u64| {
        let mut job = killed(800);
        mariadb(&mut job).database.log_file_bytes = mib << 20;
        let told = faults(&job);
        (start_s(&told), told.rebuilds[0].bytes)
    };
    let (large, small) = (told(96), told(8));
    assert!(small.1 <= 8 << 20, "{small:?}");
    assert!(large.1 > 2 * small.1, "{large:?} {small:?}");
    assert!(large.0 > small.0, "{large:?} {small:?}");
}

#[test]
fn a_server_that_ends_in_order_has_nothing_to_recover() {
    let mut job = killed(800);
    let events = &mut mariadb(&mut job).faults.as_mut().expect("some").events;
    *events = vec![at(20, 0, What::Restart)];
    let latency = &mut mariadb(&mut job).cluster.host.volumes[0].disks[0].latency;
    latency.write = Distribution::constant(5 * MS);
    let told = faults(&job);
    assert!(told.rebuilds.is_empty());
    let [step] = &told.steps[..] else {
        panic!("one step: {:?}", told.steps);
    };
    // It writes its changed pages first.
    assert!(
        !step.extrapolated && step.ended_s - step.begun_s > 0.3,
        "{step:?}"
    );
}

#[test]
fn the_first_row_of_a_leaf_is_found_by_the_leaf_before() {
    let mut select = access("sbtest", AccessKind::Read, 1, None);
    select.draw = RowDraw::Uniform;
    let mut job = job(vec![statement(1, false, vec![select])], 4, 32);
    // Three rows to a leaf, and next to none of the leaves is in the pool.
    mariadb(&mut job).tables[0].row_bytes = 4126;
    close(run(&job).telemetry.read_ios_per_operation, 4.0 / 3.0, 0.02);
}

#[test]
fn leaves_that_several_sessions_filled_are_emptier_and_more() {
    let mut select = access("sbtest", AccessKind::Read, 1, None);
    select.draw = RowDraw::Uniform;
    let mut job = job(vec![statement(1, false, vec![select])], 4, 32);
    let table = &mut mariadb(&mut job).tables[0];
    (table.row_bytes, table.fill_sessions) = (4126, 32);
    // Our server has 2.25 such rows to a leaf: the search for one of them goes through another leaf first.
    close(
        run(&job).telemetry.read_ios_per_operation,
        1.0 + 1.0 / 2.25,
        0.03,
    );
    close(
        without(Mechanism::FillOrder, &job)
            .telemetry
            .read_ios_per_operation,
        4.0 / 3.0,
        0.02,
    );
}

/// Writes for 30 s of several servers, to which something happens; each second's completed transactions.
fn broken(replication: Replication, nodes: u32, events: &[Event]) -> Vec<u64> {
    let mut job = killed(800);
    let server = mariadb(&mut job);
    (server.cluster.nodes, server.database.replication) = (nodes, replication);
    if replication == Replication::Galera {
        (server.database.writes_binlog, server.database.sync_binlog) = (false, 0);
    }
    server.faults.as_mut().expect("some").events = events.to_vec();
    let told = faults(&job);
    assert_eq!(
        told.failed_operations, 0,
        "the one that takes them is there"
    );
    assert_eq!(told.steps.len(), events.len());
    told.course.completed
}

#[test]
fn commits_wait_for_another_server_that_has_ended_and_then_go_on() {
    for (replication, nodes) in [(Replication::SemiSync, 2), (Replication::Galera, 3)] {
        let course = broken(replication, nodes, &[at(10, 1, What::Kill)]);
        assert!(course[9] > 100, "{course:?}");
        assert_eq!(course[11..15].iter().sum::<u64>(), 0, "{course:?}");
        // Behind five seconds they do as many as before.
        close(course[17] as f64, course[8] as f64, 0.3);
    }
}

#[test]
fn a_disk_of_another_node_of_galera_holds_commits_up_and_that_of_a_replica_none() {
    let events = [at(10, 1, What::Stall), at(15, 1, What::Mend)];
    let galera = broken(Replication::Galera, 3, &events);
    // Flow control takes 28 commits, and the node's threads have some.
    assert!(galera[11..15].iter().sum::<u64>() < 60, "{galera:?}");
    close(galera[18] as f64, galera[8] as f64, 0.3);
    let pair = broken(Replication::SemiSync, 2, &events);
    close(pair[12] as f64, pair[8] as f64, 0.3);
}

#[test]
fn a_run_is_the_same_with_a_timetable_that_comes_too_late() {
    let mut late = killed(128);
    mariadb(&mut late).faults.as_mut().expect("some").events = vec![at(29, 0, What::Mend)];
    let mut without = late.clone();
    mariadb(&mut without).faults = None;
    let (late, without) = (run(&late), run(&without));
    assert_eq!(late.ops_per_s, without.ops_per_s);
    assert_eq!(late.latency_ms.p99, without.latency_ms.p99);
}

#[test]
fn texts_of_several_statements_take_one_way_and_locks_write_nothing() {
    let parts = |inside| {
        let mut select = statement(1, false, vec![access("sbtest", AccessKind::Lock, 1, None)]);
        let begins = select.clone();
        (select.times, select.inside) = (9, inside);
        let mut job = job(vec![begins, select], 1, 800);
        let server = mariadb(&mut job);
        server.network = network(MS);
        server.workload.transactions[0].statements[1].commits = true;
        run(&job)
    };
    let (text, each) = (parts(true), parts(false));
    close(each.latency_ms.p50 - text.latency_ms.p50, 9.0 * 2.0, 0.1);
    assert_eq!(text.telemetry.write_ios_per_operation, 0.0);
}

#[test]
fn rows_are_added_at_the_end_of_each_district() {
    // A pool that has no room for all ends: each insert reads one of 4,000 leaves.
    let reads = |ends| {
        let mut insert = access("sbtest", AccessKind::Insert, 5, Some(50));
        insert.draw = RowDraw::Uniform;
        let mut job = job(vec![statement(1, true, vec![insert])], 4, 32);
        mariadb(&mut job).tables[0].ends = ends;
        run(&job).telemetry.read_ios_per_operation
    };
    assert!(reads(0) < 0.01, "the last leaf is in the pool");
    let each = reads(4_000);
    assert!(
        (0.3..1.0).contains(&each),
        "{each} a statement of five rows"
    );
}

/// Inserts of rows of 1,061 B behind the last one, whose pages leave a pool of 64 MiB.
fn inserts(threads: u32) -> Job {
    let mut job = job(
        vec![statement(
            1,
            true,
            vec![access("sbtest", AccessKind::Insert, 1, None)],
        )],
        threads,
        64,
    );
    let server = mariadb(&mut job);
    server.tables.truncate(1);
    server.tables[0].row_bytes = 1_061;
    (server.database.writes_binlog, server.database.sync_binlog) = (false, 0);
    job
}

#[test]
fn rows_that_are_added_make_pages_that_nobody_reads() {
    let bytes = |threads: u32, doublewrite: bool| {
        let mut job = inserts(threads);
        mariadb(&mut job).database.doublewrite = doublewrite;
        let sums = run(&job).telemetry;
        assert_eq!(sums.read_ios_per_operation, 0.0);
        sums.write_bytes_per_operation
    };
    // Fourteen rows of one session to a page, about ten of many; pages of undo are written beside them.
    let (alone, many) = (
        bytes(1, true) - bytes(1, false),
        bytes(32, true) - bytes(32, false),
    );
    assert!((1_170.0..1_600.0).contains(&alone), "{alone}");
    assert!((1_600.0..1_900.0).contains(&many), "{many}");
}

#[test]
fn pages_of_an_empty_table_are_made_and_not_read() {
    let mut job = inserts(4);
    let server = mariadb(&mut job);
    server.tables[0].rows = 1_000_000;
    server.workload.keys = Keys::Uniform;
    let insert = &mut server.workload.transactions[0].statements[0].accesses[0];
    insert.draw = RowDraw::Keys;
    server.workload.warm_up_ns = 0;
    let reads = |job: &Job| run(job).telemetry.read_ios_per_operation;
    let filled = reads(&job);
    mariadb(&mut job).before.empty = true;
    let empty = reads(&job);
    assert!(empty < 0.8 * filled, "{empty} {filled}");
}

#[test]
fn the_binary_log_has_rows_before_and_after_a_change() {
    let bytes = |rows| {
        let update = vec![access("sbtest", AccessKind::Update, 1, Some(20))];
        let mut job = job(vec![statement(1, true, update)], 1, 800);
        let database = &mut mariadb(&mut job).database;
        (database.binlog_rows, database.sync_binlog) = (rows, 0);
        database.log_file_bytes = 1 << 34;
        run(&job).telemetry.write_bytes_per_operation
    };
    let more = bytes(true) - bytes(false);
    // 416 bytes instead of 20, written back every five seconds.
    assert!((300.0..500.0).contains(&more), "{more}");
}
