"""The probe's chart as a file: percentile curves and bars, self-contained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from disklab.errors import Problem, UserError
from disklab.probe.cells import PERCENTILES, Profile
from disklab.probe.run import CellResult
from disklab.report import theme

SUFFIXES = (".html", ".svg", ".png")
CURVE_WIDTH, CURVE_HEIGHT, BAR_STEP = 360, 260, 18
PNG_SCALE = 2  # sharp on screens with doubled pixels


def check_chart_path(path: Path) -> None:
    """Refuse a chart that could not be written, before anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        rule = "a chart is .html, .svg or .png"
        raise UserError(Problem("--chart", str(path), rule, "name the file so, such as probe.html"))
    if not path.parent.is_dir():
        rule = "its folder does not exist"
        raise UserError(Problem("--chart", str(path), rule, f"make {path.parent} first"))


def write_chart(results: Sequence[CellResult], path: Path, title: str = "") -> None:
    """Write the chart; needs no network, neither now nor when it is looked at."""
    chart = draw(results, title).configure(**theme.configuration(theme.LIGHT))
    if path.suffix.lower() == ".html":
        chart.save(path, format="html", inline=True)
    elif path.suffix.lower() == ".png":
        chart.save(path, format="png", scale_factor=PNG_SCALE)
    else:
        chart.save(path, format="svg")


def draw(results: Sequence[CellResult], title: str = "") -> Any:
    """Return the chart: a panel of curves for each depth-1 cell, bars for the others."""
    panels = []
    depth_one = [r for r in results if r.cell.profile is Profile.SYNC]
    if depth_one:
        panels.append(curves(depth_one))
    loaded = [r for r in results if r.cell.profile is Profile.ASYNC]
    if loaded:
        panels.append(alt.hconcat(rate_bars(loaded, "IOPS"), rate_bars(loaded, "MB/s")))
    return alt.vconcat(*panels, title=title).resolve_scale(color="shared")


def curves(results: Sequence[CellResult]) -> Any:
    """Return latency over percentiles, a panel a cell, a colour a subject; promises are dashed."""
    labels = [f"{p:g}" for p in PERCENTILES]
    cells = list(dict.fromkeys(result.cell.title for result in results))
    columns = len({result.cell.block_bytes for result in results})
    rows = []
    for result in results:
        measured = result.measurement.latency.percentiles_ns
        promised = (result.promise.percentiles_ns if result.promise else None) or {}
        for kind, values in (("measured", measured), ("promised", promised)):
            rows += [
                {
                    "cell": result.cell.title,
                    "disk": result.subject,
                    "kind": kind,
                    "percentile": f"{p:g}",
                    "latency_ms": ns / 1e6,
                }
                for p, ns in values.items()
            ]
    return (
        alt.Chart(alt.InlineData(values=rows), width=CURVE_WIDTH, height=CURVE_HEIGHT)
        .mark_line()
        .encode(
            x=alt.X("percentile:O", sort=labels, title="percentile"),
            y=alt.Y("latency_ms:Q", scale=alt.Scale(type="log"), title="latency (ms)"),
            color=alt.Color("disk:N", title="disk", legend=alt.Legend(symbolType="stroke")),
            strokeDash=alt.StrokeDash(
                "kind:N",
                sort=["measured", "promised"],
                title=None,
                legend=alt.Legend(symbolType="stroke"),
            ),
            detail="kind:N",
            facet=alt.Facet("cell:N", columns=columns, title="one job, depth 1", sort=cells),
        )
    )


def rate_bars(results: Sequence[CellResult], unit: str) -> Any:
    """Return bars of one unit, a row for each cell and subject; a tick marks the promise."""
    rows = []
    for result in results:
        owed, got = result.promise, result.measurement
        pair = (
            (got.iops, owed.iops if owed else None)
            if unit == "IOPS"
            else (got.bytes_per_s / 1e6, owed.bytes_per_s / 1e6 if owed else None)
        )
        rows.append(
            {
                "cell": result.cell.title,
                "disk": result.subject,
                "measured": pair[0],
                "promised": pair[1],
            }
        )
    base = alt.Chart(alt.InlineData(values=rows), width=CURVE_WIDTH, height=alt.Step(BAR_STEP))
    y = alt.Y("cell:N", sort=None, title=None)
    offset = alt.YOffset("disk:N")
    bars = base.mark_bar().encode(
        x=alt.X("measured:Q", title=f"{unit} (tick: promised)"),
        y=y,
        yOffset=offset,
        color=alt.Color("disk:N"),
    )
    ticks = base.mark_tick(color="black", thickness=2).encode(x="promised:Q", y=y, yOffset=offset)
    return (bars + ticks).properties(title=f"four jobs, depth 256: {unit}")
