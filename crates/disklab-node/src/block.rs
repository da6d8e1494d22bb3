//! Block devices by their number, whatever their names on this host.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};

/// The number of a device as the kernel writes it: `8:16`.
pub fn number(rdev: u64) -> String {
    format!("{}:{}", libc::major(rdev), libc::minor(rdev))
}

/// The number of the block device that a path leads to.
pub fn of_path(path: &str) -> Outcome<String> {
    let found = fs::metadata(path).map_err(|error| Failure::system(path, &error))?;
    if !found.file_type().is_block_device() {
        return Err(Failure::new(
            "device",
            path,
            "it is no block device",
            "name a block device",
        ));
    }
    Ok(number(found.rdev()))
}

/// Reads the read-ahead of a device, after it was set if so asked. A partition has its disk's.
pub fn read_ahead(device: &str, set_kib: Option<u64>) -> Outcome<Value> {
    let own = PathBuf::from(format!("/sys/dev/block/{}", of_path(device)?));
    let folder = if own.join("partition").exists() {
        own.join("..")
    } else {
        own
    };
    let file = folder.join("queue/read_ahead_kb");
    let failed =
        |error: io::Error| Failure::system(format!("{device}: {}", file.display()), &error);
    if let Some(kib) = set_kib {
        fs::write(&file, kib.to_string()).map_err(failed)?;
    }
    let text = fs::read_to_string(&file).map_err(failed)?;
    let kib: u64 = text.trim().parse().map_err(|error| {
        Failure::new(
            device,
            text.clone(),
            format!("no number: {error}"),
            "report this",
        )
    })?;
    Ok(json!({"read_ahead_kib": kib}))
}
