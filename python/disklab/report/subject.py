"""A run as the report reads it: its matrix, and the course of its repeats when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disklab.report.cells import Cell, Matrix, Rates, matrix_of
from disklab.report.verdict import FEWEST_REPEATS, Floats, Quantity, Sample, Series
from disklab.results import Histogram, PlannedTrial, RunInfo, Second, Sum, TrialResult
from disklab.results.histogram import values
from disklab.results.required import Kept, judged

# The course of a repeat in a bounded number of windows, however long it was.
#
# Histograms of neighbouring seconds are added up, never percentiles averaged. Memory and the size
# of the report do not grow with the run: windows double in width when there would be too many.

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


MOST_KEPT = 64
"""Courses that are kept in memory; each takes a MB or two."""


class Records(Protocol):
    """Whose trials they are, which were planned, and what they came to."""

    @property
    def info(self) -> RunInfo: ...  # noqa: D102
    @property
    def torn(self) -> tuple[str, ...]: ...  # noqa: D102
    def results(self) -> list[TrialResult]: ...  # noqa: D102
    def planned(self) -> list[PlannedTrial]: ...  # noqa: D102


class RunLike(Records, Protocol):
    """What a stored run and a published study both offer: records, and the course of each trial."""

    def seconds(self, trial: int, repeat: int) -> Iterator[Second]: ...  # noqa: D102
    def response(self, trial: int, repeat: int) -> Histogram | None: ...  # noqa: D102
    def telemetry(self, trial: int, repeat: int) -> pl.LazyFrame: ...  # noqa: D102


@dataclass
class Subject:
    """One run of the report."""

    run: RunLike
    label: str
    """Short, and different from the other runs': `rehearse`, `rehearse 11-21 12:01`."""
    _windows: dict[tuple[int, int], Windows | None] = field(default_factory=dict, repr=False)

    @cached_property
    def matrix(self) -> Matrix:
        """The run's cells and the roles of its factors."""
        return matrix_of(self.run.results(), self.run.planned())

    @cached_property
    def kept(self) -> Mapping[int, Kept]:
        """Whether each trial keeps what its `require` asks; empty: nothing is asked."""
        return judged(self.run.results(), self.run.planned())

    @cached_property
    def specs(self) -> dict[int, dict[str, Any]]:
        """The specification of each planned trial."""
        return {trial.trial: trial.spec for trial in self.run.planned()}

    @property
    def info(self) -> RunInfo:
        """What is known of the run."""
        return self.run.info

    def windows(self, result: TrialResult) -> Windows | None:
        """Return the course of a repeat in windows; None when none was kept. Read once."""
        if result.key not in self._windows:
            if len(self._windows) >= MOST_KEPT:
                # The oldest: charts and verdict go through the cells in one order.
                del self._windows[next(iter(self._windows))]
            self._windows[result.key] = windows_of(self.run.seconds(*result.key))
        return self._windows[result.key]

    def sample(self, cell: Cell, quantity: Quantity, rates: Rates = Rates.AS_RUN) -> Sample:
        """Return a cell's figures, with their course where repeats alone are too few."""
        path = rates.value if quantity is Quantity.OPS else quantity.value
        figures = cell.figures(path)
        if figures and cell.usable[0].mode == "predict":
            return Sample(figures, predicted=True, bands=cell.usable[0].bands)
        if quantity is Quantity.P99 and any(slow_motion(one) for one in cell.usable):
            return Sample(())
        measured = any(one.mode != "published" for one in cell.usable)
        if len(figures) >= FEWEST_REPEATS:
            return Sample(figures, measured=measured)
        series = []
        for result in cell.usable:
            windows = self.windows(result)
            found = windows.series(quantity) if windows else None
            if found is not None:
                series.append(found)
        # The course counts what ran; other rates are all multiplied by one number.
        as_run = rates is Rates.AS_RUN or quantity is not Quantity.OPS
        if len(series) < len(figures) or not as_run:
            return Sample(figures, measured=measured)
        return Sample(figures, tuple(series), measured=measured)


def slow_motion(result: TrialResult) -> bool:
    """Return whether a repeat ran in slow motion, so that its p99 must not be judged.

    Pauses of a collector are divided by the dilation, and the kernel writes back that much too
    often: both are what a p99 consists of.
    """
    return result.share is not None and result.share.time_dilation > 1


def subjects_of(runs: Sequence[RunLike]) -> list[Subject]:
    """Return the runs with labels that tell them apart."""
    modes = [run.info.mode for run in runs]
    labels: list[str] = []
    for run in runs:
        info = run.info
        label = "published" if info.mode == "published" else str(info.mode)
        if modes.count(info.mode) > 1:
            label += " " + (info.started[5:16].replace("T", " ") or info.id)
        if label in labels:
            label = info.id
        labels.append(label)
    return [Subject(run, label) for run, label in zip(runs, labels, strict=True)]
