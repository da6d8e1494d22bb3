//! Files of the host.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::failure::{Failure, Outcome};
use crate::protocol::MOST_CHUNK_BYTES;
use crate::system;

/// The most names of a folder in one answer.
const MOST_NAMES: usize = 10_000;

/// File systems whose files are the kernel's own: nothing can take their place.
/// **Source:** include/uapi/linux/magic.h: proc, sysfs, cgroup, cgroup2, debugfs, tracefs.
const KERNELS_OWN: [i64; 6] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
];

/// Opens a regular file to read.
pub fn regular(path: &str) -> Outcome<File> {
    // O_NONBLOCK: a named pipe would wait for its writer before it can be told from a file.
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = opened.map_err(|error| Failure::system(path, &error))?;
    let found = file
        .metadata()
        .map_err(|error| Failure::system(path, &error))?;
    if !found.is_file() {
        return Err(Failure::new(
            path,
            "",
            "it is no regular file",
            "name a file",
        ));
    }
    Ok(file)
}

/// Returns a part of a file.
pub fn read(path: &str, offset: u64, most_bytes: usize) -> Outcome<Value> {
    let failed = |error: &io::Error| Failure::system(path, error);
    let mut file = regular(path)?;
    let found = file.metadata().map_err(|error| failed(&error))?;
    file.seek(SeekFrom::Start(offset))
        .map_err(|error| failed(&error))?;
    let most_bytes = most_bytes.min(MOST_CHUNK_BYTES);
    let mut data = Vec::new();
    // One byte more tells whether that was all; the size of a file of /proc is 0 whatever it holds.
    let got = Read::by_ref(&mut file)
        .take(most_bytes as u64 + 1)
        .read_to_end(&mut data);
    got.map_err(|error| failed(&error))?;
    let end = data.len() <= most_bytes;
    data.truncate(most_bytes);
    Ok(json!({
        "data": Bytes(data),
        "end": end,
        "size_bytes": found.size(),
        // Another one at the next part: another file has its name now.
        "identity": format!("{}:{}", found.dev(), found.ino()),
    }))
}

/// The folder that holds a file, and the file's name in it.
pub fn place(path: &str) -> Outcome<(File, String)> {
    let given = Path::new(path);
    let name = given.file_name().and_then(|name| name.to_str());
    let (Some(above), Some(name)) = (given.parent(), name) else {
        return Err(Failure::new(
            "path",
            path,
            "it names no file",
            "give the path of a file",
        ));
    };
    let folder = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(above)
        .map_err(|error| Failure::system(above.display().to_string(), &error))?;
    Ok((folder, name.to_owned()))
}

/// Writes a file whole, in the place of what has its name; in place where the file is the kernel's own.
pub fn write(path: &str, data: &[u8], mode: u32) -> Outcome<Value> {
    let (folder, name) = place(path)?;
    let failed = |error: io::Error| Failure::system(path, &error);
    let kind = system::file_system(&folder).map_err(failed)?;
    if KERNELS_OWN.contains(&kind) {
        let flags = libc::O_WRONLY | libc::O_NOFOLLOW;
        let mut file = system::open_at(&folder, &name, flags, 0).map_err(failed)?;
        // One call: each one is a value of its own to the kernel.
        let written = file.write(data).map_err(failed)?;
        if written != data.len() {
            return Err(Failure::new(
                path,
                "",
                "it took a part of it only",
                "read it",
            ));
        }
        return Ok(json!({}));
    }
    let unfinished = format!(".disklab-{}", system::random_name().map_err(failed)?);
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let file = system::open_at(&folder, &unfinished, flags, 0o600).map_err(failed)?;
    let written = fill(file, data, mode)
        .and_then(|()| system::rename_at(&folder, &unfinished, &name))
        .and_then(|()| folder.sync_all());
    if written.is_err() {
        // The first error is the one to tell.
        let _ = system::remove_at(&folder, &unfinished);
    }
    written.map_err(failed)?;
    Ok(json!({}))
}

fn fill(mut file: File, data: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(data)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Lists a folder.
pub fn names(path: &str) -> Outcome<Value> {
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path);
    let folder = opened.map_err(|error| Failure::system(path, &error))?;
    match system::names_of(&folder, MOST_NAMES) {
        Ok(names) => Ok(json!({"names": names})),
        Err(error) if error.raw_os_error() == Some(libc::E2BIG) => {
            let rule = format!("it holds more than {MOST_NAMES} names");
            Err(Failure::new(path, "", rule, "name a smaller folder"))
        }
        Err(error) => Err(Failure::system(path, &error)),
    }
}
