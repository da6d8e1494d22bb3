//! Sessions of SQL databases: how transactions begin, how statements go to a server and answers come back, and what
//! clients make of a server that goes away.
//!
//! A session is a thread of the client or a terminal. In a closed loop it begins its next transaction when it has the
//! answer to the last one and a person has thought and keyed; in an open loop transactions arrive, and wait for a session
//! that is idle. A transaction holds a connection, where those are fewer. A statement costs CPU of its client's machine,
//! its network, the way to the server and CPU there; then it is the database's until it answers. What happens at a
//! server's end is in [`outage`](super::outage).

use std::collections::VecDeque;

use disklab_units::random::Stream;

use crate::chance::work;
use crate::client::distance;
use crate::database::outage::{Outage, pause_ns};
use crate::database::transactions::{Script, Step};
use crate::engine::Code;
use crate::event::events;
use crate::faults::LOOK_NS;
use crate::job::{Client, Load, Mechanism, Network, ServerJob};
use crate::machine::Machine;
use crate::model::{Course, Model, Setting};
use crate::network::{Link, Paths};
use crate::station::{Servers, Slots, Usage};
use crate::tail::{Spent, Stretch};

/// Declares events of a database under transactions: beside what happens to every session, those that are its own.
macro_rules! session_events {
    ($(#[$about:meta])* $reach:vis enum $name:ident { $($kinds:tt)+ }) => {
        $crate::event::events! {
            $(#[$about])*
            $reach enum $name in 32 bits {
                /// What happens to every session.
                Sql(event: $crate::database::sessions::SqlEvent),
                $($kinds)+
            }
        }

        impl From<$crate::database::sessions::SqlEvent> for $name {
            #[inline]
            fn from(event: $crate::database::sessions::SqlEvent) -> $name {
                $name::Sql(event)
            }
        }
    };
}

pub(crate) use session_events;

events! {
    /// What happens in every SQL database.
    pub enum SqlEvent in 28 bits {
        /// A session has its next transaction ready.
        Begin(session: u32),
        /// A session's statement reaches its server.
        Arrive(session: u32),
        /// The server has planned a session's statement and goes for its rows.
        Plan(session: u32),
        /// A session has the answer to its statement.
        Done(session: u32),
        /// An open loop's next transaction arrives.
        Offer,
        /// The warm-up is over.
        Measure,
        /// A look at the timetable of faults: what is due, what has expired.
        Faults,
    }
}

/// Whether a session's transaction goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It has none.
    #[default]
    Free,
    /// It does.
    Busy,
    /// Its client has given it up, and the server goes on with it.
    GivenUp,
    /// Its server has vanished, and its client does not know.
    Lost,
    /// Nobody goes on with it; another session has its place.
    Dead,
}

/// What a session is for its client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seat {
    kind: u32,
    /// The next statement.
    step: u32,
    standing: Standing,
    /// How many transactions it has had.
    serial: u32,
    /// The session whose place it has: the first of those that had it.
    first: u32,
    /// When the transaction wanted a connection, or was due.
    started: u64,
    /// When the statement left the client.
    asked: u64,
    spent: Spent,
}

impl Seat {
    fn of(first: u32) -> Seat {
        Seat {
            first,
            ..Seat::default()
        }
    }
}

/// Who sends transactions.
pub struct Setup<'a> {
    /// The machines.
    pub client: &'a Client,
    /// What lies between them and the servers, and over how many zones those are spread.
    pub network: (&'a Network, u32),
    /// Sessions of a closed loop, or the arrivals of an open one.
    pub load: Load,
    /// Connections that they share; None: each has its own.
    pub connections: Option<u32>,
    /// What a statement costs them.
    pub costs: Costs,
}

/// What a statement costs clients, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Costs {
    /// CPU, without encryption.
    pub client_ns: u64,
    /// CPU of encryption at an end of a message.
    pub tls_ns: u64,
    /// Time that no queue explains.
    pub overhead_ns: u64,
}

