"""Watching a bed once a second while a turn runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from disklab.engine import Control
from disklab.errors import DisklabError, MachineError
from disklab.procedures.bed import Bed
from disklab.procedures.record import BETWEEN, Notes
from disklab.telemetry import (
    DatabaseWatch,
    Disk,
    Emulator,
    Machine,
    Memory,
    ProcessCpu,
    Sampler,
    Source,
)
from disklab.telemetry.sources import node_suffix


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
            ProcessCpu("emulator", lambda: [node.pid for node in bed.nodes]),
            database,
        ]
        sources += bed.sources(undo)
        for number, node in enumerate(bed.nodes, 1):
            suffix = node_suffix(number)
            for volume, attached in node.attached.items():
                sources.append(Disk(f"{volume}{suffix}", Path(attached.device)))
                control = undo.enter_context(Control(node.place.socket))
                sources.append(Emulator(volume, control, suffix))
        for number, group in enumerate(bed.groups, 1):
            if group is not None:
                sources.append(Memory(f"n{number}", group))

        def noticed(error: DisklabError) -> None:
            # The death of a database or a disk ends a load; a blind source of telemetry does not.
            if isinstance(error, MachineError):
                bed.give_up(error)

        notes.credits.time_dilation = bed.time_dilation
        notes.sampler = undo.enter_context(Sampler(sources, notes.saw, noticed))
        notes.sampler.enter(BETWEEN)
        yield
