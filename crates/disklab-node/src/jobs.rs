//! Jobs as the agent sees them: their folders.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::failure::{Failure, Outcome};
use crate::keeper::{
    ENDED_FILE, Ended, FORGET_FILE, KEEPER_FILE, Order, STARTED_FILE, Started, Word, remove_job,
};
use crate::protocol::{MOST_CHUNK_BYTES, MOST_WAIT_MS, Program, Stream, check_job};
use crate::{folder, lease, processes, system};

/// Names and locks the agent of a conductor.
pub const AGENT_FILE: &str = ".agent";
/// The most jobs of a conductor, ended ones too: it forgets what it has read.
const MOST_JOBS: usize = 256;
/// How long a keeper may take to say how a job began, on a machine that is busy.
const BEGIN: Duration = Duration::from_secs(20);
/// How long a folder may be there without a keeper before its start counts as interrupted.
const UNKEPT: Duration = Duration::from_secs(2);
/// How long the folder of a conductor stays that does not come back: a week, for whoever wants to know what was said.
const STALE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a spool is looked at: the longest delay of a line, for a tenth of a percent of a core.
const LOOK: Duration = Duration::from_millis(20);
/// The first look: short commands are not to wait for it.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// What `wait` shows of standard error.
const SHOWN_BYTES: u64 = 64 << 10;
/// The largest record of a job.
const RECORD_BYTES: u64 = 64 << 10;

/// The jobs of one conductor.
pub struct Jobs {
    root: PathBuf,
    conductor: String,
    folder: File,
}

/// What is known of a job.
struct Known {
    folder: File,
    started: Option<Started>,
    ended: Option<Ended>,
    kept: bool,
}

impl Jobs {
    /// The jobs in a conductor's folder, which is made when it is absent.
    pub fn new(root: PathBuf, conductor: &str) -> Outcome<Jobs> {
        let folder = folder::of_conductor(&root, conductor)?;
        let conductor = conductor.to_owned();
        Ok(Jobs {
            root,
            conductor,
            folder,
        })
    }

    /// The conductor's folder.
    pub fn folder(&self) -> &File {
        &self.folder
    }

