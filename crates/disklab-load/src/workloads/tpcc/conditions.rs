//! The twelve consistency conditions, a statement each that counts what breaks it. **Source:** clause 3.3.2.

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};
use tokio_postgres::Client;

use super::outcome::Said;
use super::tables::{self, SEARCH_PATH};
use crate::clients::postgres::{Sessions, Unprepared, failure};
use crate::error::LoadError;
use crate::job::{Job, Postgresql, Tpcc};
use crate::workloads::{Failure, Outcome, Workload};

/// What was delivered to each customer, as `got`.
macro_rules! delivered {
    () => {
        "(SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS got FROM orders
            JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS d
            ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id"
    };
}

/// A condition: what holds, and the text of each thing for which it does not.
struct Condition {
    rule: &'static str,
    broken: &'static str,
}

/// All twelve, in the standard's order.
///
/// The eleventh says 2100 of freshly loaded tables. What was delivered since is in the customers' counts, and added.
const CONDITIONS: [Condition; 12] = [
    Condition {
        rule: "W_YTD is the sum of its districts' D_YTD",
        broken: "SELECT format('warehouse %s: %s, districts %s', w_id, w_ytd, paid) FROM warehouse
            LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS paid FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id
            WHERE w_ytd IS DISTINCT FROM paid",
    },
    Condition {
        rule: "D_NEXT_O_ID - 1 is the district's largest O_ID and largest NO_O_ID",
        broken: "SELECT format('district %s/%s: next %s, largest order %s, largest new order %s',
              d_w_id, d_id, d_next_o_id, o_most, no_most) FROM district
            LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o_most FROM orders GROUP BY o_w_id, o_d_id) AS o
              ON o_w_id = d_w_id AND o_d_id = d_id
            LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS no_most FROM new_order GROUP BY no_w_id, no_d_id) AS n
              ON no_w_id = d_w_id AND no_d_id = d_id
            WHERE o_most IS DISTINCT FROM d_next_o_id - 1 OR no_most <> d_next_o_id - 1",
    },
    Condition {
        rule: "a district's NO_O_ID have no gap",
        broken: "SELECT format('district %s/%s: %s to %s are %s', no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*))
            FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    },
    Condition {
        rule: "the sum of a district's O_OL_CNT is the number of its order lines",
        broken: "SELECT format('district %s/%s: %s, lines %s', o_w_id, o_d_id, said, lines)
            FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY o_w_id, o_d_id) AS o
            FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id) AS l
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id
            WHERE said IS DISTINCT FROM lines",
    },
    Condition {
        rule: "O_CARRIER_ID is null just for orders that are in NEW_ORDER",
        broken: "SELECT format('order %s/%s/%s: carrier %s', coalesce(o_w_id, no_w_id), coalesce(o_d_id, no_d_id),
              coalesce(o_id, no_o_id), coalesce(o_carrier_id::text, 'none'))
            FROM orders FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
            WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Condition {
        rule: "O_OL_CNT is the number of the order's lines",
        broken: "SELECT format('order %s/%s/%s: %s, lines %s', coalesce(o_w_id, ol_w_id), coalesce(o_d_id, ol_d_id),
              coalesce(o_id, ol_o_id), o_ol_cnt, lines) FROM orders
            FULL JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines FROM order_line
              GROUP BY ol_w_id, ol_d_id, ol_o_id) AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE o_ol_cnt IS DISTINCT FROM lines",
    },
    Condition {
        rule: "OL_DELIVERY_D is null just for lines of orders without carrier",
        broken: "SELECT format('line %s/%s/%s/%s', ol_w_id, ol_d_id, ol_o_id, ol_number) FROM order_line
            LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
            WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Condition {
        rule: "W_YTD is the sum of the warehouse's H_AMOUNT",
        broken: "SELECT format('warehouse %s: %s, history %s', w_id, w_ytd, paid) FROM warehouse
            LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id
            WHERE w_ytd IS DISTINCT FROM paid",
    },
    Condition {
        rule: "D_YTD is the sum of the district's H_AMOUNT",
        broken: "SELECT format('district %s/%s: %s, history %s', d_w_id, d_id, d_ytd, paid) FROM district
            LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h
              ON h_w_id = d_w_id AND h_d_id = d_id
            WHERE d_ytd IS DISTINCT FROM paid",
    },
    Condition {
        rule: "C_BALANCE is what was delivered to the customer less his H_AMOUNT",
        broken: concat!(
            "SELECT format('customer %s/%s/%s: %s, delivered %s, history %s', c_w_id, c_d_id, c_id, c_balance, got, paid)
            FROM customer LEFT JOIN ",
            delivered!(),
            " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
              GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
            WHERE c_balance <> coalesce(got, 0) - coalesce(paid, 0)"
        ),
    },
    Condition {
        rule: "a district's orders are its NEW_ORDER rows, 2100, and what was delivered since the load",
        broken: "SELECT format('district %s/%s: orders %s, new orders %s, delivered %s', d_w_id, d_id, ordered,
              coalesce(queued, 0), delivered) FROM district
            LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS ordered FROM orders GROUP BY o_w_id, o_d_id) AS o
              ON o_w_id = d_w_id AND o_d_id = d_id
            LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS queued FROM new_order GROUP BY no_w_id, no_d_id) AS n
              ON no_w_id = d_w_id AND no_d_id = d_id
            LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) AS c
              ON c_w_id = d_w_id AND c_d_id = d_id
            WHERE (ordered - coalesce(queued, 0) - 2100) IS DISTINCT FROM delivered",
    },
    Condition {
        rule: "C_BALANCE + C_YTD_PAYMENT is what was delivered to the customer",
        broken: concat!(
            "SELECT format('customer %s/%s/%s: %s + %s, delivered %s', c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, got)
            FROM customer LEFT JOIN ",
            delivered!(),
            " WHERE c_balance + c_ytd_payment <> coalesce(got, 0)"
        ),
    },
];

