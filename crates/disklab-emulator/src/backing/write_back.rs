//! Whether this machine's own disk took what a volume holds.
//!
//! A FLUSH of an emulated disk waits for no write-back, or its speed would be that of this machine's disk. So data that
//! were flushed may be lost later, when the kernel writes them back and that disk fails. From then on the volume has
//! failed: it takes no write and no FLUSH any more and says why, also to the next attach.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::backing::FileBacking;
use crate::error::EmulatorError;
use crate::event::Event;

/// Marks a file whose data are not whole, with the reason. It goes with the file.
const MARK: &std::ffi::CStr = c"user.disklab.lost";
/// Data written back between two looks at the time: a third of a second of a slow disk.
const PART: u64 = 64 << 20;
/// Longer reasons are not ours.
const MOST_MARK_BYTES: usize = 4096;

impl FileBacking {
    /// Why the volume takes no more writes; nothing while all is well.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Looks whether data were lost since the last look. Writes and waits for nothing: 0.2 us, where fdatasync takes
    /// milliseconds.
    ///
    /// **Source:** Linux, fs/sync.c (`sync_file_range`) and mm/filemap.c (`file_fdatawait_range`): a wait for a range with
    /// nothing under way only reports what failed since this descriptor was told last, whatever the error was (EIO, ENOSPC).
    pub fn look(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let last = libc::off64_t::MAX - 1;
        if let Err(error) = sync_range(&self.file, last, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE) {
            self.fail(&error);
        }
    }

    /// Waits until all is on this machine's disk, at most until `deadline`. The error says what is not.
    pub fn settle(&mut self, deadline: Instant) -> Result<(), String> {
        self.look();
        match self.write_back(deadline) {
            _ if self.failure.is_some() => {}
            Ok(true) => {}
            Ok(false) => {
                let path = self.path.display();
                return Err(format!(
                    "{path}: this machine's disk has not taken all data yet; if it fails, nobody is told"
                ));
            }
            Err(error) => self.fail(&error),
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns whether everything was written back in time.
    fn write_back(&self, deadline: Instant) -> io::Result<bool> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let mut at = 0;
        // Part by part, since a thread in fdatasync cannot be ended until the disk has taken everything.
        while at < self.file.metadata()?.len() {
            sync_range(&self.file, at as libc::off64_t, PART, flags)?;
            at += PART;
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
        // Where the parts are on the disk.
        self.file.sync_data()?;
        Ok(true)
    }

    /// Marks the volume as failed, for as long as its file is there.
    fn fail(&mut self, error: &io::Error) {
        let reason = format!(
            "{}: this machine failed to write the volume's data back ({error}): what was flushed may be lost, and \
             the volume takes no more writes",
            self.path.display(),
        );
        Event::Warning {
            text: reason.clone(),
        }
        .print();
        if let Ok(file) = self.file.try_clone() {
            let mark = reason.clone();
            // The disk that has just failed may let this wait, and I/O goes on meanwhile.
            let _ = std::thread::Builder::new()
                .name("mark".to_owned())
                .spawn(move || set_mark(&file, &mark));
        }
        self.failure = Some(reason);
    }

    /// Refuses data of an earlier attach that are not whole.
    pub(super) fn check_whole(&self) -> Result<(), EmulatorError> {
        let Some(reason) = self.lost_before() else {
            return Ok(());
        };
        let place = self.path.display().to_string();
        Err(EmulatorError::new(
            &place,
            "data of an earlier attach",
            format!("they are not whole: {reason}"),
            format!(
                "remove the file to start with an empty disk, or take the data as they are: \
                 setfattr -x user.disklab.lost {place}"
            ),
        ))
    }

    fn lost_before(&self) -> Option<String> {
        if let Some(mark) = mark_of(&self.file) {
            return Some(mark);
        }
        // What failed when nobody had the file open is told to who opens it next.
        let last = libc::off64_t::MAX - 1;
        let error = sync_range(&self.file, last, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE).err()?;
        let reason = format!("this machine failed to write data back ({error})");
        set_mark(&self.file, &reason);
        Some(reason)
    }

    /// As if this machine's disk had failed.
    #[cfg(test)]
    pub fn lose(&mut self) {
        self.fail(&io::Error::from_raw_os_error(libc::EIO));
    }
}

fn sync_range(file: &File, at: libc::off64_t, len: u64, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: a valid descriptor; the call touches no memory of ours.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), at, len as libc::off64_t, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Not every file system has such marks: without one, the next attach is not warned.
fn set_mark(file: &File, reason: &str) {
    // SAFETY: a valid descriptor, name and value.
    unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            MARK.as_ptr(),
            reason.as_ptr().cast(),
            reason.len().min(MOST_MARK_BYTES),
            0,
        )
    };
}

fn mark_of(file: &File) -> Option<String> {
    let mut value = [0u8; MOST_MARK_BYTES];
    // SAFETY: a valid descriptor and name; the kernel writes at most as many bytes as the buffer has.
    let len = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            MARK.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    let len = usize::try_from(len).ok()?;
    Some(String::from_utf8_lossy(&value[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_lost_data_is_refused_until_it_is_gone() {
        let directory = std::env::temp_dir().join(format!("disklab-lost-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let path = directory.join("v.img");
        let (mut backing, _) = FileBacking::open(&path, 8192, true, false).expect("8 KiB");
        let soon = Instant::now() + Duration::from_secs(20);
        assert_eq!(backing.failure(), None);
        backing.settle(soon).expect("a disk that works");
        set_mark(&backing.file, "a broken disk");
        let refused = FileBacking::open(&path, 8192, true, false).err();
        // A file system without marks has nothing to refuse by.
        if mark_of(&backing.file).is_some() {
            let text = refused.expect("refused").to_string();
            assert!(text.contains("a broken disk"), "{text}");
        }
        FileBacking::open(&path, 8192, false, false).expect("a new file");
        backing.lose();
        assert!(backing.settle(soon).expect_err("lost").contains("flushed"));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
