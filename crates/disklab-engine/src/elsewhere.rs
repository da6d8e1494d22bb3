//! What is said where Linux is not: disks are emulated and databases loaded there only.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;

use crate::REFUSED;

#[derive(Subcommand)]
pub enum Command {
    /// Any other command, for which another build is needed.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Says that this build has no such command.
pub fn run(command: Command) -> ExitCode {
    let Command::Other(words) = command;
    let name = words.first().map(|word| word.to_string_lossy());
    eprintln!(
        "disklab-engine: {}: this build for {} predicts only (check, simulate); run it on Linux",
        name.as_deref().unwrap_or(""),
        std::env::consts::OS
    );
    ExitCode::from(REFUSED)
}
