"""Predicted beside published: the error of each cell, calibration rows marked and not counted."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from disklab.prediction.counted import Levels, levels, study_of
from disklab.results import TrialResult
from disklab.spec import Experiment

FIGURES = (
    "ops/s",
    "p50",
    "p95",
    "p99",
    "mean",
    "tpmC",
    "CPU",
    "disk IOPS",
    "disk MB/s",
)
"""What is compared where it was published; latencies in ms."""

MORE = {"tpmc": "tpmC", "disk_iops": "disk IOPS", "disk_mb_per_s": "disk MB/s"}
"""Keys of results beside the shape of every mode; disks are those of one node."""


@dataclass(frozen=True)
class ComparedCell:
    """One cell, published and predicted."""

    factors: dict[str, Any]
    published: dict[str, float]
    predicted: dict[str, float]
    note: str = ""
    """Why it does not count: parameters were fitted on it, or the load was another one."""

    def error(self, figure: str) -> float | None:
        """Return predicted / published - 1; None: one of them is not known."""
        if figure not in self.published or figure not in self.predicted:
            return None
        return self.predicted[figure] / self.published[figure] - 1

    def text(self, figure: str) -> str:
        """Return published, predicted and error as a table shows them."""
        error = self.error(figure)
        if error is None:
            return ""
        published, predicted = self.published[figure], self.predicted[figure]
        return f"{number(published)} -> {number(predicted)} ({error * 100:+.0f} %)"


def number(figure: float) -> str:
    """Return a figure with three digits or whole."""
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


@dataclass(frozen=True)
class Comparison:
    """A prediction held against the published study of the same experiment."""

    experiment: str
    cells: tuple[ComparedCell, ...]

    @property
    def figures(self) -> list[str]:
        """The figures that both have somewhere."""
        return [
            figure
            for figure in FIGURES
            if any(cell.error(figure) is not None for cell in self.cells)
        ]

    def errors(self, figure: str) -> list[float]:
        """Return the absolute errors of the cells that count."""
        errors = (cell.error(figure) for cell in self.cells if not cell.note)
        return [abs(error) for error in errors if error is not None]

    def summary(self) -> Iterator[str]:
        """Yield a line a figure: median and largest error over the cells that count."""
        notes = Counter(cell.note for cell in self.cells if cell.note)
        for figure in self.figures:
            errors = self.errors(figure)
            if errors:
                yield (
                    f"{figure}: median error {statistics.median(errors):.1%}, "
                    f"largest {max(errors):.1%}, {len(errors)} cells"
                )
        for note, count in notes.items():
            yield f"not counted: {count} x {note}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as one JSON object."""
        return {
            "against": "reference",
            "experiment": self.experiment,
            "cells": [
                {
                    "factors": cell.factors,
                    "note": cell.note,
                    "published": cell.published,
                    "predicted": cell.predicted,
                    "error": {f: cell.error(f) for f in self.figures},
                }
                for cell in self.cells
            ],
            "median_error": {
                figure: statistics.median(errors)
                for figure in self.figures
                if (errors := self.errors(figure))
            },
            "largest_error": {
                figure: max(errors) for figure in self.figures if (errors := self.errors(figure))
            },
        }


def compare(experiment: Experiment, results: Sequence[TrialResult]) -> Comparison:
    """Return a prediction beside the published study that has the same title."""
    reference = study_of(experiment)
    if reference is None:
        return Comparison(experiment.title, ())
    published = {levels(row.factors): row for row in reference.results() if row.usable}
    cells = []
    for key, repeats in by_cell(results).items():
        row = published.get(key)
        if row is not None:
            note = repeats[0].not_counted
            cells.append(ComparedCell(dict(row.factors), figures(row), median(repeats), note))
    return Comparison(experiment.title, tuple(cells))


def by_cell(results: Sequence[TrialResult]) -> dict[Levels, list[TrialResult]]:
    """Return the usable repeats of each cell."""
    found: dict[Levels, list[TrialResult]] = {}
    for result in results:
        if result.usable:
            found.setdefault(levels(result.factors), []).append(result)
    return found


def figures(result: TrialResult) -> dict[str, float]:
    """Return the figures of a result by name."""
    found = {name: result.latency_ms[name] for name in FIGURES if name in result.latency_ms}
    if result.ops_per_s is not None:
        found["ops/s"] = result.ops_per_s
    more = {name: getattr(result, key, None) for key, name in MORE.items()}
    found |= {name: float(value) for name, value in more.items() if value is not None}
    if "disk IOPS" in found and "server" in result.telemetry.cpu_ratio:
        found["CPU"] = result.telemetry.cpu_ratio["server"]
    return found


def median(repeats: Sequence[TrialResult]) -> dict[str, float]:
    """Return the median over repeats of each figure that all of them have."""
    each = [figures(result) for result in repeats]
    common = [name for name in each[0] if all(name in one for one in each)]
    return {name: statistics.median(one[name] for one in each) for name in common}
