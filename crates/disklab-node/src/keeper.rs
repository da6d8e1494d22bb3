//! The keeper of a job: the process that starts it, stays its parent and ends it when its time is over.
//!
//! The agent ends with its connection; the keeper does not. It spools what the job says into files, writes its exit code
//! so that it is there whole or not at all, and looks each second whether the conductor's lease still holds.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome};
use crate::protocol::Program;
use crate::{MARK, folder, lease, processes, system};

/// How often the lease and the spools are looked at.
const TICK: Duration = Duration::from_secs(1);
/// What a job has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// The longest order: a request's line and a little.
const MOST_ORDER_BYTES: u64 = 4 << 20;

pub const KEEPER_FILE: &str = "keeper";
pub const STARTED_FILE: &str = "started.json";
pub const ENDED_FILE: &str = "ended.json";
/// Is there when nobody will ask for the job again.
pub const FORGET_FILE: &str = "forget";

/// What the agent tells a keeper on its standard input.
#[derive(Serialize, Deserialize)]
pub struct Order {
    pub root: PathBuf,
    pub conductor: String,
    pub program: Program,
}

/// What is known of a job that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    pub pid: i32,
    pub start: u64,
    pub keeper_pid: i32,
    pub keeper_start: u64,
    pub boot: String,
    pub started_ns: u64,
    /// The program's name; its arguments may be anybody's business.
    pub program: String,
}

/// How a job ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit code; the negative number of the signal that ended it.
    pub code: i32,
    pub ended_ns: u64,
    /// Why the keeper ended it: `timeout`, `lease`, `spool`, `keeper told to end`; none: it ended by itself, or by a
    /// signal that was asked for.
    pub why: Option<String>,
}

/// What a keeper says to its agent, on one line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    Started(Started),
    /// Another request has started this job, or begins to.
    There,
    Refused {
        place: String,
        value: String,
        rule: String,
        errno: Option<i32>,
    },
}

/// Keeps one job: reads its order from standard input, says how it began, stays until it has ended.
pub fn keep() -> io::Result<()> {
    become_keeper()?;
    let mut order = Vec::new();
    io::stdin().take(MOST_ORDER_BYTES).read_to_end(&mut order)?;
    let order: Order = serde_json::from_slice(&order)?;
    let begun = Kept::begin(&order);
    let word = match &begun {
        Ok(Some(kept)) => Word::Started(kept.started.clone()),
        Ok(None) => Word::There,
        Err(failure) => Word::Refused {
            place: failure.place.clone(),
            value: failure.value.clone(),
            rule: failure.rule.clone(),
            errno: failure.errno,
        },
    };
    let mut answer = serde_json::to_vec(&word)?;
    answer.push(b'\n');
    // An agent that is gone hears nothing; the job is kept all the same.
    let _ = io::stdout()
        .write_all(&answer)
        .and_then(|()| io::stdout().flush());
    release_stdout();
    match begun {
        Ok(Some(kept)) => kept.stay(),
        _ => Ok(()),
    }
}

/// The signals that a keeper waits for; it is interrupted by none.
fn awaited() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: sigemptyset makes a set of any memory of its size.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

fn become_keeper() -> io::Result<()> {
    let set = awaited();
    // SAFETY: calls without memory but the set, which lives.
    unsafe {
        libc::umask(0o077);
        // The agent ignores its children; a keeper must hear of its own.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // Whoever loses his parent gets this one: nothing of the job escapes by forking twice.
        system::check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)).map(drop)
    }
}

fn release_stdout() {
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        use std::os::fd::AsRawFd;
        // SAFETY: both descriptors live.
        unsafe { libc::dup2(nothing.as_raw_fd(), 1) };
    }
}

/// A job with what its keeper needs.
struct Kept {
    conductor: File,
    folder: File,
    /// Locked while the keeper lives.
    _lock: File,
    started: Started,
    mark: String,
    timeout: Option<Duration>,
    most_spool_bytes: u64,
    /// Where the conductor has no lease of this boot any more: until when, by the time since the host's start.
    usual_until_ns: u64,
    began: Instant,
}

