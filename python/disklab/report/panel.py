"""A chart with everything that goes with it: title, words, and its figures as a table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from altair.utils import schemapi


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
