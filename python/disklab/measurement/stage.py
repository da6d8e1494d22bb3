"""Device trials on hosts that exist: fio in a file on their volumes, judged beside the promise."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from disklab.errors import DisklabError
from disklab.events import Emit, PhaseStarted, Progress, Warned
from disklab.hosts.filesystem import Filesystem
from disklab.machines.protocol import Machine
from disklab.measurement import settings
from disklab.measurement.canary import ENGINE, FIO, Canaries, make_region
from disklab.measurement.clients import in_ms
from disklab.measurement.formatting import format_and_mount
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Change, Journal, undo_all
from disklab.measurement.machines_of import cpu_line, stolen_ratio
from disklab.measurement.settings import Placed, Spot, volume_of
from disklab.probe.cells import GIB, MIB, Plan, format_size
from disklab.probe.fio import Job
from disklab.probe.known import Trial as DeviceTrial
from disklab.probe.known import placed as promised
from disklab.probe.known import trial_of
from disklab.probe.run import CellResult, Known, Subject, probe_cell, ticking
from disklab.probe.target import Region
from disklab.procedures import device, outcome
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import Mode, Phase, Run, TrialResult, utc_now

REGION_BYTES = GIB
"""As `disklab probe` has it; the caches of disks and of a VM's host are larger, and real."""
QUICK_REGION_BYTES = 256 * MIB
STOLEN_RATIO = 0.02
"""A VM whose host takes more of its CPUs' time than this shows its neighbours, not its disk."""


FAR_TOO_FAST = 1.5
"""Disks do up to a tenth more than they are sold for (Azure's P30 in the catalogue's sources)."""


@dataclass(frozen=True)
class Mounted:
    """A disk that was formatted for this run."""

    filesystem: Filesystem
    directory: str
    changes: list[Change]
    """What is to be undone, in this order."""


@dataclass
class MeasuringSite:
    """The hosts of a run, opened, and what was changed on them."""

    hosts: Hosts
    placed: Placed
    machines: Mapping[str, Machine]
    journal: Journal
    quick: bool = False
    _regions: dict[Spot, Region] = field(default_factory=dict)
    _mounted: dict[Spot, Mounted] = field(default_factory=dict)
    canaries: Canaries = field(default_factory=Canaries)

    @property
    def region_bytes(self) -> int:
        """How much of a volume is written, and read at random."""
        return QUICK_REGION_BYTES if self.quick else REGION_BYTES

    def spot_of(self, turn: Turn) -> Spot:
        """Return where a turn is measured: repeats take the hosts in turn."""
        spots = self.placed.spots[turn.trial.index]
        return spots[turn.repeat % len(spots)]


