//! A running engine and what it leaves on the machine.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use disklab_disk::Fault;
use disklab_disk::profile::{
    CacheProfile, Caching, DiskProfile, Distribution, HostProfile, Latency, Medium,
    PROFILE_VERSION, VolumeProfile,
};
use serde_json::{Value, json};

/// What a failed step says.
pub type Failure = Box<dyn std::error::Error>;

/// How long anything may take that is not the case's own waiting. Generous, because the emulated
/// machine of `make test-kernels` is many times slower than a real one.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Name of the emulated host of every case.
const HOST: &str = "conformance";

/// A way from the kernel to the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A FUSE file over io_uring, behind a loop device.
    FuseIoUring,
    /// A FUSE file over /dev/fuse, behind a loop device.
    Fuse,
    /// A ublk device.
    Ublk,
}

impl Transport {
    /// Every one.
    pub const ALL: [Transport; 3] = [Transport::FuseIoUring, Transport::Fuse, Transport::Ublk];

    /// As on the engine's command line.
    pub fn name(self) -> &'static str {
        match self {
            Transport::FuseIoUring => "fuse-io-uring",
            Transport::Fuse => "fuse",
            Transport::Ublk => "ublk",
        }
    }

    /// Whether this machine has it; if not, what is missing.
    pub fn present(self) -> Result<(), String> {
        // SAFETY: geteuid cannot fail and touches no memory.
        if unsafe { libc::geteuid() } != 0 {
            return Err("block devices need root".to_owned());
        }
        let node = match self {
            Transport::FuseIoUring => "/sys/module/fuse/parameters/enable_uring",
            Transport::Fuse => "/dev/fuse",
            Transport::Ublk => "/dev/ublk-control",
        };
        match (Path::new(node).exists(), self) {
            (true, _) => Ok(()),
            (false, Transport::Ublk) => Err(format!(
                "no {node}; `make test-kernels` runs this in an emulated machine that has it"
            )),
            (false, _) => Err(format!("no {node}")),
        }
    }
}

/// Where the cases of one transport run.
pub struct Bench {
    /// The transport.
    pub transport: Transport,
    /// The engine under test.
    pub engine: PathBuf,
    /// A directory of the case's own, removed afterwards.
    pub directory: PathBuf,
}

impl Bench {
    /// Makes the directory.
    pub fn new(transport: Transport) -> Result<Bench, Failure> {
        static CASES: AtomicU32 = AtomicU32::new(0);
        let number = CASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("disklab-conformance-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)?;
        let engine = std::env::var_os("DISKLAB_ENGINE").map_or_else(
            || env!("CARGO_BIN_EXE_disklab-engine").into(),
            PathBuf::from,
        );
        Ok(Bench {
            transport,
            engine,
            directory,
        })
    }

    /// The emulated host's directory below the run directory.
    pub fn host_directory(&self) -> PathBuf {
        self.directory.join("run/hosts").join(HOST)
    }

    /// Starts an emulated host without volumes.
    pub fn start(&self) -> Result<EmulatedHost<'_>, Failure> {
        EmulatedHost::start(self, &["--no-calibrate"])
    }

