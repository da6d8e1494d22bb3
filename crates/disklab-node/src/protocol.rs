//! The requests: one JSON object a line.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::bytes::Bytes;
use crate::failure::{Failure, Outcome};

/// The most bytes of a file or stream in one request or answer: in base64 with its words, it fits in a line.
pub const MOST_CHUNK_BYTES: usize = 256 << 10;
/// The longest wait of one request: the conductor asks again, and so hears that the agent lives.
pub const MOST_WAIT_MS: u64 = 60_000;
/// The most words, variables and files in a request.
pub const MOST_NAMED: usize = 4096;
/// The longest path, as the kernel has it.
const MOST_PATH_BYTES: usize = 4096;

/// A request with its number, which its answer carries.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub operation: Operation,
}

/// A program with everything that it starts with.
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The name of the job, chosen by the conductor: asked for twice, it is started once.
    pub job: String,
    pub words: Vec<String>,
    #[serde(default)]
    pub stdin: Bytes,
    /// Added to the environment of the agent.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Its working directory; none: `/`.
    #[serde(default)]
    pub folder: Option<String>,
    /// It is ended after so long.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// It is ended when one of its spools is larger.
    #[serde(default = "usual_spool")]
    pub most_spool_bytes: u64,
}

/// Weeks of what a load engine says, and less than what fills a system disk.
const fn usual_spool() -> u64 {
    1 << 30
}

/// Which of a job's streams.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// The name of its spool.
    pub fn file(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// What may be asked for.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    Clock {},
    Beat {
        lease_s: u64,
    },
    Run(Box<Program>),
    Job(Box<Program>),
    Jobs {},
    Wait {
        job: String,
        wait_ms: u64,
    },
    Tail {
        job: String,
        stream: Stream,
        offset: u64,
        most_bytes: usize,
        wait_ms: u64,
    },
    Signal {
        job: String,
        number: i32,
    },
    Forget {
        job: String,
    },
    Watch {
        job: String,
        files: Vec<String>,
        #[serde(default = "a_second")]
        interval_ms: u64,
    },
    Read {
        path: String,
        #[serde(default)]
        offset: u64,
        most_bytes: usize,
    },
    Write {
        path: String,
        data: Bytes,
        mode: u32,
    },
    Names {
        path: String,
    },
    PutBegin {
        path: String,
        size_bytes: u64,
        sha256: String,
        mode: u32,
    },
    PutChunk {
        path: String,
        sha256: String,
        offset: u64,
        data: Bytes,
    },
    PutEnd {
        path: String,
        size_bytes: u64,
        sha256: String,
        mode: u32,
    },
    Pages {
        paths: Vec<String>,
    },
    DropPages {
        paths: Vec<String>,
    },
    ReadAhead {
        device: String,
        #[serde(default)]
        set_kib: Option<u64>,
    },
    Disks {},
}

const fn a_second() -> u64 {
    1000
}

/// The number of a request that cannot be read, where it has one, and why.
pub type Unread = (Option<u64>, Failure);

/// Reads a request.
pub fn parse(line: &[u8]) -> Result<Request, Unread> {
    let malformed = |id, error: &serde_json::Error| {
        let way_out = "give an object as in docs/contracts/8-node.md";
        (id, Failure::new("request", "", error.to_string(), way_out))
    };
    let mut value: Value = serde_json::from_slice(line).map_err(|error| malformed(None, &error))?;
    let id = value.as_object_mut().and_then(|fields| fields.remove("id"));
    let Some(id) = id.as_ref().and_then(Value::as_u64) else {
        let failure = Failure::new(
            "request",
            "",
            "it has no id",
            "give `id`, a whole number from 0",
        );
        return Err((None, failure));
    };
    let operation = serde_json::from_value(value).map_err(|error| malformed(Some(id), &error))?;
    check(&operation).map_err(|failure| (Some(id), failure))?;
    Ok(Request { id, operation })
}

fn check(operation: &Operation) -> Outcome<()> {
    match operation {
        Operation::Clock {} | Operation::Beat { .. } | Operation::Jobs {} | Operation::Disks {} => {
            Ok(())
        }
        Operation::Run(program) | Operation::Job(program) => check_program(program),
        Operation::Wait { job, .. } | Operation::Forget { job } => check_job(job),
        Operation::Tail { job, .. } => check_job(job),
        Operation::Signal { job, number } => {
            check_job(job)?;
            // SIGRTMAX of Linux.
            within("number", *number, 1..=64)
        }
        Operation::Watch {
            job,
            files,
            interval_ms,
        } => {
            check_job(job)?;
            within("interval_ms", *interval_ms, 100..=3_600_000)?;
            check_paths(files)
        }
        Operation::Read { path, .. } | Operation::Names { path } => check_path(path),
        Operation::Write { path, mode, .. } => {
            check_path(path)?;
            within("mode", *mode, 0..=0o777)
        }
        Operation::PutBegin {
            path, sha256, mode, ..
        }
        | Operation::PutEnd {
            path, sha256, mode, ..
        } => {
            within("mode", *mode, 0..=0o777)?;
            check_path(path)?;
            check_digest(sha256)
        }
        Operation::PutChunk { path, sha256, .. } => {
            check_path(path)?;
            check_digest(sha256)
        }
        Operation::Pages { paths } | Operation::DropPages { paths } => check_paths(paths),
        Operation::ReadAhead { device, .. } => check_path(device),
    }
}

