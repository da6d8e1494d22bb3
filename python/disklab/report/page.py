"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import chain
from typing import Any

from disklab.report import html, tables, what_if, wording
from disklab.report.axes import Panel, Section
from disklab.report.html import POLICY, data, items, table, tag, text, vega_script
from disklab.report.pair import Comparison
from disklab.report.report import Report, caption_of
from disklab.report.subject import Subject
from disklab.spec import bundled


def page(report: Report, simulator: str | None = None) -> str:
    """Return the HTML of a report; `simulator`: the page of it that lies beside."""
    first = report.subjects[0]
    parts = [
        opening(report),
        verdict(report),
        navigation(report),
        *(compared(one) for one in report.comparisons),
        *(section(one, caption_of(report)) for one in report.sections),
        every_cell(report.subjects),
        where_time_went(first),
        price(report.subjects),
        warnings(report.subjects),
        redo(report.subjects, simulator),
        text("footer", f"disklab report of {', '.join(s.info.id for s in report.subjects)}"),
    ]
    return document(first.info.experiment.title or first.info.id, parts)


def document(title: str, parts: Sequence[str]) -> str:
    """Return a page of charts and tables that needs nothing else."""
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<link rel="icon" href="data:,">',
        text("title", title),
        tag("style", styles()),
    ]
    scripts = [
        data(html.configuration(html.ON_PAGE), id="chart-config"),
        data(html.named(html.LIGHT), id="chart-colours"),
        tag("script", vega_script().replace("</script", "<\\/script")),
        tag("script", asset("page.js")),
    ]
    body = tag("body", tag("main", *parts), *scripts)
    return f'<!doctype html>\n<html lang="en"><head>{"".join(head)}</head>{body}</html>\n'


def asset(name: str) -> str:
    """Return a file that lies beside this one."""
    return resources.files("disklab.report").joinpath(name).read_text("utf-8")


def styles() -> str:
    """Return the style sheet with both colour schemes."""
    dark = f"@media screen and (prefers-color-scheme: dark){{:root{{{html.variables(html.DARK)}}}}}"
    return f":root{{{html.variables(html.LIGHT)}}}{dark}{asset('page.css')}"


def opening(report: Report) -> str:
    """Return the question, and in one line what was run."""
    first = report.subjects[0]
    info = first.info
    told = [info.mode, wording.counted(len(first.matrix.cells), "cell")]
    if info.repeats and info.repeats > 1:
        told.append(f"{info.repeats} repeats")
    if info.share is not None:
        told.append(f"{info.share.nodes.here:g} of {info.share.nodes.full:g} nodes")
        if info.share.scale != "1":
            told.append(f"scale {info.share.scale}")
        if info.share.time_dilation != 1:
            told.append(f"time dilation {info.share.time_dilation}: p99 is not judged")
    if info.started:
        told.append(info.started[:10])
    line = " · ".join(told)
    source = (
        text("p", f"Question and method: {info.experiment.source}", class_="quiet")
        if info.experiment.source
        else ""
    )
    return tag(
        "header",
        text("h1", info.experiment.title or info.id),
        text("p", line, class_="quiet"),
        source,
    )


def verdict(report: Report) -> str:
    """Return the first screen's answer."""
    said = []
    for heading, finding, basis in report.first_screen:
        label = f"{heading}: " if heading else ""
        why = text("p", wording.sentence(finding.reason), class_="why") if finding.reason else ""
        said.append(
            tag(
                "li",
                text("p", wording.sentence(label + finding.text), class_="says"),
                why,
                text("p", basis, class_="basis") if basis else "",
            )
        )
    more = "".join(comparisons(report, answer.subject) for answer in report.answers)
    return tag(
        "section",
        tag("ul", *said, class_="verdict"),
        more,
        "".join(text("p", line, class_="status") for line in report.status),
        id="verdict", aria_label="Verdict",
    )  # fmt: skip


def comparisons(report: Report, subject: Subject) -> str:
    """Return every comparison of one run as a table that opens; nothing when there is one."""
    answer = report.answer_of(subject)
    figures = tables.without_empty_columns(tables.comparisons(answer))
    if len(figures.rows) < 2:
        return ""
    whose = f", {subject.label}" if len(report.subjects) > 1 else ""
    name = f"Every comparison{whose}"
    listed = tag("details", text("summary", name), table(figures, name))
    matrix = tables.by_level(answer)
    if not matrix.rows:
        return listed
    told = f"Compared with the first{whose}"
    return tag("div", text("h3", told), table(matrix, told), class_="matrix") + listed


def navigation(report: Report) -> str:
    """Return links to the sections."""
    named = [(one.name, one.heading) for one in report.sections if one.panels]
    named += [
        ("cells", "Every cell"),
        ("limits", "Where the time went"),
        ("price", "Price"),
        ("warnings", "Warnings"),
        ("redo", "Redo it"),
    ]
    links = (text("a", heading, href=f"#{name}") for name, heading in named)
    return tag("nav", *links, aria_label="Sections")


