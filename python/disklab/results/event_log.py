"""The events of a run, stored as they happen: `events.jsonl` in its folder.

One JSON object a line: `t` (UTC, ISO 8601, milliseconds), `event` (the type's name), and the
event's own fields; what happens inside a trial has its `trial` and `repeat`. The terminal shows
the same events, and the live page and the metrics read them from here. A result is not repeated:
it lies in `trials.jsonl`. The file is appended to and never waited for: what counts is there.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from disklab import reading
from disklab.errors import UserError
from disklab.events import Event, RunStarted, TrialFinished, TrialStarted
from disklab.folders import Inside
from disklab.results import durable

EVENTS = "events.jsonl"
# A run of ten hours writes about 10 MB; one read takes this much at most, the rest follows.
MOST_BYTES_AT_ONCE = 4 << 20
LEFT_OUT = frozenset({"result", "folder", "report"})
"""The result lies in `trials.jsonl`; folders of this machine are no part of a run."""


class EventLog:
    """A subscriber that stores every event of one run. Call it from any thread."""

    def __init__(self, folder: Path) -> None:
        """Append to the run's file, which is made when there is none. Raises MachineError."""
        with durable.writing_to(folder):
            descriptor = Inside(folder, EVENTS).appended()
        torn = not _ends_whole(descriptor)
        self._file: TextIO = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)
        if torn:
            # A killed run's last line stays for who looks, and is no part of the next one.
            with suppress(OSError):
                self._file.write("\n")
        self._lock = threading.Lock()
        self._in: dict[str, int] = {}

    def __enter__(self) -> EventLog:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        # A full disk may hold what was not written: closing tries it again.
        with self._lock, suppress(OSError):
            self._file.close()

    def __call__(self, event: Event) -> None:
        """Store an event. A full disk loses the line and not the measurement."""
        with self._lock:
            if self._file.closed:
                return
            if isinstance(event, TrialStarted):
                self._in = {"trial": event.trial, "repeat": event.repeat}
            line = json.dumps(stored(event, self._in), ensure_ascii=False, default=str)
            if isinstance(event, TrialFinished):
                self._in = {}
            try:
                self._file.write(line + "\n")
            except OSError:
                return


def stored(event: Event, inside: dict[str, int]) -> dict[str, Any]:
    """Return the object of an event that happens inside a trial and repeat, or in none (`{}`)."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    found: dict[str, Any] = {"t": now, "event": type(event).__name__}
    if not isinstance(event, RunStarted):
        found.update(inside)
    if isinstance(event, TrialFinished):
        found.update(_figures(event.result))
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in LEFT_OUT or value is None:
            continue
        found[field.name] = _plain(value)
    return found


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the few figures of a result that who follows a run wants to see."""
    latency = result.get("latency_ms") or {}
    reason = result.get("reason") or {}
    why = [reason["rule"]] if reason.get("rule") else list(result.get("invalid_reasons") or [])
    return {
        "factors": dict(result.get("factors") or {}),
        "ops_per_s": result.get("ops_per_s"),
        "p50_ms": latency.get("p50"),
        "p99_ms": latency.get("p99"),
        "why": why,
    }


def _plain(value: Any) -> Any:
    """Return a value of an event as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return dict(value) if hasattr(value, "items") else value


@dataclass(frozen=True)
class Read:
    """What was read of a run's events from some offset on."""

    events: tuple[dict[str, Any], ...]
    offset: int
    """Where the next read goes on, in bytes."""
    more: bool
    """Whether whole lines are left that were not read this time."""
    problem: str = ""
    """Why there are none, where a file stands there that cannot be read."""


def read_events(folder: Path, offset: int = 0) -> Read:
    """Return the whole lines from an offset on, at most 4 MiB; an unreadable line is left out.

    A run without events, or a file that became shorter, gives none from its beginning.
    """
    try:
        with reading.opened(Inside(folder, EVENTS), reading.EVENTS) as file:
            size = file.seek(0, 2)
            file.seek(offset if 0 <= offset <= size else 0)
            data = file.read(MOST_BYTES_AT_ONCE)
            begun = file.tell() - len(data)
    except (OSError, UserError) as error:
        rule = error.problems[0].rule if isinstance(error, UserError) else str(error)
        return Read((), 0, more=False, problem=rule if Inside(folder, EVENTS).exists() else "")
    whole = data.rfind(b"\n") + 1
    if not whole and len(data) == MOST_BYTES_AT_ONCE:
        whole = len(data)  # no event is that long: damage, which is passed over
    return Read(tuple(_parsed(data[:whole])), begun + whole, more=begun + len(data) < size)


def _parsed(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("event"), str):
            yield found


def _ends_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
