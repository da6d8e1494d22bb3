//! TPC-C: an order-entry business of warehouses, in SQL.
//!
//! **Source:** TPC Benchmark C, Standard Specification, revision 5.11; clauses are its. A job is one stage: [`Population`]
//! makes and fills the tables, [`Transactions`] are the terminals' work, [`Conditions`] say whether the tables still fit
//! together.
//!
//! ```text
//! scale chance       how many of what; the standard's random numbers, names and strings
//! tables             schema, and what shows that it was filled to the end
//! rows population    each row as a pure function of seed and place; written piece by piece
//! inputs terminals   pure: what a user enters, and when
//! store              what a database does for all of it: `postgresql`, `mariadb`
//! transactions outcome   the run; its figures, and where it is not what the standard asks
//! conditions         the twelve conditions
//! ```

mod chance;
mod conditions;
mod inputs;
mod mariadb;
mod outcome;
mod population;
mod postgresql;
mod rows;
mod scale;
mod store;
mod tables;
mod terminals;
mod transactions;

pub use conditions::Conditions;
pub use population::Population;
pub use store::Store;
pub use transactions::Transactions;

/// TPC-C in PostgreSQL, and in what speaks its protocol.
pub type InPostgresql = crate::clients::postgres::Driver<postgresql::Statements>;
/// TPC-C in MariaDB.
pub type InMariadb = crate::clients::mysql::texts::Texts;
