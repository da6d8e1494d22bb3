//! The host cache at work: hits and misses, acknowledged writes, destage, FLUSH.

use std::collections::VecDeque;

use disklab_units::Bytes;

use crate::agenda::Event;
use crate::cache::BlockCache;
use crate::destage::{Arrived, covered, runs_of, touched};
use crate::host::Host;
use crate::io::{Completion, Destaged, Io, VolumeId};
use crate::lane::{Lane, ServiceTimes};
use crate::part::{Owner, Part, Route};
use crate::profile::{CacheProfile, Caching};
use crate::validate::SECTOR_BYTES;
use crate::volume::Volume;

/// The share of the cache that may be dirty is one in this many; beyond it writes wait for destage.
/// No vendor says; a fifth is what Linux lets its page cache have (vm.dirty_ratio). From half of it
/// on destage no longer waits for the data to age, as in vm.dirty_background_ratio.
const DIRTY_SHARE: u64 = 5;

/// The cache of a host.
#[derive(Clone)]
pub(crate) struct HostCache {
    /// What it holds.
    pub contents: BlockCache,
    /// Its own service times.
    pub times: ServiceTimes,
    /// Whether the disk's limits count writes when they are acknowledged.
    pub charges_writes: bool,
    /// Writes that wait for dirty room.
    waiting: VecDeque<Part>,
    /// Dirty sectors of all lanes.
    dirty: u64,
    /// Sectors of writes that were given room and have not arrived yet.
    promised: u64,
    /// What arrived last, kept for its memory.
    arrived: Arrived,
}

impl HostCache {
    /// An empty cache.
    pub fn new(profile: &CacheProfile) -> HostCache {
        HostCache {
            contents: BlockCache::new(profile.capacity_bytes, profile.block_bytes),
            times: ServiceTimes::new(&profile.latency),
            charges_writes: profile.charges_writes,
            waiting: VecDeque::new(),
            dirty: 0,
            promised: 0,
            arrived: Arrived::default(),
        }
    }

    fn most_dirty(&self) -> u64 {
        self.contents.capacity() / DIRTY_SHARE
    }

    /// Whether a write of so many sectors may come. One larger than the whole room comes alone.
    fn has_room(&self, sectors: u64) -> bool {
        let taken = self.dirty + self.promised;
        taken == 0 || taken + sectors <= self.most_dirty()
    }

    /// Whether clean room is short.
    fn is_pressed(&self) -> bool {
        !self.waiting.is_empty() || self.dirty > self.most_dirty() / 2
    }
}

fn sectors_of(part: &Part) -> u64 {
    let (first, last) = touched(part.offset, u64::from(part.len));
    last - first
}

impl Host {
    /// Starts a part: finds out what the cache has of it, then sends it on its way.
    #[inline]
    pub(crate) fn start_part(&mut self, mut part: Part, at: u64, out: &mut Vec<Completion>) {
        let volume = self.lanes[part.lane as usize].volume as usize;
        let (Some(volume), Some(cache)) = (self.volumes[volume].as_deref_mut(), &mut self.cache)
        else {
            return self.pass(part, at, out);
        };
        match (volume.profile.caching, part.route) {
            (Caching::None, _) => {}
            (_, Route::Read) => {
                part.disk_len = cache.contents.missing(part.lane, part.offset, part.len);
                let counters = &mut volume.cache;
                counters.miss_bytes += u64::from(part.disk_len);
                counters.hit_bytes += u64::from(part.len - part.disk_len);
                if part.disk_len == 0 {
                    counters.hit_ios += 1;
                    part.route = Route::Hit;
                } else {
                    counters.miss_ios += 1;
                }
            }
            (Caching::ReadWrite, _) => {
                cache.contents.prefetch(part.lane, part.offset);
                volume.cache.write_ios += 1;
                part.route = Route::WriteBack;
                let sectors = sectors_of(&part);
                if !cache.waiting.is_empty() || !cache.has_room(sectors) {
                    if let Some(journal) = &mut self.journal {
                        journal.arrived(part, at);
                    }
                    cache.waiting.push_back(part);
                    return self.press(at, out);
                }
                cache.promised += sectors;
            }
            (Caching::ReadOnly, _) => volume.cache.write_ios += 1,
        }
        self.pass(part, at, out);
    }

