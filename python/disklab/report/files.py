"""Writing reports: the page, and charts as pictures."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from disklab.durable import write_file
from disklab.errors import Problem, UserError
from disklab.folders import Inside
from disklab.report import what_if
from disklab.report.answer import Part, table
from disklab.report.axes import Panel, Section, slug, unchecked
from disklab.report.html import LIGHT, configuration, vega_lite_version
from disklab.report.page import page
from disklab.report.report import Report, caption_of
from disklab.report.subject import RunLike
from disklab.results import reference_runs

WIDTH = 560
CAPTION_LETTERS = 90
"""Of a line below the title of a picture."""
APART = ("strokeDash", "opacity")
"""What tells one run from another where lines, or bars, have the same colour."""
SYMBOLS: dict[str, dict[str, object]] = {
    "color": {"symbolType": "stroke", "symbolOpacity": 1},
    "strokeDash": {"symbolType": "stroke", "symbolOpacity": 1},
    "opacity": {"symbolType": "square", "symbolFillColor": "var(--ink)", "symbolStrokeWidth": 0},
}
"""How each is shown in a legend."""
PNG_SCALE = 2  # sharp on screens with doubled pixels


def references(runs: Sequence[RunLike], wanted: bool) -> list[RunLike]:
    """Return the published run of the same experiment; a user error when there is none."""
    if not wanted:
        return []
    title = runs[0].info.experiment.title
    known = reference_runs()
    found = [run for run in known if run.info.experiment.title == title]
    if not found:
        rule = "nothing was published for an experiment with this title"
        way_out = "known are: " + "; ".join(run.info.experiment.title for run in known)
        raise UserError(Problem("--against reference", title, rule, way_out))
    return list(found)


def write_page(report: Report, path: Path | Inside) -> Path:
    """Write the HTML file, all at once, and the simulator beside it."""
    simulator = write_what_if([*report.subjects[0].specs.values()], path)
    write_file(path, page(report, simulator).encode("utf-8"), "--html")
    return named(path)


def write_what_if(specs: Sequence[Mapping[str, Any]], page: Path | Inside) -> str | None:
    """Write the simulator's page beside a page that links to it with its first two configurations.

    Return its name; None: it was not built here, or it has no such system.
    """
    from disklab.knob import has_module, made_page  # noqa: PLC0415 - it asks every database

    if not has_module() or what_if.address(specs[:2]) is None:
        return None
    name = what_if.beside(page.name)
    file = page.beside(name) if isinstance(page, Inside) else page.with_name(name)
    write_file(file, made_page(what_if.vms(specs[:2])).text.encode("utf-8"), "--html")
    return name


def write_tables(report: Report, page: Path | Inside) -> list[Path]:
    """Write the results of runs that are too large for the page as CSV files beside it."""
    written = []
    for subject in report.subjects:
        if isinstance(subject.run, Part):
            name = f"{subject.info.id}.csv"
            path = page.beside(name) if isinstance(page, Inside) else page.with_name(name)
            write_file(path, table(subject.run.whole).encode("utf-8"), "--html")
            written.append(named(path))
    return written


def named(path: Path | Inside) -> Path:
    """Return where a file is, for who is to open it."""
    return path.path if isinstance(path, Inside) else path


def write_pictures(
    report: Report, *, png: Path | None, svg: Path | None, csv: Path | None = None
) -> list[Path]:
    """Write each chart, or its data, as a file, named after its section and panel."""
    written = []
    for name, spec, panel in pictures(report) if png or svg or csv else ():
        if csv and panel.columns:
            written.append(csv / f"{name}.csv")
            write_file(written[-1], panel.csv().encode("utf-8"), "--csv")
        for folder, suffix in ((svg, ".svg"), (png, ".png")):
            if folder:
                written.append(folder / f"{name}{suffix}")
                write_picture(spec, written[-1], f"--{suffix[1:]}")
    return written


def write_picture(spec: str, path: Path, place: str) -> None:
    """Write what a chart is drawn from as a picture: `.png`, else SVG. `place`: its option."""
    version = vega_lite_version()
    if path.suffix.lower() == ".png":
        picture = vl_convert.vegalite_to_png(spec, vl_version=version, scale=PNG_SCALE)
    else:
        picture = vl_convert.vegalite_to_svg(spec, vl_version=version).encode("utf-8")
    write_file(path, picture, place)


def pictures(report: Report) -> Iterator[tuple[str, str, Panel]]:
    """Yield each chart: its name as a file, what it is drawn from, and itself."""
    caption = caption_of(report)
    for section in report.sections:
        for panel in section.panels:
            name = f"{section.name}-{slug(panel.title)}" if panel.title else section.name
            yield name, drawable(panel, section.heading, caption), panel


def drawable(panel: Panel, heading: str, caption: str = "") -> str:
    """Return a chart that stands alone: title, key, origin, width, the light scheme's colours."""
    return standing(panel.spec(width=WIDTH), [panel], heading, [panel.title, caption])


def together(sections: Sequence[Section], heading: str, caption: str) -> str:
    """Return the charts of sections as one that stands alone, two beside each other."""
    panels = [panel for section in sections for panel in section.panels]
    leads = [f"{section.heading}: {section.lead}" for section in sections]
    with unchecked():
        charts = [
            one.chart.properties(title=one.title, width=WIDTH // 2, height=one.height)
            for one in panels
        ]
        spec = alt.concat(*charts, columns=2).to_dict(validate=False)
    return standing(spec, panels, heading, [caption, *leads])


def standing(
    spec: dict[str, Any], panels: Sequence[Panel], heading: str, below: Sequence[str]
) -> str:
    """Return a specification with title, keys and the light scheme's colours."""
    lines = [line for text in below for line in textwrap.wrap(text, CAPTION_LETTERS)]
    spec["title"] = {"text": heading, "subtitle": lines}
    spec["config"] = configuration(LIGHT)
    spec["padding"] = 16
    has_key, has_dashes = any(one.key for one in panels), any(one.dashed for one in panels)
    with_keys(spec, [*(["color"] if has_key else []), *(APART if has_dashes else [])])
    text = json.dumps(spec)
    for name, colour in LIGHT.items():
        if name != "series":
            text = text.replace(f"var(--{name})", str(colour))
    return text


def with_keys(spec: dict[str, object], channels: Sequence[str]) -> None:
    """Give a chart's colours and dashes a legend: on the page one key serves all charts."""
    layers = spec.get("layer", spec.get("concat", [spec]))
    assert isinstance(layers, list)
    for layer in layers:
        if "layer" in layer:
            with_keys(layer, channels)
        encoding = layer.get("encoding", {})
        for channel in channels:
            if "field" in encoding.get(channel, {}):
                encoding[channel]["legend"] = {"title": None, **SYMBOLS[channel]}
