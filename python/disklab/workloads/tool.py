"""A load tool of a kit as a workload: started by the kit's words, read by the kit's patterns."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from disklab.databases.kit.programs import path_of
from disklab.databases.protocol import say_nothing
from disklab.databases.this_machine import ThisMachine
from disklab.engine import server_account
from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, LoadProgress, LoadReady, Stop
from disklab.errors import MachineError, Problem, UserError
from disklab.kits import Kit, kit_named, kit_of
from disklab.kits.results import LATENCIES, Figures, Reader
from disklab.kits.schema import Load as KitLoad
from disklab.kits.schema import Result
from disklab.kits.shelf import KitFolder
from disklab.kits.words import filled, names_in
from disklab.machines import programs
from disklab.machines.child import minimal
from disklab.results import Histogram, decode, encode
from disklab.spec import ClusterTrial
from disklab.spec.benchmarks import Tool as ToolPart
from disklab.workloads.protocol import Asked, Begin, Target

MS = 1e6
"""Nanoseconds in a millisecond."""
END_SECONDS = 5.0
MOST_BYTES = 64 << 10
"""Of a piece of a line."""
MOST_SAID_BYTES = 256 << 20
"""A tool that writes more is ended: its answer is no result."""
FILL_SECONDS = 3600.0


@dataclass(frozen=True)
class Wish:
    """A program to be run, and what is to be read from what it writes."""

    what: str
    words: Sequence[str]
    environment: Mapping[str, str]
    results: Sequence[Result]
    limit_s: float
    seconds: float
    """How long it was asked to take, in the tool's own time; 0: as long as it takes."""
    count: float | None = None
    """What it was asked for, where it is asked for a count and not for a time."""
    slow: int = 1
    operation: str = "operation"
    is_closed: bool = True
    progress: str | None = None
    rate: float | None = None


