//! The two loops against a database that can be told to misbehave.

mod fake;

use std::sync::mpsc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disklab_load::LoadError;
use disklab_load::job::Job;
use fake::{Fake, Manners};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::{Value, json};

/// Longer than any run here takes on a busy machine; a run that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn job(fake: &Fake, changes: &[(&str, Value)]) -> Value {
    let mut job = json!({
        "seed": 7,
        "target": {"protocol": "cql", "contact_points": [fake.address.to_string()], "request_timeout_ms": 5_000},
        "workload": {"kind": "rows", "rows": 100, "columns": 3, "column_bytes": 37, "keys": "uniform",
                     "operations": {"read": 1.0}},
        "load": {"threads": 4},
        "stop": {"operations": 1_000},
    });
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        job.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    job
}

/// Runs a job; its events, and how it ended.
fn run(job: &Value) -> (Vec<Value>, Result<(), LoadError>) {
    let job = Job::parse(&job.to_string()).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = Vec::new();
        let ended = disklab_load::run(&job, &mut lines);
        let _ = sender.send((lines, ended));
    });
    let (lines, ended) = receiver.recv_timeout(PATIENCE).expect("a run ends");
    let lines = String::from_utf8(lines).unwrap();
    let events = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (events.collect(), ended)
}

fn done(job: &Value) -> Value {
    let (mut events, ended) = run(job);
    ended.unwrap();
    let done = events.pop().unwrap();
    assert_eq!(done["event"], "done");
    done
}

fn fill(fake: &Fake) {
    fill_cluster(fake);
    assert_eq!(fake.keys(), (0..100).collect::<Vec<_>>());
}

/// Fills a table of which each node has a part.
fn fill_cluster(node: &Fake) {
    let filled = done(&job(
        node,
        &[
            ("/workload/keys", json!("sequential")),
            ("/workload/operations", json!({"write": 1.0})),
            ("/stop/operations", json!(100)),
        ],
    ));
    assert_eq!(filled["operations"]["write"]["count"], 100);
}

fn histogram(packed: &Value) -> Histogram<u64> {
    let bytes = STANDARD.decode(packed.as_str().unwrap()).unwrap();
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .unwrap()
}

/// The recorded latencies in milliseconds, the longest first.
fn milliseconds(packed: &Value) -> Vec<f64> {
    let histogram = histogram(packed);
    let mut all: Vec<f64> = histogram
        .iter_recorded()
        .flat_map(|step| {
            let value = step.value_iterated_to() as f64 / 1e6;
            std::iter::repeat_n(value, step.count_at_value() as usize)
        })
        .collect();
    all.reverse();
    all
}

/// What three digits round away, and a response's way through two processes' threads.
const ROUNDING: f64 = 0.999;
/// What a busy machine may add to a response.
const BUSY_MS: f64 = 150.0;

#[test]
fn rows_that_were_written_are_read_back() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let read = done(&job(&fake, &[]));
    assert_eq!(read["operations"]["read"]["count"], 1_000);
    assert_eq!(read["errors"], json!({}));
    assert_eq!(read["response"], read["service"]);
    assert!(read["lateness"].is_null());
}

#[test]
fn a_wrong_and_a_missing_row_are_failures() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    fake.manners(|manners| {
        manners.altered.insert(17);
        manners.hidden.insert(71);
    });
    let once_each = [
        ("/workload/keys", json!("sequential")),
        ("/stop/operations", json!(100)),
    ];
    let read = done(&job(&fake, &once_each));
    assert_eq!(read["operations"]["read"]["count"], 98);
    assert_eq!(read["operations"]["read"]["failed"], 2);
    assert_eq!(read["wrong_rows"], 1);
    assert_eq!(read["missing_rows"], 1);
    assert_eq!(read["errors"], json!({"wrong_row": 1, "missing_row": 1}));
    assert_eq!(histogram(&read["response"]["read"]).len(), 98);
    let mut unverified = once_each.to_vec();
    unverified.push(("/workload/verify", json!(false)));
    let read = done(&job(&fake, &unverified));
    assert_eq!(read["errors"], json!({"missing_row": 1}));
}

