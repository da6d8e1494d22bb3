"""HTML from text: everything that comes from a run is escaped here."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from disklab.report.panel import Figures

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
