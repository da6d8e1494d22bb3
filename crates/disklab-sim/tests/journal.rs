//! A job that asks for single I/Os gets them, and the same report.

use crate::jobs;
use crate::jobs::{broken, limit};
use disklab_disk::profile::{Limit, Scope, Unit};
use disklab_sim::cell::{Job, Journal};
use disklab_sim::{Report, simulate};

const WANTED: Journal = Journal {
    from_ns: 1_000_000_000,
    most: 200,
};

/// The reports without and with a journal.
fn both(mut job: Job) -> (Report, Report) {
    let without = simulate(&job).expect("the job is valid");
    job.journal = Some(WANTED);
    (without, simulate(&job).expect("the job is valid"))
}

fn text(report: &Report) -> String {
    let mut report = report.clone();
    (report.wall_s, report.journal) = (0.0, None);
    serde_json::to_string(&report).expect("a report is JSON")
}

fn slow() -> Limit {
    limit(Scope::All, Unit::Ios, 1_000)
}

/// 64 threads at a disk of 1,000 I/Os a second that each take 1 ms: of each 64 ms, 63 are the limit's.
#[test]
fn reads_of_a_database_are_told_with_the_limit_that_they_wait_for() {
    let mut job = jobs::reads(64, 20_000, 3);
    jobs::disk(jobs::database(&mut job)).limits = vec![slow()];
    let (without, report) = both(job);
    assert_eq!(text(&without), text(&report));
    assert!(without.journal.is_none());
    let ios = report.journal.expect("it was asked for");
    assert_eq!(ios.len(), WANTED.most as usize);
    for io in &ios {
        assert_eq!((io.route, io.disk.as_str()), ("read", "data disk 0"));
        assert!(io.arrived_ns >= WANTED.from_ns);
        let [(limit, from, to)] = io.waits.as_slice() else {
            panic!("one limit, not {:?}", io.waits);
        };
        assert_eq!((limit.as_str(), *from), ("data disk IOPS", io.arrived_ns));
        assert_eq!(*to, io.passed_ns);
        let ms = |ns: u64| ns as f64 / 1e6;
        assert!((ms(to - from) / 63.0 - 1.0).abs() < 0.05);
        assert!((ms(io.ended_ns - io.passed_ns) - 1.0).abs() < 1e-9);
    }
    assert_eq!(report.bottleneck.resource, ios[0].waits[0].0);
}

#[test]
fn every_kind_of_job_with_disks_has_them() {
    let second = 1_000_000_000;
    let mut selects = jobs::selects(16, 3 * second, 1);
    let sql = jobs::sql(&mut selects);
    sql.tables[0].rows *= 24;
    sql.database.block_cache_bytes = 1 << 20;
    sql.before = disklab_sim::cell::Before::default();
    for job in [jobs::fio(500_000, 1, 16, 3 * second), selects] {
        let (without, report) = both(job);
        assert_eq!(text(&without), text(&report));
        let ios = report.journal.expect("it was asked for");
        assert!(!ios.is_empty() && ios.len() <= WANTED.most as usize);
    }
}

#[test]
fn too_many_are_refused() {
    let mut job = jobs::fio(0, 1, 1, 1_000_000);
    job.journal = Some(Journal {
        most: 1_001,
        ..WANTED
    });
    assert_eq!(broken(&job), ["journal.most"]);
}