#[test]
fn a_dropped_write_and_another_seed_are_noticed() {
    let mut manners = Manners::default();
    manners.dropped_writes.insert(5);
    let fake = Fake::start(manners);
    let filled = done(&job(
        &fake,
        &[
            ("/workload/keys", json!("sequential")),
            ("/workload/operations", json!({"write": 1.0})),
            ("/stop/operations", json!(100)),
        ],
    ));
    assert_eq!(filled["errors"], json!({}));
    let once_each = ("/workload/keys", json!("sequential"));
    let read = done(&job(&fake, std::slice::from_ref(&once_each)));
    assert_eq!(read["missing_rows"], 10);
    let read = done(&job(&fake, &[once_each, ("/seed", json!(8))]));
    assert_eq!(read["wrong_rows"], 990);
}

/// A server that answers nothing between two times, in milliseconds from the first request on.
fn answers_nothing(from_ms: u64, to_ms: u64) -> Fake {
    Fake::start(Manners {
        stall: Some((Duration::from_millis(from_ms), Duration::from_millis(to_ms))),
        ..Manners::default()
    })
}

/// Even arrivals each 10 ms for 3 s; nothing is answered from 1.000 s to 2.000 s.
fn stalled(slots: u32) -> (Value, Vec<f64>) {
    // Between two arrivals: the first request, from which it counts, is not the run's start.
    let fake = answers_nothing(995, 2_000);
    let run = done(&job(
        &fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            (
                "/load",
                json!({"rate_per_s": 100.0, "arrivals": "even", "max_in_flight": slots}),
            ),
            ("/stop", json!({"duration_s": 3.0})),
        ],
    ));
    assert_eq!(run["operations"]["write"]["count"], 300);
    assert_eq!(run["unsent"], 0);
    // Arrivals at 1.00, 1.01, ... 1.99 s are answered at 2.00 s.
    let exact = (0..100).map(|arrival| f64::from(1_000 - 10 * arrival));
    (run, exact.collect())
}

/// By how much responses may be shorter than exact ones. The stall counts from the coming of the first request: if a busy
/// machine sent that one late, the first arrivals, 10 ms apart, are over before the stall, 5 ms earlier in a quiet one.
fn missed_ms(late_ms: f64) -> f64 {
    10.0 * ((late_ms + 5.0) / 10.0).floor()
}

#[test]
fn a_stall_is_in_the_response_of_every_arrival_that_met_it() {
    let (run, exact) = stalled(1_000);
    // A request that a busy machine sends late has a shorter service time, and the same response time.
    let late_ms = milliseconds(&run["lateness"])[0];
    for (kind, early_ms) in [("response", 0.0), ("service", late_ms)] {
        let early_ms = early_ms + missed_ms(late_ms);
        let got = milliseconds(&run[kind]["write"]);
        assert_eq!(got.len(), 300);
        for (got, exact) in got.iter().zip(&exact) {
            // The clocks start a connection's way apart: the stall begins with the first request's coming.
            let bounds = exact * ROUNDING - 1.0 - early_ms..exact + BUSY_MS;
            assert!(
                bounds.contains(got),
                "{kind}: {got} ms instead of {exact}, sent up to {late_ms} ms late"
            );
        }
        assert!(got[100] < BUSY_MS, "{} ms before the stall", got[100]);
    }
}

#[test]
fn with_one_in_flight_the_queue_is_in_the_response_and_not_in_the_service_time() {
    let (run, exact) = stalled(1);
    let response = milliseconds(&run["response"]["write"]);
    let first_late_ms = *milliseconds(&run["lateness"])
        .get(100)
        .expect("300 arrivals");
    let early_ms = missed_ms(first_late_ms);
    for (got, exact) in response.iter().zip(&exact) {
        let bounds = exact * ROUNDING - 1.0 - early_ms..exact + BUSY_MS;
        assert!(bounds.contains(got), "{got} ms instead of {exact}");
    }
    // Only the one that was under way knows of the stall: this is what a closed loop would have seen. A busy machine may
    // have sent it late, which shortens its service time.
    let service = milliseconds(&run["service"]["write"]);
    assert!(
        (999.0 * ROUNDING - BUSY_MS..1_000.0 + BUSY_MS).contains(&service[0]),
        "{}",
        service[0]
    );
    assert!(service[1] < BUSY_MS, "{} ms", service[1]);
    let lateness = milliseconds(&run["lateness"]);
    for (got, exact) in lateness.iter().zip(&exact[1..]) {
        let bounds = exact * ROUNDING - 1.0 - early_ms..exact + BUSY_MS;
        assert!(bounds.contains(got), "{got} ms late instead of {exact}");
    }
}

