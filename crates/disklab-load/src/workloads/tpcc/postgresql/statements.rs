//! The SQL of the five transactions, prepared once on each connection.
//!
//! As few statements as the data flow allows: what does not need an earlier answer is sent together, and lines of an order
//! are one statement. Each transaction takes one or two ways to the server.

use tokio_postgres::{Client, Error, Statement};

use crate::clients::postgres::Statements;
use crate::job::Stage;

/// Texts and prepared statements have the same names.
macro_rules! statements {
    ($($(#[$about:meta])* $name:ident: $text:expr;)*) => {
        /// The statements on a connection.
        pub struct Prepared {
            $($(#[$about])* pub $name: Statement,)*
        }

        /// The texts, which are prepared for a run alone: before a load there are no tables.
        pub struct Texts(pub Stage);

        impl Statements for Texts {
            type Prepared = Option<Prepared>;

            async fn prepare(&self, client: &Client) -> Result<Option<Prepared>, Error> {
                if self.0 != Stage::Run {
                    return Ok(None);
                }
                Ok(Some(Prepared {
                    $($name: client.prepare($text).await?,)*
                }))
            }
        }
    };
}

/// The number of the customer in the middle of those with a last name, ordered by first name: place n / 2, rounded up.
/// **Source:** clause 2.5.2.2.
macro_rules! named_customer {
    () => {
        "(SELECT c_id FROM (SELECT c_id, row_number() OVER (ORDER BY c_first) AS place, count(*) OVER () AS found
          FROM customer WHERE c_w_id = $3 AND c_d_id = $4 AND c_last = $5) AS named WHERE place = (found + 1) / 2)"
    };
}

/// The customer pays, and history says so. A customer with bad credit gets it written into his data.
/// **Source:** clause 2.5.2.2.
macro_rules! pay {
    ($customer:expr) => {
        concat!(
            "WITH paid AS (UPDATE customer SET c_balance = c_balance - $6, c_ytd_payment = c_ytd_payment + $6,
              c_payment_cnt = c_payment_cnt + 1,
              c_data = CASE WHEN c_credit = 'BC' THEN left(
                concat_ws(' ', c_id, c_d_id, c_w_id, $2::int, $1::int, $6) || '|' || c_data, 500) ELSE c_data END
              WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = ",
            $customer,
            " RETURNING c_id, c_d_id, c_w_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
              c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, left(c_data, 200) AS c_data),
            written AS (INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
              SELECT c_id, c_d_id, c_w_id, $2, $1, now(), $6, w_name || '    ' || d_name
              FROM paid, warehouse, district WHERE w_id = $1 AND d_w_id = $1 AND d_id = $2)
            SELECT * FROM paid"
        )
    };
}

statements! {
    // New order. Source: clause 2.4.2.2.
    next_order: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2
        RETURNING d_next_o_id - 1, d_tax";
    order_customer: "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 AND w_id = $1";
    items: "SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id = ANY ($1::int[])";
    /// Arrays of warehouse, item, quantity and whether it comes from elsewhere; then the district.
    take_stock: "UPDATE stock SET
        s_quantity = CASE WHEN s_quantity - quantity >= 10 THEN s_quantity - quantity ELSE s_quantity - quantity + 91 END,
        s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + remote
        FROM unnest($1::int[], $2::int[], $3::int[], $4::int[]) AS line (warehouse, item, quantity, remote)
        WHERE s_w_id = warehouse AND s_i_id = item
        RETURNING s_w_id, s_i_id, s_quantity, s_data, CASE $5::int WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02
          WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07
          WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END";
    insert_order: "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
        VALUES ($1, $2, $3, $4, now(), $5, $6)";
    insert_new_order: "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)";
    insert_lines: "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity,
        ol_amount, ol_dist_info) SELECT $1, $2, $3, line.*
        FROM unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::numeric[], $9::text[]) AS line";

    // Payment. Source: clause 2.5.2.2.
    pay_warehouse: "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1
        RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip";
    pay_district: "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2
        RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip";
    /// Warehouse, district, the customer's warehouse, district and number, amount.
    pay_by_number: pay!("$5");
    /// The same with a last name.
    pay_by_name: pay!(named_customer!());

    // Order status. Source: clause 2.6.2.2.
    customer_by_number: "SELECT c_id, c_balance, c_first, c_middle, c_last FROM customer
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    customer_by_name: "SELECT c_id, c_balance, c_first, c_middle, c_last FROM (SELECT *,
          row_number() OVER (ORDER BY c_first) AS place, count(*) OVER () AS found
        FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3) AS named WHERE place = (found + 1) / 2";
    last_order: "SELECT o_id, o_entry_d, o_carrier_id, o_ol_cnt, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
          ol_delivery_d
        FROM (SELECT * FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1) AS latest
        JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id";

    // Delivery. Source: clause 2.7.4.2.
    /// Takes the oldest order of each district. A second delivery of the warehouse waits for the first at the first
    /// district, and finds the next order of each.
    take_oldest: "DELETE FROM new_order USING (SELECT oldest.* FROM generate_series(1, 10) AS district,
          LATERAL (SELECT no_d_id AS d, no_o_id AS o FROM new_order WHERE no_w_id = $1 AND no_d_id = district
            ORDER BY no_o_id LIMIT 1 FOR UPDATE) AS oldest) AS taken
        WHERE no_w_id = $1 AND no_d_id = d AND no_o_id = o RETURNING no_d_id, no_o_id";
    /// Arrays of districts and orders; warehouse and carrier.
    deliver: "WITH taken AS (SELECT * FROM unnest($1::int[], $2::int[]) AS taken (d, o)),
        carried AS (UPDATE orders SET o_carrier_id = $4 FROM taken WHERE o_w_id = $3 AND o_d_id = d AND o_id = o
          RETURNING o_d_id, o_id, o_c_id),
        delivered AS (UPDATE order_line SET ol_delivery_d = now() FROM taken
          WHERE ol_w_id = $3 AND ol_d_id = d AND ol_o_id = o RETURNING ol_d_id, ol_o_id, ol_amount)
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        FROM (SELECT o_d_id, o_c_id, sum(ol_amount) AS amount FROM carried
          JOIN delivered ON ol_d_id = o_d_id AND ol_o_id = o_id GROUP BY o_d_id, o_c_id) AS bill
        WHERE c_w_id = $3 AND c_d_id = o_d_id AND c_id = o_c_id RETURNING c_id";

    // Stock level. Source: clause 2.8.2.2. Two statements, as in the standard's own program (appendix A.5): joined with its
    // district, whose next order a planner does not know, PostgreSQL expected 3,000 order lines instead of 200 and read all
    // of a warehouse's stock: 1.9 s from an Ultra disk, more than 12 s from a P15.
    orders_end: "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
    low_stocks: "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3 AND s_quantity < $4";
}
