//! Load on a database: closed and open loop, verified rows, histograms that merge exactly.
//!
//! One generator is one thread around one runtime: at tens of thousands of operations a second no core
//! has time for handing work between threads. More load comes from more generators
//! ([`job::Generator`]), whose parts add up to the same load and whose histograms merge exactly.
//!
//! ```text
//! job                what is asked, and every rule that it breaks at once
//! arrivals keys mix  pure: when, where and what the next operation is, from named random streams
//! workloads          what an operation is: rows, verified on read
//! presence           which rows are there while some are deleted
//! versions           what was acknowledged of each row: stale reads and lost updates
//! clients            how it reaches the database: the seam between workloads and protocols
//! begin              the one moment at which several generators begin
//! pacing slots       the two loops: who starts the next operation, and when; deadline: what took too long
//! record output      histograms of an interval and of the run; JSON lines
//! run query          the two commands
//! ```

pub mod arrivals;
mod begin;
pub mod clients;
mod clock;
pub mod content;
mod deadline;
mod error;
pub mod job;
pub mod keys;
pub mod mix;
mod output;
mod pacing;
mod presence;
pub mod query;
pub mod record;
mod run;
mod slots;
pub mod versions;
pub mod workloads;

pub use error::{LoadError, Problem};
pub use run::run;