#[test]
fn threads_keep_to_a_ceiling_and_count_from_their_own_start() {
    let fake = answers_nothing(995, 2_000);
    let run = done(&job(
        &fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            ("/load", json!({"threads": 2, "at_most_per_s": 100.0})),
            ("/stop", json!({"duration_s": 3.0})),
        ],
    ));
    // A hundred a second, and after the stall what was missed in it, at once.
    assert_eq!(run["operations"]["write"]["count"], 300);
    assert!(run["lateness"].is_null(), "a ceiling offers nothing");
    let response = milliseconds(&run["response"]["write"]);
    // Both threads met the stall; what they did not start in it has no latency.
    assert!(response[1] > 900.0 * ROUNDING, "{} ms", response[1]);
    assert!(response[2] < BUSY_MS, "{} ms", response[2]);
}

#[test]
fn threads_that_do_not_reach_their_ceiling_are_a_closed_loop() {
    let fake = answers_nothing(200, 1_500);
    let run = done(&job(
        &fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            ("/load", json!({"threads": 8, "at_most_per_s": 100.0})),
            ("/stop", json!({"duration_s": 1.0})),
        ],
    ));
    let sent = run["operations"]["write"]["count"].as_u64().unwrap();
    // 20 before the stall and 8 in it; a busy machine begins the stall later than the run.
    assert!((26..60).contains(&sent), "{sent}");
    assert_eq!(run["unsent"], 0, "what was not started was not offered");
}

#[test]
fn under_time_dilation_all_times_are_the_described_systems() {
    let fake = Fake::start(Manners::default());
    let begun = std::time::Instant::now();
    let run = done(&job(
        &fake,
        &[
            ("/time_dilation", json!(5)),
            ("/workload/operations", json!({"write": 1.0})),
            (
                "/load",
                json!({"rate_per_s": 200.0, "arrivals": "even", "max_in_flight": 50}),
            ),
            ("/stop", json!({"duration_s": 0.4})),
        ],
    ));
    // Eighty arrivals in 0.4 s of its own time: two seconds of this machine.
    assert!(begun.elapsed() >= Duration::from_secs_f64(0.4 * 5.0 * ROUNDING - 0.05));
    assert_eq!(run["operations"]["write"]["count"], 80);
    let elapsed_s = run["elapsed_s"].as_f64().unwrap();
    assert!(
        (0.39..0.4 + BUSY_MS / 1e3).contains(&elapsed_s),
        "{elapsed_s} s"
    );
}

#[test]
fn what_is_due_and_cannot_be_sent_is_counted() {
    let fake = answers_nothing(200, 1_500);
    let run = done(&job(
        &fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            (
                "/load",
                json!({"rate_per_s": 100.0, "arrivals": "even", "max_in_flight": 8}),
            ),
            ("/stop", json!({"duration_s": 1.0})),
        ],
    ));
    let sent = run["operations"]["write"]["count"].as_u64().unwrap();
    let unsent = run["unsent"].as_u64().unwrap();
    assert_eq!(sent + unsent, 100, "each arrival is sent or counted");
    // 20 before the stall and 8 in it; a busy machine may shift one or two.
    assert!((26..=31).contains(&sent), "{sent}");
}

#[test]
fn two_generators_write_each_row_once_and_merge_exactly() {
    let fake = Fake::start(Manners {
        watch: true,
        ..Manners::default()
    });
    let mut whole = 0;
    for index in 0..3 {
        let part = done(&job(
            &fake,
            &[
                ("/workload/keys", json!("sequential")),
                ("/workload/operations", json!({"write": 1.0})),
                ("/stop/operations", json!(100)),
                ("/generator", json!({"index": index, "count": 3})),
            ],
        ));
        whole += histogram(&part["response"]["write"]).len();
    }
    assert_eq!(whole, 100);
    let mut written = fake.manners(|manners| std::mem::take(&mut manners.seen));
    written.sort_unstable();
    assert_eq!(written, (0..100).map(|key| (key, true)).collect::<Vec<_>>());
    let read = done(&job(&fake, &[]));
    assert_eq!(read["errors"], json!({}));
}

