//! A small direct-I/O load of our own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use disklab_units::{Duration, Instant};
use io_uring::{IoUring, opcode, types};

use crate::clock;
use crate::mapping::Mapping;

/// The deepest queue.
const DEPTH: usize = 64;
/// The largest block; the buffers are shared out among the queue.
const BUFFER: usize = 16 << 20;
/// An I/O that takes longer than this will not come back.
const PATIENCE_S: u64 = 10;

/// An open device and what is needed to load it.
pub struct Load {
    ring: IoUring,
    file: File,
    buffers: Mapping,
    size: u64,
    chance: u64,
}

/// What a load saw.
pub struct Sample {
    latencies: Vec<Duration>,
    elapsed: Duration,
}

impl Load {
    /// Opens a block device of `size` bytes.
    pub fn open(device: &Path, size: u64) -> io::Result<Load> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(device)?;
        Ok(Load {
            ring: IoUring::new(DEPTH as u32)?,
            file,
            buffers: Mapping::new(BUFFER, false)?,
            size,
            // Any start but zero will do; the same every time.
            chance: 0x9e37_79b9_7f4a_7c15,
        })
    }

    /// Writes the whole device once.
    pub fn fill(&mut self) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let block = 1 << 20;
        self.buffers.slice_mut(0, BUFFER).fill(0x5a);
        for offset in (0..self.size).step_by(block) {
            self.file
                .write_all_at(self.buffers.slice(0, block), offset)?;
        }
        Ok(())
    }

    /// Reads blocks at random places until `span` is over or `most` reads are done. `depth` times
    /// `block` must not exceed the buffers, 16 MiB.
    pub fn read(
        &mut self,
        block: usize,
        depth: usize,
        span: Duration,
        most: u64,
    ) -> io::Result<Sample> {
        assert!(depth <= DEPTH && depth * block <= BUFFER);
        let mut starts = [Instant::EPOCH; DEPTH];
        let mut latencies = Vec::with_capacity(1 << 17);
        let begin = clock::now();
        let end = begin.saturating_add(span);
        for (slot, start) in starts.iter_mut().enumerate().take(depth) {
            *start = clock::now();
            self.push(slot, block)?;
        }
        let (mut flying, mut started) = (depth, depth as u64);
        let timeout = types::Timespec::new().sec(PATIENCE_S);
        while flying > 0 {
            let arguments = types::SubmitArgs::new().timespec(&timeout);
            self.ring.submitter().submit_with_args(1, &arguments)?;
            let now = clock::now();
            loop {
                let Some(done) = self.ring.completion().next() else {
                    break;
                };
                if done.result() != block as i32 {
                    return Err(io::Error::from_raw_os_error(-done.result().min(-1)));
                }
                let slot = done.user_data() as usize;
                latencies.push(now.saturating_since(starts[slot]));
                if now >= end || started >= most {
                    flying -= 1;
                    continue;
                }
                started += 1;
                starts[slot] = clock::now();
                self.push(slot, block)?;
            }
        }
        latencies.sort_unstable();
        Ok(Sample {
            latencies,
            elapsed: clock::now().saturating_since(begin),
        })
    }

    fn push(&mut self, slot: usize, block: usize) -> io::Result<()> {
        // Marsaglia's xorshift64: chance enough to defeat any read-ahead.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let offset = self.chance % (self.size / block as u64) * block as u64;
        let buffer = self.buffers.slice_mut(slot * block, block);
        let read = opcode::Read::new(
            types::Fd(self.file.as_raw_fd()),
            buffer.as_mut_ptr(),
            block as u32,
        )
        .offset(offset)
        .build()
        .user_data(slot as u64);
        // SAFETY: the buffer lives in `self`, and each slot has one read at a time. An error leaves reads under
        // way; dropping the ring waits for them or cancels them before the buffers go (fields drop in
        // order).
        unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)
    }
}

impl Sample {
    /// The latency that `ppm` of a million reads do not exceed.
    pub fn quantile(&self, ppm: usize) -> Duration {
        let rank = (self.latencies.len() * ppm).div_ceil(1_000_000);
        let found = self.latencies.get(rank.saturating_sub(1));
        found.copied().unwrap_or_default()
    }

    /// Reads per second.
    pub fn per_second(&self) -> u64 {
        let ns = u128::from(self.elapsed.as_nanos().max(1));
        (self.latencies.len() as u128 * 1_000_000_000 / ns) as u64
    }
}