    /// What a part that got its service time does to the cache.
    pub(crate) fn update_cache(
        &mut self,
        part: &Part,
        at: u64,
        end: u64,
        out: &mut Vec<Completion>,
    ) {
        if part.route == Route::Destage {
            self.lanes[part.lane as usize]
                .destager
                .decide(part.offset / SECTOR_BYTES, end);
            self.agenda.push(end, Event::Destaged(part.lane));
            return self.end_flushes(part.lane, at, out);
        }
        self.give_back_room(part);
        let caching = self
            .volume_mut(self.lanes[part.lane as usize].volume)
            .map_or(Caching::None, |volume| volume.profile.caching);
        let Some(cache) = &mut self.cache else { return };
        let (offset, len) = (part.offset, u64::from(part.len));
        let caches = caching != Caching::None;
        match part.route {
            Route::Write if part.fails && caches => {
                cache.contents.drop_range(part.lane, offset, len);
            }
            _ if part.fails => {}
            Route::Read if caches => cache.contents.fill_read(part.lane, offset, len),
            Route::Write if caches => cache.contents.fill_write(part.lane, offset, len),
            Route::WriteBack => self.mark_dirty(part, at, out),
            Route::Read | Route::Write | Route::Hit | Route::Destage => {}
        }
    }

    fn mark_dirty(&mut self, part: &Part, at: u64, out: &mut Vec<Completion>) {
        let Some(cache) = &mut self.cache else { return };
        let (offset, len) = (part.offset, u64::from(part.len));
        let per_block = cache.contents.sectors_per_block();
        cache.contents.fill_write(part.lane, offset, len);
        let (first, last) = touched(offset, len);
        let destager = &mut self.lanes[part.lane as usize].destager;
        cache.dirty += destager.mark(per_block, first, last, at);
        if first < last {
            for block in first / per_block..=(last - 1) / per_block {
                cache.contents.pin(part.lane, block, true);
            }
        }
        if self
            .volume_mut(self.lanes[part.lane as usize].volume)
            .is_some_and(|v| v.draining)
        {
            self.lanes[part.lane as usize].destager.hurry();
        }
        self.destage(part.lane, at, out);
    }

    /// Sends a lane's dirty data to its disk as far as their time has come.
    pub(crate) fn destage(&mut self, lane: u32, at: u64, out: &mut Vec<Completion>) {
        loop {
            let Some(cache) = &self.cache else { return };
            let (per_block, pressed) = (cache.contents.sectors_per_block(), cache.is_pressed());
            let destager = &mut self.lanes[lane as usize].destager;
            let Some((start, mask)) = destager.next_block(per_block, at, pressed) else {
                break;
            };
            // Its mark is taken away when it arrives, which in the program's own time is soon.
            cache.contents.prefetch(lane, start * SECTOR_BYTES);
            for (bit, sectors) in runs_of(mask) {
                let len = u32::try_from(sectors * SECTOR_BYTES).expect("within a block");
                let part = Part {
                    owner: Owner::Destage,
                    offset: (start + bit) * SECTOR_BYTES,
                    len,
                    disk_len: len,
                    lane,
                    route: Route::Destage,
                    step: 0,
                    fails: false,
                };
                self.pass(part, at, out);
            }
        }
        if let Some(due) = self.lanes[lane as usize].destager.plan(at) {
            self.agenda.push(due, Event::DestageDue(lane));
        }
    }

