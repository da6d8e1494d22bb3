"""HTML from text: everything that comes from a run is escaped here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from disklab import reading
from disklab.report.axes import Figures

# How every chart of disklab looks: one palette, one configuration, light and dark.
#
# On a page colours are CSS variables, so that the browser's colour scheme and the printer decide.
# In files they are those of the light scheme.

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"

# Dark slate (light on dark paper) is the baseline: neutral, and no fainter than the others. Then
# the accent; further hues differ in lightness too, so that they can be told apart in print and by
# colour-blind readers (Okabe and Ito's order, toned).
LIGHT = {
    "ink": "#1c2127", "muted": "#5c6670", "line": "#dfe3e8", "paper": "#ffffff",
    "series": ["#3f4a56", "#0b62c4", "#b8501a", "#0f8571", "#8a4fb8", "#8c6a00"],
}  # fmt: skip
DARK = {
    "ink": "#e8eaed", "muted": "#9aa4af", "line": "#333a43", "paper": "#14171b",
    "series": ["#d5dbe1", "#6cb2ff", "#f0935a", "#45c9ad", "#c29bf0", "#dcb640"],
}  # fmt: skip


def named(scheme: dict[str, Any]) -> dict[str, str]:
    """Return each colour of a scheme by the name of its CSS variable."""
    found = {name: colour for name, colour in scheme.items() if name != "series"}
    return found | {f"series{number}": colour for number, colour in enumerate(scheme["series"])}


def variables(scheme: dict[str, Any]) -> str:
    """Return a scheme as CSS declarations."""
    return "".join(f"--{name}:{colour};" for name, colour in named(scheme).items())


ON_PAGE = {
    **{name: f"var(--{name})" for name in LIGHT if name != "series"},
    "series": [f"var(--series{number})" for number in range(len(LIGHT["series"]))],
}


def configuration(scheme: dict[str, Any]) -> dict[str, Any]:
    """Return Vega-Lite's configuration: few lines, horizontal grid, no frame."""
    ink, muted, line = scheme["ink"], scheme["muted"], scheme["line"]
    text = {"labelFont": FONT, "titleFont": FONT, "labelColor": muted, "titleColor": muted}
    return {
        "background": "transparent" if scheme is ON_PAGE else scheme["paper"],
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": scheme["series"]},
        "axis": {
            **text, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
            "domainColor": line, "gridColor": line, "tickColor": line, "labelLimit": 170,
        },
        "axisX": {"grid": False, "titleAnchor": "end"},
        "axisY": {"domain": False, "ticks": False, "titleAngle": 0, "titleAlign": "left",
                  "titleAnchor": "end", "titleBaseline": "bottom", "titleY": -6, "titleX": 0},
        "axisYPoint": {"grid": False},
        "axisYBand": {"grid": False, "labelColor": ink},
        "header": {**text, "labelFontSize": 12},
        "legend": {**text, "labelFontSize": 11, "titleFontSize": 11, "orient": "top"},
        "title": {"font": FONT, "fontSize": 13, "color": ink, "anchor": "start", "fontWeight": 600,
                  "subtitleFont": FONT, "subtitleColor": muted},
        "line": {"strokeWidth": 2},
        "point": {"size": 36, "filled": True},
        "rule": {"color": muted},
        "text": {"font": FONT, "fontSize": 11, "color": ink},
    }  # fmt: skip


# Vega, Vega-Lite and vega-embed as one script for the page, so that it needs no network.
#
# Bundling takes seconds, so the result is kept in the user's cache folder, by version.

SNIPPET = "window.vegaEmbed=vegaEmbed;"


def vega_lite_version() -> str:
    """Return the Vega-Lite version that altair writes, as vl-convert names it: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def cache_folder() -> Path:
    """Return where disklab keeps what it can make again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "disklab"


@cache
def vega_script() -> str:
    """Return the script; it sets `vegaEmbed`."""
    kept = cache_folder() / f"vega-embed-{version('vl-convert-python')}-{vega_lite_version()}.js"
    if (told := reading.record_text(kept, reading.SCRIPT)) is not None:
        return told
    made: str = vl_convert.javascript_bundle(SNIPPET, vl_version=vega_lite_version())
    # A cache that cannot be written costs seconds the next time, nothing else.
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside = kept.with_name(f".{kept.name}.{os.getpid()}")
        beside.write_text(made, encoding="utf-8")
        beside.replace(kept)
    return made


# What a report's page may do: the browser holds it to this, whoever made the page.

# Nothing is loaded from anywhere; vega compiles its expressions, hence 'unsafe-eval'.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:"
)


NUMBER = re.compile(r"^[+\N{MINUS SIGN}$]?[\d.,]+(\s*(%|ms|us|times|s|min|h))?$")


def tag(name: str, *content: str, **attributes: str) -> str:
    """Return an element; its content is HTML, its attributes are text."""
    told = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
                   for key, value in attributes.items() if value)  # fmt: skip
    return f"<{name}{told}>{''.join(content)}</{name}>"


def text(name: str, content: str, **attributes: str) -> str:
    """Return an element with text in it."""
    return tag(name, escape(content), **attributes)


def items(texts: Iterable[str], **attributes: str) -> str:
    """Return a list of texts."""
    return tag("ul", *(text("li", one) for one in texts), **attributes)


def table(figures: Figures, caption: str = "", notes: Collection[str] = ()) -> str:
    """Return a table; numbers are set right, wide ones scroll by themselves.

    Columns headed by one of the `notes` are sentences: they stand under their row, so that they
    neither widen the table nor make its rows high.
    """
    aside = [n for n, heading in enumerate(figures.headings) if n > 0 and heading in notes]
    shown = [n for n in range(len(figures.headings)) if n not in aside]
    numeric = {
        n: all(NUMBER.match(line[n]) or not line[n] for line in figures.rows)
        and any(line[n] for line in figures.rows)
        and n > 0
        for n in shown
    }
    head = "".join(
        text("th", figures.headings[n], scope="col", class_="number" if numeric[n] else "")
        for n in shown
    )
    body = "".join(
        tag("tr", *cells(line, numeric)) + note(figures.headings, line, aside, len(shown))
        for line in figures.rows
    )
    named = text("caption", caption, class_="unseen") if caption else ""
    inner = tag("table", named, tag("thead", tag("tr", head)), tag("tbody", body))
    # Focus lets a keyboard scroll it.
    return tag("div", inner, class_="wide", tabindex="0", role="region",
               aria_label=caption or "table")  # fmt: skip


def cells(line: Sequence[str], numeric: Mapping[int, bool]) -> Iterable[str]:
    """Yield the cells of a line; the first names it."""
    for number, right in numeric.items():
        if number == 0:
            yield text("th", line[number], scope="row")
        else:
            yield text("td", line[number], class_="number" if right else "")


def note(headings: Sequence[str], line: Sequence[str], aside: Sequence[int], columns: int) -> str:
    """Return the row under a row that holds its sentences; nothing when it has none."""
    told = [(headings[n], line[n]) for n in aside if line[n]]
    if not told:
        return ""
    inner = "".join(
        tag("p", "" if heading == "why" else text("strong", f"{heading}: "), escape(one))
        for heading, one in told
    )
    return tag("tr", tag("td", tag("div", inner), colspan=str(columns)), class_="note")


def data(content: Any, **attributes: str) -> str:
    """Return JSON inside the page; without `<`, nothing in it can end or open an element."""
    told = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", told, type="application/json", **attributes)


def axes_script() -> str:
    """Return the script by which every page of ours draws its axes."""
    return resources.files(__package__).joinpath("axes.js").read_text(encoding="utf-8")