def compared(comparison: Comparison) -> str:
    """Return two runs cell by cell."""
    first, second = comparison.first.label, comparison.second.label
    lead = f"Cells are matched by their factor levels; {len(comparison.matched)} match"
    lead += f", {comparison.unmatched} do not." if comparison.unmatched else "."
    if comparison.per_node:
        lead += " Rates are by node, because the runs had different numbers of nodes."
    if scaled := tables.scaled_loads(comparison):
        lead += f" {scaled}"
    return tag(
        "section",
        text("h2", f"{second} compared with {first}"),
        text("p", lead, class_="lead"),
        table(tables.side_by_side(comparison), f"{second} compared with {first}", tables.SENTENCES),
        study_table(comparison),
    )


def study_table(comparison: Comparison) -> str:
    """Return the two runs in the columns of the study; nothing where it published no such ones."""
    figures = tables.study(comparison)
    if figures is None:
        return ""
    first, second = comparison.first.label, comparison.second.label
    lead = (
        "Mean latency and rate are those of the full cluster. CPU and disks are those of one node "
        "in the published results; here they are those of all database processes on this machine, "
        "and of the busiest node's disks."
    )
    return text("p", lead, class_="lead") + table(figures, f"{first} and {second}")


def section(one: Section, caption: str) -> str:
    """Return a section of charts; those beyond the first few open on demand."""
    if not one.panels:
        return ""
    keys = [panel.key for panel in one.panels if panel.key]
    others = [panel.dashed for panel in one.panels if panel.dashed]
    legend = key_of(keys[0] if keys else (), others[0] if others else ())
    shown = "".join(figure(panel, caption) for panel in one.panels[: one.shown])
    rest = one.panels[one.shown :]
    css = "panels three" if one.name == "latency" and keys else "panels"
    more = ""
    if rest:
        inner = tag("div", *(figure(panel, caption) for panel in rest), class_=css)
        more = tag("details", text("summary", f"{len(rest)} more charts"), inner, class_="more")
    return tag(
        "section",
        text("h2", one.heading),
        text("p", one.lead, class_="lead"),
        legend,
        tag("div", shown, class_=css),
        more,
        id=one.name,
    )


def key_of(series: Sequence[str], others: Sequence[str]) -> str:
    """Return the colours' key: one for all charts of a section."""
    count = len(html.LIGHT["series"])
    entries = (
        text("li", name, style=f"--swatch:var(--series{number % count})")
        for number, name in enumerate(series)
    )
    what = "dashed" if series else "fainter"
    more = (text("li", f"{name} ({what})", class_=what) for name in others)
    inner = [*entries, *more]
    return tag("ul", *inner, class_="key", aria_label="Key") if inner else ""


def figure(panel: Panel, caption: str) -> str:
    """Return a chart with its title, where it comes from, its table, and itself as files."""
    spec: dict[str, Any] = panel.spec(width="container")
    # The last mark of an axis may reach a little beyond its end.
    spec["padding"] = {"left": 5, "top": 5, "right": 12, "bottom": 5}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    place = tag("div", class_="chart", style=f"min-height:{panel.height + 30}px")
    name = panel.title or "chart"
    kinds = [kind for kind in SAVED if kind != "csv" or panel.columns]
    save = (
        text(
            "button",
            kind.upper(),
            type="button",
            data_save=kind,
            aria_label=f"{kind.upper()} of {name}",
        )
        for kind in kinds
    )
    told = {"key": list(panel.key), "dashed": list(panel.dashed), "columns": dict(panel.columns)}
    return tag(
        "figure",
        text("h3", panel.title) if panel.title else "",
        place,
        data(spec),
        data(told, class_="told"),
        text("figcaption", caption),
        tag("p", "Save as ", *save, class_="save"),
        tag("details", text("summary", "Figures"), table(panel.figures, panel.title or "Figures")),
    )


SAVED = ("svg", "png", "csv")
"""What a chart is saved as from the page."""


def every_cell(subjects: Sequence[Subject]) -> str:
    """Return the cells of every run; an invalid one's figures stand beside its reason."""
    parts = []
    for subject in subjects:
        if subject.info.mode == "published" and len(subjects) > 1:
            continue  # beside the other runs' cells, above
        parts.append(text("h3", subject.label) if len(subjects) > 1 else "")
        figures = tables.without_empty_columns(tables.summary(subject))
        parts.append(table(figures, f"Every cell, {subject.label}", tables.SENTENCES))
        made_of = tables.replayed(subject)
        if made_of.rows:
            parts += [text("h3", "The trace"), table(made_of, f"The trace, {subject.label}")]
        parts.append(items(tables.refusals(subject)))
    lead = "Medians of the valid repeats; if there are none, the invalid figures with the reason."
    return tag(
        "section", text("h2", "Every cell"), text("p", lead, class_="lead"), *parts, id="cells"
    )


