"""What the faults of a timetable did: a sentence for each cell, and the course with its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import altair as alt

from disklab.report import axes, wording
from disklab.report.axes import Figures, Panel, Section, rows
from disklab.report.cells import Cell, Factor, Matrix, median
from disklab.report.charts_by_factor import series_of
from disklab.report.charts_of_course import cells_by_panel, whole_panel
from disklab.report.subject import Subject
from disklab.report.wording import in_a_row
from disklab.results import Recovery
from disklab.results.timetable import (
    WHOLE_AFTER,
    counts_in_words,
    how_in_words,
    in_time,
    in_words,
    steps_in_words,
    year_in_words,
)

# Which disks and which way made a lost or moved node whole sooner: sentences over levels.

BECAUSE = {
    "start": "disks that are kept only have to wait for their next VM",
    "replace": "an empty disk receives everything from the other copies",
    "migrate": "an empty disk receives everything from the other nodes before the old one leaves",
    "move": "the attached disks move to the next VM unchanged",
    "repair": "a repair compares all copies",
}
"""By the last step that made the node whole."""
REPLAYED = "the log is replayed on the pages that it changed, at the speed of each disk"
"""Where all started again, and some took longer: InnoDB reads these, PostgreSQL writes them."""
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
        return f"never has all its data again: {what}"
    streamed = sum(one.streamed_bytes or 0 for one in seen.steps)
    counted = any(one.streamed_bytes is not None for one in seen.steps)
    moved = f" ({streamed / 1e9:.2g} GB streamed)" if counted and streamed else ""
    moved = moved or (" (nothing streamed)" if counted else "")
    assert seen.whole_s is not None, "others are left out"
    return f"was whole again after {in_time(seen.whole_s)}{moved}"


HEIGHT = 200
LINE, LINES = 12, 6
"""Pixels of a line of names of events, and how many there are before the first is used again."""
NEAR = 0.02
"""Share of the course within which events of two cells are one."""
SHOWN = 4
"""Panels that are open at first."""
HEADS = (
    "cell",
    "before",
    "at worst",
    "no success",
    "at 95 %",
    "whole",
    "failed",
    "rows lost",
    "updates lost",
    "stale reads",
)


def broken(matrix: Matrix) -> Iterator[tuple[str, Cell, Recovery]]:
    """Yield each cell that had a timetable, its name, and what it came to over its repeats."""
    for cell in matrix.cells.values():
        found = [one.recovery for one in cell.usable if one.recovery is not None]
        if found and found[0].steps:
            yield matrix.phrase(cell.factors), cell, together(found)


def counted_only(matrix: Matrix) -> Iterator[tuple[str, Recovery, str]]:
    """Yield each cell whose repeats are all invalid, with their recovery and the first reason.

    Which rows were lost does not depend on how late a disk answered; times and rates do.
    """
    for cell in matrix.cells.values():
        late = [one for one in cell.results if one.status == "invalid"]
        found = [one.recovery for one in late if one.recovery is not None]
        if cell.usable or not found or not found[0].steps or found[0].rows_lost is None:
            continue
        why = next((reason for one in late for reason in one.invalid_reasons), "it is invalid")
        yield matrix.phrase(cell.factors), together(found), why


def together(found: list[Recovery]) -> Recovery:
    """Return several repeats as one: medians of times and rates, the most rows of any.

    What one repeat did not reach (its rate never came back), all together did not.
    """
    if len(found) == 1:
        return found[0]

    def middle(name: str) -> float | None:
        values = [getattr(one, name) for one in found]
        return None if None in values else median(values)

    def most(name: str) -> int | None:
        values = [getattr(one, name) for one in found if getattr(one, name) is not None]
        return max(values, default=None)

    times = ("ops_per_s_before", "lowest_ops_per_s", "held_s", "unavailable_s", "back_s", "whole_s")
    counts = (
        "failed_operations",
        "rows_checked",
        "rows_lost",
        "rows_wrong",
        "rows_unread",
        "updates_lost",
        "reads_judged",
        "reads_stale",
    )
    update = {name: middle(name) for name in times} | {name: most(name) for name in counts}
    return found[0].model_copy(update=update)


def sentences(matrix: Matrix) -> list[tuple[str, str]]:
    """Return what the faults cost in each cell, and what was done to it."""
    found = [*compared(matrix), *_yearly(matrix)]
    for name, _, seen in broken(matrix):
        head = f"{name}: " if name else ""
        found.append((f"{head}{in_words(seen)}", steps_in_words(seen)))
    for name, seen, why in counted_only(matrix):
        head = f"{name}: " if name else ""
        reason = f"{steps_in_words(seen)}; its times do not count, because {why}"
        found.append((f"{head}{counts_in_words(seen)}", reason))
    return found


def _yearly(matrix: Matrix) -> Iterator[tuple[str, str]]:
    """Yield what failures cost each cell in a year, and how that is known."""
    for cell in matrix.cells.values():
        told = [one.recovery.yearly for one in cell.usable if one.recovery and one.recovery.yearly]
        if not told:
            continue
        name = matrix.phrase(cell.factors)
        price = cell.usable[0].price_usd_per_month
        costs = "" if price is None else f", for {price:,.0f} USD a month"
        yield (
            f"{name + ': ' if name else ''}{year_in_words(told[0])}{costs}",
            how_in_words(told[0]),
        )


def fault_section(subject: Subject) -> Section | None:
    """Return how long nodes were away, and the rate over time with the events marked.

    The rate is that of each cell's first usable repeat. None: no cell had a timetable.
    """
    seen = {id(cell): one for _, cell, one in broken(subject.matrix)}
    if not seen:
        return None
    found = [whole_panel(subject.matrix, *one, seen) for one in cells_by_panel(subject)]
    panels = [panel for panel in found if panel is not None]
    for title, cells in cells_by_panel(subject):
        data: list[dict[str, Any]] = []
        marks: list[dict[str, Any]] = []
        lines: list[list[str]] = []
        for series, cell in cells:
            windows = subject.windows(cell.usable[0])
            first = cell.usable[0].recovery
            if windows is None or first is None:
                continue
            data += [
                {"s": series, "t": round(float(t), 1), "ops": float(f"{ops:.4g}")}
                for t, ops in zip(windows.t_s, windows.ops_per_s, strict=True)
            ]
            marks += [
                {"s": series, "t": step.begun_s, "what": f"{step.kind} {step.node}"}
                for step in first.steps
            ]
            lines.append([series, *_row(seen[id(cell)])])
        if data:
            panels.append(
                Panel(
                    title=title,
                    described="operations a second over time, with the events; "
                    + "; ".join(f"{line[0]}: back after {line[4]}" for line in lines),
                    chart=_chart(subject.matrix, data, marks),
                    height=HEIGHT,
                    figures=Figures(HEADS, rows(lines)),
                    key=tuple(series_of(subject.matrix)),
                    columns={"s": "series", "t": "t_s", "ops": "ops_per_s"},
                )
            )
    lead = (
        "A bar lasts from the first event until the node had all its data again; the mark on it "
        "shows when the rate was back at 95 %. Lines are the operations a second of the first "
        "repeat of each cell; vertical lines are the events of the timetable. The tables have "
        "medians over the repeats, and the largest number of rows that any repeat lost."
    )
    return Section("faults", "What the faults did", lead, tuple(panels), shown=SHOWN)


def _row(found: Recovery) -> list[str]:
    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.0f} s"

    worst = found.lowest_ops_per_s
    lost = "not known" if found.rows_lost is None else f"{found.rows_lost} of {found.rows_checked}"
    return [
        "" if found.ops_per_s_before is None else wording.rate(found.ops_per_s_before),
        "" if worst is None else f"{worst:.0f}",
        seconds(found.unavailable_s),
        seconds(found.back_s),
        "" if found.whole_s is None else seconds(found.whole_s),
        str(found.failed_operations),
        lost,
        "not known" if found.updates_lost is None else str(found.updates_lost),
        "not known"
        if found.reads_stale is None
        else f"{found.reads_stale} of {found.reads_judged}",
    ]


def _chart(matrix: Matrix, data: list[dict[str, Any]], marks: list[dict[str, Any]]) -> Any:
    color = alt.Color("s:N", scale=alt.Scale(domain=series_of(matrix)), legend=None)
    longest = max(one["t"] for one in [*data, *marks])
    tip = "datum.s + ', ' + " + axes.time_text("datum.t") + " + ': '"
    base = (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=f"{tip} + format(datum.ops, ',.3~r') + ' a second'")
        .encode(
            x=alt.X("t:Q", title=None, axis=axes.time_axis(longest)),
            y=alt.Y("ops:Q", title="ops/s", scale=alt.Scale(zero=True)),
            color=color,
        )
    )
    counted = Counter(entry["s"] for entry in data)
    points = base.mark_point(**axes.points_of_few(counted.values())).encode(tooltip="tip:N")
    named = alt.Chart(alt.InlineData(values=_apart(marks, longest))).transform_calculate(
        tip=f"{tip} + datum.what"
    )
    rule = named.mark_rule(strokeDash=[3, 3]).encode(x="t:Q", color=color, tooltip="tip:N")
    texts = [
        named.transform_filter(f"datum.side == '{side}'")
        .mark_text(align=side, baseline="top", dx=3 if side == "left" else -3, fontSize=10)
        .encode(x="t:Q", y=alt.Y("line:Q", scale=None), text="what:N", color=color)
        for side in ("left", "right")
    ]
    return alt.layer(base.mark_line(strokeWidth=1.5), points, rule, *texts)


def _apart(marks: list[dict[str, Any]], longest: float) -> list[dict[str, Any]]:
    """Return the events with a side of their line for the name, and a line of its own for each.

    An event of several cells at about the same time is named once.
    """
    placed: list[dict[str, Any]] = []
    for one in sorted(marks, key=lambda mark: float(mark["t"])):
        side = "left" if one["t"] < longest / 2 else "right"
        near = [
            other
            for other in placed
            if other["what"] == one["what"] and abs(other["t"] - one["t"]) < longest * NEAR
        ]
        named = sum(1 for other in placed if other["side"] in ("left", "right"))
        where = {"side": "none" if near else side, "line": LINE * (named % LINES)}
        placed.append({**one, **where})
    return placed