    /// Lets every lane destage, because clean room is short.
    fn press(&mut self, at: u64, out: &mut Vec<Completion>) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].destager.is_clean() {
                self.destage(lane as u32, at, out);
            }
        }
    }

    /// Notes the destage writes of a lane that have reached the disk, and what that lets go on.
    pub(crate) fn take_arrived(&mut self, lane: u32, at: u64, out: &mut Vec<Completion>) {
        let Some(cache) = &mut self.cache else { return };
        let entry = &mut self.lanes[lane as usize];
        let per_block = cache.contents.sectors_per_block();
        let before = entry.destager.dirty_sectors();
        let mut arrived = std::mem::take(&mut cache.arrived);
        entry.destager.arrived(per_block, at, &mut arrived);
        cache.dirty -= before - entry.destager.dirty_sectors();
        for &block in &arrived.clean {
            cache.contents.pin(lane, block, false);
        }
        let volume = entry.volume;
        let mut bytes = 0;
        for run in &arrived.runs {
            bytes += run.sectors * SECTOR_BYTES;
            self.report_destaged(lane, run.sector, run.sectors);
        }
        if let Some(cache) = &mut self.cache {
            cache.arrived = arrived;
        }
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        entry.cache.destaged_bytes += bytes;
        if entry.draining {
            self.agenda.push(at, Event::Resume(volume));
        }
        self.admit_waiting(at, out);
        self.destage(lane, at, out);
    }

    /// Lets writes into the cache that waited for room.
    pub(crate) fn admit_waiting(&mut self, at: u64, out: &mut Vec<Completion>) {
        while let Some(cache) = &mut self.cache
            && let Some(part) = cache.waiting.front()
        {
            let sectors = sectors_of(part);
            if !cache.has_room(sectors) {
                return self.press(at, out);
            }
            cache.promised += sectors;
            if let Some(part) = cache.waiting.pop_front() {
                self.pass(part, at, out);
            }
        }
    }

    /// Releases the room that was promised to a part which has now arrived, or never will.
    pub(crate) fn give_back_room(&mut self, part: &Part) {
        let now = self.moment;
        if let (Route::WriteBack, Some(cache)) = (part.route, &mut self.cache) {
            cache.promised -= sectors_of(part);
            if !cache.waiting.is_empty() {
                self.agenda.push(now, Event::Room);
            }
        }
    }

    /// Takes a lane's writes out of the queue for dirty room. They are promised theirs, so that all
    /// parts on their way are alike.
    pub(crate) fn leave_room_queue(&mut self, lane: u32) -> Vec<Part> {
        let Some(cache) = &mut self.cache else {
            return Vec::new();
        };
        let all = std::mem::take(&mut cache.waiting);
        let (left, kept): (Vec<Part>, Vec<Part>) = all.into_iter().partition(|p| p.lane == lane);
        cache.waiting = kept.into();
        cache.promised += left.iter().map(sectors_of).sum::<u64>();
        left
    }

    /// Starts one disk's share of a FLUSH: at once when nothing is dirty, else after its destage.
    pub(crate) fn flush_lane(
        &mut self,
        lane: u32,
        parent: u32,
        at: u64,
        out: &mut Vec<Completion>,
    ) {
        let entry = &mut self.lanes[lane as usize];
        if entry.destager.is_clean() {
            let end = at.saturating_add(entry.flush_ns());
            return self.end_child(parent, end, false, out);
        }
        entry.destager.flush(parent);
        self.destage(lane, at, out);
        self.end_flushes(lane, at, out);
    }

    /// Ends the flushes of a lane that wait for nothing more.
    fn end_flushes(&mut self, lane: u32, at: u64, out: &mut Vec<Completion>) {
        for (parent, destaged) in self.lanes[lane as usize].destager.flushed() {
            let flush_ns = self.lanes[lane as usize].flush_ns();
            let end = destaged.max(at).saturating_add(flush_ns);
            self.end_child(parent, end, false, out);
        }
    }

    /// Drops what the cache has of a discarded range. Its dirty data need not be destaged any more:
    /// they count as durable, for the discard is.
    pub(crate) fn discard(&mut self, io: Io, at: u64, out: &mut Vec<Completion>) {
        for (lane, offset, len) in self.pieces(io.volume, io.offset.get(), u64::from(io.len)) {
            let Some(cache) = &mut self.cache else { return };
            let per_block = cache.contents.sectors_per_block();
            cache.contents.drop_range(lane, offset, len);
            let (first, last) = covered(offset, len);
            let destager = &mut self.lanes[lane as usize].destager;
            let before = destager.dirty_sectors();
            let mut clean = Vec::new();
            let gone = destager.discard(per_block, first, last, &mut clean);
            cache.dirty -= before - destager.dirty_sectors();
            for block in clean {
                cache.contents.pin(lane, block, false);
            }
            for (sector, sectors) in gone {
                self.report_destaged(lane, sector, sectors);
            }
            self.end_flushes(lane, at, out);
        }
        self.admit_waiting(at, out);
    }

    /// Forgets a volume's dirty data, as durable or as lost. Its waiting flushes fail.
    pub(crate) fn forget_dirty(&mut self, volume: u32, durable: bool, out: &mut Vec<Completion>) {
        let now = self.clock;
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        for lane in entry.lanes.clone() {
            let Some(cache) = &mut self.cache else { return };
            let per_block = cache.contents.sectors_per_block();
            let destager = &mut self.lanes[lane as usize].destager;
            cache.dirty -= destager.dirty_sectors();
            let dirty: Vec<(u64, u64)> = destager.ranges(per_block).collect();
            let flushes = destager.clear();
            for (sector, sectors) in dirty {
                if durable {
                    self.report_destaged(lane, sector, sectors);
                }
            }
            for parent in flushes {
                self.end_child(parent, now, true, out);
            }
        }
        self.agenda.push(now, Event::Resume(volume));
        self.agenda.push(now, Event::Room);
    }

    /// Follows a change of host caching.
    pub(crate) fn change_caching(&mut self, volume: u32, was: Caching, now: u64) {
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        let (is, profile, lanes) = (
            entry.profile.caching,
            entry.profile.clone(),
            entry.lanes.clone(),
        );
        if is == was {
            return;
        }
        entry.draining |= was == Caching::ReadWrite;
        for &lane in &lanes {
            self.lay_routes(lane, &profile);
            self.lanes[lane as usize].destager.hurry();
            self.agenda.push(now, Event::DestageDue(lane));
        }
        self.agenda.push(now, Event::Resume(volume));
        if is == Caching::None {
            self.empty_cache(volume);
        }
    }

    /// Lets a volume leave ReadWrite caching, once all that had started is decided and destaged.
    pub(crate) fn end_drain(&mut self, volume: u32) {
        let Some(entry) = self.volumes[volume as usize].as_deref() else {
            return;
        };
        let mut lanes = entry.lanes.iter();
        let clean = lanes.all(|&lane| self.lanes[lane as usize].destager.is_clean());
        if !entry.draining || !clean || entry.queued() > entry.held.len() as u64 {
            return;
        }
        let leaves = entry.profile.caching == Caching::None;
        if let Some(entry) = self.volume_mut(volume) {
            entry.draining = false;
        }
        if leaves {
            self.empty_cache(volume);
        }
    }

    /// Fills the cache with a range of a volume.
    pub(crate) fn fill_cache(&mut self, id: VolumeId, offset: u64, len: u64) {
        let Some(profile) = self.volume(id) else {
            return;
        };
        if profile.caching == Caching::None {
            return;
        }
        let len = len.min(profile.size_bytes.saturating_sub(offset));
        for (lane, offset, len) in self.pieces(id, offset, len) {
            if let Some(cache) = &mut self.cache {
                cache.contents.fill_range(lane, offset, len);
            }
        }
    }

    /// See [`Host::put_cache`].
    pub(crate) fn replace_cache(&mut self, contents: BlockCache) {
        let lanes_without = self.volumes.iter().flatten();
        let lanes: Vec<u32> = lanes_without
            .filter(|volume| volume.profile.caching == Caching::None)
            .flat_map(|volume| volume.lanes.clone())
            .collect();
        let Some(cache) = &mut self.cache else { return };
        let same = contents.capacity() == cache.contents.capacity()
            && contents.sectors_per_block() == cache.contents.sectors_per_block();
        if same {
            cache.contents = contents;
            for lane in lanes {
                cache.contents.drop_lane(lane, |_| 0);
            }
        }
    }

    /// See [`Host::take_cache`].
    pub(crate) fn remove_cache(&mut self) -> Option<BlockCache> {
        let cache = self.cache.as_mut()?;
        let block_bytes = (cache.contents.sectors_per_block() * SECTOR_BYTES) as u32;
        let empty = BlockCache::new(cache.contents.capacity() * SECTOR_BYTES, block_bytes);
        Some(std::mem::replace(&mut cache.contents, empty))
    }

    /// Empties a volume's part of the cache, except what is dirty.
    pub(crate) fn empty_cache(&mut self, volume: u32) {
        let Some(entry) = self.volume_mut(volume) else {
            return;
        };
        for lane in entry.lanes.clone() {
            let destager = &self.lanes[lane as usize].destager;
            if let Some(cache) = &mut self.cache {
                cache.contents.drop_lane(lane, |block| destager.mask(block));
            }
        }
    }

    /// The pieces of a volume's range on its lanes: lane, offset there, length.
    fn pieces(&self, id: VolumeId, offset: u64, len: u64) -> Vec<(u32, u64, u64)> {
        let entry = self.volumes.get(id.0 as usize);
        let Some(volume) = entry.and_then(|entry| entry.as_deref()) else {
            return Vec::new();
        };
        let Some(stripe) = volume.stripe else {
            return vec![(volume.lanes[0], offset, len)];
        };
        let members = volume.lanes.iter().zip(0..);
        members
            .filter_map(|(&lane, member)| {
                let (offset, len) = stripe.on_member(member, offset, len)?;
                Some((lane, offset, len))
            })
            .collect()
    }

    /// Tells whoever keeps the data that sectors of a lane are durable.
    fn report_destaged(&mut self, lane: u32, sector: u64, sectors: u64) {
        let entry = &self.lanes[lane as usize];
        let volume = self.volumes[entry.volume as usize].as_deref();
        let ranges = in_volume(entry, volume, sector, sectors);
        self.destaged.extend(ranges.map(|(offset, len)| Destaged {
            volume: VolumeId(entry.volume),
            offset: Bytes::new(offset),
            len: u32::try_from(len).expect("within a block"),
        }));
    }

    /// Whether a sector of a volume is dirty.
    pub(crate) fn sector_is_dirty(&self, id: VolumeId, offset: u64) -> bool {
        let entry = self.volumes.get(id.0 as usize);
        let (Some(volume), Some(cache)) = (entry.and_then(|entry| entry.as_deref()), &self.cache)
        else {
            return false;
        };
        let (member, offset) = match volume.stripe {
            None => (0, offset),
            Some(stripe) => stripe.place(offset),
        };
        let (sector, per_block) = (offset / SECTOR_BYTES, cache.contents.sectors_per_block());
        let destager = &self.lanes[volume.lanes[member] as usize].destager;
        destager.mask(sector / per_block) >> (sector % per_block) & 1 == 1
    }

    /// Lists a volume's dirty ranges, ascending, neighbours in one piece.
    pub(crate) fn list_dirty(&self, id: VolumeId, out: &mut Vec<Destaged>) {
        let entry = self.volumes.get(id.0 as usize);
        let Some(volume) = entry.and_then(|entry| entry.as_deref()) else {
            return;
        };
        let Some(cache) = &self.cache else { return };
        let mut ranges = Vec::new();
        for &lane in &volume.lanes {
            let destager = &self.lanes[lane as usize].destager;
            for (sector, sectors) in destager.ranges(cache.contents.sectors_per_block()) {
                let entry = &self.lanes[lane as usize];
                ranges.extend(in_volume(entry, Some(volume), sector, sectors));
            }
        }
        ranges.sort_unstable();
        let first = out.len();
        for (offset, len) in ranges {
            let len = u32::try_from(len).expect("within a block");
            match out[first..].last_mut() {
                Some(last)
                    if last.offset.get() + u64::from(last.len) == offset
                        && last.len.checked_add(len).is_some() =>
                {
                    last.len += len;
                }
                _ => out.push(Destaged {
                    volume: id,
                    offset: Bytes::new(offset),
                    len,
                }),
            }
        }
    }
}

/// Where a range of sectors of a lane lies in its volume: offsets and lengths in bytes.
fn in_volume(
    lane: &Lane,
    volume: Option<&Volume>,
    sector: u64,
    sectors: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let member = u64::from(lane.member);
    let stripe = volume.and_then(|volume| volume.stripe);
    let (mut offset, mut left) = (sector * SECTOR_BYTES, sectors * SECTOR_BYTES);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let (start, run) = match stripe {
            None => (offset, left),
            Some(stripe) => stripe.in_volume(member, offset),
        };
        let len = run.min(left);
        offset += len;
        left -= len;
        Some((start, len))
    })
}
