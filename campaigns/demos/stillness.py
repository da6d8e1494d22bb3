"""Seconds in which a program and all that it started did nothing, beside the waits of its run."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOOK_S = 1.0
# Less than this is what a database and who asks it how it is take while they only wait.
LEAST_CORES = 0.15
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Span:
    """From when to when, in seconds since 1970."""

    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return max(self.ended - self.begun, 0.0)

    def within(self, other: Span) -> Span:
        """Return what of this one lies in another one."""
        return Span(max(self.begun, other.begun), min(self.ended, other.ended))


@dataclass(frozen=True)
class Part:
    """A wait or a phase of a run, as its events tell it."""

    name: str
    span: Span


@dataclass(frozen=True)
class Look:
    """Processor time of a process and all below it."""

    at: float
    cpu_s: float


class Watch:
    """A thread that looks once a second at this process's descendants, orphans among them."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stillness", daemon=True)

    def __enter__(self) -> Watch:
        """Begin. Descendants whose parent ends become children of this process."""
        _adopt_orphans(True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        _adopt_orphans(False)

    def _look(self) -> None:
        used: dict[tuple[int, int], float] = {}
        while not self._over.wait(LOOK_S):
            # What has ended keeps its time.
            used.update(_cpu_below(os.getpid()))
            self.looks.append(Look(time.time(), sum(used.values())))


def _adopt_orphans(adopt: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _cpu_below(root: int) -> dict[tuple[int, int], float]:
    """Return the seconds of processor of each process below, by its number and start."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[tuple[int, int], float]] = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if not process.name.isdigit():
            continue
        fields, pid = words.rpartition(")")[2].split(), int(process.name)
        parents[pid] = int(fields[1])
        used[pid] = (pid, int(fields[19])), (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    below: set[int] = set()
    edge = {root}
    while edge:
        edge = {pid for pid, parent in parents.items() if parent in edge}
        below |= edge
    return dict(used[pid] for pid in below)


def stills(looks: Iterable[Look], least_cores: float = LEAST_CORES) -> list[Span]:
    """Return the spans in which next to nothing ran; neighbours are one."""
    found: list[Span] = []
    for before, after in pairwise(looks):
        if (after.cpu_s - before.cpu_s) / max(after.at - before.at, 1e-9) >= least_cores:
            continue
        if found and found[-1].ended == before.at:
            found[-1] = Span(found[-1].begun, after.at)
        else:
            found.append(Span(before.at, after.at))
    return found


def waits(events: Iterable[str]) -> list[Part]:
    """Return the waits of a run's `events.jsonl`, each once; one that never ended has its last."""
    last: dict[tuple[str, int], Part] = {}
    for line in events:
        event = json.loads(line)
        if event["event"] != "Waiting":
            continue
        at = _seconds(event)
        waited = Part(event["name"], Span(at - event["since_s"], at))
        # It is told again and again, each time with when it began.
        last[event["name"], round(waited.span.begun / 2)] = waited
    return list(last.values())


def phases(events: Iterable[str]) -> list[Part]:
    """Return the phases of a run's `events.jsonl`: each lasts until the next one, or a result."""
    begun: Part | None = None
    ended: list[Part] = []
    for line in events:
        event = json.loads(line)
        if event["event"] not in {"PhaseStarted", "TrialFinished", "RunFinished"}:
            continue
        at = _seconds(event)
        if begun is not None:
            ended.append(Part(begun.name, Span(begun.span.begun, at)))
        begun = Part(event["phase"], Span(at, at)) if event["event"] == "PhaseStarted" else None
    return ended


def _seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["t"].replace("Z", "+00:00")).timestamp()


def longest_still(span: Span, quiet: Iterable[Span]) -> float:
    """Return the longest time of a span in which nothing ran."""
    return max((still.within(span).seconds for still in quiet), default=0.0)