def where_time_went(subject: Subject) -> str:
    """Return the limits of every cell."""
    figures = tables.without_empty_columns(tables.limits(subject))
    known = len(figures.headings) > 1
    lead = (
        "Medians of the repeats. Waiting is charged to the limit that an I/O waited at; several "
        "I/Os of one operation wait at the same time."
        if known
        else "Nothing but the load was observed: limits, caches and processors are unknown."
    )
    inner = table(figures, "Where the time went", tables.SENTENCES) if known else ""
    gone = tables.credits_gone(subject)
    if gone.rows:
        inner += text("h3", "Burst credits that ran out during the run")
        inner += table(tables.without_empty_columns(gone), "Burst credits")
    return tag(
        "section",
        text("h2", "Where the time went"),
        text("p", lead, class_="lead"),
        inner,
        id="limits",
    )


def price(subjects: Sequence[Subject]) -> str:
    """Return prices with their sources."""
    parts = []
    for subject in subjects:
        figures = tables.prices(subject)
        if figures is not None:
            name = subject.label if len(subjects) > 1 else ""
            parts += [text("h3", name) if name else "", table(figures, f"Price {name}".strip())]
        sources = tables.price_sources(subject)
        if sources:
            parts.append(
                tag("details", text("summary", "Prices and their sources"), items(sources))
            )
    lead = (
        "Disks and VMs of the full cluster; its rate is that of a node here times the number of "
        "its nodes."
        if any("<table" in part for part in parts)
        else "No price is known for these cells."
    )
    dated = tables.price_dates(subjects)
    if dated:
        lead += f" Prices: {dated}."
    return tag("section", text("h2", "Price"), text("p", lead, class_="lead"), *parts, id="price")


def warnings(subjects: Sequence[Subject]) -> str:
    """Return what is wrong or must be known, and the cells without figures."""
    parts = []
    for subject in subjects:
        told = tables.warnings(subject)
        figures = tables.problems(subject)
        if told or figures.rows:
            parts.append(text("h3", subject.label) if len(subjects) > 1 else "")
        if told:
            parts.append(items(told))
        if figures.rows:
            figures = tables.without_empty_columns(figures)
            parts.append(table(figures, "Cells without figures", tables.SENTENCES))
    if not parts:
        parts = [text("p", "None: every cell has usable figures.", class_="lead")]
    return tag("section", text("h2", "Warnings"), *parts, id="warnings")


def redo(subjects: Sequence[Subject], simulator: str | None) -> str:
    """Return everything that is needed to run it again."""
    return tag(
        "section",
        text("h2", "Redo it"),
        *(chain.from_iterable(recipe(one, len(subjects) > 1) for one in subjects)),
        *what_if_link([*subjects[0].specs.values()], simulator),
        id="redo",
    )


def what_if_link(
    specs: Sequence[Mapping[str, Any]], simulator: str | None, promise_ms: float | None = None
) -> list[str]:
    """Return a link to the simulator's page with two configurations; none: it has no such.

    `simulator`: the page that lies beside; None: none was built.
    """
    address = what_if.address(specs[:2], promise_ms, simulator or what_if.PAGE)
    if address is None:
        return []
    if simulator is None:
        return [text("p", f"{what_if.UNBUILT}.")]
    missing = list(dict.fromkeys(chain.from_iterable(map(what_if.left_out, specs[:2]))))
    without = f" It has no knob for {', '.join(missing)}." if missing else ""
    says = f": {what_if.SAYS}.{without}"
    return [tag("p", text("a", "Turn its knobs", href=address), text("span", says))]


def recipe(subject: Subject, named: bool) -> list[str]:
    """Return command, seed, versions and machine of one run."""
    info = subject.info
    parts = [text("h3", subject.label)] if named else []
    if info.command:
        parts.append(text("pre", shlex.join(map(bundled.typed, info.command))))
    facts: dict[str, str] = {"run": info.id}
    if info.seed is not None:
        facts["seed"] = str(info.seed)
    if info.started:
        facts["started"] = info.started + (f", ended {info.ended}" if info.ended else "")
    facts |= {name: str(version) for name, version in info.versions.items()}
    facts |= flat(info.environment)
    scaled = tables.shares(subject.run.results())
    if scaled:
        facts["scaled"] = "; ".join(scaled)
    pairs = "".join(text("dt", name) + text("dd", value) for name, value in facts.items())
    return [*parts, tag("dl", pairs)]


def flat(content: dict[str, Any], above: str = "") -> dict[str, str]:
    """Return nested facts on one level: `envelope iops`."""
    found: dict[str, str] = {}
    for name, value in content.items():
        path = f"{above} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            found |= flat(value, path)
        elif isinstance(value, list):
            found[path] = "; ".join(map(named, value))
        else:
            found[path] = f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
    return found


def named(entry: object) -> str:
    """Return an entry of a list in words: what has a name by that and its date."""
    if isinstance(entry, dict):
        if "name" in entry:
            return " of ".join(str(entry[key]) for key in ("name", "date") if entry.get(key))
        return ", ".join(f"{name} {value}" for name, value in flat(entry).items())
    return str(entry)
