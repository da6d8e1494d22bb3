//! Requests from a FUSE mount: the protocol, the mount and its two ways in.

mod dev;
mod mount;
mod protocol;
mod session;
mod uring;

pub use dev::DevTransport;
pub use mount::{Connection, Mount};
pub use uring::UringTransport;
