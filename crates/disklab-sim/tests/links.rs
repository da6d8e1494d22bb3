//! Links that are slow, lossy or cut: what goes over them, and what TCP makes of it.

use crate::jobs::faulty::{SECOND, at, faults, job, run};
use crate::jobs::{close, database, near, open};
use disklab_sim::cell::faults::{Event, LinkChange, Peer, What};
use disklab_sim::cell::*;
use disklab_sim::simulate;

/// A change of the link of node 0, or of its way to another, at a second.
fn link(second: u64, what: What, peer: Option<Peer>, change: LinkChange) -> Event {
    Event {
        node: 0,
        peer,
        link: Some(change),
        ..at(second, what)
    }
}

#[test]
fn a_slow_link_adds_its_round_trip_until_it_is_joined() {
    // One node, whose link is slow for a quarter of the time: reads of 1 ms take 41.
    let mut job = job(1, 1, 40);
    let slow = LinkChange {
        extra_ns: 20_000_000,
        ..LinkChange::default()
    };
    faults(&mut job).events = vec![
        link(10, What::SlowLink, None, slow),
        link(20, What::Join, None, slow),
    ];
    let report = simulate(&job).expect("the job is valid");
    let latency = &report.latency_ms;
    assert!((latency.p50 - 1.0).abs() < 0.1, "{latency:?}");
    assert!((latency.p95 - 41.0).abs() < 1.0, "{latency:?}");
    let steps = report.faults.expect("it has a timetable").steps;
    assert_eq!(
        steps.iter().map(|s| s.what).collect::<Vec<_>>(),
        [What::SlowLink, What::Join]
    );
}

#[test]
fn a_slow_way_is_slow_for_what_goes_over_it() {
    let p50 = |peer: Peer, copies: u32| {
        let mut job = job(2, copies, 20);
        let database = database(&mut job);
        database.database.consistency = Consistency::All;
        let slow = LinkChange {
            extra_ns: 20_000_000,
            ..LinkChange::default()
        };
        faults(&mut job).events = vec![link(1, What::SlowLink, Some(peer), slow)];
        simulate(&job).expect("the job is valid").latency_ms
    };
    // All copies are asked, so every read crosses the way between the two, and half of them that of the client.
    assert!((p50(Peer::Node(1), 2).p50 - 41.0).abs() < 1.0);
    let client = p50(Peer::Client, 2);
    assert!(client.p50 < 41.5 && client.p95 > 40.0, "{client:?}");
}

#[test]
fn a_lossy_link_keeps_quiet_connections_waiting_for_their_timer() {
    let mut job = job(1, 1, 40);
    database(&mut job).workload.load = open(2_000, Arrivals::Even, 4096);
    let loss = LinkChange {
        loss_ppm: 20_000,
        ..LinkChange::default()
    };
    faults(&mut job).events = vec![link(1, What::Lossy, None, loss)];
    let latency = simulate(&job).expect("the job is valid").latency_ms;
    // Two a second: a request or its answer (of three packets) is lost in 8 of 100, and waits for 200 ms.
    assert!(latency.p50 < 1.5, "{latency:?}");
    assert!((latency.p99 - 201.0).abs() < 25.0, "{latency:?}");
}

#[test]
fn a_stream_over_a_lossy_link_is_bound_by_it() {
    let mut job = job(2, 2, 30);
    database(&mut job).network.one_way_ns = 500_000;
    let loss = LinkChange {
        loss_ppm: 10_000,
        ..LinkChange::default()
    };
    faults(&mut job)
        .events
        .insert(0, link(1, What::Lossy, None, loss));
    let mut found = run(&job);
    let rebuild = found.rebuilds.remove(0);
    assert_eq!(rebuild.bound.resource, "link", "{rebuild:?}");
    // sqrt(1.5 / 0.01) packets of 1,448 bytes each millisecond.
    let rate = (1.5_f64 / 0.01).sqrt() * 1448.0 / 1e-3;
    close(rebuild.bytes_per_s, rate, 0.05);
}

#[test]
fn a_cut_between_two_fails_what_needs_both_and_no_more() {
    let failed = |level: Consistency, nodes: u32| {
        let mut job = job(nodes, 3.min(nodes), 20);
        database(&mut job).database.consistency = level;
        database(&mut job).workload.read_ppm = 0;
        let given = faults(&mut job);
        given.detect_ns = 2 * SECOND;
        given.events = vec![link(
            5,
            What::Cut,
            Some(Peer::Node(1)),
            LinkChange {
                cut: true,
                ..LinkChange::default()
            },
        )];
        run(&job)
    };
    // Writes at ALL by either of the two miss the other; those by the third do not.
    let all = failed(Consistency::All, 3);
    let expected = 100.0 * (15.0 - 2.0) * 2.0 / 3.0;
    close(all.failed_operations as f64, expected, 0.1);
    // The third tells each of the other, so nobody is convicted: they time out.
    assert_eq!(all.unavailable, 0);
    assert_eq!(failed(Consistency::Quorum, 3).failed_operations, 0);
    // Without a third they convict each other.
    let two = failed(Consistency::All, 2);
    assert!(two.unavailable > 1_000, "{two:?}");
}

#[test]
fn a_client_that_is_cut_from_a_node_goes_to_the_others() {
    let mut job = job(3, 3, 30);
    let given = faults(&mut job);
    given.notice_ns = 4 * SECOND;
    given.events = vec![
        link(
            5,
            What::Cut,
            Some(Peer::Client),
            LinkChange {
                cut: true,
                ..LinkChange::default()
            },
        ),
        link(
            20,
            What::Join,
            Some(Peer::Client),
            LinkChange {
                cut: true,
                ..LinkChange::default()
            },
        ),
    ];
    let found = run(&job);
    // A third of a hundred a second for four seconds, and by chance some more or fewer.
    near(found.failed_operations as f64, 133.0, 40.0);
    assert_eq!(
        found.course.failed[13..].iter().sum::<u64>(),
        0,
        "{found:?}"
    );
}
