//! What a failure takes with it, and what it must not take.

use std::path::Path;
use std::time::{Duration, Instant};

use disklab_disk::Fault;
use disklab_disk::profile::{Caching, Medium, VolumeProfile};
use serde_json::json;

use crate::cases::SIZE;
use crate::disk::{Disk, Random};
use crate::emulated::{Bench, EmulatedHost, Failure, volume};
use crate::{Check, ensure};

const BLOCK: u64 = 4096;
/// A block's number, its flushed content and its last.
type Block = (u64, Vec<u8>, Vec<u8>);
/// The model destages on its own after a second; what is to be lost must be younger.
const YOUNG: Duration = Duration::from_millis(800);
/// Tries to be that quick, for machines that are busy or emulated.
const TRIES: u32 = 10;

fn cached(name: &str) -> VolumeProfile {
    VolumeProfile {
        caching: Caching::ReadWrite,
        ..volume(name, SIZE)
    }
}

fn local(name: &str) -> VolumeProfile {
    let mut profile = volume(name, SIZE);
    profile.disks[0].medium = Medium::Temp;
    profile
}

/// A failed host answers EIO to everything until it is mended.
fn fails_until_mended(host: &mut EmulatedHost, name: &str, device: &Path) -> Check {
    let disk = Disk::open(device)?;
    for (what, result) in [
        ("read", disk.read(0, 4096).map(drop)),
        ("write", disk.write(0, &[9; 4096])),
        ("FLUSH", disk.flush()),
    ] {
        let error = result
            .err()
            .ok_or(format!("a {what} on a failed host succeeded"))?;
        ensure!(
            error.raw_os_error() == Some(libc::EIO),
            "a {what} on a failed host: {error}"
        );
    }
    host.fail(name, &Fault::Recover)
}

/// Writes every block, flushes, overwrites one third and flushes again. Another third is for the caller to
/// overwrite without a flush.
fn overwrite(disk: &Disk, random: &mut Random) -> Result<Vec<Block>, Failure> {
    let mut blocks = Vec::new();
    for block in 0..48 {
        let before = random.bytes(BLOCK as usize);
        disk.write(block * BLOCK, &before)?;
        blocks.push((block, before, random.bytes(BLOCK as usize)));
    }
    disk.flush()?;
    for (block, before, after) in blocks.iter_mut().filter(|(block, _, _)| block % 3 == 1) {
        disk.write(*block * BLOCK, after)?;
        // Flushed: from here on this is what must survive.
        before.clone_from(after);
    }
    disk.flush()?;
    Ok(blocks)
}

fn lose_once(host: &mut EmulatedHost, device: &Path, seed: u64) -> Result<bool, Failure> {
    let disk = Disk::open(device)?;
    let blocks = overwrite(&disk, &mut Random(seed))?;
    let start = Instant::now();
    for (block, _, after) in blocks.iter().filter(|(block, _, _)| block % 3 == 2) {
        disk.write(block * BLOCK, after)?;
        ensure!(
            disk.read(block * BLOCK, BLOCK as usize)? == *after,
            "block {block} was not written"
        );
    }
    drop(disk);
    host.fail("data", &Fault::HostFailure)?;
    let young = start.elapsed() < YOUNG;
    fails_until_mended(host, "data", device)?;
    let disk = Disk::open(device)?;
    for (block, before, after) in &blocks {
        let found = disk.read(block * BLOCK, BLOCK as usize)?;
        let kept = found == *before;
        let survived = block % 3 == 2 && found == *after;
        ensure!(
            kept || survived,
            "block {block} is neither the flushed nor the last content"
        );
        ensure!(
            kept || !young,
            "block {block} was not flushed and yet survived the host"
        );
    }
    Ok(young)
}

pub fn unflushed_writes_are_lost(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let device = host.attach_profile(&cached("data"))?;
    for seed in 0..TRIES {
        if lose_once(&mut host, &device, u64::from(seed))? {
            return Ok(());
        }
    }
    Err(format!("no try of {TRIES} was quick enough to lose anything").into())
}

pub fn deallocation_flushes_first(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let device = host.attach_profile(&cached("data"))?;
    let data = Random(5).bytes(64 << 10);
    Disk::open(&device)?.write(0, &data)?;
    host.fail("data", &Fault::Deallocate)?;
    fails_until_mended(&mut host, "data", &device)?;
    ensure!(
        Disk::open(&device)?.read(0, 64 << 10)? == data,
        "deallocation lost what was acknowledged"
    );
    Ok(())
}

pub fn local_data_die_with_the_host(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let attached = host.attach_profile(&volume("data", SIZE))?;
    let temp = host.attach_profile(&local("temp"))?;
    for fault in [Fault::HostFailure, Fault::Deallocate] {
        for device in [&attached, &temp] {
            let disk = Disk::open(device)?;
            disk.write(1 << 20, &[7; 8192])?;
            disk.flush()?;
        }
        host.fail("data", &fault)?;
        fails_until_mended(&mut host, "data", &temp)?;
        ensure!(
            Disk::open(&temp)?.read(1 << 20, 8192)? == [0; 8192],
            "local data survived {fault:?}"
        );
        ensure!(
            Disk::open(&attached)?.read(1 << 20, 8192)? == [7; 8192],
            "data of an attached disk did not survive {fault:?}"
        );
    }
    Ok(())
}

pub fn local_data_die_with_the_engine(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let attached = host.attach_profile(&volume("data", SIZE))?;
    let temp = host.attach_profile(&local("temp"))?;
    // Acknowledged, not flushed: an attached disk without host caching keeps it all the same.
    Disk::open(&attached)?.write(0, &[3; 4096])?;
    Disk::open(&temp)?.write(0, &[3; 4096])?;
    host.kill()?;
    ensure!(
        bench.sweep()? == 2,
        "other than two devices were left to remove"
    );
    let mut host = bench.start()?;
    let attached = host.attach_profile(&volume("data", SIZE))?;
    let temp = host.attach_profile(&local("temp"))?;
    ensure!(
        Disk::open(&attached)?.read(0, 4096)? == [3; 4096],
        "kill -9 lost what an attached disk had acknowledged"
    );
    ensure!(
        Disk::open(&temp)?.read(0, 4096)? == [0; 4096],
        "a local disk was used again after a crash"
    );
    Ok(())
}

pub fn a_second_attach_changes_nothing(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let device = host.attach_profile(&volume("data", SIZE))?;
    Disk::open(&device)?.write(0, &[6; 4096])?;
    let again = json!({"op": "attach", "volume": local("data")});
    let answer = host.ask(&again)?;
    ensure!(
        answer["ok"] == false,
        "a second attach of one name: {answer}"
    );
    for part in ["place", "value", "rule", "way_out"] {
        let said = answer["error"][part].as_str().unwrap_or_default();
        ensure!(!said.is_empty(), "the error has no {part}: {answer}");
    }
    ensure!(
        Disk::open(&device)?.read(0, 4096)? == [6; 4096],
        "a refused attach changed the data"
    );
    let list = host.must(&json!({"op": "list"}))?;
    ensure!(
        list["volumes"].as_array().map(Vec::len) == Some(1),
        "a refused attach left something: {list}"
    );
    Ok(())
}
