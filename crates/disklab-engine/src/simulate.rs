//! `disklab-engine simulate`: cells of a matrix in virtual time, on all cores.

use std::io::{self, BufRead, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, ValueEnum};
use disklab_sim::cell::Fidelity;
use serde_json::{Value, json};

/// Arguments of the subcommand.
#[derive(Args)]
pub struct Simulate {
    /// How many cells at a time; all cores by default.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Overrides the fidelity of every job.
    #[arg(long, value_enum)]
    fidelity: Option<FidelityChoice>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FidelityChoice {
    Full,
    Quick,
}

impl From<FidelityChoice> for Fidelity {
    fn from(choice: FidelityChoice) -> Fidelity {
        match choice {
            FidelityChoice::Full => Fidelity::Full,
            FidelityChoice::Quick => Fidelity::Quick,
        }
    }
}

/// Jobs read ahead for each worker: reading never holds a worker up, and never fills the memory.
const READ_AHEAD: usize = 4;

/// Reads one job a line, prints one JSON line as each is done, in the order of completion, and a
/// last line. Returns whether every job was accepted.
pub fn simulate(
    arguments: &Simulate,
    jobs: impl BufRead,
    answers: impl Write + Send,
) -> io::Result<bool> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let workers = arguments.jobs.map_or(cores, NonZero::get);
    let (sender, receiver) = sync_channel::<String>(workers * READ_AHEAD);
    let receiver = Mutex::new(receiver);
    let output = Mutex::new(Output::new(answers));
    let clock = Instant::now();
    let read = std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(arguments.fidelity, &receiver, &output));
        }
        let mut read = Ok(());
        for line in jobs.lines() {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
        }
        drop(sender);
        read
    });
    let mut output = output.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (cells, refused) = (output.cells, output.refused);
    output.print(&json!({
        "event": "done",
        "cells": cells,
        "refused": refused,
        "wall_s": clock.elapsed().as_secs_f64(),
    }));
    read.and(output.failure.map_or(Ok(refused == 0), Err))
}

fn work<W: Write>(
    fidelity: Option<FidelityChoice>,
    receiver: &Mutex<Receiver<String>>,
    output: &Mutex<Output<W>>,
) {
    loop {
        let line = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(line) = line else { return };
        let (answers, accepted) = disklab_sim::answers(&line, fidelity.map(Fidelity::from));
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        for answer in &answers {
            output.cells += 1;
            output.refused += u64::from(!accepted);
            output.print(answer);
        }
        if output.failure.is_some() {
            return;
        }
    }
}

struct Output<W> {
    answers: W,
    cells: u64,
    refused: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Output<W> {
    fn new(answers: W) -> Output<W> {
        Output {
            answers,
            cells: 0,
            refused: 0,
            failure: None,
        }
    }

    fn print(&mut self, line: &Value) {
        let written = writeln!(self.answers, "{line}").and_then(|()| self.answers.flush());
        if let Err(error) = written {
            self.failure = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_job_is_refused_with_its_number() {
        let arguments = Simulate {
            jobs: NonZero::new(2),
            fidelity: None,
        };
        let jobs =
            "nonsense\n\n{\"cell\": 7, \"seed\": 1, \"speed\": 2}\n{\"cell\": 8, \"seed\": 1}\n";
        let mut answers = Vec::new();
        let all = simulate(&arguments, jobs.as_bytes(), &mut answers).expect("no I/O here");
        assert!(!all);
        let text = String::from_utf8(answers).expect("JSON is UTF-8");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("unknown field `speed`"), "{text}");
        assert!(text.contains("exactly one of these keys"), "{text}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap_or("")).expect("JSON");
        assert_eq!((&last["cells"], &last["refused"]), (&json!(3), &json!(3)));
    }
}
