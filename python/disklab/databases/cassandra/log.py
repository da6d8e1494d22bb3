"""What Cassandra's log says about a failure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

# Enough for the lines of one failure; the whole logs are in the run folder.
MOST_BYTES = 256 << 10
MOST_LINES = 12
_LEVEL = re.compile(r"^(WARN|ERROR|FATAL)\b")
_LINE = re.compile(r"^(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b")
_CAUSE = re.compile(r"^(Caused by: |[\w.$]+(Exception|Error)\b)")
# How Cassandra and the JVM say that a disk is full.
_FULL = re.compile(
    r"No space left on device|[Ii]nsufficient disk space|FSDiskFullWriteError"
    r"|[Nn]ot enough (disk )?space"
)


@dataclass(frozen=True)
class NodeLog:
    """The logs of one node since its last start."""

    log: Path
    output: Path
    """What the JVM wrote to its standard output and error."""
    log_start: int = 0
    output_start: int = 0

    @classmethod
    def from_now(cls, log: Path, output: Path) -> NodeLog:
        """Return the logs from here on: what an earlier start said is not this one's failure."""
        return cls(log, output, _size(log), _size(output))

    def excerpt(self) -> str:
        """Return the last warnings and errors with their causes, and a full disk in plain words.

        A node that dies before it logs says why on its standard output.
        """
        said = self._said()
        lines = _relevant(self._logged())[-MOST_LINES:] or said[-MOST_LINES:]
        head = []
        if self.is_full():
            head = ["a volume of the node is full: choose a larger disk or fewer rows"]
        return "\n".join([*head, *(line[:400] for line in lines), f"(the whole log: {self.log})"])

    def is_full(self) -> bool:
        """Return whether the node has met a full disk."""
        return any(_FULL.search(line) for line in [*self._logged(), *self._said()])

    def _logged(self) -> list[str]:
        return _tail(self.log, self.log_start)

    def _said(self) -> list[str]:
        return _tail(self.output, self.output_start)


def _relevant(lines: list[str]) -> list[str]:
    found = []
    inside = False
    for line in lines:
        if _LINE.match(line):
            inside = _LEVEL.match(line) is not None
            if inside:
                found.append(line)
        elif inside and _CAUSE.match(line):
            found.append(line)
    return found


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _tail(file: Path, start: int) -> list[str]:
    """Return the lines from a place on, the last ones when there are many."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(size - MOST_BYTES, start))
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[0 if size - MOST_BYTES <= start else 1 :]
