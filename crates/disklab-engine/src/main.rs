//! The one binary, `disklab-engine`: JSON in, JSON lines out. Built for anything but Linux, it predicts only.

mod check;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(not(target_os = "linux"))]
use elsewhere as machine;
#[cfg(target_os = "linux")]
use linux as machine;

/// The engine of disklab.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Says whether the model accepts host profiles: one a line on standard input, one JSON answer a line.
    Check,
    /// Simulates cells of a matrix in virtual time: one job a line on standard input, one JSON line each.
    Simulate(simulate::Simulate),
    #[command(flatten)]
    Machine(machine::Command),
}

/// Exit code of a user's mistake or a limit of the machine.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    panics_end_the_process();
    match Arguments::parse().command {
        Command::Check => check_profiles(),
        Command::Simulate(arguments) => simulate_cells(&arguments),
        Command::Machine(command) => machine::run(command),
    }
}

fn check_profiles() -> ExitCode {
    match check::check(std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(REFUSED),
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate_cells(arguments: &simulate::Simulate) -> ExitCode {
    let answers = std::io::stdout();
    match simulate::simulate(arguments, std::io::stdin().lock(), answers) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(REFUSED),
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends the process at a panic, in whichever thread: what shares a lock with that thread relies on it. A release
/// does so by its profile; the profile of the tests unwinds, because a test must be able to see a panic.
fn panics_end_the_process() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}
