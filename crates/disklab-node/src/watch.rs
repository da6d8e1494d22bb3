//! Counters each second: a job like others, so that no second is lost while the link is.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::bytes::Bytes;
use crate::protocol::Program;
use crate::system;

/// The most of a file that is looked at: the largest of /proc on a host of 256 CPUs and 1000 disks.
const MOST_FILE_BYTES: u64 = 256 << 10;

/// The job that watches files.
pub fn program(job: String, files: Vec<String>, interval_ms: u64) -> Program {
    let mut words: Vec<String> = ["/proc/self/exe", "node-watch", "--interval-ms"]
        .map(str::to_owned)
        .to_vec();
    words.push(interval_ms.to_string());
    words.push("--".to_owned());
    words.extend(files);
    Program {
        job,
        words,
        stdin: Bytes::default(),
        variables: [].into(),
        folder: None,
        timeout_ms: None,
        most_spool_bytes: 1 << 30,
    }
}

/// Prints the raw bytes of files at each tick: all at the first, then those that have changed; null: not readable.
/// Ticks are whole multiples of the interval by the time of day of a clock that is not set back; one that was missed
/// is left out.
pub fn watch(files: &[String], interval: Duration, mut output: impl Write) -> io::Result<()> {
    let mut last: Vec<Option<Option<Vec<u8>>>> = vec![None; files.len()];
    let interval_ns = u64::try_from(interval.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    loop {
        let mut changed = Map::new();
        let t_ns = system::realtime_ns();
        let mono_ns = system::now_ns(libc::CLOCK_MONOTONIC);
        for (path, last) in files.iter().zip(&mut last) {
            let found = read(path).ok();
            if last.as_ref() != Some(&found) {
                changed.insert(path.clone(), json!(found.clone().map(Bytes)));
                *last = Some(found);
            }
        }
        let line = json!({"t_ns": t_ns, "mono_ns": mono_ns, "files": Value::Object(changed)});
        output.write_all(format!("{line}\n").as_bytes())?;
        output.flush()?;
        let now = system::now_ns(libc::CLOCK_MONOTONIC);
        std::thread::sleep(Duration::from_nanos(interval_ns - now % interval_ns));
    }
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    // O_NONBLOCK: a named pipe would wait for its writer.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut data = Vec::new();
    file.take(MOST_FILE_BYTES).read_to_end(&mut data)?;
    Ok(data)
}
