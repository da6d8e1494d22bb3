"""What all charts share: one rule for each kind of axis, names of rows, and tips in one line.

Latencies stand on logarithmic axes in every chart, with their units; rates begin at zero, unless
the highest of a section is so far above the lowest that this one would not be seen.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any

import altair as alt
from altair.utils import schemapi

# A chart with everything that goes with it: title, words, and its figures as a table.


@contextmanager
def unchecked() -> Iterator[None]:
    """Have altair build charts without holding each against Vega-Lite's schema.

    That takes most of a report's time. The tests hold every kind of chart against the schema.
    """
    with schemapi.debug_mode(False):
        yield


@dataclass(frozen=True)
class Figures:
    """A table of text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    """What is held fixed: `read, 128 threads`."""
    described: str
    """The chart in words, for those who cannot see it."""
    chart: Any
    """An altair chart without size: the page and the files give it theirs."""
    height: int
    figures: Figures
    key: tuple[str, ...] = ()
    """Series in the order of their colours, where lines carry no labels of their own."""
    dashed: tuple[str, ...] = ()
    """Other runs: their lines are dashed, their rows fainter."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Fields of the chart's data, and what a CSV file calls them."""
    spans: bool = False
    """Whether it shows bands, or the range of repeats."""

    def spec(self, **size: Any) -> dict[str, Any]:
        """Return the Vega-Lite specification."""
        with unchecked():
            sized = self.chart.properties(height=self.height, **size)
            found: dict[str, Any] = sized.to_dict(validate=False)
        found.pop("config", None)
        found["description"] = self.described
        return found

    def csv(self) -> str:
        """Return the data of the chart: a line for each entry, numbers in full."""
        told = io.StringIO()
        writer = csv.writer(told, lineterminator="\n")
        writer.writerow(self.columns.values())
        for entry in entries(self.spec(), tuple(self.columns)):
            writer.writerow([plain(entry.get(name, "")) for name in self.columns])
        return told.getvalue()


def entries(spec: Any, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the first data of a specification that has the fields."""
    listed = isinstance(spec, list) and spec and all(isinstance(one, dict) for one in spec)
    if listed and all(any(name in one for one in spec) for name in fields[:2]):
        return list(spec)
    inner = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    return next((found for one in inner if (found := entries(one, fields))), [])


def plain(value: object) -> object:
    """Return a value that no spreadsheet takes for a formula: names come from files of others."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


@dataclass(frozen=True)
class Section:
    """Panels that answer one question."""

    name: str
    """For anchors and file names."""
    heading: str
    lead: str
    panels: tuple[Panel, ...]
    shown: int = 4
    """How many are open at first."""


def slug(text: str) -> str:
    """Return a text as a part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-") or "all"


def rows(lines: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return lines as the rows of a table."""
    return tuple(tuple(line) for line in lines)


LOG_FROM = 20.0
"""Highest over lowest from which on a linear axis hides the low ones."""
MOST_TICKS, FEWEST_TICKS = 7, 3
FINE = (
    *(n / 10 for n in range(10, 20)),
    *(n / 4 for n in range(8, 16)),
    *(n / 2 for n in range(8, 20)),
)
STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), FINE)
"""Marks within a decade, the coarsest first; the last for figures that are close together."""
TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
)  # fmt: skip
LINE_HEIGHT = 13
"""Pixels of a line of a row's name."""
MOST_LETTERS = 20
"""Of one line of a row's name: more leave a telephone's screen no room for the bars."""
FEW_POINTS = 30
"""Of a line: so few are marked, for a line of one or two is hardly seen."""


def latency_text(value: str) -> str:
    """Return the Vega expression that writes milliseconds as `912 us`, `7.38 ms` or `84.4 s`."""
    parts = (
        f"{value} == 0 ? '0'",
        f"{value} < 1 ? format({value} * 1000, ',.3~r') + ' us'",
        f"{value} < 1000 ? format({value}, ',.3~r') + ' ms'",
        f"format({value} / 1000, ',.3~r') + ' s'",
    )
    return f"({' : '.join(parts)})"


def time_text(value: str) -> str:
    """Return the Vega expression that writes seconds as `40 s`, `12 min` or `2.5 h`."""
    parts = (
        f"{value} < 120 ? format({value}, '.3~r') + ' s'",
        f"{value} < 7200 ? format({value} / 60, '.3~r') + ' min'",
        f"format({value} / 3600, '.3~r') + ' h'",
    )
    return f"({' : '.join(parts)})"


