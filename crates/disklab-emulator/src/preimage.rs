//! What un-flushed writes have overwritten, so that a host failure can really lose them.
//!
//! A ReadWrite cache acknowledges writes that are not on their disk yet. The emulator writes them to the
//! backing at once, as any other, but first keeps the sector's old content. When the model says that a
//! sector is destaged, its old content is forgotten; when the host fails, what is still dirty is put back.
//!
//! A write may also end without having made anything dirty: it failed, or it went to the disk itself, because the host
//! caching changed before it began. Its old content is forgotten then; kept, it would come back with the next write of
//! that sector that a failure takes, and undo what was durable long ago.
//!
//! **Divergence:** the memory for old content is bounded. When it is full, the oldest is forgotten, as though
//! that sector had been destaged early; so is a sector that is written again while its destage is
//! under way. A write may then survive a failure that could have taken it; never the other way round.

use std::collections::HashMap;
use std::io;

use crate::mapping::Mapping;
use crate::transport::VolumeIndex;

/// The unit in which the model knows dirty data.
pub const SECTOR: usize = 4096;
/// Sectors whose old content is kept: 256 MiB, taken from the kernel as needed. The model holds dirty data for
/// about a second, and the fastest caches take some hundred MB/s.
const SECTORS: u32 = if cfg!(test) { 256 } else { 65_536 };

type Key = (VolumeIndex, u64);

/// No place.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Kept {
    key: Key,
    /// Neighbours in the order of keeping; of a free place only `newer` counts.
    older: u32,
    newer: u32,
}

/// See the module. All memory but that of the sectors is taken at the start, so that no write allocates.
pub struct Preimages {
    content: Mapping,
    kept: Vec<Kept>,
    places: HashMap<Key, u32>,
    free: u32,
    oldest: u32,
    newest: u32,
    evicted: u64,
}

impl Preimages {
    /// Nothing kept.
    pub fn new() -> io::Result<Preimages> {
        Preimages::with_room(SECTORS)
    }

    fn with_room(sectors: u32) -> io::Result<Preimages> {
        let kept = (1..=sectors)
            .map(|next| Kept {
                key: (VolumeIndex(0), 0),
                older: NONE,
                newer: if next == sectors { NONE } else { next },
            })
            .collect();
        Ok(Preimages {
            content: Mapping::new(sectors as usize * SECTOR, false)?,
            kept,
            // Twice the room: a map that is half empty need not move its entries when some are removed.
            places: HashMap::with_capacity(2 * sectors as usize),
            free: 0,
            oldest: NONE,
            newest: NONE,
            evicted: 0,
        })
    }

    /// A place for the old content of a sector, to be filled; `None`: it is kept already.
    pub fn keep(&mut self, volume: VolumeIndex, sector: u64) -> Option<&mut [u8]> {
        let key = (volume, sector);
        if self.places.contains_key(&key) {
            return None;
        }
        if self.free == NONE {
            self.remove(self.kept[self.oldest as usize].key);
            self.evicted += 1;
        }
        let place = self.free;
        self.free = self.kept[place as usize].newer;
        self.kept[place as usize] = Kept {
            key,
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = place,
            newest => self.kept[newest as usize].newer = place,
        }
        self.newest = place;
        self.places.insert(key, place);
        Some(self.content.slice_mut(place as usize * SECTOR, SECTOR))
    }

    /// The old content of a sector, if it is kept.
    pub fn old(&self, volume: VolumeIndex, sector: u64) -> Option<&[u8]> {
        let place = *self.places.get(&(volume, sector))?;
        Some(self.content.slice(place as usize * SECTOR, SECTOR))
    }

