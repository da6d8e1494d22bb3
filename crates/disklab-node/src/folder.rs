//! The agent's own folder on the host: `ROOT/CONDUCTOR/JOB`, for its user alone.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::system;

const FOLDER: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// The usual root: below the user's cache folder.
pub fn usual_root() -> Outcome<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache
        .map(|cache| cache.join("disklab/node"))
        .ok_or_else(|| {
            Failure::new(
                "HOME",
                "",
                "neither HOME nor XDG_CACHE_HOME is an absolute path",
                "give --folder",
            )
        })
}

/// Opens the folder of a conductor below the root; both are made when they are absent.
pub fn of_conductor(root: &Path, conductor: &str) -> Outcome<File> {
    let place = root.display().to_string();
    let failed = |error: &io::Error| Failure::system(place.clone(), error);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(|error| failed(&error))?;
    let above = File::open(root).map_err(|error| failed(&error))?;
    own(&above, &place)?;
    make(&above, conductor).map_err(|error| failed(&error))?;
    open(&above, conductor, &place)
}

fn make(above: &File, name: &str) -> io::Result<()> {
    match system::make_folder_at(above, name, 0o700) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Opens a folder of ours within one of ours; a link is not followed.
pub fn open(above: &File, name: &str, place: &str) -> Outcome<File> {
    let place = format!("{place}/{name}");
    let opened = system::open_at(above, name, FOLDER, 0)
        .map_err(|error| Failure::system(place.clone(), &error))?;
    own(&opened, &place)?;
    Ok(opened)
}

/// Refuses a folder into which another user could write.
fn own(folder: &File, place: &str) -> Outcome<()> {
    let found = folder
        .metadata()
        .map_err(|error| Failure::system(place, &error))?;
    // SAFETY: a call without memory.
    let user = unsafe { libc::geteuid() };
    let mode = found.permissions().mode() & 0o7777;
    if found.uid() != user || mode & 0o022 != 0 {
        let value = format!("uid {}, mode {mode:04o}", found.uid());
        let rule = format!("it must belong to uid {user}, and nobody else may write to it");
        return Err(Failure::new(place, value, rule, "give another --folder"));
    }
    Ok(())
}

/// Writes a file whole: it is the old one or the new one, also for whoever reads it meanwhile.
pub fn replace(folder: &File, name: &str, data: &[u8]) -> io::Result<()> {
    let unfinished = format!("{name}.{}", system::random_name()?);
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let written = system::open_at(folder, &unfinished, flags, 0o600)
        .and_then(|mut file| file.write_all(data))
        .and_then(|()| system::rename_at(folder, &unfinished, name));
    if written.is_err() {
        // It may not be there; the first error is the one to tell.
        let _ = system::remove_at(folder, &unfinished);
    }
    written
}

/// Reads a small file of ours; None: it is not there.
pub fn read(folder: &File, name: &str, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    match system::open_at(folder, name, flags, 0) {
        Ok(file) => {
            let mut data = Vec::new();
            file.take(most_bytes).read_to_end(&mut data)?;
            Ok(Some(data))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