#[test]
fn generators_that_are_ready_at_different_times_begin_at_the_moment_that_they_are_told() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let file = std::env::temp_dir().join(format!("disklab-begin-{}", std::process::id()));
    let own = |index: u32| {
        job(
            &fake,
            &[
                ("/generator", json!({"index": index, "count": 2})),
                ("/begin_file", json!(file)),
                ("/load", json!({"rate_per_s": 200.0, "arrivals": "even"})),
                ("/stop", json!({"duration_s": 0.5})),
            ],
        )
    };
    let (first, second) = (own(0), own(1));
    let (one, other, moment) = std::thread::scope(|threads| {
        let one = threads.spawn(|| done(&first));
        std::thread::sleep(Duration::from_millis(300));
        let other = threads.spawn(|| done(&second));
        std::thread::sleep(Duration::from_millis(200));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let moment = now.unwrap().as_nanos() as u64 + 400_000_000;
        let new = file.with_extension("new");
        std::fs::write(&new, moment.to_string()).unwrap();
        std::fs::rename(new, &file).unwrap();
        (one.join().unwrap(), other.join().unwrap(), moment)
    });
    std::fs::remove_file(&file).unwrap();
    for part in [&one, &other] {
        let after = part["started_unix_ns"].as_u64().unwrap() - moment;
        assert!(
            (after as f64) < BUSY_MS * 1e6,
            "{after} ns after the moment"
        );
        assert_eq!(part["errors"], json!({}));
        // Half of the rate each, from the moment on.
        assert_eq!(
            part["operations"]["read"]["count"].as_u64().unwrap()
                + part["unsent"].as_u64().unwrap(),
            50
        );
    }
}

#[test]
fn the_same_seed_asks_for_the_same_rows_in_the_same_order() {
    let asked = |seed: u64| {
        let fake = Fake::start(Manners {
            watch: true,
            ..Manners::default()
        });
        done(&job(
            &fake,
            &[
                ("/seed", json!(seed)),
                ("/workload/operations", json!({"read": 0.5, "write": 0.5})),
                ("/workload/keys", json!("zipfian")),
                ("/load/threads", json!(1)),
            ],
        ));
        fake.manners(|manners| std::mem::take(&mut manners.seen))
    };
    let first = asked(1);
    assert_eq!(first.len(), 1_000);
    assert_eq!(first.iter().filter(|(_, write)| *write).count(), 500);
    assert_eq!(first, asked(1));
    assert_ne!(first, asked(2));
}

#[test]
fn latest_reads_only_what_was_acknowledged() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let run = done(&job(
        &fake,
        &[
            ("/workload/keys", json!("latest")),
            ("/workload/operations", json!({"read": 0.5, "write": 0.5})),
            ("/load/threads", json!(32)),
            ("/stop/operations", json!(10_000)),
        ],
    ));
    assert_eq!(run["errors"], json!({}));
    assert_eq!(fake.keys(), (0..5_100).collect::<Vec<_>>());
}

#[test]
fn a_row_is_asked_of_the_node_that_has_it_and_of_another_when_that_is_gone() {
    let [first, second] = Fake::pair();
    fill_cluster(&first);
    let (of_first, of_second) = (first.keys(), second.keys());
    let mut all = [of_first.clone(), of_second.clone()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>(), "each at one node");
    // A hundred rows, each at either with the same chance: ten standard deviations.
    assert!((1..100).contains(&of_first.len()));
    let once_each = [
        ("/workload/keys", json!("sequential")),
        ("/stop/operations", json!(100)),
    ];
    let (events, ended) = run(&job(&second, &once_each));
    ended.unwrap();
    assert_eq!(events[0]["nodes"], 2);
    assert_eq!(events.last().unwrap()["errors"], json!({}));
    first.die();
    let read = done(&job(&second, &once_each));
    assert_eq!(read["missing_rows"], of_first.len());
    assert_eq!(read["operations"]["read"]["count"], of_second.len());
}

#[test]
fn a_lost_connection_ends_what_was_under_way_and_is_made_anew() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let asked = job(&fake, &[("/stop", json!({"duration_s": 1.5}))]);
    let breaker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        fake.hang_up();
        fake
    });
    let (mut events, ended) = run(&asked);
    ended.unwrap();
    drop(breaker.join().unwrap());
    let read = events.pop().unwrap();
    // Four threads, each with an operation under way, and then a pause of 10 ms before each attempt until there is a
    // connection again, for which 100 ms are waited.
    let lost = read["errors"]["connection_lost"].as_u64().unwrap();
    let without = read["errors"]["no_connection"].as_u64().unwrap_or(0);
    assert!((1..=4).contains(&lost), "{lost}");
    assert_eq!(read["operations"]["read"]["failed"], lost + without);
    let last = events.pop().unwrap();
    assert!(last["ops_per_s"].as_f64() > Some(0.0), "it goes on: {last}");
}

