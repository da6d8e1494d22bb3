"""Processes of databases that we started, found through the kernel and not through our notes.

Each is started with a mark in its environment, the run directory of its node; its children inherit
it. A process is ours only while the kernel shows that mark, with a directory below our own as this
mount namespace has it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.engine.process import end_process

MARK = "DISKLAB_NODE"


@dataclass(frozen=True)
class MarkedProcess:
    """A process that carries the mark of a node."""

    pid: int
    node: Path
    """The node's run directory."""

    def is_ours(self) -> bool:
        """Return whether the process with this number carries the mark at this moment."""
        return _mark(self.pid) == str(self.node)

    def end(self, sign: signal.Signals, seconds: float) -> bool:
        """Send a signal and wait for its end; returns whether it has ended."""
        return end_process(self.pid, self.is_ours, sign, seconds)


def marked_processes(below: Path) -> list[MarkedProcess]:
    """Return the living processes marked with a directory below this one, oldest number first."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        mark = _mark(int(process.name))
        if mark is None or not Path(mark).is_relative_to(below):
            continue
        if _sees_ours(int(process.name), Path(mark)):
            found.append(MarkedProcess(int(process.name), Path(mark)))
    return sorted(found, key=lambda one: one.pid)


def _sees_ours(pid: int, node: Path) -> bool:
    """Return whether a path means the same directory to a process as to us."""
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return True
        theirs, ours = os.stat(f"/proc/{pid}/root{node}"), os.stat(node)
        return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
    return False


def _mark(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    start = f"{MARK}=".encode()
    found = next((word for word in words if word.startswith(start)), None)
    return None if found is None else os.fsdecode(found[len(start) :])
