//! What an emulated host tells its starter: one JSON object a line on standard output.

use std::io::Write;

use serde::Serialize;

use crate::calibrate::Envelope;
use crate::error::EmulatorError;
use crate::transport::TransportKind;

/// A fact that the process reports. [`Event::print`] is the only subscriber.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Everything is up.
    Ready {
        /// Of this process.
        pid: u32,
        /// How requests arrive.
        transport: TransportKind,
        /// What this machine can do; absent with `--no-calibrate`.
        envelope: Option<Envelope>,
        /// Names of the attached volumes.
        volumes: Vec<String>,
    },
    /// It did not come up. Nothing is left behind.
    Failed {
        /// Why.
        error: EmulatorError,
    },
    /// Something is not as good as it could be; everything works.
    Warning {
        /// What.
        text: String,
    },
    /// The host has gone down as asked.
    Stopped {
        /// Why: `shutdown`, `SIGTERM`, `SIGINT`, or that the connection was aborted.
        reason: String,
        /// Devices that could not be detached because they are in use; their I/O fails now.
        left: Vec<String>,
    },
}

impl Event {
    /// Prints the event. A closed standard output is no reason to stop a disk.
    pub fn print(&self) {
        // A test's output is for people.
        if cfg!(test) {
            return;
        }
        let Ok(mut line) = serde_json::to_string(self) else {
            return;
        };
        line.push('\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}
