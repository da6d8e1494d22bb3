//! The kernel's record of issued requests: a tracepoint's perf events, one for each CPU.
//!
//! **Source:** Linux, include/trace/events/block.h (`block_rq_issue`), include/uapi/linux/perf_event.h.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use disklab_disk::Op;
use disklab_units::Instant;

use super::Issued;

/// Of a CPU's ring. A loop device has 128 requests under way, unless told otherwise, with records of some 100 bytes.
const RING_BYTES: usize = 32 << 10;
/// The block layer counts in these, whatever a device's blocks are.
const SECTOR: u64 = 512;

// From <linux/perf_event.h>.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const DISABLED: u64 = 1;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCKID: u64 = 1 << 25;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
const PERF_RECORD_SAMPLE: u32 = 9;
/// Of `data_head` in `struct perf_event_mmap_page`; `data_tail` follows.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

// From <linux/mount.h>.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// `struct perf_event_attr`, up to `sample_max_stack` (Linux 4.8).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}
const _: () = assert!(size_of::<PerfEventAttr>() == 112);

/// A block device's number as the kernel keeps it (`MKDEV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber(pub u32);

impl DeviceNumber {
    /// Of a device file.
    pub fn of(device: &Path) -> io::Result<DeviceNumber> {
        let number = fs::metadata(device)?.rdev();
        Ok(DeviceNumber(
            (libc::major(number) << 20) | libc::minor(number),
        ))
    }
}

/// Says whose requests the kernel records. It does so until this is dropped.
pub struct Recorder {
    tracepoint: u64,
    cpus: Vec<Cpu>,
    devices: Vec<DeviceNumber>,
}

/// What records the requests that one CPU issues.
struct Cpu {
    number: i32,
    /// Has the ring, and never records anything itself.
    ring: OwnedFd,
    /// Records into the ring. A filter cannot be changed, so each change of the devices makes another.
    event: Option<OwnedFd>,
}

impl Recorder {
    /// Begins to record; at first no device's requests.
    pub fn start() -> io::Result<(Recorder, Vec<Ring>, Layout)> {
        let (tracepoint, layout) = tracepoint()?;
        let mut cpus = Vec::new();
        let mut rings = Vec::new();
        for number in online_cpus()? {
            let ring = open_event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, number)?;
            rings.push(Ring::map(&ring)?);
            cpus.push(Cpu {
                number,
                ring,
                event: None,
            });
        }
        let recorder = Recorder {
            tracepoint,
            cpus,
            devices: Vec::new(),
        };
        Ok((recorder, rings, layout))
    }

    /// Records the requests of this device too.
    pub fn watch(&mut self, device: DeviceNumber) -> io::Result<()> {
        if self.devices.contains(&device) {
            return Ok(());
        }
        self.devices.push(device);
        self.record()
    }

    /// No longer records the requests of this device.
    pub fn forget(&mut self, device: DeviceNumber) -> io::Result<()> {
        self.devices.retain(|&known| known != device);
        self.record()
    }

    /// What is issued meanwhile is not recorded.
    fn record(&mut self) -> io::Result<()> {
        let terms: Vec<String> = self
            .devices
            .iter()
            .map(|device| format!("dev == {}", device.0))
            .collect();
        let filter = CString::new(terms.join(" || ")).map_err(io::Error::other)?;
        for cpu in &mut self.cpus {
            cpu.event = None;
            if !terms.is_empty() {
                cpu.event = Some(cpu.record(self.tracepoint, &filter)?);
            }
        }
        Ok(())
    }
}

impl Cpu {
    fn record(&self, tracepoint: u64, filter: &CStr) -> io::Result<OwnedFd> {
        let event = open_event(PERF_TYPE_TRACEPOINT, tracepoint, self.number)?;
        let control = |request: libc::c_ulong, argument: libc::c_long| {
            // SAFETY: the argument is a number, or a string that outlives the call.
            match unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        control(PERF_EVENT_IOC_SET_FILTER, filter.as_ptr() as libc::c_long)?;
        control(PERF_EVENT_IOC_SET_OUTPUT, self.ring.as_raw_fd().into())?;
        control(PERF_EVENT_IOC_ENABLE, 0)?;
        Ok(event)
    }
}

/// Where the fields of the tracepoint's record lie, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    device: usize,
    sector: usize,
    sectors: usize,
    flags: usize,
}