impl Kept {
    /// Makes the folder and starts the program; None: the folder is there already.
    fn begin(order: &Order) -> Outcome<Option<Kept>> {
        let conductor = folder::of_conductor(&order.root, &order.conductor)?;
        let job = &order.program.job;
        let failed = |error: io::Error| Failure::system(job.clone(), &error);
        match system::make_folder_at(&conductor, job, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made.map_err(failed)?,
        }
        let made = folder::open(&conductor, job, &order.conductor)?;
        let begun = Kept::begin_in(order, conductor, made);
        if begun.is_err() {
            // Nothing was started: the name is free again.
            remove(order);
        }
        begun.map(Some)
    }

    fn begin_in(order: &Order, conductor: File, made: File) -> Outcome<Kept> {
        let program = &order.program;
        let failed = |error: io::Error| Failure::system(program.job.clone(), &error);
        let lock = lock_file(&made).map_err(failed)?;
        let mark = format!("{}/{}", order.conductor, program.job);
        let child = start(program, &mark, &made)?;
        let known = |pid| processes::look(pid).map_or(0, |found| found.start);
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let started = Started {
            pid: child,
            start: known(child),
            keeper_pid: own,
            keeper_start: known(own),
            boot: system::boot_id(),
            started_ns: system::realtime_ns(),
            program: program.words[0].clone(),
        };
        let kept = Kept {
            conductor,
            folder: made,
            _lock: lock,
            started,
            mark,
            timeout: program.timeout_ms.map(Duration::from_millis),
            most_spool_bytes: program.most_spool_bytes,
            usual_until_ns: system::boottime_ns() + lease::USUAL_S * 1_000_000_000,
            began: Instant::now(),
        };
        if let Err(error) = kept.record(STARTED_FILE, &kept.started) {
            kept.signal(libc::SIGKILL);
            return Err(failed(error));
        }
        Ok(kept)
    }

    fn record(&self, name: &str, content: &impl Serialize) -> io::Result<()> {
        folder::replace(&self.folder, name, &serde_json::to_vec(content)?)
    }

    fn signal(&self, number: i32) {
        let keeper = (self.started.keeper_pid, self.started.keeper_start);
        processes::signal(Some(keeper), &self.mark, number);
    }

