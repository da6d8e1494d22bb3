"""What is said between two runs: what changed, or how far one is from what was published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from disklab.report import wording
from disklab.report.answer import Finding
from disklab.report.cells import Rates, median
from disklab.report.pair import Comparison, Kind, Matched, pairs_of, settings_apart
from disklab.report.reasons import limit_in_words, why
from disklab.report.verdict import EQUIVALENCE, Outcome, Quantity
from disklab.results.bands import off_by

MOST_NAMED = 3
"""Changed cells, or other settings, that a sentence names; the table has all of them."""
NAMED = {Quantity.OPS: "rates", Quantity.P50: "medians", Quantity.P99: "99th percentiles"}


def findings_between(comparison: Comparison) -> list[Finding]:
    """Return the sentences on two runs."""
    if not comparison.matched:
        first, second = comparison.first.label, comparison.second.label
        return [said(f"{second} and {first} have no cell in common, so they cannot be compared")]
    if comparison.is_history:
        return [changes(comparison)]
    return errors(comparison)


def changes(comparison: Comparison) -> Finding:
    """Return what changed from the first run to the second."""
    matched, matrix = comparison.matched, comparison.second.matrix
    moved = [one for one in matched if one.judgement.leaning]
    same = [one for one in matched if not one.judgement.leaning and one.settled]
    open_ = len(matched) - len(moved) - len(same)
    label = f"{comparison.second.label} against {comparison.first.label}: "
    parts = []
    for one in sorted(moved, key=lambda one: -off_by(one.judgement.ratio))[:MOST_NAMED]:
        name = matrix.phrase(one.cells[1].factors)
        parts.append(f"{name}: {wording.judged(one.judgement)}")
    if len(moved) > MOST_NAMED:
        parts.append(f"{len(moved) - MOST_NAMED} more changed")
    if same:
        parts.append(f"equally fast in {len(same)} of {len(matched)} cells")
    if open_:
        parts.append(f"cannot tell in {open_}")
    return Finding(
        text=label + "; ".join(parts),
        reason=". ".join(unlike(comparison)),
        basis=wording.basis_of([one.judgement for one in matched]),
        outcome=Outcome.NO_DIFFERENCE if len(same) == len(matched) else None,
        pairs=(),
    )


def unlike(comparison: Comparison) -> list[str]:
    """Return what else differs between two runs beside what their cells' names say."""
    told = []
    depths = [one.info.environment.get("fidelity") for one in (comparison.first, comparison.second)]
    if None not in depths and depths[0] != depths[1]:
        told.append(f"The first was simulated at {depths[0]} fidelity, the second at {depths[1]}")
    differing = settings_apart(comparison)
    if differing:
        more = len(differing) - MOST_NAMED
        text = "Cells of the same name had different settings: " + "; ".join(differing[:MOST_NAMED])
        told.append(text + (f"; and {more} more" if more > 0 else ""))
    return told


def errors(comparison: Comparison) -> list[Finding]:
    """Return whether the order agrees, and how far the second run's cells are from the first's."""
    first, second = comparison.first.label, comparison.second.label
    told, counted = [], comparison.counted
    if not counted:
        kinds = {kind_of(one.not_counted) for one in comparison.matched}
        reason = kinds.pop() if len(kinds) == 1 else "the table says why"
        text = (
            f"{second} compared with {first}: no cell counts as an error of the prediction "
            f"({reason})"
        )
        return [said(text)]
    for quantity in (Quantity.OPS, Quantity.P50, Quantity.P99):
        shared = [one for one in counted if quantity in one.judgements]
        ratios = [one.judgements[quantity].ratio for one in shared]
        if ratios:
            nearest_first = sorted(ratios, key=off_by)
            middle = apart(nearest_first[(len(ratios) - 1) // 2])
            text = f"{NAMED[quantity]} differ by {middle} in the median"
            if len(ratios) > 1:
                worst = max(shared, key=lambda one: off_by(one.judgements[quantity].ratio))
                text += f", by {apart(nearest_first[-1])} at most"
                text += f" ({comparison.second.matrix.phrase(worst.cells[1].factors)})"
            told.append(text)
    pairs, agree = ordering(counted, comparison.rates)
    cells = f"{len(counted)} {'cell' if len(counted) == 1 else 'cells'}"
    text = f"{second} compared with {first}, {cells}: "
    if pairs:
        text += f"same order in {agree} of {pairs} comparisons; "
    text += told[0] if told else "no figure in common"
    rest = [wording.capital(one) for one in told[1:]]
    if left := len(comparison.matched) - len(counted):
        rest.append(f"Not counted: {left} of {len(comparison.matched)} (the table says why)")
    rest += unlike(comparison)
    rest += equal_for_another_reason(comparison)
    return [replace(said(text), reason=". ".join(rest))]


def apart(ratio: float) -> str:
    """Return how far a figure is from another, as the table beside it says, without the sign."""
    return wording.change_range(ratio, ratio).lstrip(f"+{wording.MINUS}")


def kind_of(reason: str) -> str:
    """Return a reason why a cell is not counted, without the number that is its own."""
    return re.sub(r"\b\d[\d,.]* operations? ", "other numbers of operations ", reason)


def equal_for_another_reason(comparison: Comparison) -> list[str]:
    """Return that both runs find no difference, at rates that no common limit explains."""
    here = [pair for pair in pairs_of(comparison.second) if pair.kind is Kind.EQUAL]
    for pair in here:
        limit, *other_limits = {why(cell).bound_by for cell in pair.cells}
        others = [one for one in comparison.matched if one.cells[1] in pair.cells]
        ratios = [
            one.judgements[Quantity.OPS].ratio for one in others if Quantity.OPS in one.judgements
        ]
        if (
            limit is not None
            and not other_limits
            and len(ratios) == 2
            and min(map(off_by, ratios)) >= 1
        ):
            return [
                f"Equal in both, but not for the same reason: {comparison.second.label} is "
                f"limited by {limit_in_words(limit)}, at "
                f"{wording.change_range(min(ratios), max(ratios))} the "
                f"rate that was {comparison.first.label}"
            ]
    return []


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
