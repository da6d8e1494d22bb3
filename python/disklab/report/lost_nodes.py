"""Which disks and which way made a lost or moved node whole sooner: sentences over levels."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.report.cells import Cell, Factor, Matrix, median
from disklab.report.wording import in_a_row
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
REPLAYED = "the log is replayed, and what it changed is written, at the speed of each disk"
"""Where all started again, and some took longer."""
APART_RATIO = 1.1
"""Times that are closer are told as one: a step is seen to end within a tenth of its time."""
MOST_TOLD = 2
"""Times that a headline has room for; of more it has the soonest, and how far behind others are."""


def compared(matrix: Matrix) -> Iterator[tuple[str, str]]:
    """Yield who was whole when, and why, of the factor whose levels mend a node in different ways.

    One for each combination of the other factors.
    """
    for factor in matrix.factors:
        groups = _groups(matrix, factor)
        if any(len({_way(seen) for _, seen in group}) > 1 for group in groups.values()):
            yield from (_sentence(factor, name, group) for name, group in groups.items())
            return
    if matrix.main is not None:
        for name, group in _groups(matrix, matrix.main).items():
            if _differ_by_replay([seen for _, seen in group]):
                yield _sentence(matrix.main, name, group)


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


def _differ_by_replay(seen: list[Recovery]) -> bool:
    """Return whether all have replayed their log, none lost a row, and some took longer."""
    times = [one.whole_s for one in seen if one.whole_s is not None]
    replayed = any(one.kind == "replay" for each in seen for one in each.rebuilds)
    started = all(_way(one) == "start" and not one.rows_lost for one in seen)
    return replayed and started and max(times) > min(times) * APART_RATIO


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
    # The soonest first.
    group = sorted(group, key=lambda one: (one[1].rows_lost or 0, one[1].whole_s or 0))
    told = _told([(factor.phrase(cell.factors[factor.name]), seen) for cell, seen in group])
    head = f"{name}: " if name else ""
    shares = {one.share.scale for cell, _ in group for one in cell.usable if one.share is not None}
    scaled = f"; at a scale of {next(iter(shares))}" if shares and shares != {"1"} else ""
    counted = f"from the first event on{scaled}"
    seen = [one for _, one in group]
    if len(told) <= MOST_TOLD or any(one.rows_lost for one in seen):
        return f"{head}{', '.join(told)}, because {_why(seen)}", counted
    if _differ_by_replay(seen):
        return f"{head}{', '.join(told)}, because {REPLAYED}", counted
    others = [one.whole_s for one in seen if one.whole_s is not None and _when(one) not in told[0]]
    times = dict.fromkeys(in_time(one) for one in (min(others), max(others)))
    behind = f"with the others after {' to '.join(times)}"
    return f"{head}{told[0]}, {behind}, because {_why(seen[:1])}", "; ".join([*told[1:], counted])


def _why(seen: list[Recovery]) -> str:
    if len(seen) > 1 and _differ_by_replay(seen):
        return REPLAYED
    return "; ".join(BECAUSE[way] for way in dict.fromkeys(map(_way, seen)) if way in BECAUSE)


def _told(levels: list[tuple[str, Recovery]]) -> list[str]:
    """Return when the node was whole, those together that took as long."""
    parts: dict[str, list[str]] = {}
    for level, seen in levels:
        parts.setdefault(f"{seen.steps[0].node} {_when(seen)}", []).append(level)
    return [f"with {in_a_row(same)} {when}" for when, same in parts.items()]


def _when(seen: Recovery) -> str:
    """Return when the node was whole, or that it never is."""
    if seen.rows_lost:
        what = f"{seen.rows_lost} of {seen.rows_checked} acknowledged rows are lost"
        return f"is never whole again: {what}"
    streamed = sum(one.streamed_bytes or 0 for one in seen.steps)
    counted = any(one.streamed_bytes is not None for one in seen.steps)
    moved = f" ({streamed / 1e9:.2g} GB streamed)" if counted and streamed else ""
    moved = moved or (" (nothing streamed)" if counted else "")
    assert seen.whole_s is not None, "others are left out"
    return f"was whole again after {in_time(seen.whole_s)}{moved}"