def latency_axis(shown: Sequence[float]) -> dict[str, Any]:
    """Return title, scale and axis of milliseconds: logarithmic, each mark with its unit."""
    return {"title": None, **log_axis(shown, labelExpr=latency_text("datum.value"))}


def rate_axis(shown: Iterable[float]) -> dict[str, Any]:
    """Return scale and axis of rates: from zero on, or logarithmic where that hides some."""
    top = [value for value in shown if value > 0]
    if top and max(top) / min(top) > LOG_FROM:
        return log_axis(top, format=",~r")
    return {"scale": alt.Scale(zero=True)}


def log_axis(shown: Sequence[float], **axis: Any) -> dict[str, Any]:
    """Return scale and axis of a logarithmic direction with few marks."""
    top = [value for value in shown if value > 0] or [1.0]
    low, high = min(top) * 0.8, max(top) * 1.2
    return {
        "scale": alt.Scale(type="log", nice=False, domain=[low, high]),
        "axis": alt.Axis(values=ticks(low, high), labelOverlap="greedy", labelSeparation=4, **axis),
    }


WIDE = 12.0
"""Largest over smallest level from which on a sweep is logarithmic."""


def along(sizes: Mapping[str, float], title: str) -> alt.X:
    """Return the axis of a sweep, each level where its size puts it and under its own name.

    To scale; logarithmic, and said so, where the levels lie far apart.
    """
    names, places = zip(*sorted(sizes.items(), key=lambda item: item[1]), strict=True)
    log = places[0] > 0 and places[-1] / places[0] > WIDE
    room = 1.06 if log else (places[-1] - places[0]) * 0.03
    low, high = (
        (places[0] / room, places[-1] * room) if log else (places[0] - room, places[-1] + room)
    )
    return alt.X(
        "size:Q",
        title=f"{title} (logarithmic)" if log else title,
        scale=alt.Scale(
            type="log" if log else "linear", nice=False, zero=False, domain=[low, high]
        ),
        axis=alt.Axis(
            values=list(places),
            labelExpr=f"{json.dumps(names)}[indexof({json.dumps(places)}, datum.value)]",
            labelOverlap="greedy",
            grid=False,
            labelAngle=0,
        ),
    )


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two: the coarsest choice that has three, at most seven."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    found: list[float] = []
    for steps in STEPS:
        every = (float(f"{step * 10.0**decade:.6g}") for decade in decades for step in steps)
        found = [value for value in every if low <= value <= high]
        if len(found) >= FEWEST_TICKS:
            break
    return found[:: ceil(len(found) / MOST_TICKS)] if len(found) > MOST_TICKS else found


def time_axis(longest_s: float) -> alt.Axis:
    """Return the axis of seconds, marked at whole seconds, minutes or hours."""
    step = next((one for one in TIME_STEPS_S if longest_s / one <= MOST_TICKS - 1), 86_400)
    marks = list(range(0, int(longest_s) + 1, step))
    return alt.Axis(values=marks[:MOST_TICKS], labelExpr=time_text("datum.value"))


def wrapped(name: str) -> list[str]:
    """Return a row's name in lines that leave room for what it names."""
    lines: list[str] = []
    for word in name.split():
        if lines and len(lines[-1]) + 1 + len(word) <= MOST_LETTERS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def row_names(names: Sequence[str]) -> alt.Axis:
    """Return the axis of rows whose names are set in lines."""
    known = json.dumps({name: wrapped(name) for name in names}, ensure_ascii=False)
    return alt.Axis(labelExpr=f"({known})[datum.label]", labelLineHeight=LINE_HEIGHT, labelLimit=0)


def most_lines(names: Iterable[str]) -> int:
    """Return how many lines the longest name takes."""
    return max((len(wrapped(name)) for name in names), default=1)


def points_of_few(lines: Iterable[int]) -> dict[str, Any]:
    """Return how the points of lines are drawn: seen where a line has few, else for tips alone."""
    few = max(lines, default=0) <= FEW_POINTS
    return {"size": 26 if few else 60, "opacity": 1 if few else 0, "filled": True}
