//! One emulated host from start to end.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use disklab_disk::profile::{HostProfile, Medium, VolumeProfile};
use disklab_disk::{Change, Fault, Host};
use serde::Serialize;

use crate::backing::{Backing, BackingChoice, BackingKind, FileBacking, MemoryBacking, remove};
use crate::calibrate::Envelope;
use crate::clock;
use crate::command::{self, Command, Commands, Inbox, Timing, View};
use crate::control;
use crate::device::{Device, Devices, Prepared};
use crate::driver::{Driver, End};
use crate::error::EmulatorError;
use crate::event::Event;
use crate::front::{Front, Source};
use crate::fuse::Mount;
use crate::host_dir::{HostDir, VolumeRecord, check_name};
use crate::protect;
use crate::signals::Signals;
use crate::transport::{TransportKind, VolumeIndex};
use crate::watchdog::{self, Heartbeat};

mod calibration;

/// Which transport is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// The best that this kernel has.
    Auto,
    /// This one or none.
    Only(TransportKind),
}

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
    pub calibrate: bool,
}

/// The logical block of a device unless asked otherwise. Cloud disks have 4 KiB physical sectors, and that
/// is what file systems align to on them.
const BLOCK_BYTES: u32 = 4096;

/// A running host, as the control socket sees it.
pub struct Emulated {
    options: Options,
    directory: HostDir,
    commands: Commands,
    kind: TransportKind,
    devices: Devices,
    envelope: Option<Envelope>,
    volumes: Vec<Attached>,
    signals: Signals,
}

struct Attached {
    name: String,
    index: VolumeIndex,
    device: Device,
    backing: BackingChoice,
    medium: Medium,
}

/// Answer to `hello`.
#[derive(Serialize)]
pub struct Hello {
    version: &'static str,
    host: String,
    pid: u32,
    transport: TransportKind,
    envelope: Option<Envelope>,
}

/// Answer to `attach`.
#[derive(Serialize)]
pub struct AttachedVolume {
    device: PathBuf,
    file: Option<PathBuf>,
    backing_file: Option<PathBuf>,
    reused: bool,
}

/// One line of `list`.
#[derive(Serialize)]
pub struct ListedVolume {
    name: String,
    device: PathBuf,
    size_bytes: u64,
    caching: disklab_disk::profile::Caching,
    disks: Vec<String>,
}

/// Becomes an emulated host and serves until it is shut down. Reports on standard output.
pub fn run(options: Options, profile: HostProfile) -> Result<(), EmulatorError> {
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
    let started = start(options, directory, profile, signals.clone(), heartbeat);
    let (emulated, mount, driver) = match started {
        Ok(started) => started,
        Err(error) => {
            heartbeat.stop();
            return Err(error);
        }
    };
    serve(emulated, mount, driver, &signals, heartbeat)
}

type DriverThread = JoinHandle<std::io::Result<End>>;
type Started = (Arc<Mutex<Emulated>>, Option<Mount>, DriverThread);

fn start(
    options: Options,
    directory: HostDir,
    profile: HostProfile,
    signals: Signals,
    heartbeat: Heartbeat,
) -> Result<Started, EmulatorError> {
    directory.write_pid()?;
    directory.write_profile(&profile)?;
    let Front {
        mount,
        devices,
        source,
    } = Front::open(&directory, options.transport)?;
    let (commands, inbox) = command::channel().map_err(|error| {
        EmulatorError::system(
            "control",
            "eventfd",
            &error,
            "look at the limit of open files",
        )
    })?;
    let mut host_profile = profile;
    let volumes = std::mem::take(&mut host_profile.volumes);
    let host = Host::new(host_profile, clock::now())?;
    let kind = source.kind();
    let driver = spawn_driver(source, host, inbox, heartbeat, signals.clone())?;
    let mut emulated = Emulated {
        options,
        directory,
        commands,
        kind,
        devices,
        envelope: None,
        volumes: Vec::new(),
        signals,
    };
    if emulated.options.calibrate
        && let Err(error) = emulated.calibrate()
    {
        let text = format!("the machine was not measured: {error}");
        Event::Warning { text }.print();
    }
    let attached = volumes.into_iter().try_for_each(|volume| {
        emulated
            .attach(volume, BackingChoice::default(), None)
            .map(|_| ())
    });
    if let Err(error) = attached {
        emulated.detach_all();
        let _ = emulated.commands.send(Command::Stop);
        let _ = mount.map(Mount::unmount);
        let _ = driver.join();
        emulated.directory.remove();
        return Err(error);
    }
    Ok((Arc::new(Mutex::new(emulated)), mount, driver))
}

