//! What the kernel side of a host is: a FUSE mount with loop devices, or ublk devices.

use std::io;
use std::path::Path;

use crate::device::Devices;
use crate::error::EmulatorError;
use crate::fuse::{Connection, DevTransport, Mount, UringTransport};
use crate::host_dir::HostDir;
use crate::ring::Ring;
use crate::transport::{Transport, TransportChoice, TransportKind};
use crate::ublk::{self, UblkTransport};

/// Absent where the module is not loaded and in many containers.
const FUSE: &str = "/dev/fuse";

/// The kernel side of a host.
pub struct Front {
    /// The FUSE mount; none with ublk.
    pub mount: Option<Mount>,
    /// What makes the devices.
    pub devices: Devices,
    /// Where requests come from.
    pub source: Source,
}

/// Where requests come from, to be opened on the driver's thread.
pub enum Source {
    /// A negotiated FUSE connection.
    Fuse(Connection),
    /// Queues of ublk devices.
    Ublk(UblkTransport),
}

impl Front {
    /// Opens what was chosen. `Auto` is FUSE over io_uring, else FUSE over /dev/fuse, whose timing is measured
    /// on real machines; ublk, tested for what it does and not for how fast, where there is no FUSE.
    pub fn open(directory: &HostDir, choice: TransportChoice) -> Result<Front, EmulatorError> {
        let without_fuse = || !Path::new(FUSE).exists() && ublk::present();
        let chosen = match choice {
            TransportChoice::Auto => without_fuse(),
            TransportChoice::Only(kind) => kind == TransportKind::Ublk,
        };
        if chosen {
            let (transport, devices) = ublk::open(directory.path())?;
            return Ok(Front {
                mount: None,
                devices: Devices::Ublk(devices),
                source: Source::Ublk(transport),
            });
        }
        let want_io_uring = choice != TransportChoice::Only(TransportKind::Fuse);
        let (mount, connection) = Mount::new(&directory.mount_point(), want_io_uring)?;
        if choice == TransportChoice::Only(TransportKind::FuseIoUring) && !connection.io_uring {
            return Err(EmulatorError::new(
                "--transport",
                "fuse-io-uring",
                "this kernel does not offer it: it came with Linux 6.14 and needs CONFIG_FUSE_IO_URING",
                "use --transport auto",
            ));
        }
        Ok(Front {
            mount: Some(mount),
            devices: Devices::Loop,
            source: Source::Fuse(connection),
        })
    }
}

impl Source {
    /// Which transport this is.
    pub fn kind(&self) -> TransportKind {
        match self {
            Source::Fuse(connection) if connection.io_uring => TransportKind::FuseIoUring,
            Source::Fuse(_) => TransportKind::Fuse,
            Source::Ublk(_) => TransportKind::Ublk,
        }
    }

    /// Opens the transport and its ring. A ring belongs to the thread that made it: the driver's.
    pub fn open(self) -> io::Result<(Ring, Box<dyn Transport>)> {
        match self {
            Source::Fuse(connection) if connection.io_uring => {
                let mut ring = Ring::wide()?;
                let transport = UringTransport::new(connection.device, &mut ring)?;
                Ok((ring, Box::new(transport)))
            }
            Source::Fuse(connection) => {
                let mut ring = Ring::narrow()?;
                let transport = DevTransport::new(connection.device, &mut ring)?;
                Ok((ring, Box::new(transport)))
            }
            Source::Ublk(transport) => Ok((Ring::narrow()?, Box::new(transport))),
        }
    }
}