class ToolRun:
    """A tool that runs; ends with the context, or when its time is over."""

    def __init__(
        self, wish: Wish, keep: Sequence[list[float]] = (), told: float | None = None
    ) -> None:
        """Start it. `keep`: lists that its count is added to; `told`: instead of what it says."""
        self._wish, self._keep, self._told = wish, keep, told
        self._started_ns = time.time_ns()
        self._before_ns = programs.children_cpu_ns()
        account = server_account()
        words = [*wish.words]
        self._process = programs.start(
            words if account is None else account.command(words),
            stdout=programs.PIPE,
            stderr=programs.STDOUT,
            variables=minimal({"LC_ALL": "C.UTF-8", **wish.environment}),
        )
        self._over = ""
        self._limit = threading.Timer(
            wish.limit_s, self._end_it, [f"did not end within {wish.limit_s:.0f} s"]
        )
        self._limit.daemon = True
        self._limit.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def end(self) -> None:
        """End it, from any thread; nothing when it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def _end_it(self, why: str) -> None:
        self._over = why
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield its seconds, where it tells them, and at last the whole run."""
        wish = self._wish
        # A tool does not tell when its connections are made: its time begins with it.
        yield LoadReady(
            pid=self._process.pid,
            version="",
            loop="closed" if wish.is_closed else "open",
            slots=1,
            nodes=1,
        )
        seen = _Seconds(wish)
        reader = Reader(wish.results, wish.what)
        for line in self._lines():
            reader.take(line)
            progress = seen.take(line)
            if progress is not None:
                yield progress
        code = self._process.wait()
        said = "\n".join(reader.last) or "it wrote nothing"
        if self._over:
            raise MachineError(f"{wish.what} {self._over}\n{said}")
        if code != 0:
            raise MachineError(f"{wish.what} failed with code {code}\n{said}")
        figures = reader.figures()
        if self._told is not None:
            figures.numbers.setdefault("count", self._told)
        done = self._done(figures)
        for kept in self._keep:
            kept.append(sum(each.count for each in done.operations.values()))
        yield done

    def _lines(self) -> Iterator[str]:
        stdout = programs.piped(self._process.stdout)
        written = 0
        while part := stdout.readline(MOST_BYTES):
            written += len(part)
            if written > MOST_SAID_BYTES:
                self._end_it(f"wrote more than {MOST_SAID_BYTES >> 20} MiB")
                return
            yield part.decode(errors="replace").rstrip("\r\n")

    def _done(self, figures: Figures) -> LoadDone:
        wish, numbers = self._wish, figures.numbers
        took_s = (time.time_ns() - self._started_ns) / 1e9
        count, elapsed_s = _amounts(wish, figures, took_s)
        histogram = _histogram(figures, wish.slow, round(count))
        latency = {name: numbers[name] / wish.slow for name in LATENCIES if name in numbers}
        if histogram is not None:
            latency = histogram.summary_ms()
        failed = int(numbers.get("failed", 0))
        lost, wrong = int(numbers.get("lost", 0)), int(numbers.get("wrong", 0))
        elapsed_s /= wish.slow
        rate = count / elapsed_s if elapsed_s else 0.0
        text = {} if histogram is None else {wish.operation: encode(histogram)}
        errors = {"failed": failed, "missing rows": lost, "wrong rows": wrong}
        summary = {f"{name}_ms": latency.get(name) for name in LATENCIES}
        return LoadDone.model_validate(
            {
                "elapsed_s": elapsed_s,
                "ops_per_s": rate,
                "operations": {
                    wish.operation: {
                        **{"count": int(count), "failed": failed, "ops_per_s": rate},
                        **summary,
                    }
                },
                "response": text,
                "service": text if wish.is_closed else {},
                "lateness": None,
                "unsent": 0,
                "abandoned": 0,
                "errors": {name: number for name, number in errors.items() if number},
                "last_error": None,
                "wrong_rows": wrong,
                "missing_rows": lost,
                "cpu_ns": self._cpu_ns(),
                "started_unix_ns": self._started_ns,
                "interrupted": False,
            }
        )

    def _cpu_ns(self) -> int:
        return programs.children_cpu_ns() - self._before_ns

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, with its children, if it still runs."""
        self._limit.cancel()
        if self._process.poll() is None:
            self.end()
            self._process.ended(END_SECONDS)
        if self._process.poll() is None:
            self._end_it("was ended")
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class _Seconds:
    """The seconds that a tool tells."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._reader = None
        self._seconds, self._operations = 0, 0.0
        if wish.progress is not None:
            result = Result.model_validate({"line": wish.progress, "figures": ["count"]})
            self._reader = result

    def take(self, line: str) -> LoadProgress | None:
        """Take a line; return the second that it tells of."""
        if self._reader is None:
            return None
        reader = Reader([self._reader], "")
        reader.take(line)
        try:
            operations = reader.figures().numbers["count"]
        except MachineError:
            return None
        self._seconds += 1
        self._operations += operations
        slow = self._wish.slow
        return LoadProgress(
            t_s=self._seconds / slow,
            operations=round(self._operations),
            errors=0,
            ops_per_s=operations * slow,
            p50_ms=None,
            p99_ms=None,
            late_ns_p99=None,
            in_flight=0,
            cpu_ns=0,
            last_error=None,
            histograms={},
        )


def _amounts(wish: Wish, figures: Figures, took_s: float) -> tuple[float, float]:
    """Return operations and seconds, in the tool's own time, from what it has said of them."""
    numbers = figures.numbers
    if "checked" in numbers:
        return numbers["checked"] - numbers.get("lost", 0) - numbers.get("wrong", 0), took_s
    count, rate = numbers.get("count"), numbers.get("rate")
    if count is None and figures.buckets:
        count = float(sum(number for _, number in figures.buckets))
    if count is None:
        count = wish.count
    seconds = numbers.get("seconds")
    if seconds is None:
        seconds = count / rate if count and rate else wish.seconds or took_s
    if count is None:
        if rate is None:
            raise MachineError(f"{wish.what} has said neither a count nor a rate")
        count = rate * seconds
    return count, seconds