impl Costs {
    /// Those of clients whose connections are encrypted if `tls`, which costs `tls_ns` each time.
    pub fn new(client_ns: u64, overhead_ns: u64, (tls, tls_ns): (bool, u64)) -> Costs {
        Costs {
            client_ns,
            tls_ns: u64::from(tls) * tls_ns,
            overhead_ns,
        }
    }
}

impl<S, P> ServerJob<S, P> {
    /// The run of a job whose clients send a script, and those clients.
    pub fn load<E: Code>(
        &self,
        script: Script,
        costs: Costs,
        setting: &Setting,
    ) -> (Course<E>, Clients) {
        let work = &self.workload;
        let setup = Setup {
            client: &self.client,
            network: (&self.network, self.cluster.zones),
            load: work.load.clone(),
            connections: work.connections,
            costs,
        };
        let course = Course::new(work.stop, work.warm_up_ns, script.names.len());
        (course.on_time(), Clients::new(script, setup, setting))
    }
}

/// The clients of a SQL database.
pub struct Clients {
    /// What they send.
    pub script: Script,
    load: Load,
    /// vCPUs and network of their machines.
    pub machines: Vec<(Servers, Link)>,
    on_server: bool,
    connections: Slots,
    shares_connections: bool,
    seats: Vec<Seat>,
    /// Sessions of an open loop that have nothing to do.
    idle: Vec<u32>,
    /// When transactions were due that have no session.
    pub unsent: VecDeque<u64>,
    next_offer: u64,
    cpu_ns: u64,
    /// CPU of encryption at an end of a message, in nanoseconds.
    pub tls_ns: u64,
    overhead_ns: u64,
    /// The ways between machines.
    pub paths: Paths,
    times: Stream,
    kinds: Stream,
    people: Stream,
    arrivals: Stream,
}

impl Clients {
    /// Idle clients.
    pub fn new(script: Script, setup: Setup, setting: &Setting) -> Clients {
        let Setup {
            client,
            load,
            costs,
            ..
        } = setup;
        let (Load::Closed { threads: sessions }
        | Load::Open {
            max_in_flight: sessions,
            ..
        }) = load;
        let endless = !setting.has(Mechanism::ClientCpu);
        let machine = |_| {
            let link = Link::new(client.network_bytes_per_s);
            (Servers::new(client.cores, endless), link)
        };
        let stream = |name| Stream::new(setting.seed, name);
        let (network, zones) = setup.network;
        Clients {
            script,
            load,
            machines: (0..client.nodes.max(1)).map(machine).collect(),
            on_server: client.on_server,
            connections: Slots::new(setup.connections.unwrap_or(u32::MAX)),
            shares_connections: setup.connections.is_some(),
            seats: (0..sessions).map(Seat::of).collect(),
            idle: Vec::new(),
            unsent: VecDeque::new(),
            next_offer: 0,
            cpu_ns: costs.client_ns + 2 * costs.tls_ns,
            tls_ns: costs.tls_ns,
            overhead_ns: costs.overhead_ns,
            paths: Paths::new(network, zones, setting.seed, setting.off),
            times: stream("server cpu"),
            kinds: stream("transactions"),
            people: stream("keying and thinking"),
            arrivals: stream("arrivals"),
        }
    }

    /// How many sessions there are, with those that have taken others' places.
    pub fn count(&self) -> usize {
        self.seats.len()
    }

    /// The statement that a session is at.
    #[inline]
    pub fn step(&self, session: u32) -> &Step {
        &self.script.steps[self.seats[session as usize].step as usize]
    }

    /// Whether an event of a session comes after its server's end.
    #[inline]
    pub fn is_over(&self, session: u32) -> bool {
        let standing = self.seats[session as usize].standing;
        matches!(standing, Standing::Dead | Standing::Lost)
    }

    /// The first session that had the place of one.
    pub fn first_of(&self, session: u32) -> u32 {
        self.seats[session as usize].first
    }

    /// Whether a session waits for an answer that it may get.
    pub fn is_busy(&self, session: u32) -> bool {
        self.seats[session as usize].standing == Standing::Busy
    }

