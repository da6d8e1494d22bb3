//! Whose I/Os begin when the block layer issues them.

use std::path::Path;

use disklab_disk::profile::{Distribution, VolumeProfile};

use crate::command::Command;
use crate::emulator::Emulated;
use crate::error::EmulatorError;
use crate::event::Event;
use crate::issue_times::{self, DeviceNumber};
use crate::transport::VolumeIndex;

impl Emulated {
    /// Begins to record, at first no device's requests. Where the kernel does not let us, time begins when requests
    /// arrive.
    pub(super) fn record_issues(&mut self) -> Result<(), EmulatorError> {
        match issue_times::record() {
            Ok((recorder, times)) => {
                self.recorder = Some(recorder);
                self.commands
                    .ask(|answer| Command::IssueTimes(Box::new(times), answer))
            }
            Err(error) => {
                let text = format!(
                    "the kernel does not tell when it issues requests (perf events of block:block_rq_issue: {error}): \
                     an I/O's time begins when it arrives, so on a busy machine I/Os take longer than promised"
                );
                Event::Warning { text }.print();
                Ok(())
            }
        }
    }

    /// Lets the time of a volume's I/Os begin when they are issued. Each costs some CPU, so a volume without any
    /// latency is left alone.
    pub(super) fn time_from_issue(
        &mut self,
        index: VolumeIndex,
        device: &Path,
        profile: &VolumeProfile,
    ) -> Result<(), EmulatorError> {
        let takes_time = profile
            .disks
            .iter()
            .flat_map(|disk| [&disk.latency.read, &disk.latency.write])
            .any(is_not_zero);
        match takes_time {
            true => self.watch(index, device),
            false => Ok(()),
        }
    }

    /// Records a device's requests. What goes wrong costs accuracy only.
    pub(super) fn watch(&mut self, index: VolumeIndex, device: &Path) -> Result<(), EmulatorError> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let watched = DeviceNumber::of(device).and_then(|number| {
            recorder.watch(number)?;
            Ok(number)
        });
        match watched {
            Ok(number) => self
                .commands
                .ask(|answer| Command::Device(index, number, answer)),
            Err(error) => {
                let text = format!(
                    "{}: its requests are not recorded: {error}",
                    device.display()
                );
                Event::Warning { text }.print();
                Ok(())
            }
        }
    }

    /// No longer records the requests of a device that is about to go.
    pub(super) fn forget(&mut self, device: &Path) {
        if let Some(recorder) = &mut self.recorder
            && let Ok(number) = DeviceNumber::of(device)
        {
            // Should the kernel refuse, it records requests that nobody asks for.
            let _ = recorder.forget(number);
        }
    }
}

fn is_not_zero(distribution: &Distribution) -> bool {
    let mut quantiles = distribution.quantiles_ppm_ns.iter();
    distribution.per_kib_ns > 0 || quantiles.any(|&(_, ns)| ns > 0)
}