def _histogram(figures: Figures, slow: int, count: int) -> Histogram | None:
    """Return what was said of all latencies, as steps where it was percentiles; None: too little.

    Steps have the percentiles that were said, and between them the higher one.
    """
    if figures.hdr and slow == 1:
        return decode(figures.hdr[-1])
    buckets = figures.buckets or [*_steps(figures.numbers, count)]
    if not buckets:
        return None
    empty = Histogram.of(())
    counts = np.zeros_like(empty.counts)
    for latency_ms, number in buckets:
        ns = min(max(round(latency_ms * MS / slow), 0), empty.layout.highest)
        counts[empty.layout.index_of(ns)] += number
    return Histogram(empty.layout, counts)


def _steps(numbers: Mapping[str, float], count: int) -> Iterator[tuple[float, int]]:
    """Yield latencies in ms and how often, of which these are the percentiles; nothing of fewer."""
    if not {"p50", "p95", "p99"} <= numbers.keys():
        return
    below = 0
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1)):
        if name in numbers:
            upto = round(count * share)
            yield numbers[name], max(upto - below, 0)
            below = max(upto, below)
    highest = max(numbers[name] for name in ("p99", "p99.9", "max") if name in numbers)
    if count > below:
        yield highest, count - below


class Tool:
    """A load tool of a kit. See `Workload` for what is promised."""

    generators = 1
    headline = None
    makes_tables = False

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here; UserError when the tool is not to be had."""
        work, load = spec.workload.the(ToolPart), spec.workload.load
        self._set(kit_of(spec.database.engine), work, load.rate_per_s if load else None)
        self._seed, self._slow, self._has_events = seed, time_dilation, bool(spec.events)

    @classmethod
    def alone(cls, of: KitFolder, work: ToolPart) -> Tool:
        """Return a tool without an experiment."""
        tool = cls.__new__(cls)
        tool._set(of, work, None)
        tool._seed, tool._slow, tool._has_events = 1, 1, False
        return tool

    def _set(self, of: KitFolder, work: ToolPart, rate: float | None) -> None:
        self._of, self._work, self._rate = of, work, rate
        self._load: KitLoad = of.kit.loads[work.load]
        self.generators = min(self._work.threads, os.cpu_count() or 1)
        # What the servers do not need was not fetched with them.
        texts = [
            *self._load.run,
            *self._load.at_rate,
            *self._load.unlimited,
            *(self._of.kit.fill or ()),
        ]
        texts += self._of.kit.check.run if self._of.kit.check else ()
        wanted = {name for text in texts for name in names_in(text)}
        self._programs = {
            f"program.{program.name}": path_of(self._of, program, ThisMachine(), say_nothing)
            for program in self._of.kit.programs
            if program.script is None and f"program.{program.name}" in wanted
        }

    @property
    def data_bytes(self) -> int:
        """Of the data set: not known of a tool's records."""
        return 0

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the program that puts the data set there; nothing where the trial has none."""
        fill, kit = self._work.fill, self._of.kit
        if not fill or kit.fill is None:
            return []
        values = self._values(
            target, threads=self._work.threads, seconds=0, count=fill, rate=0, seed=self._seed
        )
        wish = Wish(
            f"{kit.title}'s fill", self._filled(kit.fill, values), {}, (), FILL_SECONDS, 0.0
        )
        kept = _of_kit(target)["acknowledged"]
        return [lambda: ToolRun(wish, [cast(list[float], kept)], float(fill))]

    def warm_up(self, target: Target, operations: int, stream: int) -> Sequence[Begin]:  # noqa: ARG002
        """Return nothing: a tool has no table beside."""
        return []

    def run(self, target: Target, asked: Asked) -> Begin:
        """Return the tool with the words of this trial."""
        load, slow = self._load, self._slow
        rate = None if self._rate is None else max(1, round(self._rate / slow))
        per_s = rate or load.per_second
        seconds = max(1, round((asked.stop.duration_s or 0) * slow))
        count = asked.stop.operations or seconds * per_s
        if asked.stop.duration_s is None:
            seconds = max(1, round(count / per_s))
        threads = asked.threads or self._work.threads
        values = self._values(
            target,
            threads=threads,
            seconds=seconds,
            count=count,
            rate=rate or 0,
            seed=asked.stream % (2**31 - 1) + 1,
        )
        pace = load.unlimited if rate is None else load.at_rate
        words = [each for word in load.run for each in (pace if word == "{pace}" else (word,))]
        asked_for = {name for word in words for name in names_in(word)}
        wish = Wish(
            what=f"{self._of.kit.title}'s load {self._work.load}",
            words=self._filled(words, values),
            environment={
                name: filled(text, values, name) for name, text in load.environment.items()
            },
            results=load.results,
            limit_s=seconds * (1 if rate else 4) + load.within,
            seconds=float(seconds),
            count=count if "count" in asked_for and "seconds" not in asked_for else None,
            slow=slow,
            operation=load.operation,
            is_closed=load.loop == "closed",
            progress=load.progress,
            rate=rate,
        )
        kept = cast(list[float], _of_kit(target)["acknowledged"])
        return lambda: ToolRun(wish, [kept])

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,  # noqa: ARG002 - rows alone have versions
        consistency: str | None = None,
    ) -> Begin | None:
        """Return the program that looks for what was acknowledged, where nodes were broken."""
        check = self._of.kit.check
        if check is None or not self._has_events or consistency is not None:
            return None
        values = self._values(target, threads=1, seconds=0, count=0, rate=0, seed=1)
        kept = cast(list[float], _of_kit(target)["acknowledged"])
        environment = {name: filled(text, values, name) for name, text in check.environment.items()}
        words = self._filled(check.run, values)
        wish = Wish(
            f"{self._of.kit.title}'s check", words, environment, check.results, check.within, 0.0
        )
        return lambda: _CheckRun(wish, sum(kept))

    def wear(self, done: LoadDone) -> float:
        """Return that a load which writes has left other data than the fill's."""
        return (
            1.0 if self._load.writes and any(one.count for one in done.operations.values()) else 0.0
        )

    def _values(self, target: Target, **numbers: int) -> dict[str, str | int | float]:
        own = cast(Mapping[str, str | int | float], _of_kit(target)["values"])
        parameters = {
            name: self._work.parameters.get(name, kind.default)
            for name, kind in self._load.parameters.items()
        }
        return {**own, **self._programs, **parameters, "fill": self._work.fill or 0, **numbers}

    @staticmethod
    def _filled(words: Sequence[str], values: Mapping[str, str | int | float]) -> list[str]:
        return [filled(word, values, "run") for word in words]


