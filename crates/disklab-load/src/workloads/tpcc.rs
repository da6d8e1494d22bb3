//! TPC-C: an order-entry business of warehouses, in SQL.
//!
//! **Source:** TPC Benchmark C, Standard Specification, revision 5.11; clauses are its. A job is one stage: [`Population`]
//! makes and fills the tables, [`Transactions`] are the terminals' work, [`Conditions`] say whether the tables still fit
//! together.
//!
//! ```text
//! scale chance       how many of what; the standard's random numbers, names and strings
//! tables             schema, and what shows that it was filled to the end
//! rows population    each row as a pure function of seed and place; COPY, piece by piece
//! inputs terminals   pure: what a user enters, and when
//! statements         the SQL of the five transactions
//! new_order payment order_status delivery stock_level   one file for each
//! transactions outcome   the run; its figures, and where it is not what the standard asks
//! conditions         the twelve conditions
//! ```

mod chance;
mod conditions;
mod delivery;
mod inputs;
mod new_order;
mod order_status;
mod outcome;
mod payment;
mod population;
mod rows;
mod scale;
mod statements;
mod stock_level;
mod tables;
mod terminals;
mod transactions;

pub use conditions::Conditions;
pub use population::Population;
pub use transactions::Transactions;
