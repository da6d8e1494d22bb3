"""Watching a bed once a second while a turn runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from disklab.engine import Control
from disklab.errors import DisklabError, MachineError
from disklab.hosts.attach import Attached
from disklab.hosts.protocol import Node
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
from disklab.telemetry.sources import Metric, node_suffix


def _alone(pid: int | None) -> list[int]:
    return [] if pid is None else [pid]


class OfDisk:
    """A device of a node, wherever it is: moved to another VM it is another device."""

    def __init__(self, node: Node, volume: str, suffix: str) -> None:
        self.name = f"disk {volume}{suffix}"
        self._node = node
        self._volume = volume
        self._at: Attached | None = None
        self._source: Disk | None = None

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield what `Disk` does; nothing while it is being moved."""
        at = self._node.attached.get(self._volume)
        if at is None:
            return
        if at is not self._at or self._source is None:
            self._at, self._source = at, Disk(self.name.removeprefix("disk "), Path(at.device))
        yield from self._source.sample(elapsed_s, slow)


class OfEmulator:
    """A volume of a node as its emulator counts it; one that was moved counts from zero."""

    def __init__(self, node: Node, volume: str, suffix: str) -> None:
        self.name = f"emulator {volume}{suffix}"
        self._node = node
        self._volume = volume
        self._suffix = suffix
        self._at: Attached | None = None
        self._source: Emulator | None = None
        self._undo = ExitStack()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield what `Emulator` does; nothing while the volume is being moved."""
        at = self._node.attached.get(self._volume)
        if at is None:
            return
        if at is not self._at or self._source is None:
            self.close()
            control = self._undo.enter_context(Control(self._node.place.socket))
            show = partial(control.show, self._volume)
            self._at, self._source = at, Emulator(self._volume, show, self._suffix)
        yield from self._source.sample(elapsed_s, slow)

    def close(self) -> None:
        """Close its connection."""
        self._undo.close()


@contextmanager
def watched(bed: Bed, notes: Notes) -> Iterator[None]:
    """Watch processes, disks, emulator, page cache and database inside the block."""
    with ExitStack() as undo:
        database = DatabaseWatch(bed.database)
        sources: list[Source] = [
            Machine(),
            ProcessCpu("client", lambda: _alone(bed.client_pid)),
            ProcessCpu("server", lambda: database.pids),
            ProcessCpu("emulator", lambda: [one.pid for one in bed.nodes if one.attached]),
            database,
        ]
        sources += bed.sources(undo)
        for number, node in enumerate(bed.nodes, 1):
            suffix = node_suffix(number)
            for volume in node.attached:
                emulator = OfEmulator(node, volume, suffix)
                undo.callback(emulator.close)
                sources += [OfDisk(node, volume, suffix), emulator]
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
