"""What a database's logs say about a failure."""

from __future__ import annotations

import os
import re
import weakref
from dataclasses import dataclass, replace
from pathlib import Path

from disklab.folders import Inside

# Enough for the lines of one failure; the whole logs are in the run folder.
MOST_BYTES = 256 << 10
MOST_LINES = 12
MOST_LINE = 400
# How databases and the JVM say that a disk is full.
_FULL = re.compile(
    r"No space left on device|[Ii]nsufficient disk space|FSDiskFullWriteError"
    r"|[Nn]ot enough (disk )?space"
)


_ERROR = re.compile(r"error|fatal|fail|cannot|can't|invalid|unknown|no such|denied", re.IGNORECASE)


def reason(said: str) -> str:
    """Return the line in which a program says why it failed: its first error, else its last one."""
    lines = said.splitlines() or [""]
    return next((line for line in lines if _ERROR.search(line)), lines[-1])[:MOST_LINE]


@dataclass(frozen=True)
class LogForm:
    """How a database writes its log."""

    entry: re.Pattern[str]
    """The beginning of an entry; what follows until the next one belongs to it."""
    bad: re.Pattern[str]
    """An entry that is a warning or worse."""
    cause: re.Pattern[str]
    """A further line of a bad entry that says why."""
    error: re.Pattern[str]
    """An entry that is an error or worse, and no answer to somebody who came too early or late."""


@dataclass(frozen=True)
class NodeLog:
    """The logs of one node since its last start."""

    folder: Path
    name: str
    form: LogForm
    log_start: int = 0
    output_start: int = 0

    @property
    def log(self) -> Path:
        """What the database logs to a file of its own, where it does."""
        return self.folder / f"{self.name}-system.log"

    @property
    def output(self) -> Path:
        """What its process writes to standard output and error."""
        return self.folder / f"{self.name}-output.log"

    def from_now(self) -> NodeLog:
        """Return the logs from here on: what an earlier start said is not this one's failure."""
        return replace(self, log_start=_size(self.log), output_start=_size(self.output))

    def excerpt(self) -> str:
        """Return the last warnings and errors with their causes, and a full disk in plain words.

        A node that dies before it logs says why on its standard output.
        """
        logged, said = self._logged(), self._said()
        lines = self._relevant(logged) or self._relevant(said) or said
        head = []
        if self.is_full():
            head = ["a volume of the node is full: choose a larger disk or fewer rows"]
        whole = self.log if self.log.exists() else self.output
        shown = [line[:MOST_LINE] for line in lines[-MOST_LINES:]]
        return "\n".join([*head, *shown, f"(the whole log: {whole})"])

    def first_error(self) -> list[str]:
        """Return the first error with its causes: later ones follow from it. Empty: there is none.

        Of a log of many lines only the last ones are looked through.
        """
        for lines in (self._logged(), self._said()):
            relevant = self._relevant(lines)
            for number, line in enumerate(relevant):
                if self.form.error.match(line):
                    rest = relevant[number + 1 : number + MOST_LINES]
                    ends = (at for at, after in enumerate(rest) if self.form.entry.match(after))
                    return [line, *rest[: next(ends, len(rest))]]
        return []

    def why(self) -> str:
        """Return the first error as the end of a sentence; empty: there is none."""
        return "".join(f": {line[:MOST_LINE]}" for line in self.first_error()[:1])

    def is_full(self) -> bool:
        """Return whether the node has met a full disk."""
        return any(_FULL.search(line) for line in [*self._logged(), *self._said()])

    def _logged(self) -> list[str]:
        return tail(self.log, self.log_start)

    def _said(self) -> list[str]:
        return tail(self.output, self.output_start)

    def _relevant(self, lines: list[str]) -> list[str]:
        found = []
        inside = False
        for line in lines:
            if self.form.entry.match(line):
                inside = self.form.bad.match(line) is not None
                if inside:
                    found.append(line)
            elif inside and self.form.cause.match(line):
                found.append(line)
        return found


class FirstErrors:
    """What the servers of this process log as errors from here on.

    A client that loses its connection is told no more than that; its server knows why.
    """

    def __init__(self) -> None:
        self._from_here = {log: log.from_now() for log in _WRITTEN}

    def lines(self) -> list[str]:
        """Return each node's first error with its causes, its name before it."""
        found: dict[str, None] = {}
        for log in sorted(_WRITTEN, key=lambda log: log.name):
            for number, line in enumerate(self._from_here.get(log, log).first_error()):
                found[line if number else f"{log.name} logged: {line}"] = None
        return [line[:MOST_LINE] for line in found]


_WRITTEN: weakref.WeakSet[NodeLog] = weakref.WeakSet()


def watched(log: NodeLog) -> NodeLog:
    """Return a log that `FirstErrors` looks at as long as somebody holds it."""
    _WRITTEN.add(log)
    return log


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def tail(file: Path, start: int = 0, most_bytes: int = MOST_BYTES) -> list[str]:
    """Return the lines from a place on, the last ones when there are many; none: it has gone."""
    try:
        # A link or a pipe in the place of a log says nothing.
        with os.fdopen(Inside(file.parent, file.name).opened(), "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(size - most_bytes, start))
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[0 if size - most_bytes <= start else 1 :]
