"""Rates and latencies by factor: lines along a sweep, or a row for each level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

import altair as alt

from disklab.report import wording
from disklab.report.cells import Cell, Factor, Matrix, Rates, median, scaled_loads
from disklab.report.comparison import counterpart
from disklab.report.panel import Figures, Panel, Section, rows
from disklab.report.subject import Subject
from disklab.results import Level

LINE_HEIGHT, ROW_HEIGHT, LEAST_HEIGHT = 220, 34, 60
LATENCIES = ("p50", "p95", "p99")
MOST_LINES = 7
LOG_FROM = 20.0
"""Highest over lowest from which on a linear axis hides the low ones."""


@dataclass(frozen=True)
class Shown:
    """One cell of one run, as charts draw it."""

    run: str
    series: str
    """The level of the main factor."""
    at: str
    """The level of the sweep, or nothing."""
    cell: Cell


def panels_by(subjects: Sequence[Subject]) -> list[tuple[str, list[Shown]]]:
    """Return the cells of all runs by panel: the first run's factors have the roles."""
    first, *rest = subjects
    matrix = first.matrix
    found: list[tuple[str, list[Shown]]] = []
    for context in matrix.contexts():
        shown = []
        for cell in matrix.drawn():
            if any(cell.factors[name] != level for name, level in context.items()):
                continue
            series, at = place(matrix, cell.factors)
            shown.append(Shown(first.label, series, at, cell))
            for other in rest:
                match = counterpart(first, cell, other)
                if match is not None:
                    shown.append(Shown(other.label, series, at, match))
        found.append((matrix.phrase(context), shown))
    return found


def place(matrix: Matrix, factors: Mapping[str, Level]) -> tuple[str, str]:
    """Return the series and the place on the sweep of a cell."""
    main, sweep = matrix.main, matrix.sweep
    series = main.phrase(factors[main.name]) if main else "all"
    return series, str(factors[sweep.name]) if sweep else ""


def series_of(matrix: Matrix) -> list[str]:
    """Return the names of the series in the order of their colours."""
    return [matrix.main.phrase(level) for level in matrix.main.levels] if matrix.main else ["all"]


def rates_of(subjects: Sequence[Subject]) -> Rates:
    """Return whose rates can stand beside each other."""
    results = [r for one in subjects for r in one.run.results() if r.usable]
    nodes = {result.nodes for result in results}
    if len(nodes) > 1 and None not in nodes:
        return Rates.NODE
    return Rates.CLUSTER if len(subjects) > 1 and scaled_loads(results) else Rates.AS_RUN


def rate_section(subjects: Sequence[Subject]) -> Section:
    """Return ops/s by factor."""
    rates = rates_of(subjects)
    path, unit = rates.value, rates.unit
    matrix = subjects[0].matrix
    panels = []
    for title, shown in panels_by(subjects):
        drawn = [one for one in shown if one.cell.figures(path)]
        if not drawn:
            continue
        if matrix.sweep is not None:
            chart = lines(matrix, matrix.sweep, drawn, path, unit)
            height = LINE_HEIGHT
        else:
            chart, height = bars(matrix, drawn, path, unit)
        panels.append(
            Panel(
                title=title,
                described=f"{unit} {by(matrix)}: {told(drawn, path)}",
                chart=chart,
                height=height,
                figures=figures(matrix, drawn, [path], [unit]),
                key=key(matrix),
                dashed=dashes(drawn),
            )
        )
    lead = "Median of the repeats; small marks are single repeats." if panels else ""
    return Section("rate", "Operations per second", lead, tuple(panels))


def latency_section(subjects: Sequence[Subject]) -> Section:
    """Return p50, p95 and p99 by factor."""
    matrix = subjects[0].matrix
    panels: list[Panel] = []
    for title, shown in panels_by(subjects):
        paths = [f"{name}_ms" for name in LATENCIES]
        drawn = [one for one in shown if any(one.cell.figures(path) for path in paths)]
        if drawn and matrix.sweep is not None:
            panels += latency_lines(matrix, matrix.sweep, title, drawn)
        elif drawn:
            chart, height = latency_rows(matrix, drawn)
            panels.append(
                Panel(
                    title=title,
                    described=f"latency {by(matrix)}: p99 {told(drawn, 'p99_ms')}",
                    chart=chart,
                    height=height,
                    figures=figures(matrix, drawn, paths, list(LATENCIES)),
                    dashed=dashes(drawn),
                )
            )
    lead = "Response time, which in a closed loop is the time of the operation."
    if matrix.sweep is None:
        lead += " Each row runs from p50 (filled) over p95 to p99 (open)."
    return Section("latency", "Latency", lead, tuple(panels), shown=6)


def latency_lines(
    matrix: Matrix, sweep: Factor, title: str, drawn: Sequence[Shown]
) -> Iterable[Panel]:
    """Yield a panel for each percentile along a sweep."""
    for name in LATENCIES:
        path = f"{name}_ms"
        having = [one for one in drawn if one.cell.figures(path)]
        if having:
            yield Panel(
                title=", ".join(part for part in (name, title) if part),
                described=f"{name} {by(matrix)}: {told(having, path)}",
                chart=lines(matrix, sweep, having, path, "ms"),
                height=LINE_HEIGHT - 40,
                figures=figures(matrix, having, [path], [name]),
                key=key(matrix),
                dashed=dashes(having),
            )