/// The stage `check`.
pub struct Conditions {
    sessions: Sessions<Unprepared>,
    next: Cell<usize>,
    found: RefCell<[Value; CONDITIONS.len()]>,
    said: Said,
}

impl Conditions {
    /// Connects, and finds the tables of a load.
    pub async fn open(
        job: &Job,
        target: &Postgresql,
        asked: &Tpcc,
    ) -> Result<Conditions, LoadError> {
        tables::find(job, target, asked).await?;
        let connections = job.slots();
        let count = connections as usize;
        Ok(Conditions {
            sessions: Sessions::open(job, target, &[SEARCH_PATH], Unprepared, count).await?,
            next: Cell::new(0),
            found: RefCell::default(),
            said: Said::new(asked, connections),
        })
    }
}

impl Workload for Conditions {
    type Step = usize;

    fn kinds(&self) -> &'static [&'static str] {
        &["condition"]
    }

    fn operations(&self) -> Option<u64> {
        Some(CONDITIONS.len() as u64)
    }

    fn draw(&self, _who: usize) -> usize {
        let number = self.next.get();
        self.next.set(number + 1);
        number
    }

    fn kind(&self, _: usize) -> usize {
        0
    }

    async fn perform(&self, slot: usize, number: usize) -> Result<(), Failure> {
        let Condition { rule, broken } = &CONDITIONS[number];
        let text = format!("SELECT count(*), min(broken) FROM ({broken}) AS found (broken)");
        let ask = async |client: &Client, (): &()| {
            let row = client.query_one(&text, &[]).await;
            let row = row.map_err(|error| failure(&error))?;
            Ok((row.get::<_, i64>(0), row.get::<_, Option<String>>(1)))
        };
        let (violations, example) = self.sessions.with(slot, ask).await?;
        self.found.borrow_mut()[number] = json!({
            "number": number + 1,
            "rule": rule,
            "violations": violations,
            "passed": violations == 0,
            "example": example,
        });
        Ok(())
    }

    fn outcome(&self) -> Option<Outcome> {
        // A condition that could not be asked is missing, and counted as an error.
        let found = self.found.take().into_iter().filter(|one| !one.is_null());
        let found: Vec<Value> = found.collect();
        let said = self.said.clone();
        Some(Box::new(move |_, _| {
            ("tpcc", said.with("check", json!({ "conditions": found })))
        }))
    }
}
