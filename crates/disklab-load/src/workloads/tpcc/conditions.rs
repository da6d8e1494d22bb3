//! The twelve consistency conditions, a statement each that counts what breaks it. **Source:** clause 3.3.2.

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};

use super::outcome::Said;
use super::store::{Store, missing};
use super::tables;
use crate::clients::pool::Pool;
use crate::error::LoadError;
use crate::job::{Job, Stage, Tpcc};
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

/// All twelve, in the standard's order, in SQL that every database has: what two tables say of a place is summed over
/// both.
///
/// The eleventh says 2100 of freshly loaded tables. What was delivered since is in the customers' counts, and added.
const CONDITIONS: [Condition; 12] = [
    Condition {
        rule: "W_YTD is the sum of its districts' D_YTD",
        broken: "SELECT concat_ws(' ', 'warehouse', w_id, w_ytd, 'districts', paid) AS broken FROM warehouse
            LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS paid FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id
            WHERE paid IS NULL OR w_ytd <> paid",
    },
    Condition {
        rule: "D_NEXT_O_ID - 1 is the district's largest O_ID and largest NO_O_ID",
        broken: "SELECT concat_ws(' ', 'district', d_w_id, d_id, 'next', d_next_o_id, 'largest order', o_most,
              'largest new order', no_most) AS broken FROM district
            LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o_most FROM orders GROUP BY o_w_id, o_d_id) AS o
              ON o_w_id = d_w_id AND o_d_id = d_id
            LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS no_most FROM new_order GROUP BY no_w_id, no_d_id) AS n
              ON no_w_id = d_w_id AND no_d_id = d_id
            WHERE o_most IS NULL OR o_most <> d_next_o_id - 1 OR no_most <> d_next_o_id - 1",
    },
    Condition {
        rule: "a district's NO_O_ID have no gap",
        broken: "SELECT concat_ws(' ', 'district', no_w_id, no_d_id, 'from', min(no_o_id), 'to', max(no_o_id),
              'are', count(*)) AS broken
            FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    },
    Condition {
        rule: "the sum of a district's O_OL_CNT is the number of its order lines",
        broken: "SELECT concat_ws(' ', 'district', w, d, sum(named), 'lines', sum(counted)) AS broken
            FROM (SELECT o_w_id AS w, o_d_id AS d, o_ol_cnt AS named, 0 AS counted FROM orders
              UNION ALL SELECT ol_w_id, ol_d_id, 0, 1 FROM order_line) AS both_tables
            GROUP BY w, d HAVING sum(named) <> sum(counted)",
    },
    Condition {
        rule: "O_CARRIER_ID is null just for orders that are in NEW_ORDER",
        broken: "SELECT concat_ws(' ', 'order', w, d, o, 'rows', sum(placed), 'without carrier', sum(waiting),
              'new orders', sum(queued)) AS broken
            FROM (SELECT o_w_id AS w, o_d_id AS d, o_id AS o, 1 AS placed,
                CASE WHEN o_carrier_id IS NULL THEN 1 ELSE 0 END AS waiting, 0 AS queued FROM orders
              UNION ALL SELECT no_w_id, no_d_id, no_o_id, 0, 0, 1 FROM new_order) AS both_tables
            GROUP BY w, d, o HAVING sum(placed) <> 1 OR sum(waiting) <> sum(queued)",
    },
    Condition {
        rule: "O_OL_CNT is the number of the order's lines",
        broken: "SELECT concat_ws(' ', 'order', w, d, o, sum(named), 'lines', sum(counted)) AS broken
            FROM (SELECT o_w_id AS w, o_d_id AS d, o_id AS o, o_ol_cnt AS named, 0 AS counted FROM orders
              UNION ALL SELECT ol_w_id, ol_d_id, ol_o_id, 0, 1 FROM order_line) AS both_tables
            GROUP BY w, d, o HAVING sum(named) <> sum(counted)",
    },
    Condition {
        rule: "OL_DELIVERY_D is null just for lines of orders without carrier",
        broken: "SELECT concat_ws(' ', 'line', ol_w_id, ol_d_id, ol_o_id, ol_number) AS broken FROM order_line
            LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
            WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Condition {
        rule: "W_YTD is the sum of the warehouse's H_AMOUNT",
        broken: "SELECT concat_ws(' ', 'warehouse', w_id, w_ytd, 'history', paid) AS broken FROM warehouse
            LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id
            WHERE paid IS NULL OR w_ytd <> paid",
    },
    Condition {
        rule: "D_YTD is the sum of the district's H_AMOUNT",
        broken: "SELECT concat_ws(' ', 'district', d_w_id, d_id, d_ytd, 'history', paid) AS broken FROM district
            LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h
              ON h_w_id = d_w_id AND h_d_id = d_id
            WHERE paid IS NULL OR d_ytd <> paid",
    },
    Condition {
        rule: "C_BALANCE is what was delivered to the customer less his H_AMOUNT",
        broken: concat!(
            "SELECT concat_ws(' ', 'customer', c_w_id, c_d_id, c_id, c_balance, 'delivered', got, 'history', paid) AS broken
            FROM customer LEFT JOIN ",
            delivered!(),
            " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
              GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
            WHERE c_balance <> coalesce(got, 0) - coalesce(paid, 0)"
        ),
    },
    Condition {
        rule: "a district's orders are its NEW_ORDER rows, 2100, and what was delivered since the load",
        broken: "SELECT concat_ws(' ', 'district', d_w_id, d_id, 'orders', placed, 'new orders', queued, 'delivered',
              delivered) AS broken FROM district
            LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS placed FROM orders GROUP BY o_w_id, o_d_id) AS o
              ON o_w_id = d_w_id AND o_d_id = d_id
            LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS queued FROM new_order GROUP BY no_w_id, no_d_id) AS n
              ON no_w_id = d_w_id AND no_d_id = d_id
            LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) AS c
              ON c_w_id = d_w_id AND c_d_id = d_id
            WHERE placed IS NULL OR delivered IS NULL OR placed - coalesce(queued, 0) - 2100 <> delivered",
    },
    Condition {
        rule: "C_BALANCE + C_YTD_PAYMENT is what was delivered to the customer",
        broken: concat!(
            "SELECT concat_ws(' ', 'customer', c_w_id, c_d_id, c_id, c_balance, 'and', c_ytd_payment, 'delivered', got)
              AS broken FROM customer LEFT JOIN ",
            delivered!(),
            " WHERE c_balance + c_ytd_payment <> coalesce(got, 0)"
        ),
    },
];