def lines(matrix: Matrix, sweep: Factor, drawn: Sequence[Shown], path: str, unit: str) -> Any:
    """Return a line a series along the sweep; other runs dashed, repeats as small marks."""
    order = [str(level) for level in sweep.levels]
    data = alt.InlineData(values=[v for one in drawn for v in values(one, path)])
    runs = list(dict.fromkeys(one.run for one in drawn))
    top = [figure for one in drawn for figure in one.cell.figures(path) if figure > 0]
    log = bool(top) and max(top) / min(top) > LOG_FROM
    base = alt.Chart(data).encode(
        x=alt.X("at:O", sort=order, title=sweep.title, axis=alt.Axis(labelAngle=0)),
        color=colour(matrix),
    )
    line = base.mark_line(point={"size": 40}).encode(
        y=alt.Y("median:Q", title=unit, **(log_axis(top) if log else {})),
        strokeDash=alt.StrokeDash("run:N", sort=runs, legend=None),
        tooltip=[
            alt.Tooltip("series:N"), alt.Tooltip("at:O", title=sweep.title),
            alt.Tooltip("median:Q", title=unit, format=",.3~r"), alt.Tooltip("run:N"),
        ],
    )  # fmt: skip
    marks = base.mark_point(size=14, opacity=0.6).encode(y="value:Q")
    # Beside a second run's lines, and in the narrow latency charts, names would cross lines.
    named = len(runs) == 1 and path.startswith("ops")
    return marks + line + labels(matrix, drawn, path, order) if named else marks + line


def log_axis(shown: Sequence[float]) -> dict[str, Any]:
    """Return scale and axis of a logarithmic direction: few lines, at 1, 2 and 5 of each decade."""
    low, high = min(shown) * 0.8, max(shown) * 1.2
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    if len(values) > MOST_LINES:
        values = [value for value in values if log10(value).is_integer()]
    return {
        "scale": alt.Scale(type="log", nice=False, domain=[low, high]),
        "axis": alt.Axis(values=values, format="~r"),
    }


def labels(matrix: Matrix, drawn: Sequence[Shown], path: str, order: Sequence[str]) -> Any:
    """Return the names of two lines at their right ends, the higher one above; else none.

    More lines than two would write over each other: they have the key alone.
    """
    ends: dict[str, dict[str, Any]] = {}
    for one in drawn:
        value = one.cell.median(path)
        if one.run != drawn[0].run or value is None:
            continue
        last = ends.get(one.series)
        if last is None or order.index(one.at) >= order.index(last["at"]):
            ends[one.series] = {"series": one.series, "at": one.at, "end": value}
    data = sorted(ends.values(), key=lambda end: -float(end["end"])) if len(ends) == 2 else []
    sides = [(data[:1], -10), (data[1:], 14)]
    return alt.layer(
        *(
            alt.Chart(alt.InlineData(values=part))
            .mark_text(align="right", dy=dy, dx=6, fontWeight=600)
            .encode(
                x=alt.X("at:O", sort=list(order)),
                y="end:Q",
                text="series:N",
                color=colour(matrix),
            )
            for part, dy in sides
        )
    )


def bars(matrix: Matrix, drawn: Sequence[Shown], path: str, unit: str) -> tuple[Any, int]:
    """Return a bar a level with its figure at the end; repeats as ticks; runs side by side."""
    data = alt.InlineData(values=[v for one in drawn for v in values(one, path)])
    runs = list(dict.fromkeys(one.run for one in drawn))
    most = max((figure for one in drawn for figure in one.cell.figures(path)), default=1.0)
    base = alt.Chart(data).encode(
        y=alt.Y("series:N", sort=series_of(matrix), title=None), color=colour(matrix)
    )
    if len(runs) > 1:
        base = base.encode(yOffset=alt.YOffset("run:N", sort=runs), opacity=faint(runs))
    # Room on the right for the figure at the end of the longest bar.
    scale = alt.Scale(domain=[0, most * 1.28])
    tooltip = [
        alt.Tooltip("series:N"),
        alt.Tooltip("median:Q", title=unit, format=",.3~r"),
        alt.Tooltip("run:N"),
    ]
    bar = base.mark_bar(height={"band": 0.72}).encode(
        x=alt.X("max(median):Q", title=unit, scale=scale, axis=alt.Axis(tickCount=4)),
        tooltip=tooltip[:1],
    )
    tick = base.mark_tick(color="var(--ink)", thickness=1, opacity=0.7).encode(
        x="value:Q", color=alt.value("var(--ink)"), tooltip=tooltip
    )
    text = base.mark_text(align="left", dx=5).encode(
        x="max(highest):Q", text="label:N", color=alt.value("var(--ink)")
    )
    count = len({one.series for one in drawn}) * len(runs)
    return bar + tick + text, max(
        LEAST_HEIGHT, round(ROW_HEIGHT * count * (0.72 if len(runs) > 1 else 1))
    )


