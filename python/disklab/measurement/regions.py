"""The file that fio measures in on a host: made, written in full, removed by the journal."""

from __future__ import annotations

import secrets
from pathlib import Path, PurePosixPath

from disklab.errors import MachineError
from disklab.machines.protocol import Command, Machine
from disklab.measurement.fio_on import FioOn
from disklab.measurement.journal import OURS, Journal
from disklab.probe.cells import MIB, Engine, Plan
from disklab.probe.fio import Job, Tick
from disklab.probe.target import SPARE_BYTES, Region

ENGINE: Engine = "libaio"
FIO = Path("fio")
"""Found on the host's own PATH."""


def make_region(  # noqa: PLR0913, PLR0917 - where, what, and who is told
    machine: Machine, shown: str, directory: str, plan: Plan, journal: Journal, tick: Tick
) -> Region:
    """Make a file of our own in a directory and write all of it. Raises MachineError."""
    _check_space(machine, directory, plan)
    path = PurePosixPath(directory) / f"{OURS}{journal.folder.name}-{secrets.token_hex(8)}"
    journal.note(machine.name, "remove_file", str(path))
    machine.files.write(path, b"")
    region = Region(
        path=Path(path),
        shown=shown,
        size_bytes=plan.size_bytes,
        writable=True,
        condition="own file, written in full before the first read",
    )
    Job(FIO, region.path, writable=True, plan=plan, runner=FioOn(machine)).fill(tick)
    return region


def _check_space(machine: Machine, directory: str, plan: Plan) -> None:
    ended = machine.run(Command(["stat", "-f", "-c", "%a %S", "--", directory]))
    words = ended.stdout.split()
    if ended.code != 0 or len(words) != 2:
        raise MachineError(f"{machine.name}: {directory}: {ended.said}")
    free = int(words[0]) * int(words[1])
    if free < plan.size_bytes + SPARE_BYTES:
        raise MachineError(
            f"{machine.name}: {directory} has {free // MIB} MiB free, and "
            f"{(plan.size_bytes + SPARE_BYTES) // MIB} MiB are needed; make room, or name another "
            "directory in the hosts file"
        )
