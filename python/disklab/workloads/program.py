"""A load that a program of others makes: its process, and its figures as the events of a load."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Self

import numpy as np

from disklab.engine import server_account
from disklab.engine.load import LoadDone, LoadProgress
from disklab.errors import MachineError
from disklab.machines import programs
from disklab.results import Histogram, encode

MS = 1e6
"""Nanoseconds in a millisecond."""
END_SECONDS = 5.0
# What is kept of its last words.
MOST_LINES = 20
# Of each: a server that answers without end is quoted, not repeated.
MOST_SAID = 400
MOST_BYTES = 64 << 10
"""Of a piece of a line: what an answer of a server adds is cut."""
MOST_SAID_BYTES = 256 << 20
"""A program that writes more is ended: its answer is no result."""


class Process:
    """A program that runs; ends with the context, or when its time is over."""

    hangs: ClassVar[str] = "its operations hang"
    """What it means when it does not end."""

    def __init__(
        self,
        what: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        most_s: float,
        handles: Sequence[int] = (),
    ) -> None:
        """Start it as the servers' user. `most_s`: after this time it is ended, an error."""
        self._what = what
        self.started_ns = time.time_ns()
        self._last: deque[str] = deque(maxlen=MOST_LINES)
        self._before_ns = programs.children_cpu_ns()
        account = server_account()
        # Some look in the working directory first for what they load: it is the root.
        self._process = programs.start(
            [*words] if account is None else account.command([*words]),
            handles=handles,
            stdout=programs.PIPE,
            stderr=programs.STDOUT,
            variables=environment,
        )
        self._over = ""
        late = f"did not end within {most_s:.0f} s: {self.hangs}\n"
        self._limit = threading.Timer(most_s, self._kill, [late])
        self._limit.daemon = True
        self._limit.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """End it with its children, from any thread; nothing when it has ended."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)

    def _kill(self, why: str) -> None:
        self._over = why
        self._signal(signal.SIGKILL)

    def is_worth_keeping(self, line: str) -> bool:
        """Return whether a line may say why it fails."""
        return bool(line.strip())

    @property
    def said(self) -> str:
        """The last of what it wrote."""
        return "\n".join(dict.fromkeys(self._last)) or "it said nothing of why"

    def lines(self) -> Iterator[str]:
        """Yield what it says. Raises MachineError when it ends with an error, or not in time."""
        stdout = programs.piped(self._process.stdout)
        left = MOST_SAID_BYTES
        # A longer line comes in pieces.
        for part in iter(partial(stdout.readline, MOST_BYTES), b""):
            line = part.decode(errors="replace")
            if self.is_worth_keeping(line):
                self._last.append(line.strip()[:MOST_SAID])
            yield line
            left -= len(part)
            if left < 0:
                self._kill(f"wrote more than {MOST_SAID_BYTES >> 20} MiB")
                break
        code = self._process.wait()
        if self._over or code != 0:
            why = self._over or f"failed with code {code}:"
            raise MachineError(f"{self._what} {why} {self.said}")

    def cpu_ns(self) -> int:
        """Return the processor time of the process, after its end."""
        return programs.children_cpu_ns() - self._before_ns

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        self._limit.cancel()
        self.end()
        if self._process.poll() is None and self._process.ended(END_SECONDS) is None:
            self._signal(signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def histogram_of(buckets: Iterable[tuple[float, int]]) -> Histogram:
    """Return counts of latencies in ms in the layout of our own."""
    empty = Histogram.of(())
    counts = np.zeros_like(empty.counts)
    for ms, count in buckets:
        ns = min(max(round(ms * MS), 0), empty.layout.highest)
        counts[empty.layout.index_of(ns)] += count
    return Histogram(empty.layout, counts)


def progress(t_s: float, operations: float, ops_per_s: float, **more: object) -> LoadProgress:
    """Return a second of a load, of which `more` is known."""
    unknown: dict[str, object] = {"p50_ms": None, "p99_ms": None, "late_ns_p99": None}
    unknown |= {"errors": 0, "in_flight": 0, "cpu_ns": 0, "last_error": None, "histograms": {}}
    own = {"t_s": t_s, "operations": round(operations), "ops_per_s": ops_per_s}
    return LoadProgress(**{**unknown, **own, **more})  # type: ignore[arg-type]


def done(  # noqa: PLR0913 - each is a figure
    operation: str,
    count: int,
    elapsed_s: float,
    *,
    cpu_ns: int,
    started_unix_ns: int,
    is_closed: bool,
    latency_ms: Mapping[str, float],
    histogram: Histogram | None = None,
    errors: Mapping[str, int] | None = None,
    failed: int = 0,
    lost: int = 0,
    wrong: int = 0,
) -> LoadDone:
    """Return the whole run of a program. `latency_ms`: `mean`, `p50`, ... as far as it is known."""
    summary = {} if histogram is None or not count else histogram.summary_ms()
    rate = count / elapsed_s if elapsed_s else 0.0
    text = {} if histogram is None else {operation: encode(histogram)}
    known = {f"{name}_ms": value for name, value in {**summary, **latency_ms}.items()}
    names = ("mean", "p50", "p95", "p99", "p99.9", "max")
    own = {"count": count, "failed": failed, "ops_per_s": rate}
    return LoadDone.model_validate(
        {
            "elapsed_s": elapsed_s,
            "ops_per_s": rate,
            "operations": {operation: own | {f"{n}_ms": known.get(f"{n}_ms") for n in names}},
            "response": text,
            # An open loop counts the time in its queue in, and tells no other.
            "service": text if is_closed else {},
            "lateness": None,
            "unsent": 0,
            "abandoned": 0,
            "errors": {name: number for name, number in (errors or {}).items() if number},
            "last_error": None,
            "wrong_rows": wrong,
            "missing_rows": lost,
            "cpu_ns": cpu_ns,
            "started_unix_ns": started_unix_ns,
            "interrupted": False,
        }
    )
