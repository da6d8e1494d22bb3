"""Whether a cluster compacts: by what runs and by what has grown, not by its estimate alone.

**Source:** CompactionManager and CompactionMetrics of Cassandra 4.0 to 5.0. `PendingTasks` adds up
what each table's strategy estimated when it was last asked for work. Nobody asks a table that was
truncated, so its last estimate stays until Cassandra's own look at all tables, five minutes apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from disklab.databases.cassandra.jolokia import (
    COMPACTED,
    COMPACTION_MANAGER,
    COMPLETED,
    PENDING,
    Jolokia,
)
from disklab.databases.log import tail

# What a node that joins or leaves spends its time with, as the nodes' own logs tell it.

LOOKED_AT_BYTES = 8 << 20
"""Of the end of a log: a join writes a few hundred lines."""

_LINE = re.compile(r"[A-Z]+ +\[.*?\] (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \S+ - (.*)")

MARKS = (
    ("JOINING: waiting for ring information", "process"),
    ("JOINING: Starting to bootstrap", "join"),
    ("Bootstrap completed for tokens", "stream"),
    ("LEAVING: sleeping", "finish"),
    ("LEAVING: replaying batch log and streaming", "announce"),
    ("Announcing that I have left the ring", "stream back"),
)
"""What a node says at the end of each part. **Source:** StorageService of Cassandra 5.0.6, in our
own rehearsal of 2026-11-25."""

LAST = {"stream": "finish", "stream back": "leave"}
"""What follows the last mark until the procedure is over."""


def parts(lines: Iterable[str], begun: datetime, ended: datetime) -> dict[str, float]:
    """Return the seconds of each part of a procedure; empty: no node joined or left.

    `lines`: of all nodes' logs, in any order; what was logged before `begun` or after `ended`, in
    local time, is of something else. A node that leaves without one that joined has no `finish`.
    """
    found = []
    for line in lines:
        told = _LINE.match(line)
        if told is None:
            continue
        ends = next((part for said, part in MARKS if told[2].startswith(said)), None)
        at = datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S,%f")
        if ends is not None and begun <= at <= ended:
            found.append((at, ends))
    found.sort()
    spent: dict[str, float] = {}
    before = begun
    for at, part in found:
        # One that leaves alone is asked for it, and says so at once.
        if part != "finish" or spent:
            spent[part] = spent.get(part, 0.0) + (at - before).total_seconds()
        before = at
    if found and (last := LAST.get(found[-1][1])) is not None:
        spent[last] = (ended - before).total_seconds()
    return spent


def parts_in(logs: Iterable[Path], begun_unix: float, ended_unix: float) -> Mapping[str, float]:
    """Return the parts that the ends of these logs tell. See `parts`."""
    begun, ended = map(datetime.fromtimestamp, (begun_unix, ended_unix))
    return parts(
        (line for log in logs for line in tail(log, most_bytes=LOOKED_AT_BYTES)), begun, ended
    )


# Compactions are scheduled by a task that runs after each flush: nothing pending counts only when
# it has been so for a while.
QUIET_SECONDS = 2.0
# A table that has work begins with it at once: what is pending for so long while nothing runs and
# nothing grows is an estimate that nobody has renewed.
STALE_SECONDS = 6.0


@dataclass(frozen=True)
class Activity:
    """What a cluster's compactions do at a moment."""

    running: tuple[str, ...]
    """Table, node and progress of each."""
    pending: int
    """By the estimates of the tables."""
    done: tuple[tuple[int, int], ...]
    """Compactions that have ended and bytes that were compacted, by node."""

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.pending} pending, running: {'; '.join(self.running) or 'none'}"


class Calm:
    """Says when compactions have ended, from one look after the other."""

    def __init__(self) -> None:
        self._done: tuple[tuple[int, int], ...] | None = None
        self._since: float | None = None
        """Since when nothing runs and nothing has grown."""
        self._nothing_since: float | None = None
        """Since when nothing is pending either."""

    def saw(self, activity: Activity, now: float) -> bool:
        """Take a look at a time in seconds; return whether nothing is left to wait for."""
        if activity.done != self._done:
            self._since = self._nothing_since = None
        self._done = activity.done
        self._since = None if activity.running else _earlier(self._since, now)
        idle = not activity.running and not activity.pending
        self._nothing_since = _earlier(self._nothing_since, now) if idle else None
        return _lasted(self._nothing_since, now, QUIET_SECONDS) or _lasted(
            self._since, now, STALE_SECONDS
        )


def _earlier(since: float | None, now: float) -> float:
    return now if since is None else since


def _lasted(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds


def activity(nodes: Sequence[tuple[str, Jolokia]]) -> Activity:
    """Return what the named nodes compact now. Raises MachineError when one does not answer."""
    running, pending, done = [], 0, []
    for name, jolokia in nodes:
        tasks, estimate, ended, compacted = jolokia.read(
            (COMPACTION_MANAGER, "Compactions"),
            (PENDING, "Value"),
            (COMPLETED, "Value"),
            (COMPACTED, "Count"),
        )
        pending += int(estimate)
        done.append((int(ended), int(compacted)))
        for task in tasks:
            table = f"{task.get('keyspace')}.{task.get('columnfamily')}"
            running.append(f"{table} on {name}: {task.get('completed')} of {task.get('total')}")
    return Activity(tuple(running), pending, tuple(done))
