//! Files that come in parts, by their content: a part that came is not sent again, whatever happened to the link.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Outcome};
use crate::{files, system};

/// The largest file: a database with its Java is 300 MB.
const MOST_BYTES: u64 = 16 << 30;

fn unfinished(sha256: &str) -> String {
    format!(".disklab-put-{}", &sha256[..32])
}

fn digest(file: &File) -> io::Result<String> {
    let mut file = file;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            read => digest.update(&chunk[..read]),
        }
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Says whether a file is there with this content, and how much of it came before.
pub fn begin(path: &str, size_bytes: u64, sha256: &str, mode: u32) -> Outcome<Value> {
    let failed = |error: io::Error| Failure::system(path, &error);
    if size_bytes > MOST_BYTES {
        let rule = format!("a file has at most {MOST_BYTES} bytes");
        return Err(Failure::new(
            "size_bytes",
            size_bytes.to_string(),
            rule,
            "send it in parts",
        ));
    }
    let (folder, name) = files::place(path)?;
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    if let Ok(there) = system::open_at(&folder, &name, flags, 0) {
        let found = there.metadata().map_err(failed)?;
        let same = found.is_file() && found.size() == size_bytes;
        if same && digest(&there).map_err(failed)? == sha256 {
            there
                .set_permissions(std::fs::Permissions::from_mode(mode))
                .map_err(failed)?;
            return Ok(json!({"have": true, "offset": size_bytes}));
        }
    }
    let part = open(&folder, sha256).map_err(failed)?;
    // In order, so that its length says how much of it came.
    let mut offset = part.metadata().map_err(failed)?.len();
    if offset > size_bytes {
        part.set_len(0).map_err(failed)?;
        offset = 0;
    }
    Ok(json!({"have": false, "offset": offset}))
}

fn open(folder: &File, sha256: &str) -> io::Result<File> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = system::open_at(folder, &unfinished(sha256), flags, 0o600)?;
    let found = file.metadata()?;
    // SAFETY: a call without memory.
    let user = unsafe { libc::geteuid() };
    if !found.is_file() || found.uid() != user || found.nlink() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(file)
}

/// Takes a part: only the next one, or one that came before.
pub fn chunk(path: &str, sha256: &str, offset: u64, data: &[u8]) -> Outcome<Value> {
    let failed = |error: io::Error| Failure::system(path, &error);
    let (folder, _) = files::place(path)?;
    let file = open(&folder, sha256).map_err(failed)?;
    let there = file.metadata().map_err(failed)?.len();
    if offset > there {
        let rule = format!("the next part begins at {there}");
        return Err(Failure::new(
            "offset",
            offset.to_string(),
            rule,
            "send parts in order",
        ));
    }
    if offset.saturating_add(data.len() as u64) > MOST_BYTES {
        let rule = format!("a file has at most {MOST_BYTES} bytes");
        return Err(Failure::new(
            "offset",
            offset.to_string(),
            rule,
            "send less",
        ));
    }
    file.write_all_at(data, offset).map_err(failed)?;
    Ok(json!({"offset": offset + data.len() as u64}))
}

/// Gives the file its name, if its content is what was said.
pub fn end(path: &str, size_bytes: u64, sha256: &str, mode: u32) -> Outcome<Value> {
    let failed = |error: io::Error| Failure::system(path, &error);
    let (folder, name) = files::place(path)?;
    let unfinished = unfinished(sha256);
    let file = open(&folder, sha256).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let got = digest(&file).map_err(failed)?;
    if size != size_bytes || got != sha256 {
        let _ = system::remove_at(&folder, &unfinished);
        let rule = format!("{size} bytes with the SHA-256 {got} came");
        return Err(Failure::new("sha256", sha256, rule, "send it again"));
    }
    file.set_permissions(std::fs::Permissions::from_mode(mode))
        .and_then(|()| file.sync_all())
        .and_then(|()| system::rename_at(&folder, &unfinished, &name))
        .and_then(|()| folder.sync_all())
        .map_err(failed)?;
    Ok(json!({}))
}
