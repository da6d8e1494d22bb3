"""What a disk did while a command ran."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from disklab.catalog import parse_bytes
from disklab.catalog.quantity import about_bytes
from disklab.catalog.suggest import did_you_mean
from disklab.engine import Lateness, LimitCounters, View
from disklab.errors import Problem, UserError, refuse
from disklab.hosts.changes import parse_time_ns
from disklab.reading import digits

Kind = Literal["read", "write", "flush", "discard"]
NameOf = Callable[[LimitCounters], str]
SIMULATED = "simulated"
"""Instead of a file system's name: such a run is compared with its like alone."""
KINDS: tuple[Kind, ...] = ("read", "write", "flush", "discard")


class Latency(BaseModel):
    """From an I/O's issue to its reply, in milliseconds; percentiles are at most 6 % too high."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    """The end of the largest bucket that has an I/O."""

    @classmethod
    def of(cls, histogram: Lateness) -> Latency | None:
        """Return the summary of a histogram; None: it is empty."""
        buckets = histogram.buckets
        total = sum(count for _, count in buckets)
        if total == 0:
            return None
        mean = sum(value * count for value, count in buckets) / total

        def ms(ppm: int) -> float:
            return histogram.quantile(ppm) / 1e6

        return cls(
            mean_ms=mean / 1e6,
            p50_ms=ms(500_000),
            p95_ms=ms(950_000),
            p99_ms=ms(990_000),
            max_ms=buckets[-1][0] / 1e6,
        )


class Operations(BaseModel):
    """I/Os of one kind."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ios: int
    bytes: int
    failed: int
    latency: Latency | None = None


