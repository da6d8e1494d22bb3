//! When the kernel issued each request, from its own record.
//!
//! A request of a loop device reaches the driver through a worker of that device and through FUSE. Both wait for a CPU,
//! on a busy machine for long, as the program itself and the driver need one too. A disk's time begins when the block
//! layer issues the request, as `iostat` counts it, and so does the model's here: the tracepoint
//! `block:block_rq_issue` tells when that was. Where the kernel does not tell, time begins with the arrival.
//!
//! With 64 reads of 1 ms under way on a 2-core virtual machine, of whose host others had much, the 99th percentile from
//! issue to completion went from 1.10..1.58 to 1.01..1.05 ms, and that of the program, which has to be woken up as well,
//! from 1.30 to 1.12 ms; for 100 us at depth 1 from 133..218 to 117..124 us (medians and ranges of 3 to 8 runs in turns,
//! 2026-11-23). The record costs about 0.7 us of CPU for each I/O, of 6 in all, so volumes without any delay do without.

mod record;

use std::collections::VecDeque;
use std::io;

use disklab_disk::Op;
use disklab_units::{Duration, Instant};

pub use record::{DeviceNumber, Recorder};
use record::{Layout, Ring};

/// A request that has not arrived after this long is taken for one that never will, as when a program's I/O failed
/// before it came to us. Its time, should it come, begins with the arrival.
const LOST: Duration = Duration::from_millis(100);
/// As many requests as a loop device has under way, of two devices; with more, the queue grows.
const USUAL: usize = 256;

/// The requests of all volumes between their issue and their arrival.
pub struct IssueTimes {
    rings: Vec<Ring>,
    layout: Layout,
    issued: VecDeque<Issued>,
}

/// A request that has been issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Issued {
    at: Instant,
    device: DeviceNumber,
    op: Op,
    /// Bytes of the device.
    start: u64,
    end: u64,
    /// So many of them have not arrived: a long request arrives in parts.
    left: u64,
}

/// Begins to record; at first no device's requests.
pub fn record() -> io::Result<(Recorder, IssueTimes)> {
    let (recorder, rings, layout) = Recorder::start()?;
    let times = IssueTimes {
        rings,
        layout,
        issued: VecDeque::with_capacity(USUAL),
    };
    Ok((recorder, times))
}

impl IssueTimes {
    /// Takes note of what was issued meanwhile. Whatever arrives was issued, and recorded, before.
    #[inline]
    pub fn look(&mut self) {
        for ring in &mut self.rings {
            ring.read(|time, raw| self.issued.extend(self.layout.issued(time, raw)));
        }
    }

    /// When the request was issued of which this part arrives now.
    pub fn take(
        &mut self,
        device: DeviceNumber,
        op: Op,
        offset: u64,
        len: u32,
        now: Instant,
    ) -> Option<Instant> {
        while let Some(first) = self.issued.front()
            && now.saturating_since(first.at) > LOST
        {
            self.issued.pop_front();
        }
        let index = self.issued.iter().position(|issued| {
            (issued.device, issued.op) == (device, op)
                && (issued.start..issued.end).contains(&offset)
        })?;
        let found = &mut self.issued[index];
        let at = found.at;
        found.left = found.left.saturating_sub(u64::from(len));
        if found.left == 0 {
            self.issued.remove(index);
        }
        Some(at.min(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber(7 << 20);

    fn us(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    fn issued(at: Instant, op: Op, start: u64, len: u64) -> Issued {
        Issued {
            at,
            device: DEVICE,
            op,
            start,
            end: start + len,
            left: len,
        }
    }

    fn times(issued: impl IntoIterator<Item = Issued>) -> IssueTimes {
        IssueTimes {
            rings: Vec::new(),
            layout: Layout::default(),
            issued: issued.into_iter().collect(),
        }
    }

    #[test]
    fn a_request_has_the_time_of_its_own_issue_and_has_it_once() {
        let mut times = times([
            issued(us(1), Op::Read, 0, 4096),
            issued(us(2), Op::Write, 0, 4096),
            issued(us(3), Op::Read, 4096, 4096),
        ]);
        let mut take = |op, offset| times.take(DEVICE, op, offset, 4096, us(10));
        assert_eq!(take(Op::Read, 4096), Some(us(3)));
        assert_eq!(take(Op::Write, 0), Some(us(2)));
        assert_eq!(take(Op::Read, 0), Some(us(1)));
        assert_eq!(take(Op::Read, 0), None);
        assert_eq!(take(Op::Read, 8192), None);
    }

    #[test]
    fn another_device_has_other_times() {
        let mut times = times([issued(us(1), Op::Read, 0, 4096)]);
        let other = DeviceNumber(DEVICE.0 + 1);
        assert_eq!(times.take(other, Op::Read, 0, 4096, us(2)), None);
    }

    #[test]
    fn a_long_request_arrives_in_parts() {
        let mut times = times([issued(us(1), Op::Write, 4096, 12_288)]);
        for offset in [8192, 4096, 12_288] {
            let at = times.take(DEVICE, Op::Write, offset, 4096, us(9));
            assert_eq!(at, Some(us(1)), "at {offset}");
        }
        assert_eq!(times.take(DEVICE, Op::Write, 4096, 4096, us(9)), None);
    }

    #[test]
    fn what_never_arrived_is_forgotten() {
        let mut times = times([issued(us(1), Op::Read, 0, 4096)]);
        let late = us(2) + LOST;
        assert_eq!(times.take(DEVICE, Op::Read, 0, 4096, late), None);
        assert!(times.issued.is_empty());
    }

    #[test]
    fn nothing_is_issued_after_it_arrived() {
        let mut times = times([issued(us(5), Op::Read, 0, 4096)]);
        assert_eq!(times.take(DEVICE, Op::Read, 0, 4096, us(4)), Some(us(4)));
    }
}
