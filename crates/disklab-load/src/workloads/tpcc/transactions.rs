//! The run: terminals that share the connections.

use std::cell::{Cell, RefCell};

use disklab_units::Duration;
use disklab_units::random::Stream;

use super::inputs::{Customer, Inputs};
use super::outcome::{Counts, Said};
use super::store::{Effect, Input, Store};
use super::tables;
use super::terminals::{Kind, NAMES, Terminal, Terminals};
use crate::clients::pool::Pool;
use crate::error::LoadError;
use crate::job::{Job, Stage, Tpcc};
use crate::workloads::{Failure, Outcome, Workload};

/// How often a transaction is begun that another one undid: a bound for what never comes through. PostgreSQL at its
/// level of isolation undoes none; YugabyteDB undoes the loser of two that meet.
const MOST_ATTEMPTS: u32 = 10;

/// What begins the kind of a failure that undid a transaction: serialization failures, of which MariaDB's deadlocks have
/// the SQLSTATE too, and deadlocks.
const UNDONE: [&[&str]; 2] = [&["40001", "1213"], &["40P01"]];

/// The stage `run`.
pub struct Transactions<S: Store> {
    sessions: Pool<S>,
    terminals: RefCell<Terminals>,
    inputs: RefCell<Inputs>,
    /// What each terminal did last, or does now.
    doing: RefCell<Vec<Kind>>,
    counts: Cell<Counts>,
    keying_and_thinking: bool,
    said: Said,
}

/// A transaction at a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    kind: Kind,
    at: Terminal,
}

impl<S: Store> Transactions<S> {
    /// Connects, and finds the tables of a load.
    pub async fn open(
        job: &Job,
        target: &S::Target,
        asked: &Tpcc,
    ) -> Result<Transactions<S>, LoadError> {
        let connections = job.slots();
        let loaded = tables::find::<S>(job, target, asked).await?;
        let count = asked.terminals(connections);
        let constants = loaded.constants.of_run(job.seed);
        let inputs = Stream::new(job.seed, "tpcc inputs");
        Ok(Transactions {
            sessions: S::open(job, target, Stage::Run, connections as usize).await?,
            terminals: Terminals::new(count, asked.warehouses, job.seed).into(),
            inputs: Inputs::new(asked.warehouses, constants, inputs).into(),
            doing: vec![Kind::NewOrder; count as usize].into(),
            counts: Cell::default(),
            keying_and_thinking: asked.keying_and_thinking,
            said: Said::new(asked, connections),
        })
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    fn draw_input(&self, turn: Turn) -> Input {
        let Terminal {
            warehouse,
            district,
            ..
        } = turn.at;
        let mut inputs = self.inputs.borrow_mut();
        match turn.kind {
            Kind::NewOrder => Input::NewOrder(inputs.new_order(warehouse)),
            Kind::Payment => Input::Payment(inputs.payment(warehouse)),
            Kind::OrderStatus => Input::OrderStatus(inputs.order_status(warehouse)),
            Kind::Delivery => Input::Delivery(inputs.delivery(warehouse)),
            Kind::StockLevel => Input::StockLevel(inputs.stock_level(warehouse, district)),
        }
    }

    /// Does a transaction, again where another one undid it.
    async fn transact(&self, session: &mut S::Connection, input: &Input) -> Result<(), Failure> {
        let mut attempt = 1;
        loop {
            let failure = match S::attempt(session, input).await {
                Ok(effect) => {
                    self.count(|counts| add(counts, input, effect));
                    return Ok(());
                }
                Err(failure) => failure,
            };
            // Nothing of it stays, and the connection is ready for the next one. Where it is lost the server sees to that.
            let _ = S::ask(session, "ROLLBACK").await;
            let undone =
                UNDONE.map(|codes| codes.iter().any(|code| failure.kind.starts_with(code)));
            if undone == [false, false] || attempt == MOST_ATTEMPTS {
                return Err(failure);
            }
            attempt += 1;
            self.count(|counts| {
                counts.serialization_retries += u64::from(undone[0]);
                counts.deadlock_retries += u64::from(undone[1]);
            });
        }
    }
}

/// Counts a transaction that has ended well.
fn add(counts: &mut Counts, input: &Input, effect: Effect) {
    match input {
        Input::NewOrder(order) => {
            let lines = order.lines.iter();
            let remote = lines.filter(|line| line.supply_warehouse != order.warehouse);
            counts.remote_lines += remote.count() as u64;
            counts.rolled_back += u64::from(effect.rolled_back);
            counts.lines += order.lines.len() as u64;
        }
        Input::Payment(paid) => {
            counts.remote_payments += u64::from(paid.customer_warehouse != paid.warehouse);
            counts.by_last_name += by_last_name(&paid.customer);
        }
        Input::OrderStatus(asked) => counts.by_last_name += by_last_name(&asked.customer),
        Input::Delivery(_) => {
            counts.deliveries += 1;
            counts.skipped_deliveries += u64::from(effect.skipped_districts);
        }
        Input::StockLevel(_) => {}
    }
}

fn by_last_name(customer: &Customer) -> u64 {
    u64::from(matches!(customer, Customer::LastName(_)))
}

impl<S: Store> Workload for Transactions<S> {
    type Step = Turn;

    fn kinds(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn terminals(&self) -> Vec<Duration> {
        if self.keying_and_thinking {
            self.terminals.borrow_mut().first_starts()
        } else {
            Vec::new()
        }
    }

    fn rest(&self, terminal: usize) -> Duration {
        let ended = self.doing.borrow()[terminal];
        self.terminals.borrow_mut().rest(terminal, ended)
    }

    fn draw(&self, who: usize) -> Turn {
        let (kind, at) = self.terminals.borrow_mut().take(who);
        self.doing.borrow_mut()[who] = kind;
        Turn { kind, at }
    }

    fn kind(&self, turn: Turn) -> usize {
        turn.kind as usize
    }

    async fn perform(&self, slot: usize, turn: Turn) -> Result<(), Failure> {
        let input = self.draw_input(turn);
        let work = async |session: &mut S::Connection| self.transact(session, &input).await;
        self.sessions.on(slot, work).await
    }

    fn outcome(&self) -> Option<Outcome> {
        let (said, counts) = (self.said.clone(), self.counts.get());
        Some(Box::new(move |record, elapsed| {
            ("tpcc", said.run(counts, record, elapsed))
        }))
    }
}
