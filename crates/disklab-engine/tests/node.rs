//! `disklab-engine node` as a conductor meets it: its standard streams.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

/// A busy machine is slow, not wrong.
const SOON: Duration = Duration::from_secs(60);
/// "yes\n" in base64.
const YES: &str = "eWVzCg==";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("disklab-node-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Node {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    early: BTreeMap<u64, Value>,
    next: u64,
}

impl Node {
    fn start(folder: &Path, lease_s: u64) -> Node {
        let mut child = Command::new(env!("CARGO_BIN_EXE_disklab-engine"))
            .args([
                "node",
                "--conductor",
                "test",
                "--hello",
                "token",
                "--folder",
            ])
            .arg(folder.join("jobs"))
            .args(["--lease-s", &lease_s.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, answers) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if !line.is_empty() && sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut node = Node {
            child,
            stdin,
            answers,
            early: BTreeMap::new(),
            next: 0,
        };
        let hello = node.any();
        assert_eq!(
            (&hello["hello"], &hello["protocol"]),
            (&json!("token"), &json!(1))
        );
        node
    }

    fn any(&mut self) -> Value {
        self.answers.recv_timeout(SOON).expect("it says nothing")
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn send(&mut self, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = json!(self.next);
        self.say(format!("{request}\n").as_bytes());
        self.next
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(found) = self.early.remove(&id) {
                return found;
            }
            let found = self.any();
            self.early
                .insert(found["id"].as_u64().expect("an answer to a request"), found);
        }
    }

    fn ask(&mut self, request: Value) -> Value {
        let id = self.send(request);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["answer"].clone()
    }

    fn refusal(&mut self, request: Value) -> String {
        let id = self.send(request);
        self.answer(id)["error"]["rule"]
            .as_str()
            .expect("a refusal")
            .to_owned()
    }

    fn sh(&mut self, job: &str, script: &str) -> Value {
        self.ask(json!({"op": "job", "job": job, "words": ["sh", "-c", script]}))
    }

    fn wait(&mut self, job: &str) -> Value {
        let began = Instant::now();
        loop {
            let found = self.ask(json!({"op": "wait", "job": job, "wait_ms": 5000}));
            if !found["ended"].is_null() || found["lost"] == json!(true) {
                return found;
            }
            assert!(began.elapsed() < SOON, "{job} does not end");
        }
    }

    fn tail(&mut self, job: &str, offset: u64, most_bytes: usize) -> Value {
        self.ask(
            json!({"op": "tail", "job": job, "stream": "stdout", "offset": offset,
            "most_bytes": most_bytes, "wait_ms": 60_000}),
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stdin.take();
        let _ = self.child.wait();
    }
}

fn runs(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

fn await_end(pid: i64) {
    let began = Instant::now();
    while runs(pid) {
        assert!(began.elapsed() < SOON, "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_outlives_its_agent_and_is_read_on_from_an_offset() {
    let folder = Folder::new("outlives");
    let mut node = Node::start(&folder.0, 60);
    let started = node.sh(
        "count",
        "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; exit 4",
    );
    assert_eq!(node.tail("count", 0, 2)["data"], json!("MQo="));
    node.child.kill().unwrap();
    drop(node);
    let mut node = Node::start(&folder.0, 60);
    let again = node.sh("count", "echo never");
    assert_eq!(
        (&again["pid"], &again["again"]),
        (&started["pid"], &json!(true))
    );
    let ended = node.wait("count");
    assert_eq!(
        (&ended["ended"]["code"], &ended["stdout_bytes"]),
        (&json!(4), &json!(10))
    );
    let rest = node.tail("count", 2, 1000);
    assert_eq!(
        (&rest["data"], &rest["ended"]),
        (&json!("MgozCjQKNQo="), &json!(true))
    );
    node.ask(json!({"op": "forget", "job": "count"}));
    let began = Instant::now();
    while node.ask(json!({"op": "jobs"}))["jobs"] != json!([]) {
        assert!(began.elapsed() < SOON);
    }
}

#[test]
fn an_agent_that_leaves_no_job_leaves_no_folder() {
    let folder = Folder::new("leaves");
    let stale = folder.path("jobs/stale");
    std::fs::create_dir_all(folder.path("jobs/stale/old-job")).unwrap();
    std::fs::create_dir_all(folder.path("jobs/others/job")).unwrap();
    for lease in ["stale", "others"] {
        std::fs::write(folder.path(&format!("jobs/{lease}/.lease")), "{}").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let lease = std::fs::File::options()
        .write(true)
        .open(format!("{stale}/.lease"))
        .unwrap();
    lease.set_modified(long_ago).unwrap();
    let mut node = Node::start(&folder.0, 60);
    node.ask(json!({"op": "clock"}));
    assert!(Path::new(&folder.path("jobs/test")).exists());
    drop(node);
    assert!(!Path::new(&folder.path("jobs/test")).exists());
    assert!(!Path::new(&stale).exists());
    assert!(Path::new(&folder.path("jobs/others/job")).exists());
}

#[test]
fn the_lease_ends_a_job_with_all_that_it_started() {
    let folder = Folder::new("lease");
    let mut node = Node::start(&folder.0, 2);
    let pid_file = folder.path("stray");
    // Forks twice, leads a session of its own and has no mark: nothing but its keeper knows it.
    let script = format!(
        "(env -i setsid sleep 1000 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}); sleep 1000"
    );
    let pid = node.sh("orphan", &script)["pid"].as_i64().unwrap();
    let began = Instant::now();
    while !Path::new(&pid_file).exists() {
        assert!(began.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..6 {
        node.ask(json!({"op": "beat", "lease_s": 2}));
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(runs(pid), "it was ended though its lease was renewed");
    drop(node);
    await_end(pid);
    await_end(
        std::fs::read_to_string(&pid_file)
            .unwrap()
            .trim()
            .parse()
            .unwrap(),
    );
    let mut node = Node::start(&folder.0, 60);
    assert_eq!(node.wait("orphan")["ended"]["why"], json!("lease"));
}

#[test]
fn what_runs_too_long_or_says_too_much_is_ended_and_told() {
    let folder = Folder::new("bounds");
    let mut node = Node::start(&folder.0, 60);
    let endless = json!(["sh", "-c", "while :; do echo yes; done"]);
    node.ask(json!({"op": "job", "job": "much", "words": endless, "most_spool_bytes": 1000}));
    let slow = json!({"op": "run", "job": "slow", "words": ["sleep", "1000"], "timeout_ms": 100});
    assert_eq!(node.ask(slow)["ended"], node.wait("slow")["ended"]);
    let slow = node.wait("slow");
    assert_eq!(
        (&slow["ended"]["why"], &slow["ended"]["code"]),
        (&json!("timeout"), &json!(-15))
    );
    assert_eq!(node.wait("much")["ended"]["why"], json!("spool"));
}

#[test]
fn a_bad_request_is_refused_by_its_id_and_changes_nothing() {
    let folder = Folder::new("bad");
    let target = folder.path("target");
    let mut node = Node::start(&folder.0, 60);
    for (request, rule) in [
        (json!({"op": "shutdown"}), "unknown variant"),
        (json!({"op": "clock", "more": 1}), "unknown field"),
        (
            json!({"op": "write", "path": target, "data": "no base64!", "mode": 384}),
            "Invalid",
        ),
        (
            json!({"op": "write", "path": target, "data": YES, "mode": 0o4755}),
            "from 0 to 511",
        ),
        (
            json!({"op": "write", "path": "target", "data": YES, "mode": 384}),
            "absolute",
        ),
        (
            json!({"op": "write", "path": format!("{target}/../x"), "data": YES, "mode": 384}),
            "`..`",
        ),
        (
            json!({"op": "job", "job": "../x", "words": ["true"]}),
            "1 to 64 of a-z",
        ),
        (
            json!({"op": "job", "job": "x", "words": []}),
            "from 1 to 4096",
        ),
        (
            json!({"op": "job", "job": "x", "words": ["tr\u{0}ue"]}),
            "no zero byte",
        ),
        (
            json!({"op": "job", "job": "x", "words": ["true"], "variables": {"A=B": ""}}),
            "without =",
        ),
        (
            json!({"op": "wait", "job": "none", "wait_ms": 0}),
            "no such job",
        ),
        (
            json!({"op": "signal", "job": "none", "number": 0}),
            "from 1 to 64",
        ),
        (
            json!({"op": "read", "path": folder.0, "most_bytes": 10}),
            "no regular file",
        ),
        (
            json!({"op": "read-ahead", "device": "/dev/null"}),
            "no block device",
        ),
        (
            json!({"op": "put-begin", "path": target, "size_bytes": 1, "sha256": "x", "mode": 0}),
            "64 of 0-9",
        ),
    ] {
        let told = node.refusal(request.clone());
        assert!(told.contains(rule), "{request}: {told}");
    }
    assert!(!Path::new(&target).exists());
    assert_eq!(node.ask(json!({"op": "jobs"}))["jobs"], json!([]));
}

#[test]
fn what_is_no_request_is_refused_and_the_next_one_answered() {
    let folder = Folder::new("no-request");
    let mut node = Node::start(&folder.0, 60);
    node.say(b"{\"op\": \"clock\"}\n[]\n\xff\xfe\n");
    for _ in 0..3 {
        assert_eq!(node.any()["id"], Value::Null);
    }
    let long = vec![b'x'; 3 << 20];
    node.say(&long);
    node.say(b"\n");
    assert!(
        node.any()["error"]["rule"]
            .as_str()
            .unwrap()
            .contains("at most 1048576 bytes")
    );
    assert!(node.ask(json!({"op": "clock"}))["clock_ns"].is_u64());
}

#[test]
fn requests_are_answered_as_they_are_done_and_their_number_is_bounded() {
    let folder = Folder::new("many");
    let mut node = Node::start(&folder.0, 60);
    node.sh("sleeper", "exec sleep 1000");
    let waits: Vec<u64> = (0..100)
        .map(|_| node.send(json!({"op": "wait", "job": "sleeper", "wait_ms": 3000})))
        .collect();
    // Not behind those that wait.
    node.ask(json!({"op": "clock"}));
    let answers: Vec<Value> = waits.iter().map(|id| node.answer(*id)).collect();
    let refused = answers
        .iter()
        .filter(|answer| answer.get("error").is_some())
        .count();
    assert!((1..=36).contains(&refused), "{refused} of 100 were refused");
    assert_eq!(
        node.ask(json!({"op": "signal", "job": "sleeper", "number": 9}))["processes"],
        json!(1)
    );
    assert_eq!(node.wait("sleeper")["ended"]["code"], json!(-9));
}

#[test]
fn a_later_agent_takes_the_place_of_one_that_is_stuck() {
    let folder = Folder::new("later");
    let mut first = Node::start(&folder.0, 60);
    let pid = first.sh("job", "sleep 1000")["pid"].clone();
    let mut second = Node::start(&folder.0, 60);
    assert!(!first.child.wait().unwrap().success());
    assert_eq!(second.sh("job", "true")["pid"], pid);
    second.ask(json!({"op": "signal", "job": "job", "number": 15}));
    assert_eq!(second.wait("job")["ended"]["code"], json!(-15));
}

#[test]
fn a_folder_of_somebody_else_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("foreign");
    std::fs::create_dir(folder.path("jobs")).unwrap();
    let loose = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path("jobs"), loose).unwrap();
    let refused = |why: &str| {
        let ended = Command::new(env!("CARGO_BIN_EXE_disklab-engine"))
            .args([
                "node",
                "--conductor",
                "test",
                "--hello",
                "x",
                "--folder",
                &folder.path("jobs"),
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    };
    refused("nobody else may write to it");
    let own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path("jobs"), own).unwrap();
    std::os::unix::fs::symlink("/tmp", folder.path("jobs/test")).unwrap();
    refused("jobs/test");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever comes, it stays and answers; requests that harm nothing may come by chance.
    #[test]
    fn random_bytes_never_end_it(
        parts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300),
                "[\\[\\]{}\":,0-9a-z ]{0,100}\n".prop_map(String::into_bytes),
                "\\{\"id\":[0-9]{1,25},\"op\":\"(clock|jobs|names|read|tail|wait|pages)\"(,\"(path|job|offset|wait_ms)\":(\"[/a-z.]{0,9}\"|-?[0-9]{1,22}|null|\\[\\]))?\\}\n".prop_map(String::into_bytes),
            ],
            0..60,
        ),
    ) {
        let folder = Folder::new("random");
        let mut node = Node::start(&folder.0, 60);
        for part in &parts {
            node.say(part);
        }
        node.say(b"\n{\"id\": 18446744073709551615, \"op\": \"clock\"}\n");
        let began = Instant::now();
        while node.any()["id"] != json!(u64::MAX) {
            prop_assert!(began.elapsed() < SOON);
        }
    }
}