impl Layout {
    /// From the kernel's `format` file of the tracepoint.
    fn parse(format: &str) -> Option<Layout> {
        let field = |name: &str| {
            let line = format.lines().find(|line| line.contains(name))?;
            let offset = line.split("offset:").nth(1)?;
            offset.split(';').next()?.trim().parse().ok()
        };
        Some(Layout {
            device: field(" dev;")?,
            sector: field(" sector;")?,
            sectors: field(" nr_sector;")?,
            flags: field(" rwbs[")?,
        })
    }

    /// The request of a record; `None` when it is neither a read nor a write.
    pub(super) fn issued(&self, time: u64, raw: &[u8]) -> Option<Issued> {
        let device = u32::from_ne_bytes(bytes(raw, self.device)?);
        let sector = u64::from_ne_bytes(bytes(raw, self.sector)?);
        let sectors = u32::from_ne_bytes(bytes(raw, self.sectors)?);
        // "R", "W", "WS", "FW": a flush before a write stands first.
        let flags: [u8; 2] = bytes(raw, self.flags)?;
        let op = match flags {
            [b'R', _] => Op::Read,
            [b'W', _] | [b'F', b'W'] => Op::Write,
            _ => return None,
        };
        let left = u64::from(sectors) * SECTOR;
        let start = sector.checked_mul(SECTOR)?;
        Some(Issued {
            at: Instant::from_nanos(time),
            device: DeviceNumber(device),
            op,
            start,
            end: start.checked_add(left)?,
            left,
        })
    }
}

fn bytes<const N: usize>(raw: &[u8], offset: usize) -> Option<[u8; N]> {
    raw.get(offset..)?.first_chunk().copied()
}

/// The number and the layout of the tracepoint, from a tracefs that is mounted nowhere.
fn tracepoint() -> io::Result<(u64, Layout)> {
    let owned = |fd: libc::c_long| match fd {
        // SAFETY: a descriptor that was just made and is nobody else's.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: a string that outlives the call.
    let context =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no strings.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            nothing,
            nothing,
            0,
        )
    };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory involved.
    let mount = owned(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0)
    })?;
    let text = |path: &CStr| -> io::Result<String> {
        // SAFETY: a string that outlives the call.
        let file = owned(libc::c_long::from(unsafe {
            libc::openat(
                mount.as_raw_fd(),
                path.as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            )
        }))?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    };
    let id = text(c"events/block/block_rq_issue/id")?;
    let layout = Layout::parse(&text(c"events/block/block_rq_issue/format")?);
    match (id.trim().parse(), layout) {
        (Ok(id), Some(layout)) => Ok((id, layout)),
        _ => Err(io::Error::other(
            "the kernel describes block_rq_issue in a way of its own",
        )),
    }
}

