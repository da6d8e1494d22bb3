"""The time for which a database is looked at: readings at its ends and in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disklab.databases.observing import Count, Observer, Reading
from disklab.observation.machine import Disk, DiskReading

HOUR = 3600.0
MOST_INTERVALS = 12
"""As many as somebody reads; a window of several hours is told by the hour."""
LEAST_INTERVAL_S = 10.0
"""PostgreSQL's sessions tell their counters once a second, so a shorter interval is off by more."""
SHORTEST_S = 2.0
"""A window that ends earlier tells no rate."""


@dataclass(frozen=True)
class Interval:
    """A part of the window."""

    seconds: float
    tables: dict[str, Count]

    @property
    def count(self) -> Count:
        """All tables together."""
        return sum(self.tables.values(), Count())

    @property
    def per_s(self) -> float:
        """Reads and writes a second."""
        return (self.count.reads + self.count.writes) / self.seconds


@dataclass(frozen=True)
class Window:
    """All readings, at least two, in order."""

    readings: Sequence[Reading]
    disks: Sequence[dict[str, DiskReading]]
    """Of the same moments: counters of the disks that are seen, by node."""
    started_at: float
    """By the clock of this machine, seconds since 1970."""
    interrupted: bool

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.readings[-1].at_s - self.readings[0].at_s

    @property
    def intervals(self) -> list[Interval]:
        """The parts, in order."""
        pairs = zip(self.readings, self.readings[1:], strict=False)
        return [interval(first, last) for first, last in pairs]

    @property
    def whole(self) -> Interval:
        """The window as one interval; restarts in between are seen by the intervals."""
        tables: dict[str, Count] = {}
        for one in self.intervals:
            for name, count in one.tables.items():
                tables[name] = tables.get(name, Count()) + count
        return Interval(self.seconds, tables)


def interval(first: Reading, last: Reading) -> Interval:
    """Return what happened between two readings."""
    grown = {
        name: count - first.tables[name] if name in first.tables else count
        for name, count in last.tables.items()
    }
    return Interval(last.at_s - first.at_s, grown)


def interval_s(seconds: float) -> float:
    """Return how far readings are apart in a window of so many seconds."""
    if seconds >= 3 * HOUR:
        return HOUR
    return max(min(LEAST_INTERVAL_S, seconds), seconds / MOST_INTERVALS)


def watch(
    observer: Observer,
    disks: Sequence[Disk],
    seconds: float,
    stop: threading.Event,
    told: Callable[[float], None],
) -> Window:
    """Look for so many seconds, or until `stop` is set; `told` hears the seconds that are over.

    Raises MachineError when the database does not answer, at the beginning or in between.
    """
    started_at, step = time.time(), interval_s(seconds)
    readings, counted = [observer.read()], [_counters(disks)]
    begin = readings[0].at_s
    for number in range(1, round(seconds / step) + 1):
        due = begin + min(seconds, number * step)
        while not stop.is_set() and (left := due - time.monotonic()) > 0:
            stop.wait(min(left, 1.0))
            told(time.monotonic() - begin)
        early = stop.is_set() and time.monotonic() - readings[-1].at_s < SHORTEST_S
        if early and len(readings) > 1:
            break
        if early:
            # Ended at once, yet a rate needs two readings that are some time apart.
            time.sleep(SHORTEST_S)
        readings.append(observer.read())
        counted.append(_counters(disks))
        if stop.is_set():
            break
    return Window(readings, counted, started_at, stop.is_set())


def _counters(disks: Sequence[Disk]) -> dict[str, DiskReading]:
    return {one.node: one.read() for one in disks}