    /// Up to when a session's time is counted.
    pub fn mark(&self, session: u32) -> u64 {
        self.seats[session as usize].spent.until
    }

    /// Counts the time of a session since it was last counted.
    #[inline]
    pub fn spend(&mut self, now: u64, session: u32, stretch: Stretch) {
        self.seats[session as usize].spent.on(now, stretch);
    }

    /// Counts where the time of a session's statement went while others worked for it.
    pub fn join(&mut self, session: u32, others: &Spent) {
        let spent = &mut self.seats[session as usize].spent;
        spent.split.join(&others.split);
        spent.until = others.until;
    }

    /// How many connections sessions share, and what those did up to `now`; None: each session has its own.
    pub fn connections(&mut self, now: u64) -> Option<(u64, Usage)> {
        let used = self.connections.usage(now);
        let count = self.connections.count();
        self.shares_connections.then_some((count, used))
    }

    /// Draws how long a piece of work takes that takes so long on average, in nanoseconds.
    #[inline]
    pub fn work(&mut self, mean_ns: u64) -> u64 {
        work(&mut self.times, mean_ns)
    }

    fn draw_kind(&mut self, session: u32) {
        self.seats[session as usize].kind = self.script.kinds.draw(&mut self.kinds);
    }

    /// A session wants a connection for a transaction that was due at `started`; false: it waits for one.
    fn set_out(&mut self, now: u64, session: u32, started: u64) -> bool {
        let seat = &mut self.seats[session as usize];
        seat.started = started;
        seat.serial += 1;
        seat.step = self.script.kinds.of(seat.kind).steps.start;
        seat.spent = Spent::from(started);
        seat.spent.on(now, Stretch::Unsent);
        self.connections.enter(now, session)
    }

    /// A session has made a statement for a server at `ready`, if that is known; returns when it comes there.
    fn send(&mut self, now: u64, ready: Option<u64>, session: u32, to: usize) -> u64 {
        let bytes = self.step(session).bytes / 2;
        let from = session as usize % self.machines.len();
        let (cores, link) = &mut self.machines[from];
        let ready = ready.unwrap_or_else(|| cores.serve(now, work(&mut self.times, self.cpu_ns)));
        let left = link.send(now, ready, bytes);
        self.spend(left, session, Stretch::Client);
        left + self.paths.delay(from, to)
    }

    /// Whether the statement behind a session's came with it.
    fn goes_on(&self, session: u32) -> bool {
        let seat = &self.seats[session as usize];
        let next = seat.step + 1;
        let more = next < self.script.kinds.of(seat.kind).steps.end;
        more && self.script.steps[next as usize].inside
    }

    /// An answer has left a server; returns when its session has it.
    fn receive(&mut self, left: u64, session: u32, from: usize) -> u64 {
        let to = session as usize % self.machines.len();
        let there = left + self.paths.delay(from, to);
        self.spend(there, session, Stretch::Network);
        self.spend(there + self.overhead_ns, session, Stretch::Overhead);
        there + self.overhead_ns
    }

    /// Another session takes the place of one.
    fn replace(&mut self, session: u32) -> u32 {
        self.seats.push(Seat {
            kind: self.seats[session as usize].kind,
            ..Seat::of(self.first_of(session))
        });
        self.seats.len() as u32 - 1
    }

    fn reset(&mut self, now: u64) {
        for (cores, link) in &mut self.machines {
            cores.reset();
            link.reset();
        }
        self.connections.reset(now);
    }
}

/// A SQL database and its sessions.
pub trait Sessions: Model<Event: From<SqlEvent>> {
    /// Whether a session that does not pause begins its next transaction at once, and not by an event behind others that
    /// are due.
    const BEGINS_AT_ONCE: bool = true;

    /// The clients.
    fn clients(&mut self) -> &mut Clients;

    /// The server of a session: its number and machine.
    fn server(&mut self, session: u32) -> (usize, &mut Machine);

    /// The database's own part of a session begins a transaction. The session may be one that has taken another's place.
    fn set_out_own(&mut self, _session: u32) {}

