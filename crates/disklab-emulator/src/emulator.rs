//! One emulated host from start to end.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use disklab_disk::profile::{HostProfile, Medium, VolumeProfile};
use disklab_units::Dilation;
use serde::Serialize;

use crate::awake::Awake;
use crate::backing::BackingChoice;
use crate::calibrate::Envelope;
use crate::clock;
use crate::command::{self, Command, Commands, Inbox};
use crate::device::{Device, Devices};
use crate::dilated::DilatedHost;
use crate::driver::{Driver, End};
use crate::error::EmulatorError;
use crate::event::Event;
use crate::front::{Front, Source};
use crate::fuse::Mount;
use crate::host_dir::HostDir;
use crate::issue_times::Recorder;
use crate::protect;
use crate::signals::Signals;
use crate::transport::{TransportChoice, TransportKind, VolumeIndex};
use crate::watchdog::{self, Heartbeat};

mod calibration;
mod control;
mod host_cache;
mod issue;
mod volumes;

pub use host_cache::CacheRange;
pub use volumes::Data;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the host, unique in the run directory.
    pub host: String,
    /// Run directory.
    pub run_dir: PathBuf,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Transport.
    pub transport: TransportChoice,
    /// Measure the machine at start.
    pub calibrate: Calibrate,
    /// Leave idle CPUs alone: they are not kept awake while I/O is under way.
    pub let_cpus_sleep: bool,
}

/// What to measure at start. The overhead is found anew in any case but `No`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calibrate {
    /// Nothing: there is no envelope, and latencies keep the emulator's own part.
    No,
    /// The envelope, unless an earlier start under the same kernel has.
    Stored,
    /// The envelope in any case.
    Anew,
}

/// The logical block of a device unless asked otherwise. Cloud disks have 4 KiB physical sectors, and that
/// is what file systems align to on them.
const BLOCK_BYTES: u32 = 4096;

/// How long a detach waits for this machine's disk to take what is kept: half of what who asked waits.
pub const DETACH_WAIT: Duration = Duration::from_secs(20);
/// The same at an end by a signal, which is killed after ten seconds.
const END_WAIT: Duration = Duration::from_secs(5);

/// A running host, as the control socket sees it.
pub struct Emulated {
    options: Options,
    directory: HostDir,
    commands: Commands,
    kind: TransportKind,
    devices: Devices,
    /// Where the kernel tells when requests are issued.
    recorder: Option<Recorder>,
    volumes: Vec<Attached>,
    signals: Signals,
    identity: Arc<Identity>,
}

struct Attached {
    name: String,
    index: VolumeIndex,
    device: Device,
    backing: BackingChoice,
    medium: Medium,
}

/// Who this is. Apart from the host, so that it can be told while the host is busy.
pub struct Identity(Mutex<Hello>);

/// Answer to `hello`.
#[derive(Clone, Serialize)]
pub struct Hello {
    version: &'static str,
    host: String,
    pid: u32,
    transport: TransportKind,
    /// Seconds of this machine for each second of the host.
    time_dilation: Dilation,
    envelope: Option<Envelope>,
}

/// Becomes an emulated host and serves until the end, which it reports on standard output. Returns whether the
/// end was asked for. An error means that the host did not come up and has left nothing behind.
pub fn run(options: Options, profile: HostProfile) -> Result<bool, EmulatorError> {
    let directory = HostDir::claim(&options.run_dir, &options.data_dir, &options.host)?;
    let signals = Signals::new().map_err(|error| {
        EmulatorError::system("signals", "signalfd", &error, "report this as a bug")
    })?;
    for text in protect::protect() {
        Event::Warning { text }.print();
    }
    let heartbeat = watchdog::start(&directory.mount_point()).map_err(|error| {
        EmulatorError::system(
            "watchdog",
            "fork",
            &error,
            "look at the limits of processes (ulimit -u)",
        )
    })?;
    match start(options, directory, profile, signals.clone(), heartbeat) {
        Ok(up) => Ok(serve(up, &signals)),
        Err(error) => {
            heartbeat.stop();
            Err(error)
        }
    }
}

