//! Traces whose answers are known exactly, since the disk's service time is.

use crate::jobs;
use crate::jobs::{answer, close, limit, near};
use disklab_disk::profile::{Scope, Unit};
use disklab_sim::cell::{Job, Trace};
use disklab_sim::{Report, simulate};

/// One I/O of 4 KiB each `gap_ns`, every third a write.
fn trace(count: u64, gap_ns: u64, depth: Option<u32>) -> Trace {
    Trace {
        at_ns: (0..count).map(|n| n * gap_ns).collect(),
        offset_bytes: (0..count).map(|n| n * 7919 % 100_000 * 4096).collect(),
        len_bytes: vec![4096; count as usize],
        is_write: (0..count).map(|n| n % 3 == 0).collect(),
        depth,
    }
}

fn job(trace: Trace, limit_per_s: Option<u64>) -> Job {
    let mut job = jobs::fio(jobs::ALL_READS, 1, 1, 1);
    let device = jobs::device(&mut job);
    device.fio = None;
    device.trace = Some(trace);
    let own = limit_per_s.map(|per_s| limit(Scope::All, Unit::Ios, per_s));
    device.host.volumes[0].disks[0].limits = own.into_iter().collect();
    job
}

fn run(trace: Trace, limit_per_s: Option<u64>) -> Report {
    simulate(&job(trace, limit_per_s)).expect("valid")
}

/// The disk of these tests serves each I/O in exactly a millisecond; a histogram has three digits.
fn is_a_millisecond(found: f64) -> bool {
    (found - 1.0).abs() < 0.001
}

fn refusal(job: &Job) -> String {
    simulate(job).expect_err("refused").to_string()
}

#[test]
fn below_the_limits_each_io_takes_what_the_disk_takes_and_the_rate_is_the_traces() {
    let report = run(trace(3_000, 2_000_000, None), Some(5_000));
    assert!(
        is_a_millisecond(report.latency_ms.mean),
        "{:?}",
        report.latency_ms
    );
    assert!(
        is_a_millisecond(report.latency_ms.max),
        "{:?}",
        report.latency_ms
    );
    assert_eq!(report.per_operation["write"].operations, 1_000);
    assert_eq!(report.per_operation["read"].operations, 2_000);
    assert!(
        (report.ops_per_s - 500.0).abs() < 1e-6,
        "{}",
        report.ops_per_s
    );
}

#[test]
fn above_the_limit_the_queue_grows_as_long_as_the_trace_does() {
    // Offered 1000 a second, 500 pass: after n I/Os the queue is n/1000 seconds long.
    let report = run(trace(4_000, 1_000_000, None), Some(500));
    close(report.ops_per_s, 500.0, 0.01);
    close(report.latency_ms.max, 4_000.0, 0.01);
    close(report.latency_ms.p50, 2_000.0, 0.01);
    assert_eq!(report.bottleneck.resource, "disk IOPS");
}

#[test]
fn a_closed_loop_keeps_its_depth_under_way_whatever_the_times_say() {
    let report = run(trace(4_000, 60_000_000_000, Some(8)), None);
    near(report.mean_in_flight, 8.0, 0.05);
    assert!(
        is_a_millisecond(report.latency_ms.p50),
        "{:?}",
        report.latency_ms
    );
    near(report.elapsed_s, 0.5, 0.001);
}

#[test]
fn the_same_trace_gives_the_same_figures() {
    let told = || answer(&job(trace(2_000, 300_000, None), Some(3_000)));
    assert_eq!(told(), told());
}

#[test]
fn what_breaks_a_rule_is_refused_with_its_place() {
    let refused = |change: fn(&mut Trace)| {
        let mut given = trace(10, 1_000, None);
        change(&mut given);
        refusal(&job(given, None))
    };
    assert!(refused(|t| t.offset_bytes[4] = 1 << 40).contains("within the volume's"));
    assert!(refused(|t| t.offset_bytes[4] = u64::MAX).contains("within the volume's"));
    assert!(refused(|t| t.len_bytes[4] = 0).contains("a byte at least"));
    assert!(refused(|t| t.at_ns[4] = 0).contains("order of time"));
    assert!(refused(|t| t.is_write.truncate(3)).contains("as many entries"));
    assert!(refused(|t| t.depth = Some(0)).contains("under way"));
    let mut both = job(trace(10, 1_000, None), None);
    let fio = jobs::device(&mut jobs::fio(jobs::ALL_READS, 1, 1, 1))
        .fio
        .take();
    jobs::device(&mut both).fio = fio;
    assert!(refusal(&both).contains("either fio or a trace"));
}
