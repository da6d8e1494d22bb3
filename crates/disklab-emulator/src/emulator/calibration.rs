//! Measures the machine at the start of a host.

use std::path::Path;

use disklab_units::Duration;

use crate::awake::Awake;
use crate::backing::{Backing, MemoryBacking};
use crate::calibrate::{self, Record};
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
            self.forget(&device.path());
            let detached = device
                .detach()
                .map_err(|in_use| in_use.explain(calibrate::VOLUME_NAME, &device.path()));
            measured.and(detached)
        });
        self.commands.ask(|answer| Command::Detach(index, answer))?;
        measured
    }

    fn measure(&mut self, index: VolumeIndex, device: &Path) -> Result<(), EmulatorError> {
        let stored = match self.options.calibrate {
            Calibrate::Anew => None,
            _ => Record::read(
                &self.directory.envelope(),
                self.kind,
                self.recorder.is_some(),
            ),
        };
        self.watch(index, device)?;
        let spin = calibrate::wake_lateness(Awake::new(self.options.let_cpus_sleep));
        let tune = |tuning| self.commands.ask(|answer| Command::Tune(tuning, answer));
        let pace = |wait| {
            self.commands
                .ask(|answer| Command::Pace(index, wait, answer))
        };
        tune(calibrate::untuned(spin))?;
        let mut medians = [const { Vec::new() }; WAITS.len()];
        let mut round = || -> Result<(), EmulatorError> {
            for (wait, medians) in WAITS.into_iter().zip(&mut medians) {
                pace(wait)?;
                calibrate::probe(device, medians)?;
            }
            pace(Duration::ZERO)
        };
        let mut record = match stored {
            Some(record) => record,
            // More rounds between its figures, as nothing is known yet.
            None => Record::new(
                self.kind,
                self.recorder.is_some(),
                calibrate::envelope(device, &mut round)?,
            ),
        };
        for _ in 0..calibrate::ROUNDS {
            round()?;
        }
        let found = std::array::from_fn(|which| {
            calibrate::overhead(WAITS[which], std::mem::take(&mut medians[which]))
        });
        let measured = record.temper(found);
        self.directory.write_envelope(&record)?;
        self.identity.lock().envelope = Some(record.envelope);
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
