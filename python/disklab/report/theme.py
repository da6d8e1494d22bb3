"""How every chart of disklab looks: one palette, one configuration, light and dark.

On a page colours are CSS variables, so that the browser's colour scheme and the printer decide.
In files they are those of the light scheme.
"""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"

# Grey is the baseline, then the accent; further hues differ in lightness too, so that they
# can be told apart in print and by colour-blind readers (Okabe and Ito's order, toned).
LIGHT = {
    "ink": "#1c2127", "muted": "#5c6670", "line": "#dfe3e8", "paper": "#ffffff",
    "series": ["#7a838e", "#0b62c4", "#c4561a", "#0f8571", "#8a4fb8", "#9a7400"],
}  # fmt: skip
DARK = {
    "ink": "#e8eaed", "muted": "#9aa4af", "line": "#333a43", "paper": "#14171b",
    "series": ["#9aa4af", "#6cb2ff", "#f0935a", "#45c9ad", "#c29bf0", "#dcb640"],
}  # fmt: skip


def variables(scheme: dict[str, Any]) -> str:
    """Return a scheme as CSS declarations."""
    named = {name: colour for name, colour in scheme.items() if name != "series"}
    named |= {f"series{number}": colour for number, colour in enumerate(scheme["series"])}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())


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