fn within<T>(place: &str, value: T, allowed: std::ops::RangeInclusive<T>) -> Outcome<()>
where
    T: PartialOrd + std::fmt::Display,
{
    if allowed.contains(&value) {
        return Ok(());
    }
    let rule = format!("it must be from {} to {}", allowed.start(), allowed.end());
    Err(Failure::new(
        place,
        value.to_string(),
        rule,
        "give another value",
    ))
}

/// A name of a job, or of a conductor: it becomes the name of a folder.
pub fn check_job(name: &str) -> Outcome<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(plain) && !name.starts_with('-') {
        return Ok(());
    }
    let rule = "1 to 64 of a-z, 0-9 and -, and no - at the begin";
    Err(Failure::new("job", shown(name), rule, "give another name"))
}

fn check_program(program: &Program) -> Outcome<()> {
    check_job(&program.job)?;
    let no_zero = |place: &str, text: &str| {
        if text.contains('\0') {
            let rule = "the kernel takes no zero byte there";
            return Err(Failure::new(place, shown(text), rule, "leave it out"));
        }
        Ok(())
    };
    within("words", program.words.len(), 1..=MOST_NAMED)?;
    within("variables", program.variables.len(), 0..=MOST_NAMED)?;
    for word in &program.words {
        no_zero("words", word)?;
    }
    for (name, value) in &program.variables {
        no_zero("variables", name)?;
        no_zero("variables", value)?;
        if name.is_empty() || name.contains('=') {
            let rule = "a variable has a name without =";
            return Err(Failure::new(
                "variables",
                shown(name),
                rule,
                "give another name",
            ));
        }
    }
    program.folder.as_deref().map_or(Ok(()), check_path)
}

fn check_paths(paths: &[String]) -> Outcome<()> {
    within("paths", paths.len(), 1..=MOST_NAMED)?;
    paths.iter().try_for_each(|path| check_path(path))
}

fn check_path(path: &str) -> Outcome<()> {
    let plain = path.starts_with('/')
        && path.len() <= MOST_PATH_BYTES
        && !path.contains('\0')
        && path.split('/').all(|part| part != "..");
    if plain {
        return Ok(());
    }
    let rule = "a path on a host is absolute, has no `..` and at most 4096 bytes";
    Err(Failure::new("path", shown(path), rule, "give another path"))
}

fn check_digest(text: &str) -> Outcome<()> {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() == 64 && text.bytes().all(hex) {
        return Ok(());
    }
    let rule = "a SHA-256 is 64 of 0-9 and a-f";
    Err(Failure::new(
        "sha256",
        shown(text),
        rule,
        "give the digest of the content",
    ))
}

/// The beginning of a value, for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// What a line becomes on its way: bytes changed, and its end cut off.
    fn spoiled(mut bytes: Vec<u8>, changes: &[(Index, u8)], keep: Index) -> Vec<u8> {
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        bytes.truncate(keep.index(bytes.len() + 1));
        bytes
    }

    const LINES: [&str; 5] = [
        r#"{"id": 7, "op": "beat", "lease_s": 900}"#,
        r#"{"id": 8, "op": "job", "job": "load-1", "words": ["sh", "-c", "id"], "folder": "/tmp", "stdin": "aGFsbG8="}"#,
        r#"{"id": 9, "op": "tail", "job": "load-1", "stream": "stdout", "offset": 0, "most_bytes": 65536, "wait_ms": 1000}"#,
        r#"{"id": 10, "op": "read", "path": "/proc/stat", "offset": 0, "most_bytes": 4096}"#,
        r#"{"id": 11, "op": "signal", "job": "load-1", "number": 15}"#,
    ];

    #[test]
    fn whole_lines_are_requests() {
        for line in LINES {
            assert!(parse(line.as_bytes()).is_ok(), "{line}");
        }
    }

    proptest! {
        // PROPTEST_CASES asks for more: see `make fuzz`.
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(4096),
            ..ProptestConfig::default()
        })]

        #[test]
        fn fuzz_what_is_read_keeps_to_the_contract(which in 0..LINES.len(), changes in vec((any::<Index>(), any::<u8>()), 0..6), keep: Index) {
            let line = spoiled(LINES[which].as_bytes().to_vec(), &changes, keep);
            match parse(&line) {
                // How much and how long is bounded where it is done: more than that is asked for in vain.
                Ok(Request { operation: Operation::Read { path, .. }, .. }) => {
                    prop_assert!(path.starts_with('/') && !path.split('/').any(|part| part == ".."));
                }
                Ok(Request { operation: Operation::Job(program), .. }) => {
                    prop_assert!(check_job(&program.job).is_ok());
                    prop_assert!(program.words.len() <= MOST_NAMED);
                }
                Ok(Request { operation: Operation::Tail { job, .. }, .. }) => {
                    prop_assert!(check_job(&job).is_ok());
                }
                Ok(_) | Err(_) => (),
            }
        }
    }
}
