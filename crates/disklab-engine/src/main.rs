//! The one binary, `disklab-engine`: JSON in, JSON lines out.

mod check;
mod format;
mod load;
mod node;
mod privileges;
mod simulate;
mod switch;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use disklab_disk::profile::HostProfile;
use disklab_emulator::ublk::{self, OwnedDevice};
use disklab_emulator::{Calibrate, EmulatorError, Event, Options, TransportChoice, TransportKind};

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
    /// Says whether the model accepts host profiles: one a line on standard input, one JSON answer a line.
    Check,
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
    /// Simulates cells of a matrix in virtual time: one job a line on standard input, one JSON line each.
    Simulate(simulate::Simulate),
    /// Carries frames between emulated hosts: orders (JSON lines) on standard input, one JSON answer a line.
    Switch,
    /// Lists the ublk devices that a host made (JSON lines), by the mark that the kernel keeps for them.
    UblkDevices(NamedHost),
    /// Removes what a killed host left of its ublk devices and lists it (JSON lines).
    RemoveUblk(NamedHost),
}

#[derive(Args)]
struct NamedHost {
    /// Name of the host.
    #[arg(long)]
    host: String,
    /// Where its sockets and mounts are.
    #[arg(long, env = "DISKLAB_RUN_DIR", default_value = "/run/disklab")]
    run_dir: PathBuf,
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

/// Exit code of a user's mistake or a limit of the machine.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    panics_end_the_process();
    let result = match Arguments::parse().command {
        Command::Emulate(emulate) => become_host(emulate),
        Command::Check => return check_profiles(),
        Command::Load(user) => return load::load(&user),
        Command::Query(query) => return load::query(query),
        Command::Node(settings) => return node::serve(settings),
        Command::NodeKeep => return node::keep(),
        Command::NodeWatch(files) => return node::watch(&files),
        Command::Format => return format::format(),
        Command::Simulate(arguments) => return simulate_cells(&arguments),
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

/// Ends the process at a panic, in whichever thread: what shares a lock with that thread relies on it. A release
/// does so by its profile; the profile of the tests unwinds, because a test must be able to see a panic.
fn panics_end_the_process() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}
