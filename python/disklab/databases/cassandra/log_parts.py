"""What a node that joins or leaves spends its time with, as the nodes' own logs tell it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from disklab.databases.log import tail

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
