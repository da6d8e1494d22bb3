"""A part of a run that is too large to be read: its first cells, and all of them as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from disklab.report.axes import plain
from disklab.report.subject import RunLike
from disklab.results import Histogram, PlannedTrial, RunInfo, Second, TrialResult

MOST_CELLS = 400
"""Cells of a run that a report compares and shows. Nobody reads more rows, the pairs to compare
grow faster than the cells, and a page of more megabytes opens slowly."""


@dataclass
class Part:
    """The first cells of a run, as a run."""

    whole: RunLike
    trials: frozenset[int]
    cells: int
    """Of the whole run."""

    @cached_property
    def info(self) -> RunInfo:
        """What is known of the run, and that this is a part of it."""
        notes = [*self.whole.info.notes, self.told()]
        return self.whole.info.model_copy(update={"notes": notes})

    def told(self) -> str:
        """Return the sentence that says what is left out."""
        shown = f"{len(self.trials):,} of {self.cells:,} cells"
        return f"{shown} are compared and shown here, the first ones; the CSV file has them all"

    @property
    def torn(self) -> tuple[str, ...]:
        """Lines that are no results."""
        return self.whole.torn

    def results(self) -> list[TrialResult]:
        """Return the results of the part."""
        return [one for one in self.whole.results() if one.trial in self.trials]

    def planned(self) -> list[PlannedTrial]:
        """Return the plan of the part."""
        return [one for one in self.whole.planned() if one.trial in self.trials]

    def seconds(self, trial: int, repeat: int) -> Iterator[Second]:
        """Yield the seconds of a repeat."""
        return self.whole.seconds(trial, repeat)

    def response(self, trial: int, repeat: int) -> Histogram | None:
        """Return the response times of a repeat."""
        return self.whole.response(trial, repeat)

    def telemetry(self, trial: int, repeat: int) -> pl.LazyFrame:
        """Return the telemetry of a repeat."""
        return self.whole.telemetry(trial, repeat)


def bounded(run: RunLike) -> RunLike:
    """Return a run, or its first cells when it has more than a report shows."""
    trials = list(dict.fromkeys(one.trial for one in run.results()))
    if len(trials) <= MOST_CELLS:
        return run
    return Part(run, frozenset(trials[:MOST_CELLS]), len(trials))


def table(run: RunLike) -> str:
    """Return every result of a run as CSV: factors, status, rate, latencies, price."""
    results = run.results()
    names = list(dict.fromkeys(name for one in results for name in one.factors))
    latencies = list(dict.fromkeys(name for one in results for name in one.latency_ms))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    told = ["trial", "repeat", "status", *names, "ops_per_s"]
    told += [*(f"{name}_ms" for name in latencies), "price_usd_per_month"]
    writer.writerow(map(plain, told))
    for one in results:
        row = [one.trial, one.repeat, one.status, *(one.factors.get(name, "") for name in names)]
        times = [one.latency_ms.get(name, "") for name in latencies]
        writer.writerow([*map(plain, row), one.ops_per_s, *times, one.price_usd_per_month])
    return text.getvalue()
