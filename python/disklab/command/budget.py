"""What a command may do to its disk: `fsyncs <= 120, p99 write <= 8ms, wall <= 30s`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from disklab.catalog import parse_bytes
from disklab.catalog.quantity import about_bytes
from disklab.command.counts import CommandRun, Kind
from disklab.errors import Problem, UserError
from disklab.hosts.changes import parse_time_ns

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
    "fsyncs": "flush",
    "discards": "discard",
}
BYTES: dict[str, Kind] = {"bytes read": "read", "bytes written": "write"}
TIMES = ("wall", "disk")
"""How long the command took, and how long its I/Os did altogether."""
LATENCIES = ("mean", "p50", "p95", "p99", "max")
LATENCY_KINDS: dict[str, Kind] = {"read": "read", "write": "write", "flush": "flush"}
NAMES = (
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
            problems.append(Problem(place, repr(name), "nothing of this name is counted", _names()))
        else:
            try:
                lines.append(BudgetLine(part, name, match[2], _bound(name, match[3].strip())))
            except (ValueError, UserError):
                rule, way_out = _unit(name)
                problems.append(Problem(place, repr(match[3]), rule, way_out))
    if not lines and not problems:
        problems.append(Problem(place, repr(text), "it has no condition", _names()))
    if problems:
        raise UserError(*problems)
    return lines


def _names() -> str:
    return f"there are: {', '.join(NAMES)}"


def _bound(name: str, text: str) -> float:
    if name in TIMES or name.split(maxsplit=1)[0] in LATENCIES:
        return parse_time_ns(text, name) / 1e9
    if name in BYTES:
        return float(parse_bytes(text))
    return float(int(text))


def _unit(name: str) -> tuple[str, str]:
    if name in TIMES or name.split(maxsplit=1)[0] in LATENCIES:
        return f"{name} is a time", "write for example 8ms"
    if name in BYTES:
        return f"{name} is a size", "write for example 64MiB"
    return f"{name} is a number of I/Os", "write for example 120"


def _amount(name: str, run: CommandRun) -> float | None:
    if name == "wall":
        return run.wall_s
    if name == "disk":
        return run.disk_s
    if name == "ios":
        return run.ios
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
    if name == "ios" or name in COUNTS:
        return f"{amount:,.0f}"
    return f"{amount * 1e3:.2f} ms"
