//! One run from job to last line.

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration as StdDuration;

use disklab_units::random::Stream;
use disklab_units::{Duration, Instant};
use serde_json::json;
use tokio::runtime::LocalRuntime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::arrivals::Arrivals;
use crate::begin;
use crate::clients::{OpenRows, WithRows};
use crate::clock::{Clock, cpu_time, unix_nanos};
use crate::deadline::Deadline;
use crate::error::{LoadError, Problem};
use crate::job::target::Protocol;
use crate::job::{Job, Load, Rows, Stage, Target, Tpcc, Workload as Asked};
use crate::output::{End, Said, Writer, say};
use crate::pacing::{Pacing, Schedule, Terminals};
use crate::record::{Interval, Record};
use crate::slots::Shared;
use crate::versions::Ledger;
use crate::workloads::rows::{Choice, RowsWorkload};
use crate::workloads::{Workload, tpcc};

/// Records that go round between loop and writer. When the writer has all of them, the reader of our output is
/// slow, and the interval goes on.
const RECORDS: usize = 4;

/// After a signal, operations in flight get so long to end.
const LAST_WAIT: StdDuration = StdDuration::from_secs(1);

/// How often the run looks for operations that take too long, and whether anything succeeds: often enough for a
/// time-out to be a twentieth too long at most, and not so often that it costs anything.
fn watch_interval(job: &Job) -> StdDuration {
    let twentieth = StdDuration::from_nanos(job.request_timeout().as_nanos() / 20);
    twentieth.clamp(StdDuration::from_millis(1), StdDuration::from_millis(250))
}

/// How many polls the runtime does before it looks at sockets and timers again: tokio's 61 would let an arrival wait
/// for as many completions.
const EVENT_INTERVAL: u32 = 16;

/// Keeps memory that was freed: each answer's buffer is freed at once, and glibc gave the top of its heap back to the
/// kernel so often that page faults were a seventh of the client's time (perf, 2026-11-21).
fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        const KEPT_BYTES: libc::c_int = 256 << 20;
        // SAFETY: changes a threshold of the allocator, which it takes at any time.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) };
    }
}

/// Does a job; its lines go to `out`. On an error what happened before has been written.
pub fn run(job: &Job, out: impl Write + Send) -> Result<(), LoadError> {
    keep_freed_memory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build_local(Default::default())
        .map_err(|error| system("runtime", &error))?;
    match (&job.target, &job.workload) {
        (target, Asked::Rows(rows)) => target.with_rows(DriveRows {
            job,
            runtime: &runtime,
            rows,
            out,
        }),
        (Target::Postgresql(target), Asked::Tpcc(asked)) => {
            drive_tpcc::<tpcc::InPostgresql>(job, &runtime, target, asked, out)
        }
        (Target::Mysql(target), Asked::Tpcc(asked)) => {
            drive_tpcc::<tpcc::InMariadb>(job, &runtime, target, asked, out)
        }
        (_, Asked::Tpcc(_)) => unreachable!("refused when the job was read"),
    }
}

/// A stage of TPC-C in whichever database.
fn drive_tpcc<S: tpcc::Store + 'static>(
    job: &Job,
    runtime: &LocalRuntime,
    target: &S::Target,
    asked: &Tpcc,
    out: impl Write + Send,
) -> Result<(), LoadError> {
    let nodes = job.target.contact_points().len();
    match asked.stage {
        Stage::Load => {
            let workload = runtime.block_on(tpcc::Population::<S>::open(job, target, asked))?;
            drive(job, runtime, workload, nodes, out)
        }
        Stage::Run => {
            let workload = runtime.block_on(tpcc::Transactions::<S>::open(job, target, asked))?;
            drive(job, runtime, workload, nodes, out)
        }
        Stage::Check => {
            let workload = runtime.block_on(tpcc::Conditions::<S>::open(job, target, asked))?;
            drive(job, runtime, workload, nodes, out)
        }
    }
}

/// The rows workload over whichever client the target has.
struct DriveRows<'a, O> {
    job: &'a Job,
    runtime: &'a LocalRuntime,
    rows: &'a Rows,
    out: O,
}

