//! One conductor's session: requests in, answers out as they are done.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::jobs::{AGENT_FILE, Jobs};
use crate::lines::{self, Line, MOST_LINE_BYTES};
use crate::protocol::{self, MOST_WAIT_MS, Operation, Program, Request};
use crate::{PROTOCOL, block, disks, files, folder, lease, pages, processes, system, upload};

/// The most requests at work at a time; each has a thread.
const MOST_AT_WORK: usize = 64;
/// The stack of such a thread: its data are on the heap.
const STACK_BYTES: usize = 256 << 10;
/// How long an agent of a lost connection has to end before it is killed.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// How a session begins.
pub struct Settings {
    /// Who asks: its jobs are kept apart from others', and found again by the next session.
    pub conductor: String,
    /// Comes back in the hello, so that no other line is taken for it.
    pub hello: String,
    /// Where jobs are kept; none: below the user's cache folder.
    pub root: Option<PathBuf>,
    /// How long jobs may run without a word of their conductor.
    pub lease_s: u64,
    /// The version of the program.
    pub version: String,
}

/// Serves one conductor until its input ends, or nothing has come for as long as its lease.
pub fn serve(
    settings: &Settings,
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
) -> Outcome<()> {
    // SAFETY: calls without memory. Nobody waits for keepers: the kernel takes them away.
    unsafe {
        libc::umask(0o077);
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    let failed = |error: io::Error| Failure::system("conductor", &error);
    protocol::check_job(&settings.conductor)?;
    protocol::check_job(&settings.hello)?;
    let root = settings.root.clone().map_or_else(folder::usual_root, Ok)?;
    let (jobs, _lock) = become_the_only(&root, &settings.conductor)?;
    lease::renew(jobs.folder(), settings.lease_s).map_err(failed)?;
    jobs.end_unkept();
    jobs.remove_stale();
    let session = Arc::new(Session {
        jobs,
        answers: Mutex::new(Box::new(output)),
        at_work: AtomicUsize::new(0),
    });
    // A login shell may have left a line without its end.
    session.say_line(&format!("\n{}", hello(settings)));
    loop {
        match lines::next(&mut input).map_err(failed)? {
            Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => {}
            Line::Whole(line) => session.hear(&line),
            Line::TooLong => {
                let rule = format!("a line has at most {MOST_LINE_BYTES} bytes");
                let failure = Failure::new("request", "", rule, "send it in parts");
                session.say(None, Err(failure));
            }
            Line::End => {
                session.jobs.leave();
                return Ok(());
            }
        }
    }
}

fn hello(settings: &Settings) -> Value {
    json!({
        "hello": settings.hello,
        "protocol": PROTOCOL,
        "version": settings.version,
        "pid": std::process::id(),
        "boot": system::boot_id(),
        "clock_ns": system::realtime_ns(),
        "architecture": std::env::consts::ARCH,
        "kernel": kernel(),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
    })
}

fn kernel() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Takes the place of an agent whose connection was lost and that has not noticed.
fn become_the_only(root: &Path, conductor: &str) -> Outcome<(Jobs, File)> {
    let failed = |error: io::Error| Failure::system("agent", &error);
    let began = Instant::now();
    loop {
        let jobs = Jobs::new(root.to_owned(), conductor)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW;
        let mut file = match system::open_at(jobs.folder(), AGENT_FILE, flags, 0o600) {
            // The one before us has just removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        end_holder(jobs.folder(), &file, began)?;
        if file.metadata().map_err(failed)?.nlink() == 0 {
            continue;
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let start = processes::look(own).map_or(0, |found| found.start);
        let written = file.set_len(0).and_then(|()| write!(file, "{own} {start}"));
        written.map_err(failed)?;
        return Ok((jobs, file));
    }
}

/// Waits for the lock of an agent's file, and ends the one that has it.
fn end_holder(conductor: &File, file: &File, began: Instant) -> Outcome<()> {
    let failed = |error: io::Error| Failure::system("agent", &error);
    while !system::lock(file, libc::LOCK_EX).map_err(failed)? {
        let holder = folder::read(conductor, AGENT_FILE, 64).map_err(failed)?;
        let text = String::from_utf8_lossy(&holder.unwrap_or_default()).into_owned();
        let mut words = text.split_ascii_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(pid)), Some(Ok(start))) = (words.next(), words.next()) {
            let number = if began.elapsed() < TAKE_OVER {
                libc::SIGTERM
            } else {
                libc::SIGKILL
            };
            end_agent(i32::try_from(pid).unwrap_or(0), start, number);
        }
        if began.elapsed() > 2 * TAKE_OVER {
            let rule = "another agent of this conductor does not end";
            return Err(Failure::new("agent", text, rule, "end it on the host"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn end_agent(pid: i32, start: u64, number: i32) {
    if pid <= 1 || u32::try_from(pid).is_ok_and(|pid| pid == std::process::id()) {
        return;
    }
    if let Some(pinned) = system::Pinned::new(pid) {
        if processes::runs(pid, start) {
            pinned.signal(number);
        }
    } else if processes::runs(pid, start) {
        // SAFETY: a call without memory.
        unsafe { libc::kill(pid, number) };
    }
}

struct Session {
    jobs: Jobs,
    answers: Mutex<Box<dyn Write + Send>>,
    at_work: AtomicUsize,
}

impl Session {
    fn hear(self: &Arc<Session>, line: &[u8]) {
        let Request { id, operation } = match protocol::parse(line) {
            Ok(request) => request,
            Err((id, failure)) => return self.say(id, Err(failure)),
        };
        // At once: what measures the way there and back must not wait for a thread.
        match operation {
            Operation::Clock {} => return self.say(Some(id), Ok(clock())),
            Operation::Beat { lease_s } => return self.say(Some(id), self.beat(lease_s)),
            // In their order, and no faster than the disk takes them.
            Operation::PutChunk {
                path,
                sha256,
                offset,
                data,
            } => {
                return self.say(Some(id), upload::chunk(&path, &sha256, offset, &data.0));
            }
            _ => {}
        }
        if self.at_work.fetch_add(1, Ordering::AcqRel) >= MOST_AT_WORK {
            self.at_work.fetch_sub(1, Ordering::AcqRel);
            let rule = format!("{MOST_AT_WORK} requests are at work, which is the most");
            return self.say(
                Some(id),
                Err(Failure::new("request", "", rule, "ask again later")),
            );
        }
        let session = Arc::clone(self);
        let work = move || {
            let outcome = session.perform(operation);
            // Before the answer: whoever has it may ask the next.
            session.at_work.fetch_sub(1, Ordering::AcqRel);
            session.say(Some(id), outcome);
        };
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(work);
        if let Err(error) = thread {
            self.at_work.fetch_sub(1, Ordering::AcqRel);
            self.say(Some(id), Err(Failure::system("request", &error)));
        }
    }

    fn perform(&self, operation: Operation) -> Outcome<Value> {
        let jobs = &self.jobs;
        match operation {
            Operation::Clock {} => Ok(clock()),
            Operation::Beat { lease_s } => self.beat(lease_s),
            Operation::Run(program) => self.run(*program),
            Operation::Job(program) => jobs.start(*program),
            Operation::Jobs {} => Ok(jobs.list()),
            Operation::Wait { job, wait_ms } => jobs.wait(&job, wait_ms),
            Operation::Tail {
                job,
                stream,
                offset,
                most_bytes,
                wait_ms,
            } => jobs.tail(&job, stream, offset, most_bytes, wait_ms),
            Operation::Signal { job, number } => jobs.signal(&job, number),
            Operation::Forget { job } => jobs.forget(&job),
            Operation::Watch {
                job,
                files,
                interval_ms,
            } => jobs.start(crate::watch::program(job, files, interval_ms)),
            Operation::Read {
                path,
                offset,
                most_bytes,
            } => files::read(&path, offset, most_bytes),
            Operation::Write { path, data, mode } => files::write(&path, &data.0, mode),
            Operation::Names { path } => files::names(&path),
            Operation::PutBegin {
                path,
                size_bytes,
                sha256,
                mode,
            } => upload::begin(&path, size_bytes, &sha256, mode),
            Operation::PutChunk {
                path,
                sha256,
                offset,
                data,
            } => upload::chunk(&path, &sha256, offset, &data.0),
            Operation::PutEnd {
                path,
                size_bytes,
                sha256,
                mode,
            } => upload::end(&path, size_bytes, &sha256, mode),
            Operation::Pages { paths } => pages::count(&paths),
            Operation::DropPages { paths } => pages::drop_clean(&paths),
            Operation::ReadAhead { device, set_kib } => block::read_ahead(&device, set_kib),
            Operation::Disks {} => disks::list(),
        }
    }

    fn run(&self, program: Program) -> Outcome<Value> {
        let job = program.job.clone();
        self.jobs.start(program)?;
        self.jobs.wait(&job, MOST_WAIT_MS)
    }

    fn beat(&self, lease_s: u64) -> Outcome<Value> {
        let renewed = lease::renew(self.jobs.folder(), lease_s);
        let until_ns = renewed.map_err(|error| Failure::system("lease", &error))?;
        Ok(json!({"until_ns": until_ns, "boot_ns": system::boottime_ns()}))
    }

    fn say(&self, id: Option<u64>, outcome: Outcome<Value>) {
        let mut line = match outcome {
            Ok(answer) => json!({"id": id, "answer": answer}).to_string(),
            Err(failure) => json!({"id": id, "error": failure}).to_string(),
        };
        if line.len() > MOST_LINE_BYTES {
            let rule = format!("the answer is longer than {MOST_LINE_BYTES} bytes");
            let failure = Failure::new("request", "", rule, "ask for less");
            line = json!({"id": id, "error": failure}).to_string();
        }
        self.say_line(&line);
    }

    fn say_line(&self, line: &str) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // A conductor that is gone hears nothing; the end of its input ends the session.
        let _ = answers
            .write_all(line.as_bytes())
            .and_then(|()| answers.write_all(b"\n"))
            .and_then(|()| answers.flush());
    }
}

fn clock() -> Value {
    json!({"clock_ns": system::realtime_ns()})
}

/// Standard input that ends when nothing has come for so long: an agent whose connection died silently.
pub struct Patient<R> {
    input: R,
    patience: Duration,
}

impl<R> Patient<R> {
    /// Reads an input, and ends it after so much silence.
    pub fn new(input: R, patience: Duration) -> Patient<R> {
        Patient { input, patience }
    }
}

impl<R: Read + std::os::fd::AsRawFd> Read for Patient<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if system::readable(&self.input, left)? {
                return self.input.read(buffer);
            }
            if left.is_zero() {
                return Ok(0);
            }
        }
    }
}
