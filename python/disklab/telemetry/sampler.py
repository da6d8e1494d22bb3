"""Asks every source once a second, each on a thread of its own: a slow one delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

from disklab.errors import DisklabError
from disklab.telemetry.gaps import METRIC, SUSPENDED, Pulse
from disklab.telemetry.sources import Source

INTERVAL_S = 1.0
# Ending waits for a source that is being asked; a database's answer may take this long.
END_SECONDS = 25.0
LEAST_S = 1e-6
OWN = "telemetry"

Sink = Callable[[str, float, str, str, float], None]
"""Takes phase, t_s (since the phase began), source, metric, value: `TelemetryWriter.add`."""


@dataclass
class Course:
    """One metric over one phase, without its single values."""

    count: int = 0
    sum: float = 0.0
    """Of all values: for metrics that are growths, such as dropped messages."""
    seconds: float = 0.0
    weighted: float = 0.0
    """Of all values times the length of their intervals."""
    most: float = float("-inf")
    last: float = 0.0

    @property
    def mean(self) -> float:
        """The mean over time: the last interval of a phase is shorter than the others."""
        return self.weighted / self.seconds

    def add(self, value: float, elapsed_s: float) -> None:
        """Add the value of an interval."""
        # What is no rate is seen before the first interval too.
        weight = max(elapsed_s, LEAST_S)
        self.count += 1
        self.seconds += weight
        self.sum += value
        self.weighted += value * weight
        self.most = max(self.most, value)
        self.last = value


@dataclass(frozen=True)
class Phase:
    """What is going on, since when, and how slowly."""

    name: str
    began: float
    """By the monotonic clock."""
    slow: int = 1
    """Seconds of this machine for each second of what is watched, in whose time the rows are."""


class Sampler:
    """Watches while it is entered, as a context manager.

    A source that fails ends its own thread, is kept in `failure`, and is told to `on_failure`, on
    that thread: a database that dies is known within a second of it.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        sink: Sink,
        on_failure: Callable[[DisklabError], None] = lambda _: None,
    ) -> None:
        self.failure: DisklabError | None = None
        self._sink = sink
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._phase = Phase("build", time.monotonic())
        self._lengths: dict[str, float] = {}
        self._pulse = Pulse(partial(self._saw_gap, METRIC), partial(self._saw_gap, SUSPENDED))
        self._ended = False
        self._courses: dict[tuple[str, str, str], Course] = {}
        self._threads = [
            threading.Thread(target=self._watch, args=(source,), name=source.name, daemon=True)
            for source in sources
        ]

    def __enter__(self) -> Sampler:
        """Begin to watch."""
        self._pulse.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take a last sample of each source and end."""
        with self._changed:
            self._ended = True
            self._count_length()
            self._changed.notify_all()
        self._pulse.__exit__(kind, error, traceback)
        deadline = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def enter(self, phase: str, slow: int = 1) -> None:
        """Begin a phase. What happened until now is still counted for the one before."""
        with self._changed:
            self._count_length()
            self._phase = Phase(phase, time.monotonic(), slow)
            self._changed.notify_all()

    def course(self, phase: str, source: str, metric: str) -> Course | None:
        """Return how a metric went in a phase; None: it was not seen."""
        with self._changed:
            found = self._courses.get((phase, source, metric))
            return None if found is None else replace(found)

    def mean(self, phase: str, source: str, metric: str) -> float | None:
        """Return the mean of a metric over a phase; None: it was not seen."""
        course = self.course(phase, source, metric)
        return None if course is None else course.mean

    def length_s(self, phase: str) -> float:
        """Return how long a phase that is over took, in the time of what is watched."""
        with self._changed:
            return self._lengths.get(phase, 0.0)

    def _count_length(self) -> None:
        phase = self._phase
        took_s = (time.monotonic() - phase.began) / phase.slow
        self._lengths[phase.name] = self._lengths.get(phase.name, 0.0) + took_s

    def _saw_gap(self, metric: str, gap_s: float) -> None:
        """Take a time in which nothing of this process ran, or this machine was suspended."""
        phase = self._phase
        t_s = (time.monotonic() - phase.began) / phase.slow
        self._take(phase.name, t_s, OWN, metric, gap_s / phase.slow, elapsed_s=gap_s)

    def _watch(self, source: Source) -> None:
        phase = self._phase
        last = time.monotonic()
        cpu = time.thread_time()
        # Remembers where the counters stand.
        if not self._ask(source, phase, 0.0):
            return
        ended = False
        while not ended:
            due = last + INTERVAL_S
            with self._changed:
                while not self._ended and self._phase is phase and time.monotonic() < due:
                    self._changed.wait(due - time.monotonic())
                ended = self._ended
            now = time.monotonic()
            if not self._ask(source, phase, now - last):
                return
            used, cpu = time.thread_time() - cpu, time.thread_time()
            if now > last:
                t_s = (now - phase.began) / phase.slow
                row = (phase.name, t_s, OWN, f"cores {source.name}", used / (now - last))
                self._take(*row, elapsed_s=now - last)
            last = now
            phase = self._phase

    def _ask(self, source: Source, phase: Phase, elapsed_s: float) -> bool:
        """Ask a source once; returns whether to go on."""
        try:
            seen = list(source.sample(elapsed_s / phase.slow, phase.slow))
        except DisklabError as error:
            self._fail(error)
            return False
        except (OSError, ValueError, KeyError) as error:
            # A device or a process that has just gone.
            self._fail(DisklabError(f"{source.name}: {error}"))
            return False
        t_s = (time.monotonic() - phase.began) / phase.slow
        for metric, value in seen:
            self._take(phase.name, t_s, source.name, metric, value, elapsed_s=elapsed_s)
        return True

    def _take(  # noqa: PLR0913 - a row of the long form
        self, phase: str, t_s: float, source: str, metric: str, value: float, *, elapsed_s: float
    ) -> None:
        with self._changed:
            course = self._courses.setdefault((phase, source, metric), Course())
            course.add(value, elapsed_s)
            self._sink(phase, t_s, source, metric, value)

    def _fail(self, error: DisklabError) -> None:
        with self._changed:
            if self._ended or self.failure is not None:
                return
            self.failure = error
        self._on_failure(error)
