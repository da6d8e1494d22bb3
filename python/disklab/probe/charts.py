"""The probe's chart as a file: percentile curves and bars, self-contained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt

from disklab.durable import write_file
from disklab.errors import Problem, UserError
from disklab.probe.cells import PERCENTILES, Cell, Profile, format_size, loads
from disklab.probe.run import CellResult
from disklab.report import axes
from disklab.report.axes import Figures, Panel, Section
from disklab.report.files import together, write_picture
from disklab.report.html import text
from disklab.report.page import document, section

# A cell as charts and tables show it: reads and writes of a mix apart.


@dataclass(frozen=True)
class Shown:
    """The reads or the writes of a cell, measured and promised."""

    subject: str
    cell: Cell
    side: str
    """`read` or `write`."""
    iops: float
    bytes_per_s: float
    percentiles_ns: Mapping[float, int]
    promised_iops: float | None
    promised_bytes_per_s: float | None
    promised_percentiles_ns: Mapping[float, int]
    """Empty where a cap stands before the latencies, or nothing is promised."""

    @property
    def title(self) -> str:
        """The cell's name; of a mix, with whose figures these are."""
        return self._of_side(self.cell.title)

    @property
    def io(self) -> str:
        """The same without the load."""
        return self._of_side(self.cell.io)

    @property
    def label(self) -> str:
        """The same without load and block size."""
        return self._of_side(self.cell.direction.title)

    def _of_side(self, name: str) -> str:
        return f"{name}, {self.side}s" if len(self.cell.direction.shares) > 1 else name


def apart(results: Sequence[CellResult]) -> Iterator[Shown]:
    """Yield the directions of each cell; a promise of a mix is shared as it was asked for."""
    for result in results:
        measured, owed = result.measurement, result.promise
        shares = result.cell.direction.shares
        for side, seen in measured.sides.items():
            yield Shown(
                subject=result.subject,
                cell=result.cell,
                side=side,
                iops=seen.ios / measured.runtime_s,
                bytes_per_s=seen.bytes_ / measured.runtime_s,
                percentiles_ns=seen.latency.percentiles_ns,
                promised_iops=owed.iops * shares[side] if owed else None,
                promised_bytes_per_s=owed.bytes_per_s * shares[side] if owed else None,
                promised_percentiles_ns=(owed.percentiles_ns or {}).get(side, {}) if owed else {},
            )


SUFFIXES = (".html", ".svg", ".png")
BAR_STEP = 18


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
    charts, heading, caption = sections(results), title or "Probe", origin(results)
    if path.suffix.lower() == ".html":
        write_file(path, page(charts, heading, caption).encode("utf-8"), "--chart")
    else:
        write_picture(together(charts, heading, caption), path, "--chart")


def origin(results: Sequence[CellResult]) -> str:
    """Return where the figures come from: what was probed, by which programs, and when."""
    subjects = ", ".join(dict.fromkeys(result.subject for result in results))
    programs = dict.fromkeys(result.measurement.fio_version for result in results)
    today = f"{datetime.now(tz=timezone.utc):%Y-%m-%d}"
    return " · ".join([f"Probe of {subjects}", f"disklab {version('disklab')}", *programs, today])


def sections(results: Sequence[CellResult]) -> list[Section]:
    """Return the charts as those of a report: a panel a cell, and bars for each block size.

    Rates of 4 KiB and of 1 MiB differ by a hundred times: on one axis the low ones are not seen.
    """
    depth_one = [r for r in results if r.cell.profile is Profile.SYNC]
    loaded = [r for r in results if r.cell.profile is Profile.ASYNC]
    subjects = tuple(dict.fromkeys(result.subject for result in results))
    found = []
    if depth_one:
        sides = list(apart(depth_one))
        panels = tuple(
            curve_panel(title, [one for one in sides if one.title == title], subjects)
            for title in dict.fromkeys(one.title for one in sides)
        )
        lead = (
            f"{loads(r.cell.load for r in depth_one)}. Solid lines are measured, "
            "dashed ones promised. The axis of latency is logarithmic."
        )
        found.append(Section("latency", "Latency by percentile", lead, panels))
    if loaded:
        sizes = dict.fromkeys(result.cell.block_bytes for result in loaded)
        panels = tuple(
            rate_panel(
                [one for one in apart(loaded) if one.cell.block_bytes == size], unit, subjects
            )
            for size in sizes
            for unit in ("IOPS", "MB/s")
        )
        lead = f"{loads(r.cell.load for r in loaded)}. The upright mark is what is promised."
        found.append(Section("rates", "Rates", lead, panels))
    return found


