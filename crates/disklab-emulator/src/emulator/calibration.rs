//! Measures the machine at the start of a host.

use std::io;
use std::path::Path;

use disklab_units::Duration;

use crate::awake::Awake;
use crate::backing::{Backing, MemoryBacking};
use crate::calibrate;
use crate::command::{Command, Timing, Tuning};
use crate::emulator::{BLOCK_BYTES, Calibrate, Emulated};
use crate::error::EmulatorError;
use crate::event::Event;
use crate::overhead::{Overhead, WAITS};
use crate::transport::VolumeIndex;

impl Emulated {
    /// Measures the machine on a volume that exists for that time only, and tunes the driver to it.
    pub(super) fn calibrate(&mut self) -> Result<(), EmulatorError> {
        let backing = Backing::Memory(MemoryBacking::new(calibrate::VOLUME_BYTES, false)?);
        let timing = Timing::Constant {
            name: calibrate::VOLUME_NAME.to_owned(),
            size: calibrate::VOLUME_BYTES,
            latency: Duration::ZERO,
        };
        let prepared =
            self.devices
                .prepare(calibrate::VOLUME_NAME, calibrate::VOLUME_BYTES, BLOCK_BYTES)?;
        let index = self
            .commands
            .ask(|answer| Command::Attach(timing, backing, answer))??;
        let file = self.directory.volume_file(calibrate::VOLUME_NAME);
        let measured = prepared.make(&file).and_then(|device| {
            let measured = self.measure(index, &device.path());
            let detached = device
                .detach()
                .map_err(|in_use| in_use.explain(calibrate::VOLUME_NAME, &device));
            measured.and(detached)
        });
        self.commands.ask(|answer| Command::Detach(index, answer))?;
        measured
    }

    fn measure(&mut self, index: VolumeIndex, device: &Path) -> Result<(), EmulatorError> {
        let failed = |error: io::Error| {
            EmulatorError::system(
                device.display().to_string(),
                "measure the machine",
                &error,
                "start with --no-calibrate",
            )
        };
        let stored = match self.options.calibrate {
            Calibrate::Anew => None,
            _ => calibrate::stored(&self.directory.envelope(), self.kind),
        };
        let envelope = match stored {
            Some(envelope) => envelope,
            None => {
                let envelope = calibrate::envelope(device).map_err(failed)?;
                let record = calibrate::to_store(self.kind, envelope);
                self.directory.write_envelope(&record)?;
                envelope
            }
        };
        self.envelope = Some(envelope);
        let spin = calibrate::wake_lateness(Awake::new(self.options.let_cpus_sleep));
        let tune = |tuning| self.commands.ask(|answer| Command::Tune(tuning, answer));
        tune(calibrate::untuned(spin))?;
        let mut measured = WAITS;
        for wait in &mut measured {
            self.commands
                .ask(|answer| Command::Pace(index, *wait, answer))?;
            *wait = calibrate::overhead(device, *wait).map_err(failed)?;
        }
        let (overhead, left) = Overhead::believable(measured);
        if left >= Duration::from_micros(1) {
            let text = format!(
                "this machine is busy: up to {} us of what it adds to a latency cannot be the emulator's own \
                 part and are not subtracted, so short latencies may be longer than promised",
                left.as_nanos() / 1_000,
            );
            Event::Warning { text }.print();
        }
        tune(Tuning { overhead, spin })
    }
}
