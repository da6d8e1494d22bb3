//! The host cache as a condition of a trial: filled or emptied between two phases, in no time of the model.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use disklab_disk::{CacheCounters, Reason, Refusal};
use disklab_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::backing::BackingKind;
use crate::command::Command;
use crate::emulator::{Attached, Emulated};
use crate::error::EmulatorError;

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRange {
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// Bytes warmed between two I/Os: a thousand blocks of 64 KiB, which the model enters in about a tenth of
/// a millisecond, so that other volumes of the host are served meanwhile.
const BATCH_BYTES: u64 = 64 << 20;
/// Ranges warmed between two I/Os, for the same reason.
const BATCH_RANGES: usize = 1024;

impl Emulated {
    /// Fills the host cache with ranges of a volume, as if they had just been read in this order: what came
    /// first leaves first where they do not all fit. No ranges means all that was ever written to the volume
    /// (with a backing in memory, the whole of it).
    pub fn warm(
        &self,
        name: &str,
        ranges: Option<&[CacheRange]>,
    ) -> Result<CacheCounters, EmulatorError> {
        let volume = self.find(name)?;
        let size = self.show(name)?.profile.size_bytes;
        match ranges {
            Some(ranges) => {
                check(ranges, size)?;
                self.warm_in_batches(volume, ranges.iter().copied())?;
            }
            None if volume.backing.kind == BackingKind::File => {
                let path = self.directory.backing_file(name);
                let written = Written::of(&path, size).map_err(|error| {
                    EmulatorError::system(
                        path.display().to_string(),
                        "read",
                        &error,
                        "name the ranges to warm",
                    )
                })?;
                self.warm_in_batches(volume, written)?;
            }
            None => {
                let whole = CacheRange {
                    offset_bytes: 0,
                    len_bytes: size,
                };
                self.warm_in_batches(volume, std::iter::once(whole))?;
            }
        }
        // An empty batch changes nothing and answers with the state.
        self.warm_batch(volume, Vec::new())
    }

    /// Empties a volume's part of the host cache. Dirty data of a ReadWrite cache stay: a FLUSH first makes them
    /// clean.
    pub fn drop_cache(&self, name: &str) -> Result<CacheCounters, EmulatorError> {
        let index = self.find(name)?.index;
        let dropped = self
            .commands
            .ask(|answer| Command::DropCache(index, answer))?;
        dropped.ok_or_else(|| no_cache(name))
    }

    fn warm_in_batches(
        &self,
        volume: &Attached,
        ranges: impl Iterator<Item = CacheRange>,
    ) -> Result<(), EmulatorError> {
        let mut batch = Vec::with_capacity(BATCH_RANGES);
        let mut room = BATCH_BYTES;
        for CacheRange {
            mut offset_bytes,
            mut len_bytes,
        } in ranges
        {
            while len_bytes > 0 {
                let len = len_bytes.min(room);
                batch.push((Bytes::new(offset_bytes), Bytes::new(len)));
                offset_bytes += len;
                len_bytes -= len;
                room -= len;
                if room == 0 || batch.len() == BATCH_RANGES {
                    self.warm_batch(volume, std::mem::take(&mut batch))?;
                    room = BATCH_BYTES;
                }
            }
        }
        self.warm_batch(volume, batch).map(drop)
    }

    fn warm_batch(
        &self,
        volume: &Attached,
        batch: Vec<(Bytes, Bytes)>,
    ) -> Result<CacheCounters, EmulatorError> {
        let warmed = self
            .commands
            .ask(|answer| Command::Warm(volume.index, batch, answer))?;
        warmed.ok_or_else(|| no_cache(&volume.name))
    }
}

fn no_cache(name: &str) -> EmulatorError {
    EmulatorError::new(
        "volume",
        name,
        "it does not use the host cache (caching None)",
        format!("turn it on first: disklab disk set {name} --caching ReadOnly"),
    )
}

/// Refuses ranges that do not lie within the volume, all of them at once.
fn check(ranges: &[CacheRange], size: u64) -> Result<(), EmulatorError> {
    let reasons: Vec<Reason> = ranges
        .iter()
        .enumerate()
        .filter(|(_, range)| {
            let end = range.offset_bytes.checked_add(range.len_bytes);
            end.is_none_or(|end| end > size)
        })
        .map(|(number, range)| Reason {
            place: format!("ranges[{number}]"),
            value: format!("{} bytes at {}", range.len_bytes, range.offset_bytes),
            rule: format!("the volume ends at {size} bytes"),
            way_out: "name a range within it, or none for all that was written".to_owned(),
        })
        .collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Refusal { reasons }.into()),
    }
}

/// The parts of a sparse file that hold data, in order.
struct Written {
    file: File,
    /// Where to look on.
    offset: u64,
    size: u64,
}

impl Written {
    fn of(path: &Path, size: u64) -> std::io::Result<Written> {
        Ok(Written {
            file: File::open(path)?,
            offset: 0,
            size,
        })
    }

    /// The next place where data or a hole begins; `None`: not before the end.
    fn seek(&self, whence: libc::c_int) -> Option<u64> {
        let from = libc::off_t::try_from(self.offset).ok()?;
        // SAFETY: a valid descriptor; the call touches no memory of ours.
        let found = unsafe { libc::lseek(self.file.as_raw_fd(), from, whence) };
        u64::try_from(found).ok()
    }
}

impl Iterator for Written {
    type Item = CacheRange;

    fn next(&mut self) -> Option<CacheRange> {
        let start = self.seek(libc::SEEK_DATA).filter(|&at| at < self.size)?;
        self.offset = start;
        // Every file ends with a hole, at its end if nowhere else.
        let end = self.seek(libc::SEEK_HOLE)?.min(self.size);
        self.offset = end;
        (end > start).then_some(CacheRange {
            offset_bytes: start,
            len_bytes: end - start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_written_is_found_and_holes_are_not() {
        let path = std::env::temp_dir().join(format!("disklab-written-{}", std::process::id()));
        let file = File::create_new(&path).expect("a temporary file");
        let size = 64 << 20;
        file.set_len(size).expect("sparse");
        for offset in [8 << 20, 40 << 20] {
            file.write_all_at(&[1; 1 << 20], offset).expect("written");
        }
        let found: Vec<CacheRange> = Written::of(&path, size).expect("opened").collect();
        std::fs::remove_file(&path).expect("removed");
        let covers = |at: u64| {
            found.iter().any(|range| {
                (range.offset_bytes..range.offset_bytes + range.len_bytes).contains(&at)
            })
        };
        assert!(covers(8 << 20) && covers((41 << 20) - 1), "{found:?}");
        let total: u64 = found.iter().map(|range| range.len_bytes).sum();
        assert!((2 << 20..16 << 20).contains(&total), "{found:?}");
    }

    #[test]
    fn every_range_outside_is_named() {
        let range = |offset_bytes, len_bytes| CacheRange {
            offset_bytes,
            len_bytes,
        };
        assert!(check(&[range(0, 4096), range(4096, 0)], 4096).is_ok());
        let error = check(&[range(0, 4096), range(1, 4096), range(u64::MAX, 2)], 4096)
            .expect_err("two lie outside")
            .to_string();
        assert!(error.contains("4096 bytes at 1"), "{error}");
    }
}
