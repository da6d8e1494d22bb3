"""What somebody would guess who has the fitted rows of a study and no model: the bar to clear.

A cell on another disk: the fitted row of the same load. A mixed load: the harmonic mean of reading
and writing, corrected by what it is off in a fitted mixed row. Between two fitted levels of a
number: their geometric mean; beyond, the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from disklab.prediction.counted import Levels
from disklab.report.cells import size_of

Figures = Mapping[str, float]

MIXED, PARTS = "mixed", ("read", "write")
RATE = "ops/s"


@dataclass(frozen=True)
class Baseline:
    """The published figures of the rows that parameters were fitted on, by their levels."""

    fitted: Mapping[Levels, Figures]

    def guess(self, cell: Levels) -> Figures | None:
        """Return the figures of a cell; None: no fitted row is like it."""
        for alike in (cell, *self._elsewhere(cell)):
            found = self.fitted.get(alike) or self._mixed(alike) or self._between(alike)
            if found is not None:
                return found
        return None

    def _elsewhere(self, cell: Levels) -> Iterator[Levels]:
        """Yield the cell with one named level, such as the disk's, that a fitted row has."""
        for number, (name, level) in enumerate(cell):
            if size_of(level) is not None:
                continue
            known = dict.fromkeys(value for row in self.fitted for n, value in row if n == name)
            for other in known:
                if other != level and size_of(other) is None:
                    yield (*cell[:number], (name, other), *cell[number + 1 :])

    def _between(self, cell: Levels) -> Figures | None:
        """Return the geometric mean of the fitted rows around a number."""
        for number, (name, level) in enumerate(cell):
            size = size_of(level)
            if size is None:
                continue
            rest = (*cell[:number], *cell[number + 1 :])
            near = []
            for row, figures in self.fitted.items():
                others = tuple(pair for pair in row if pair[0] != name)
                other = size_of(dict(row).get(name, ""))
                if others == rest and other is not None:
                    near.append((other, figures))
            below = max((one for one in near if one[0] < size), key=_first, default=None)
            above = min((one for one in near if one[0] > size), key=_first, default=None)
            around = [one[1] for one in (below, above) if one is not None]
            if around:
                return _mean(around) if len(around) > 1 else around[0]
        return None

    def _mixed(self, cell: Levels) -> Figures | None:
        """Return reading and writing together, off by as much as in the nearest fitted row."""
        parts = self._together(cell)
        near = self._between(cell)
        if parts is None or near is None:
            return parts
        fitted = next((row for row, told in self.fitted.items() if told is near), cell)
        there = self._together(fitted) or {}
        return {
            name: value * near[name] / there[name] if name in near and name in there else value
            for name, value in parts.items()
        }

    def _together(self, cell: Levels) -> Figures | None:
        """Return the harmonic mean of the rates of reading and writing, the geometric of others."""
        for number, (name, level) in enumerate(cell):
            if level != MIXED:
                continue
            alone = [(*cell[:number], (name, part), *cell[number + 1 :]) for part in PARTS]
            known = [self.fitted.get(one) or self._between(one) for one in alone]
            told = [one for one in known if one is not None]
            if len(told) == len(PARTS):
                found = dict(_mean(told))
                if RATE in found:
                    found[RATE] = len(told) / sum(1 / one[RATE] for one in told)
                return found
        return None


def _first(pair: tuple[float, Figures]) -> float:
    return pair[0]


def _mean(rows: Sequence[Figures]) -> Figures:
    """Return the geometric mean of each figure that all rows have."""
    common = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: math.exp(sum(math.log(row[name]) for row in rows) / len(rows)) for name in common}
