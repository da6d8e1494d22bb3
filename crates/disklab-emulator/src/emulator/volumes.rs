//! The volumes of a host: made, changed, broken and taken away.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use disklab_disk::profile::{Caching, Medium, VolumeProfile};
use disklab_disk::{Change, Fault};
use serde::Serialize;

use crate::backing::{
    Backing, BackingChoice, BackingKind, FileBacking, Found, MemoryBacking, remove,
};
use crate::command::{Command, Timing, View};
use crate::device::{Device, Devices, Prepared};
use crate::emulator::{Attached, BLOCK_BYTES, Emulated};
use crate::error::EmulatorError;
use crate::host_dir::{VolumeRecord, check_name};
use crate::transport::VolumeIndex;

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
    caching: Caching,
    disks: Vec<String>,
    /// Why it takes no more writes.
    failure: Option<String>,
}

/// What becomes of a volume's data when it is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// They stay, and this machine's disk has taken them at the end, or it is said why not.
    Keep,
    /// Somebody removes them next.
    Abandon,
    /// They go.
    Remove,
}

impl Emulated {
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
        let (opened, found) = self.open_backing(&name, profile.size_bytes, medium, backing)?;
        let reused = found.as_ref().is_some_and(Found::has_data);
        let (index, device) = match self.show_device(profile, opened, backing, block_bytes) {
            Ok(shown) => shown,
            Err(error) => {
                if let Some(found) = found {
                    found.restore();
                }
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

    fn show_device(
        &mut self,
        profile: VolumeProfile,
        opened: Backing,
        backing: BackingChoice,
        block_bytes: u32,
    ) -> Result<(VolumeIndex, Device), EmulatorError> {
        let name = profile.name.clone();
        let prepared = self
            .devices
            .prepare(&name, profile.size_bytes, block_bytes)?;
        let timing = Timing::Model(Box::new(profile.clone()));
        let index = self
            .commands
            .ask(|answer| Command::Attach(timing, opened, answer))??;
        match self.make_device(&name, prepared, backing) {
            Ok(device) => {
                self.time_from_issue(index, &device.path(), &profile)?;
                Ok((index, device))
            }
            Err(error) => {
                let _ = self.commands.ask(|answer| Command::Detach(index, answer));
                Err(error)
            }
        }
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
    fn open_backing(
        &self,
        name: &str,
        size: u64,
        medium: Medium,
        choice: BackingChoice,
    ) -> Result<(Backing, Option<Found>), EmulatorError> {
        match choice.kind {
            BackingKind::Memory => {
                let memory = MemoryBacking::new(size, choice.preallocate)?;
                Ok((Backing::Memory(memory), None))
            }
            BackingKind::File => {
                let path = self.directory.backing_file(name);
                let keep = medium == Medium::Remote;
                let (file, found) = FileBacking::open(&path, size, keep, choice.preallocate)?;
                Ok((Backing::File(file), Some(found)))
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

    pub(super) fn find(&self, name: &str) -> Result<&Attached, EmulatorError> {
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

    /// Takes a volume away. Refused while somebody uses it. Waits until `deadline` for this machine's disk to take what
    /// is kept; returns what is wrong with it, if something is.
    pub fn detach(
        &mut self,
        name: &str,
        data: Data,
        deadline: Instant,
    ) -> Result<Option<String>, EmulatorError> {
        let volume = self.find(name)?;
        let (index, backing, medium) = (volume.index, volume.backing, volume.medium);
        let device = volume.device.path();
        volume
            .device
            .detach()
            .map_err(|in_use| in_use.explain(name, &volume.device.path()))?;
        self.forget(&device);
        self.volumes.retain(|volume| volume.name != name);
        self.directory.forget_volume(name);
        let backing_left = self.commands.ask(|answer| Command::Detach(index, answer))?;
        let path = self.directory.backing_file(name);
        if backing.kind == BackingKind::File && (data == Data::Remove || medium != Medium::Remote) {
            remove(&path).map_err(|error| {
                EmulatorError::system(
                    path.display().to_string(),
                    "remove",
                    &error,
                    "the volume is detached; remove its data by hand",
                )
            })?;
        } else if data == Data::Keep
            && let Some(Backing::File(mut file)) = backing_left
        {
            return Ok(file.settle(deadline).err());
        }
        Ok(None)
    }

    /// Detaches what nobody uses; returns what is wrong with data that are kept.
    pub(super) fn detach_all(&mut self, data: Data, wait: Duration) -> Vec<String> {
        let deadline = Instant::now() + wait;
        let names: Vec<String> = self
            .volumes
            .iter()
            .map(|volume| volume.name.clone())
            .collect();
        names
            .iter()
            .filter_map(|name| self.detach(name, data, deadline).ok().flatten())
            .collect()
    }

    /// The devices of the attached volumes.
    pub(super) fn devices(&self) -> Vec<String> {
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
                let View {
                    profile, failure, ..
                } = self.show(&volume.name)?;
                Ok(ListedVolume {
                    name: volume.name.clone(),
                    device: volume.device.path(),
                    size_bytes: profile.size_bytes,
                    caching: profile.caching,
                    disks: profile.disks.into_iter().map(|disk| disk.name).collect(),
                    failure,
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
    pub fn set(&mut self, name: &str, change: Change) -> Result<VolumeProfile, EmulatorError> {
        let volume = self.find(name)?;
        let (index, device) = (volume.index, volume.device.path());
        let profile = self
            .commands
            .ask(|answer| Command::Set(index, change, answer))??;
        self.time_from_issue(index, &device, &profile)?;
        Ok(profile)
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
                        self.open_backing(&volume.name, size, volume.medium, volume.backing)?;
                    fresh.push((volume.index, backing));
                }
            }
        }
        // The old backings are freed here, not by the driver: large files take a while.
        self.commands
            .ask(|answer| Command::Fail(index, fault, fresh, answer))??;
        Ok(())
    }
}
