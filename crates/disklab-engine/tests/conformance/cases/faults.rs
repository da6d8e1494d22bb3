//! What goes wrong goes wrong as asked, and mends.

use std::time::Duration;

use disklab_disk::Fault;
use serde_json::json;

use crate::cases::{SIZE, read_in_background, serves, wait_for_held};
use crate::disk::Disk;
use crate::emulated::{Bench, PATIENCE, wait_until};
use crate::{Check, ensure};

pub fn error_rate(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    disk.write(0, &[5; 4096])?;
    host.fail("data", &Fault::ErrorRate { ppm: 1_000_000 })?;
    for (what, ended) in [
        ("read", disk.read(0, 4096).map(drop)),
        ("write", disk.write(0, &[6; 4096])),
    ] {
        let error = ended
            .err()
            .ok_or(format!("a {what} succeeded at an error rate of 1"))?;
        ensure!(
            error.raw_os_error() == Some(libc::EIO),
            "a failed {what} is {error}, not EIO"
        );
    }
    host.fail("data", &Fault::ErrorRate { ppm: 0 })?;
    ensure!(
        disk.read(0, 4096)? == [5; 4096],
        "a failed write changed the data"
    );
    Ok(())
}

pub fn stall(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    Disk::open(&device)?.write(0, &[9; 4096])?;
    host.fail("data", &Fault::Stall { for_ns: None })?;
    let reading = read_in_background(&device)?;
    wait_for_held(&mut host, 1)?;
    // Long against a read without a stall, which needs well under a millisecond.
    let early = reading.recv_timeout(Duration::from_millis(300));
    ensure!(early.is_err(), "a read ended during the stall: {early:?}");
    host.fail("data", &Fault::Recover)?;
    let late = reading
        .recv_timeout(PATIENCE)
        .map_err(|_| "the read did not end after recover")?;
    ensure!(
        late? == [9; 4096],
        "the read that was held returned wrong data"
    );
    Ok(())
}

pub fn detach_in_use(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open_exclusively(&device)?;
    let answer = host.detach("data")?;
    ensure!(
        answer["ok"] == false,
        "a device in use was detached: {answer}"
    );
    for part in ["place", "value", "rule", "way_out"] {
        let said = answer["error"][part]
            .as_str()
            .is_some_and(|text| !text.is_empty());
        ensure!(said, "the refusal lacks its {part}: {answer}");
    }
    disk.write(0, &[3; 4096])
        .map_err(|error| format!("after a refused detach: {error}"))?;
    drop(disk);
    let answer = host.detach("data")?;
    ensure!(
        answer["ok"] == true,
        "detach was refused after close: {answer}"
    );
    wait_until("the device is gone", || !serves(&device))
}

pub fn host_failure(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    let disk = Disk::open(&device)?;
    disk.write(0, &[7; 4096])?;
    disk.flush()?;
    host.fail("data", &Fault::HostFailure)?;
    for (what, ended) in [
        ("read", disk.read(0, 4096).map(drop)),
        ("write", disk.write(0, &[8; 4096])),
        ("flush", disk.flush()),
    ] {
        let error = ended
            .err()
            .ok_or(format!("a {what} succeeded on a dead host"))?;
        ensure!(
            error.raw_os_error() == Some(libc::EIO),
            "a {what} on a dead host is {error}, not EIO"
        );
    }
    host.fail("data", &Fault::Recover)?;
    ensure!(
        disk.read(0, 4096)? == [7; 4096],
        "a network disk lost flushed data with the host"
    );
    Ok(())
}

pub fn calibrated(bench: &Bench) -> Check {
    let mut host = bench.start_calibrated()?;
    let hello = host.must(&json!({"op": "hello"}))?;
    for part in ["p50_ns", "p99_ns", "iops", "bytes_per_s"] {
        let measured = hello["envelope"][part].as_u64();
        ensure!(measured > Some(0), "the envelope lacks its {part}: {hello}");
    }
    let answer = host.must(&json!({"op": "list"}))?;
    ensure!(
        answer["volumes"] == json!([]),
        "the measuring left a volume: {answer}"
    );
    let (device, _) = host.attach("data", SIZE)?;
    Disk::open(&device)?.write(0, &[1; 4096])?;
    Ok(())
}
