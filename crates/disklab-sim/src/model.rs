//! What every model has: a queue of events, what is recorded, and when the run is over; and the loop over it.

use disklab_disk::{Host, JournalSpan, Refusal};
use disklab_units::Instant;

use crate::disks::Disks;
use crate::engine::{Code, Queue};
use crate::event::Happening;
use crate::job::{Fidelity, Journal, Mechanism, Stop};
use crate::record::Recorder;
use crate::report::Report;
use crate::storage::{PendingIo, PendingIos};

/// How a job is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The caller's number for the cell.
    pub cell: u64,
    /// How much of it is simulated.
    pub fidelity: Fidelity,
    /// By how much the system is smaller than the real one.
    pub scale: u64,
    /// Start of every random stream.
    pub seed: u64,
    /// Which of the cells that follow each other on one cluster.
    pub pass: u64,
    /// Mechanisms that are switched off.
    pub off: &'a [Mechanism],
    /// Which I/Os of the first node are told.
    pub journal: Option<Journal>,
}

impl Setting<'_> {
    /// Whether a mechanism is on.
    pub fn has(&self, mechanism: Mechanism) -> bool {
        !self.off.contains(&mechanism)
    }

    /// Has the first node's disks keep the journal that is wanted, of the time behind the warm-up.
    pub fn keep_journal(&self, first: &mut Host, warm_up_ns: u64) {
        if let Some(Journal { from_ns, most }) = self.journal {
            let from = Instant::from_nanos(warm_up_ns.saturating_add(from_ns));
            first.keep_journal(JournalSpan { from, most });
        }
    }
}

/// A database in virtual time.
pub trait Model: Sized {
    /// What it is made of.
    type Job;
    /// What happens in it.
    type Event: Code;

    /// A smaller job of a run of less than full fidelity, and by how much it is smaller.
    fn scaled(job: &Self::Job, fidelity: Fidelity) -> (Self::Job, u64);

    /// Builds it from a checked job. Refuses what the disk model refuses.
    fn new(job: &Self::Job, setting: &Setting) -> Result<Self, Refusal>;

    /// Schedules what happens first.
    fn begin(&mut self);

    /// Lets an event happen.
    fn handle(&mut self, now: u64, event: Self::Event);

    /// Goes on with what waited for an I/O.
    fn io_ended(&mut self, now: u64, io: PendingIo);

    /// Its run: events, I/Os, records, end.
    fn course(&mut self) -> &mut Course<Self::Event>;

    /// Its run, and the disks of one of its machines.
    fn disks(&mut self, machine: u16) -> (&mut Course<Self::Event>, &mut Disks);

    /// What became of it, once it has run.
    fn report(&mut self, job: &Self::Job, cell: u64) -> Report;
}

/// The run of a model.
#[derive(Clone)]
pub struct Course<E> {
    /// What will happen.
    pub queue: Queue<Happening<E>>,
    /// I/Os under way, on all machines. The run schedules what their disks decide: nobody else has to.
    pub ios: PendingIos,
    /// What is measured.
    pub recorder: Recorder,
    /// Operations that have begun.
    pub issued: u64,
    /// Those that begin in all; while the run warms up there is no such bound.
    pub most_issued: u64,
    operations: u64,
    duration_ns: u64,
    warm_up_ns: u64,
    on_time: bool,
}

impl<E: Code> Course<E> {
    /// A run that records so many kinds of operation.
    pub fn new(stop: Stop, warm_up_ns: u64, kinds: usize) -> Course<E> {
        let operations = stop.operations.unwrap_or(u64::MAX);
        Course {
            queue: Queue::default(),
            ios: PendingIos::default(),
            recorder: Recorder::of_kinds(kinds),
            issued: 0,
            most_issued: if warm_up_ns > 0 { u64::MAX } else { operations },
            operations,
            duration_ns: stop.duration_ns.unwrap_or(u64::MAX),
            warm_up_ns,
            on_time: false,
        }
    }

    /// The same, which ends when its time is over, and not with the event behind it.
    pub fn on_time(self) -> Course<E> {
        Course {
            on_time: true,
            ..self
        }
    }

    /// Schedules the end of the warm-up, if there is one.
    pub fn schedule_measure(&mut self, event: E) {
        if self.warm_up_ns > 0 {
            self.queue.push(self.warm_up_ns, event);
        }
    }

    /// The warm-up is over: a number of operations is one of those that count, beyond what has begun `already`.
    pub fn measure(&mut self, now: u64, already: u64) {
        self.recorder.measure(now);
        self.most_issued = self.operations.saturating_add(already);
    }

    /// Ends the run at another time.
    pub fn ends_at(&mut self, duration_ns: u64) {
        self.duration_ns = duration_ns;
    }

    /// Whether no operation begins any more.
    #[inline]
    pub fn has_all(&self) -> bool {
        self.issued >= self.most_issued
    }

    /// Whether every operation of the job has begun.
    pub fn did_all(&self) -> bool {
        self.issued >= self.operations
    }
}

/// Runs a model to its end.
pub fn run<M: Model>(model: &mut M) {
    begin(model, 0);
    end(model);
}

/// Runs a model from its beginning until a time, which is not its end.
pub fn begin<M: Model>(model: &mut M, until: u64) {
    model.begin();
    schedule_ios(model, 0);
    go_on(model, until);
}

fn go_on<M: Model>(model: &mut M, until: u64) {
    while let Some(event) = model.course().queue.pop_before(until) {
        let course = model.course();
        let now = course.queue.now();
        if now >= course.duration_ns {
            break;
        }
        match event {
            Happening::Own(event) => model.handle(now, event),
            Happening::Io(number) => {
                let io = course.ios.end(number);
                model.io_ended(now, io);
            }
            Happening::Due(machine) => step(model, now, machine as u16),
        }
        schedule_ios(model, now);
        let course = model.course();
        if course.has_all() && course.recorder.under_way() == 0 {
            break;
        }
    }
}

/// Runs a model that has begun to its end.
pub fn end<M: Model>(model: &mut M) {
    go_on(model, u64::MAX);
    let course = model.course();
    let most = if course.on_time {
        course.duration_ns
    } else {
        u64::MAX
    };
    course.recorder.end(course.queue.now().min(most));
    assert!(
        course.recorder.littles_law_holds(),
        "Little's law does not hold: some operation was lost or counted twice"
    );
}

/// The disk model of a machine does what is due.
fn step<M: Model>(model: &mut M, now: u64, machine: u16) {
    let (course, disks) = model.disks(machine);
    if disks.step(now) {
        course.ios.note(machine);
    }
}

/// Schedules what the disks decided in the event that has just happened, machine by machine in the order in which it came
/// to them.
#[inline]
fn schedule_ios<M: Model>(model: &mut M, now: u64) {
    while let Some(machine) = model.course().ios.next_noted() {
        let (Course { queue, ios, .. }, disks) = model.disks(machine);
        for io in disks.passed() {
            ios[io].passed = now;
        }
        disks.schedule(now, queue, Happening::Io, Happening::Due(machine.into()));
    }
}