    /// The server goes for the rows of a session's statement.
    fn planned(&mut self, now: u64, session: u32);

    /// Starts the counts of the servers again at zero.
    fn reset(&mut self, now: u64);

    /// The timetable; None: nothing breaks.
    fn outage(&mut self) -> Option<&mut Outage> {
        None
    }

    /// Looks at the timetable.
    fn look_at_faults(&mut self, _now: u64) {}

    /// Which server takes statements, and whether it is up.
    fn primary(&self) -> (usize, bool) {
        (0, true)
    }

    /// Whether some server is away.
    fn is_degraded(&self) -> bool {
        false
    }

    /// Schedules an event.
    #[inline]
    fn schedule(&mut self, at: u64, event: SqlEvent) {
        let event: Self::Event = event.into();
        self.course().queue.push(at, event);
    }

    /// Schedules the end of the warm-up and the first look at the timetable.
    fn schedule_first(&mut self) {
        self.course().schedule_measure(SqlEvent::Measure.into());
        if let Some(at) = self.outage().and_then(|outage| outage.begins()) {
            self.schedule(at, SqlEvent::Faults);
        }
    }

    /// Schedules the first transactions.
    fn begin_sessions(&mut self) {
        let clients = self.clients();
        let all = 0..clients.seats.len() as u32;
        if matches!(clients.load, Load::Open { .. }) {
            clients.idle = all.rev().collect();
            return self.schedule(0, SqlEvent::Offer);
        }
        for session in all {
            let clients = self.clients();
            let kinds = &clients.script.kinds;
            let (kind, at) = kinds.draw_first(&mut clients.kinds, &mut clients.people);
            clients.seats[session as usize].kind = kind;
            self.schedule(at, SqlEvent::Begin(session));
        }
    }

    /// Lets an event happen.
    #[inline]
    fn handle_sql(&mut self, now: u64, event: SqlEvent) {
        match event {
            SqlEvent::Begin(session) => match self.clients().load {
                Load::Closed { .. } => self.issue(now, session),
                Load::Open { .. } => self.take_next(now, session),
            },
            SqlEvent::Arrive(session) | SqlEvent::Plan(session) | SqlEvent::Done(session)
                if self.clients().is_over(session) => {}
            SqlEvent::Arrive(session) => self.arrive(now, session),
            SqlEvent::Plan(session) => self.planned(now, session),
            SqlEvent::Done(session) => self.done(now, session),
            SqlEvent::Offer => self.offer(now),
            SqlEvent::Measure => {
                let already = self.course().issued;
                self.course().measure(now, already);
                self.clients().reset(now);
                self.reset(now);
            }
            SqlEvent::Faults => {
                self.look_at_faults(now);
                self.schedule(now + LOOK_NS, SqlEvent::Faults);
            }
        }
    }

    /// A transaction of an open loop is due.
    fn offer(&mut self, now: u64) {
        let course = self.course();
        course.issued += 1;
        course.recorder.started(now);
        match self.clients().idle.pop() {
            Some(session) => {
                self.clients().draw_kind(session);
                self.set_out(now, session, now);
            }
            None => self.clients().unsent.push_back(now),
        }
        if !self.course().has_all() {
            let clients = self.clients();
            clients.next_offer += distance(&clients.load, &mut clients.arrivals);
            let at = clients.next_offer;
            self.schedule(at, SqlEvent::Offer);
        }
    }

    /// A session of a closed loop begins its transaction, unless enough are issued.
    fn issue(&mut self, now: u64, session: u32) {
        let course = self.course();
        if !course.has_all() {
            course.issued += 1;
            course.recorder.started(now);
            self.set_out(now, session, now);
        }
    }

    /// A session wants a connection for a transaction that was due at `started`.
    fn set_out(&mut self, now: u64, session: u32, started: u64) {
        self.set_out_own(session);
        if self.clients().set_out(now, session, started) {
            self.send(now, session);
        }
    }

