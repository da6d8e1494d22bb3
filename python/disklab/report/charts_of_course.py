"""Latency over time and over percentiles: what medians hide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from typing import Any

import altair as alt
import polars as pl

from disklab.report import axes, wording
from disklab.report.axes import Figures, Panel, Section, rows
from disklab.report.cells import Cell, Matrix
from disklab.report.charts_by_factor import LEAST_HEIGHT, ROOM, ROW_HEIGHT, colour, place, series_of
from disklab.report.subject import Subject
from disklab.results import Histogram, Recovery, TrialResult, merged
from disklab.results.telemetry import readable
from disklab.results.timetable import in_time

# How long a node was away: until it had its data again, and until the rate was back.

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
        f"First repeat of each cell; the thick line is p50, the thin one p99. A point covers "
        f"{wording.span(widest)}: longer runs are shown in wider windows, with their histograms "
        "added up."
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
        "Each step to the right leaves a tenth of the operations; all repeats together. "
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


# What disks, caches and processors did while the load ran, in as many points as a chart shows.

TELEMETRY_HEIGHT = 130
MOST_POINTS = 200
"""Of a line; a longer course is averaged over equal spans."""


@dataclass(frozen=True)
class Watched:
    """One thing that is drawn when it was seen."""

    title: str
    source: str
    metric: str
    """A metric whose name begins so; the lowest of them, where there are several."""
    unit: str


WATCHED = (
    Watched("data disk reads", "disk data", "read_iops", "IOPS"),
    Watched("data disk writes", "disk data", "write_iops", "IOPS"),
    Watched("data disk queue", "disk data", "queue", "I/Os"),
    Watched("host cache hits", "emulator data", "hit_ratio", "share"),
    Watched("burst credits left", "emulator data", "credits_ratio", "share"),
    Watched("busy processors", "machine", "busy_cores", "cores"),
    Watched("pending compactions", "database", "pending_compactions", ""),
)
"""Sources and metrics as the telemetry of a rehearsal names them."""


def telemetry_section(subject: Subject) -> Section:
    """Return the course of what was watched beside the load, of each cell's first repeat."""
    panels = []
    for title, cells in cells_by_panel(subject):
        frames = {
            series: downsampled(subject, cell.usable[0]) for series, cell in cells if cell.usable
        }
        for one in WATCHED:
            lines = {series: points(frame, one) for series, frame in frames.items()}
            lines = {series: line for series, line in lines.items() if line}
            # A line that never leaves zero says nothing that the title would not.
            if any(value for line in lines.values() for _, value in line):
                panels.append(panel(subject.matrix, one, title, lines))
    lead = (
        f"First repeat of each cell, at most {MOST_POINTS} points a line: longer courses are "
        "averaged over equal spans. The telemetry files have every second."
    )
    return Section("telemetry", "Disks and machine over time", lead, tuple(panels), shown=3)


def downsampled(subject: Subject, result: TrialResult) -> pl.DataFrame:
    """Return the measuring phase's means over equal spans; read in a stream, never as a whole."""
    with readable(f"{subject.info.id}/telemetry/{result.trial}-{result.repeat}.parquet"):
        return means(subject.run.telemetry(*result.key).filter(pl.col("phase") == "measure"))


def means(lazy: pl.LazyFrame) -> pl.DataFrame:
    """Return the means over at most `MOST_POINTS` equal spans."""
    ends = lazy.select(low=pl.col("t_s").min(), high=pl.col("t_s").max())
    low, high = ends.collect(engine="streaming").row(0)
    if low is None:
        return pl.DataFrame(schema={"source": pl.String, "metric": pl.String, "t": pl.Float64})
    width = max(1.0, (high - low) / MOST_POINTS)
    wanted = {one.source for one in WATCHED}
    return (
        lazy.filter(pl.col("source").is_in(sorted(wanted)))
        .with_columns(window=((pl.col("t_s") - low) / width).floor())
        .group_by("source", "metric", "window")
        .agg(pl.col("value").mean(), t=pl.col("t_s").mean() - low)
        .sort("source", "metric", "window")
        .collect(engine="streaming")
    )


def points(frame: pl.DataFrame, one: Watched) -> list[tuple[float, float]]:
    """Return time and value of a metric; the lowest where its name stands for several."""
    found = frame.filter(
        (pl.col("source") == one.source) & pl.col("metric").str.starts_with(one.metric)
    )
    if found.is_empty():
        return []
    lowest = found.group_by("window").agg(pl.col("t").mean(), pl.col("value").min()).sort("t")
    return [(round(t, 1), float(f"{value:.4g}")) for t, value in lowest.select("t", "value").rows()]


def panel(
    matrix: Matrix, one: Watched, title: str, lines: Mapping[str, Sequence[tuple[float, float]]]
) -> Panel:
    """Return the chart of one metric."""
    data = [{"s": series, "t": t, "v": v} for series, line in lines.items() for t, v in line]
    figures = []
    for series, line in lines.items():
        seen = [value for _, value in line]
        told = (min(seen), sum(seen) / len(seen), max(seen))
        figures.append([series, *(wording.significant(value) for value in told)])
    return Panel(
        title=", ".join(part for part in (one.title, title) if part),
        described=f"{one.title} over time; mean: "
        + "; ".join(f"{line[0]} {line[2]} {one.unit}".strip() for line in figures),
        chart=telemetry_over_time(matrix, data, one.unit),
        height=TELEMETRY_HEIGHT,
        figures=Figures(("cell", "lowest", "mean", "highest"), rows(figures)),
        key=tuple(series_of(matrix)),
        columns={"s": "series", "t": "t_s", "v": f"{one.metric}"},
    )


def telemetry_over_time(matrix: Matrix, data: list[dict[str, Any]], unit: str) -> Any:
    """Return a line a series over time."""
    tip = "datum.s + ', ' + " + axes.time_text("datum.t") + " + ': ' + format(datum.v, ',.3~r')"
    tip += f" + {f' {unit}'.rstrip()!r}"
    base = (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=tip)
        .encode(
            x=alt.X("t:Q", title=None, axis=axes.time_axis(max(entry["t"] for entry in data))),
            y=alt.Y("v:Q", title=unit or None, axis=alt.Axis(tickCount=3)),
            color=alt.Color("s:N", scale=alt.Scale(domain=series_of(matrix)), legend=None),
        )
    )
    counted = Counter(entry["s"] for entry in data)
    points = base.mark_point(**axes.points_of_few(counted.values())).encode(tooltip="tip:N")
    return base.mark_line(strokeWidth=1.5) + points