fn spawn_driver(
    source: Source,
    host: Host,
    inbox: Inbox,
    heartbeat: Heartbeat,
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
        let end = Driver::new(ring, transport, kind, host, inbox, heartbeat).run();
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

fn serve(
    emulated: Arc<Mutex<Emulated>>,
    mount: Option<Mount>,
    driver: DriverThread,
    signals: &Signals,
    heartbeat: Heartbeat,
) -> Result<(), EmulatorError> {
    let socket = lock(&emulated).directory.socket();
    control::serve(&socket, emulated.clone()).map_err(|error| {
        EmulatorError::system(
            socket.display().to_string(),
            "bind",
            &error,
            "choose a run directory with a shorter path (sockets allow 107 bytes)",
        )
    })?;
    {
        let emulated = lock(&emulated);
        Event::Ready {
            pid: std::process::id(),
            transport: emulated.kind,
            envelope: emulated.envelope,
            volumes: emulated
                .volumes
                .iter()
                .map(|volume| volume.name.clone())
                .collect(),
        }
        .print();
    }
    let reason = signals.wait();
    // From here on the control socket waits for the lock and ends with the process.
    let mut emulated = lock(&emulated);
    let left = emulated.detach_all();
    let _ = mount.map(Mount::unmount);
    let _ = emulated.commands.send(Command::Stop);
    let _ = driver.join();
    heartbeat.stop();
    // What is left tells `disklab clean` which devices are ours.
    if left.is_empty() {
        emulated.directory.remove();
    }
    Event::Stopped {
        reason: reason.to_owned(),
        left,
    }
    .print();
    std::process::exit(0)
}

fn lock(emulated: &Mutex<Emulated>) -> std::sync::MutexGuard<'_, Emulated> {
    emulated.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulated {
    /// Who this is.
    pub fn hello(&self) -> Hello {
        Hello {
            version: env!("CARGO_PKG_VERSION"),
            host: self.options.host.clone(),
            pid: std::process::id(),
            transport: self.kind,
            envelope: self.envelope,
        }
    }

    /// Makes a volume and its device; undoes everything when a step fails.
    pub fn attach(
        &mut self,
        profile: VolumeProfile,
        backing: BackingChoice,
        block_bytes: Option<u32>,
    ) -> Result<AttachedVolume, EmulatorError> {
        let name = profile.name.clone();
        check_name("volume.name", &name)?;
        if self.volumes.iter().any(|volume| volume.name == name) {
            return Err(EmulatorError::new(
                "volume.name",
                name,
                "a volume of that name is attached already",
                "detach it first or choose another name",
            ));
        }
        let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES);
        if !matches!(block_bytes, 512 | 4096) {
            return Err(EmulatorError::new(
                "block_bytes",
                block_bytes.to_string(),
                "the logical block of a disk is 512 or 4096 bytes",
                "leave it out for 4096",
            ));
        }
        let medium = profile
            .disks
            .first()
            .map_or(Medium::Remote, |disk| disk.medium);
        let (opened, reused) = self.open(&name, profile.size_bytes, medium, backing)?;
        let prepared = self
            .devices
            .prepare(&name, profile.size_bytes, block_bytes)?;
        let timing = Timing::Model(Box::new(profile));
        let index = self
            .commands
            .ask(|answer| Command::Attach(timing, opened, answer))??;
        let device = match self.make_device(&name, prepared, backing) {
            Ok(device) => device,
            Err(error) => {
                let _ = self.commands.ask(|answer| Command::Detach(index, answer));
                return Err(error);
            }
        };
        let path = device.path();
        self.volumes.push(Attached {
            name: name.clone(),
            index,
            device,
            backing,
            medium,
        });
        Ok(AttachedVolume {
            device: path,
            file: self.volume_file(&name),
            backing_file: self.backing_file(&name, backing),
            reused,
        })
    }

    /// The file that a loop device shows; ublk has none.
    fn volume_file(&self, name: &str) -> Option<PathBuf> {
        matches!(self.devices, Devices::Loop).then(|| self.directory.volume_file(name))
    }

    fn backing_file(&self, name: &str, backing: BackingChoice) -> Option<PathBuf> {
        (backing.kind == BackingKind::File).then(|| self.directory.backing_file(name))
    }

    /// Data on a network disk stay from attach to attach; those on the host's own disks do not, not even after
    /// a crash of this process.
    fn open(
        &self,
        name: &str,
        size: u64,
        medium: Medium,
        choice: BackingChoice,
    ) -> Result<(Backing, bool), EmulatorError> {
        match choice.kind {
            BackingKind::Memory => {
                let memory = MemoryBacking::new(size, choice.preallocate)?;
                Ok((Backing::Memory(memory), false))
            }
            BackingKind::File => {
                let path = self.directory.backing_file(name);
                let keep = medium == Medium::Remote;
                let opened = FileBacking::open(&path, size, keep, choice.preallocate)?;
                Ok((Backing::File(opened.backing), opened.reused))
            }
        }
    }

    fn make_device(
        &self,
        name: &str,
        prepared: Prepared,
        backing: BackingChoice,
    ) -> Result<Device, EmulatorError> {
        let device = prepared.make(&self.directory.volume_file(name))?;
        let record = VolumeRecord {
            device: device.path().display().to_string(),
            file: self
                .volume_file(name)
                .map(|path| path.display().to_string()),
            backing_file: self
                .backing_file(name, backing)
                .map(|path| path.display().to_string()),
            made_by: concat!("disklab-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        if let Err(error) = self.directory.write_volume(name, &record) {
            let _ = device.detach();
            return Err(error);
        }
        Ok(device)
    }

    fn find(&self, name: &str) -> Result<&Attached, EmulatorError> {
        self.volumes
            .iter()
            .find(|volume| volume.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = self
                    .volumes
                    .iter()
                    .map(|volume| volume.name.as_str())
                    .collect();
                EmulatorError::new(
                    "volume",
                    name,
                    "no volume of that name is attached",
                    format!("attached are: {}", names.join(", ")),
                )
            })
    }

    /// Takes a volume away. Refused while somebody uses it.
    pub fn detach(&mut self, name: &str, delete_data: bool) -> Result<(), EmulatorError> {
        let volume = self.find(name)?;
        let (index, backing, medium) = (volume.index, volume.backing, volume.medium);
        volume
            .device
            .detach()
            .map_err(|in_use| in_use.explain(name, &volume.device))?;
        self.volumes.retain(|volume| volume.name != name);
        self.directory.forget_volume(name);
        self.commands.ask(|answer| Command::Detach(index, answer))?;
        let path = self.directory.backing_file(name);
        if backing.kind == BackingKind::File && (delete_data || medium != Medium::Remote) {
            remove(&path).map_err(|error| {
                EmulatorError::system(
                    path.display().to_string(),
                    "remove",
                    &error,
                    "the volume is detached; remove its data by hand",
                )
            })?;
        }
        Ok(())
    }

    /// Detaches what nobody uses; returns the devices that stay.
    fn detach_all(&mut self) -> Vec<String> {
        let names: Vec<String> = self
            .volumes
            .iter()
            .map(|volume| volume.name.clone())
            .collect();
        for name in names {
            let _ = self.detach(&name, false);
        }
        self.volumes
            .iter()
            .map(|volume| volume.device.path().display().to_string())
            .collect()
    }

    /// The attached volumes.
    pub fn list(&self) -> Result<Vec<ListedVolume>, EmulatorError> {
        self.volumes
            .iter()
            .map(|volume| {
                let profile = self.show(&volume.name)?.profile;
                Ok(ListedVolume {
                    name: volume.name.clone(),
                    device: volume.device.path(),
                    size_bytes: profile.size_bytes,
                    caching: profile.caching,
                    disks: profile.disks.into_iter().map(|disk| disk.name).collect(),
                })
            })
            .collect()
    }

    /// How a volume is doing.
    pub fn show(&self, name: &str) -> Result<View, EmulatorError> {
        let index = self.find(name)?.index;
        self.commands
            .ask(|answer| Command::Show(index, answer))?
            .ok_or_else(|| EmulatorError::new("volume", name, "it is gone", "list the volumes"))
    }

    /// Changes a volume.
    pub fn set(&self, name: &str, change: Change) -> Result<VolumeProfile, EmulatorError> {
        let index = self.find(name)?.index;
        Ok(self
            .commands
            .ask(|answer| Command::Set(index, change, answer))??)
    }

    /// Breaks or mends something. When the host fails or is deallocated, the volumes on its own disks get
    /// empty backings: their data are gone.
    pub fn fail(&self, name: &str, fault: Fault) -> Result<(), EmulatorError> {
        let index = self.find(name)?.index;
        let mut fresh = Vec::new();
        if matches!(fault, Fault::HostFailure | Fault::Deallocate) {
            for volume in &self.volumes {
                if volume.medium != Medium::Remote {
                    let size = self.show(&volume.name)?.profile.size_bytes;
                    let (backing, _) =
                        self.open(&volume.name, size, volume.medium, volume.backing)?;
                    fresh.push((volume.index, backing));
                }
            }
        }
        // The old backings are freed here, not by the driver: large files take a while.
        self.commands
            .ask(|answer| Command::Fail(index, fault, fresh, answer))??;
        Ok(())
    }

    /// Starts the end, unless a volume is in use.
    pub fn shutdown(&mut self) -> Result<(), EmulatorError> {
        for volume in &self.volumes {
            volume
                .device
                .claim()
                .map_err(|in_use| in_use.explain(&volume.name, &volume.device))?;
        }
        self.signals.shutdown();
        Ok(())
    }
}
