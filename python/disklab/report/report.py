"""A report before it has a form: the answers, comparisons and charts of some runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import altair as alt

from disklab.report import (
    axes,
    charts_by_factor,
    charts_of_course,
    faults,
    tables,
    weather,
    wording,
)
from disklab.report.answer import Answer, Finding, Part, answer_of, bounded
from disklab.report.axes import Figures, Panel, Section, rows, unchecked
from disklab.report.cells import Cell
from disklab.report.charts_of_course import telemetry_section
from disklab.report.history import findings_between
from disklab.report.pair import Comparison, Kind, Pair, comparisons_of
from disklab.report.reasons import problem_of, why
from disklab.report.subject import RunLike, Subject, subjects_of
from disklab.report.verdict import EQUIVALENCE, Judgement
from disklab.results import SteadyState, TrialResult
from disklab.results.records import STRETCHES
from disklab.results.seconds import largest, stretches
from disklab.spec import bundled

# What predictions say of burst credits: what is done while they last, and afterwards. Pure.

MOST_NAMED = 4
"""Cells in one sentence; the table below it has every one."""
SAME_RATE = 0.02


def bursts(subjects: Sequence[Subject]) -> list[Finding]:
    """Return a sentence for each run in whose cells credits decide."""
    found = []
    for subject in subjects:
        told = list(_told(subject)) if subject.info.mode == "predict" else []
        told += _lasting(subject) if told else []
        if not told:
            continue
        # The deepest fall first: of the others the table tells.
        told.sort(key=lambda line: line[0])
        parts = [text for _, text in told[:MOST_NAMED]]
        if len(told) > MOST_NAMED:
            parts.append(f"and {len(told) - MOST_NAMED} more")
        alone = len(subject.matrix.cells) == 1
        head = "" if alone else "Burst credits decide: "
        reason = "`before: {credits: 0%}` predicts the time after them"
        found.append(Finding(head + "; ".join(parts), reason, "", None, ()))
    return found


def _told(subject: Subject) -> Iterator[tuple[float, str]]:
    matrix = subject.matrix
    for cell in matrix.cells.values():
        # The first repeat that has a steady state.
        steadied = ((one, one.steady) for one in cell.shown.usable if one.steady is not None)
        for result, steady in islice(steadied, 1):
            name = matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying})
            share = steady.ops_per_s / max(result.credits_gone[0].ops_per_s_before, 1e-9)
            words = in_words(result, steady)
            yield share, f"{name}: {words}" if name else words


def _lasting(subject: Subject) -> Iterator[tuple[float, str]]:
    """Yield the cells that do all day what they do at first: the others stand beside them."""
    matrix = subject.matrix
    for cell in matrix.cells.values():
        rate = cell.median("ops_per_s")
        if rate is not None and not any(one.steady is not None for one in cell.shown.usable):
            name = matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying})
            yield 1.0, f"{name}: {wording.rate(rate)} a second all day"


def in_words(result: TrialResult, steady: SteadyState) -> str:
    """Return `3,500 a second while burst credits last (30 min), then 500`."""
    gone = result.credits_gone[0]
    before, lasting = gone.ops_per_s_before, wording.span(gone.at_s)
    if steady.ops_per_s < before * (1 - SAME_RATE):
        after = wording.rate(steady.ops_per_s)
        return f"{wording.rate(before)} a second while burst credits last ({lasting}), then {after}"
    times = wording.latencies([result.latency_ms["p99"], steady.latency_ms["p99"]])
    return (
        f"{wording.rate(before)} a second; 99th percentile while burst credits last ({lasting}), "
        f"and then: {times}"
    )


# What the percentiles of predicted cells consist of: a stacked bar a cell, and the table.

PERCENTILES = ("p50", "p95", "p99")
ROW_GAP = 10
"""Pixels between rows."""
MOST_BARS = 40
"""Cells of a chart; the table has them all."""

GROUPS = {
    "client, network, unexplained": ("unsent", "client", "network", "overhead"),
    "disk": ("disk",),
    "queue at disk limits": ("limits",),
    "CPU of the nodes": ("cpu",),
    "pauses": ("pause",),
    "slots, logs, other copies": ("slots", "held", "retry"),
}
"""As many as there are colours that can be told apart; the table has each stretch."""

LEAD = (
    "Where the operations near each percentile spent their time; if there are several copies, on "
    "the one that the client waited for. Garbage collection counts if it stopped the operation "
    "itself, not if it left a queue behind. Several I/Os of one read are added up; those of other "
    "replicas are not."
)


def tail_section(subject: Subject) -> Section:
    """Return what the median and the tail of each cell consist of; no panels: nobody tells."""
    cells = [
        (name_of(subject, cell), cell)
        for cell in subject.matrix.cells.values()
        if stretches(cell.usable, "p99")
    ]
    panels = tuple(panel(percentile, cells) for percentile in reversed(PERCENTILES) if cells)
    return Section("tail", "What the tail consists of", LEAD, panels, shown=1)


def name_of(subject: Subject, cell: Cell) -> str:
    """Return a cell by its levels of what varies."""
    matrix = subject.matrix
    return matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying}) or "all"


def panel(percentile: str, cells: list[tuple[str, Cell]]) -> Panel:
    """Return the stacked bars of one percentile."""
    found = {name: stretches(cell.usable, percentile) for name, cell in cells}
    names = [name for name in STRETCHES if any(name in one for one in found.values())]
    data = [
        {"c": cell, "s": group, "o": order, "v": round(span, 4)}
        for cell, one in list(found.items())[:MOST_BARS]
        for order, (group, members) in enumerate(GROUPS.items())
        if (span := sum(one.get(name, 0.0) for name in members))
    ]
    # A legend of what there is: not every database collects garbage, or has other copies.
    groups = [group for group in GROUPS if any(entry["s"] == group for entry in data)]
    lines = [
        [cell, *(wording.latency(one.get(name, 0.0)) for name in names), largest(one)]
        for cell, one in found.items()
    ]
    shown = min(len(found), MOST_BARS)
    heads = ("cell", *(STRETCHES[name] for name in names), "mostly")
    return Panel(
        title=percentile,
        described=f"What {percentile} consists of; "
        + "; ".join(f"{line[0]}: {line[-1]}" for line in lines[:MOST_BARS]),
        chart=bars(data, groups),
        height=max(60, shown * (ROW_GAP + axes.LINE_HEIGHT * max(2, axes.most_lines(found)))),
        figures=Figures(heads, rows(lines)),
        key=tuple(groups),
        columns={"c": "cell", "s": "where", "v": f"{percentile}_ms"},
    )


def bars(data: list[dict[str, Any]], names: list[str]) -> Any:
    """Return a stacked bar a cell."""
    cells = list(dict.fromkeys(str(entry["c"]) for entry in data))
    tip = "datum.c + ': ' + datum.s + ' ' + " + axes.latency_text("datum.v")
    label = axes.latency_text("datum.value")
    return (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=tip)
        .mark_bar()
        .encode(
            y=alt.Y("c:N", title=None, sort=None, axis=axes.row_names(cells)),
            x=alt.X("v:Q", title=None, stack="zero", axis=alt.Axis(tickCount=5, labelExpr=label)),
            color=alt.Color("s:N", scale=alt.Scale(domain=names), legend=None),
            order=alt.Order("o:Q"),
            tooltip="tip:N",
        )
    )


MOST_BELOW = 3
"""Sentences below the answer; the matrix has every comparison."""
OUTSIDE = "outside the calibrated range: "
"""How a prediction's warning of a sketch begins."""

