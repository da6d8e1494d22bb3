//! TPC-C in MariaDB's SQL: what needs no earlier answer is one text of several statements, of which the server does none
//! after one that failed.

use std::collections::HashMap;
use std::fmt::Write;

use bytes::{BufMut, BytesMut};

use super::inputs::{
    Customer, Delivery, Line, NewOrder, OrderStatus, Payment, StockLevel, UNUSED_ITEM,
};
use super::rows::Form;
use super::scale::DISTRICTS;
use super::store::{Effect, Input, Store, TextRow, missing};
use super::tables::{SCHEMA, TABLES};
use crate::clients::mysql::Mysql;
use crate::clients::mysql::texts::{Answer, Texts};
use crate::clients::pool::{Connect, Pool};
use crate::error::LoadError;
use crate::job::{Job, Stage};
use crate::workloads::Failure;

/// Rows of one statement of the load: far below `max_allowed_packet`.
const STATEMENT_BYTES: usize = 256 << 10;

/// The customer in the middle of those with a last name, as `@c`: place n / 2, rounded up. **Source:** clause 2.5.2.2.
fn customer(out: &mut String, warehouse: u32, district: u32, customer: &Customer) {
    let _ = match customer {
        Customer::Number(number) => write!(out, "SET @c = {number};"),
        Customer::LastName(name) => write!(
            out,
            "SET @c = (SELECT c_id FROM (SELECT c_id, row_number() OVER (ORDER BY c_first) AS place,
               count(*) OVER () AS named FROM customer
               WHERE c_w_id = {warehouse} AND c_d_id = {district} AND c_last = '{name}') AS those
             WHERE place = (named + 1) DIV 2);"
        ),
    };
}

impl Store for Texts {
    type Target = Mysql;

    const FORM: Form = Form::Text;

    fn texts() -> (String, [&'static str; 4]) {
        // Letters take a byte each, and are ordered as bytes.
        let make = format!(
            "DROP SCHEMA IF EXISTS {SCHEMA}; CREATE SCHEMA {SCHEMA} CHARACTER SET latin1 COLLATE latin1_bin;
             USE {SCHEMA};{}",
            TABLES.replace("timestamptz", "datetime(6)")
        );
        let finish = [
            "USE disklab_tpcc; CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
            "USE disklab_tpcc; CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
            "USE disklab_tpcc; ANALYZE TABLE item, warehouse, district, customer, history, orders, new_order,
               order_line, stock",
            "USE disklab_tpcc; INSERT INTO loaded SELECT count(*), $seed, now(6) FROM warehouse",
        ];
        (make, finish)
    }

    async fn open(
        job: &Job,
        target: &Mysql,
        stage: Stage,
        count: usize,
    ) -> Result<Pool<Self>, LoadError> {
        let mut session = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned();
        if stage != Stage::Load {
            let _ = write!(session, "; USE {SCHEMA}");
        }
        Texts::connected(&job.share(), target, &session, count).await
    }

    async fn ask(session: &mut Self::Connection, text: &str) -> Result<Vec<TextRow>, Failure> {
        let answers = session.ask(text).await?;
        Ok(answers.into_iter().flat_map(|answer| answer.rows).collect())
    }

    async fn fill(
        session: &mut Self::Connection,
        table: &str,
        mut next: impl FnMut(&mut BytesMut) -> bool,
    ) -> Result<(), Failure> {
        let mut rows = BytesMut::with_capacity(2 * STATEMENT_BYTES);
        session.ask("BEGIN").await?;
        loop {
            let more = next(&mut rows);
            if rows.len() < STATEMENT_BYTES && more {
                continue;
            }
            if !rows.is_empty() {
                Form::Text.end(&mut rows);
                let mut text = BytesMut::with_capacity(rows.len() + 64);
                text.put_slice(format!("INSERT INTO {SCHEMA}.{table} VALUES ").as_bytes());
                text.put_slice(&rows);
                rows.clear();
                session.ask(&String::from_utf8_lossy(&text)).await?;
            }
            if !more {
                return session.ask("COMMIT").await.map(drop);
            }
        }
    }

    async fn attempt(session: &mut Self::Connection, input: &Input) -> Result<Effect, Failure> {
        match input {
            Input::NewOrder(order) => new_order(session, order).await,
            Input::Payment(paid) => payment(session, paid).await,
            Input::OrderStatus(asked) => order_status(session, asked).await,
            Input::Delivery(asked) => delivery(session, asked).await,
            Input::StockLevel(asked) => stock_level(session, asked).await,
        }
    }
}

type Session = <Texts as Connect>::Connection;

/// Takes the answers of a text in their order.
struct Answers(std::vec::IntoIter<Answer>);

impl Answers {
    async fn of(session: &mut Session, text: &str) -> Result<Answers, Failure> {
        Ok(Answers(session.ask(text).await?.into_iter()))
    }

