//! A volume held in a sparse file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::EmulatorError;

/// See the module.
pub struct FileBacking {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Why it takes no more writes.
    pub(super) failure: Option<String>,
}

/// What an attach found where its file goes.
pub struct Found {
    path: PathBuf,
    len: u64,
}

impl Found {
    /// Data of an earlier attach are there.
    pub fn has_data(&self) -> bool {
        self.len > 0
    }

    /// Makes the file as it was found, after an attach that came to nothing and wrote nothing. A failure leaves a
    /// file of holes.
    pub fn restore(self) {
        if self.len == 0 {
            let _ = remove(&self.path);
        } else if let Ok(file) = OpenOptions::new().write(true).open(&self.path) {
            let _ = file.set_len(self.len);
        }
    }
}

impl FileBacking {
    /// Opens `path` with `size` bytes. `keep` says whether data of an earlier attach stay: those of a network
    /// disk do, those of a disk on the host do not. A kept file may grow, as cloud disks may, but not
    /// shrink.
    pub fn open(
        path: &Path,
        size: u64,
        keep: bool,
        preallocate: bool,
    ) -> Result<(FileBacking, Found), EmulatorError> {
        let place = path.display().to_string();
        let failed = |error: &io::Error| {
            EmulatorError::system(
                &place,
                format!("{size} bytes"),
                error,
                "choose another data directory with DISKLAB_DATA_DIR",
            )
        };
        if !keep {
            remove(path).map_err(|error| failed(&error))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|error| failed(&error))?;
        let found = file.metadata().map_err(|error| failed(&error))?;
        if !found.is_file() {
            return Err(EmulatorError::new(
                place,
                "not a regular file",
                "a volume's data are held in a file that disklab made",
                "move it away or choose another data directory with DISKLAB_DATA_DIR",
            ));
        }
        if found.len() > size {
            return Err(EmulatorError::new(
                place,
                format!("{size} bytes"),
                format!(
                    "the data of an earlier attach take {} bytes, and a disk cannot shrink",
                    found.len()
                ),
                "attach it with at least that size, or detach it with delete_data to start anew",
            ));
        }
        let grows = found.len() < size;
        let found = Found {
            path: path.to_owned(),
            len: found.len(),
        };
        let backing = FileBacking {
            file,
            path: path.to_owned(),
            failure: None,
        };
        if found.has_data() {
            backing.check_whole()?;
        }
        let sized = backing.size(size, grows, preallocate, failed);
        match sized {
            Ok(()) => Ok((backing, found)),
            Err(error) => {
                found.restore();
                Err(error)
            }
        }
    }

    /// A file in memory, for a test of its own.
    #[cfg(test)]
    pub fn in_memory(size: u64) -> io::Result<FileBacking> {
        use std::os::fd::FromRawFd;
        // SAFETY: a valid C string, which the kernel copies.
        let fd = unsafe { libc::memfd_create(c"backing".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size)?;
        Ok(FileBacking {
            file,
            path: PathBuf::from("a test's"),
            failure: None,
        })
    }

    fn size(
        &self,
        size: u64,
        grows: bool,
        preallocate: bool,
        failed: impl Fn(&io::Error) -> EmulatorError,
    ) -> Result<(), EmulatorError> {
        if grows {
            self.file.set_len(size).map_err(|error| failed(&error))?;
        }
        if preallocate {
            self.preallocate(size)?;
        }
        Ok(())
    }

    fn preallocate(&self, size: u64) -> Result<(), EmulatorError> {
        let length = libc::off_t::try_from(size).unwrap_or(libc::off_t::MAX);
        // SAFETY: a valid descriptor; the call touches no memory of ours.
        if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(EmulatorError::system(
            self.path.display().to_string(),
            format!("preallocate {size} bytes"),
            &error,
            "free some space, attach without preallocate, or choose another data directory with DISKLAB_DATA_DIR",
        ))
    }

    /// For ring entries. Stays valid as long as the backing.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a file; no file is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_size_leaves_things_as_they_were() {
        let directory = std::env::temp_dir().join(format!("disklab-file-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory");
        let path = directory.join("v.img");
        assert!(FileBacking::open(&path, 1 << 62, true, true).is_err());
        assert!(!path.exists(), "a refused attach left a file");

        let (_, found) = FileBacking::open(&path, 8192, true, false).expect("8 KiB");
        assert!(!found.has_data());
        fs::write(&path, [7; 8192]).expect("written");
        let smaller = FileBacking::open(&path, 4096, true, false)
            .err()
            .expect("refused");
        assert!(smaller.to_string().contains("cannot shrink"), "{smaller}");
        let (_, found) = FileBacking::open(&path, 16_384, true, false).expect("grown");
        assert!(found.has_data());
        found.restore();
        assert_eq!(
            fs::read(&path).expect("read"),
            [7; 8192],
            "as it was before"
        );
        let (_, found) = FileBacking::open(&path, 8192, false, false).expect("new");
        assert!(!found.has_data());
        assert_eq!(
            fs::read(&path).expect("read"),
            [0; 8192],
            "local data do not stay"
        );
        fs::remove_dir_all(&directory).expect("removed");
    }
}