@dataclass
class Measurement:
    """The stage of a measurement."""

    site: MeasuringSite
    mode: Mode = "measure"
    told: list[str] = field(default_factory=list)
    """Messages about what could not be changed back; read after `close`."""

    def begin(self, emit: Emit) -> None:
        """Undo what a killed start of this run has left; then change what the plan says."""
        for text in self._undone():
            emit(Warned(text))
        settings.apply_all(self.site.hosts, self.site.machines, self.site.journal, emit)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn. A failure of the turn is its result."""
        del run
        started = utc_now()
        try:
            return _measure(self.site, turn, frame, started, emit)
        except DisklabError as error:
            emit(Warned(str(error).partition("\n")[0], *turn.key))
            failed = outcome.failed(frame, turn, None, error, started)
            return failed.model_copy(update={"host": str(self.site.spot_of(turn))})

    def close(self) -> None:
        """Change back what was changed, and remove what was made."""
        self.told += self._undone()

    def _undone(self) -> list[str]:
        return undo_all(self.site.journal, dict(self.site.machines))


def _measure(
    site: MeasuringSite, turn: Turn, frame: Frame, started: str, emit: Emit
) -> TrialResult:
    spot = site.spot_of(turn)
    machine = site.machines[spot.host]
    asked = trial_of(turn.trial)
    duration_s = min(asked.duration_s, turn.effort.longest_run_s)
    warm_up_s = turn.spec.workload.warm_up_s * duration_s / asked.duration_s
    plan = Plan((asked.cell,), duration_s, site.region_bytes, ENGINE, warm_up_s=warm_up_s)
    phases: list[Phase] = []

    directory = _directory(site, spot, asked.filesystem, emit, phases)
    region = _region(site, spot, directory, plan, emit, phases)
    if turn.spec.device is not None and "read_ahead" in site.hosts.file.hosts[spot.host].may_change:
        asked_bytes = turn.spec.device.volume.read_ahead_bytes
        settings.ask_read_ahead(spot.host, machine, directory, asked_bytes, site.journal)
    job = Job(FIO, region.path, writable=True, plan=plan, on=machine)
    emit(PhaseStarted("condition", f"{spot}: a short probe"))
    before = site.canaries.take(str(spot), machine, job.path, plan.size_bytes)
    cpu = cpu_line(machine)
    emit(PhaseStarted("measure", f"{spot}: {asked.cell.title}"))
    subject = Subject(str(spot), region, Known(promised(asked.disk)))
    cell = probe_cell(job, subject, asked.cell, ticking(emit, "measure"))
    stolen = stolen_ratio(cpu, cpu_line(machine))
    after = site.canaries.take(str(spot), machine, job.path, plan.size_bytes)
    phases.append(Phase(name="measure", duration_s=round(cell.measurement.runtime_s, 3)))
    result = device.result_of(turn, frame, started, cell)
    seen = {
        "host": str(spot),
        "phases": phases,
        "canary_iops": {"before": round(before, 1), "after": round(after, 1)},
        "stolen_ratio": round(stolen, 4),
        "clock": in_ms(machine.clock()),
    }
    told = [*_neighbours(site, spot, (before, after), stolen), *_other_disk(cell, asked)]
    return result.model_copy(update={**seen, "warnings": [*result.warnings, *told]})


def _directory(
    site: MeasuringSite, spot: Spot, filesystem: Filesystem, emit: Emit, phases: list[Phase]
) -> str:
    """Return where the files of a spot lie; a disk is formatted and mounted when it is not."""
    volume, machine = volume_of(site.hosts, spot), site.machines[spot.host]
    if volume.directory is not None:
        return volume.directory
    standing = site._mounted.get(spot)
    if standing is not None and standing.filesystem == filesystem:
        return standing.directory
    if standing is not None:
        # Our file on it first, then the mount, then its folder.
        ours = [one for one in site.journal.left() if one.path.startswith(standing.directory + "/")]
        for change in [*ours, *standing.changes]:
            site.journal.undo(change, machine)
        site._regions.pop(spot, None)
        site._mounted.pop(spot, None)
    emit(PhaseStarted("build", f"{spot}: creating and mounting {filesystem}"))
    begun = time.monotonic()
    place = site.hosts.place("hosts", spot.host, "volumes", spot.volume)
    directory, changes = format_and_mount(machine, volume, filesystem, site.journal, place)
    site._mounted[spot] = Mounted(filesystem, directory, changes)
    phases.append(Phase(name="build", duration_s=round(time.monotonic() - begun, 3)))
    return directory


def _region(  # noqa: PLR0913, PLR0917 - where, what, and who is told
    site: MeasuringSite,
    spot: Spot,
    directory: str,
    plan: Plan,
    emit: Emit,
    phases: list[Phase],
) -> Region:
    """Return the file of a spot, written in full; the first turn on it makes it."""
    if spot in site._regions:
        return site._regions[spot]
    machine = site.machines[spot.host]
    emit(PhaseStarted("fill", f"{spot}: writing {format_size(plan.size_bytes)} before reading it"))
    took = 0.0

    def tick(elapsed_s: float) -> None:
        nonlocal took
        took = elapsed_s
        emit(Progress("fill", elapsed_s, None, None, None))

    region = make_region(machine, str(spot), directory, plan, site.journal, tick)
    phases.append(Phase(name="fill", duration_s=round(took, 3)))
    site._regions[spot] = region
    return region


def _neighbours(
    site: MeasuringSite, spot: Spot, figures: Sequence[float], stolen: float
) -> list[str]:
    """Return what was seen of others on the same hardware."""
    told = site.canaries.doubts(str(spot), figures)
    if stolen > STOLEN_RATIO:
        told.append(
            f"the host below took {stolen:.0%} of the CPU time of {spot.host} (steal): these "
            "figures include the effect of its neighbours"
        )
    return told


def _other_disk(cell: CellResult, asked: DeviceTrial) -> list[str]:
    """Return that a disk cannot be the one that the experiment names, when it is far too fast."""
    owed = cell.promise
    # One I/O at a time is a latency, and a real disk's may be lower than the published one.
    if owed is None or asked.cell.load.outstanding == 1:
        return []
    if cell.measurement.iops <= FAR_TOO_FAST * owed.iops:
        return []
    return [
        f"{cell.measurement.iops:,.0f} IOPS are more than {asked.disk.disks} can do "
        f"({owed.iops:,.0f}): this volume is another disk, or a cache served it"
    ]
