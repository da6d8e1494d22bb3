"""What is said between two runs: what changed, or how far one is from what was published."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

from disklab.report import wording
from disklab.report.answer import Finding
from disklab.report.cells import Rates, median
from disklab.report.comparison import Comparison, Matched
from disklab.report.verdict import EQUIVALENCE, Outcome, Quantity

MOST_NAMED = 3
"""Changed cells that a sentence names; the table has all of them."""


def findings_between(comparison: Comparison) -> list[Finding]:
    """Return the sentences on two runs."""
    if not comparison.matched:
        first, second = comparison.first.label, comparison.second.label
        return [said(f"{second} and {first} have no cell in common: no comparison is possible")]
    if comparison.is_history:
        return [changes(comparison)]
    return errors(comparison)


def changes(comparison: Comparison) -> Finding:
    """Return what changed from the first run to the second."""
    matched, matrix = comparison.matched, comparison.second.matrix
    moved = [one for one in matched if one.judgement.leaning and one.judgement.interval]
    same = [one for one in matched if one.judgement.outcome is Outcome.NO_DIFFERENCE]
    open_ = len(matched) - len(moved) - len(same)
    label = f"{comparison.second.label} against {comparison.first.label}: "
    parts = []
    for one in sorted(moved, key=lambda one: -abs(one.judgement.ratio - 1))[:MOST_NAMED]:
        name = matrix.phrase(one.cells[1].factors)
        parts.append(f"{name} is {wording.judged(one.judgement)}")
    if len(moved) > MOST_NAMED:
        parts.append(f"{len(moved) - MOST_NAMED} more changed")
    if same:
        parts.append(f"no difference in {len(same)} of {len(matched)} cells")
    if open_:
        parts.append(f"cannot tell in {open_}")
    return Finding(
        text=label + "; ".join(parts),
        reason="",
        basis=wording.basis_of([one.judgement for one in matched]),
        outcome=Outcome.NO_DIFFERENCE if len(same) == len(matched) else None,
        pairs=(),
    )


def errors(comparison: Comparison) -> list[Finding]:
    """Return how far the second run's cells are from the first's, and whether the order agrees."""
    first, second = comparison.first.label, comparison.second.label
    told, counted = [], comparison.counted
    if not counted:
        fitted = f"{second} was fitted on every cell that it shares with {first}: no error to tell"
        return [said(fitted)]
    for quantity in (Quantity.OPS, Quantity.P50, Quantity.P99):
        ratios = [one.judgements[quantity].ratio for one in counted if quantity in one.judgements]
        middle = median([abs(log(ratio)) for ratio in ratios])
        if middle is not None:
            worst = max(ratios, key=lambda ratio: abs(log(ratio)))
            unit = comparison.rates.unit if quantity is Quantity.OPS else quantity.label
            told.append(
                f"{unit} off by {wording.off(exp(middle))} in the median, at most "
                f"{wording.change_range(worst, worst)}"
            )
    pairs, agree = ordering(counted, comparison.rates)
    text = f"{second} against {first}, {len(counted)} cells: " + "; ".join(told)
    if left := len(comparison.matched) - len(counted):
        text += f"; not counted: {left} of {len(comparison.matched)} (the table says why)"
    if pairs:
        text += f". {agree} of {pairs} published orderings are reproduced"
    return [said(text)]


def ordering(matched: Sequence[Matched], rates: Rates) -> tuple[int, int]:
    """Return how many pairs of cells have an order, and how many keep it.

    A pair has an order when its figures differ by 5 % or more in the first run.
    """
    figures = []
    for one in matched:
        path = rates.value if one.deciding is Quantity.OPS else one.deciding.value
        old, new = (median(cell.figures(path)) for cell in one.cells)
        if old and new:
            figures.append((one.deciding, old, new))
    pairs = agree = 0
    for number, (quantity, old, new) in enumerate(figures):
        for other, old2, new2 in figures[number + 1 :]:
            if quantity is other and abs(old2 / old - 1) >= EQUIVALENCE:
                pairs += 1
                agree += (old2 > old) == (new2 > new)
    return pairs, agree


def said(text: str) -> Finding:
    """Return a sentence that rests on the table below it."""
    return Finding(text=text, reason="", basis="", outcome=None, pairs=())
