"""A run as the report reads it: its matrix, and the course of its repeats when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import polars as pl

from disklab.report.cells import Cell, Matrix, Rates, matrix_of
from disklab.report.course import Windows, windows_of
from disklab.report.verdict import Quantity, Sample
from disklab.report.verdict_interval import FEWEST_REPEATS
from disklab.results import Histogram, PlannedTrial, RunInfo, Second, TrialResult
from disklab.results.required import Kept, judged

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
