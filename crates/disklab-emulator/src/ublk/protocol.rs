//! The kernel's side of ublk in numbers: commands, flags and the structures that they carry.
//!
//! **Source:** include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst of Linux 6.12. Only
//! the ioctl-encoded commands are used: newer kernels can be built without the older ones.

use std::ffi::c_void;

/// The device node through which devices are added, started, stopped and deleted.
pub const CONTROL_PATH: &str = "/dev/ublk-control";

/// `_IOC(direction, 'u', number, size)` as asm-generic/ioctl.h defines it.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((b'u' as u32) << 8) | number
}

/// `_IOC_READ`.
const READ: u32 = 2;
/// `_IOC_READ | _IOC_WRITE`.
const READ_WRITE: u32 = 3;

/// A command on [`CONTROL_PATH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOp {
    /// Reports what a device is: [`DeviceInfo`].
    GetDeviceInfo,
    /// Makes `/dev/ublkcN`.
    AddDevice,
    /// Removes `/dev/ublkcN`; waits until nobody has it or the disk open.
    DeleteDevice,
    /// Makes `/dev/ublkbN`; waits until every tag of every queue was fetched.
    StartDevice,
    /// Removes `/dev/ublkbN` and gives every fetched tag back.
    StopDevice,
    /// Sets [`Parameters`], before the start.
    SetParameters,
}

impl ControlOp {
    /// The command as the kernel wants it.
    pub const fn code(self) -> u32 {
        let (direction, number) = match self {
            ControlOp::GetDeviceInfo => (READ, 0x02),
            ControlOp::AddDevice => (READ_WRITE, 0x04),
            ControlOp::DeleteDevice => (READ_WRITE, 0x05),
            ControlOp::StartDevice => (READ_WRITE, 0x06),
            ControlOp::StopDevice => (READ_WRITE, 0x07),
            ControlOp::SetParameters => (READ_WRITE, 0x08),
        };
        ioc(direction, number, ControlCommand::BYTES)
    }

    /// The kernel's name for it, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            ControlOp::GetDeviceInfo => "UBLK_U_CMD_GET_DEV_INFO",
            ControlOp::AddDevice => "UBLK_U_CMD_ADD_DEV",
            ControlOp::DeleteDevice => "UBLK_U_CMD_DEL_DEV",
            ControlOp::StartDevice => "UBLK_U_CMD_START_DEV",
            ControlOp::StopDevice => "UBLK_U_CMD_STOP_DEV",
            ControlOp::SetParameters => "UBLK_U_CMD_SET_PARAMS",
        }
    }
}

/// `struct ublksrv_ctrl_cmd`, which travels inside the submission queue entry.
#[derive(Clone, Copy, Debug)]
pub struct ControlCommand {
    /// Which device; [`ANY_DEVICE`] lets [`ControlOp::AddDevice`] choose.
    pub device: u32,
    /// What the command reads or writes.
    pub buffer: *mut c_void,
    /// Its length in bytes.
    pub buffer_bytes: u16,
    /// The command's own argument.
    pub argument: u64,
}

/// "The driver chooses the number."
pub const ANY_DEVICE: u32 = u32::MAX;

impl ControlCommand {
    /// `sizeof(struct ublksrv_ctrl_cmd)`.
    const BYTES: usize = 32;

    /// The 80 bytes of command space of a 128-byte submission queue entry.
    pub fn encode(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&self.device.to_ne_bytes());
        // queue_id: the command is not for one queue.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.buffer_bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(self.buffer as u64).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.argument.to_ne_bytes());
        bytes
    }
}

/// `UBLK_S_DEV_LIVE`: the disk is there and somebody serves it.
pub const STATE_LIVE: u16 = 1;

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Hardware queues.
    pub queues: u16,
    /// Tags of a queue.
    pub queue_depth: u16,
    /// `UBLK_S_DEV_*`.
    pub state: u16,
    pub(super) pad0: u16,
    /// Most bytes of one request.
    pub max_io_bytes: u32,
    /// N of `/dev/ublkcN` and `/dev/ublkbN`.
    pub device: u32,
    /// Process that started it; -1 once that is gone, 0 before.
    pub server_pid: i32,
    pub(super) pad1: u32,
    /// `UBLK_F_*` that were agreed on.
    pub features: u64,
    /// `ublksrv_flags`: the driver keeps it for the server and never reads it. See [`super::ownership`].
    pub mark: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