    fn next(&mut self) -> Answer {
        self.0.next().expect("each statement has an answer")
    }

    /// Of a change that must find its row.
    fn changed(&mut self, table: &str) -> Result<(), Failure> {
        match self.next().changed {
            0 => Err(missing(table)),
            _ => Ok(()),
        }
    }

    /// A column of the first row, which must be there.
    fn value(&mut self, column: usize, table: &str) -> Result<String, Failure> {
        let row = self.next().rows.into_iter().next();
        let value = row.and_then(|mut row| row.get_mut(column).and_then(Option::take));
        value.ok_or_else(|| missing(table))
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, Failure> {
    text.parse().map_err(|_| Failure {
        kind: "protocol".into(),
        text: format!("{text} is not a number"),
    })
}

/// **Source:** clause 2.4.2.2.
async fn new_order(session: &mut Session, order: &NewOrder) -> Result<Effect, Failure> {
    let NewOrder {
        warehouse: w,
        district: d,
        customer: c,
        lines,
    } = order;
    let used: Vec<&Line> = lines.iter().filter(|l| l.item != UNUSED_ITEM).collect();
    let items: Vec<String> = lines.iter().map(|line| line.item.to_string()).collect();
    let mut text = format!(
        "BEGIN;
         SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = {w} AND d_id = {d} FOR UPDATE;
         UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = {w} AND d_id = {d};
         SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse
           WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c} AND w_id = {w};
         SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id IN ({})",
        items.join(", ")
    );
    for Line {
        item,
        supply_warehouse,
        quantity,
    } in &used
    {
        let stock = format!("s_w_id = {supply_warehouse} AND s_i_id = {item}");
        let remote = u8::from(supply_warehouse != w);
        let _ = write!(
            text,
            ";UPDATE stock SET s_quantity = IF(s_quantity - {quantity} >= 10, s_quantity - {quantity},
               s_quantity - {quantity} + 91), s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1,
               s_remote_cnt = s_remote_cnt + {remote} WHERE {stock};
             SELECT s_dist_{d:02}, s_quantity, s_data FROM stock WHERE {stock}"
        );
    }
    let mut answers = Answers::of(session, &text).await?;
    answers.next();
    let id: u32 = number(&answers.value(0, "district")?)?;
    answers.changed("district")?;
    answers.value(0, "customer")?;
    // Prices in cents, as the table has two places.
    let mut prices: HashMap<u32, u64> = HashMap::new();
    for row in answers.next().rows {
        let [Some(item), Some(price), ..] = &row[..] else {
            return Err(missing("item"));
        };
        prices.insert(number(item)?, number(&price.replace('.', ""))?);
    }
    let complete = lines.iter().all(|line| prices.contains_key(&line.item));
    let all_local = u8::from(used.iter().all(|line| line.supply_warehouse == *w));
    let mut written = Vec::with_capacity(used.len());
    for (at, line) in (1..).zip(&used) {
        answers.changed("stock")?;
        let info = answers.value(0, "stock")?;
        let price = prices.get(&line.item).ok_or_else(|| missing("item"))?;
        let amount = price * u64::from(line.quantity);
        written.push(format!(
            "({w}, {d}, {id}, {at}, {}, {}, {}, {}.{:02}, '{info}')",
            line.item,
            line.supply_warehouse,
            line.quantity,
            amount / 100,
            amount % 100
        ));
    }
    let text = format!(
        "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
           VALUES ({w}, {d}, {id}, {c}, now(6), {}, {all_local});
         INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ({w}, {d}, {id});
         INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
           ol_dist_info) VALUES {}; {}",
        lines.len(),
        written.join(", "),
        if complete { "COMMIT" } else { "ROLLBACK" }
    );
    session.ask(&text).await?;
    Ok(Effect {
        rolled_back: !complete,
        ..Effect::default()
    })
}