def latency_rows(matrix: Matrix, drawn: Sequence[Shown]) -> tuple[Any, int]:
    """Return a row a level, from p50 over p95 to p99, on a logarithmic axis."""
    data: list[dict[str, Any]] = []
    for one in drawn:
        entry = {name: one.cell.median(f"{name}_ms") for name in LATENCIES}
        if entry["p50"] is None and entry["p99"] is None:
            continue
        label = " · ".join(wording.latency(value) for value in entry.values() if value)
        data.append({"series": one.series, "run": one.run, **entry, "label": label})
    runs = list(dict.fromkeys(one.run for one in drawn))
    base = alt.Chart(alt.InlineData(values=data)).encode(
        y=alt.Y("series:N", sort=series_of(matrix), title=None), color=colour(matrix)
    )
    if len(runs) > 1:
        base = base.encode(yOffset=alt.YOffset("run:N", sort=runs), opacity=faint(runs))
    ends = [float(entry[name]) for entry in data for name in ("p50", "p99") if entry[name]]
    tooltip = [
        alt.Tooltip("series:N"),
        *(alt.Tooltip(f"{name}:Q", title=f"{name} ms", format=".3~r") for name in LATENCIES),
        alt.Tooltip("run:N"),
    ]
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("p50:Q", title="ms", **log_axis(ends)), x2="p99:Q"
    )
    filled = base.mark_point(size=70, opacity=1).encode(x="p50:Q", tooltip=tooltip)
    middle = base.mark_tick(thickness=2, size=12).encode(x="p95:Q", tooltip=tooltip)
    opened = base.mark_point(size=70, filled=False, fill="var(--paper)", opacity=1).encode(
        x="p99:Q", tooltip=tooltip
    )
    text = base.mark_text(align="left", dy=-11, fontSize=10).encode(
        x="p50:Q", text="label:N", color=alt.value("var(--muted)")
    )
    height = max(LEAST_HEIGHT, round((ROW_HEIGHT + 6) * len(data)))
    return rule + filled + middle + opened + text, height


def colour(matrix: Matrix) -> Any:
    """Return the colour of a series: the same in every chart."""
    return alt.Color(
        "series:N", sort=series_of(matrix), scale=alt.Scale(domain=series_of(matrix)), legend=None
    )


def faint(runs: Sequence[str]) -> Any:
    """Return an opacity that sets the first run off from the others."""
    scale = alt.Scale(domain=list(runs), range=[1.0] + [0.45] * (len(runs) - 1))
    return alt.Opacity("run:N", scale=scale, legend=None)


def values(one: Shown, path: str) -> list[dict[str, Any]]:
    """Return the entries of one cell: one for each repeat, with the median beside it."""
    found = one.cell.figures(path)
    middle = median(found)
    text = wording.rate(middle) if path.startswith("ops") else wording.latency(middle)
    return [
        {"run": one.run, "series": one.series, "at": one.at, "value": value, "median": middle,
         "highest": max(found), "label": text}
        for value in found
    ]  # fmt: skip


def by(matrix: Matrix) -> str:
    """Return the roles in words: `by caching along threads`."""
    main = f"by {matrix.main.title}" if matrix.main else ""
    return f"{main} along {matrix.sweep.title}" if matrix.sweep else main


def told(drawn: Sequence[Shown], path: str) -> str:
    """Return the figures in words."""
    parts = []
    for one in drawn:
        value = one.cell.median(path)
        if value is not None:
            at = f" at {one.at}" if one.at else ""
            shown = wording.rate(value) if path.startswith("ops") else wording.latency(value)
            parts.append(f"{one.series}{at} {shown}")
    return "; ".join(parts)


def figures(
    matrix: Matrix, drawn: Sequence[Shown], paths: Sequence[str], names: Sequence[str]
) -> Figures:
    """Return the table beside a chart."""
    several = len({one.run for one in drawn}) > 1
    head = [*(["run"] if several else []), matrix.main.title if matrix.main else "cell"]
    head += [matrix.sweep.title] if matrix.sweep else []
    lines_ = []
    for one in drawn:
        line = [*([one.run] if several else []), one.series, *([one.at] if matrix.sweep else [])]
        for path in paths:
            value = one.cell.median(path)
            line.append(wording.rate(value) if path.startswith("ops") else wording.latency(value))
        lines_.append([*line, str(len(one.cell.usable))])
    return Figures((*head, *names, "repeats"), rows(lines_))


def key(matrix: Matrix) -> tuple[str, ...]:
    """Return the series for the key above lines; rows carry their names themselves."""
    return tuple(series_of(matrix)) if matrix.sweep is not None else ()


def dashes(drawn: Sequence[Shown]) -> tuple[str, ...]:
    """Return the runs whose lines are dashed; of rows, those that are fainter."""
    return tuple(dict.fromkeys(one.run for one in drawn if one.run != drawn[0].run))
