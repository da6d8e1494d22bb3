"""A load tool of a kit as a workload: started by the kit's words, read by the kit's patterns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from disklab.databases.kit.programs import path_of
from disklab.databases.protocol import say_nothing
from disklab.databases.this_machine import ThisMachine
from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, LoadReady, Stop
from disklab.errors import MachineError, Problem, UserError
from disklab.kits import KitFolder, kit_of
from disklab.kits import schema as kits
from disklab.kits.plan import filled, names_in
from disklab.kits.results import Reader
from disklab.kits.schema import LATENCIES
from disklab.machines.child import minimal
from disklab.results import Histogram, decode
from disklab.spec import ClusterTrial, benchmarks
from disklab.workloads.program import Process, done, histogram_of, progress
from disklab.workloads.protocol import Asked, Begin, Target

FILL_SECONDS = 3600.0


@dataclass(frozen=True)
class Wish:
    """What is asked of a tool, in the tool's own time."""

    what: str
    tool: kits.Tool
    seconds: float
    """How long it was asked to take; 0: as long as it takes."""
    count: float | None = None
    """What it was asked for, where it is asked for a count and not for a time."""
    slow: int = 1
    keep: Callable[[float], None] = lambda _: None
    """Given what it has counted."""
    known: Callable[[dict[str, float]], None] = lambda _: None
    """Adds to its figures what is known without it."""


class ToolRun(Process):
    """A tool that runs; ends with the context, or when its time is over."""

    def __init__(self, wish: Wish, words: Sequence[str], most_s: float) -> None:
        """Start it."""
        self._wish = wish
        super().__init__(wish.what, words, minimal({"LC_ALL": "C.UTF-8"}), most_s)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield its seconds, where it tells them, and at last the whole run."""
        wish, slow = self._wish, self._wish.slow
        is_closed = wish.tool.loop == "closed"
        # A tool does not tell when its connections are made: its time begins with it.
        yield LoadReady(
            pid=self.pid, version="", loop="closed" if is_closed else "open", slots=1, nodes=1
        )
        reader = Reader(wish.tool.results, wish.what)
        seconds, operations = 0, 0.0
        for line in self.lines():
            reader.take(line.rstrip("\r\n"))
            second = re.search(wish.tool.progress, line) if wish.tool.progress else None
            if second is not None:
                seconds, operations = seconds + 1, operations + float(second[1])
                yield progress(seconds / slow, operations, float(second[1]) * slow)
        reader.check(self.said)
        wish.known(reader.numbers)
        whole = self._whole(reader)
        wish.keep(sum(each.count for each in whole.operations.values()))
        yield whole

    def _whole(self, reader: Reader) -> LoadDone:
        slow, numbers = self._wish.slow, reader.numbers
        count, seconds = self._amounts(reader)
        failed, lost, wrong = (int(numbers.get(name, 0)) for name in ("failed", "lost", "wrong"))
        histogram = read_histogram(reader, slow, round(count))
        said = {name: numbers[name] / slow for name in LATENCIES if name in numbers}
        return done(
            self._wish.tool.operation,
            int(count),
            seconds / slow,
            cpu_ns=self.cpu_ns(),
            started_unix_ns=self.started_ns,
            is_closed=self._wish.tool.loop == "closed",
            histogram=histogram,
            # Of steps the percentiles are rounded; a histogram of all latencies knows better.
            latency_ms=said if histogram is None else {},
            errors={"failed": failed, "missing rows": lost, "wrong rows": wrong},
            failed=failed,
            lost=lost,
            wrong=wrong,
        )

    def _amounts(self, reader: Reader) -> tuple[float, float]:
        """Return operations and seconds, in the tool's own time, from what it has said of them."""
        numbers, wish = reader.numbers, self._wish
        took_s = (time.time_ns() - self.started_ns) / 1e9
        if "checked" in numbers:
            return numbers["checked"] - numbers.get("lost", 0) - numbers.get("wrong", 0), took_s
        counted = sum(number for _, number in reader.buckets) or wish.count
        count, rate = numbers.get("count", counted), numbers.get("rate")
        usual = count / rate if count and rate else wish.seconds or took_s
        seconds = numbers.get("seconds", usual)
        if count is None and rate is None:
            raise MachineError(f"{wish.what} has said neither a count nor a rate")
        return (count if count is not None else (rate or 0.0) * seconds), seconds


def read_histogram(reader: Reader, slow: int, count: int) -> Histogram | None:
    """Return what was said of all latencies, as steps where it was percentiles; None: too little.

    Steps have the percentiles that were said, and between them the higher one.
    """
    if reader.hdr and slow == 1:
        return decode(reader.hdr)
    buckets = reader.buckets or [*_steps(reader.numbers, count)]
    return histogram_of((ms / slow, number) for ms, number in buckets) if buckets else None


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
    if count > below:
        highest = max(numbers[name] for name in ("p99", "p99.9", "max") if name in numbers)
        yield highest, count - below


