"""The course of a repeat: a line for each second of load, then one for the whole.

`histograms/<trial>-<repeat>.jsonl` holds what the load engine told: every interval with its
histograms, and the whole run's. Lines of several generators stand side by side and are merged by
the reader.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter, TextIOWrapper
from typing import Annotated, Any, TextIO

from pydantic import Field

from disklab import durable, reading
from disklab.folders import Inside
from disklab.results.figures import Amount, Count, Number, Record
from disklab.results.histogram import Histogram, HistogramError, Layout, decode, merged
from disklab.results.records import STRETCHES, TrialResult

# What a percentile consists of, in words: the largest stretches of an operation's way first.

LEAST_SHARE = 0.1
"""Of a percentile: smaller stretches are not said."""
MOST_SAID = 3


STORAGE = ("limits", "disk", "slots", "held")
"""Stretches of an operation's way that disks decide: their service, queues at their limits, and
what waits behind both for a slot, the log or a memtable."""


def storage_p99_ms(tail: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return what of p99 is storage, of a cell without pauses; None: nobody tells."""
    found = tail.get("p99")
    return None if not found else sum(found.get(name, 0.0) for name in STORAGE)


def stretches(results: Sequence[TrialResult], percentile: str) -> dict[str, float]:
    """Return the mean milliseconds by stretch over the repeats that tell it, in their order."""
    told = [one.tail_ms[percentile] for one in results if percentile in one.tail_ms]
    return {
        name: sum(one.get(name, 0.0) for one in told) / len(told)
        for name in STRETCHES
        if any(name in one for one in told)
    }


def largest(found: Mapping[str, float]) -> str:
    """Return the stretches that matter: `garbage collection 61 %, disk 23 %`; empty: none."""
    whole = sum(found.values())
    if whole <= 0:
        return ""
    ordered = sorted(found.items(), key=lambda one: -one[1])
    return ", ".join(
        f"{STRETCHES[name]} {share * 100:.0f} %"
        for name, span in ordered[:MOST_SAID]
        if (share := span / whole) >= LEAST_SHARE
    )


SYNC_EVERY_LINES = 60
"""A crash of the machine loses at most a minute of a repeat that has to be run again anyway."""
LONGEST_S = 1e8
"""Three years: no repeat lasts that long."""


class Line(Record):
    """A line of the file."""

    kind: str = ""


class Second(Line):
    """One interval of the load, as the engine's `progress` line tells it."""

    t_s: Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
    """Since the start of the phase, at the end of the interval."""
    phase: str = "measure"
    generator: Count = 0
    operations: Count = 0
    errors: Count = 0
    ops_per_s: Amount
    p50_ms: Number | None = None
    p99_ms: Number | None = None
    histograms: dict[str, str] = Field(default_factory=dict)
    """Operation -> base64 HDR V2 of response times in nanoseconds."""


class Whole(Line):
    """The histograms of the whole measuring phase, as the engine's `done` line tells them."""

    generator: Count = 0
    elapsed_s: Number = 0.0
    response: dict[str, str] = Field(default_factory=dict)
    service: dict[str, str] = Field(default_factory=dict)
    lateness: str | None = None


class SecondsWriter:
    """Writes the file of one repeat as the lines arrive; holds nothing back in memory."""

    def __init__(self, path: Inside) -> None:
        """Make the file; it must not be there."""
        self._folder = path.folder
        self._file: TextIO = TextIOWrapper(BufferedWriter(path.made()), encoding="utf-8")
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
        try:
            with durable.writing_to(self._folder):
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            # What could not be written is gone: closing would try it again.
            with suppress(OSError):
                self._file.close()

    def __enter__(self) -> SecondsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, record: Record) -> None:
        content = record.model_dump(exclude_none=True, exclude={"event", "kind"})
        with durable.writing_to(self._folder):
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


def read_course(path: Inside) -> Course:
    """Return a repeat's course; lines that cannot be read are counted and left out."""
    seconds: list[Second] = []
    wholes: list[Whole] = []
    lines = 0
    for lines, one in enumerate(stream(path), start=1):  # noqa: B007 - counted after the loop
        if isinstance(one, Second):
            seconds.append(one)
        elif isinstance(one, Whole):
            wholes.append(one)
    kept = tuple(_of_one_layout(wholes))
    unreadable = lines - len(seconds) - len(kept)
    return Course(tuple(sorted(seconds, key=lambda one: one.t_s)), kept, unreadable)


def stream(path: Inside) -> Iterator[Second | Whole | None]:
    """Yield what each line tells, one at a time; None for a line that cannot be read."""
    if path.exists():
        yield from map(_told, reading.lines(path, reading.COURSE))


def _told(line: bytes | None) -> Second | Whole | None:
    kind = None if line is None else KINDS.get(_kind(line))
    if line is None or kind is None:
        return None
    try:
        return reading.parse(kind, line)
    except reading.NotAsExpectedError:
        return None


def read_wholes(path: Inside) -> tuple[Whole, ...]:
    """Return the whole phase's histograms alone, without reading the seconds."""
    if not path.exists():
        return ()
    lines = reading.lines(path, reading.COURSE)
    told = [_told(line) for line in lines if line is not None and _kind(line) == b"whole"]
    return tuple(_of_one_layout(one for one in told if isinstance(one, Whole)))


def _of_one_layout(wholes: Iterable[Whole]) -> Iterator[Whole]:
    """Yield those whose histograms can all be read and added to the first one's."""
    layout: Layout | None = None
    for one in wholes:
        texts = [text for text in (*one.response.values(), *one.service.values()) if text]
        try:
            found = {decode(text).layout for text in texts}
        except HistogramError:
            continue
        if len(found | ({layout} if layout else set())) <= 1:
            layout = next(iter(found), layout)
            yield one


KINDS: dict[bytes, type[Second] | type[Whole]] = {b"second": Second, b"whole": Whole}


def _kind(line: bytes) -> bytes:
    """Return the kind of a line, which comes first in it, as the writer writes it."""
    return line[9:].split(b'"', 1)[0] if line.startswith(b'{"kind":"') else b""


def _together(parts: list[dict[str, str]], operation: str | None) -> Histogram | None:
    texts = [
        text for part in parts for name, text in part.items() if operation in (None, name) and text
    ]
    return merged(decode(text) for text in texts) if texts else None