type DriverThread = JoinHandle<std::io::Result<End>>;

/// What must come down together.
struct Up {
    emulated: Arc<Mutex<Emulated>>,
    mount: Option<Mount>,
    driver: DriverThread,
    heartbeat: Heartbeat,
}

fn start(
    options: Options,
    directory: HostDir,
    mut profile: HostProfile,
    signals: Signals,
    heartbeat: Heartbeat,
) -> Result<Up, EmulatorError> {
    let description = profile.clone();
    let volumes = std::mem::take(&mut profile.volumes);
    let host = DilatedHost::new(profile, clock::now())?;
    let (commands, inbox) = command::channel().map_err(|error| {
        EmulatorError::system(
            "control",
            "eventfd",
            &error,
            "look at the limit of open files",
        )
    })?;
    let Front {
        mount,
        devices,
        source,
    } = Front::open(&directory, options.transport)?;
    let kind = source.kind();
    let identity = Identity::new(options.host.clone(), kind);
    let awake = Awake::new(options.let_cpus_sleep);
    let driver = spawn_driver(source, host, inbox, heartbeat, awake, signals.clone())?;
    let emulated = Emulated {
        options,
        directory,
        commands,
        kind,
        devices,
        recorder: None,
        volumes: Vec::new(),
        signals,
        identity: Arc::new(identity),
    };
    let up = Up {
        emulated: Arc::new(Mutex::new(emulated)),
        mount,
        driver,
        heartbeat,
    };
    let opened = lock(&up.emulated).open(&description, volumes, &up.emulated);
    match opened {
        Ok(()) => Ok(up),
        Err(error) => {
            let _ = up.take_down();
            Err(error)
        }
    }
}

impl Up {
    /// Takes everything down. What is in use stays without an engine behind it: its I/O fails. Returns the devices
    /// that stay and how the driver ended.
    fn take_down(self) -> (Vec<String>, std::io::Result<End>) {
        // From here on the control socket waits for the lock and ends with the process.
        let mut emulated = lock(&self.emulated);
        for text in emulated.detach_all(Data::Keep, END_WAIT) {
            Event::Warning { text }.print();
        }
        let left = emulated.devices();
        let _ = self.mount.map(|mount| mount.unmount(left.is_empty()));
        let _ = emulated.commands.send(Command::Stop);
        // A driver that panicked has taken the process with it.
        let end = self.driver.join().unwrap_or(Ok(End::Gone));
        self.heartbeat.stop();
        // What is left tells `disklab clean` which devices are ours.
        if left.is_empty() {
            emulated.directory.remove();
        }
        (left, end)
    }
}

fn spawn_driver(
    source: Source,
    host: DilatedHost,
    inbox: Inbox,
    heartbeat: Heartbeat,
    awake: Awake,
    signals: Signals,
) -> Result<DriverThread, EmulatorError> {
    let kind = source.kind();
    let (report, reported) = sync_channel(1);
    let body = move || {
        // A ring belongs to the thread that made it.
        let (ring, transport) = match source.open() {
            Ok(opened) => {
                let _ = report.send(Ok(()));
                opened
            }
            Err(error) => {
                let _ = report.send(Err(error));
                return Ok(End::Gone);
            }
        };
        let end = Driver::new(ring, transport, kind, host, inbox, heartbeat, awake).run();
        signals.ring();
        end
    };
    let failed = |error: &std::io::Error| {
        EmulatorError::system(
            "driver",
            kind.name(),
            error,
            "look at `sysctl kernel.io_uring_disabled` (it must not be 2) and at the memory limits",
        )
    };
    let thread = std::thread::Builder::new()
        .name("driver".to_owned())
        .spawn(body)
        .map_err(|error| failed(&error))?;
    match reported.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&std::io::ErrorKind::BrokenPipe.into())),
    }
}

