"""One probe of one place: by this process, or by one that has the rights for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from disklab.engine import Envelope
from disklab.errors import Problem, UserError
from disklab.hosts.filesystem import Filesystem
from disklab.probe import fio
from disklab.probe.cells import Plan
from disklab.probe.emulated import known_of, made_for_probe, owner
from disklab.probe.known import Disk, placed
from disklab.probe.run import CellResult, Known, Listener, Subject, probe, runnable
from disklab.probe.target import opened, region_of


@dataclass(frozen=True)
class Emulated:
    """A disk that is made for the probe, and removed."""

    disk: Disk
    name: str
    """What the results call it."""
    plan: Plan
    filesystem: Filesystem | None = None
    """The probe uses a file on it; None: the device."""


@dataclass(frozen=True)
class At:
    """A directory, a file or a device that is there."""

    path: Path
    plan: Plan
    promised: Disk | None = None
    """What it should be, where it is no disk of ours."""
    destroy_data: bool = False


@dataclass(frozen=True)
class Probed:
    """What was measured."""

    results: tuple[CellResult, ...]
    envelope: Envelope | None = None
    """What this machine can do, of an emulated disk."""


Wanted = Emulated | At
Look = Callable[[Wanted, Listener], Probed]


def look_here(wanted: Wanted, tell: Listener) -> Probed:
    """Probe in this process. Raises UserError for what cannot be probed, and MachineError."""
    plan = wanted.plan
    program = fio.find_fio(plan.engine)
    fio.check_memory(plan)
    if isinstance(wanted, Emulated):
        with made_for_probe(wanted.disk, wanted.name, plan, wanted.filesystem) as subject:
            results = probe(program, subject, plan, tell)
            return Probed(results, subject.known.envelope if subject.known else None)
    with opened(wanted.path) as at:
        target, promised = owner(at), wanted.promised
        known = Known(placed(promised)) if promised else None
        if target is not None:
            known = known_of(target)  # what the emulator does says more than what it should be
        ours = target is not None
        with region_of(at, plan, ours=ours, destroy_data=wanted.destroy_data) as region:
            subject = Subject(region.shown, region, known)
            check_cells_remain(plan, subject)
            return Probed(probe(program, subject, plan, tell))


def check_cells_remain(plan: Plan, subject: Subject) -> None:
    """Refuse a plan of writes alone where nothing may be written."""
    if not runnable(plan, subject.region).cells:
        rule = "disklab never writes to what it did not create, and the plan has only writes"
        way_out = "choose --rw randread, or name a directory where the probe makes its own file"
        raise UserError(Problem("--rw", subject.region.shown, rule, way_out))