impl<O: Write + Send> WithRows for DriveRows<'_, O> {
    type Output = Result<(), LoadError>;

    fn with<C: OpenRows>(self, target: &C::Target) -> Result<(), LoadError> {
        let DriveRows {
            job,
            runtime,
            rows,
            out,
        } = self;
        let client = runtime.block_on(C::open(&job.share(), target, rows))?;
        let nodes = client.nodes().unwrap_or(target.contact_points().len());
        let ledger = rows.versions.as_ref().map(Ledger::knowing).transpose();
        let ledger = ledger.expect("checked when the job was read");
        let workload = RowsWorkload::new(client, rows, Choice::new(job, rows), ledger);
        drive(job, runtime, workload, nodes, out)
    }
}

fn drive<W: Workload + 'static>(
    job: &Job,
    runtime: &LocalRuntime,
    workload: W,
    nodes: usize,
    mut out: impl Write + Send,
) -> Result<(), LoadError> {
    let open_loop = matches!(job.load, Load::Open(_));
    let terminals = workload.terminals();
    let paced = open_loop || !terminals.is_empty();
    let kinds = workload.kinds();
    let ready = json!({
        "event": "ready",
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "loop": if open_loop { "open" } else { "closed" },
        "slots": job.slots(),
        "nodes": nodes,
        "operations": workload.operations(),
    });
    say(&mut out, &ready);
    let (speaker, said) = sync_channel(RECORDS);
    let (give_back, used) = sync_channel(RECORDS);
    for _ in 1..RECORDS {
        let _ = give_back.send(Record::new(kinds.len()));
    }
    let writer = Writer::new(kinds, paced, out);
    std::thread::scope(|threads| {
        threads.spawn(move || writer.run(&said, &give_back));
        let voice = Voice {
            speaker,
            used,
            from: Instant::EPOCH,
            cpu_before: cpu_time(),
        };
        runtime.block_on(measure(job, workload, terminals, voice))
    })
}

/// The loop's side of the writer.
struct Voice {
    speaker: SyncSender<Said>,
    used: Receiver<Record>,
    from: Instant,
    cpu_before: Duration,
}

impl Voice {
    /// Says what happened since the last time, unless the writer is behind: then it is said later, with the rest.
    fn interval<W: Workload>(&mut self, shared: &Shared<W>) {
        let Ok(fresh) = self.used.try_recv() else {
            return;
        };
        let interval = self.take(shared, fresh);
        match self.speaker.try_send(Said::Interval(Box::new(interval))) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // There is room for every record that goes round.
            Err(TrySendError::Full(_)) => unreachable!("more records than were made"),
        }
    }

    fn take<W: Workload>(&mut self, shared: &Shared<W>, fresh: Record) -> Interval {
        let to = shared.clock.now();
        Interval {
            record: shared.record.replace(fresh),
            from: std::mem::replace(&mut self.from, to),
            to,
            in_flight: shared.in_flight.get(),
            cpu: self.cpu(),
        }
    }

    fn cpu(&self) -> Duration {
        cpu_time().saturating_sub(self.cpu_before)
    }

    fn say(&self, said: Said) {
        // A writer that has gone has nobody to write for.
        let _ = self.speaker.send(said);
    }
}

/// Why the operations stopped being started.
enum Stopped {
    Over,
    Signal,
    Fruitless(Duration),
    Broken(io::Error),
}

