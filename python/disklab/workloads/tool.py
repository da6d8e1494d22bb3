"""A load tool of a kit as a workload: started by the kit's words, read by the kit's patterns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from disklab.databases.kit.programs import path_of
from disklab.databases.protocol import say_nothing
from disklab.databases.this_machine import ThisMachine
from disklab.engine.load import KnownVersions, LoadDone, LoadEvent, LoadReady
from disklab.errors import MachineError, Problem, UserError
from disklab.kits import kit_of
from disklab.kits import schema as kits
from disklab.kits.plan import filled, names_in
from disklab.kits.results import Reader
from disklab.machines.child import minimal
from disklab.results import Histogram, decode
from disklab.spec import ClusterTrial, benchmarks
from disklab.workloads.program import Process, done, histogram_of, progress
from disklab.workloads.protocol import Asked, Begin, Target

FILL_SECONDS = 3600.0


class ToolRun(Process):
    """A tool that runs, in its own time; ends with the context, or when its time is over."""

    def __init__(  # noqa: PLR0913 - each is of the run
        self,
        what: str,
        tool: kits.Tool,
        words: Sequence[str],
        most_s: float,
        counted: list[float],
        *,
        usual: Mapping[str, float] | None = None,
        slow: int = 1,
    ) -> None:
        """Start it. `usual`: the count and seconds that it has where it says none of its own.

        `counted`: what all loads of these data have counted, of which this may be one.
        """
        self._tool, self._slow, self._usual, self._counted = tool, slow, usual or {}, counted
        super().__init__(what, words, minimal({"LC_ALL": "C.UTF-8"}), most_s)

    def __iter__(self) -> Iterator[LoadEvent]:
        """Yield its seconds, where it tells them, and at last the whole run."""
        tool, slow = self._tool, self._slow
        # A tool does not tell when its connections are made: its time begins with it.
        yield LoadReady(
            pid=self.pid,
            version="",
            loop="closed" if tool.loop == "closed" else "open",
            slots=1,
            nodes=1,
        )
        reader = Reader(tool.results, self._what)
        seconds, operations = 0, 0.0
        for line in self.lines():
            reader.take(line.rstrip("\r\n"))
            second = re.search(tool.progress, line) if tool.progress else None
            if second is not None:
                seconds, operations = seconds + 1, operations + float(second[1])
                yield progress(seconds / slow, operations, float(second[1]) * slow)
        reader.check(self.said)
        yield self._whole(reader)

    def _whole(self, reader: Reader) -> LoadDone:
        slow, numbers = self._slow, reader.numbers
        count, seconds = self._amounts(reader)
        failed, lost, wrong = (int(numbers.get(name, 0)) for name in ("failed", "lost", "wrong"))
        histogram = read_histogram(reader, slow, round(count))
        latencies = {name: numbers[name] / slow for name in kits.LATENCIES if name in numbers}
        return done(
            self._tool.operation,
            int(count),
            seconds / slow,
            cpu_ns=self.cpu_ns(),
            started_unix_ns=self.started_ns,
            is_closed=self._tool.loop == "closed",
            histogram=histogram,
            # Of steps the percentiles are rounded; a histogram of all latencies knows better.
            latency_ms=latencies if histogram is None else {},
            errors={"failed": failed, "missing rows": lost, "wrong rows": wrong},
            failed=failed,
            lost=lost,
            wrong=wrong,
        )

    def _amounts(self, reader: Reader) -> tuple[float, float]:
        """Return operations and seconds, in the tool's own time, from what it has said of them."""
        numbers, usual = reader.numbers, self._usual
        took_s = (time.time_ns() - self.started_ns) / 1e9
        if "there" in numbers:
            # What is there is held against what the loads have counted.
            numbers["checked"] = float(sum(self._counted))
            numbers["lost"] = max(numbers["checked"] - numbers["there"], 0.0)
        if "checked" in numbers:
            return numbers["checked"] - numbers.get("lost", 0) - numbers.get("wrong", 0), took_s
        by_latency = sum(number for _, number in reader.buckets)
        count, rate = numbers.get("count", by_latency or usual.get("count")), numbers.get("rate")
        if count is None and rate is None:
            raise MachineError(f"{self._what} has said neither a count nor a rate")
        asked_s = count / rate if count and rate else usual.get("seconds", took_s)
        seconds = numbers.get("seconds", asked_s)
        count = count if count is not None else (rate or 0.0) * seconds
        self._counted.append(int(count))
        return count, seconds


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
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    names = [name for name in shares if name in numbers]
    for name in names:
        upto = count if name == names[-1] else round(count * shares[name])
        yield numbers[name], max(upto - below, 0)
        below = max(upto, below)