Said = tuple[str, Finding]
"""Whose finding it is (empty when there is one run), and the finding."""


@dataclass
class Report:
    """What is said of some runs; the page, the terminal and the JSON show it."""

    subjects: Sequence[Subject]

    @classmethod
    def of(cls, runs: Sequence[RunLike]) -> Report:
        """Return the report of runs; the first one's factors order the charts."""
        return cls(subjects_of([bounded(run) for run in runs]))

    @cached_property
    def answers(self) -> list[Answer]:
        """The verdict of each run by itself."""
        return [answer_of(subject) for subject in self.subjects]

    def answer_of(self, subject: Subject) -> Answer:
        """Return what is said of one of the runs."""
        return next(answer for answer in self.answers if answer.subject is subject)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The runs against each other."""
        return comparisons_of(self.subjects) if len(self.subjects) > 1 else []

    @cached_property
    def said(self) -> list[Said]:
        """Every sentence, the answer first.

        Where burst credits decide, that comes first: what is equal on credits may differ all day.
        What changed between runs of one mode comes before everything else. How far runs of
        different modes are from each other comes after the first one's answer and what makes it a
        sketch.
        """
        several = len(self.subjects) > 1
        first, *others = [
            [(answer.subject.label if several else "", finding) for finding in answer.findings]
            for answer in self.answers
        ]
        changes: list[Said] = []
        errors: list[Said] = []
        for comparison in self.comparisons:
            into = changes if comparison.is_history else errors
            into += [("", finding) for finding in findings_between(comparison)]
        own = [*changes, *first]
        sketch: list[Said] = [("", one) for one in sketches(self.subjects)]
        deciding: list[Said] = [("", one) for one in bursts(self.subjects)]
        head = [*deciding, *own[:1], *sketch]
        return [*head, *errors, *own[1:], *(said for told in others for said in told)]

    @property
    def headline(self) -> list[Said]:
        """The answer: one sentence, or none of an empty run."""
        return self.said[:1]

    @property
    def below(self) -> list[Said]:
        """What the first screen says beneath it."""
        return self.said[1 : 1 + MOST_BELOW]

    @property
    def first_screen(self) -> list[tuple[str, Finding, str]]:
        """The answer and the sentences below it, each with what it rests on where that changes."""
        told, last = [], ""
        for heading, finding in [*self.headline, *self.below]:
            told.append((heading, finding, "" if finding.basis == last else finding.basis))
            last = finding.basis or last
        return told

    @property
    def rest(self) -> list[Said]:
        """What it has no room for."""
        return self.said[1 + MOST_BELOW :]

    @property
    def status(self) -> list[str]:
        """Return what limits the answer: cells without figures, and what `no difference` means."""
        told = []
        for subject in self.subjects:
            label = f"{subject.label}: " if len(self.subjects) > 1 else ""
            if isinstance(subject.run, Part):
                told.append(wording.sentence(label + subject.run.told()))
            bad: dict[str, int] = {}
            for cell in subject.matrix.cells.values():
                if not cell.usable:
                    bad[cell.results[-1].status] = bad.get(cell.results[-1].status, 0) + 1
            if bad:
                counted = ", ".join(f"{count} {status}" for status, count in bad.items())
                total = len(subject.matrix.cells)
                told.append(f"{label}{counted} of {total} cells: left out, see Warnings.")
            missing = tables.missing_repeats(subject)
            if missing:
                told.append(wording.sentence(label + missing))
        if any(pair.kind is Kind.EQUAL for _, one in self.said for pair in one.pairs):
            told.append(wording.sentence(wording.bounds()))
        return told

    @cached_property
    def sections(self) -> list[Section]:
        """The charts."""
        with unchecked():
            broken = faults.fault_section(self.subjects[0])
            year = weather.weather_section(self.subjects[0])
            return [
                *([] if broken is None else [broken]),
                *([] if year is None else [year]),
                charts_by_factor.rate_section(self.subjects),
                charts_by_factor.latency_section(self.subjects),
                tail_section(self.subjects[0]),
                charts_of_course.course_section(self.subjects[0]),
                charts_of_course.percentile_section(self.subjects),
                telemetry_section(self.subjects[0]),
            ]


MODES = {"predict": "simulated", "rehearse": "rehearsed", "measure": "measured"}


def caption_of(report: Report) -> str:
    """Return where the charts' figures come from: how, seed, version, run."""
    told = []
    for subject in report.subjects:
        info = subject.info
        parts = [MODES.get(info.mode, str(info.mode))]
        if info.mode == "published" and info.experiment.source:
            parts.append(info.experiment.source)
        if info.seed is not None and info.mode != "published":
            parts.append(f"seed {info.seed}")
        if version := info.versions.get("disklab"):
            parts.append(f"disklab {version}")
        if info.mode != "published":
            parts.append(info.id)
        told.append(" · ".join([wording.capital(parts[0]), *parts[1:]]))
    return "; ".join(told)


