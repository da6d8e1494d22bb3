//! The one binary: `disklab-engine emulate`, JSON in, JSON lines out.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use disklab_disk::profile::HostProfile;
use disklab_emulator::{EmulatorError, Event, Options, TransportChoice, TransportKind};

/// The engine of disklab.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Becomes one emulated host: reads its profile (JSON) from standard input, prints events (JSON lines).
    Emulate(Emulate),
}

#[derive(Args)]
struct Emulate {
    /// Name of the host, unique in the run directory.
    #[arg(long)]
    host: String,
    /// Where sockets and mounts go.
    #[arg(long, env = "DISKLAB_RUN_DIR", default_value = "/run/disklab")]
    run_dir: PathBuf,
    /// Where backing files go.
    #[arg(long, env = "DISKLAB_DATA_DIR", default_value = "/var/lib/disklab")]
    data_dir: PathBuf,
    /// How requests reach the engine.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    transport: Transport,
    /// Starts without measuring the machine: at once, but without an envelope, and delays keep the engine's
    /// own part.
    #[arg(long)]
    no_calibrate: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    Auto,
    FuseIoUring,
    Fuse,
}

impl From<Transport> for TransportChoice {
    fn from(transport: Transport) -> TransportChoice {
        match transport {
            Transport::Auto => TransportChoice::Auto,
            Transport::FuseIoUring => TransportChoice::Only(TransportKind::FuseIoUring),
            Transport::Fuse => TransportChoice::Only(TransportKind::Fuse),
        }
    }
}

/// Exit code of a user's mistake or a limit of the machine.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let Command::Emulate(emulate) = Arguments::parse().command;
    let result = read_profile().and_then(|profile| {
        let options = Options {
            host: emulate.host,
            run_dir: emulate.run_dir,
            data_dir: emulate.data_dir,
            transport: emulate.transport.into(),
            calibrate: !emulate.no_calibrate,
        };
        disklab_emulator::run(options, profile)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            Event::Failed { error }.print();
            ExitCode::from(REFUSED)
        }
    }
}

fn read_profile() -> Result<HostProfile, EmulatorError> {
    let way_out = "give a host profile as in crates/disklab-disk/src/profile.rs";
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| EmulatorError::system("standard input", "profile", &error, way_out))?;
    serde_json::from_str(&text).map_err(|error| {
        let place = format!("standard input:{}:{}", error.line(), error.column());
        EmulatorError::new(place, "profile", error.to_string(), way_out)
    })
}
