//! Loop devices: numbers that others had before, and that others have elsewhere.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cases::{SIZE, serves};
use crate::emulated::{Bench, Failure, Transport, run};
use crate::{Check, ensure};

/// Another program may take a number first.
const TRIES: u32 = 20;

/// What a user may set, and what the kernel has for a new device.
const SETTINGS: [(&str, &str, &str); 5] = [
    ("queue/read_ahead_kb", "2048", "128"),
    ("queue/nomerges", "2", "0"),
    ("queue/rq_affinity", "2", "1"),
    ("queue/scheduler", "mq-deadline", "none"),
    ("bdi/max_ratio", "7", "100"),
];

fn sysfs(device: &Path) -> Result<PathBuf, Failure> {
    let name = device.file_name().ok_or("a device without a name")?;
    Ok(Path::new("/sys/block").join(name))
}

fn spoil(device: &Path) -> Check {
    for (name, spoiled, _) in SETTINGS {
        // A kernel without that scheduler has nothing to spoil.
        let _ = fs::write(sysfs(device)?.join(name), spoiled);
    }
    Ok(())
}

fn is_as_new(device: &Path, when: &str) -> Check {
    for (name, _, new) in SETTINGS {
        let text = fs::read_to_string(sysfs(device)?.join(name))?;
        // Of several choices, the one in brackets holds.
        let set = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
        ensure!(set == new, "{when}: {name} is {set}, not {new}");
    }
    Ok(())
}

pub fn no_settings_of_a_former_user(bench: &Bench) -> Check {
    if bench.transport == Transport::Ublk {
        return Ok(());
    }
    let mut host = bench.start()?;
    let (device, _) = host.attach("data", SIZE)?;
    spoil(&device)?;
    ensure!(host.detach("data")?["ok"] == true, "the detach was refused");
    if !serves(&device) {
        is_as_new(&device, "after detach")?;
    }
    // The other way: somebody else leaves a number, and it is the next that we get.
    let file = bench.directory.join("foreign");
    fs::File::create(&file)?.set_len(1 << 20)?;
    for _ in 0..TRIES {
        let losetup = run(Command::new("losetup").args(["-f", "--show"]).arg(&file))?;
        let foreign = PathBuf::from(losetup.trim());
        spoil(&foreign)?;
        run(Command::new("losetup").arg("-d").arg(&foreign))?;
        let (device, _) = host.attach("data", SIZE)?;
        if device == foreign {
            return is_as_new(&device, "after attach");
        }
        host.detach("data")?;
    }
    Err("another number each time".into())
}

/// A mount namespace with a file system of its own over a directory, whose file `data` a device shows.
struct Elsewhere {
    keeper: Child,
    shows: bool,
}

impl Elsewhere {
    fn new(directory: &Path, device: &Path) -> Result<Elsewhere, Failure> {
        let script = r#"mount -t tmpfs none "$1" && truncate -s 1M "$1/data" && losetup "$2" "$1/data"
            echo $?; exec sleep 600"#;
        let mut keeper = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([directory, device])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut code = String::new();
        let output = keeper.stdout.take().ok_or("no standard output")?;
        BufReader::new(output).read_line(&mut code)?;
        let shows = code.trim() == "0";
        Ok(Elsewhere { keeper, shows })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// A path says nothing: in another mount namespace it names another file.
pub fn another_namespaces_device_stays(bench: &Bench) -> Check {
    if bench.transport == Transport::Ublk {
        return Ok(());
    }
    let mount = bench.host_directory().join("mnt");
    for _ in 0..TRIES {
        let mut host = bench.start()?;
        let (device, _) = host.attach("data", SIZE)?;
        // Taken away by hand; and its number goes to a file of the same path elsewhere.
        run(Command::new("losetup").arg("-d").arg(&device))?;
        let elsewhere = Elsewhere::new(&mount, &device)?;
        if !elsewhere.shows {
            // Somebody else has the number.
            host.kill()?;
            bench.sweep()?;
            continue;
        }
        let shown = fs::read_to_string(sysfs(&device)?.join("loop/backing_file"));
        let answer = host.detach("data")?;
        let stays = serves(&device);
        if stays {
            run(Command::new("losetup").arg("-d").arg(&device))?;
        }
        let shown = shown?;
        ensure!(
            Path::new(shown.trim_end()) == mount.join("data"),
            "the path differs, so it proves nothing: {shown}"
        );
        ensure!(
            answer["ok"] == false && stays,
            "another namespace's device was detached: {answer}"
        );
        return Ok(());
    }
    Err("somebody else took the number each time".into())
}
