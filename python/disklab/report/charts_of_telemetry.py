"""What disks, caches and processors did while the load ran, in as many points as a chart shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from disklab.report import axes, wording
from disklab.report.cells import Matrix
from disklab.report.charts_by_factor import series_of
from disklab.report.charts_of_course import cells_by_panel
from disklab.report.panel import Figures, Panel, Section, rows
from disklab.report.subject import Subject
from disklab.results import TrialResult
from disklab.results.telemetry import readable

HEIGHT = 130
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
        "averaged over equal spans. The telemetry files hold every second."
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
        chart=over_time(matrix, data, one.unit),
        height=HEIGHT,
        figures=Figures(("cell", "lowest", "mean", "highest"), rows(figures)),
        key=tuple(series_of(matrix)),
        columns={"s": "series", "t": "t_s", "v": f"{one.metric}"},
    )


def over_time(matrix: Matrix, data: list[dict[str, Any]], unit: str) -> Any:
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