    /// Stays until no process of the job is left.
    fn stay(self) -> io::Result<()> {
        let mut told_to_end = false;
        let mut ending: Option<(Instant, &'static str)> = None;
        let mut main_runs = true;
        loop {
            told_to_end |= wait_for_signal();
            loop {
                match reap() {
                    Reaped::Child(pid, status) if pid == self.started.pid => {
                        main_runs = false;
                        self.end(status, ending.map(|(_, why)| why))?;
                    }
                    Reaped::Child(..) => {}
                    Reaped::NoneYet => break,
                    Reaped::NoChildren => return self.leave(),
                }
            }
            match ending {
                None => {
                    if let Some(why) = self.why_to_end(told_to_end, main_runs) {
                        ending = Some((Instant::now(), why));
                        self.signal(libc::SIGTERM);
                    }
                }
                Some((since, _)) if since.elapsed() >= GRACE => self.signal(libc::SIGKILL),
                Some(_) => {}
            }
        }
    }

    fn leave(self) -> io::Result<()> {
        if folder::read(&self.folder, FORGET_FILE, 1)?.is_some() {
            let (place, job) = self.mark.split_once('/').unwrap_or_default();
            remove_job(&self.conductor, job, place);
        }
        Ok(())
    }

    fn end(&self, status: ExitStatus, why: Option<&str>) -> io::Result<()> {
        let signal = || status.signal().map_or(-1, |number| -number);
        let ended = Ended {
            code: status.code().unwrap_or_else(signal),
            ended_ns: system::realtime_ns(),
            why: why.map(str::to_owned),
        };
        // A full disk may be the very thing that the job met: tried until there is room, or the lease is over.
        while let Err(error) = self.record(ENDED_FILE, &ended) {
            if self.lease_over() {
                return Err(error);
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn why_to_end(&self, told: bool, main_runs: bool) -> Option<&'static str> {
        let spooled = |name: &str| {
            let found = system::open_at(&self.folder, name, libc::O_RDONLY | libc::O_NOFOLLOW, 0);
            found
                .and_then(|file| file.metadata())
                .map_or(0, |found| found.len())
        };
        if told {
            Some("keeper told to end")
        } else if main_runs
            && self
                .timeout
                .is_some_and(|most| self.began.elapsed() >= most)
        {
            Some("timeout")
        } else if self.lease_over() {
            Some("lease")
        } else if spooled("stdout").max(spooled("stderr")) > self.most_spool_bytes {
            Some("spool")
        } else {
            None
        }
    }

    fn lease_over(&self) -> bool {
        let until_ns = lease::until_ns(&self.conductor).unwrap_or(self.usual_until_ns);
        system::boottime_ns() >= until_ns
    }
}

fn remove(order: &Order) {
    if let Ok(conductor) = folder::of_conductor(&order.root, &order.conductor) {
        remove_job(&conductor, &order.program.job, &order.conductor);
    }
}

/// Removes the folder of a job with the files that we know.
pub fn remove_job(conductor: &File, job: &str, place: &str) {
    if let Ok(made) = folder::open(conductor, job, place) {
        for name in system::names_of(&made, 64).unwrap_or_default() {
            let _ = system::remove_at(&made, &name);
        }
        let _ = system::remove_folder_at(conductor, job);
    }
}

fn new_file(at: &File, name: &str) -> io::Result<File> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_APPEND;
    system::open_at(at, name, flags, 0o600)
}

/// The file that tells that this keeper lives; under its name it is never seen without its lock.
fn lock_file(made: &File) -> io::Result<File> {
    let begun = format!("{KEEPER_FILE}.new");
    let lock = new_file(made, &begun)?;
    if !system::lock(&lock, libc::LOCK_EX)? {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    system::rename_at(made, &begun, KEEPER_FILE)?;
    Ok(lock)
}

/// Its standard input in memory: a password is on no disk.
fn input(data: &[u8]) -> io::Result<File> {
    // SAFETY: a string that ends in zero; the result is a new descriptor of ours.
    let mut file = unsafe {
        let made = libc::memfd_create(c"stdin".as_ptr(), libc::MFD_CLOEXEC);
        File::from_raw_fd(system::check(made)?)
    };
    file.write_all(data)?;
    // Opened anew: at its begin, and for reading only.
    File::open(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file)
    ))
}

/// What a job has of its keeper's environment. What a session of a user has beside it (keys, tokens,
/// what changes a program from outside) is nothing of a server's: see `machines/programs.py`.
const KEPT: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

fn kept(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    KEPT.contains(&text.as_ref()) || text.starts_with("DISKLAB_")
}

fn start(program: &Program, mark: &str, made: &File) -> Outcome<i32> {
    let spool_failed = |error: io::Error| Failure::system("spool", &error);
    let mut command = Command::new(&program.words[0]);
    command
        .args(&program.words[1..])
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| kept(name)))
        .envs(&program.variables)
        .env(MARK, mark)
        .current_dir(program.folder.as_deref().unwrap_or("/"))
        .stdin(Stdio::from(input(&program.stdin.0).map_err(spool_failed)?))
        .stdout(Stdio::from(new_file(made, "stdout").map_err(spool_failed)?))
        .stderr(Stdio::from(new_file(made, "stderr").map_err(spool_failed)?));
    // SAFETY: only calls that a child may make after fork, no memory but its own stack.
    unsafe {
        command.pre_exec(|| {
            let mut none = MaybeUninit::zeroed();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::umask(0o022);
            system::check(libc::setsid())?;
            // Killed with its keeper: a job that nobody keeps would run for ever.
            system::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)).map(drop)
        });
    }
    let child = command.spawn().map_err(|error| {
        let folder = program.folder.as_deref().unwrap_or("/");
        Failure {
            value: format!("{} in {folder}", program.words[0]),
            ..Failure::system("words", &error)
        }
    })?;
    i32::try_from(child.id()).map_err(|_| Failure::new("pid", "", "too large", "report this"))
}

/// Waits for a signal or a tick; true: the keeper was told to end.
fn wait_for_signal() -> bool {
    let set = awaited();
    let tick = libc::timespec {
        tv_sec: TICK.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    // SAFETY: a set and a time that live; no information is asked for.
    let number =
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const tick) };
    number > 0 && number != libc::SIGCHLD
}

enum Reaped {
    Child(i32, ExitStatus),
    NoneYet,
    NoChildren,
}

fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: the kernel writes one number.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::NoneYet,
        pid if pid > 0 => Reaped::Child(pid, ExitStatus::from_raw(status)),
        _ => Reaped::NoChildren,
    }
}
