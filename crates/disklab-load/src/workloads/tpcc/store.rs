//! What of TPC-C hangs on a protocol and its SQL.

use std::future::Future;

use bytes::BytesMut;

use super::inputs::{Delivery, NewOrder, OrderStatus, Payment, StockLevel};
use super::rows::Form;
use crate::clients::pool::{Connect, Pool};
use crate::error::LoadError;
use crate::job::{Job, Stage};
use crate::workloads::{Failure, MISSING_ROW};

/// What a transaction is asked to do: the same in each of its attempts.
pub enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

/// How a transaction ended well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effect {
    /// An item of a new order was not there, and all of it was undone. **Source:** clause 2.4.2.3.
    pub rolled_back: bool,
    /// Districts of a delivery without an order to deliver.
    pub skipped_districts: u32,
}

/// A row of an answer as text; None: NULL.
pub type TextRow = Vec<Option<String>>;

/// A database that keeps the nine tables.
pub trait Store: Connect + Sized {
    /// Where it is, and who comes to it.
    type Target;

    /// How a row of the load is written.
    const FORM: Form;

    /// The statements that make the tables, and those that finish a load, in this order; `$seed` stands for the load's seed.
    fn texts() -> (String, [&'static str; 4]);

    /// Connects `count` slots; those of a run are ready for transactions.
    fn open(
        job: &Job,
        target: &Self::Target,
        stage: Stage,
        count: usize,
    ) -> impl Future<Output = Result<Pool<Self>, LoadError>>;

    /// Does a text of statements; the rows of all answers.
    fn ask(
        session: &mut Self::Connection,
        text: &str,
    ) -> impl Future<Output = Result<Vec<TextRow>, Failure>>;

    /// Writes rows to a table; `next` appends some of them, and says whether there are more.
    fn fill(
        session: &mut Self::Connection,
        table: &str,
        next: impl FnMut(&mut BytesMut) -> bool,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Tries a transaction once. After a failure it may be open still.
    fn attempt(
        session: &mut Self::Connection,
        input: &Input,
    ) -> impl Future<Output = Result<Effect, Failure>>;
}

/// A row that must be there is not.
pub fn missing(table: &str) -> Failure {
    Failure {
        kind: MISSING_ROW.into(),
        text: format!("a row of {table} is missing"),
    }
}
