"""Watching a bed once a second while a turn runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from disklab.errors import DisklabError, MachineError
from disklab.procedures.bed import Bed
from disklab.procedures.record import BETWEEN, Notes
from disklab.telemetry import (
    DatabaseWatch,
    Machine,
    ProcessCpu,
    Sampler,
    Source,
)


def _alone(pid: int | None) -> list[int]:
    return [] if pid is None else [pid]


@contextmanager
def watched(bed: Bed, notes: Notes) -> Iterator[None]:
    """Watch processes, disks, emulator, page cache and database inside the block."""
    with ExitStack() as undo:
        database = DatabaseWatch(bed.database)
        sources: list[Source] = [
            Machine(),
            ProcessCpu("client", lambda: _alone(bed.client_pid)),
            ProcessCpu("server", lambda: database.pids),
            ProcessCpu("emulator", lambda: [one.pid for one in bed.hosts.nodes if one.attached]),
            database,
        ]
        sources += bed.hosts.sources(undo)

        def noticed(error: DisklabError) -> None:
            # The death of a database or a disk ends a load; a blind source of telemetry does not.
            if isinstance(error, MachineError):
                bed.give_up(error)

        notes.credits.time_dilation = bed.hosts.time_dilation
        notes.sampler = undo.enter_context(Sampler(sources, notes.saw, noticed))
        notes.sampler.enter(BETWEEN)
        yield
