"""What a page shows of a run, folded from its stored events: bounded, however long the run is."""

from __future__ import annotations

import os
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from disklab.events import PlannedTrial
from disklab.folders import Inside
from disklab.results.event_log import EVENTS, TimeLeft, read_events, wish_of
from disklab.results.figures import LARGEST
from disklab.results.records import Status
from disklab.terminal import plain

MOST_POINTS = 360
"""Of a run's course. When there are twice as many, neighbours become one."""
MOST_TRIALS = 300
MOST_WARNINGS = 50
MOST_LETTERS = 500
MOST_FACTORS = 20
SHORTEST_S = 0.001
MOST_SEEN = 2_000
"""Figures of a second: a cluster of three has some hundred."""
MOST_READS = 32
"""Reads of a file at one look; a longer one is read on at the next."""
STATUSES = frozenset(get_args(Status))
# Where the system does not tell who holds a lock: a running trial has an event a second, and
# nothing between two phases takes longer than a fill's silence.
SILENCE_S = 120.0

Event = dict[str, Any]


@dataclass
class Course:
    """Rate and p99 of what is measured, by wall-clock time, in at most twice MOST_POINTS points."""

    points: list[list[float | None]] = field(default_factory=list)
    """Seconds since 1970, operations a second, p99 in ms."""
    _each: int = 1
    _pending: list[list[float | None]] = field(default_factory=list)

    def add(self, t_s: float, rate: float, p99_ms: float | None) -> None:
        """Add a second."""
        self._pending.append([t_s, rate, p99_ms])
        if len(self._pending) < self._each:
            return
        self.points.append(_one(self._pending))
        self._pending = []
        if len(self.points) >= 2 * MOST_POINTS:
            self.points = [_one(self.points[at : at + 2]) for at in range(0, len(self.points), 2)]
            self._each *= 2


def _one(points: list[list[float | None]]) -> list[float | None]:
    """Return one point for several: their mean rate and their worst p99."""
    rates = [rate for _, rate, _ in points if rate is not None]
    tails = [p99 for _, _, p99 in points if p99 is not None]
    mean = sum(rates) / len(rates) if rates else None
    return [points[0][0], mean, max(tails) if tails else None]