#[test]
fn a_database_that_dies_is_counted_and_given_up() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let asked = job(
        &fake,
        &[
            ("/stop", json!({"duration_s": 50.0, "give_up_s": 0.6})),
            ("/target/request_timeout_ms", json!(300)),
            ("/interval_ms", json!(100)),
        ],
    );
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        fake.die();
    });
    let (events, ended) = run(&asked);
    killer.join().unwrap();
    let problem = ended.unwrap_err().as_one();
    assert!(
        problem.rule.contains("no operation has succeeded"),
        "{problem}"
    );
    let last = events.last().unwrap();
    assert_eq!(last["event"], "progress");
    assert!(last["operations"].as_u64() > Some(0));
    assert!(last["errors"].as_u64() > Some(0));
}

#[test]
fn an_operation_without_an_answer_times_out() {
    let fake = answers_nothing(0, 900);
    let run = done(&job(
        &fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            ("/target/request_timeout_ms", json!(200)),
            ("/stop", json!({"duration_s": 2.0})),
        ],
    ));
    // Four threads, each with a time-out at about 0.2, 0.4, 0.6 and 0.8 s and a pause after each.
    let timeouts = run["errors"]["client_timeout"].as_u64().unwrap();
    assert!((4..=16).contains(&timeouts), "{timeouts}");
    assert_eq!(run["operations"]["write"]["failed"], timeouts);
    assert!(
        run["operations"]["write"]["count"].as_u64() > Some(0),
        "it goes on afterwards"
    );
    // What timed out is in no histogram.
    assert!(milliseconds(&run["response"]["write"])[0] < 200.0 + BUSY_MS);
}

#[test]
fn errors_are_counted_by_kind_and_some_successes_keep_a_run_alive() {
    let fake = Fake::start(Manners {
        refuse: Some((0x1001, "too much")),
        ..Manners::default()
    });
    let run = done(&job(&fake, &[("/stop", json!({"operations": 20}))]));
    assert_eq!(run["errors"], json!({"overloaded": 20}));
    assert_eq!(run["operations"]["read"]["failed"], 20);
    assert!(run["last_error"].as_str().unwrap().contains("too much"));
    assert_eq!(run["response"], json!({}));
}

#[test]
fn nobody_there_is_said_with_a_way_out() {
    let fake = Fake::start(Manners::default());
    let asked = job(&fake, &[]);
    drop(fake);
    let (events, ended) = run(&asked);
    assert!(events.is_empty());
    let problem = ended.unwrap_err().as_one();
    assert_eq!(problem.place, "target.contact_points");
}

#[test]
fn all_that_is_wrong_with_a_job_is_said_at_once() {
    let fake = Fake::start(Manners::default());
    let wrong = job(
        &fake,
        &[
            ("/workload/rows", json!(0)),
            ("/workload/operations", json!({})),
            ("/load/threads", json!(0)),
            ("/target/table", json!("x; DROP TABLE y")),
            ("/stop", json!({})),
        ],
    );
    let problems = Job::parse(&wrong.to_string()).unwrap_err().problems;
    let places: Vec<&str> = problems
        .iter()
        .map(|problem| problem.place.as_str())
        .collect();
    assert_eq!(
        places,
        [
            "stop",
            "target.table",
            "workload.rows",
            "workload.operations",
            "load.threads"
        ]
    );
    let unknown = job(&fake, &[("/workload/colums", json!(3))]);
    let problem = Job::parse(&unknown.to_string()).unwrap_err().as_one();
    assert!(problem.rule.contains("colums"), "{problem}");
}

fn as_user(fake: &Fake, user: &str, password: &str) -> Value {
    job(
        fake,
        &[
            ("/workload/operations", json!({"write": 1.0})),
            ("/target/user", json!(user)),
            ("/target/password", json!(password)),
        ],
    )
}

