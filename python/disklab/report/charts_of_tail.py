"""What the percentiles of predicted cells consist of: a stacked bar a cell, and the table."""

from __future__ import annotations

from typing import Any

import altair as alt

from disklab.report import axes, wording
from disklab.report.cells import Cell
from disklab.report.panel import Figures, Panel, Section, rows
from disklab.report.subject import Subject
from disklab.results.records import STRETCHES
from disklab.results.tails import largest, stretches

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
    "garbage collection": ("pause",),
    "slots, commit log, slow replica": ("slots", "held", "retry"),
}
"""As many as there are colours that can be told apart; the table has each stretch."""

LEAD = (
    "Where the operations near each percentile spent their time: of several copies, the one that "
    "the client waited for. "
    "Garbage collection counts where it stopped an operation, not where it left a queue behind; "
    "several I/Os of one read add up, those of other replicas do not."
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
        chart=bars(data, list(GROUPS)),
        height=max(60, shown * (ROW_GAP + axes.LINE_HEIGHT * max(2, axes.most_lines(found)))),
        figures=Figures(heads, rows(lines)),
        key=tuple(GROUPS),
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