    /// The same, after it has measured the machine.
    pub fn start_calibrated(&self) -> Result<EmulatedHost<'_>, Failure> {
        EmulatedHost::start(self, &[])
    }

    /// Removes what a killed host left, as `disklab clean` does: the devices that are provably this
    /// case's, then the mount. Returns how many devices there were.
    pub fn sweep(&self) -> Result<usize, Failure> {
        let mount = self.host_directory().join("mnt");
        let mut swept = 0;
        for entry in fs::read_dir("/sys/block")? {
            let name = entry?.file_name();
            let backing = Path::new("/sys/block")
                .join(&name)
                .join("loop/backing_file");
            let ours = fs::read_to_string(backing)
                .is_ok_and(|file| Path::new(file.trim_end()).starts_with(&mount));
            if ours {
                run(Command::new("losetup")
                    .arg("-d")
                    .arg(Path::new("/dev").join(&name)))?;
                swept += 1;
            }
        }
        // A dead mount that the engine's watchdog is just taking away needs no help.
        wait_until("the dead mount is gone", || {
            let mounted = is_mounted(&mount);
            if mounted {
                let _ = run(Command::new("umount").arg("-f").arg(&mount));
            }
            !mounted
        })?;
        if self.transport == Transport::Ublk && self.host_directory().exists() {
            swept += self.engine_lists("remove-ublk")?.lines().count();
        }
        Ok(swept)
    }

    /// Runs one of the engine's commands about the ublk devices of the host.
    pub fn engine_lists(&self, command: &str) -> Result<String, Failure> {
        let mut engine = Command::new(&self.engine);
        engine.args([command, "--host", HOST, "--run-dir"]);
        run(engine.arg(self.directory.join("run")))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A case that failed half-way must not leave devices to the next one.
        let _ = self.sweep();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Whether something is mounted at a place.
pub fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1).map(Path::new) == Some(place))
}

/// Runs a program to its end and returns what it printed.
pub fn run(command: &mut Command) -> Result<String, Failure> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{command:?}: {}: {said}", done.status).into())
}

/// Waits for a condition; the error names what was missing.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("not within {PATIENCE:?}: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The profile of a volume of one disk without limits and without latency.
pub fn volume(name: &str, size_bytes: u64) -> VolumeProfile {
    let constant = || Distribution::constant(0);
    VolumeProfile {
        name: name.to_owned(),
        size_bytes,
        caching: Caching::None,
        chunk_bytes: None,
        disks: vec![DiskProfile {
            name: "conformance disk".to_owned(),
            medium: Medium::Remote,
            limits: Vec::new(),
            shared: Vec::new(),
            latency: Latency {
                read: constant(),
                write: constant(),
                flush: constant(),
            },
        }],
    }
}

/// The first event that is not a warning.
fn first_event(lines: &mpsc::Receiver<String>) -> Result<Value, Failure> {
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.map_err(|_| "the engine said nothing on standard output")?;
        let event = serde_json::from_str::<Value>(&line)?;
        if event["event"] != "warning" {
            return Ok(event);
        }
    }
}

/// One engine process and a connection to its control socket.
pub struct EmulatedHost<'bench> {
    bench: &'bench Bench,
    engine: Child,
    control: BufReader<UnixStream>,
    /// What it prints after the first event.
    lines: mpsc::Receiver<String>,
}

