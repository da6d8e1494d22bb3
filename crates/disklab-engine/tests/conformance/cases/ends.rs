//! How a host ends, and what stays on the machine.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use disklab_disk::Fault;
use serde_json::{Value, json};

use crate::cases::{SIZE, read_in_background, serves, wait_for_held};
use crate::disk::Disk;
use crate::emulated::{
    Bench, EmulatedHost, Failure, PATIENCE, Transport, is_mounted, run, wait_until,
};
use crate::{Check, ensure};

/// Writes and flushes 4 KiB, stalls the volume and fills it with `count` reads, of which the model must
/// hold `held`.
fn reads_in_flight(host: &mut EmulatedHost, count: usize, held: u64) -> Result<Waiting, Failure> {
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    disk.write(0, &[4; 4096])?;
    disk.flush()?;
    host.fail("data", &Fault::Stall { for_ns: None })?;
    let reads = (0..count).map(|_| read_in_background(&device));
    let reads = reads.collect::<io::Result<Vec<_>>>()?;
    wait_for_held(host, held)?;
    Ok(Waiting {
        device,
        disk,
        reads,
    })
}

struct Waiting {
    device: PathBuf,
    disk: Disk,
    reads: Vec<mpsc::Receiver<io::Result<Vec<u8>>>>,
}

impl Waiting {
    /// Every read must end with EIO, and what was flushed must be there after a sweep and another attach.
    fn all_fail(self, bench: &Bench) -> Check {
        for read in self.reads {
            let ended = read.recv_timeout(PATIENCE).map_err(|_| "a read hangs")?;
            let error = ended.err().ok_or("a stalled read succeeded")?;
            ensure!(
                error.raw_os_error() == Some(libc::EIO),
                "a read failed with {error}, not EIO"
            );
        }
        let error = self
            .disk
            .write(0, &[5; 4096])
            .err()
            .ok_or("a later write succeeded")?;
        let expected: &[i32] = match bench.transport {
            // The kernel fails it while it unplugs the disk, which then ends at byte zero.
            Transport::Ublk => &[libc::EIO, libc::ENOSPC],
            _ => &[libc::EIO],
        };
        let number = error.raw_os_error().unwrap_or_default();
        ensure!(expected.contains(&number), "a later write: {error}");
        drop(self.disk);
        ensure!(
            bench.sweep()? == 1,
            "other than one device was left to remove"
        );
        ensure!(
            !serves(&self.device),
            "{} still has a disk",
            self.device.display()
        );
        let mut host = bench.start()?;
        let (device, reused) = host.attach("data", SIZE)?;
        ensure!(reused, "the next attach found no older data");
        ensure!(
            Disk::open(&device)?.read(0, 4096)? == [4; 4096],
            "flushed data are lost"
        );
        Ok(())
    }
}

pub fn killed(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let waiting = reads_in_flight(&mut host, 3, 3)?;
    host.kill()?;
    waiting.all_fail(bench)
}

pub fn killed_with_full_queue(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    // More than the queue of 128 holds: the rest waits in the kernel and must end as well.
    let waiting = reads_in_flight(&mut host, 160, 128)?;
    let killed = Instant::now();
    host.kill()?;
    waiting.all_fail(bench)?;
    // The block layer's own time-out for a request is 30 s: nobody may depend on it.
    let took = killed.elapsed();
    ensure!(
        took < Duration::from_secs(25),
        "the reads hung for {took:?} after kill -9"
    );
    Ok(())
}

pub fn killed_under_file_system(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device))?;
    let at = bench.directory.join("mounted");
    fs::create_dir(&at)?;
    run(Command::new("mount")
        .args(["-t", "ext4"])
        .arg(&device)
        .arg(&at))?;
    let mut file = File::create(at.join("file"))?;
    host.kill()?;
    let ended = file.write_all(&[1; 1 << 20]).and_then(|()| file.sync_all());
    drop(file);
    run(Command::new("umount").arg(&at))?;
    let error = ended.err().ok_or("fsync succeeded without an engine")?;
    // Which one depends on whether the journal has given up already.
    let clean = [libc::EIO, libc::EROFS].map(Some);
    ensure!(
        clean.contains(&error.raw_os_error()),
        "write and fsync failed with {error}"
    );
    ensure!(
        bench.sweep()? == 1,
        "other than one device was left to remove"
    );
    Ok(())
}

pub fn hung(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let waiting = reads_in_flight(&mut host, 3, 3)?;
    // The watchdog gives a standing driver ten seconds.
    host.signal(libc::SIGSTOP)?;
    let ended = waiting.reads[0].recv_timeout(PATIENCE);
    host.kill()?;
    let error = ended
        .map_err(|_| "a read hangs")?
        .err()
        .ok_or("a stalled read succeeded")?;
    ensure!(
        error.raw_os_error() == Some(libc::EIO),
        "a read failed with {error}, not EIO"
    );
    let mut waiting = waiting;
    waiting.reads.remove(0);
    waiting.all_fail(bench)
}

/// What a cleaner reads before it touches a device.
pub fn provably_ours(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    if bench.transport != Transport::Ublk {
        let name = device.file_name().ok_or("a device without a name")?;
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let shown = fs::read_to_string(backing)?;
        let file = bench.host_directory().join("mnt/data");
        ensure!(
            Path::new(shown.trim_end()) == file,
            "{} shows {shown}",
            device.display()
        );
        return Ok(());
    }
    let lists = |bench: &Bench, live: bool| -> Check {
        let listed: Value = serde_json::from_str(&bench.engine_lists("ublk-devices")?)?;
        let expected = json!({"device": device, "volume": "data", "live": live});
        ensure!(listed == expected, "{listed} is listed, not {expected}");
        Ok(())
    };
    lists(bench, true)?;
    let refused = bench.engine_lists("remove-ublk").is_err();
    ensure!(refused, "remove-ublk did not refuse a living host");
    ensure!(serves(&device), "a refused remove-ublk took the device");
    host.kill()?;
    wait_until("the kernel notices the death", || {
        lists(bench, false).is_ok()
    })
}

pub fn leftovers(bench: &Bench) -> Check {
    let devices = || -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/dev")? {
            let path = entry?.path();
            if path.to_string_lossy().contains("/ublk") {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    };
    let before = devices()?;
    for end in [EmulatedHost::shut_down, EmulatedHost::terminate] {
        let mut host = bench.start()?;
        let (device, _) = host.attach("data", SIZE)?;
        Disk::open(&device)?.write(0, &[1; 4096])?;
        end(&mut host)?;
        ensure!(!serves(&device), "{} still has a disk", device.display());
        let mount = host.bench().host_directory().join("mnt");
        ensure!(!is_mounted(&mount), "{} is mounted", mount.display());
        let after = devices()?;
        ensure!(
            after == before,
            "device nodes before {before:?}, after {after:?}"
        );
        ensure!(bench.sweep()? == 0, "an orderly end left a device");
    }
    Ok(())
}

/// A program that ends may let go of the device a moment after disklab did.
pub fn released_late(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    host.attach("data", SIZE)?;
    let mount = host.bench().host_directory().join("mnt");
    if bench.transport != Transport::Ublk {
        let held = File::open(mount.join("data"))?;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
        });
    }
    host.shut_down()?;
    ensure!(!is_mounted(&mount), "{} is mounted", mount.display());
    ensure!(
        !host.bench().host_directory().exists(),
        "the host's directory stays"
    );
    Ok(())
}
