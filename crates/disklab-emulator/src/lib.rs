//! Real block devices that follow the disk model in real time.
//!
//! One process is one emulated host. Its volumes are files of one FUSE mount, each with a loop
//! device on top, or ublk devices. One thread, the [`driver`], takes requests, asks the model when each one ends, moves
//! the data meanwhile and replies when it is time. Another thread answers the control socket.

mod awake;
pub mod backing;
mod calibrate;
mod claim;
mod clock;
mod command;
mod connections;
mod device;
mod dilated;
pub mod driver;
mod due;
mod emulator;
mod error;
mod event;
mod front;
pub mod fuse;
mod host_dir;
mod issue_times;
mod lateness;
mod loop_device;
mod mapping;
mod nap;
mod overhead;
mod own_dir;
pub mod precedence;
mod preimage;
mod protect;
mod ring;
mod signals;
mod softirq;
mod transport;
pub mod ublk;
mod watchdog;

pub use calibrate::Envelope;
pub use claim::user_of;
pub use emulator::{Calibrate, Options, run};
pub use error::EmulatorError;
pub use event::Event;
pub use loop_device::LoopDevice;
pub use transport::{TransportChoice, TransportKind};