async fn measure<W: Workload + 'static>(
    job: &Job,
    workload: W,
    terminals: Vec<Duration>,
    mut voice: Voice,
) -> Result<(), LoadError> {
    let handler = |kind| signal(kind).map_err(|error| system("signals", &error));
    let signals = [
        handler(SignalKind::interrupt())?,
        handler(SignalKind::terminate())?,
    ];
    let [mut interrupt, mut terminate] = signals;
    let ended_before = match &job.begin_file {
        None => false,
        Some(file) => tokio::select! {
            begun = begin::wait_for(file) => begun.map(|()| false)?,
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        },
    };
    let started_unix_ns = unix_nanos();
    let shared = share(job, workload, &terminals)?;
    let mut slots = JoinSet::new();
    let stopped = if ended_before {
        Stopped::Signal
    } else {
        for number in 0..job.slots() as usize {
            slots.spawn_local(shared.clone().slot(number));
        }
        let signals = [interrupt, terminate];
        until_stopped(job, &shared, &mut voice, &mut slots, signals).await
    };
    shared.pacing.stop();
    let unsent = shared.pacing.unsent();
    let _ = tokio::time::timeout(LAST_WAIT, async {
        while slots.join_next().await.is_some() {}
    })
    .await;
    let last = voice.take(&shared, Record::new(shared.workload.kinds().len()));
    let errors = last.record.last_error.clone();
    voice.say(Said::Interval(Box::new(last)));
    match stopped {
        Stopped::Over | Stopped::Signal => {
            voice.say(Said::Done(End {
                elapsed: shared.last_end.get().saturating_since(Instant::EPOCH),
                unsent,
                abandoned: shared.in_flight.get(),
                interrupted: matches!(stopped, Stopped::Signal),
                started_unix_ns,
                cpu: voice.cpu(),
                outcome: shared.workload.outcome(),
            }));
            Ok(())
        }
        Stopped::Fruitless(span) => Err(Problem::new(
            "target.contact_points",
            job.target.contact_points().join(", "),
            format!(
                "no operation has succeeded for {span} (the run gives up after {}), {} have failed; \
                 the last one: {}",
                job.give_up(),
                shared.failed_since.get(),
                errors.as_deref().unwrap_or("no more is known")
            ),
            "look into the database's log",
        )
        .into()),
        Stopped::Broken(error) => Err(system("timer", &error)),
    }
}

fn share<W: Workload>(
    job: &Job,
    workload: W,
    terminals: &[Duration],
) -> Result<Rc<Shared<W>>, LoadError> {
    let clock = Clock::start(job.time_dilation);
    let arrivals = job.load.arrivals().map(|open| {
        let name = format!(
            "arrivals {} of {}",
            job.generator.index, job.generator.count
        );
        Arrivals::new(&open, job.generator, Stream::new(job.seed, &name))
    });
    let schedule = match (&job.load, arrivals) {
        (_, None) if terminals.is_empty() => None,
        (_, None) => Some(Schedule::Terminals(Terminals::new(terminals))),
        (Load::Closed(_), Some(arrivals)) => Some(Schedule::Ceiling(arrivals)),
        (Load::Open(_), Some(arrivals)) => Some(Schedule::Arrivals(arrivals)),
    };
    let paced = matches!(
        schedule,
        Some(Schedule::Arrivals(_) | Schedule::Terminals(_))
    );
    let kinds = workload.kinds().len();
    let operations = job.stop.operations.map(|all| job.generator.part(all));
    let operations = workload.operations().or(operations);
    Ok(Rc::new(Shared {
        workload,
        deadlines: (0..job.slots()).map(|_| Deadline::default()).collect(),
        timeout: job.request_timeout(),
        pacing: Pacing::new(job, operations, clock, schedule)
            .map_err(|error| system("timer", &error))?,
        clock,
        paced,
        record: Record::new(kinds).into(),
        in_flight: 0.into(),
        last_success: Instant::EPOCH.into(),
        failed_since: 0.into(),
        last_end: Instant::EPOCH.into(),
    }))
}

async fn until_stopped<W: Workload>(
    job: &Job,
    shared: &Rc<Shared<W>>,
    voice: &mut Voice,
    slots: &mut JoinSet<()>,
    [mut interrupt, mut terminate]: [Signal; 2],
) -> Stopped {
    let mut intervals = tokio::time::interval(StdDuration::from_millis(job.interval_ms));
    // The first tick comes at once.
    intervals.tick().await;
    let mut watch = tokio::time::interval(watch_interval(job));
    let pacing = shared.pacing.pace();
    tokio::pin!(pacing);
    loop {
        tokio::select! {
            // Each slot ends by itself: no operation takes longer than its time-out.
            slot = slots.join_next() => if slot.is_none() {
                return Stopped::Over;
            },
            Err(error) = &mut pacing => return Stopped::Broken(error),
            _ = intervals.tick() => voice.interval(shared),
            _ = watch.tick() => {
                shared.expire();
                let fruitless = shared.fruitless();
                if fruitless >= job.give_up() {
                    return Stopped::Fruitless(fruitless);
                }
            }
            _ = interrupt.recv() => return Stopped::Signal,
            _ = terminate.recv() => return Stopped::Signal,
        }
    }
}

fn system(place: &str, error: &io::Error) -> LoadError {
    let rule = format!("the kernel refused it: {error}");
    Problem::new(place, "", rule, "see what limits this process").into()
}