def curve_panel(cell: str, sides: Sequence[Shown], subjects: tuple[str, ...]) -> Panel:
    """Return latency over percentiles of one cell, measured and promised."""
    data: list[dict[str, Any]] = []
    for one in sides:
        promised = one.promised_percentiles_ns
        for kind, values in (("measured", one.percentiles_ns), ("promised", promised)):
            data += [
                {"disk": one.subject, "kind": kind, "percentile": f"{p:g}", "ms": ns / 1e6}
                for p, ns in values.items()
            ]
    labels = [f"{p:g}" for p in PERCENTILES]
    tip = "datum.disk + ', ' + datum.kind + ', ' + datum.percentile + ' %: ' + "
    base = (
        alt.Chart(alt.InlineData(values=data))
        .transform_calculate(tip=tip + axes.latency_text("datum.ms"))
        .encode(
            x=alt.X(
                "percentile:O", sort=labels, title="percentile",
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=4),
            ),
            y=alt.Y("ms:Q", **axes.latency_axis([float(one["ms"]) for one in data])),
            color=_colour(subjects),
        )
    )  # fmt: skip
    dash = alt.StrokeDash("kind:N", sort=["measured", "promised"], legend=None)
    line = base.mark_line().encode(strokeDash=dash, detail="kind:N")
    chart = line + base.mark_point(size=16, filled=True, opacity=1).encode(tooltip="tip:N")
    rows = [[one["disk"], one["kind"], one["percentile"], f"{one['ms']:.3g} ms"] for one in data]
    return Panel(
        title=cell,
        described=f"latency by percentile of {', '.join(subjects)}, measured and promised",
        chart=chart,
        height=200,
        figures=Figures(
            ("disk", "kind", "percentile", "latency"), tuple(tuple(map(str, row)) for row in rows)
        ),
        key=subjects,
        dashed=("promised",),
        columns={"disk": "disk", "kind": "kind", "percentile": "percentile", "ms": "latency_ms"},
    )


def rate_panel(sides: Sequence[Shown], unit: str, subjects: tuple[str, ...]) -> Panel:
    """Return bars of one unit and one block size; a tick marks the promise."""
    data: list[dict[str, Any]] = []
    for one in sides:
        measured, promised = rates(one, unit)
        due = "" if promised is None else f", promised {promised:,.0f}"
        tip = f"{one.subject}, {one.title}: {measured:,.0f} {unit}{due}"
        data.append({"cell": one.title, "disk": one.subject, "measured": measured,
                     "promised": promised, "tip": tip, "label": f"{measured:,.0f}"})  # fmt: skip
    cells = list(dict.fromkeys(str(one["cell"]) for one in data))
    sizes = [format_size(one.cell.block_bytes) for one in sides]
    most = max(max(float(one["measured"]), float(one["promised"] or 0)) for one in data) or 1.0
    base = alt.Chart(alt.InlineData(values=data)).encode(
        y=alt.Y("cell:N", sort=None, title=None, axis=axes.row_names(cells)),
        yOffset=alt.YOffset("disk:N", sort=list(subjects)),
        color=_colour(subjects),
        tooltip="tip:N",
    )
    scale = alt.Scale(domain=[0, most * 1.45])
    axis = alt.Axis(tickCount=4, labelOverlap=True)
    bar = base.mark_bar().encode(x=alt.X("measured:Q", title=unit, scale=scale, axis=axis))
    ink = alt.value("var(--ink)")
    tick = base.mark_tick(thickness=2).encode(x="promised:Q", color=ink)
    end = base.transform_calculate(end="max(datum.measured, datum.promised)")
    text = end.mark_text(align="left", dx=6).encode(x="end:Q", text="label:N", color=ink)
    rows = [
        [one["disk"], one["cell"], one["label"],
         "" if one["promised"] is None else f"{one['promised']:,.0f}"]
        for one in data
    ]  # fmt: skip
    return Panel(
        title=f"{unit}, {' and '.join(dict.fromkeys(sizes))}",
        described=f"{unit}: " + "; ".join(str(one["tip"]) for one in data),
        chart=bar + tick + text,
        height=max(60, len(data) * BAR_STEP + 8 * len(cells)),
        figures=Figures(
            ("disk", "cell", f"{unit} measured", "promised"),
            tuple(tuple(map(str, row)) for row in rows),
        ),
        key=subjects,
        columns={"disk": "disk", "cell": "cell", "measured": "measured", "promised": "promised"},
    )


def rates(one: Shown, unit: str) -> tuple[float, float | None]:
    """Return what was measured and promised, in `IOPS` or `MB/s`."""
    if unit == "IOPS":
        return one.iops, one.promised_iops
    due = one.promised_bytes_per_s
    return one.bytes_per_s / 1e6, None if due is None else due / 1e6


def _colour(subjects: tuple[str, ...]) -> Any:
    return alt.Color("disk:N", scale=alt.Scale(domain=list(subjects)), legend=None)


def page(charts: Sequence[Section], title: str, caption: str) -> str:
    """Return the charts as one page: light or dark, from a telephone's width on."""
    parts = [text("h1", title), *(section(one, caption) for one in charts)]
    return document(title, parts)
