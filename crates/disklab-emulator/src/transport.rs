//! How requests reach the driver and replies leave it.

use disklab_disk::Op;
use serde::Serialize;

use crate::ring::Ring;

/// The place of one request between arrival and reply. Dense: 0 to the number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A volume as the emulator numbered it when it was attached. Never reused. Not the model's number:
/// volumes that only measure the machine are unknown to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeIndex(pub u32);

/// One I/O as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where its data and its reply go.
    pub slot: Slot,
    /// Which volume.
    pub volume: VolumeIndex,
    /// What to do.
    pub op: Op,
    /// First byte; offset + len may lie outside the volume: the driver checks.
    pub offset: u64,
    /// Number of bytes. At most [`MAX_IO_BYTES`] for reads and writes.
    pub len: u32,
}

/// The largest read or write that arrives as one request. The loop device is told, so that the
/// model sees the I/Os that the program made, as far as the kernel's own 1 MiB limit for FUSE (256
/// pages) allows.
pub const MAX_IO_BYTES: u32 = 1 << 20;

/// A volume as a transport shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The name; for FUSE the file's.
    pub name: String,
    /// Bytes.
    pub size: u64,
}

/// The error number of a failed request, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The other side has gone: the mount was aborted or unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A source of requests. Everything happens on the driver's thread, over the driver's ring.
pub trait Transport {
    /// Takes the completion of one of the transport's own ring entries (its token and result) and
    /// appends the requests that arrived.
    fn complete(
        &mut self,
        ring: &mut Ring,
        token: u32,
        result: i32,
        requests: &mut Vec<Request>,
    ) -> Result<(), Gone>;

    /// The data of the request in `slot`: written by a write, to be filled for a read. Stays where
    /// it is until the reply.
    fn data(&mut self, slot: Slot) -> &mut [u8];

    /// Ends the request in `slot`: so many bytes, or an error. The slot is free afterwards.
    fn reply(&mut self, ring: &mut Ring, slot: Slot, result: Result<u32, Errno>);

    /// Ends the read in `slot` with data that lie elsewhere, all that was asked for.
    fn reply_with(&mut self, ring: &mut Ring, slot: Slot, data: &[u8]) {
        self.data(slot).copy_from_slice(data);
        self.reply(ring, slot, Ok(data.len() as u32));
    }

    /// Shows a volume, or no longer (`None`). Returns how many slots there are now.
    fn show(&mut self, ring: &mut Ring, volume: VolumeIndex, shown: Option<Shown>) -> u32;
}

/// Which transport serves a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportKind {
    /// FUSE requests through an io_uring (Linux 6.14 and later).
    FuseIoUring,
    /// FUSE requests through read and write on /dev/fuse.
    Fuse,
    /// Requests of ublk devices through an io_uring (Linux 6.4 and later, with ublk_drv).
    Ublk,
}

/// Which transport is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// The best that this kernel has.
    Auto,
    /// This one or none.
    Only(TransportKind),
}

impl TransportKind {
    /// As on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            TransportKind::FuseIoUring => "fuse-io-uring",
            TransportKind::Fuse => "fuse",
            TransportKind::Ublk => "ublk",
        }
    }
}
