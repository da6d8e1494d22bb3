"""The events of a run, stored as they happen: `events.jsonl` in its folder.

One JSON object a line: `t` (UTC, ISO 8601, milliseconds), `event` (the type's name), and the
event's own fields; what happens inside a trial has its `trial` and `repeat`. The terminal shows
the same events, and the live page and the metrics read them from here. A result is not repeated:
it lies in `trials.jsonl`. The file is appended to and never waited for: what counts is there.
"""

from __future__ import annotations

import enum
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from disklab import durable, reading
from disklab.errors import UserError
from disklab.events import Event, PlannedTrial, RunStarted, TrialFinished, TrialStarted
from disklab.folders import Inside

# What somebody beside a run wants of it: to pause or to stop after the trial under way.
#
# A wish is a small file in the run's folder, which the run reads between two trials. No signal, no
# address: who may write to the folder may ask.

WISH = "after-trial"


class Wish(enum.Enum):
    """What becomes of a run after the trial under way."""

    GO_ON = "go-on"
    PAUSE = "pause"
    STOP = "stop"
    """As Ctrl-C between two trials: everything is stored, `--resume` goes on."""


def wish_of(folder: Path) -> Wish:
    """Return what is wanted of a run; what cannot be read wants nothing."""
    try:
        return Wish(reading.contents(Inside(folder, WISH), reading.WISH).decode("ascii").strip())
    except (UserError, ValueError):
        return Wish.GO_ON


def wish(folder: Path, wanted: Wish) -> None:
    """Leave word for a run. Raises OSError when its folder cannot be written."""
    if wanted is Wish.GO_ON:
        Inside(folder, WISH).remove()
    else:
        durable.write_whole(Inside(folder, WISH), wanted.value + "\n")


# How long a run still takes: the plan's guess, corrected by what trials took so far.

# The guess of the plan gives way to what trials took, the more of them there are.
WEIGHT_OF_PLAN = 2.0


class TimeLeft:
    """The time left of one start of a run."""

    def __init__(self, planned: Iterable[PlannedTrial]) -> None:
        self._expected = {(one.trial, one.repeat): one.expected_s for one in planned}
        self._planned_done_s = 0.0
        self._done_s = 0.0
        self._phase_left_s = 0.0

    def phase_began(self) -> None:
        """Take a phase of the trial under way, of which nothing is known yet."""
        self._phase_left_s = 0.0

    def progressed(self, done: float | None, of: float | None, t_s: float | None) -> None:
        """Take how much of a phase is done after `t_s`: what is left of it takes as long."""
        if done and of and t_s:
            self._phase_left_s = max(of - done, 0.0) * t_s / done

    def finished(self, key: tuple[int, int], took_s: float) -> None:
        """Take a trial and repeat that ended, and how long it took."""
        self.phase_began()
        expected = self._expected.pop(key, None)
        if expected is not None:
            self._planned_done_s += expected
            self._done_s += took_s

    def left_s(self, under_way: tuple[int, int] | None = None, in_trial_s: float = 0.0) -> float:
        """Return the seconds that what is left will take.

        `under_way`: the trial and repeat that goes on, for so long already; None: it counts whole.
        One that takes longer than expected makes those behind it longer, too. It takes at least
        what its phase will.
        """
        planned = sum(self._expected.values())
        weight = WEIGHT_OF_PLAN * (planned / len(self._expected) if self._expected else 1.0)
        done_s, planned_done_s = self._done_s + weight, self._planned_done_s + weight
        factor = done_s / planned_done_s
        current = 0.0 if under_way is None else self._expected.get(under_way, 0.0)
        if current and in_trial_s > current * factor:
            factor = (done_s + in_trial_s) / (planned_done_s + current)
        least = 0.0 if under_way is None else self._phase_left_s
        return (planned - current) * factor + max(current * factor - in_trial_s, least)


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

    def __exit__(self, *_: object) -> None:
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
