//! A machine that fails below the emulator: its own disk is full, or does not take what it was given.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::SIZE;
use crate::disk::Disk;
use crate::emulated::{Bench, EmulatedHost, Failure, run, wait_until};
use crate::{Check, ensure};

const MIB: u64 = 1 << 20;

/// A file system over a directory, taken away when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], what: &Path, at: &Path) -> Result<Mounted, Failure> {
        fs::create_dir_all(at)?;
        run(Command::new("mount").args(arguments).arg(what).arg(at))?;
        Ok(Mounted(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(&self.0));
    }
}

/// Some I/O has failed with EIO: it counts as failed, and the log has one line about it.
fn is_told(host: &mut EmulatedHost, op: &str) -> Check {
    let failed = host.counters("data")?["operations"][op]["failed"].as_u64();
    ensure!(failed > Some(0), "no {op} counts as failed");
    let mut about = Vec::new();
    wait_until("the log has a line about it", || {
        let warnings = host.warnings().into_iter();
        about.extend(warnings.filter(|text| text.contains("this machine failed")));
        !about.is_empty()
    })?;
    ensure!(about.len() == 1, "the log says {about:?}");
    Ok(())
}

fn is_eio(what: &str, ended: std::io::Result<()>) -> Check {
    let error = ended.err().ok_or(format!("{what} succeeded"))?;
    ensure!(
        error.raw_os_error() == Some(libc::EIO),
        "{what}: {error}, not EIO"
    );
    Ok(())
}

pub fn full(bench: &Bench) -> Check {
    let data = bench.directory.join("data");
    let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=8m"], Path::new("full"), &data)?;
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    let mut writes = (0..SIZE / MIB).map(|at| disk.write(at * MIB, &[7; MIB as usize]));
    let failed = writes.find(std::io::Result::is_err);
    is_eio("a write to a full machine", failed.unwrap_or(Ok(())))?;
    for _ in 0..3 {
        is_eio("another", disk.write(SIZE - MIB, &[7; MIB as usize]))?;
    }
    ensure!(
        disk.read(0, 4096)? == [7; 4096],
        "what was written before is lost"
    );
    is_told(&mut host, "write")?;
    drop(disk);
    host.shut_down()
}

/// The page cache takes every write; the disk below it does not.
pub fn not_written_back(bench: &Bench) -> Check {
    let small = bench.directory.join("small");
    let _small = Mounted::new(
        &["-t", "tmpfs", "-o", "size=8m"],
        Path::new("small"),
        &small,
    )?;
    let image = small.join("image");
    File::create(&image)?.set_len(2 * SIZE)?;
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-O", "^has_journal"])
        .arg(&image))?;
    let data = bench.directory.join("data");
    let _mounted = Mounted::new(&["-t", "ext4", "-o", "loop"], &image, &data)?;
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    disk.flush()?;
    for at in 0..SIZE / MIB {
        disk.write(at * MIB, &[7; MIB as usize])?;
    }
    // The kernel writes back when it likes; here it is made to.
    let name = "conformance/data.img";
    let written = File::options()
        .write(true)
        .open(data.join(name))?
        .sync_data();
    ensure!(written.is_err(), "all of it was written back");
    is_eio("a FLUSH after lost data", disk.flush())?;
    is_told(&mut host, "flush")?;
    drop(disk);
    host.shut_down()
}