    /// A session sends its statement.
    fn send(&mut self, now: u64, session: u32) {
        if !self.can_send(now, session) {
            return;
        }
        let clients = self.clients();
        clients.spend(now, session, Stretch::Slots);
        let seat = &mut clients.seats[session as usize];
        (seat.asked, seat.standing) = (now, Standing::Busy);
        if clients.step(session).inside {
            return self.arrive(now, session);
        }
        let to = self.server(session).0;
        let clients = self.clients();
        let (on_server, cpu_ns) = (clients.on_server, clients.cpu_ns);
        let ready = on_server.then(|| self.serve(now, session, cpu_ns));
        let at = self.clients().send(now, ready, session, to);
        self.schedule(at, SqlEvent::Arrive(session));
    }

    /// Whether a session's statement reaches a server; if not, it has failed or waits in vain.
    #[inline]
    fn can_send(&mut self, now: u64, session: u32) -> bool {
        let (primary, is_up) = self.primary();
        let serial = self.clients().seats[session as usize].serial;
        let Some(outage) = self.outage() else {
            return true;
        };
        if !outage.connects(now, primary, is_up) {
            self.fail(now, session);
            return false;
        }
        outage.sent(now, session, serial);
        let reaches = is_up && outage.is_theirs(primary);
        if !reaches {
            // Theirs has vanished, and nobody has noticed.
            self.clients().seats[session as usize].standing = Standing::Lost;
        }
        reaches
    }

    /// A session's server works for so long, on average, in nanoseconds; returns when it is done.
    #[inline]
    fn serve(&mut self, now: u64, session: u32, cpu_ns: u64) -> u64 {
        let span = self.clients().work(cpu_ns);
        self.server(session).1.cores.serve(now, span)
    }

    /// A server takes a statement: receives, plans, executes and answers it, all in one piece.
    fn arrive(&mut self, now: u64, session: u32) {
        let clients = self.clients();
        clients.spend(now, session, Stretch::Network);
        let step = clients.step(session);
        let messages = if step.inside { 0 } else { 2 };
        let cpu_ns = step.cpu_ns + messages * clients.tls_ns;
        let at = self.serve(now, session, cpu_ns);
        self.schedule(at, SqlEvent::Plan(session));
    }

    /// A session has waited since then for an I/O, which had passed all limits at `passed`.
    fn waited(&mut self, now: u64, session: u32, since: u64, passed: u64) {
        self.course().recorder.waited_for_disk(now - since);
        let clients = self.clients();
        clients.spend(passed.clamp(since, now), session, Stretch::Limits);
        clients.spend(now, session, Stretch::Disk);
    }

    /// A session has waited for the log: until the sync that it shares began, and for that.
    fn waited_for_log(&mut self, now: u64, session: u32, began: u64) {
        let mark = self.clients().mark(session);
        self.course().recorder.waited_for_disk(now - mark);
        let clients = self.clients();
        clients.spend(began.clamp(mark, now), session, Stretch::Held);
        clients.spend(now, session, Stretch::Disk);
    }

    /// A server answers: it can from `ready` on.
    fn reply(&mut self, now: u64, ready: u64, session: u32) {
        let clients = self.clients();
        let bytes = clients.step(session).bytes / 2;
        // A text of several statements goes on where it is.
        let at = if clients.goes_on(session) {
            ready
        } else {
            let (from, machine) = self.server(session);
            let left = machine.link.send(now, ready, bytes);
            self.clients().receive(left, session, from)
        };
        self.schedule(at, SqlEvent::Done(session));
    }

    /// A session has its answer.
    fn done(&mut self, now: u64, session: u32) {
        let clients = self.clients();
        let name = clients.step(session).name;
        let seat = &mut clients.seats[session as usize];
        if seat.standing == Standing::GivenUp {
            seat.standing = Standing::Dead;
            return;
        }
        seat.step += 1;
        let (kind, step, sent) = (seat.kind, seat.step, seat.asked);
        let end = clients.script.kinds.of(kind).steps.end;
        if let Some(name) = name {
            let recorder = &mut self.course().recorder;
            recorder.note(name as usize, now - sent);
        }
        if step < end {
            return self.send(now, session);
        }
        self.end_transaction(now, session);
    }