impl<'bench> EmulatedHost<'bench> {
    fn start(bench: &'bench Bench, options: &[&str]) -> Result<EmulatedHost<'bench>, Failure> {
        let profile = HostProfile {
            version: PROFILE_VERSION,
            name: "conformance VM".to_owned(),
            seed: 1,
            cached: Vec::new(),
            uncached: Vec::new(),
            cache: Some(CacheProfile {
                capacity_bytes: 64 << 20,
                block_bytes: 64 << 10,
                latency: volume("any", 4096).disks.swap_remove(0).latency,
                charges_writes: false,
            }),
            volumes: Vec::new(),
        };
        let mut engine = Command::new(&bench.engine)
            .args(["emulate", "--host", HOST])
            .args(options)
            .args(["--transport", bench.transport.name()])
            .arg("--run-dir")
            .arg(bench.directory.join("run"))
            .arg("--data-dir")
            .arg(bench.directory.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = engine.stdin.take().ok_or("no standard input")?;
        serde_json::to_writer(&mut input, &profile)?;
        drop(input);
        let output = engine.stdout.take().ok_or("no standard output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads on when nobody listens any more: an engine that logs must not die of it.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ready = match first_event(&lines) {
            Ok(event) if event["transport"] == bench.transport.name() => Ok(()),
            Ok(event) => Err(format!("the engine is not ready: {event}").into()),
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            engine.kill()?;
            engine.wait()?;
            return Err(error);
        }
        let control = UnixStream::connect(bench.host_directory().join("control.sock"))?;
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(EmulatedHost {
            bench,
            engine,
            control: BufReader::new(control),
            lines,
        })
    }

    /// Sends a request and returns the answer, good or bad.
    pub fn ask(&mut self, request: &Value) -> Result<Value, Failure> {
        let stream = self.control.get_mut();
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.control.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Sends a request that must succeed.
    pub fn must(&mut self, request: &Value) -> Result<Value, Failure> {
        let answer = self.ask(request)?;
        if answer["ok"] == true {
            return Ok(answer);
        }
        Err(format!("{request} was refused: {answer}").into())
    }

    /// Attaches a volume kept in a file; returns the device and whether older data were there.
    pub fn attach(&mut self, name: &str, size_bytes: u64) -> Result<(PathBuf, bool), Failure> {
        let backing = json!({"kind": "file", "preallocate": false});
        let profile = volume(name, size_bytes);
        // The smaller logical block, because it allows everything that the larger one does.
        let request = json!({
            "op": "attach", "volume": profile, "backing": backing, "block_bytes": 512,
        });
        let answer = self.must(&request)?;
        let device = answer["device"].as_str().ok_or("no device in the answer")?;
        let reused = answer["reused"]
            .as_bool()
            .ok_or("no `reused` in the answer")?;
        Ok((device.into(), reused))
    }

    /// Attaches a volume as its profile says, kept in a file; returns the device.
    pub fn attach_profile(&mut self, profile: &VolumeProfile) -> Result<PathBuf, Failure> {
        let answer = self.must(&json!({"op": "attach", "volume": profile}))?;
        let device = answer["device"].as_str().ok_or("no device in the answer")?;
        Ok(device.into())
    }

    /// Detaches a volume and keeps its data.
    pub fn detach(&mut self, name: &str) -> Result<Value, Failure> {
        self.ask(&json!({"op": "detach", "volume": name, "delete_data": false}))
    }

    /// Injects a fault.
    pub fn fail(&mut self, name: &str, fault: &Fault) -> Result<(), Failure> {
        self.must(&json!({"op": "fail", "volume": name, "fault": fault}))
            .map(drop)
    }

    /// The model's counters of a volume.
    pub fn counters(&mut self, name: &str) -> Result<Value, Failure> {
        let mut answer = self.must(&json!({"op": "show", "volume": name}))?;
        Ok(answer["counters"].take())
    }

    /// The warnings since it was asked last.
    pub fn warnings(&self) -> Vec<String> {
        let events = self.lines.try_iter();
        let events = events.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let warnings = events.filter(|event| event["event"] == "warning");
        warnings
            .filter_map(|event| event["text"].as_str().map(str::to_owned))
            .collect()
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.engine.kill()?;
        self.engine.wait()?;
        Ok(())
    }

    /// SIGTERM, as an init system sends it.
    pub fn terminate(&mut self) -> Result<(), Failure> {
        self.signal(libc::SIGTERM)?;
        self.wait_for_exit()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) -> Result<(), Failure> {
        let pid = libc::pid_t::try_from(self.engine.id())?;
        // SAFETY: the process is our child and not yet waited for, so the number is still its own.
        match unsafe { libc::kill(pid, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// Asks for an orderly end and waits for it.
    pub fn shut_down(&mut self) -> Result<(), Failure> {
        self.must(&json!({"op": "shutdown"}))?;
        self.wait_for_exit()
    }

    fn wait_for_exit(&mut self) -> Result<(), Failure> {
        let engine = &mut self.engine;
        wait_until("the engine has ended", || {
            engine.try_wait().is_ok_and(|status| status.is_some())
        })
    }

    /// The directory and transport of this host.
    pub fn bench(&self) -> &Bench {
        self.bench
    }
}

impl Drop for EmulatedHost<'_> {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
