//! The run: terminals that share the connections.

use std::cell::{Cell, RefCell};

use disklab_units::Duration;
use disklab_units::random::Stream;
use tokio_postgres::{Client, Error, Row};

use super::inputs::{Customer, Delivery, Inputs, NewOrder, OrderStatus, Payment, StockLevel};
use super::new_order::Ended;
use super::outcome::{Counts, Said};
use super::statements::{Prepared, Texts};
use super::tables::{self, SEARCH_PATH};
use super::terminals::{Kind, NAMES, Terminal, Terminals};
use super::{delivery, new_order, order_status, payment, stock_level};
use crate::clients::postgres::{Sessions, failure};
use crate::error::LoadError;
use crate::job::{Job, Postgresql, Tpcc};
use crate::workloads::{Failure, MISSING_ROW, Outcome, Workload};

/// The level of isolation of all sessions. Higher ones of PostgreSQL undo transactions that meet each other instead of
/// letting the second one wait, and it would have to be tried again.
const ISOLATION: (&str, &str) = ("default_transaction_isolation", "read committed");

/// How often a transaction is begun that another one undid: a bound for what never comes through. PostgreSQL at this
/// level undoes none; YugabyteDB undoes the loser of two that meet.
const MOST_ATTEMPTS: u32 = 10;

/// The stage `run`.
pub struct Transactions {
    sessions: Sessions<Texts>,
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

/// What a transaction is asked to do: the same in each of its attempts.
enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

impl Transactions {
    /// Connects, and finds the tables of a load.
    pub async fn open(
        job: &Job,
        target: &Postgresql,
        asked: &Tpcc,
    ) -> Result<Transactions, LoadError> {
        let connections = job.slots();
        let loaded = tables::find(job, target, asked).await?;
        let count = asked.terminals(connections);
        let constants = loaded.constants.of_run(job.seed);
        let inputs = Stream::new(job.seed, "tpcc inputs");
        let settings = [SEARCH_PATH, ISOLATION];
        Ok(Transactions {
            sessions: Sessions::open(job, target, &settings, Texts, connections as usize).await?,
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
    async fn transact(
        &self,
        client: &Client,
        prepared: &Prepared,
        input: &Input,
    ) -> Result<(), Failure> {
        let mut attempt = 1;
        loop {
            let Err(failure) = self.attempt(client, prepared, input).await else {
                return Ok(());
            };
            // Nothing of it stays, and the connection is ready for the next one. Where it is lost the server sees to that.
            let _ = client.batch_execute("ROLLBACK").await;
            let undone = [
                failure.kind.starts_with("40001"),
                failure.kind.starts_with("40P01"),
            ];
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

    /// Tries a transaction once; what is counted of it is counted when it has ended well.
    async fn attempt(
        &self,
        client: &Client,
        prepared: &Prepared,
        input: &Input,
    ) -> Result<(), Failure> {
        match input {
            Input::NewOrder(order) => {
                let ended = new_order::perform(client, prepared, order).await?;
                let lines = order.lines.iter();
                let remote = lines
                    .filter(|line| line.supply_warehouse != order.warehouse)
                    .count();
                self.count(|counts| {
                    counts.rolled_back += u64::from(ended == Ended::RolledBack);
                    counts.lines += order.lines.len() as u64;
                    counts.remote_lines += remote as u64;
                });
            }
            Input::Payment(paid) => {
                payment::perform(client, prepared, paid).await?;
                self.count(|counts| {
                    counts.remote_payments += u64::from(paid.customer_warehouse != paid.warehouse);
                    counts.by_last_name += by_last_name(&paid.customer);
                });
            }
            Input::OrderStatus(asked) => {
                order_status::perform(client, prepared, asked).await?;
                self.count(|counts| counts.by_last_name += by_last_name(&asked.customer));
            }
            Input::Delivery(asked) => {
                let skipped = delivery::perform(client, prepared, asked).await?;
                self.count(|counts| {
                    counts.deliveries += 1;
                    counts.skipped_deliveries += u64::from(skipped);
                });
            }
            Input::StockLevel(asked) => stock_level::perform(client, prepared, asked).await?,
        }
        Ok(())
    }
}

fn by_last_name(customer: &Customer) -> u64 {
    u64::from(matches!(customer, Customer::LastName(_)))
}

impl Workload for Transactions {
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
        let work = async |client: &Client, prepared: &Prepared| {
            self.transact(client, prepared, &input).await
        };
        self.sessions.with(slot, work).await
    }

    fn outcome(&self) -> Option<Outcome> {
        let (said, counts) = (self.said.clone(), self.counts.get());
        Some(Box::new(move |record, elapsed| {
            ("tpcc", said.run(counts, record, elapsed))
        }))
    }
}

/// A number as SQL's integer. All of ours are far below its end.
pub(super) fn int(number: u32) -> i32 {
    number as i32
}

/// The first of several answers that is a failure: the later ones only say that the transaction was given up.
pub(super) fn all<const COUNT: usize>(answers: [Result<(), Error>; COUNT]) -> Result<(), Failure> {
    let first = answers.into_iter().find_map(Result::err);
    first.map_or(Ok(()), |error| Err(failure(&error)))
}

/// The rows of an answer.
pub(super) fn found(answer: Result<Vec<Row>, Error>) -> Result<Vec<Row>, Failure> {
    answer.map_err(|error| failure(&error))
}

/// The row of a table that must be there.
pub(super) fn one(answer: Result<Option<Row>, Error>, table: &str) -> Result<Row, Failure> {
    let row = answer.map_err(|error| failure(&error))?;
    row.ok_or_else(|| missing(table))
}

/// A row that must be there is not.
pub(super) fn missing(table: &str) -> Failure {
    Failure {
        kind: MISSING_ROW.into(),
        text: format!("a row of {table} is missing"),
    }
}
