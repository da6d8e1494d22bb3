"""From a disk's name to what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from disklab import spec
from disklab.catalog import (
    Caching,
    HostRequest,
    Places,
    Resolution,
    VolumeRequest,
    load_catalog,
    resolve,
)
from disklab.errors import Problem, UserError, refuse
from disklab.hosts.filesystem import Filesystem
from disklab.probe.cells import Cell, Direction, Load, cell_of
from disklab.probe.promise import Placement
from disklab.spec.amounts import only
from disklab.spec.fio import Fio
from disklab.spec.timetable_checks import DEFAULT_DURATION_S
from disklab.traces import SECTOR_BYTES

OPTIONS = Places(disks="--disk", vm="--vm", caching="--caching")

CACHING: tuple[Caching, ...] = get_args(Caching)


@dataclass(frozen=True)
class Disk:
    """A disk as the user names it."""

    disks: str
    vm: str | None
    caching: Caching = "None"
    host_cache_bytes: int | None = None
    """What its host cache is taken to hold, where none is published."""
    latency: str | None = None
    """One of the dated latency profiles of its family; None: the default."""
    places: Places = field(default=OPTIONS, compare=False)
    """Where the user named each part, for the errors."""


def resolved(disk: Disk) -> Resolution:
    """Return the disk's profile; a user error with every rule that the wish breaks."""
    catalog = load_catalog()
    request = VolumeRequest(disks=disk.disks, caching=disk.caching, latency=disk.latency)
    return resolve(
        catalog, HostRequest(disk.vm, disk.host_cache_bytes), request, places=disk.places
    )


def placed(disk: Disk) -> Placement:
    """Return the disk with its host, as the promise needs them."""
    found = resolved(disk)
    return Placement(found.host, found.volume)


# The device experiments among the experiment files: fio on volumes, no database.


@dataclass(frozen=True)
class Trial:
    """What the probe measures for a trial, and where."""

    disk: Disk
    filesystem: Filesystem
    cell: Cell
    duration_s: float


def read_experiment(path: Path) -> tuple[spec.Experiment, tuple[spec.Trial, ...]]:
    """Return the device experiment in a file, and every trial of its matrix, checked."""
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
        raise UserError(*dict.fromkeys(reason.problems[0] for reason in refused))
    return experiment, tuple(trials)


def trial_of(trial: spec.Trial) -> Trial:
    """Return a trial as the probe measures it."""
    device, work = only(spec.DeviceTrial, trial.spec).device, trial.spec.workload
    fio = work.the(Fio)
    only_predicted(fio)
    return Trial(
        disk=disk_of(trial),
        filesystem=device.volume.filesystem,
        cell=cell_of_fio(fio),
        duration_s=DEFAULT_DURATION_S
        if work.stop is None or work.stop.duration_s is None
        else work.stop.duration_s,
    )


def disk_of(trial: spec.Trial) -> Disk:
    """Return the disk of a device experiment's trial."""
    device = only(spec.DeviceTrial, trial.spec).device
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
    rule = "can be predicted, but neither rehearsed nor probed"
    way_out = "use `disklab predict`, or leave it out; emulated disks have sectors of 4 KiB"
    refuse(Problem("workload.fio", name, rule, way_out) for name, given in has.items() if given)