class _CheckRun(ToolRun):
    """A check that tells what is there is held against what the loads have counted."""

    def __init__(self, wish: Wish, acknowledged: float) -> None:
        self._acknowledged = acknowledged
        super().__init__(wish)

    def _done(self, figures: Figures) -> LoadDone:
        there = figures.numbers.get("there")
        if there is not None:
            figures.numbers["checked"] = self._acknowledged
            figures.numbers["lost"] = max(self._acknowledged - there, 0.0)
        return super()._done(figures)


def tried(kit: Kit, load: str, target: Target, seconds: int) -> LoadDone:
    """Run a load of a kit for some seconds, as `disklab kit try` does; return what was read."""
    tool = Tool.alone(kit_named(kit.kit), ToolPart(load=load))
    with tool.run(target, Asked(Stop(duration_s=seconds), 1))() as run:
        *_, last = run
    assert isinstance(last, LoadDone), "a load ends with its result"
    return last


def _of_kit(target: Target) -> Mapping[str, object]:
    kit = target.get("kit")
    if not isinstance(kit, Mapping):
        rule = "a tool is a part of a kit"
        raise UserError(
            Problem("workload.tool", str(target.get("protocol")), rule, "write engine: kit")
        )
    return kit


__all__ = ["Tool", "tried"]