/// The stage `check`.
pub struct Conditions<S: Store> {
    sessions: Pool<S>,
    next: Cell<usize>,
    found: RefCell<[Value; CONDITIONS.len()]>,
    said: Said,
}

impl<S: Store> Conditions<S> {
    /// Connects, and finds the tables of a load.
    pub async fn open(
        job: &Job,
        target: &S::Target,
        asked: &Tpcc,
    ) -> Result<Conditions<S>, LoadError> {
        tables::find::<S>(job, target, asked).await?;
        let connections = job.slots();
        let count = connections as usize;
        Ok(Conditions {
            sessions: S::open(job, target, Stage::Check, count).await?,
            next: Cell::new(0),
            found: RefCell::default(),
            said: Said::new(asked, connections),
        })
    }
}

impl<S: Store> Workload for Conditions<S> {
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
        let text = format!("SELECT count(*), min(broken) FROM ({broken}) AS violations");
        let ask = async |session: &mut S::Connection| S::ask(session, &text).await;
        let mut rows = self.sessions.on(slot, ask).await?;
        let row = rows.pop().unwrap_or_default();
        let [Some(violations), example] = &row[..] else {
            return Err(missing("counts"));
        };
        let violations: u64 = violations.parse().map_err(|_| missing("counts"))?;
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
