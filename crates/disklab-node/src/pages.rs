//! The page cache: what of a file is in memory, and letting go of it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};

/// What is mapped at a time: its map of pages has 64 KiB.
const WINDOW_BYTES: u64 = 256 << 20;
/// The most files below the folders of one request.
const MOST_FILES: usize = 100_000;

/// Counts the bytes of files that are in memory; of a folder, of all files below it.
pub fn count(paths: &[String]) -> Outcome<Value> {
    each(paths, |path, file, size, totals| {
        totals.size += size;
        totals.resident += resident(file, size).map_err(|error| failed(path, &error))?;
        Ok(())
    })
}

/// Writes files back and lets go of their pages. What others have mapped stays.
pub fn drop_clean(paths: &[String]) -> Outcome<Value> {
    each(paths, |path, file, size, totals| {
        // Only clean pages go.
        file.sync_data().map_err(|error| failed(path, &error))?;
        // SAFETY: a living descriptor.
        let error =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if error != 0 {
            return Err(failed(path, &io::Error::from_raw_os_error(error)));
        }
        totals.size += size;
        totals.resident += resident(file, size).map_err(|error| failed(path, &error))?;
        Ok(())
    })
}

#[derive(Default)]
struct Totals {
    files: usize,
    size: u64,
    resident: u64,
}

type Act = fn(&Path, &File, u64, &mut Totals) -> Outcome<()>;

fn each(paths: &[String], act: Act) -> Outcome<Value> {
    let mut told = Vec::new();
    let mut left = MOST_FILES;
    for path in paths {
        let mut totals = Totals::default();
        // What was named is followed, what lies below it is not.
        let named = std::fs::canonicalize(path).map_err(|error| Failure::system(path, &error))?;
        let mut waiting = vec![named];
        let mut inside = false;
        while let Some(path) = waiting.pop() {
            let opened = open(&path).map_err(|error| failed(&path, &error));
            let found = match opened {
                Ok(found) => found,
                // A database removes files at any time; what was named must be there.
                Err(_) if inside => continue,
                Err(failure) => return Err(failure),
            };
            match found {
                Found::Folder(names) => waiting.extend(names),
                Found::File(file, size) => {
                    act(&path, &file, size, &mut totals)?;
                    totals.files += 1;
                    left = left.checked_sub(1).ok_or_else(|| {
                        let rule = format!("more than {MOST_FILES} files are below the folders");
                        Failure::new("paths", "", rule, "name smaller folders")
                    })?;
                }
                Found::Other => {}
            }
            inside = true;
        }
        told.push(json!({
            "path": path, "files": totals.files,
            "size_bytes": totals.size, "resident_bytes": totals.resident,
        }));
    }
    Ok(json!({"paths": told}))
}

enum Found {
    Folder(Vec<PathBuf>),
    File(File, u64),
    Other,
}

fn open(path: &Path) -> io::Result<Found> {
    let kind = path.symlink_metadata()?.file_type();
    if !(kind.is_file() || kind.is_dir() || kind.is_block_device()) {
        // Links are not followed: they may lead anywhere, and twice to one file.
        return Ok(Found::Other);
    }
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if kind.is_dir() {
        let names = std::fs::read_dir(path)?.flatten().map(|entry| entry.path());
        return Ok(Found::Folder(names.take(MOST_FILES).collect()));
    }
    // The size of a block device is not in its metadata.
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    Ok(Found::File(file, size))
}

fn resident(file: &File, size: u64) -> io::Result<u64> {
    // SAFETY: a call without memory.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let mut pages = 0;
    let mut offset = 0;
    while offset < size {
        let part = WINDOW_BYTES.min(size - offset);
        let mut map = vec![0_u8; usize::try_from(part.div_ceil(page)).unwrap_or(0)];
        let length = usize::try_from(part).map_err(io::Error::other)?;
        let at = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping that nothing reads; the map has a byte for each of its pages.
        let error = unsafe {
            let fd = file.as_raw_fd();
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                fd,
                at,
            );
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let told = libc::mincore(mapped, length, map.as_mut_ptr());
            let error = io::Error::last_os_error();
            libc::munmap(mapped, length);
            (told != 0).then_some(error)
        };
        if let Some(error) = error {
            return Err(error);
        }
        pages += map.iter().filter(|page| **page & 1 == 1).count() as u64;
        offset += part;
    }
    Ok((pages * page).min(size))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::system(path.display().to_string(), error)
}
