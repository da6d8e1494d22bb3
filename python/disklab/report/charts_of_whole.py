"""How long a node was away: until it had its data again, and until the rate was back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from disklab.report import axes
from disklab.report.cells import Cell, Matrix
from disklab.report.charts_by_factor import LEAST_HEIGHT, ROOM, ROW_HEIGHT, colour, series_of
from disklab.report.panel import Figures, Panel, rows
from disklab.results import Recovery
from disklab.results.timetable import in_time

WHOLE = "until whole again"
DESCRIBED = "from the first event until the node had all its data again"


def whole_panel(
    matrix: Matrix,
    title: str,
    cells: Sequence[tuple[str, Cell]],
    recoveries: Mapping[int, Recovery],
) -> Panel | None:
    """Return a row for each cell; None: no node of these cells was ever to be whole again.

    `recoveries`: by the identity of each cell.
    """
    data = [
        _entry(series, recoveries[id(cell)]) for series, cell in cells if id(cell) in recoveries
    ]
    data = [entry for entry in data if entry["whole"] is not None or entry["lost"]]
    if not any(entry["whole"] for entry in data):
        return None
    longest = max(entry["end"] for entry in data)
    names = [str(entry["series"]) for entry in data]
    y = alt.Y("series:N", sort=series_of(matrix), title=None, axis=axes.row_names(names))
    x = alt.X(
        "whole:Q",
        title=None,
        scale=alt.Scale(domain=[0, longest * ROOM]),
        axis=axes.time_axis(longest * ROOM),
    )
    base = alt.Chart(alt.InlineData(values=data)).encode(y=y, color=colour(matrix))
    bar = base.mark_bar(height={"band": 0.72}).encode(x=x, tooltip="tip:N")
    back = base.mark_tick(thickness=2, opacity=1).encode(
        x="back:Q", color=alt.value("var(--ink)"), tooltip="tip:N"
    )
    text = base.mark_text(align="left", dx=5).encode(
        x="end:Q", text="label:N", color=alt.value("var(--ink)")
    )
    row = max(ROW_HEIGHT, axes.LINE_HEIGHT * axes.most_lines(names) + 8)
    return Panel(
        title=", ".join(part for part in (WHOLE, title) if part),
        described=f"{DESCRIBED}; " + "; ".join(f"{one['series']}: {one['label']}" for one in data),
        chart=alt.layer(bar, back, text),
        height=max(LEAST_HEIGHT, row * len(data)),
        figures=Figures(
            ("cell", "whole again", "rate back at 95 %"),
            rows([[str(one["series"]), str(one["label"]), str(one["back_label"])] for one in data]),
        ),
        columns={"series": "series", "whole": "whole_s", "back": "back_s"},
    )


def _entry(series: str, seen: Recovery) -> dict[str, Any]:
    lost = bool(seen.rows_lost)
    # What is lost never comes back, however soon the node was there.
    whole = None if lost else seen.whole_s
    label = (
        f"never: {seen.rows_lost} rows lost" if lost else "" if whole is None else in_time(whole)
    )
    if seen.extrapolated and whole is not None:
        label += ", beyond the load"
    back = "never" if seen.back_s is None else in_time(seen.back_s)
    return {
        "series": series,
        "whole": whole,
        "back": seen.back_s,
        "lost": lost,
        "end": max(whole or 0.0, seen.back_s or 0.0),
        "label": label,
        "back_label": back,
        "tip": f"{series}: whole again {label if lost else f'after {label}'}, rate back: {back}",
    }
