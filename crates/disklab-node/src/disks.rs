//! The disks of the host: what they are, what stands on them, and who uses them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::block;
use crate::failure::{Failure, Outcome};
use crate::mounts::{self, Mounts};
use crate::signatures::{self, LOOKED_AT_BYTES, Signature};

/// The most disks and partitions that are told.
const MOST_TOLD: usize = 256;
/// Folders with names for disks.
const LINKS: [&str; 4] = ["by-id", "by-path", "by-partuuid", "azure"];

/// What the whole host knows, looked at once.
struct Host {
    mounts: Mounts,
    links: BTreeMap<String, Vec<String>>,
    paths: BTreeMap<String, String>,
    swaps: Vec<String>,
}

/// Lists the disks.
pub fn list() -> Outcome<Value> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/block")
        .map_err(|error| Failure::system("/sys/class/block", &error))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            !Path::new("/sys/class/block")
                .join(name)
                .join("partition")
                .exists()
        })
        .collect();
    names.sort();
    let host = Host {
        mounts: mounts::all(),
        links: links(),
        paths: paths(),
        swaps: swaps(),
    };
    let mut told = Vec::new();
    for name in names {
        let folder = Path::new("/sys/class/block").join(&name);
        // Loop devices without a file, and drives without a medium.
        if size(&folder) == 0 {
            continue;
        }
        if told.len() == MOST_TOLD {
            let rule = format!("this host has more than {MOST_TOLD} disks");
            return Err(Failure::new("disks", "", rule, "report this"));
        }
        told.push(disk(&host, &name, &folder));
    }
    Ok(json!({"disks": told}))
}

fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn number(file: &Path) -> Option<u64> {
    text(file)?.parse().ok()
}

/// In bytes: sysfs counts sectors of 512 bytes, whatever the disk's are.
fn size(folder: &Path) -> u64 {
    number(&folder.join("size")).unwrap_or(0) * 512
}

fn disk(host: &Host, name: &str, folder: &Path) -> Value {
    let mut told = part(host, name, folder);
    let device = folder.join("device");
    let queue = folder.join("queue");
    let more = json!({
        "model": text(&device.join("model")),
        "vendor": text(&device.join("vendor")),
        "serial": text(&device.join("serial")).or_else(|| text(&folder.join("serial"))),
        "wwn": text(&folder.join("wwid")).or_else(|| text(&device.join("wwid"))),
        "lun": lun(folder),
        "rotational": number(&queue.join("rotational")) == Some(1),
        "removable": number(&folder.join("removable")) == Some(1),
        "logical_block_bytes": number(&queue.join("logical_block_size")),
        "physical_block_bytes": number(&queue.join("physical_block_size")),
        "read_ahead_kib": number(&queue.join("read_ahead_kb")),
        "scheduler": text(&queue.join("scheduler")),
        "backing_file": text(&folder.join("loop/backing_file")),
        "partitions": partitions(host, folder),
    });
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
    told
}

fn partitions(host: &Host, folder: &Path) -> Vec<Value> {
    names(folder)
        .into_iter()
        .filter(|name| folder.join(name).join("partition").exists())
        .take(MOST_TOLD)
        .map(|name| part(host, &name, &folder.join(&name)))
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
        })
        .map(Iterator::collect)
        .unwrap_or_default();
    names.sort();
    names
}

/// What a disk and a partition have in common.
fn part(host: &Host, name: &str, folder: &Path) -> Value {
    let device = text(&folder.join("dev")).unwrap_or_default();
    let path = host.paths.get(&device);
    let content = path.map(|path| content(path, &device));
    let (signatures, first, why_unread) = match content {
        Some(Ok((signatures, first))) => (Some(signatures), first, None),
        Some(Err(error)) => (None, None, Some(error.to_string())),
        None => (None, None, Some("it has no device node here".to_owned())),
    };
    json!({
        "name": name,
        "device": device,
        "path": path,
        "links": host.links.get(&device).cloned().unwrap_or_default(),
        "size_bytes": size(folder),
        "read_only": number(&folder.join("ro")) == Some(1),
        "holders": names(&folder.join("holders")),
        "mounts": host.mounts.get(&device).cloned().unwrap_or_default(),
        "swap": host.swaps.contains(&device),
        "signatures": signatures,
        "first_not_zero": first,
        "why_unread": why_unread,
        "exclusive": path.map(|path| exclusive(path, &device)),
    })
}

