//! Moving the data of a request, while it waits for its time.

use std::io;

use disklab_disk::{Destaged, Op, VolumeId};
use disklab_units::{Bytes, Instant};

use crate::backing::Backing;
use crate::clock;
use crate::driver::volume::Timed;
use crate::driver::{Driver, InFlight, LOOK};
use crate::event::Event;
use crate::preimage::SECTOR;
use crate::ring::{Owner, Transfer, label};
use crate::transport::{Errno, MAX_IO_BYTES, Request, Slot, VolumeIndex};

impl Driver {
    /// Looks up the volume of a request and checks the range.
    pub(super) fn volume(&self, request: Request) -> Result<Timed, Errno> {
        let Some(Some(volume)) = self.volumes.get(request.volume.0 as usize) else {
            return Err(Errno(libc::EIO));
        };
        let inside = request
            .offset
            .checked_add(u64::from(request.len))
            .is_some_and(|end| end <= volume.size);
        let fits = request.len <= MAX_IO_BYTES || request.op == Op::Discard;
        if !inside || !fits {
            return Err(Errno(libc::EINVAL));
        }
        Ok(volume.timed)
    }

    /// Starts moving the data of a request; in memory that is all. A read that is due `at_once` takes its data
    /// from memory when it is answered.
    pub(super) fn move_data(&mut self, slot: Slot, at_once: bool) {
        let Some(InFlight { request, .. }) = self.slots[slot.0 as usize] else {
            return;
        };
        if request.op == Op::Write {
            self.keep_old(request);
        }
        let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
            return;
        };
        let Some(volume) = &mut self.volumes[request.volume.0 as usize] else {
            return;
        };
        match request.op {
            Op::Read => volume.backing_reads += 1,
            Op::Write => volume.backing_writes += 1,
            // A FLUSH has no data: what was written is in the page cache, which is as durable as it gets here, unless
            // it could not be written back.
            Op::Flush => return,
            Op::Discard => {}
        }
        match &mut volume.backing {
            Backing::Memory(memory) => match request.op {
                Op::Read if at_once => in_flight.direct = true,
                Op::Read => memory.read(request.offset, self.transport.data(slot)),
                Op::Write => memory.write(request.offset, self.transport.data(slot)),
                Op::Discard => memory.clear(request.offset, u64::from(request.len)),
                Op::Flush => {}
            },
            Backing::File(_) => {
                in_flight.moving = true;
                self.transfers += 1;
                self.transfer(slot);
            }
        }
    }

    /// Ends a read with its data in memory.
    pub(super) fn reply_from_memory(&mut self, request: Request) {
        if let Some(Some(volume)) = self.volumes.get(request.volume.0 as usize)
            && let Backing::Memory(memory) = &volume.backing
        {
            let data = memory.slice(request.offset, request.len);
            self.transport
                .reply_with(&mut self.ring, request.slot, data);
        }
    }

    /// Queues a ring entry for what is left of a transfer. Reads that the page cache can serve complete inline;
    /// what would block goes to the kernel's own workers.
    fn transfer(&mut self, slot: Slot) {
        let Some(in_flight) = self.slots[slot.0 as usize] else {
            return;
        };
        let request = in_flight.request;
        let Some(Some(volume)) = self.volumes.get(request.volume.0 as usize) else {
            return;
        };
        let Backing::File(file) = &volume.backing else {
            return;
        };
        let moved = in_flight.moved;
        let data = match request.op {
            Op::Read | Op::Write => &mut self.transport.data(slot)[moved as usize..],
            Op::Discard | Op::Flush => &mut [],
        };
        let transfer = Transfer {
            fd: file.descriptor(),
            op: request.op,
            offset: request.offset + u64::from(moved),
            data: data.as_mut_ptr(),
            len: request.len - moved,
            label: label(Owner::Backing, slot.0),
        };
        // SAFETY: the data of a slot stay where they are until its reply, which waits for this completion. A
        // volume is forgotten only when it has nothing in flight, so the descriptor stays open.
        if unsafe { self.ring.transfer(transfer) }.is_err() {
            self.moved(slot, -libc::EIO);
        }
    }

    /// A transfer has ended, wholly or in part.
    pub(super) fn moved(&mut self, slot: Slot, result: i32) {
        let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
            return;
        };
        let request = in_flight.request;
        if result == -libc::EINTR || result == -libc::EAGAIN {
            return self.transfer(slot);
        }
        if result < 0 {
            in_flight.errno = -result;
            self.tell_once(request, -result);
        } else if request.op != Op::Discard {
            in_flight.moved += result as u32;
            if in_flight.moved < request.len && result > 0 {
                return self.transfer(slot);
            }
            if in_flight.moved < request.len {
                // The file was cut from outside.
                in_flight.errno = libc::EIO;
                self.tell_once(request, libc::EIO);
            }
        }
        let Some(in_flight) = &mut self.slots[slot.0 as usize] else {
            return;
        };
        in_flight.moving = false;
        self.transfers -= 1;
        if in_flight.ready {
            self.finish(slot, clock::now());
        }
    }

    /// Whether a FLUSH comes to a backing whose earlier writes did not reach this machine's disk.
    pub(super) fn missed_write_back(&mut self, request: Request) -> bool {
        let Some(Some(volume)) = self.volumes.get_mut(request.volume.0 as usize) else {
            return false;
        };
        if request.op != Op::Flush {
            return false;
        }
        volume.backing.look();
        volume.backing.failure().is_some()
    }

    /// Looks after what was flushed and is written back later.
    pub(super) fn look_at_backings(&mut self, now: Instant) {
        if now < self.look_again {
            return;
        }
        self.look_again = now + LOOK;
        for volume in self.volumes.iter_mut().flatten() {
            volume.backing.look();
        }
    }

    /// Reports the first failure of a backing.
    fn tell_once(&mut self, request: Request, errno: i32) {
        let Some(Some(volume)) = self.volumes.get_mut(request.volume.0 as usize) else {
            return;
        };
        if let Backing::File(file) = &volume.backing
            && !std::mem::replace(&mut volume.told, true)
        {
            let text = format!(
                "{}: this machine failed {} of the volume's data: {}; such I/Os end with EIO and count as failed",
                file.path().display(),
                match request.op {
                    Op::Read => "a read",
                    Op::Write => "a write",
                    Op::Flush => "a flush",
                    Op::Discard => "a discard",
                },
                io::Error::from_raw_os_error(errno),
            );
            Event::Warning { text }.print();
        }
    }

    /// Keeps what a write to a ReadWrite cache is about to overwrite. This reads at once: only data that have
    /// left this machine's page cache make it wait, and then the replies that it delays are counted as late.
    fn keep_old(&mut self, request: Request) {
        let Some(Some(volume)) = self.volumes.get_mut(request.volume.0 as usize) else {
            return;
        };
        let Timed::Model(id) = volume.timed else {
            return;
        };
        if !self.host.write_is_volatile(id) {
            return;
        }
        let Some(preimages) = &mut self.preimages else {
            return;
        };
        let first = request.offset / SECTOR as u64;
        let end = (request.offset + u64::from(request.len)).div_ceil(SECTOR as u64);
        for sector in first..end {
            let Some(place) = preimages.keep(request.volume, sector) else {
                continue;
            };
            let offset = sector * SECTOR as u64;
            if volume.backing.read_now(offset, place).is_err() {
                // The write that follows will most likely fail as well; it cannot be undone.
                preimages.forget(request.volume, offset, SECTOR as u32);
            }
        }
    }

    /// Drops the old content of sectors that have become durable.
    pub(super) fn forget_destaged(&mut self) {
        self.host.take_destaged(&mut self.destaged);
        for index in 0..self.destaged.len() {
            let destaged = self.destaged[index];
            let volume = self.index_of(destaged.volume);
            if let (Some(volume), Some(preimages)) = (volume, &mut self.preimages) {
                preimages.forget(volume, destaged.offset.get(), destaged.len);
            }
        }
        self.destaged.clear();
    }

    /// Drops the old content of sectors that a write or discard, now decided, has not left dirty.
    pub(super) fn forget_clean(&mut self, request: Request) {
        // After a host failure nothing is dirty any more, and the old content is what goes back.
        if self.erasure.is_some() || !matches!(request.op, Op::Write | Op::Discard) {
            return;
        }
        let (Some(preimages), Some(id)) = (&self.preimages, self.model_id(request.volume)) else {
            return;
        };
        preimages.kept(request.volume, request.offset, request.len, &mut self.kept);
        for sector in self.kept.drain(..) {
            let offset = sector * SECTOR as u64;
            if let Some(preimages) = &mut self.preimages
                && !self.host.is_dirty(id, Bytes::new(offset))
            {
                preimages.forget(request.volume, offset, SECTOR as u32);
            }
        }
    }

    fn index_of(&self, id: VolumeId) -> Option<VolumeIndex> {
        let place = self.volumes.iter().position(|volume| {
            let timed = volume.as_ref().map(|volume| volume.timed);
            matches!(timed, Some(Timed::Model(found)) if found == id)
        })?;
        Some(VolumeIndex(u32::try_from(place).ok()?))
    }

    /// Lists what a host failure would lose now.
    pub(super) fn doomed(&self) -> Vec<Destaged> {
        let mut ranges = Vec::new();
        for volume in self.volumes.iter().flatten() {
            if let Timed::Model(id) = volume.timed {
                self.host.dirty_ranges(id, &mut ranges);
            }
        }
        ranges
    }

    /// Puts the old content of lost writes back.
    pub(super) fn put_back(&mut self, lost: &[Destaged]) {
        for range in lost {
            let Some(index) = self.index_of(range.volume) else {
                continue;
            };
            let Some(Some(volume)) = self.volumes.get_mut(index.0 as usize) else {
                continue;
            };
            let Some(preimages) = &self.preimages else {
                return;
            };
            let first = range.offset.get() / SECTOR as u64;
            let sectors = u64::from(range.len) / SECTOR as u64;
            for sector in first..first + sectors {
                if let Some(old) = preimages.old(index, sector) {
                    // A backing that cannot be written keeps the new content: as if it had been destaged early.
                    let _ = volume.backing.write_now(sector * SECTOR as u64, old);
                }
            }
        }
        if let Some(preimages) = &mut self.preimages {
            preimages.forget_all(None);
        }
    }

    /// The model's number of a volume.
    pub(super) fn model_id(&self, index: VolumeIndex) -> Option<VolumeId> {
        match self.volumes.get(index.0 as usize)?.as_ref()?.timed {
            Timed::Model(id) => Some(id),
            Timed::Constant(_) => None,
        }
    }
}