class Tool:
    """A load tool of a kit. See `Workload` for what is promised."""

    headline = None
    makes_tables = False
    data_bytes = 0
    """Not known of a tool's records."""

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here; UserError when the tool is not to be had."""
        work, load = spec.workload.the(benchmarks.Tool), spec.workload.load
        self._set(kit_of(spec.database.engine), work, seed, time_dilation)
        self._rate, self._has_events = load.rate_per_s if load else None, bool(spec.events)

    def _set(self, of: KitFolder, work: benchmarks.Tool, seed: int = 1, slow: int = 1) -> None:
        self._kit, self._work, self._seed, self._slow = of.kit, work, seed, slow
        self._rate, self._has_events = None, False
        self._load = self._kit.loads[work.load]
        self.generators = min(work.threads, os.cpu_count() or 1)
        # What the servers do not need was not fetched with them.
        tools = (self._load, *filter(None, (self._kit.fill, self._kit.check)))
        texts = (text for tool in tools for text in (*tool.run, *tool.at_rate, *tool.unlimited))
        wanted = {name for text in texts for name in names_in(text)}
        self._programs = {
            f"program.{program.name}": path_of(of, program, ThisMachine(), say_nothing)
            for program in self._kit.programs
            if program.script is None and f"program.{program.name}" in wanted
        }

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the program that puts the data set there; nothing where the trial has none."""
        tool, count = self._kit.fill, self._work.fill
        if not count or tool is None:
            return []

        def known(numbers: dict[str, float]) -> None:
            numbers.setdefault("count", float(count or 0))

        words = self._words(target, tool, count=count, seed=self._seed)
        wish = Wish(f"{self._kit.title}'s fill", tool, 0.0, keep=_noted(target).append, known=known)
        return [lambda: ToolRun(wish, words, FILL_SECONDS)]

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
        seed = asked.stream % (2**31 - 1) + 1
        numbers = {"seconds": seconds, "count": count, "rate": rate or 0, "seed": seed}
        words = self._words(target, load, threads=asked.threads or self._work.threads, **numbers)
        asks = {name for word in self._unfilled(load, rate) for name in names_in(word)}
        wish = Wish(
            what=f"{self._kit.title}'s load {self._work.load}",
            tool=load,
            seconds=float(seconds),
            count=count if "count" in asks and "seconds" not in asks else None,
            slow=slow,
            keep=_noted(target).append,
        )
        return lambda: ToolRun(wish, words, seconds * (1 if rate else 4) + load.within)

    def check(
        self,
        target: Target,
        known: KnownVersions | None = None,  # noqa: ARG002 - rows alone have versions
        consistency: str | None = None,
    ) -> Begin | None:
        """Return the program that looks for what was acknowledged, where nodes were broken."""
        tool = self._kit.check
        if tool is None or not self._has_events or consistency is not None:
            return None

        def held(numbers: dict[str, float]) -> None:
            """Hold what is there against what the loads have counted."""
            if "there" in numbers:
                numbers["checked"] = float(sum(_noted(target)))
                numbers["lost"] = max(numbers["checked"] - numbers["there"], 0.0)

        words = self._words(target, tool)
        wish = Wish(f"{self._kit.title}'s check", tool, 0.0, known=held)
        return lambda: ToolRun(wish, words, tool.within)

    def wear(self, done: LoadDone) -> float:
        """Return that a load which writes has left other data than the fill's."""
        wrote = self._load.writes and any(each.count for each in done.operations.values())
        return 1.0 if wrote else 0.0

    @staticmethod
    def _unfilled(tool: kits.Tool, rate: int | None) -> list[str]:
        pace = tool.unlimited if rate is None else tool.at_rate
        return [each for word in tool.run for each in (pace if word == "{pace}" else (word,))]

    def _words(self, target: Target, tool: kits.Tool, **numbers: int) -> list[str]:
        own = cast("Mapping[str, str | int | float]", _of_kit(target)["values"])
        usual = {"threads": self._work.threads, "seconds": 0, "count": 0, "rate": 0, "seed": 1}
        chosen = {
            name: self._work.parameters.get(name, kind.default)
            for name, kind in tool.parameters.items()
        }
        fill = {"fill": self._work.fill or 0}
        values = {**own, **self._programs, **chosen, **fill, **usual, **numbers}
        unfilled = self._unfilled(tool, numbers.get("rate") or None)
        return [filled(word, values, "run") for word in unfilled]


def tried(of: KitFolder, load: str, target: Target, seconds: int) -> LoadDone:
    """Run a load of a kit for some seconds, as `disklab kit try` does; return what was read."""
    tool = Tool.__new__(Tool)
    tool._set(of, benchmarks.Tool(load=load))
    with tool.run(target, Asked(Stop(duration_s=seconds), 1))() as run:
        *_, last = run
    assert isinstance(last, LoadDone), "a load ends with its result"
    return last


def _of_kit(target: Target) -> Mapping[str, object]:
    kit = target.get("kit")
    if not isinstance(kit, Mapping):
        rule, way_out = "a tool is a part of a kit", "write engine: kit"
        raise UserError(Problem("workload.tool", str(target.get("protocol")), rule, way_out))
    return kit


def _noted(target: Target) -> list[float]:
    """Return what loads of these data have counted."""
    return cast("list[float]", _of_kit(target)["acknowledged"])
