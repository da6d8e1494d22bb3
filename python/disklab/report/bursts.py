"""What predictions say of burst credits: what is done while they last, and afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from disklab.report import wording
from disklab.report.answer import Finding
from disklab.report.cells import Cell
from disklab.report.subject import Subject
from disklab.results import TrialResult

MOST_NAMED = 4
"""Cells in one sentence; the table below it has every one."""
SAME_RATE = 0.02


def bursts(subjects: Sequence[Subject]) -> list[Finding]:
    """Return a sentence for each run in whose cells credits decide."""
    found = []
    for subject in subjects:
        told = list(_told(subject)) if subject.info.mode == "predict" else []
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
        result = steady_of(cell)
        if result is None or result.steady is None:
            continue
        name = matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying})
        share = result.steady.ops_per_s / max(result.credits_gone[0].ops_per_s_before, 1e-9)
        yield share, f"{name}: {in_words(result)}" if name else in_words(result)


def steady_of(cell: Cell) -> TrialResult | None:
    """Return the first repeat of a cell that has a steady state; None: none."""
    return next((result for result in cell.shown.usable if result.steady is not None), None)


def in_words(result: TrialResult) -> str:
    """Return `3,500 a second while burst credits last (30 min), then 500`."""
    gone, steady = result.credits_gone[0], result.steady
    assert steady is not None
    before, lasting = gone.ops_per_s_before, wording.span(gone.at_s)
    if steady.ops_per_s < before * (1 - SAME_RATE):
        after = wording.rate(steady.ops_per_s)
        return f"{wording.rate(before)} a second while burst credits last ({lasting}), then {after}"
    times = wording.latencies([result.latency_ms["p99"], steady.latency_ms["p99"]])
    return (
        f"{wording.rate(before)} a second; 99th percentile while burst credits last ({lasting}), "
        f"and then: {times}"
    )
