"""The report as JSON: verdicts with intervals, cells, comparisons."""

from __future__ import annotations

from typing import Any

from disklab.report import tables
from disklab.report.answer import Finding
from disklab.report.cells import Cell
from disklab.report.comparison import Comparison
from disklab.report.pair import Pair
from disklab.report.reasons import problem_of, why
from disklab.report.report import Report
from disklab.report.subject import Subject
from disklab.report.verdict import EQUIVALENCE, Judgement

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
