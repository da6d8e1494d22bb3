"""Which disks and which way made a lost or moved node whole sooner: sentences over levels."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.report.cells import Cell, Factor, Matrix, median
from disklab.results import Recovery
from disklab.results.timetable import WHOLE_AFTER, in_time

BECAUSE = {
    "start": "disks that are kept only wait for their next VM",
    "replace": "an empty disk gets everything from the other copies",
    "migrate": "an empty disk gets everything from the others before the old one leaves",
    "move": "the attached disks go to the next VM as they are",
    "repair": "a repair compares all copies",
}
"""By the last step that made the node whole."""


def compared(matrix: Matrix) -> Iterator[tuple[str, str]]:
    """Yield who was whole when, and why, of the factor whose levels mend a node in different ways.

    One for each combination of the other factors.
    """
    for factor in matrix.factors:
        groups = _groups(matrix, factor)
        if any(len({_way(seen) for _, seen in group}) > 1 for group in groups.values()):
            yield from (_sentence(factor, name, group) for name, group in groups.items())
            return


def _groups(matrix: Matrix, factor: Factor) -> dict[str, list[tuple[Cell, Recovery]]]:
    """Return the cells that differ in this factor alone, by what they have in common."""
    found: dict[str, list[tuple[Cell, Recovery]]] = {}
    for cell in matrix.cells.values():
        seen = [one.recovery for one in cell.usable if one.recovery is not None]
        if not seen or seen[0].whole_s is None or not _way(seen[0]):
            continue
        others = {name: level for name, level in cell.factors.items() if name != factor.name}
        found.setdefault(matrix.phrase(others), []).append((cell, _middle(seen)))
    return {name: group for name, group in found.items() if len(group) > 1}


def _middle(seen: list[Recovery]) -> Recovery:
    """Return the repeat whose node was whole in the median time, or one that lost rows."""
    lost = next((one for one in seen if one.rows_lost), None)
    times = [one.whole_s for one in seen if one.whole_s is not None]
    middle = median(times)
    return lost or min(seen, key=lambda one: abs((one.whole_s or 0.0) - (middle or 0.0)))


def _way(seen: Recovery) -> str:
    """Return the last step that made the node whole; empty: none did."""
    return next((one.kind for one in reversed(seen.steps) if one.kind in WHOLE_AFTER), "")


def _sentence(factor: Factor, name: str, group: list[tuple[Cell, Recovery]]) -> tuple[str, str]:
    told = [_told(factor.phrase(cell.factors[factor.name]), seen) for cell, seen in group]
    ways = list(dict.fromkeys(_way(seen) for _, seen in group))
    head = f"{name}: " if name else ""
    why = "; ".join(BECAUSE[way] for way in ways if way in BECAUSE)
    shares = {one.share.scale for cell, _ in group for one in cell.usable if one.share is not None}
    scaled = f"; at a scale of {next(iter(shares))}" if shares and shares != {"1"} else ""
    return f"{head}{', '.join(told)}, because {why}", f"from the first event on{scaled}"


def _told(level: str, seen: Recovery) -> str:
    first = seen.steps[0]
    if seen.rows_lost:
        what = f"{seen.rows_lost} of {seen.rows_checked} acknowledged rows are lost"
        return f"with {level} {first.node} is never whole again: {what}"
    streamed = sum(one.streamed_bytes or 0 for one in seen.steps)
    counted = any(one.streamed_bytes is not None for one in seen.steps)
    moved = f" ({streamed / 1e9:.2g} GB streamed)" if counted and streamed else ""
    moved = moved or (" (nothing streamed)" if counted else "")
    assert seen.whole_s is not None, "others are left out"
    return f"with {level} {first.node} was whole again after {in_time(seen.whole_s)}{moved}"
