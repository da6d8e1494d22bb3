//! The commands that speak to a database.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use disklab_emulator::precedence;
use disklab_load::job::{Consistency, Job};
use disklab_load::{LoadError, Problem, query};

use super::privileges::RunAs;
use crate::REFUSED;

#[derive(Args)]
pub struct Query {
    /// HOST:PORT of a node; may be given several times.
    #[arg(long = "contact-point", required = true)]
    contact_points: Vec<String>,
    /// Asks those alone, and not the nodes that they know.
    #[arg(long)]
    only: bool,
    /// The longest that a statement or a connection may take.
    #[arg(long, default_value_t = 12_000)]
    timeout_ms: u64,
    /// Consistency level, in CQL's own words.
    #[arg(long, default_value = "LOCAL_ONE", value_parser = consistency)]
    consistency: Consistency,
    /// Encrypts every connection.
    #[arg(long)]
    tls: bool,
    /// Certificates (PEM) that a node's must come from, for its address; without, any is believed.
    #[arg(long, requires = "tls")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    user: RunAs,
}

fn consistency(text: &str) -> Result<Consistency, String> {
    let value = serde_json::Value::from(text.to_ascii_uppercase());
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Puts load on a database.
pub fn load(user: &RunAs) -> ExitCode {
    let done = read_job().and_then(|job| {
        if job.is_timed() {
            // In the system that is described, the client has CPUs of its own. A closed loop goes without: woken for
            // each single answer, it does fewer operations with its CPU (point selects: 204k a second instead of 328k).
            let _refused = precedence::take();
        }
        give_up_root(user)?;
        disklab_load::run(&job, std::io::stdout())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            let event = serde_json::json!({"event": "failed", "error": error.as_one()});
            println!("{event}");
            ExitCode::from(REFUSED)
        }
    }
}

fn give_up_root(user: &RunAs) -> Result<(), LoadError> {
    let refused = |error: std::io::Error| {
        let way_out = "start it as root, or without --run-as";
        Problem::new("--run-as", "this user", error.to_string(), way_out).into()
    };
    user.give_up_root().map_err(refused)
}

fn read_job() -> Result<Job, LoadError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Problem::new("standard input", "job", error.to_string(), "give a job"))?;
    Job::parse(&text)
}

/// Asks a database.
pub fn query(asked: Query) -> ExitCode {
    if let Err(error) = give_up_root(&asked.user) {
        eprintln!("disklab-engine: {error}");
        return ExitCode::from(REFUSED);
    }
    let options = query::Options {
        contact_points: asked.contact_points,
        only: asked.only,
        timeout: Duration::from_millis(asked.timeout_ms),
        consistency: asked.consistency,
        tls: asked.tls,
        ca_file: asked.ca_file,
    };
    match query::run(&options, std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(REFUSED),
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            ExitCode::FAILURE
        }
    }
}
