"""The same probe on every host's disks, and which of them fall out of line."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from disklab import durable
from disklab.errors import Problem, UserError, refuse
from disklab.events import PhaseStarted
from disklab.machines.protocol import Machine
from disklab.measurement.canary import FIO, make_region
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Journal, state_folder, undo_all
from disklab.measurement.preparation import HOSTS, missing_directory, missing_programs
from disklab.measurement.settings import Spot, volume_of
from disklab.probe.cells import Plan
from disklab.probe.fio import Job
from disklab.probe.run import CellResult, Listener, Subject, probe_cells, ticking
from disklab.results import new_run_id

OUTLIER_RATIO = 0.25
"""Disks of one kind in one cloud do the same within a tenth; the studies' bad hosts had a seventh
of the others' IOPS. A quarter lies between the two."""
LEAST_FOR_OUTLIERS = 3
"""Of two that differ nobody knows which one is wrong."""


@dataclass(frozen=True)
class Outlier:
    """A disk that does much more or less than the others in one cell."""

    spot: str
    cell: str
    iops: float
    usual_iops: float
    """The median of all."""

    def __str__(self) -> str:
        """Return it on one line."""
        more = self.iops > self.usual_iops
        ratio = self.iops / self.usual_iops if more else self.usual_iops / self.iops
        return (
            f"{self.spot}: {self.cell}: {self.iops:,.0f} IOPS, {ratio:.1f} times "
            f"{'more' if more else 'fewer'} than usual here ({self.usual_iops:,.0f})"
        )


def spots_of(hosts: Hosts) -> list[Spot]:
    """Return the directories of the nodes: disks to be formatted are left alone by a probe."""
    found = [
        Spot(name, volume)
        for name, host in hosts.file.hosts.items()
        for volume, place in host.volumes.items()
        if host.role == "node" and place.directory is not None
    ]
    if not found:
        rule = "no node has a volume that is a directory"
        way_out = "name one: volumes: {data: /mnt/data}; a probe formats nothing"
        raise UserError(Problem(hosts.place("hosts"), str(hosts.document.path), rule, way_out))
    return found


def check(hosts: Hosts, machines: Mapping[str, Machine]) -> None:
    """Raise UserError with everything that is missing on the hosts."""
    missing: list[Problem] = []
    for name in dict.fromkeys(spot.host for spot in spots_of(hosts)):
        missing += missing_programs(hosts, name, machines[name])
    for spot in spots_of(hosts):
        directory = str(volume_of(hosts, spot).directory)
        missing += missing_directory(hosts, spot.host, spot.volume, directory, machines[spot.host])
    refuse(missing)


def probe_hosts(
    hosts: Hosts,
    machines: Mapping[str, Machine],
    plan: Plan,
    tell: Listener,
    warn: Callable[[str], None],
) -> list[CellResult]:
    """Probe each directory of each node, one after the other; leave nothing there."""
    results: list[CellResult] = []
    with _journal(hosts, machines, warn) as journal:
        for spot in spots_of(hosts):
            results += _probe(hosts, spot, machines[spot.host], plan, journal, tell)
            # One file at a time: a host may have less room than the sum.
            for change in journal.left():
                journal.undo(change, machines[change.host])
    return results


def _probe(  # noqa: PLR0913, PLR0917 - where, what, and who is told
    hosts: Hosts, spot: Spot, machine: Machine, plan: Plan, journal: Journal, tell: Listener
) -> Iterator[CellResult]:
    directory = str(volume_of(hosts, spot).directory)
    tell(PhaseStarted("fill", f"{spot}: writing before reading"))
    region = make_region(machine, str(spot), directory, plan, journal, ticking(tell, "fill"))
    job = Job(FIO, region.path, writable=True, plan=plan, on=machine)
    yield from probe_cells(job, Subject(str(spot), region), tell)


@contextmanager
def _journal(
    hosts: Hosts, machines: Mapping[str, Machine], warn: Callable[[str], None]
) -> Iterator[Journal]:
    """Yield a journal in a folder of its own, which goes when nothing is left to be undone."""
    folder = state_folder().parent / "probes" / new_run_id(str(hosts.document.path), "probe")
    folder.mkdir(parents=True, mode=0o700)
    durable.write_whole(folder / HOSTS, hosts.document.text)
    journal = Journal(folder)
    try:
        with durable.sole_writer(folder):
            try:
                yield journal
            finally:
                for text in undo_all(journal, dict(machines)):
                    warn(text)
    finally:
        if not journal.left():
            _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def outliers(results: Sequence[CellResult]) -> list[Outlier]:
    """Return what lies far from the median of its cell, the farthest first."""
    cells: dict[str, list[CellResult]] = defaultdict(list)
    for result in results:
        cells[result.cell.title].append(result)
    found = []
    for title, each in cells.items():
        if len(each) < LEAST_FOR_OUTLIERS:
            continue
        usual = median(one.measurement.iops for one in each)
        found += [
            Outlier(one.subject, title, one.measurement.iops, usual)
            for one in each
            if abs(one.measurement.iops / usual - 1) > OUTLIER_RATIO
        ]
    return sorted(found, key=lambda one: abs(one.iops / one.usual_iops - 1), reverse=True)
