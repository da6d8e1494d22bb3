"""Predicted beside published: the error of each cell, calibration rows marked and not counted."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from disklab.databases.calibration import calibration_for
from disklab.prediction.counted import InSight, Levels, in_sight, levels, study_of
from disklab.report.cells import size_of
from disklab.results import ReferenceRun, TrialResult
from disklab.results.bands import off_by, told
from disklab.spec import Experiment

# What somebody would guess who has the fitted rows of a study and no model: the bar to clear.
#
# A cell on another disk: the fitted row of the same load. A mixed load: the harmonic mean of
# reading and writing, corrected by what it is off in a fitted mixed row. Between two fitted levels
# of a number: their geometric mean; beyond, the nearest.

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
    seen: InSight | None = None
    """What of it does not count, because a value was fitted to these figures."""
    guessed: Mapping[str, float] = field(default_factory=dict)
    """What one would guess without a model from the rows that were fitted on."""

    def counts(self, figure: str) -> bool:
        """Return whether an error of this figure proves something."""
        return not self.note and (self.seen is None or figure not in self.seen.figures)

    def guess_error(self, figure: str) -> float | None:
        """Return guessed / published - 1; None: one of them is not known."""
        if figure not in self.published or figure not in self.guessed:
            return None
        return self.guessed[figure] / self.published[figure] - 1

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
        """Return how far off the cells that count are (`results.deviation`): 1.0 is 2 times."""
        errors = (cell.error(figure) for cell in self.cells if cell.counts(figure))
        return [off_by(1 + error) for error in errors if error is not None]

    def errors_in_sight(self, figure: str) -> list[float]:
        """Return how far off figures are that do not count by themselves, in cells that do.

        A value was fitted in their sight; that it fits them badly must not be hidden.
        """
        errors = (
            cell.error(figure) for cell in self.cells if not cell.note and not cell.counts(figure)
        )
        return [off_by(1 + error) for error in errors if error is not None]

    def skill(self, figure: str) -> tuple[float, float] | None:
        """Return how far off guesses without a model are in the median, and the model's skill.

        The skill is 1 - (median error of the model / that of the guesses), over the cells that
        have both: 1 is perfect, 0 no better than a guess. None: no cell that counts has a guess.
        """
        pairs = [
            (off_by(1 + error), off_by(1 + guess))
            for cell in self.cells
            if cell.counts(figure)
            and (error := cell.error(figure)) is not None
            and (guess := cell.guess_error(figure)) is not None
        ]
        if not pairs:
            return None
        model, guesses = (statistics.median(column) for column in zip(*pairs, strict=True))
        return guesses, 1 - model / guesses if guesses else 0.0

    def summary(self) -> Iterator[str]:
        """Yield a line a figure: median and largest error over the cells that count."""
        notes = Counter(cell.note for cell in self.cells if cell.note)
        seen = Counter(cell.seen.note for cell in self.cells if cell.seen and not cell.note)
        for figure in self.figures:
            errors = self.errors(figure)
            if errors:
                line = (
                    f"{figure}: off by {told(statistics.median(errors))} in the median, "
                    f"at most {told(max(errors))}, {len(errors)} cells"
                )
                skill = self.skill(figure)
                if skill is not None:
                    line += f"; without a model {told(skill[0])}, skill {skill[1]:+.2f}"
                yield line
            elif seen_errors := self.errors_in_sight(figure):
                yield (
                    f"{figure}: no cell counts (known when a value was fitted): off by "
                    f"{told(statistics.median(seen_errors))} in the median, at most "
                    f"{told(max(seen_errors))}, {len(seen_errors)} cells"
                )
        for note, count in (notes + seen).items():
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
                    "without_a_model": dict(cell.guessed),
                }
                for cell in self.cells
            ],
            "median_error": {
                figure: statistics.median(errors)
                for figure in self.figures
                if (errors := self.errors(figure))
            },
            "skill": {figure: skill[1] for figure in self.figures if (skill := self.skill(figure))},
            "largest_error": {
                figure: max(errors) for figure in self.figures if (errors := self.errors(figure))
            },
        }


def compare(experiment: Experiment, results: Sequence[TrialResult]) -> Comparison:
    """Return a prediction beside the published study that has the same title."""
    published = _published(study_of(experiment))
    cells = []
    for key, repeats in by_cell(results).items():
        row = published.get(key)
        if row is not None:
            note = repeats[0].not_counted
            cells.append(ComparedCell(dict(row.factors), figures(row), median(repeats), note))
    return judged(experiment, cells)


def _published(study: ReferenceRun | None) -> dict[Levels, TrialResult]:
    return {levels(row.factors): row for row in study.results() if row.usable} if study else {}


def judged(experiment: Experiment, cells: Sequence[ComparedCell]) -> Comparison:
    """Return a comparison with what somebody would guess without a model, and what was in sight."""
    reference = study_of(experiment)
    if reference is None:
        return Comparison(experiment.title, tuple(cells))
    published = _published(reference)
    stem = reference.info.id.removesuffix("-published")
    calibration = next(
        (
            found
            for trial in experiment.trials("predict")
            if trial.spec.database and (found := calibration_for(trial.spec.database.engine))
        ),
        None,
    )
    fitted = {
        key: figures(row)
        for key, row in published.items()
        if calibration is not None and calibration.covers(stem, dict(row.factors))
    }
    baseline = Baseline(fitted)
    return Comparison(
        experiment.title,
        tuple(
            replace(
                cell,
                seen=in_sight(stem, levels(cell.factors)),
                guessed=baseline.guess(levels(cell.factors)) or {},
            )
            for cell in cells
        ),
    )


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
