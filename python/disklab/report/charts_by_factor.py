"""Rates and latencies by factor: lines along a sweep, or a row for each level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, Literal

import altair as alt

from disklab.report import axes, wording
from disklab.report.axes import Figures, Panel, Section, rows
from disklab.report.cells import Cell, Factor, Matrix, Rates, median, scaled_loads, size_of
from disklab.report.pair import counterpart
from disklab.report.subject import Subject
from disklab.results import Level

LINE_HEIGHT, ROW_HEIGHT, LEAST_HEIGHT = 220, 34, 60
LATENCIES = ("p50", "p95", "p99")
ROOM = 1.45
"""How much longer an axis of bars is than the longest: its figure stands behind it."""
NEAR_AN_END = 0.3
"""Share of an axis: what begins or ends so near has room for its figures on the other side."""
SIDES: tuple[Literal["left", "center", "right"], ...] = ("left", "center", "right")
BANDS = "A band or thin line is the 80 % band of a prediction, or the range of the repeats."


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
    found = [
        (title, [one for one in shown if one.cell.figures(path)])
        for title, shown in panels_by(subjects)
    ]
    # One axis for all panels, or their lengths would not be told apart.
    axis = axes.rate_axis(value for _, drawn in found for value in extent(drawn, path))
    for title, drawn in found:
        if not drawn:
            continue
        if matrix.sweep is not None:
            chart = lines(matrix, matrix.sweep, drawn, path, {"title": unit, **axis})
            height = LINE_HEIGHT
        else:
            chart, height = bars(matrix, drawn, path, unit, axis)
        panels.append(
            Panel(
                title=title,
                described=f"{unit} {by(matrix)}: {told(drawn, path)}",
                chart=chart,
                height=height,
                figures=figures(matrix, drawn, [path], [unit]),
                key=key(matrix),
                dashed=dashes(drawn),
                columns=columns(matrix, {"value": path, "low": "low", "high": "high"}),
                spans=has_spans(drawn, path),
            )
        )
    several = any(len(one.cell.figures(path)) > 1 for _, drawn in found for one in drawn)
    lead = "Median of the repeats; small marks are single repeats." if several else ""
    if any(one.spans for one in panels):
        lead += f" {BANDS}"
    if "axis" in axis:
        lead += " Logarithmic axes."
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
                    columns=columns(matrix, dict(zip(LATENCIES, paths, strict=True))),
                )
            )
    lead = "Response time (in a closed loop: the time of the operation). Logarithmic axes."
    if matrix.sweep is None:
        lead += " Each row runs from p50 (filled) through p95 to p99 (open)."
    elif any(one.spans for one in panels):
        lead += f" {BANDS}"
    return Section("latency", "Latency", lead, tuple(panels), shown=6)


def latency_lines(
    matrix: Matrix, sweep: Factor, title: str, drawn: Sequence[Shown]
) -> Iterable[Panel]:
    """Yield a panel for each percentile along a sweep."""
    for name in LATENCIES:
        path = f"{name}_ms"
        having = [one for one in drawn if one.cell.figures(path)]
        if having:
            axis = axes.latency_axis(extent(having, path))
            yield Panel(
                title=", ".join(part for part in (name, title) if part),
                described=f"{name} {by(matrix)}: {told(having, path)}",
                chart=lines(matrix, sweep, having, path, axis),
                height=LINE_HEIGHT - 40,
                figures=figures(matrix, having, [path], [name]),
                key=key(matrix),
                dashed=dashes(having),
                columns=columns(matrix, {"value": path, "low": "low", "high": "high"}),
                spans=has_spans(having, path),
            )


def lines(
    matrix: Matrix, sweep: Factor, drawn: Sequence[Shown], path: str, axis: Mapping[str, Any]
) -> Any:
    """Return a line a series along the sweep; other runs dashed, repeats as small marks."""
    sizes = {str(level): size_of(level) or 0.0 for level in sweep.levels}
    placed = [{**entry, "size": sizes[one.at]} for one in drawn for entry in values(one, path)]
    data = alt.InlineData(values=placed)
    runs = list(dict.fromkeys(one.run for one in drawn))
    x = axes.along(sizes, sweep.title)
    base = alt.Chart(data).encode(x=x, color=colour(matrix))
    dash = alt.StrokeDash("run:N", sort=runs, legend=None)
    line = base.mark_line().encode(y=alt.Y("median:Q", **axis), strokeDash=dash)
    dot = base.mark_point(size=40, filled=True).encode(y="median:Q", tooltip="tip:N")
    marks = base.mark_point(size=14, opacity=0.6).encode(y="value:Q")
    drawing = line + marks + dot
    if has_spans(drawn, path):
        band = base.mark_area(opacity=0.15).encode(
            y=alt.Y("low:Q", **axis), y2="high:Q", detail="run:N"
        )
        drawing = band + drawing
    # Beside a second run's lines, and in the narrow latency charts, names would cross lines.
    named = len(runs) == 1 and path.startswith("ops")
    return drawing + labels(matrix, drawn, path, (x, sizes)) if named else drawing


def labels(
    matrix: Matrix, drawn: Sequence[Shown], path: str, across: tuple[Any, Mapping[str, float]]
) -> Any:
    """Return the names of two lines at their right ends, the higher one above; else none.

    More lines than two would write over each other: they have the key alone.
    """
    x, sizes = across
    ends: dict[str, dict[str, Any]] = {}
    for one in drawn:
        value = one.cell.median(path)
        if one.run != drawn[0].run or value is None:
            continue
        last = ends.get(one.series)
        if last is None or sizes[one.at] >= last["size"]:
            ends[one.series] = {"series": one.series, "size": sizes[one.at], "end": value}
    data = sorted(ends.values(), key=lambda end: -float(end["end"])) if len(ends) == 2 else []
    # At the left end of the sweep a name has no room on its left.
    sides: list[tuple[list[dict[str, Any]], int, Literal["left", "right"]]] = [
        ([end], dy, "left" if end["size"] < max(sizes.values()) else "right")
        for end, dy in zip(data, (-10, 14), strict=False)
    ]
    return alt.layer(
        *(
            alt.Chart(alt.InlineData(values=part))
            .mark_text(align=side, dy=dy, dx=6 if side == "right" else -6, fontWeight=600)
            .encode(
                x=x,
                y="end:Q",
                text="series:N",
                color=colour(matrix),
            )
            for part, dy, side in sides
        )
    )


def bars(
    matrix: Matrix, drawn: Sequence[Shown], path: str, unit: str, axis: Mapping[str, Any]
) -> tuple[Any, int]:
    """Return a bar a level with its figure at the end; repeats as ticks; runs side by side."""
    data = alt.InlineData(values=[v for one in drawn for v in values(one, path)])
    runs = list(dict.fromkeys(one.run for one in drawn))
    log = "axis" in axis
    names = alt.Y(
        "series:N", sort=series_of(matrix), title=None, axis=axes.row_names(series_of(matrix))
    )
    base = alt.Chart(data).encode(y=names, color=colour(matrix))
    if len(runs) > 1:
        base = base.encode(yOffset=alt.YOffset("run:N", sort=runs), opacity=faint(runs))
    most = max(extent(drawn, path), default=1.0)
    # Room on the right for the figure at the end of the longest bar; a bar needs a zero to begin.
    x = (
        alt.X("max(median):Q", title=unit, **axis)
        if log
        else alt.X(
            "max(median):Q",
            title=unit,
            scale=alt.Scale(domain=[0, most * ROOM]),
            axis=alt.Axis(tickCount=4),
        )
    )
    bar = base.mark_point(size=70) if log else base.mark_bar(height={"band": 0.72})
    tick = base.mark_tick(color="var(--ink)", thickness=1, opacity=0.7).encode(
        x="value:Q", color=alt.value("var(--ink)"), tooltip="tip:N"
    )
    text = base.mark_text(align="left", dx=5).encode(
        x="max(highest):Q", text="label:N", color=alt.value("var(--ink)"), opacity=alt.value(1)
    )
    drawing = bar.encode(x=x, tooltip="tip:N")
    if has_spans(drawn, path):
        # Dark on the paper, edged in its colour on the bar.
        for width, name in ((4, "paper"), (1.5, "ink")):
            drawing += base.mark_rule(strokeWidth=width).encode(
                x="min(low):Q", x2="max(high):Q", color=alt.value(f"var(--{name})"),
                tooltip="tip:N",
            )  # fmt: skip
    levels = list(dict.fromkeys(one.series for one in drawn))
    row = max(ROW_HEIGHT, axes.LINE_HEIGHT * axes.most_lines(levels) + 8)
    height = round(row * len(levels) * (1 if len(runs) == 1 else 0.72 * len(runs)))
    return drawing + tick + text, max(LEAST_HEIGHT, height)


def latency_rows(matrix: Matrix, drawn: Sequence[Shown]) -> tuple[Any, int]:
    """Return a row a level, from p50 over p95 to p99, on a logarithmic axis."""
    data: list[dict[str, Any]] = []
    for one in drawn:
        entry = {name: one.cell.median(f"{name}_ms") for name in LATENCIES}
        if entry["p50"] is None and entry["p99"] is None:
            continue
        label = wording.latencies([value for value in entry.values() if value])
        spelled = ", ".join(
            f"{name} {wording.latency(value)}" for name, value in entry.items() if value
        )
        tip = f"{one.series}{_of_run(one, drawn)}: {spelled}"
        data.append({"series": one.series, "run": one.run, **entry, "label": label, "tip": tip})
    runs = list(dict.fromkeys(one.run for one in drawn))
    ends = [float(entry[name]) for entry in data for name in ("p50", "p99") if entry[name]]
    for entry in data:
        entry.update(anchored(entry, min(ends), max(ends)))
    names = alt.Y(
        "series:N", sort=series_of(matrix), title=None, axis=axes.row_names(series_of(matrix))
    )
    base = alt.Chart(alt.InlineData(values=data)).encode(y=names, color=colour(matrix))
    if len(runs) > 1:
        base = base.encode(yOffset=alt.YOffset("run:N", sort=runs), opacity=faint(runs))
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("p50:Q", **axes.latency_axis(ends)), x2="p99:Q"
    )
    filled = base.mark_point(size=70, opacity=1).encode(x="p50:Q", tooltip="tip:N")
    middle = base.mark_tick(thickness=2, size=12).encode(x="p95:Q", tooltip="tip:N")
    opened = base.mark_point(size=70, filled=False, fill="var(--paper)", opacity=1).encode(
        x="p99:Q", tooltip="tip:N"
    )
    texts = [
        base.transform_filter(f"datum.side == '{side}'")
        .mark_text(align=side, dy=-11, fontSize=10)
        .encode(x="where:Q", text="label:N", color=alt.value("var(--muted)"), opacity=alt.value(1))
        for side in SIDES
    ]
    row = max(ROW_HEIGHT + 6, axes.LINE_HEIGHT * axes.most_lines(series_of(matrix)) + 8)
    return alt.layer(rule, filled, middle, opened, *texts), max(LEAST_HEIGHT, row * len(data))


def anchored(entry: Mapping[str, Any], low: float, high: float) -> dict[str, Any]:
    """Return where a row's figures are written and to which side, so that no end is cut off."""
    first = entry["p50"] or entry["p99"]
    last = entry["p99"] or entry["p50"]
    whole = log(high / low) or 1.0
    if log(first / low) / whole < NEAR_AN_END:
        return {"where": first, "side": "left"}
    if log(high / last) / whole < NEAR_AN_END:
        return {"where": last, "side": "right"}
    return {"where": sqrt(low * high), "side": "center"}


