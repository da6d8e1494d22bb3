"""The device experiments among the experiment files: fio on volumes, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disklab import spec
from disklab.errors import Problem, UserError
from disklab.hosts.filesystem import Filesystem
from disklab.probe.cells import Cell, Direction, Load, cell_of
from disklab.probe.known import Disk
from disklab.spec.model import Fio
from disklab.spec.sections import DEFAULT_DURATION_S
from disklab.traces import SECTOR_BYTES


@dataclass(frozen=True)
class Trial:
    """One combination of levels."""

    levels: Mapping[str, str]
    disk: Disk
    filesystem: Filesystem
    cell: Cell
    duration_s: float


@dataclass(frozen=True)
class DeviceExperiment:
    """A matrix of device measurements."""

    path: Path
    title: str
    source: str
    trials: tuple[Trial, ...]


def read_experiment(path: Path) -> DeviceExperiment:
    """Return the device experiment in a file, every trial of its matrix checked."""
    experiment = spec.load(path)
    if experiment.kind != "device":
        place = experiment.document.place(("cluster",))
        rule = "is a cluster experiment, and the probe runs those of devices"
        way_out = "choose a file with `device:`, such as experiments/azure-local-disks.yaml"
        raise UserError(Problem(place, "cluster", rule, way_out))
    trials = experiment.trials("rehearse")
    if any(trial.spec.workload.fio is None for trial in trials):
        place = experiment.document.place(("workload", "trace"))
        rule = "the probe runs fio's own patterns, not traces"
        raise UserError(Problem(place, "trace", rule, "use `disklab rehearse`"))
    refused = [trial.refused for trial in trials if trial.refused is not None]
    if refused:
        problems = [Problem(one.place, one.value, one.rule, one.way_out) for one in refused]
        raise UserError(*dict.fromkeys(problems))
    return DeviceExperiment(path, experiment.title, experiment.source, tuple(map(trial_of, trials)))


def trial_of(trial: spec.Trial) -> Trial:
    """Return a trial as the probe measures it."""
    device, work = trial.spec.the_device, trial.spec.workload
    assert work.fio is not None
    only_predicted(work.fio)
    return Trial(
        levels={name: str(level) for name, level in trial.factors.items()},
        disk=disk_of(trial),
        filesystem=device.volume.filesystem,
        cell=cell_of_fio(work.fio),
        duration_s=DEFAULT_DURATION_S
        if work.stop is None or work.stop.duration_s is None
        else work.stop.duration_s,
    )


def disk_of(trial: spec.Trial) -> Disk:
    """Return the disk of a device experiment's trial."""
    device = trial.spec.the_device
    volume = device.volume
    return Disk(volume.disks, device.vm, volume.caching, device.host_cache_bytes, volume.latency)


def cell_of_fio(fio: Fio) -> Cell:
    """Return the cell of a load."""
    return cell_of(Load(*fio.load), Direction(fio.random, fio.read_percent), fio.block_bytes)


def only_predicted(section: Fio) -> None:
    """Raise UserError where a load has what is predicted and neither probed nor rehearsed."""
    has = {
        "beside": section.beside,
        "bssplit": section.bssplit,
        "fsync": section.fsync,
        "fdatasync": section.fdatasync,
        "rate_iops": section.rate_iops,
        "once": section.once,
        "direct: false": not section.direct,
        f"bs: {section.block_bytes}": section.block_bytes % SECTOR_BYTES,
    }
    rule = "is predicted, and neither rehearsed nor probed"
    way_out = "use `disklab predict`, or leave it out; emulated disks have sectors of 4 KiB"
    problems = [
        Problem("workload.fio", name, rule, way_out) for name, given in has.items() if given
    ]
    if problems:
        raise UserError(*problems)