    fn names(&self) -> Vec<String> {
        let names = system::names_of(&self.folder, 4 * MOST_JOBS).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| folder::open(&self.folder, name, "").is_ok())
            .collect()
    }

    /// Starts a job; one that was started already is only told of.
    pub fn start(&self, program: Program) -> Outcome<Value> {
        let job = program.job.clone();
        if self.names().len() >= MOST_JOBS {
            let rule = format!("a conductor has at most {MOST_JOBS} jobs, ended ones too");
            return Err(Failure::new(
                "job",
                job,
                rule,
                "forget those that have ended",
            ));
        }
        let order = Order {
            root: self.root.clone(),
            conductor: self.conductor.clone(),
            program,
        };
        match ask_keeper(&order).map_err(|error| Failure::system("keeper", &error))? {
            Word::Started(started) => Ok(json!({"job": job, "pid": started.pid, "again": false})),
            Word::Refused {
                place,
                value,
                rule,
                errno,
            } => {
                let way_out = "look at it on the host";
                Err(Failure {
                    errno,
                    ..Failure::new(place, value, rule, way_out)
                })
            }
            Word::There => self.started_before(&job),
        }
    }

    fn started_before(&self, job: &str) -> Outcome<Value> {
        let began = Instant::now();
        let deadline = began + BEGIN;
        let mut nap = FIRST_LOOK;
        loop {
            let known = self.known(job)?;
            if let Some(started) = known.started {
                return Ok(json!({"job": job, "pid": started.pid, "again": true}));
            }
            // Between a folder and its keeper's lock lies a moment.
            let unkept = !known.kept && began.elapsed() > UNKEPT;
            if unkept || Instant::now() > deadline {
                let rule = "its start was interrupted";
                return Err(Failure::new(
                    "job",
                    job,
                    rule,
                    "forget it, and start another",
                ));
            }
            sleep(&mut nap, LOOK);
        }
    }

    fn known(&self, job: &str) -> Outcome<Known> {
        let folder = folder::open(&self.folder, job, &self.conductor).map_err(|failure| {
            if failure.errno == Some(libc::ENOENT) {
                let rule = "this conductor has no such job here";
                return Failure {
                    errno: failure.errno,
                    ..Failure::new("job", job, rule, "start it")
                };
            }
            failure
        })?;
        // In this order: a keeper that ends between two looks has left its record.
        let kept = is_kept(&folder);
        let record = |name| folder::read(&folder, name, RECORD_BYTES).ok().flatten();
        let started = record(STARTED_FILE).and_then(|data| serde_json::from_slice(&data).ok());
        let ended = record(ENDED_FILE).and_then(|data| serde_json::from_slice(&data).ok());
        Ok(Known {
            folder,
            started,
            ended,
            kept,
        })
    }

    /// Lists the jobs.
    pub fn list(&self) -> Value {
        let shown = |job: &String| {
            let known = self.known(job).ok()?;
            Some(json!({
                "job": job,
                "pid": known.started.as_ref().map(|started| started.pid),
                "program": known.started.as_ref().map(|started| &started.program),
                "started_ns": known.started.as_ref().map(|started| started.started_ns),
                "kept": known.kept,
                "ended": known.ended,
            }))
        };
        json!({"jobs": self.names().iter().filter_map(shown).collect::<Vec<_>>()})
    }

    /// Waits for the end of a job.
    pub fn wait(&self, job: &str, wait_ms: u64) -> Outcome<Value> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms.min(MOST_WAIT_MS));
        let mut nap = FIRST_LOOK;
        loop {
            let known = self.known(job)?;
            if known.ended.is_some() || !known.kept {
                return Ok(told(&known));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(json!({"ended": null, "lost": false}));
            }
            sleep(&mut nap, left);
        }
    }

    /// Returns what a job has said from an offset on; waits until there is something, or it has ended.
    pub fn tail(
        &self,
        job: &str,
        stream: Stream,
        offset: u64,
        most_bytes: usize,
        wait_ms: u64,
    ) -> Outcome<Value> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms.min(MOST_WAIT_MS));
        let most_bytes = most_bytes.clamp(1, MOST_CHUNK_BYTES);
        let mut nap = FIRST_LOOK;
        loop {
            // Before the spool is read: what the job wrote before its end is in it.
            let known = self.known(job)?;
            let over = known.ended.is_some() || !known.kept;
            let data = part(&known.folder, stream.file(), offset, most_bytes)
                .map_err(|error| Failure::system(stream.file(), &error))?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !data.is_empty() || over || left.is_zero() {
                let ended = over && data.len() < most_bytes;
                return Ok(json!({"offset": offset, "data": Bytes(data), "ended": ended}));
            }
            sleep(&mut nap, left);
        }
    }

    /// Sends a signal to all processes of a job.
    pub fn signal(&self, job: &str, number: i32) -> Outcome<Value> {
        let known = self.known(job)?;
        let started = known
            .started
            .filter(|started| started.boot == system::boot_id());
        let keeper = started
            .filter(|_| known.kept)
            .map(|started| (started.keeper_pid, started.keeper_start));
        let mark = format!("{}/{job}", self.conductor);
        Ok(json!({"processes": processes::signal(keeper, &mark, number)}))
    }

    /// Removes what is known of a job, as soon as it has ended.
    pub fn forget(&self, job: &str) -> Outcome<Value> {
        let known = match self.known(job) {
            Err(failure) if failure.errno == Some(libc::ENOENT) => {
                return Ok(json!({"again": true}));
            }
            known => known?,
        };
        if known.kept {
            // Its keeper does it when the last process has ended.
            folder::replace(&known.folder, FORGET_FILE, b"")
                .map_err(|error| Failure::system("job", &error))?;
            if is_kept(&known.folder) {
                return Ok(json!({"again": false}));
            }
        }
        remove_job(&self.folder, job, &self.conductor);
        Ok(json!({"again": false}))
    }

    /// Ends what jobs have left whose keepers were killed: nobody else would.
    pub fn end_unkept(&self) {
        for job in self.names() {
            if let Ok(known) = self.known(&job)
                && !known.kept
            {
                processes::signal(None, &format!("{}/{job}", self.conductor), libc::SIGKILL);
            }
        }
    }

    /// Removes the conductor's folder if no job is in it.
    pub fn leave(&self) {
        if self.names().is_empty() {
            remove_conductor(&self.root, &self.conductor, &self.folder);
        }
    }

    /// Removes the folders of conductors that have not been heard of for a week.
    pub fn remove_stale(&self) {
        let Ok(root) = File::open(&self.root) else {
            return;
        };
        for name in system::names_of(&root, 64 * MOST_JOBS).unwrap_or_default() {
            if name == self.conductor || check_job(&name).is_err() {
                continue;
            }
            let Ok(folder) = folder::open(&root, &name, "") else {
                continue;
            };
            let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
            let lease = system::open_at(&folder, lease::NAME, flags, 0);
            let written = lease.and_then(|file| file.metadata()?.modified());
            if written.is_ok_and(|then| then.elapsed().is_ok_and(|since| since > STALE)) {
                let (root, conductor) = (self.root.clone(), name);
                let other = Jobs {
                    root,
                    conductor,
                    folder,
                };
                other.remove_ended();
                other.leave();
            }
        }
    }

    fn remove_ended(&self) {
        for job in self.names() {
            if self.known(&job).is_ok_and(|known| !known.kept) {
                remove_job(&self.folder, &job, &self.conductor);
            }
        }
    }
}