/// **Source:** clause 2.5.2.2.
async fn payment(session: &mut Session, paid: &Payment) -> Result<Effect, Failure> {
    let Payment {
        warehouse: w,
        district: d,
        customer_warehouse: cw,
        customer_district: cd,
        customer: who,
        amount,
    } = paid;
    let mut text = format!(
        "BEGIN;
         UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {w};
         SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = {w};
         UPDATE district SET d_ytd = d_ytd + {amount} WHERE d_w_id = {w} AND d_id = {d};
         SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
           WHERE d_w_id = {w} AND d_id = {d};"
    );
    customer(&mut text, *cw, *cd, who);
    let row = format!("c_w_id = {cw} AND c_d_id = {cd} AND c_id = @c");
    let _ = write!(
        text,
        "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount},
           c_payment_cnt = c_payment_cnt + 1, c_data = IF(c_credit = 'BC', left(concat(
             concat_ws(' ', c_id, c_d_id, c_w_id, {d}, {w}, {amount}), '|', c_data), 500), c_data) WHERE {row};
         SELECT c_id, c_d_id, c_w_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone,
           c_since, c_credit, c_credit_lim, c_discount, c_balance, left(c_data, 200) FROM customer WHERE {row};
         INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
           SELECT @c, {cd}, {cw}, {d}, {w}, now(6), {amount}, concat(w_name, '    ', d_name)
           FROM warehouse, district WHERE w_id = {w} AND d_w_id = {w} AND d_id = {d};
         COMMIT"
    );
    let mut answers = Answers::of(session, &text).await?;
    answers.next();
    for table in ["warehouse", "district"] {
        answers.changed(table)?;
        answers.value(0, table)?;
    }
    answers.next();
    answers.changed("customer")?;
    answers.value(0, "customer")?;
    answers.changed("history")?;
    Ok(Effect::default())
}

/// **Source:** clause 2.6.2.2.
async fn order_status(session: &mut Session, asked: &OrderStatus) -> Result<Effect, Failure> {
    let OrderStatus {
        warehouse: w,
        district: d,
        customer: who,
    } = asked;
    let mut text = "BEGIN;".to_owned();
    customer(&mut text, *w, *d, who);
    let _ = write!(
        text,
        "SELECT c_id, c_balance, c_first, c_middle, c_last FROM customer
           WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = @c"
    );
    let mut answers = Answers::of(session, &text).await?;
    answers.next();
    answers.next();
    let customer = answers.value(0, "customer")?;
    let text = format!(
        "SELECT o_id, o_entry_d, o_carrier_id, o_ol_cnt, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d
           FROM (SELECT * FROM orders WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {customer}
             ORDER BY o_id DESC LIMIT 1) AS latest
           JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id; COMMIT"
    );
    let lines = Answers::of(session, &text).await?.next().rows;
    let count = lines.first().and_then(|line| line[3].as_deref());
    // Each customer has had an order since the load.
    match count.map(number::<usize>) {
        Some(Ok(count)) if count == lines.len() => Ok(Effect::default()),
        _ => Err(missing("order_line")),
    }
}

/// The oldest order of each district. A second delivery of the warehouse waits for the first at the first district, and
/// finds the next order of each. **Source:** clause 2.7.4.2.
async fn delivery(session: &mut Session, asked: &Delivery) -> Result<Effect, Failure> {
    let Delivery {
        warehouse: w,
        carrier,
    } = asked;
    let mut text = "BEGIN".to_owned();
    for d in 1..=DISTRICTS {
        let _ = write!(
            text,
            ";SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
        );
    }
    let mut answers = Answers::of(session, &text).await?;
    answers.next();
    let mut text = String::new();
    let mut delivered = 0;
    for d in 1..=DISTRICTS {
        let Ok(o) = answers.value(0, "new_order") else {
            continue;
        };
        delivered += 1;
        let order = format!("o_w_id = {w} AND o_d_id = {d} AND o_id = {o}");
        let lines = format!("ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {o}");
        let _ = write!(
            text,
            "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {o};
             UPDATE orders SET o_carrier_id = {carrier} WHERE {order};
             UPDATE order_line SET ol_delivery_d = now(6) WHERE {lines};
             UPDATE customer SET c_balance = c_balance + (SELECT sum(ol_amount) FROM order_line WHERE {lines}),
               c_delivery_cnt = c_delivery_cnt + 1
               WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = (SELECT o_c_id FROM orders WHERE {order});"
        );
    }
    text.push_str("COMMIT");
    let mut answers = Answers::of(session, &text).await?;
    for _ in 0..delivered {
        for table in ["new_order", "orders", "order_line", "customer"] {
            answers.changed(table)?;
        }
    }
    Ok(Effect {
        skipped_districts: DISTRICTS - delivered,
        ..Effect::default()
    })
}

/// **Source:** clause 2.8.2.2; two statements, as in the standard's own program (appendix A.5).
async fn stock_level(session: &mut Session, asked: &StockLevel) -> Result<Effect, Failure> {
    let StockLevel {
        warehouse: w,
        district: d,
        threshold,
    } = asked;
    let text = format!("BEGIN; SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}");
    let mut answers = Answers::of(session, &text).await?;
    answers.next();
    let end: u32 = number(&answers.value(0, "district")?)?;
    let first = end.saturating_sub(20);
    let text = format!(
        "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
           WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id >= {first} AND ol_o_id < {end} AND s_quantity < {threshold};
         COMMIT"
    );
    Answers::of(session, &text).await?.value(0, "stock")?;
    Ok(Effect::default())
}
