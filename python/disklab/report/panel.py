"""A chart with everything that goes with it: title, words, and its figures as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

    def spec(self, **size: Any) -> dict[str, Any]:
        """Return the Vega-Lite specification."""
        with unchecked():
            sized = self.chart.properties(height=self.height, **size)
            found: dict[str, Any] = sized.to_dict(validate=False)
        found.pop("config", None)
        found["description"] = self.described
        return found


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