def sketches(subjects: Sequence[Subject]) -> list[Finding]:
    """Return a sentence for each run whose loads no measurement was like."""
    found = []
    for subject in subjects:
        told = dict.fromkeys(
            part
            for result in subject.run.results()
            for text in result.warnings
            if text.startswith(OUTSIDE)
            for part in text.removeprefix(OUTSIDE).split("; ")
        )
        if told:
            # A calibration that was fitted on nothing has no range to tell.
            what = (
                "; ".join(told).replace(" (fitted on )", "").replace("(fitted on ", "(measured: ")
            )
            file = bundled.typed(subject.info.experiment.file or "EXPERIMENT")
            text = f"Take this as a sketch: nothing like it was measured: {what}"
            reason = f"a short rehearsal narrows it: disklab rehearse {file} --quick"
            found.append(Finding(text, reason, "", None, ()))
    return found


# The report as JSON: verdicts with intervals, cells, comparisons.

FORMAT = 1


def content(report: Report) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    return {
        "format": FORMAT,
        "title": report.subjects[0].info.experiment.title,
        "equivalence": EQUIVALENCE,
        "verdict": [said(label, finding) for label, finding in report.said],
        "status": report.status,
        "runs": [run(subject) for subject in report.subjects],
        "comparisons": [comparison(one) for one in report.comparisons],
    }