class LimitUse(BaseModel):
    """A limit that I/Os waited for."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    delayed_s: float
    per_s: int | None = None
    """None: a simulation names the limit alone."""
    unit: str | None = None
    delayed_ios: int | None = None
    credits_spent: int | None = None
    """In I/Os or bytes; None: the limit has no credits."""
    credits_left_ratio: float | None = None


class CommandRun(BaseModel):
    """A command and what the disk did for it: what `--json` prints and `--compare` reads."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: list[str]
    exit_code: int
    """Of the command; 128 and the signal's number where a signal ended it."""
    wall_s: float
    disks: str
    vm: str | None
    caching: str
    filesystem: str
    weather: str | None = None
    """Of the disk meanwhile, in words; None: it was well."""
    operations: dict[Kind, Operations]
    fsyncs: int | None = None
    """Calls of fsync and its like by the command; None: they were not counted."""
    limits: list[LimitUse]
    cache_hit_ratio: float | None = None
    late_ratio: float
    """The share of replies that this machine gave more than 50 microseconds late."""
    warnings: list[str] = []
    standing: list[str] = Field(default=[], exclude=True)
    """Those of the warnings that hold on each run of this machine."""

    @property
    def ios(self) -> int:
        """How many I/Os of all kinds."""
        return sum(operations.ios for operations in self.operations.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def disk_s(self) -> float:
        """How long all I/Os took, from issue to reply, added up.

        What the command waits for a CPU afterwards is not in it.
        """
        every = self.operations.values()
        return sum(one.ios * one.latency.mean_ms for one in every if one.latency) / 1e3


def operations_between(before: View, after: View) -> dict[Kind, Operations]:
    """Return what a disk did between two looks, by kind; kinds without an I/O too."""
    earlier, later = before.counters.operations, after.counters.operations
    none = Lateness.of([])
    return {
        kind: Operations(
            ios=later[kind].ios - earlier[kind].ios,
            bytes=later[kind].bytes - earlier[kind].bytes,
            failed=later[kind].failed - earlier[kind].failed,
            latency=Latency.of(
                after.emulator.latency_ns.get(kind, none).since(
                    before.emulator.latency_ns.get(kind, none)
                )
            ),
        )
        for kind in KINDS
    }


def limits_between(before: View, after: View, name: NameOf) -> list[LimitUse]:
    """Return the limits that held an I/O up between two looks, the longest wait first."""
    uses = []
    for limit, since in after.counters.limits_since(before.counters):
        credits_ = limit.credits
        if limit.delayed_ios == 0 and credits_ is None:
            continue
        left = spent = None
        if credits_ is not None and credits_.capacity:
            left = credits_.left / credits_.capacity
            if since is not None and since.credits is not None:
                spent = max(0, since.credits.left - credits_.left)
        uses.append(
            LimitUse(
                name=name(limit),
                per_s=limit.per_s,
                unit=limit.unit,
                delayed_ios=limit.delayed_ios,
                delayed_s=limit.delayed_ns / 1e9,
                credits_spent=spent,
                credits_left_ratio=left,
            )
        )
    return sorted(uses, key=lambda use: -use.delayed_s)


# What a command may do to its disk: `fsyncs <= 120, p99 write <= 8ms, wall <= 30s`.

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
COUNTS: dict[str, Kind] = {
    "reads": "read",
    "writes": "write",
    "flushes": "flush",
    "discards": "discard",
}
BYTES: dict[str, Kind] = {"bytes read": "read", "bytes written": "write"}
TIMES = ("wall", "disk")
"""How long the command took, and how long its I/Os did altogether."""
LATENCIES = ("mean", "p50", "p95", "p99", "max")
LATENCY_KINDS: dict[str, Kind] = {"read": "read", "write": "write", "flush": "flush"}
FSYNCS = "fsyncs"
"""Calls of the command, where `flushes` are what reached the disk."""
NAMES = (
    FSYNCS,
    "ios",
    *COUNTS,
    *BYTES,
    *(f"{name} {kind}" for name in LATENCIES for kind in LATENCY_KINDS),
    *TIMES,
)

_LINE = re.compile(r"([a-z0-9 ]+?)\s*(<=|>=|<|>)\s*(.+)", re.ASCII)


@dataclass(frozen=True)
class BudgetLine:
    """One condition, in base units: a count, bytes, or seconds."""

    text: str
    name: str
    comparison: str
    bound: float

    def judge(self, run: CommandRun) -> Judged:
        """Return whether a run keeps it; a latency of I/Os that did not occur is kept."""
        amount = _amount(self.name, run)
        met = amount is None or COMPARISONS[self.comparison](amount, self.bound)
        return Judged(self, amount, met)


@dataclass(frozen=True)
class Judged:
    """A condition and what came of it."""

    line: BudgetLine
    amount: float | None
    """In the line's base unit; None: there was no such I/O."""
    met: bool

    def sentence(self) -> str:
        """Return it in words: `fsyncs <= 120: 131, missed`."""
        shown = "no such I/O" if self.amount is None else _shown(self.line.name, self.amount)
        return f"{self.line.text}: {shown}, {'kept' if self.met else 'missed'}"


def parse_budget(text: str, place: str) -> list[BudgetLine]:
    """Read conditions with commas between them. Raises UserError with all that is wrong."""
    lines, problems = [], []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _LINE.fullmatch(part)
        name = " ".join(match[1].split()) if match else part
        if match is None:
            way_out = "write for example 'fsyncs <= 120' or 'p99 write <= 8ms'"
            problems.append(Problem(place, repr(part), "it is no comparison", way_out))
        elif name not in NAMES:
            problems.append(
                Problem(place, repr(name), "nothing of this name is counted", _names(name))
            )
        else:
            try:
                lines.append(BudgetLine(part, name, match[2], _bound(name, match[3].strip())))
            except (ValueError, UserError):
                rule, way_out = _unit(name)
                problems.append(Problem(place, repr(match[3]), rule, way_out))
    if not lines and not problems:
        problems.append(Problem(place, repr(text), "it has no condition", _names()))
    refuse(problems)
    return lines


def _names(name: str = "") -> str:
    every = ", ".join((FSYNCS, "ios", *COUNTS, *BYTES, *TIMES))
    times = f"{', '.join(LATENCIES)} of {', '.join(LATENCY_KINDS)}"
    return did_you_mean(name, NAMES, f"there are: {every}; {times}")


def _bound(name: str, text: str) -> float:
    if name in TIMES or name.split(maxsplit=1)[0] in LATENCIES:
        return parse_time_ns(text, name) / 1e9
    if name in BYTES:
        return float(parse_bytes(text))
    if (number := digits(text)) is None:
        raise ValueError(text)
    return float(number)


def _unit(name: str) -> tuple[str, str]:
    if name in TIMES or name.split(maxsplit=1)[0] in LATENCIES:
        return f"{name} is a time", "write for example 8ms"
    if name in BYTES:
        return f"{name} is a size", "write for example 64MiB"
    return f"{name} is a whole number", "write for example 120"


def _amount(name: str, run: CommandRun) -> float | None:
    whole = {"wall": run.wall_s, "disk": run.disk_s, "ios": run.ios, FSYNCS: run.fsyncs}
    if name in whole:
        return whole[name]
    if name in COUNTS:
        return run.operations[COUNTS[name]].ios
    if name in BYTES:
        return run.operations[BYTES[name]].bytes
    statistic, kind = name.split()
    latency = run.operations[LATENCY_KINDS[kind]].latency
    return None if latency is None else float(getattr(latency, f"{statistic}_ms")) / 1e3


def _shown(name: str, amount: float) -> str:
    if name in TIMES:
        return f"{amount:.1f} s"
    if name in BYTES:
        return about_bytes(amount)
    if name in {"ios", FSYNCS} or name in COUNTS:
        return f"{amount:,.0f}"
    return f"{amount * 1e3:.2f} ms"
