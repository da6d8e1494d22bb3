//! The nine tables, and the mark of a load that came to its end.

use super::chance::Constants;
use super::store::Store;
use crate::error::{LoadError, Problem};
use crate::job::{Job, Stage, Tpcc};
use crate::workloads::Failure;

/// All of it lies in a schema of our own: the tables' names are common ones, and making them anew drops what is there.
pub const SCHEMA: &str = "disklab_tpcc";

/// **Source:** clause 1.3. Columns, types and primary keys of each table. History has no key.
///
/// Keys begin with the warehouse, so that a distributed database parts the tables by it.
pub const TABLES: &str = "
CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int NOT NULL, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL,
  i_data varchar(50) NOT NULL);
CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL,
  w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, w_zip char(9) NOT NULL,
  w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL);
CREATE TABLE district (d_w_id int, d_id int, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL,
  d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, d_zip char(9) NOT NULL,
  d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first varchar(16) NOT NULL, c_middle char(2) NOT NULL,
  c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, c_street_2 varchar(20) NOT NULL,
  c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, c_zip char(9) NOT NULL, c_phone char(16) NOT NULL,
  c_since timestamptz NOT NULL, c_credit char(2) NOT NULL, c_credit_lim numeric(12,2) NOT NULL,
  c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL,
  c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data varchar(500) NOT NULL,
  PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE history (h_c_id int NOT NULL, h_c_d_id int NOT NULL, h_c_w_id int NOT NULL, h_d_id int NOT NULL,
  h_w_id int NOT NULL, h_date timestamptz NOT NULL, h_amount numeric(6,2) NOT NULL, h_data varchar(24) NOT NULL);
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int NOT NULL, o_entry_d timestamptz NOT NULL,
  o_carrier_id int, o_ol_cnt int NOT NULL, o_all_local int NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int NOT NULL,
  ol_supply_w_id int NOT NULL, ol_delivery_d timestamptz, ol_quantity int NOT NULL, ol_amount numeric(6,2) NOT NULL,
  ol_dist_info char(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int NOT NULL, s_dist_01 char(24) NOT NULL,
  s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, s_dist_05 char(24) NOT NULL,
  s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL,
  s_dist_10 char(24) NOT NULL, s_ytd int NOT NULL, s_order_cnt int NOT NULL, s_remote_cnt int NOT NULL,
  s_data varchar(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE loaded (warehouses int NOT NULL, seed bigint NOT NULL, ended timestamptz NOT NULL)";

/// What a load has left.
pub struct Loaded {
    /// Its constants of the non-uniform numbers.
    pub constants: Constants,
}

/// Finds the tables of a load that came to its end, with as many warehouses as are asked for.
pub async fn find<S: Store>(
    job: &Job,
    target: &S::Target,
    asked: &Tpcc,
) -> Result<Loaded, LoadError> {
    let pool = S::open(job, target, Stage::Load, 1).await?;
    let mark = pool.on(0, read_mark::<S>).await;
    let rule = match mark.map_err(|failure| refused(&failure.text))? {
        Some((warehouses, seed)) if warehouses == asked.warehouses => {
            return Ok(Loaded {
                constants: Constants::of_load(seed),
            });
        }
        Some((warehouses, _)) => format!("the tables were loaded for {warehouses} warehouses"),
        None => format!("the database has no schema {SCHEMA} whose load came to its end"),
    };
    let way_out = "do the stage `load` first, for as many warehouses";
    Err(Problem::new("workload.warehouses", asked.warehouses, rule, way_out).into())
}

/// Warehouses and seed of the load.
async fn read_mark<S: Store>(session: &mut S::Connection) -> Result<Option<(u32, u64)>, Failure> {
    let exists = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND table_name = 'loaded'"
    );
    if S::ask(session, &exists).await?.is_empty() {
        return Ok(None);
    }
    let mark = format!("SELECT warehouses, seed FROM {SCHEMA}.loaded");
    let rows = S::ask(session, &mark).await?;
    let number = |at: usize| rows.first()?.get(at)?.as_deref()?.parse::<i64>().ok();
    Ok(number(0)
        .zip(number(1))
        .map(|(warehouses, seed)| (warehouses as u32, seed as u64)))
}

/// A statement on the tables as a whole was refused, with these words.
pub fn refused(said: &str) -> LoadError {
    let rule = format!("the database refused a statement: {said}");
    Problem::new("workload.kind", "tpcc", rule, "see the database's log").into()
}
