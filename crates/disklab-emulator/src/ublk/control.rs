//! Devices added, started, stopped and deleted through `/dev/ublk-control`.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::transport::MAX_IO_BYTES;
use crate::ublk::protocol::{
    ANY_DEVICE, ATTRIBUTE_VOLATILE_CACHE, CONTROL_PATH, ControlCommand, ControlOp, DeviceInfo,
    PARAMETER_TYPES, Parameters, SECTOR,
};

/// Requests of one device at a time: as many as a loop device takes, so that both queue alike.
pub const REQUESTS: u16 = 128;

/// Tags of the one queue of a device. One more than there may be requests, so that the driver always
/// holds one: Linux 6.12 notices the death of its server through the tags that it holds, and with all
/// of them in the server's hands the waiting I/O would hang for the block layer's 30 s.
pub const QUEUE_DEPTH: u16 = REQUESTS + 1;

/// Most bytes of one discard: one request then stays well inside the model's 4 GiB.
const MAX_DISCARD_BYTES: u64 = 1 << 30;

/// How long a start or a stop may wait for I/O on the device itself, which the model may hold back: as long
/// as the block layer waits for a request by default. Without a limit the control socket would hang with it.
const IO_LIMIT: Duration = Duration::from_secs(30);

/// A command that the driver refused or did not finish.
#[derive(Debug)]
pub struct ControlError {
    /// Which command.
    pub op: ControlOp,
    /// Which device.
    pub device: u32,
    /// Why.
    pub cause: io::Error,
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.device {
            ANY_DEVICE => write!(f, "{CONTROL_PATH}: {}: {}", self.op.name(), self.cause),
            device => write!(
                f,
                "{CONTROL_PATH}: {} of ublk device {device}: {}",
                self.op.name(),
                self.cause
            ),
        }
    }
}

impl std::error::Error for ControlError {}

/// An open `/dev/ublk-control`. Every call blocks until the driver has answered.
pub struct Control {
    node: File,
    // The driver takes control commands in 128-byte entries only.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    // Names each command, because the answer to one that ran into its limit may still come.
    sequence: u64,
}

impl Control {
    /// Opens the node. Fails where the kernel has no ublk_drv, or the module is not loaded, or
    /// without root.
    pub fn open() -> io::Result<Control> {
        let node = OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONTROL_PATH)?;
        let ring = IoUring::builder().build(1)?;
        Ok(Control {
            node,
            ring,
            sequence: 0,
        })
    }

    /// Makes `/dev/ublkcN` with one queue of [`QUEUE_DEPTH`] tags, and returns N. `mark` stays
    /// readable in [`DeviceInfo`] as long as the device exists.
    pub fn add(&mut self, mark: u64) -> Result<u32, ControlError> {
        let mut info = DeviceInfo {
            queues: 1,
            queue_depth: QUEUE_DEPTH,
            max_io_bytes: MAX_IO_BYTES,
            device: ANY_DEVICE,
            mark,
            ..DeviceInfo::default()
        };
        self.run(ControlOp::AddDevice, ANY_DEVICE, &mut info)?;
        Ok(info.device)
    }

    /// Says how large the disk is and what it takes: `block_bytes` (a power of two) as the logical
    /// and 4 KiB as the physical block, a volatile cache, discard in units of 4 KiB.
    pub fn set_parameters(
        &mut self,
        device: u32,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<(), ControlError> {
        let mut parameters = Parameters {
            bytes: size_of::<Parameters>() as u32,
            types: PARAMETER_TYPES,
            attributes: ATTRIBUTE_VOLATILE_CACHE,
            logical_block_shift: block_bytes.trailing_zeros() as u8,
            physical_block_shift: 12,
            optimal_io_shift: 12,
            minimal_io_shift: 12,
            max_sectors: MAX_IO_BYTES / SECTOR as u32,
            sectors: size_bytes / SECTOR,
            discard_granularity: 4096,
            max_discard_sectors: (MAX_DISCARD_BYTES / SECTOR) as u32,
            max_discard_segments: 1,
            ..Parameters::default()
        };
        self.run(ControlOp::SetParameters, device, &mut parameters)
    }

    /// Makes `/dev/ublkbN`. Blocks until another thread has fetched every tag, and then until that
    /// thread has answered the reads that look for partitions.
    pub fn start(&mut self, device: u32) -> Result<(), ControlError> {
        let pid = u64::from(std::process::id());
        self.run_plain(ControlOp::StartDevice, device, pid, IO_LIMIT)
    }

    /// Removes `/dev/ublkbN`. Dirty pages are written first, so another thread must go on serving.
    pub fn stop(&mut self, device: u32) -> Result<(), ControlError> {
        self.run_plain(ControlOp::StopDevice, device, 0, IO_LIMIT)
    }

    /// Removes `/dev/ublkcN`, which no process may have open any more, and waits until the number
    /// is free. `ETIME`: somebody still held the device or its disk after `limit`; it goes when
    /// they let go.
    pub fn delete(&mut self, device: u32, limit: Duration) -> Result<(), ControlError> {
        self.run_plain(ControlOp::DeleteDevice, device, 0, limit)
    }

    /// What the driver knows of a device; `ENODEV` when there is none of that number.
    pub fn info(&mut self, device: u32) -> Result<DeviceInfo, ControlError> {
        let mut info = DeviceInfo::default();
        self.run(ControlOp::GetDeviceInfo, device, &mut info)?;
        Ok(info)
    }

    /// A command with a buffer. These never wait for another process, so there is no limit: the
    /// buffer stays valid until the driver has answered.
    fn run<T>(&mut self, op: ControlOp, device: u32, buffer: &mut T) -> Result<(), ControlError> {
        let command = ControlCommand {
            device,
            buffer: ptr::from_mut(buffer).cast::<c_void>(),
            buffer_bytes: u16::try_from(size_of::<T>()).expect("structures of a few bytes"),
            argument: 0,
        };
        self.submit(op, &command, None)
    }

    fn run_plain(
        &mut self,
        op: ControlOp,
        device: u32,
        argument: u64,
        limit: Duration,
    ) -> Result<(), ControlError> {
        let command = ControlCommand {
            device,
            buffer: ptr::null_mut(),
            buffer_bytes: 0,
            argument,
        };
        self.submit(op, &command, Some(limit))
    }

    fn submit(
        &mut self,
        op: ControlOp,
        command: &ControlCommand,
        limit: Option<Duration>,
    ) -> Result<(), ControlError> {
        let failed = |cause| ControlError {
            op,
            device: command.device,
            cause,
        };
        self.sequence += 1;
        let entry = opcode::UringCmd80::new(Fd(self.node.as_raw_fd()), op.code())
            .cmd(command.encode())
            .build()
            .user_data(self.sequence);
        // SAFETY: the buffer of a command that has one is borrowed by `run`, which passes no limit
        // and so returns only after the driver's answer.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| failed(io::Error::from_raw_os_error(libc::EBUSY)))?;
        let timespec = limit.map(Timespec::from);
        loop {
            let args = match &timespec {
                Some(timespec) => SubmitArgs::new().timespec(timespec),
                None => SubmitArgs::new(),
            };
            match self.ring.submitter().submit_with_args(1, &args) {
                Ok(_) => {}
                Err(cause) if cause.raw_os_error() == Some(libc::EINTR) => continue,
                Err(cause) => return Err(failed(cause)),
            }
            for completion in self.ring.completion() {
                if completion.user_data() == self.sequence {
                    return match completion.result() {
                        result if result < 0 => Err(failed(io::Error::from_raw_os_error(-result))),
                        _ => Ok(()),
                    };
                }
            }
        }
    }
}
