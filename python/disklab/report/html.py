"""HTML from text: everything that comes from a run is escaped here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
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


def table(figures: Figures, caption: str = "") -> str:
    """Return a table; numbers are set right, wide ones scroll by themselves."""
    numeric = [
        all(NUMBER.match(line[n]) or not line[n] for line in figures.rows)
        and any(line[n] for line in figures.rows)
        and n > 0
        for n in range(len(figures.headings))
    ]
    head = "".join(
        text("th", heading, scope="col", class_="number" if number else "")
        for heading, number in zip(figures.headings, numeric, strict=True)
    )
    body = "".join(tag("tr", *cells(line, numeric)) for line in figures.rows)
    named = text("caption", caption, class_="unseen") if caption else ""
    inner = tag("table", named, tag("thead", tag("tr", head)), tag("tbody", body))
    # Focus lets a keyboard scroll it.
    return tag("div", inner, class_="wide", tabindex="0", role="region",
               aria_label=caption or "table")  # fmt: skip


def cells(line: Sequence[str], numeric: Sequence[bool]) -> Iterable[str]:
    """Yield the cells of a line; the first names it."""
    for number, value in enumerate(line):
        if number == 0:
            yield text("th", value, scope="row")
        else:
            yield text("td", value, class_="number" if numeric[number] else "")


def data(content: Any, **attributes: str) -> str:
    """Return JSON inside the page; without `<`, nothing in it can end or open an element."""
    told = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return tag("script", told, type="application/json", **attributes)