/// The CPUs that run, such as `0-3,6`.
fn online_cpus() -> io::Result<Vec<i32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    cpus(text.trim()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

fn cpus(list: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// An event of one CPU, which does not record yet.
fn open_event(kind: u32, config: u64, cpu: i32) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind,
        size: size_of::<PerfEventAttr>() as u32,
        config,
        sample_period: 1,
        sample_type: PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
        flags: DISABLED | WATERMARK | USE_CLOCKID,
        // Nobody waits for records, so nobody is to be woken.
        wakeup_watermark: u32::MAX,
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfEventAttr::default()
    };
    // SAFETY: the attributes outlive the call and say their size.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match event {
        // SAFETY: a descriptor that was just made and is nobody else's.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(event as RawFd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The records of one CPU. The kernel overwrites none that was not read; it drops what finds no room.
pub struct Ring {
    start: NonNull<u8>,
    /// Of the first page, which holds the counters.
    page: usize,
    /// Of the records: a power of two.
    size: usize,
    tail: u64,
    /// A record that lies across the ring's end, put together.
    whole: Vec<u8>,
}

// SAFETY: the mapping is owned by this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for Ring {}

impl Ring {
    fn map(event: &OwnedFd) -> io::Result<Ring> {
        // SAFETY: this argument is known to every Linux.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = RING_BYTES.max(page);
        // SAFETY: asks for a new mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            start: NonNull::new(start.cast()).expect("mmap never gives the null page"),
            page,
            size,
            tail: 0,
            whole: Vec::new(),
        })
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page of the mapping, aligned, and shared with the kernel as an atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Calls `each` with the time in nanoseconds and the bytes of each new record.
    #[inline]
    pub(super) fn read(&mut self, mut each: impl FnMut(u64, &[u8])) {
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        if head == self.tail {
            return;
        }
        let size = self.size;
        // SAFETY: the ring's own bytes; the kernel does not write between the tail and the head.
        let ring = unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(self.page), size) };
        let mut whole = std::mem::take(&mut self.whole);
        while self.tail < head {
            // Records begin at multiples of eight, so their heads are never cut.
            let begin = self.tail as usize % size;
            let (Some(kind), Some(len)) = (bytes(ring, begin), bytes(ring, begin + 6)) else {
                break;
            };
            let (kind, len) = (u32::from_ne_bytes(kind), u16::from_ne_bytes(len));
            let len = usize::from(len);
            let record = match ring.get(begin..begin + len) {
                Some(record) => record,
                None => {
                    whole.clear();
                    whole.extend_from_slice(&ring[begin..]);
                    whole.extend_from_slice(&ring[..begin + len - size]);
                    &whole
                }
            };
            // Behind the header of 8 bytes: the time, the length of the rest, the rest.
            if kind == PERF_RECORD_SAMPLE
                && let (Some(time), Some(raw)) = (bytes(record, 8), record.get(20..))
            {
                each(u64::from_ne_bytes(time), raw);
            }
            self.tail += len as u64;
        }
        self.whole = whole;
        self.counter(DATA_TAIL).store(self.tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length, and never given away.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 describes it.
    const FORMAT: &str = "\
name: block_rq_issue
ID: 1201
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
";

    fn raw(flags: &str) -> Vec<u8> {
        let mut raw = vec![0; 64];
        raw[8..12].copy_from_slice(&((7u32 << 20) | 3).to_ne_bytes());
        raw[16..24].copy_from_slice(&16u64.to_ne_bytes());
        raw[24..28].copy_from_slice(&8u32.to_ne_bytes());
        raw[34..34 + flags.len()].copy_from_slice(flags.as_bytes());
        raw
    }

    #[test]
    fn a_record_is_read_as_the_kernel_describes_it() {
        let layout = Layout::parse(FORMAT).expect("a layout");
        let op = |flags| layout.issued(5, &raw(flags)).map(|issued| issued.op);
        assert_eq!(op("R"), Some(Op::Read));
        assert_eq!(op("RA"), Some(Op::Read));
        assert_eq!(op("WSM"), Some(Op::Write));
        assert_eq!(op("FWS"), Some(Op::Write));
        for neither in ["FF", "D", "DS", "N", ""] {
            assert_eq!(op(neither), None, "{neither}");
        }
        let issued = layout.issued(5, &raw("R")).expect("a read");
        assert_eq!(issued.device, DeviceNumber((7 << 20) | 3));
        assert_eq!(
            (issued.start, issued.end, issued.left),
            (8192, 12_288, 4096)
        );
        assert_eq!(issued.at, Instant::from_nanos(5));
        assert_eq!(layout.issued(5, &raw("R")[..20]), None, "cut off");
        assert_eq!(Layout::parse("name: another"), None);
    }

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(cpus("0"), Some(vec![0]));
        assert_eq!(cpus("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        assert_eq!(cpus("none"), None);
    }
}
