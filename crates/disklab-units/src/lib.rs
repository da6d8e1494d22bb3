//! Time, bytes and rates as types, and chance as a named stream.
//!
//! Nothing but these types crosses a crate edge as a quantity. All arithmetic is on integers:
//! nanoseconds, bytes, operations. Conversions that would lose a remainder say so in their name.

mod dilation;
pub mod popularity;
mod quantity;
pub mod random;
pub mod sizes;
mod time;

pub use dilation::Dilation;
pub use quantity::{ByteRate, Bytes, Iops, ParseQuantityError};
pub use time::{Duration, Instant};