    /// Lists the sectors of a range of bytes whose old content is kept.
    pub fn kept(&self, volume: VolumeIndex, offset: u64, len: u32, out: &mut Vec<u64>) {
        if self.oldest == NONE {
            return;
        }
        let first = offset / SECTOR as u64;
        let end = (offset + u64::from(len)).div_ceil(SECTOR as u64);
        // What is fewer is gone through: the sectors, or all that is kept.
        if end - first <= self.places.len() as u64 {
            out.extend((first..end).filter(|&sector| self.places.contains_key(&(volume, sector))));
            return;
        }
        let mut place = self.oldest;
        while place != NONE {
            let Kept { key, newer, .. } = self.kept[place as usize];
            if key.0 == volume && (first..end).contains(&key.1) {
                out.push(key.1);
            }
            place = newer;
        }
    }

    /// Forgets a range of bytes that has become durable.
    pub fn forget(&mut self, volume: VolumeIndex, offset: u64, len: u32) {
        let first = offset / SECTOR as u64;
        let end = (offset + u64::from(len)).div_ceil(SECTOR as u64);
        for sector in first..end {
            self.remove((volume, sector));
        }
    }

    /// Forgets everything, or everything of one volume.
    pub fn forget_all(&mut self, volume: Option<VolumeIndex>) {
        let mut place = self.oldest;
        while place != NONE {
            let Kept { key, newer, .. } = self.kept[place as usize];
            if volume.is_none_or(|volume| volume == key.0) {
                self.remove(key);
            }
            place = newer;
        }
    }

    /// How often old content was forgotten for want of room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn remove(&mut self, key: Key) {
        let Some(place) = self.places.remove(&key) else {
            return;
        };
        let Kept { older, newer, .. } = self.kept[place as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.kept[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.kept[newer as usize].older = older,
        }
        self.kept[place as usize].newer = self.free;
        self.free = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeIndex = VolumeIndex(1);

    fn kept(preimages: &mut Preimages, sector: u64, byte: u8) -> bool {
        let place = preimages.keep(VOLUME, sector);
        place.map(|place| place.fill(byte)).is_some()
    }

    #[test]
    fn keeps_the_first_content_until_it_is_durable() {
        let mut preimages = Preimages::with_room(8).expect("memory");
        assert!(kept(&mut preimages, 5, 1));
        assert!(
            !kept(&mut preimages, 5, 2),
            "the first content is the durable one"
        );
        assert_eq!(preimages.old(VOLUME, 5).map(|old| old[17]), Some(1));
        preimages.forget(VOLUME, 5 * 4096, 4096);
        assert_eq!(preimages.old(VOLUME, 5), None);
        assert!(kept(&mut preimages, 5, 3));
    }

    #[test]
    fn forgets_the_oldest_when_full_and_counts_it() {
        let mut preimages = Preimages::with_room(4).expect("memory");
        for sector in 0..4 {
            assert!(kept(&mut preimages, sector, sector as u8));
        }
        preimages.forget(VOLUME, 4096, 4096);
        assert!(kept(&mut preimages, 4, 4));
        assert_eq!(preimages.evicted(), 0);
        assert!(kept(&mut preimages, 5, 5));
        assert_eq!(preimages.evicted(), 1);
        assert_eq!(preimages.old(VOLUME, 0), None, "the oldest went");
        for sector in [2, 3, 4, 5] {
            let old = preimages.old(VOLUME, sector).map(|old| old[0]);
            assert_eq!(old, Some(sector as u8));
        }
    }

    #[test]
    fn forgets_one_volume_and_leaves_the_others() {
        let mut preimages = Preimages::with_room(8).expect("memory");
        let other = VolumeIndex(2);
        for sector in 0..3 {
            assert!(kept(&mut preimages, sector, 1));
            assert!(preimages.keep(other, sector).is_some());
        }
        preimages.forget_all(Some(VOLUME));
        assert!((0..3).all(|sector| preimages.old(VOLUME, sector).is_none()));
        assert!((0..3).all(|sector| preimages.old(other, sector).is_some()));
        preimages.forget_all(None);
        // All places are free again.
        assert!((0..8).all(|sector| kept(&mut preimages, sector, 2)));
        assert_eq!(preimages.evicted(), 0);
    }
}
