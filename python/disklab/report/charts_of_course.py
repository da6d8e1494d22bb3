"""Latency over time and over percentiles: what medians hide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import isnan
from typing import Any

import altair as alt

from disklab.report import axes, wording
from disklab.report.cells import Cell, Matrix
from disklab.report.charts_by_factor import place, series_of
from disklab.report.panel import Figures, Panel, Section, rows
from disklab.report.subject import Subject
from disklab.results import Histogram, merged

HEIGHT = 200
PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999)
TABLE_PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
LEAST_BEYOND = 10
"""A percentile with fewer samples beyond it is drawn by chance; the curve ends there."""
MANY = 4
"""Panels that are open at first."""


def cells_by_panel(subject: Subject) -> list[tuple[str, list[tuple[str, Cell]]]]:
    """Return the cells that differ in the main factor only, panel by panel."""
    matrix = subject.matrix
    found: dict[str, list[tuple[str, Cell]]] = {}
    fixed = [*matrix.others, *([matrix.sweep] if matrix.sweep else [])]
    for cell in matrix.cells.values():
        title = matrix.phrase({factor.name: cell.factors[factor.name] for factor in fixed})
        if cell.usable:
            found.setdefault(title, []).append((place(matrix, cell.factors)[0], cell))
    return list(found.items())


def course_section(subject: Subject) -> Section:
    """Return p50 and p99 over time, of the first usable repeat of each cell."""
    panels = []
    widest = 1.0
    for title, cells in cells_by_panel(subject):
        data: list[dict[str, Any]] = []
        lines: list[list[str]] = []
        for series, cell in cells:
            windows = subject.windows(cell.usable[0])
            if windows is None or not windows.value_ms.size:
                continue
            widest = max(widest, windows.width_s)
            middle, high = windows.percentile_ms(50), windows.percentile_ms(99)
            # A window in which nothing ended has no latency: slow transactions are seconds apart.
            seen = [float(tail) for tail in high if not isnan(tail)]
            if not seen:
                continue
            data += [
                {"s": series, "t": round(t, 1), "p50": _short(half), "p99": _short(tail)}
                for t, half, tail in zip(windows.t_s, middle, high, strict=True)
                if not isnan(half)
            ]
            lines.append(
                [series, wording.latency(min(seen)), wording.latency(max(seen)),
                 wording.rate(float(min(windows.ops_per_s))),
                 wording.rate(float(max(windows.ops_per_s)))]
            )  # fmt: skip
        if data:
            heads = ("cell", "lowest p99", "highest p99", "lowest ops/s", "highest ops/s")
            panels.append(
                Panel(
                    title=title,
                    described="p50 and p99 over time; highest p99: "
                    + "; ".join(f"{line[0]} {line[2]}" for line in lines),
                    chart=over_time(subject.matrix, data),
                    height=HEIGHT,
                    figures=Figures(heads, rows(lines)),
                    key=tuple(series_of(subject.matrix)),
                    columns={"s": "series", "t": "t_s", "p50": "p50_ms", "p99": "p99_ms"},
                )
            )
    lead = (
        f"First repeat of each cell; strong p50, thin p99. A point is {wording.span(widest)}: "
        "longer runs are shown in wider windows, their histograms added up."
    )
    return Section("course", "Latency over time", lead, tuple(panels), shown=MANY)


def over_time(matrix: Matrix, data: list[dict[str, Any]]) -> Any:
    """Return two lines a series over time."""
    seen = [entry[name] for entry in data for name in ("p50", "p99")]
    tip = "datum.s + ', ' + " + axes.time_text("datum.t") + " + ': p50 ' + "
    tip += axes.latency_text("datum.p50") + " + ', p99 ' + " + axes.latency_text("datum.p99")
    base = (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=tip)
        .encode(
            x=alt.X("t:Q", title=None, axis=axes.time_axis(max(entry["t"] for entry in data))),
            color=alt.Color("s:N", scale=alt.Scale(domain=series_of(matrix)), legend=None),
        )
    )
    counted = Counter(entry["s"] for entry in data)
    points = base.mark_point(**axes.points_of_few(counted.values()))
    middle = base.mark_line(strokeWidth=2).encode(y=alt.Y("p50:Q", **axes.latency_axis(seen)))
    high = base.mark_line(strokeWidth=1, opacity=0.75).encode(y="p99:Q")
    ends = [points.encode(y=f"{name}:Q", tooltip="tip:N") for name in ("p50", "p99")]
    return alt.layer(middle, high, *ends)


def percentile_section(subjects: Sequence[Subject]) -> Section:
    """Return percentile curves, all repeats' histograms merged."""
    panels = []
    subject = subjects[0]
    for title, cells in cells_by_panel(subject):
        data: list[dict[str, Any]] = []
        lines: list[list[str]] = []
        for series, cell in cells:
            curve = curve_of(subject, cell)
            data += [{"s": series, "x": 1 / (1 - p / 100), "p": p, "ms": ms} for p, ms in curve]
            named = dict(curve)
            shown = [wording.latency(named.get(p)) for p in TABLE_PERCENTILES]
            lines.append([series, *shown])
        if any(True for one, other in pairwise(data) if one["s"] == other["s"]):
            panels.append(
                Panel(
                    title=title,
                    described="latency by percentile; p99: "
                    + "; ".join(f"{line[0]} {line[3]}" for line in lines if line[3]),
                    chart=percentile_curves(subject.matrix, data),
                    height=HEIGHT,
                    figures=Figures(("cell", *(f"p{p:g}" for p in TABLE_PERCENTILES)), rows(lines)),
                    key=tuple(series_of(subject.matrix)),
                    columns={"s": "series", "p": "percentile", "ms": "latency_ms"},
                )
            )
    lead = (
        "Each step to the right is a tenth of the operations before it; all repeats together. "
        f"A curve ends where fewer than {LEAST_BEYOND} operations were slower."
    )
    return Section("percentiles", "Latency by percentile", lead, tuple(panels), shown=MANY)


