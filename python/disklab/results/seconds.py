"""The course of a repeat: a line for each second of load, then one for the whole.

`histograms/<trial>-<repeat>.jsonl` holds what the load engine told: every interval with its
histograms, and the whole run's. Lines of several generators stand side by side and are merged by
the reader.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import Field, ValidationError

from disklab.results.histogram import Histogram, decode, merged
from disklab.results.records import Record

SYNC_EVERY_LINES = 60
"""A crash of the machine loses at most a minute of a repeat that has to be run again anyway."""


class Line(Record):
    """A line of the file."""

    kind: str = ""


class Second(Line):
    """One interval of the load, as the engine's `progress` line tells it."""

    t_s: float
    """Since the start of the phase, at the end of the interval."""
    phase: str = "measure"
    generator: int = 0
    operations: int = 0
    errors: int = 0
    ops_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    histograms: dict[str, str] = Field(default_factory=dict)
    """Operation -> base64 HDR V2 of response times in nanoseconds."""


class Whole(Line):
    """The histograms of the whole measuring phase, as the engine's `done` line tells them."""

    generator: int = 0
    elapsed_s: float = 0.0
    response: dict[str, str] = Field(default_factory=dict)
    service: dict[str, str] = Field(default_factory=dict)
    lateness: str | None = None


class SecondsWriter:
    """Writes the file of one repeat as the lines arrive; holds nothing back in memory."""

    def __init__(self, path: Path) -> None:
        """Make the file; it must not be there."""
        self._file: TextIO = path.open("x", encoding="utf-8")
        self._lines = 0

    def second(self, told: Second | dict[str, Any]) -> None:
        """Add an interval; a dict is the engine's `progress` line as it is."""
        record = told if isinstance(told, Second) else Second.model_validate(told)
        self._write("second", record)

    def whole(self, told: Whole | dict[str, Any]) -> None:
        """Add the whole run; a dict is the engine's `done` line as it is."""
        kept = Whole.model_fields
        record = (
            told
            if isinstance(told, Whole)
            else Whole.model_validate({key: told[key] for key in kept if key in told})
        )
        self._write("whole", record)

    def close(self) -> None:
        """End the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> SecondsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, record: Record) -> None:
        content = record.model_dump(exclude_none=True, exclude={"event", "kind"})
        self._file.write(json.dumps({"kind": kind, **content}, separators=(",", ":")) + "\n")
        self._file.flush()
        self._lines += 1
        if self._lines % SYNC_EVERY_LINES == 0:
            os.fsync(self._file.fileno())


@dataclass(frozen=True)
class Course:
    """What a repeat's file tells; empty when there is none, as with published results."""

    seconds: tuple[Second, ...] = ()
    """In the order of time; those of several generators side by side."""
    wholes: tuple[Whole, ...] = ()
    unreadable_lines: int = 0

    def response(self, operation: str | None = None) -> Histogram | None:
        """Return the response times in ns of one operation, or of all; None without any."""
        return _together([whole.response for whole in self.wholes], operation)

    def service(self, operation: str | None = None) -> Histogram | None:
        """Return the service times in ns of one operation, or of all; None without any."""
        return _together([whole.service for whole in self.wholes], operation)

    def measured(self) -> tuple[Second, ...]:
        """Return the seconds of the measuring phase."""
        return tuple(second for second in self.seconds if second.phase == "measure")


def read_course(path: Path) -> Course:
    """Return a repeat's course; lines that a crash tore are counted and left out."""
    seconds: list[Second] = []
    wholes: list[Whole] = []
    unreadable = 0
    for one in stream(path):
        if isinstance(one, Second):
            seconds.append(one)
        elif isinstance(one, Whole):
            wholes.append(one)
        else:
            unreadable += 1
    return Course(tuple(sorted(seconds, key=lambda one: one.t_s)), tuple(wholes), unreadable)


def stream(path: Path) -> Iterator[Second | Whole | None]:
    """Yield what each line tells, one at a time; None for a line that cannot be read."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            yield _told(line)


def _told(line: bytes) -> Second | Whole | None:
    try:
        return KINDS[_kind(line)].model_validate_json(line)
    except (KeyError, ValidationError):
        return None


def read_wholes(path: Path) -> tuple[Whole, ...]:
    """Return the whole phase's histograms alone, without reading the seconds."""
    if not path.exists():
        return ()
    with path.open("rb") as file:
        lines = [line for line in file if _kind(line) == b"whole"]
    found = []
    for line in lines:
        with suppress(ValidationError):
            found.append(Whole.model_validate_json(line))
    return tuple(found)


KINDS: dict[bytes, type[Second] | type[Whole]] = {b"second": Second, b"whole": Whole}


def _kind(line: bytes) -> bytes:
    """Return the kind of a line, which comes first in it, as the writer writes it."""
    return line[9:].split(b'"', 1)[0] if line.startswith(b'{"kind":"') else b""


def _together(parts: list[dict[str, str]], operation: str | None) -> Histogram | None:
    texts = [
        text for part in parts for name, text in part.items() if operation in (None, name) and text
    ]
    return merged(decode(text) for text in texts) if texts else None