class Tool:
    """A load tool of a kit. See `Workload` for what is promised."""

    headline = None
    makes_tables = False
    data_bytes = 0
    """Not known of a tool's records."""

    def __init__(self, spec: ClusterTrial, seed: int, time_dilation: int = 1) -> None:
        """Take the trial as it is run here; UserError when the tool is not to be had."""
        of, load = kit_of(spec.database.engine), spec.workload.load
        self._kit, self._work = of.kit, spec.workload.the(benchmarks.Tool)
        self._load, self._seed, self._slow = of.kit.loads[self._work.load], seed, time_dilation
        self._rate, self._has_events = load.rate_per_s if load else None, bool(spec.events)
        self.generators = min(self._work.threads, os.cpu_count() or 1)
        # What the servers do not need was not fetched with them.
        tools = (self._load, *filter(None, (of.kit.fill, of.kit.check)))
        texts = (text for tool in tools for text in (*tool.run, *tool.at_rate, *tool.unlimited))
        wanted = {name for text in texts for name in names_in(text)}
        self._programs = {
            f"program.{program.name}": path_of(of, program, ThisMachine(), say_nothing)
            for program in of.kit.programs
            if program.script is None and f"program.{program.name}" in wanted
        }

    def fill(self, target: Target) -> Sequence[Begin]:
        """Return the program that puts the data set there; nothing where the trial has none."""
        tool, count = self._kit.fill, self._work.fill
        if not count or tool is None:
            return []
        what, counted = f"{self._kit.title}'s fill", _of_kit(target)["acknowledged"]
        words = self._words(target, tool, count=count, seed=self._seed)
        usual = {"count": float(count)}
        return [lambda: ToolRun(what, tool, words, FILL_SECONDS, counted, usual=usual)]

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
        usual = {"seconds": float(seconds)}
        wanted = {name for word in _paced(load, rate) for name in names_in(word)}
        if "count" in wanted and "seconds" not in wanted:
            usual["count"] = float(count)
        what, counted = (
            f"{self._kit.title}'s load {self._work.load}",
            _of_kit(target)["acknowledged"],
        )
        most_s = seconds * (1 if rate else 4) + load.within
        return lambda: ToolRun(what, load, words, most_s, counted, usual=usual, slow=slow)

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
        what, counted = f"{self._kit.title}'s check", _of_kit(target)["acknowledged"]
        words = self._words(target, tool)
        return lambda: ToolRun(what, tool, words, tool.within, counted)

    def wear(self, done: LoadDone) -> float:
        """Return that a load has left other data than the fill's, once it has done something."""
        return float(any(each.count for each in done.operations.values()))

    def _words(self, target: Target, tool: kits.Tool, **numbers: int) -> list[str]:
        usual = {"threads": self._work.threads, "seconds": 0, "count": 0, "rate": 0, "seed": 1}
        chosen = {
            name: self._work.parameters.get(name, kind.default)
            for name, kind in tool.parameters.items()
        }
        values = _of_kit(target)["values"] | self._programs | chosen
        values |= {"fill": self._work.fill or 0, **usual, **numbers}
        return [filled(word, values, "run") for word in _paced(tool, numbers.get("rate"))]


def _paced(tool: kits.Tool, rate: int | None) -> list[str]:
    """Return a tool's words, with those of a rate or those without one."""
    pace = tool.at_rate if rate else tool.unlimited
    return [each for word in tool.run for each in (pace if word == "{pace}" else (word,))]


def _of_kit(target: Target) -> Mapping[str, Any]:
    kit = target.get("kit")
    if not isinstance(kit, Mapping):
        rule, way_out = "a tool is a part of a kit", "write engine: kit"
        raise UserError(Problem("workload.tool", str(target.get("protocol")), rule, way_out))
    return kit