def said(label: str, finding: Finding) -> dict[str, Any]:
    """Return a sentence with the comparisons behind it."""
    return {
        "run": label or None,
        "text": finding.text,
        "why": finding.reason or None,
        "basis": finding.basis or None,
        "outcome": finding.outcome.value if finding.outcome else None,
        "crossings": [vars(crossing) for crossing in finding.crossings],
        "pairs": [pair(one) for one in finding.pairs],
    }


def pair(one: Pair) -> dict[str, Any]:
    """Return two levels and how they differ."""
    return {
        "context": dict(one.context),
        "first": one.first,
        "second": one.second,
        "kind": one.kind.value,
        "deciding": one.deciding.value,
        "judgements": {q.value: judged(found) for q, found in one.judgements.items()},
    }


def judged(found: Judgement) -> dict[str, Any]:
    """Return a judgement."""
    interval = found.interval
    return {
        "outcome": found.outcome.value,
        "ratio": round(found.ratio, 5),
        "interval": [round(interval.low, 5), round(interval.high, 5)] if interval else None,
        "confidence": round(interval.confidence, 4) if interval else None,
        "basis": found.basis.value,
        "repeats": list(found.repeats),
        "repeats_that_would_tell": found.more_repeats,
    }


def run(subject: Subject) -> dict[str, Any]:
    """Return a run: what it is, and its cells."""
    info = subject.info
    return {
        "label": subject.label,
        "id": info.id,
        "mode": info.mode,
        "command": info.command,
        "seed": info.seed,
        "cells": [cell(one) for one in subject.matrix.cells.values()],
        "warnings": tables.warnings(subject),
    }


def cell(one: Cell) -> dict[str, Any]:
    """Return a cell: medians over its usable repeats, and why."""
    names = ("mean", "p50", "p95", "p99", "p99.9", "max")
    return {
        "factors": dict(one.factors),
        "status": "ok" if one.usable else one.results[-1].status,
        "repeats": len(one.usable),
        "ops_per_s": one.median("ops_per_s"),
        "ops_per_s_per_node": one.median("ops_per_s_per_node"),
        "latency_ms": {n: v for n in names if (v := one.median(f"{n}_ms")) is not None},
        "why": vars(why(one)),
        "problem": None if one.usable else problem_of(one.results[-1]),
    }


def comparison(one: Comparison) -> dict[str, Any]:
    """Return two runs, cell by cell."""
    return {
        "first": one.first.info.id,
        "second": one.second.info.id,
        "per_node": one.per_node,
        "unmatched": one.unmatched,
        "cells": [
            {
                "factors": dict(matched.cells[1].factors),
                "judgements": {q.value: judged(found) for q, found in matched.judgements.items()},
                "not_counted": matched.not_counted,
            }
            for matched in one.matched
        ],
    }