/// `UBLK_ATTR_VOLATILE_CACHE`: the kernel sends FLUSH.
pub const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
/// `UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD`.
pub const PARAMETER_TYPES: u32 = 3;

/// `struct ublk_params` as far as its discard part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters {
    /// Bytes of this structure.
    pub bytes: u32,
    /// [`PARAMETER_TYPES`].
    pub types: u32,
    /// `UBLK_ATTR_*`.
    pub attributes: u32,
    /// Base two logarithms of block sizes in bytes.
    pub logical_block_shift: u8,
    /// The same, of the physical block.
    pub physical_block_shift: u8,
    /// The same, of the best I/O size.
    pub optimal_io_shift: u8,
    /// The same, of the smallest I/O size.
    pub minimal_io_shift: u8,
    /// Most sectors of one request.
    pub max_sectors: u32,
    /// Boundary that no request crosses; zero: none.
    pub chunk_sectors: u32,
    /// Capacity.
    pub sectors: u64,
    /// `virt_boundary_mask`; zero: none.
    pub virt_boundary_mask: u64,
    /// Offset of the first discardable block.
    pub discard_alignment: u32,
    /// Unit of discard in bytes.
    pub discard_granularity: u32,
    /// Most sectors of one discard.
    pub max_discard_sectors: u32,
    /// Most sectors of one write-zeroes; zero: the kernel writes zeros itself.
    pub max_write_zeroes_sectors: u32,
    /// Must be one.
    pub max_discard_segments: u16,
    pub(super) pad0: u16,
    pub(super) pad1: u32,
}

/// `UBLK_U_IO_FETCH_REQ`: gives a tag to the driver for the first time.
pub const FETCH: u32 = ioc(READ_WRITE, 0x20, 16);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: ends a tag's request and gives the tag back.
pub const COMMIT_AND_FETCH: u32 = ioc(READ_WRITE, 0x21, 16);
/// `UBLK_IO_RES_ABORT`: the device stops, the tag will not come back.
pub const ABORTED: i32 = -libc::ENODEV;

/// `struct ublksrv_io_cmd` for queue 0. The driver copies a write's data to `buffer` before it hands
/// the tag out, and a read's data from there when it gets the tag back.
pub fn encode_io_command(tag: u16, result: i32, buffer: *mut u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes[8..16].copy_from_slice(&(buffer as u64).to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_desc`: one request, written by the driver and mapped read-only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Operation in the low eight bits, `UBLK_IO_F_*` above.
    pub op_flags: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// First sector.
    pub start_sector: u64,
    addr: u64,
}

/// `UBLK_IO_OP_*` in the low bits of [`Descriptor::op_flags`].
pub const OP_MASK: u32 = 0xff;
/// `UBLK_IO_OP_READ`.
pub const OP_READ: u32 = 0;
/// `UBLK_IO_OP_WRITE`.
pub const OP_WRITE: u32 = 1;
/// `UBLK_IO_OP_FLUSH`.
pub const OP_FLUSH: u32 = 2;
/// `UBLK_IO_OP_DISCARD`.
pub const OP_DISCARD: u32 = 3;

/// Bytes of a sector in every length and position above, whatever the device's block size.
pub const SECTOR: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!(size_of::<DeviceInfo>(), 64);
        // basic (32) and discard (20) behind len and types, rounded up to the alignment of u64.
        assert_eq!(size_of::<Parameters>(), 64);
        assert_eq!(size_of::<Descriptor>(), 24);
        assert_eq!(std::mem::offset_of!(DeviceInfo, mark), 32);
        assert_eq!(std::mem::offset_of!(Parameters, discard_alignment), 40);
        assert_eq!(std::mem::offset_of!(Parameters, max_discard_segments), 56);
    }

    #[test]
    fn commands_are_ioctl_encoded() {
        // As a C compiler prints UBLK_U_CMD_ADD_DEV, UBLK_U_CMD_GET_DEV_INFO and the I/O commands.
        assert_eq!(ControlOp::AddDevice.code(), 0xc020_7504);
        assert_eq!(ControlOp::GetDeviceInfo.code(), 0x8020_7502);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }
}