/// Removes the folder of a conductor with the files that we know.
fn remove_conductor(root: &Path, conductor: &str, folder: &File) {
    for name in [lease::NAME, AGENT_FILE] {
        let _ = system::remove_at(folder, name);
    }
    if let Ok(root) = File::open(root) {
        let _ = system::remove_folder_at(&root, conductor);
    }
}

/// Sleeps a little, each time longer up to `LOOK`.
fn sleep(nap: &mut Duration, most: Duration) {
    std::thread::sleep((*nap).min(most));
    *nap = (*nap * 2).min(LOOK);
}

fn told(known: &Known) -> Value {
    let stderr = size(&known.folder, "stderr");
    let from = stderr.saturating_sub(SHOWN_BYTES);
    let shown = |name, offset, most| part(&known.folder, name, offset, most).unwrap_or_default();
    json!({
        "ended": known.ended,
        "lost": known.ended.is_none(),
        "stdout_bytes": size(&known.folder, "stdout"),
        "stderr_bytes": stderr,
        "stderr": Bytes(shown("stderr", from, usize::try_from(SHOWN_BYTES).unwrap_or(0))),
    })
}

/// Whether a keeper of this job lives: it holds the lock for as long.
fn is_kept(folder: &File) -> bool {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
    let file = system::open_at(folder, KEEPER_FILE, flags, 0);
    file.and_then(|file| system::lock(&file, libc::LOCK_SH))
        .is_ok_and(|free| !free)
}

fn spool(folder: &File, name: &str) -> io::Result<File> {
    system::open_at(folder, name, libc::O_RDONLY | libc::O_NOFOLLOW, 0)
}

fn size(folder: &File, name: &str) -> u64 {
    let found = spool(folder, name).and_then(|file| file.metadata());
    found.map_or(0, |found| found.len())
}

fn part(folder: &File, name: &str, offset: u64, most_bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = spool(folder, name)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut data = Vec::new();
    file.take(most_bytes as u64).read_to_end(&mut data)?;
    Ok(data)
}

/// Starts a keeper and hears how it began. It is a child that nobody waits for: the agent ignores its children's ends.
fn ask_keeper(order: &Order) -> io::Result<Word> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("disklab-engine")
        .arg("node-keep")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: a call that a child may make after fork.
    unsafe {
        command.pre_exec(|| system::check(libc::setsid()).map(drop));
    }
    let mut keeper = command.spawn()?;
    if let Some(mut stdin) = keeper.stdin.take() {
        stdin.write_all(&serde_json::to_vec(order)?)?;
    }
    let Some(stdout) = keeper.stdout.take() else {
        return Err(io::Error::other("it has no standard output"));
    };
    if !system::readable(&stdout, BEGIN)? {
        return Err(io::Error::other("it says nothing"));
    }
    let mut word = Vec::new();
    BufReader::new(stdout)
        .take(RECORD_BYTES)
        .read_until(b'\n', &mut word)?;
    Ok(serde_json::from_slice(&word)?)
}
