"""Charts made of characters: percentile curves and bars, for terminals and logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.text import Text

from disklab.probe import wording
from disklab.probe.cells import PERCENTILES

MARKS = "●▲■◆○△□◇"
STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red", "white", "bright_black")
ROWS = 12
COLUMN = 4  # characters for each percentile
UNLABELLED = (99.5, 99.95, 99.99)  # their neighbours' labels need the room; the last hangs over
LABEL = 9  # characters left of the axis


def percentile_curves(curves: Mapping[str, Mapping[float, float]]) -> list[Text]:
    """Return a chart of latency in nanoseconds over percentiles, one mark for each curve.

    The latency axis is logarithmic: the tail is ten to a hundred times the body.
    """
    values = [ns for curve in curves.values() for ns in curve.values() if ns > 0]
    if not values:
        return []
    low, high = math.log(min(values)), math.log(max(values))
    span = (high - low) or 1.0
    grid = [[(" ", "")] * (len(PERCENTILES) * COLUMN) for _ in range(ROWS)]
    for number, curve in enumerate(curves.values()):
        for column, percentile in enumerate(PERCENTILES):
            ns = curve.get(percentile, 0)
            if ns > 0:
                height = round((math.log(ns) - low) / span * (ROWS - 1))
                mark = (MARKS[number % len(MARKS)], STYLES[number % len(STYLES)])
                place(grid[ROWS - 1 - height], column * COLUMN, mark)
    lines = []
    for number, cells in enumerate(grid):
        at = math.exp(high - span * number / (ROWS - 1))
        label = wording.duration(at) if number % 3 == 0 or number == ROWS - 1 else ""
        line = Text(f"{label:>{LABEL}} ┤")
        for character, style in cells:
            line.append(character, style=style)
        lines.append(line)
    labels = "".join(f"{'' if p in UNLABELLED else format(p, 'g'):<{COLUMN}}" for p in PERCENTILES)
    lines.append(Text(f"{'percentile':>{LABEL + 1}} {labels.rstrip():<{COLUMN * 16}}99.99"))
    return [*lines, *legend(curves)]


def place(row: list[tuple[str, str]], column: int, mark: tuple[str, str]) -> None:
    """Put a mark at the column, or beside it when another curve stands there."""
    for shift in range(COLUMN - 1):
        if row[column + shift][0] == " ":
            row[column + shift] = mark
            return


def legend(names: Mapping[str, object]) -> list[Text]:
    """Return which mark is which curve, two on a line."""
    entries = [
        Text(f"{MARKS[number % len(MARKS)]} {name}", STYLES[number % len(STYLES)])
        for number, name in enumerate(names)
    ]
    width = max(len(entry) for entry in entries) + 4
    lines = []
    for first in range(0, len(entries), 2):
        line = Text(" " * (LABEL + 2))
        for entry in entries[first : first + 2]:
            entry.pad_right(width - len(entry))
            line.append_text(entry)
        lines.append(line)
    return lines


BAR = 48


def bars(entries: Sequence[tuple[str, float, float | None, str]]) -> list[Text]:
    """Return a horizontal bar for each (label, measured, promised, figure); `┃` is the promise."""
    if not entries:
        return []
    width = max(len(label) for label, *_ in entries)
    largest = max(max(measured, promised or 0.0) for _, measured, promised, _ in entries) or 1.0
    lines = []
    for label, measured, promised, figure in entries:
        filled = round(measured / largest * BAR)
        cells = ["█"] * filled + [" "] * (BAR + 1 - filled)
        line = Text(f"{label:<{width}} ")
        due = None if promised is None else round(promised / largest * BAR)
        for position, character in enumerate(cells):
            if position == due:
                line.append("┃", style="bold red")
            else:
                line.append(character, style="cyan")
        line.append(f" {figure}")
        lines.append(line)
    return lines