def colour(matrix: Matrix) -> Any:
    """Return the colour of a series: the same in every chart."""
    return alt.Color(
        "series:N", sort=series_of(matrix), scale=alt.Scale(domain=series_of(matrix)), legend=None
    )


def faint(runs: Sequence[str]) -> Any:
    """Return an opacity that sets the first run off from the others."""
    scale = alt.Scale(domain=list(runs), range=[1.0] + [0.45] * (len(runs) - 1))
    return alt.Opacity("run:O", scale=scale, legend=None)


def values(one: Shown, path: str) -> list[dict[str, Any]]:
    """Return the entries of one cell: one for each repeat, with the median beside it."""
    found = one.cell.figures(path)
    middle = median(found)
    label = _figure(path, middle)
    entry: dict[str, Any] = {"run": one.run, "series": one.series, "at": one.at}
    if (ends := span(one.cell, path)) is not None:
        entry |= {"low": ends[0], "high": ends[1]}
    place_ = f", {one.at}" if one.at else ""
    between = f" ({_figure(path, ends[0])} to {_figure(path, ends[1])})" if ends else ""
    unit = " a second" if path.startswith("ops") else ""
    tip = f"{one.series}{place_}: {label}{unit}{between}, {one.run}"
    highest = max(*found, ends[1] if ends else 0.0)
    return [
        {**entry, "value": value, "median": middle, "highest": highest, "label": label, "tip": tip}
        for value in found
    ]


