//! `node` and what it starts for its jobs.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use disklab_node::{Failure, Patient, Settings};

/// What comes over the connection is read in parts of this size.
const READ_BYTES: usize = 64 << 10;

/// How a host is served.
#[derive(Args)]
pub struct Node {
    /// Who asks: a name for its jobs, which the next connection finds again.
    #[arg(long)]
    conductor: String,
    /// Comes back in the first line, so that nothing else is taken for it.
    #[arg(long)]
    hello: String,
    /// Where jobs are kept; by default disklab/node in the user's cache folder.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Jobs are ended when nothing was heard of the conductor for so many seconds.
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    lease_s: u64,
}

/// What is watched.
#[derive(Args)]
pub struct Watch {
    /// How often.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    interval_ms: u64,
    /// Absolute paths, of /proc and /sys too.
    #[arg(required = true)]
    files: Vec<String>,
}

/// Serves one conductor on the standard streams.
pub fn serve(node: Node) -> ExitCode {
    let settings = Settings {
        conductor: node.conductor,
        hello: node.hello,
        root: node.folder,
        lease_s: node.lease_s,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // Not through the library's own buffer: what waits there cannot be polled for.
    let stdin = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => File::from(stdin),
        Err(error) => return told(Err(Failure::system("standard input", &error))),
    };
    let patient = Patient::new(stdin, Duration::from_secs(node.lease_s));
    let input = BufReader::with_capacity(READ_BYTES, patient);
    told(disklab_node::serve(&settings, input, io::stdout()))
}

/// Keeps one job.
pub fn keep() -> ExitCode {
    told(disklab_node::keep().map_err(|error| Failure::system("keeper", &error)))
}

/// Prints counters each second.
pub fn watch(watch: &Watch) -> ExitCode {
    let interval = Duration::from_millis(watch.interval_ms);
    let ended = disklab_node::watch(&watch.files, interval, io::stdout());
    told(ended.map_err(|error| Failure::system("watch", &error)))
}

fn told(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("disklab-engine: {failure}");
            ExitCode::from(crate::REFUSED)
        }
    }
}