#[test]
fn a_database_that_asks_who_is_there_is_told_on_every_connection() {
    let fake = Fake::start(Manners {
        login: Some(("me", "pass word")),
        ..Manners::default()
    });
    let done = done(&as_user(&fake, "me", "pass word"));
    assert_eq!(done["operations"]["write"]["count"], 1_000);
    for (user, password) in [("me", "not-it-7f3a"), ("you", "pass word")] {
        let (_, ended) = run(&as_user(&fake, user, password));
        let said = ended.unwrap_err().to_string();
        assert!(said.contains("target.contact_points"), "{said}");
        assert!(!said.contains(password), "{said}");
    }
    let (_, ended) = run(&job(&fake, &[]));
    assert!(ended.is_err(), "nobody came, and was let in");
}

#[test]
fn a_user_without_a_password_is_refused_and_a_password_is_never_shown() {
    let fake = Fake::start(Manners::default());
    let half = job(&fake, &[("/target/user", json!("me"))]);
    let said = Job::parse(&half.to_string()).unwrap_err().to_string();
    assert!(said.contains("target.user"), "{said}");
    let whole = Job::parse(&as_user(&fake, "me", "hidden").to_string()).unwrap();
    assert!(!format!("{whole:?}").contains("hidden"));
}

#[test]
fn stale_reads_and_lost_updates_are_counted_and_failed_writes_are_not() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    fake.manners(|manners| manners.dropped_writes.extend([5, 6]));
    let versioned = |known: Value| ("/workload/versions", known);
    let load = done(&job(
        &fake,
        &[
            versioned(json!({})),
            ("/workload/operations", json!({"read": 1.0, "write": 1.0})),
            ("/stop/operations", json!(4_000)),
        ],
    ));
    assert_eq!(load["errors"], json!({}));
    let seen = &load["versions"];
    assert!(seen["stale_reads"].as_u64() > Some(0), "{seen}");
    assert!(seen["stale_reads"].as_u64() < Some(150), "{seen}");
    let read_back = |known: &Value| {
        done(&job(
            &fake,
            &[
                versioned(known.clone()),
                ("/workload/keys", json!("sequential")),
                ("/stop/operations", json!(100)),
            ],
        ))
    };
    let found = read_back(&seen["known"]);
    assert_eq!(found["versions"]["stale_reads"], 2);
    assert_eq!(found["wrong_rows"], 0);
    // A write that was refused may have been done all the same.
    fake.manners(|manners| {
        manners.dropped_writes.clear();
        manners.refuse = Some((0x1100, "too late"));
    });
    let refused = done(&job(
        &fake,
        &[
            versioned(seen["known"].clone()),
            ("/workload/operations", json!({"write": 1.0})),
            ("/stop/operations", json!(50)),
        ],
    ));
    assert_eq!(refused["errors"], json!({"write_timeout": 50}));
    fake.manners(|manners| manners.refuse = None);
    let found = read_back(&refused["versions"]["known"]);
    assert_eq!(found["versions"]["stale_reads"], 2);
    // Who knows of no versions takes such a row for a wrong one.
    let plain = done(&job(&fake, &[]));
    assert!(plain["wrong_rows"].as_u64() > Some(0), "{plain}");
}

#[test]
fn rows_without_versions_have_the_bytes_that_they_always_had() {
    let fake = Fake::start(Manners::default());
    fill(&fake);
    let load = done(&job(
        &fake,
        &[("/workload/operations", json!({"read": 1.0, "write": 1.0}))],
    ));
    assert_eq!(load["wrong_rows"], 0);
    assert!(load["versions"].is_null());
    let read = done(&job(&fake, &[("/workload/versions", json!({}))]));
    assert_eq!(read["errors"], json!({}));
    assert_eq!(read["versions"]["judged_reads"], 0);
}

#[test]
fn versions_want_room_and_one_generator() {
    let fake = Fake::start(Manners::default());
    let said = |changes: &[(&str, Value)]| {
        let mut all = vec![("/workload/versions", json!({}))];
        all.extend(changes.iter().cloned());
        Job::parse(&job(&fake, &all).to_string())
            .unwrap_err()
            .to_string()
    };
    assert!(said(&[("/workload/column_bytes", json!(7))]).contains("first 8 bytes"));
    assert!(said(&[("/workload/verify", json!(false))]).contains("first 8 bytes"));
    assert!(said(&[("/generator", json!({"index": 0, "count": 2}))]).contains("one generator"));
    assert!(said(&[("/workload/versions", json!({"rows": "!"}))]).contains("base64"));
}
