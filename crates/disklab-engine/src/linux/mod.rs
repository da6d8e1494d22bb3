//! The commands that need Linux: its block devices, namespaces and counters.

mod format;
mod load;
mod node;
mod privileges;
mod switch;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use disklab_disk::profile::HostProfile;
use disklab_emulator::ublk::{self, OwnedDevice};
use disklab_emulator::{Calibrate, EmulatorError, Event, Options, TransportChoice, TransportKind};

use crate::REFUSED;

#[derive(Subcommand)]
pub enum Command {
    /// Becomes one emulated host: reads its profile (JSON) from standard input, prints events (JSON lines).
    Emulate(Emulate),
    /// Puts load on a database: reads a job (JSON) from standard input, prints progress (JSON lines).
    Load(privileges::RunAs),
    /// Asks a database: a CQL statement a line (JSON strings) on standard input, one JSON answer a line.
    Query(load::Query),
    /// Serves a conductor on this host: programs, files, counters, disks; JSON lines on the standard streams.
    Node(node::Node),
    /// Keeps one job of a node: reads its order (JSON) from standard input.
    #[command(hide = true)]
    NodeKeep,
    /// Prints files each second (JSON lines), as a job of a node does.
    #[command(hide = true)]
    NodeWatch(node::Watch),
    /// Makes a file system on a disk that is proved to be empty and in nobody's use: a job (JSON) on standard input.
    Format,
    /// Carries frames between emulated hosts: orders (JSON lines) on standard input, one JSON answer a line.
    Switch,
    /// Lists the ublk devices that a host made (JSON lines), by the mark that the kernel keeps for them.
    UblkDevices(NamedHost),
    /// Removes what a killed host left of its ublk devices and lists it (JSON lines).
    RemoveUblk(NamedHost),
}

/// Carries out one of them.
pub fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Emulate(emulate) => become_host(emulate),
        Command::Load(user) => return load::load(&user),
        Command::Query(query) => return load::query(query),
        Command::Node(settings) => return node::serve(settings),
        Command::NodeKeep => return node::keep(),
        Command::NodeWatch(files) => return node::watch(&files),
        Command::Format => return format::format(),
        Command::Switch => return carry_frames(),
        Command::UblkDevices(named) => {
            ublk::owned_devices(&named.run_dir, &named.host).map(|devices| print(&devices))
        }
        Command::RemoveUblk(named) => {
            ublk::remove_dead(&named.run_dir, &named.host).map(|devices| print(&devices))
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // The host came up and went down unasked.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("disklab-engine: {error}");
            Event::Failed { error }.print();
            ExitCode::from(REFUSED)
        }
    }
}

#[derive(Args)]
pub struct NamedHost {
    /// Name of the host.
    #[arg(long)]
    host: String,
    /// Where its sockets and mounts are.
    #[arg(long, env = "DISKLAB_RUN_DIR", default_value = "/run/disklab")]
    run_dir: PathBuf,
}

#[derive(Args)]
pub struct Emulate {
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
    /// Measures the machine even if an earlier start has: its figures are only as good as the machine was idle.
    #[arg(long, conflicts_with = "no_calibrate")]
    measure_anew: bool,
    /// Does not keep idle CPUs awake (/dev/cpu_dma_latency) while I/O is under way: saves power, and
    /// latencies below some milliseconds are less exact.
    #[arg(long, env = "DISKLAB_LET_CPUS_SLEEP", value_parser = clap::builder::FalseyValueParser::new())]
    let_cpus_sleep: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    Auto,
    FuseIoUring,
    Fuse,
    Ublk,
}

impl From<Transport> for TransportChoice {
    fn from(transport: Transport) -> TransportChoice {
        match transport {
            Transport::Auto => TransportChoice::Auto,
            Transport::FuseIoUring => TransportChoice::Only(TransportKind::FuseIoUring),
            Transport::Fuse => TransportChoice::Only(TransportKind::Fuse),
            Transport::Ublk => TransportChoice::Only(TransportKind::Ublk),
        }
    }
}

fn carry_frames() -> ExitCode {
    match switch::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disklab-engine switch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn become_host(emulate: Emulate) -> Result<bool, EmulatorError> {
    let profile = read_profile()?;
    let options = Options {
        host: emulate.host,
        run_dir: emulate.run_dir,
        data_dir: emulate.data_dir,
        transport: emulate.transport.into(),
        calibrate: match (emulate.no_calibrate, emulate.measure_anew) {
            (true, _) => Calibrate::No,
            (false, false) => Calibrate::Stored,
            (false, true) => Calibrate::Anew,
        },
        let_cpus_sleep: emulate.let_cpus_sleep,
    };
    disklab_emulator::run(options, profile)
}

/// Prints devices, one JSON object a line.
fn print(devices: &[OwnedDevice]) -> bool {
    for device in devices {
        println!("{}", serde_json::json!(device));
    }
    true
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
