"""The course of a repeat in a bounded number of windows, however long it was.

Histograms of neighbouring seconds are added up, never percentiles averaged. Memory and the size of
the report do not grow with the run: windows double in width when there would be too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disklab.report.verdict import Quantity
from disklab.report.verdict_interval import Floats, Series
from disklab.results import Second, Sum
from disklab.results.histogram import values

MOST_WINDOWS = 400
"""About one a pixel of a narrow chart, and enough blocks for an interval."""
SHORTEST_S = 0.1
"""Windows are not narrower: with less, a p99 is that of a few operations."""
COLUMN_STEP = 0.01
SMALLEST_MS = 1e-6
"""A nanosecond; a histogram may count zeros, which have no logarithm."""
MS = 1e6
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True)
class Windows:
    """Figures of consecutive windows of equal width."""

    width_s: float
    t_s: Floats
    """End of each window, from the start of the phase."""
    ops_per_s: Floats
    value_ms: Floats
    """The latency that each column of `counts` stands for, rising."""
    counts: NDArray[np.int64]
    """Windows x latencies; no columns when the run kept no histograms."""

    def percentile_ms(self, percentile: float) -> Floats:
        """Return a percentile of each window; not a number where a window has no latencies."""
        return weighted_percentile(self.counts.astype(np.float64), self.value_ms, percentile)

    def series(self, quantity: Quantity) -> Series | None:
        """Return the windows as the verdict resamples them; None when they lack the quantity."""
        if quantity is Quantity.OPS:
            rates = self.ops_per_s
            return Series(rates, lambda weights: weights @ rates / weights.sum(axis=1))
        if not self.value_ms.size:
            return None
        percentile = float(quantity.value.removeprefix("p").removesuffix("_ms"))
        counts, each = self.counts.astype(np.float64), self.percentile_ms(percentile)
        return Series(
            np.nan_to_num(each),
            lambda weights: weighted_percentile(weights @ counts, self.value_ms, percentile),
        )


def weighted_percentile(counts: Floats, value_ms: Floats, percentile: float) -> Floats:
    """Return a percentile of each row of counts; not a number for empty rows."""
    if not value_ms.size:
        return np.full(len(counts), np.nan)
    cumulated = np.cumsum(counts, axis=1)
    total = cumulated[:, -1:]
    found = (cumulated < total * percentile / 100 - 1e-9).sum(axis=1)
    told = value_ms[np.minimum(found, len(value_ms) - 1)]
    return np.where(total[:, 0] > 0, told, np.nan)


class WindowsOf:
    """Adds up seconds into windows as they are read."""

    def __init__(self, most: int = MOST_WINDOWS) -> None:
        """Take how many windows there may be."""
        self._most = most
        self._width = 1.0
        self._ended: dict[int, float] = {}
        self._done: dict[int, dict[int, tuple[float, float]]] = {}
        """Window -> generator -> operations and seconds."""
        self._latencies: dict[int, Sum] = {}

    def add(self, second: Second) -> None:
        """Add one interval of one generator; it belongs to the window that holds its middle."""
        begun = self._ended.get(second.generator, 0.0)
        length = second.t_s - begun
        if length <= 0:
            return
        if not self._ended:
            # Under time dilation an interval is a fraction of a second.
            self._width = min(max(length, SHORTEST_S), 1.0)
        self._ended[second.generator] = second.t_s
        middle = begun + length / 2
        while middle >= self._width * self._most:
            self._double()
        index = int(middle // self._width)
        done = second.ops_per_s * length
        _add_done(self._done, index, {second.generator: (done, length)})
        for text in second.histograms.values():
            self._latencies.setdefault(index, Sum()).add(text)

    def _double(self) -> None:
        self._width *= 2
        done, latencies = self._done, self._latencies
        self._done, self._latencies = {}, {}
        for index, by_generator in done.items():
            _add_done(self._done, index // 2, by_generator)
        for index, found in latencies.items():
            self._latencies.setdefault(index // 2, Sum()).take(found)

    def windows(self) -> Windows | None:
        """Return the windows; None without any. One that is not half full is left out."""
        full = [
            index
            for index, by_generator in sorted(self._done.items())
            if max(seconds for _, seconds in by_generator.values()) >= self._width / 2
        ]
        if not full:
            return None
        rates = [
            sum(operations / seconds for operations, seconds in self._done[index].values())
            for index in full
        ]
        columns, counts = self._columns(full)
        return Windows(
            width_s=self._width,
            t_s=(np.array(full, dtype=np.float64) + 1) * self._width,
            ops_per_s=np.array(rates),
            value_ms=columns,
            counts=counts,
        )

    def _columns(self, full: list[int]) -> tuple[Floats, NDArray[np.int64]]:
        """Return the latencies that occur at all, and how often in each window."""
        by_window = [
            {one.layout: one.counts for one in self._latencies.get(n, Sum()).histograms()}
            for n in full
        ]
        layouts = list(dict.fromkeys(one for held in by_window for one in held))
        parts, told = [], []
        for layout in layouts:
            rows = [held.get(layout, np.zeros(layout.length, np.int64)) for held in by_window]
            used = np.flatnonzero(np.sum(rows, axis=0))
            parts.append(np.stack([row[used] for row in rows]))
            told.append(values(layout)[1][used] / MS)
        if not parts:
            return np.empty(0), np.empty((len(full), 0), dtype=np.int64)
        latencies, counted = np.concatenate(told), np.concatenate(parts, axis=1)
        # Latencies within 1 % of each other share a column: finer than a chart shows.
        logs = np.log(np.maximum(latencies, SMALLEST_MS))
        step = np.round(logs / np.log1p(COLUMN_STEP)).astype(np.int64)
        order = np.argsort(step, kind="stable")
        steps, column = np.unique(step[order], return_inverse=True)
        # Columns rise, so those of one step are neighbours.
        firsts = np.searchsorted(column, np.arange(len(steps)))
        grouped = np.add.reduceat(counted[:, order], firsts, axis=1)
        return np.exp(steps * np.log1p(COLUMN_STEP)), grouped


def _add_done(
    into: dict[int, dict[int, tuple[float, float]]],
    index: int,
    more: dict[int, tuple[float, float]],
) -> None:
    held = into.setdefault(index, {})
    for generator, (operations, seconds) in more.items():
        before = held.get(generator, (0.0, 0.0))
        held[generator] = (before[0] + operations, before[1] + seconds)


def windows_of(seconds: Iterable[Second], most: int = MOST_WINDOWS) -> Windows | None:
    """Return the windows of some seconds of the measuring phase."""
    made = WindowsOf(most)
    for second in seconds:
        if second.phase == "measure":
            made.add(second)
    return made.windows()