def curve_of(subject: Subject, cell: Cell) -> list[tuple[float, float]]:
    """Return percentile and milliseconds; from the figures alone when there are no histograms."""
    histograms: list[Histogram] = []
    for result in cell.usable:
        whole = subject.run.response(*result.key)
        if whole is not None:
            histograms.append(whole)
    if not histograms:
        told = {
            float(name[1:]): ms
            for name, ms in cell.usable[0].latency_ms.items()
            if name.startswith("p")
        }
        return sorted((p, ms) for p, ms in told.items() if p < 100)
    total = merged(histograms)
    beyond = [p for p in PERCENTILES if total.total * (1 - p / 100) >= LEAST_BEYOND]
    return [(p, ns / 1e6) for p, ns in zip(beyond, total.percentiles(beyond), strict=True)]


def percentile_curves(matrix: Matrix, data: list[dict[str, Any]]) -> Any:
    """Return a curve a series; equal steps for 90 %, 99 %, 99.9 %."""
    label = "datum.value == 2 ? '50 %' : format(100 * (1 - 1 / datum.value), '~r') + ' %'"
    seen = [entry["ms"] for entry in data]
    axis = alt.Axis(values=[2, 10, 100, 1_000, 10_000, 100_000], labelExpr=label)
    tip = "datum.s + ', ' + format(datum.p, '~r') + ' %: ' + " + axes.latency_text("datum.ms")
    base = (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=tip)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(type="log"), title=None, axis=axis),
            y=alt.Y("ms:Q", **axes.latency_axis(seen)),
            color=alt.Color("s:N", scale=alt.Scale(domain=series_of(matrix)), legend=None),
        )
    )
    line = base.mark_line(interpolate="monotone")
    return line + base.mark_point(size=16, filled=True, opacity=1).encode(tooltip="tip:N")


def _short(ms: float) -> float:
    """Return a latency with the digits that a chart can show."""
    return float(f"{ms:.4g}")
