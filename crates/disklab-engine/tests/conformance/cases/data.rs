//! What goes in comes out.

use std::fs;
use std::process::Command;

use disklab_disk::Fault;

use crate::cases::SIZE;
use crate::disk::{Disk, Random, SECTOR};
use crate::emulated::{Bench, EmulatedHost, Failure, run};
use crate::{Check, ensure};

/// The longest request that the transports carry in one piece is 1 MiB: cross it.
const LONGEST: u64 = 3 << 19;

pub fn round_trip(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    let mut random = Random(7);
    let mut expected = vec![0_u8; SIZE as usize];
    ensure!(
        disk.read(0, 1 << 20)?.iter().all(|byte| *byte == 0),
        "a new disk is not all zeros"
    );
    for _ in 0..200 {
        let len = (random.below(LONGEST / SECTOR as u64) + 1) * SECTOR as u64;
        // Every fourth request is a short one: those hit other paths than the large ones.
        let len = if random.below(4) == 0 {
            len.min(4096)
        } else {
            len
        };
        let offset = random.below((SIZE - len) / SECTOR as u64 + 1) * SECTOR as u64;
        let place = offset as usize..(offset + len) as usize;
        if random.below(2) == 0 {
            let data = random.bytes(len as usize);
            disk.write(offset, &data)?;
            expected[place].copy_from_slice(&data);
        } else {
            let found = disk.read(offset, len as usize)?;
            ensure!(
                found == expected[place],
                "wrong data in {len} bytes at {offset}"
            );
        }
    }
    for start in (0..SIZE as usize).step_by(1 << 20) {
        let found = disk.read(start as u64, 1 << 20)?;
        ensure!(
            found == expected[start..start + (1 << 20)],
            "wrong data at {start} at the end"
        );
    }
    Ok(())
}

pub fn fio_verifies(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    // Two jobs deeper than the device's queue, so that requests wait in the kernel too.
    run(Command::new("fio")
        .args([
            "--name=verify",
            "--direct=1",
            "--ioengine=libaio",
            "--rw=randwrite",
        ])
        .args([
            "--bsrange=512-128k",
            "--bs_unaligned=0",
            "--blockalign=512",
            "--iodepth=100",
        ])
        .args([
            "--size=8M",
            "--offset_increment=16M",
            "--numjobs=2",
            "--verify=crc32c",
        ])
        .args([
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--group_reporting",
            "--output-format=terse",
            "--filename",
        ])
        .arg(&device))?;
    let counters = host.counters("data")?;
    let written = counters["operations"]["write"]["bytes"].as_u64();
    ensure!(
        written >= Some(16 << 20),
        "fio wrote 16 MiB, the model saw {written:?}"
    );
    Ok(())
}

pub fn file_system(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device))?;
    let at = bench.directory.join("mounted");
    fs::create_dir(&at)?;
    let content = Random(11).bytes(5 << 20);
    run(Command::new("mount")
        .args(["-t", "ext4"])
        .arg(&device)
        .arg(&at))?;
    fs::write(at.join("file"), &content)?;
    let refused = host.detach("data");
    run(Command::new("umount").arg(&at))?;
    let refused = refused?;
    ensure!(
        refused["ok"] == false,
        "a mounted device was detached: {refused}"
    );
    let answer = host.detach("data")?;
    ensure!(
        answer["ok"] == true,
        "detach was refused after umount: {answer}"
    );
    let (device, reused) = host.attach("data", SIZE)?;
    ensure!(reused, "the data of the first attach were not found");
    run(Command::new("mount")
        .args(["-t", "ext4"])
        .arg(&device)
        .arg(&at))?;
    let found = fs::read(at.join("file"));
    run(Command::new("umount").arg(&at))?;
    ensure!(found? == content, "the file changed");
    Ok(())
}

pub fn flush(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    let flushes = |host: &mut EmulatedHost| -> Result<u64, Failure> {
        let counters = host.counters("data")?;
        counters["operations"]["flush"]["ios"]
            .as_u64()
            .ok_or_else(|| "no flush counter".into())
    };
    let before = flushes(&mut host)?;
    for number in 0..3 {
        disk.write(number * 4096, &[1; 4096])?;
        disk.flush()?;
    }
    let after = flushes(&mut host)?;
    ensure!(
        after >= before + 3,
        "three flushes were sent, {} arrived",
        after - before
    );
    Ok(())
}

pub fn discard(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    let data = Random(13).bytes(1 << 20);
    disk.write(0, &data)?;
    disk.discard(64 << 10, 128 << 10)?;
    let found = disk.read(0, 1 << 20)?;
    let (from, to) = (64 << 10, 192 << 10);
    ensure!(
        found[from..to].iter().all(|byte| *byte == 0),
        "discarded blocks are not zero"
    );
    ensure!(
        found[..from] == data[..from],
        "blocks before the discarded ones changed"
    );
    ensure!(
        found[to..] == data[to..],
        "blocks after the discarded ones changed"
    );
    let counters = host.counters("data")?;
    let bytes = &counters["operations"]["discard"]["bytes"];
    ensure!(
        *bytes == 128 << 10,
        "128 KiB were discarded, the model saw {bytes} bytes"
    );
    Ok(())
}

pub fn two_volumes(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (first, _) = host.attach("first", SIZE)?;
    let (second, _) = host.attach("second", SIZE)?;
    ensure!(
        first != second,
        "two volumes are one device, {}",
        first.display()
    );
    let disks = [Disk::open(&first)?, Disk::open(&second)?];
    for (number, disk) in (1_u8..).zip(&disks) {
        disk.write(4096, &[number; 4096])?;
    }
    for (number, disk) in (1_u8..).zip(&disks) {
        ensure!(
            disk.read(4096, 4096)? == [number; 4096],
            "volume {number} has other data"
        );
    }
    host.fail("first", &Fault::Stall { for_ns: None })?;
    ensure!(
        disks[1].read(4096, 4096)? == [2; 4096],
        "the second volume stalls with the first"
    );
    host.fail("first", &Fault::Recover)?;
    let answer = host.ask(&serde_json::json!({"op": "list"}))?;
    let volumes = answer["volumes"].as_array().map(Vec::len);
    ensure!(
        volumes == Some(2),
        "two volumes are attached, the list says {answer}"
    );
    Ok(())
}

pub fn reattach(bench: &Bench) -> Check {
    let data = Random(17).bytes(64 << 10);
    let mut host = bench.start()?;
    let (device, reused) = host.attach("data", SIZE)?;
    ensure!(!reused, "a first attach found older data");
    Disk::open(&device)?.write(8192, &data)?;
    let answer = host.detach("data")?;
    ensure!(answer["ok"] == true, "detach was refused: {answer}");
    let (device, reused) = host.attach("data", SIZE)?;
    ensure!(reused, "a second attach found no older data");
    ensure!(
        Disk::open(&device)?.read(8192, 64 << 10)? == data,
        "detach lost data"
    );
    host.shut_down()?;
    let mut host = bench.start()?;
    let (device, reused) = host.attach("data", SIZE)?;
    ensure!(reused, "an attach after a restart found no older data");
    ensure!(
        Disk::open(&device)?.read(8192, 64 << 10)? == data,
        "a restart lost data"
    );
    Ok(())
}