/// Serves until the end comes. Returns whether it was asked for.
fn serve(up: Up, signals: &Signals) -> bool {
    {
        let emulated = lock(&up.emulated);
        Event::Ready {
            pid: std::process::id(),
            transport: emulated.kind,
            envelope: emulated.identity.hello().envelope,
            volumes: emulated
                .volumes
                .iter()
                .map(|volume| volume.name.clone())
                .collect(),
        }
        .print();
    }
    let asked = signals.wait();
    let (left, end) = up.take_down();
    let reason = match (asked, end) {
        (Some(asked), _) => asked.to_owned(),
        (None, Ok(_)) => "the mount was taken away or aborted".to_owned(),
        (None, Err(error)) => format!("the driver failed: {error}"),
    };
    Event::Stopped { reason, left }.print();
    asked.is_some()
}

fn lock(emulated: &Mutex<Emulated>) -> MutexGuard<'_, Emulated> {
    emulated.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Identity {
    fn new(host: String, transport: TransportKind) -> Identity {
        Identity(Mutex::new(Hello {
            version: env!("CARGO_PKG_VERSION"),
            host,
            pid: std::process::id(),
            transport,
            time_dilation: Dilation::default(),
            envelope: None,
        }))
    }

    /// The answer to `hello`.
    pub fn hello(&self) -> Hello {
        self.lock().clone()
    }

    /// Held for no longer than a copy takes.
    fn lock(&self) -> MutexGuard<'_, Hello> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Emulated {
    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Measures the machine, attaches the first volumes and opens the control socket.
    fn open(
        &mut self,
        profile: &HostProfile,
        volumes: Vec<VolumeProfile>,
        shared: &Arc<Mutex<Emulated>>,
    ) -> Result<(), EmulatorError> {
        self.directory.write_pid()?;
        self.directory.write_profile(profile)?;
        self.record_issues()?;
        if self.options.calibrate != Calibrate::No
            && let Err(error) = self.calibrate()
        {
            let text = format!("the machine was not measured: {error}");
            Event::Warning { text }.print();
        }
        for volume in volumes {
            self.attach(volume, BackingChoice::default(), None)?;
        }
        let socket = self.directory.socket();
        control::serve(&socket, shared.clone(), self.identity.clone()).map_err(|error| {
            EmulatorError::system(
                self.directory
                    .path()
                    .join("control.sock")
                    .display()
                    .to_string(),
                "bind",
                &error,
                "choose another run directory with DISKLAB_RUN_DIR",
            )
        })
    }

    /// Sets the burst credits of the VM's budgets and of all disks to a share of their buckets, in parts per
    /// million; more than a million is full.
    pub fn set_credits(&mut self, ppm: u32) -> Result<(), EmulatorError> {
        self.commands.ask(|answer| Command::Credits(ppm, answer))
    }

    /// Lets the time of the host run slower or faster from now on.
    pub fn dilate(&mut self, dilation: Dilation) -> Result<(), EmulatorError> {
        self.commands
            .ask(|answer| Command::Dilate(dilation, answer))?;
        self.identity.lock().time_dilation = dilation;
        Ok(())
    }

    /// Detaches every volume for the end, unless one is in use. Returns what is wrong with data that are kept. The end
    /// comes with [`end`](Self::end): the process must not be gone before its answer is on its way.
    pub fn shutdown(&mut self, data: Data) -> Result<Vec<String>, EmulatorError> {
        for volume in &self.volumes {
            volume
                .device
                .claim()
                .map_err(|in_use| in_use.explain(&volume.name, &volume.device.path()))?;
        }
        Ok(self.detach_all(data, DETACH_WAIT))
    }

    /// Ends the process.
    pub fn end(&self) {
        self.signals.shutdown();
    }
}
