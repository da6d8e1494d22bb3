"""How every chart of disklab looks: one palette, one configuration, light and dark.

On a page colours are CSS variables, so that the browser's colour scheme and the printer decide.
In files they are those of the light scheme.
"""

from __future__ import annotations

from typing import Any

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