    /// A session's transaction has succeeded, and it goes on to the next.
    fn end_transaction(&mut self, now: u64, session: u32) {
        let clients = self.clients();
        let seat = &mut clients.seats[session as usize];
        seat.standing = Standing::Free;
        let Seat {
            kind,
            started,
            spent,
            ..
        } = *seat;
        assert_eq!(
            spent.split.total(),
            now - started,
            "a transaction spends its time somewhere, and once"
        );
        let think_ns = clients.script.kinds.of(kind).think_ns;
        let recorder = &mut self.course().recorder;
        recorder.split(kind as usize, &spent.split);
        recorder.ended(now, kind as usize, started);
        let is_degraded = self.is_degraded();
        if let Some(outage) = self.outage() {
            outage.story.succeeded(now, started, is_degraded);
        }
        if let Some(next) = self.clients().connections.leave(now) {
            self.send(now, next);
        }
        let clients = self.clients();
        if matches!(clients.load, Load::Open { .. }) {
            return self.take_next(now, session);
        }
        let kinds = &clients.script.kinds;
        let (kind, pause) = kinds.draw_next(think_ns, &mut clients.kinds, &mut clients.people);
        clients.seats[session as usize].kind = kind;
        if pause == 0 && Self::BEGINS_AT_ONCE {
            return self.issue(now, session);
        }
        self.schedule(now + pause, SqlEvent::Begin(session));
    }

    /// A session of an open loop has nothing to do: it takes what has waited longest.
    fn take_next(&mut self, now: u64, session: u32) {
        let clients = self.clients();
        let Some(due) = clients.unsent.pop_front() else {
            return clients.idle.push(session);
        };
        clients.draw_kind(session);
        let started = clients.load.counted_from(due, now);
        self.set_out(now, session, started);
    }

    /// A session's transaction has failed for its client, who tries again after a pause. What the server still does for it
    /// goes on without it, under another number.
    fn fail(&mut self, now: u64, session: u32) {
        if let Some(outage) = self.outage() {
            outage.story.failed(now);
        }
        let clients = self.clients();
        let seat = &mut clients.seats[session as usize];
        let started = seat.started;
        let pause = pause_ns(&clients.load);
        let standing = std::mem::take(&mut seat.standing);
        let next = if standing == Standing::Free {
            session
        } else {
            seat.standing = match standing {
                Standing::Busy => Standing::GivenUp,
                _ => Standing::Dead,
            };
            clients.replace(session)
        };
        self.course().recorder.failed(now, started);
        if let Some(next) = self.clients().connections.leave(now) {
            self.send(now, next);
        }
        self.schedule(now + pause, SqlEvent::Begin(next));
    }

    /// The server's end of every connection is gone; `noticed`: and its clients are told.
    fn close_connections(&mut self, now: u64, noticed: bool) {
        // Those that take the place of others come behind them, and have nothing to lose yet.
        let mut session = 0;
        while let Some(seat) = self.clients().seats.get_mut(session as usize) {
            match seat.standing {
                Standing::GivenUp => seat.standing = Standing::Dead,
                Standing::Busy => {
                    seat.standing = Standing::Lost;
                    if noticed {
                        self.fail(now, session);
                    }
                }
                Standing::Lost if noticed => self.fail(now, session),
                _ => {}
            }
            session += 1;
        }
    }

    /// Gives up the statements whose time is over.
    fn expire(&mut self, now: u64) {
        let (primary, serves) = self.primary();
        while let Some(outage) = self.outage()
            && let Some((session, serial)) = outage.expired(now)
        {
            let is_theirs = outage.is_theirs(primary);
            let seat = self.clients().seats[session as usize];
            let vanished = seat.standing == Standing::Lost;
            if seat.serial != serial || !(vanished || seat.standing == Standing::Busy) {
                continue;
            }
            if vanished
                && !(is_theirs && serves)
                && let Some(outage) = self.outage()
            {
                outage.disconnect(now);
            }
            self.fail(now, session);
        }
    }
}