class Followed:
    """One run's folder, followed: each `look` reads what was appended since the last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offset = 0
        self._problem = ""
        self._forget()

    def _forget(self) -> None:
        self._started: Event = {}
        self._ended: Event | None = None
        self._now: Event = {}
        self._time = TimeLeft(())
        self._key: tuple[int, int] | None = None
        self._trial_began_s = 0.0
        self._last_s = 0.0
        self._course = Course()
        self._seen: dict[str, float] = {}
        self._trials: deque[Event] = deque(maxlen=MOST_TRIALS)
        self._counts: Counter[str] = Counter()
        self._warnings: deque[str] = deque(maxlen=MOST_WARNINGS)

    @property
    def problem(self) -> str:
        """Why its events cannot be read; empty: they can, or there are none."""
        return self._problem

    def look(self) -> bool:
        """Read what is new; return whether there was something."""
        changed = False
        for _ in range(MOST_READS):
            found = read_events(self.folder, self._offset)
            changed = changed or found.problem != self._problem
            self._problem = found.problem
            if found.offset < self._offset:
                # Another file under the same name.
                self._forget()
                changed = True
            self._offset = found.offset
            for event in found.events:
                self._take(event)
            changed = changed or bool(found.events)
            if not found.more:
                break
        return changed

    def _take(self, event: Event) -> None:
        self._last_s = seconds_of(event.get("t")) or self._last_s
        # Names as in disklab.events; what a newer disklab adds is passed over.
        match event["event"]:
            case "RunStarted":
                self._started, self._ended, self._now = event, None, {}
                self._time = TimeLeft(planned_of(event))
            case "TrialStarted":
                self._trial_began_s = self._last_s
                trial, repeat = whole(event.get("trial")), whole(event.get("repeat"))
                self._key = None if trial is None or repeat is None else (trial, repeat)
                self._now = {
                    "position": whole(event.get("position")),
                    "of": whole(event.get("of")),
                    "name": name_of(event),
                }
            case "PhaseStarted":
                self._time.phase_began()
                self._now = {
                    **self._now,
                    "phase": text(event.get("phase")),
                    "detail": text(event.get("detail")),
                    "load": None,
                }
            case "Progress":
                self._progress(event)
            case "Waiting":
                waits = text(f"waiting until {event.get('name')}: {event.get('what')}")
                self._now = {**self._now, "detail": "" if event.get("ended") else waits}
            case "Warned":
                warning = text(event.get("text")) or ""
                if warning not in self._warnings:
                    self._warnings.append(warning)
            case "TrialFinished":
                self._finish(event)
            case "RunFinished":
                self._ended, self._now = event, {}

    def _progress(self, event: Event) -> None:
        rate, p99 = number(event.get("ops_per_s")), number(event.get("p99_ms"))
        load: Event = {"phase": text(event.get("phase")), "ops_per_s": rate, "p99_ms": p99}
        load |= {name: whole(event.get(name)) for name in ("done", "of", "errors")}
        self._now = {**self._now, "load": load}
        self._time.progressed(load["done"], load["of"], number(event.get("t_s")))
        seen = event.get("seen")
        if isinstance(seen, dict):
            figures = ((text(name) or "", number(value)) for name, value in seen.items())
            named = ((name, value) for name, value in figures if value is not None)
            self._seen = dict(islice(named, MOST_SEEN))
        if event.get("phase") == "measure" and rate is not None:
            self._course.add(self._last_s, rate, p99)

    def _finish(self, event: Event) -> None:
        status = text(event.get("status")) or ""
        self._counts[status if status in STATUSES else "of another kind"] += 1
        trial, repeat = whole(event.get("trial")), whole(event.get("repeat"))
        if trial is not None and repeat is not None:
            took = self._last_s - self._trial_began_s if self._trial_began_s else 0.0
            self._time.finished((trial, repeat), max(took, 0.0))
        self._trials.append(
            {
                "name": name_of(event),
                "status": status,
                "why": [text(reason) or "" for reason in listed(event.get("why"))[:5]],
                **{key: number(event.get(key)) for key in ("ops_per_s", "p50_ms", "p99_ms")},
            }
        )

    def status(self) -> str:
        """Return `running`, `paused`, `ended`, `stopped` (`--resume` goes on), or `unknown`."""
        if self._ended is not None:
            return "stopped" if self._ended.get("interrupted") else "ended"
        if not self._started:
            return "unknown"
        if not is_written_to(self.folder, self._last_s):
            return "stopped"
        return "paused" if self._now.get("phase") == "paused" else "running"

    def summary(self) -> dict[str, Any]:
        """Return what the list of runs shows."""
        status = self.status()
        left = None
        if status == "running":
            in_trial = max(datetime.now(timezone.utc).timestamp() - self._trial_began_s, 0.0)
            left = number(self._time.left_s(self._key if self._now else None, in_trial))
        return {
            "id": text(self.folder.name),
            "title": text(self._started.get("title")) or "",
            "problem": self._problem,
            "mode": text(self._started.get("mode")) or "",
            "status": status,
            "began": text(self._started.get("t")),
            "left_s": left,
            "counts": dict(self._counts),
            "planned": len(listed(self._started.get("planned"))),
        }

    def state(self) -> dict[str, Any]:
        """Return all that the page of the run shows."""
        return {
            **self.summary(),
            "now": self._now,
            "wish": wish_of(self.folder).value,
            "course": self._course.points,
            "seen": self._seen,
            "trials": list(self._trials),
            "warnings": list(self._warnings),
            "report": Inside(self.folder, "report.html").is_file(),
        }


def planned_of(event: Event) -> list[PlannedTrial]:
    """Return the planned trials of a stored RunStarted; those that cannot be read are left out."""
    planned = []
    for entry in listed(event.get("planned")):
        given = entry if isinstance(entry, dict) else {}
        trial, repeat = whole(given.get("trial")), whole(given.get("repeat"))
        expected = number(given.get("expected_s"))
        if trial is not None and repeat is not None and expected is not None:
            planned.append(PlannedTrial(trial, repeat, {}, max(expected, SHORTEST_S)))
    return planned


def name_of(event: Event) -> str:
    """Return a trial's levels in a few words."""
    factors = event.get("factors")
    levels = factors.items() if isinstance(factors, dict) else ()
    named = islice(levels, MOST_FACTORS)
    shown = ", ".join(f"{str(name).rpartition('.')[2]} {text(level)}" for name, level in named)
    repeat = whole(event.get("repeat")) or 0
    return text(f"{shown or 'the only cell'}; repeat {repeat + 1}") or ""


# An event may hold anything. Each value is taken as what it is to be, or as nothing.
def number(value: Any) -> float | None:
    """Return a number that something can have, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def whole(value: Any) -> int | None:
    """Return a whole number that something can have, None for anything else."""
    return value if isinstance(value, int) and number(value) is not None else None


def text(value: Any) -> str | None:
    """Return a text, of bounded length and without what no page can show; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return plain(str(value)[:MOST_LETTERS])


def listed(value: Any) -> list[Any]:
    """Return a list, an empty one for anything else."""
    return value if isinstance(value, list) else []


def seconds_of(text: Any) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970; None when it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def is_written_to(folder: Path, last_s: float) -> bool:
    """Return whether a process holds the run's lock; where the system does not say, by silence."""
    try:
        held = Inside(folder, "lock").stat()
        if held is None:
            raise FileNotFoundError
        with open("/proc/locks", encoding="ascii") as locks:
            name = f"{os.major(held.st_dev):02x}:{os.minor(held.st_dev):02x}:{held.st_ino}"
            return any(name in line.split() for line in locks)
    except OSError:
        return datetime.now(timezone.utc).timestamp() - last_s < SILENCE_S


def runs_in(folder: Path) -> list[Path]:
    """Return the run folders in a folder, or the folder itself when it is a run; newest first."""
    if Inside(folder, EVENTS).is_file() or Inside(folder, "run.json").is_file():
        return [folder]
    try:
        found = [one for one in folder.iterdir() if Inside(one, "run.json").is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda one: one.name.split("-")[-2:], reverse=True)
