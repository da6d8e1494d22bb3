//! TPC-C in PostgreSQL's SQL, one file for each transaction.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod statements;
mod stock_level;

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::{CopyInSink, Error, Row, SimpleQueryMessage};

use super::rows::Form;
use super::store::{Effect, Input, Store, TextRow, missing};
use super::tables::{SCHEMA, TABLES};
use crate::clients::pool::Pool;
use crate::clients::postgres::{Driver, Session, failure};
use crate::error::LoadError;
use crate::job::{Job, Postgresql, Stage};
use crate::workloads::Failure;
pub use statements::Texts as Statements;
use statements::Texts;

/// A session sees these tables without their schema's name.
const SEARCH_PATH: (&str, &str) = ("search_path", SCHEMA);

/// The level of isolation of all sessions. Higher ones of PostgreSQL undo transactions that meet each other instead of
/// letting the second one wait, and it would have to be tried again.
const ISOLATION: (&str, &str) = ("default_transaction_isolation", "read committed");

/// What is sent at once.
const MESSAGE_BYTES: usize = 64 << 10;

impl Store for Driver<Texts> {
    type Target = Postgresql;

    const FORM: Form = Form::Binary;

    fn texts() -> (String, [&'static str; 4]) {
        let make = format!(
            "DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA};{TABLES}"
        );
        // A planner without statistics joins by reading whole tables.
        let finish = [
            "CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
            "CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
            "ANALYZE item, warehouse, district, customer, history, orders, new_order, order_line, stock",
            "INSERT INTO loaded SELECT count(*), $seed, now() FROM warehouse",
        ];
        (make, finish)
    }

    async fn open(
        job: &Job,
        target: &Postgresql,
        stage: Stage,
        count: usize,
    ) -> Result<Pool<Self>, LoadError> {
        Pool::open(
            &job.share(),
            target,
            &[SEARCH_PATH, ISOLATION],
            Texts(stage),
            count,
        )
        .await
    }

    async fn ask(session: &mut Self::Connection, text: &str) -> Result<Vec<TextRow>, Failure> {
        let answer = session.client.simple_query(text).await;
        let messages = answer.map_err(|error| failure(&error))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let columns = 0..row.len();
                Some(columns.map(|at| row.get(at).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    async fn fill(
        session: &mut Self::Connection,
        table: &str,
        next: impl FnMut(&mut BytesMut) -> bool,
    ) -> Result<(), Failure> {
        let copied = copy(session, table, next).await;
        copied.map_err(|error| failure(&error))
    }

    async fn attempt(session: &mut Self::Connection, input: &Input) -> Result<Effect, Failure> {
        let Session {
            client, prepared, ..
        } = session;
        let prepared = prepared.as_ref().expect("a run's statements are prepared");
        let mut effect = Effect::default();
        match input {
            Input::NewOrder(order) => {
                effect.rolled_back = new_order::perform(client, prepared, order).await?;
            }
            Input::Payment(paid) => payment::perform(client, prepared, paid).await?,
            Input::OrderStatus(asked) => order_status::perform(client, prepared, asked).await?,
            Input::Delivery(asked) => {
                effect.skipped_districts = delivery::perform(client, prepared, asked).await?;
            }
            Input::StockLevel(asked) => stock_level::perform(client, prepared, asked).await?,
        }
        Ok(effect)
    }
}

async fn copy<P>(
    session: &Session<P>,
    table: &str,
    mut next: impl FnMut(&mut BytesMut) -> bool,
) -> Result<(), Error> {
    let text = format!("COPY {table} FROM STDIN (FORMAT binary)");
    let sink: CopyInSink<Bytes> = session.client.copy_in(&text).await?;
    let mut sink = pin!(sink);
    let mut out = BytesMut::with_capacity(2 * MESSAGE_BYTES);
    // Signature, flags, length of the header's extension. **Source:** PostgreSQL 15's manual, COPY.
    out.put_slice(b"PGCOPY\n\xff\r\n\0");
    out.put_u64(0);
    while next(&mut out) {
        if out.len() >= MESSAGE_BYTES {
            sink.send(out.split().freeze()).await?;
            out.reserve(2 * MESSAGE_BYTES);
        }
    }
    out.put_i16(-1);
    sink.send(out.freeze()).await?;
    sink.as_mut().finish().await.map(drop)
}

/// A number as SQL's integer. All of ours are far below its end.
fn int(number: u32) -> i32 {
    number as i32
}

/// The first of several answers that is a failure: the later ones only say that the transaction was given up.
fn all<const COUNT: usize>(answers: [Result<(), Error>; COUNT]) -> Result<(), Failure> {
    let first = answers.into_iter().find_map(Result::err);
    first.map_or(Ok(()), |error| Err(failure(&error)))
}

/// The rows of an answer.
fn found(answer: Result<Vec<Row>, Error>) -> Result<Vec<Row>, Failure> {
    answer.map_err(|error| failure(&error))
}

/// The row of a table that must be there.
fn one(answer: Result<Option<Row>, Error>, table: &str) -> Result<Row, Failure> {
    let row = answer.map_err(|error| failure(&error))?;
    row.ok_or_else(|| missing(table))
}