/// The number by which the cloud calls a disk: SCSI's last; on Azure's NVMe, the namespace less 2.
fn lun(folder: &Path) -> Option<u64> {
    let device = fs::canonicalize(folder.join("device")).ok()?;
    let model = text(&device.join("model")).unwrap_or_default();
    if model.contains("MSFT NVMe Accelerator") {
        // **Source:** learn.microsoft.com/azure/virtual-machines/nvme-linux: namespace 1 is the OS disk, data disks follow.
        return number(&folder.join("nsid"))?.checked_sub(2);
    }
    let address: Vec<u64> = device
        .file_name()?
        .to_str()?
        .split(':')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    (address.len() == 4).then(|| address[3])
}

/// Device nodes in /dev, by number.
fn paths() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["/dev", "/dev/mapper", "/dev/md"] {
        for name in names(Path::new(folder)) {
            let path = format!("{folder}/{name}");
            if let Ok(node) = fs::symlink_metadata(&path)
                && node.file_type().is_block_device()
            {
                found.entry(block::number(node.rdev())).or_insert(path);
            }
        }
    }
    found
}

/// Links below /dev/disk, by the number of the device that they lead to.
fn links() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut waiting: Vec<(PathBuf, u32)> = LINKS
        .map(|name| (Path::new("/dev/disk").join(name), 0))
        .to_vec();
    while let Some((folder, depth)) = waiting.pop() {
        for name in names(&folder).into_iter().take(MOST_TOLD * 16) {
            let path = folder.join(name);
            let Ok(own) = fs::symlink_metadata(&path) else {
                continue;
            };
            // Azure's are in folders of folders.
            if own.is_dir() && depth < 2 {
                waiting.push((path.clone(), depth + 1));
            }
            if let Ok(node) = fs::metadata(&path)
                && node.file_type().is_block_device()
            {
                let links = found.entry(block::number(node.rdev())).or_default();
                links.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found
}

fn swaps() -> Vec<String> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next());
    paths.filter_map(|path| block::of_path(path).ok()).collect()
}

/// Opens a device node, and proves that it is the device that was meant.
fn open(path: &str, device: &str, flags: i32) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(flags | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.file_type().is_block_device() || block::number(found.rdev()) != device {
        return Err(io::Error::other("another device has its name now"));
    }
    Ok(file)
}

fn content(path: &str, device: &str) -> io::Result<(Vec<Signature>, Option<u64>)> {
    let mut file = open(path, device, 0)?;
    let size = file.seek(SeekFrom::End(0))?;
    let length = size.min(LOOKED_AT_BYTES as u64);
    let begin = read(&mut file, 0, length)?;
    let end = read(&mut file, size - length, length)?;
    // What others read now is their business.
    drop_pages(&file, 0, length);
    drop_pages(&file, size - length, length);
    let found = signatures::find(size, &begin, &end);
    Ok((found, signatures::first_not_zero(size, &begin, &end)))
}

fn read(file: &mut File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(length).read_to_end(&mut data)?;
    if data.len() as u64 == length {
        Ok(data)
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

fn drop_pages(file: &File, offset: u64, length: u64) {
    use std::os::fd::AsRawFd;
    let part = (offset.cast_signed(), length.cast_signed());
    // SAFETY: a living descriptor. It is advice: nothing hangs on it.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), part.0, part.1, libc::POSIX_FADV_DONTNEED) };
}

/// Whether the kernel lets nobody else have it: `free`, `busy` (a mount of any namespace, a holder, another `O_EXCL`), or
/// its error.
fn exclusive(path: &str, device: &str) -> String {
    match open(path, device, libc::O_EXCL) {
        Ok(_) => "free".to_owned(),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => "busy".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_of_this_machine_can_be_listed() {
        let found = list().unwrap();
        assert!(found["disks"].is_array());
    }
}