def _figure(path: str, value: float | None) -> str:
    return wording.rate(value) if path.startswith("ops") else wording.latency(value)


def _of_run(one: Shown, drawn: Sequence[Shown]) -> str:
    return f", {one.run}" if any(other.run != one.run for other in drawn) else ""


def span(cell: Cell, path: str) -> tuple[float, float] | None:
    """Return a prediction's band, or the lowest and highest repeat; None: there is neither."""
    found = cell.figures(path)
    bands = cell.usable[0].bands if cell.usable else None
    name = "ops_per_s" if path.startswith("ops") else path
    if bands is not None and name in bands.figures and found:
        band, middle = bands.figures[name], median(found) or 0.0
        return middle * band.low, middle * band.high
    return (min(found), max(found)) if len(found) > 1 else None


def has_spans(drawn: Sequence[Shown], path: str) -> bool:
    """Return whether any of the cells has a band or several repeats."""
    return any(span(one.cell, path) is not None for one in drawn)


def extent(drawn: Sequence[Shown], path: str) -> list[float]:
    """Return everything that a chart must have room for."""
    return [
        value for one in drawn for value in (*one.cell.figures(path), *(span(one.cell, path) or ()))
    ]


def columns(matrix: Matrix, figures_: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the data under the headings of a CSV file."""
    main, sweep = matrix.main, matrix.sweep
    found = {"run": "run", "series": main.name if main else "cell"}
    if sweep is not None:
        found["at"] = sweep.name
    return {**found, **figures_}


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
