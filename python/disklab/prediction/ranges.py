"""Ranges in an experiment file: `credits: 0..100%`, for what is not known of a described system.

A range stands where an amount may stand. The prediction is made in its middle (the arithmetic one
of shares and of what begins at 0, else the geometric one), and its band reaches over both ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from disklab import spec
from disklab.errors import Problem, UserError
from disklab.report.cells import size_of
from disklab.spec.located import text_of

MOST_RANGES = 4
"""Each doubles the number of files that are read."""

_RANGE = re.compile(
    r"(?P<low>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z%]*)\.\.(?P<high>[0-9]+(?:\.[0-9]+)?)"
    r"(?P<last>[A-Za-z%]*)"
)
_QUOTED = re.compile(r"[\"']")
TEXTS = ("title", "source")
_KEY = re.compile(r"([\w.]+)\s*:[^:{},]*$")


@dataclass(frozen=True)
class Range:
    """An amount of which the file says two ends."""

    name: str
    """Its key and line: `credits (line 12)`."""
    start: int
    end: int
    low: str
    middle: str
    high: str


@dataclass(frozen=True, eq=False)
class Ranged:
    """An experiment file and its ranges."""

    path: Path
    text: str
    ranges: tuple[Range, ...]
    only: Mapping[str, Sequence[str]]

    @cached_property
    def middle(self) -> spec.Experiment:
        """The experiment in the middle of all ranges."""
        return self.at({})

    def at(self, signs: Mapping[str, float]) -> spec.Experiment:
        """Return the experiment at an end of each named range: below 0 the low one."""
        text = self.text
        for one in reversed(self.ranges):
            sign = signs.get(one.name, 0.0)
            value = one.middle if not sign else one.low if sign < 0 else one.high
            text = text[: one.start] + value + text[one.end :]
        chosen = {name: list(levels) for name, levels in self.only.items()}
        return spec.parse(text, self.path).only(chosen)


def read_ranged(path: Path, only: Mapping[str, Sequence[str]]) -> Ranged:
    """Return an experiment file with its ranges, if it has any. Raises UserError."""
    text = text_of(path)
    found, problems, offset = [], [], 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        content = line.partition("#")[0]
        for match in _RANGE.finditer(content):
            key = _KEY.search(content[: match.start()])
            if key is None or key[1] in TEXTS or _QUOTED.search(content[: match.start()]):
                continue  # of a sentence
            place = f"{path}:{number}: {key[1]}"
            span = (offset + match.start(), offset + match.end())
            made = _range(f"{key[1]} (line {number})", match, span)
            if made is None:
                rule, way_out = "is not a range", "write the lower end first, as in 0..100%"
                problems.append(Problem(place, match[0], rule, way_out))
            else:
                found.append(made)
        offset += len(line)
    if len(found) > MOST_RANGES:
        rule = f"a file may hold {MOST_RANGES} ranges"
        way_out = "give a value for those that matter least"
        problems.append(Problem(str(path), f"{len(found)} ranges", rule, way_out))
    if problems:
        raise UserError(*problems)
    return Ranged(path, text, tuple(found), only)


def _range(name: str, match: re.Match[str], span: tuple[int, int]) -> Range | None:
    """Return a range; None: its ends are not in order, or their units do not fit together."""
    last = match["last"] or match["unit"]
    first = match["unit"] or last
    low, high = match["low"] + first, match["high"] + last
    ends = size_of(low), size_of(high)
    if ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
        return None
    arithmetic = first == "%" or ends[0] == 0
    if first == last:
        least, most = float(match["low"]), float(match["high"])
        value = (least + most) / 2 if arithmetic else math.sqrt(least * most)
        whole = last != "%" and "." not in match["low"] + match["high"] and value >= 1
        return Range(name, *span, low, f"{round(value) if whole else value:g}{last}", high)
    if not {first, last} <= {"B", "KiB", "MiB", "GiB", "TiB"}:
        return None
    return Range(name, *span, low, f"{round(math.sqrt(ends[0] * ends[1]))}B", high)
