"""Shows finished results: tables and charts in the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from disklab.probe.cells import PERCENTILES, Profile, format_size, loads
from disklab.probe.charts import Shown, apart
from disklab.probe.fio import Measurement
from disklab.probe.promise import Promise
from disklab.probe.run import CellResult
from disklab.probe.verdict import Outcome
from disklab.report import wording
from disklab.telemetry.spoiled import in_words

# Charts made of characters: percentile curves and bars, for terminals and logs.

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
        label = wording.latency(at / 1e6) if number % 3 == 0 or number == ROWS - 1 else ""
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


# The probe's tables in the terminal.

SHOWN_PERCENTILES = (50.0, 95.0, 99.0)
COLOURS = {
    Outcome.MET: "green",
    Outcome.ABOVE: "yellow",
    Outcome.SHORT: "red",
    Outcome.BEYOND_MACHINE: "magenta",
    Outcome.NOT_JUDGED: "dim",
}


def results_table(results: Sequence[CellResult]) -> Table:
    """Return all cells; the same cell of several subjects stands side by side, line by line."""
    several = len({result.subject for result in results}) > 1
    known = any(result.promise for result in results)
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", no_wrap=True)
    if several:
        table.add_column("disk", no_wrap=True)
    for name in ("IOPS", "MB/s", *(f"p{p:g}" for p in SHOWN_PERCENTILES)):
        table.add_column(name, justify="right", no_wrap=True)
    if known:
        table.add_column("promised", justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
    for cell in dict.fromkeys(result.cell for result in results):
        if several and table.row_count:
            table.add_row()
        for number, result in enumerate(r for r in results if r.cell == cell):
            names = [cell.title if number == 0 else "", *([result.subject] if several else [])]
            table.add_row(*names, *whole(result.measurement), *(judged(result) if known else []))
            if len(cell.direction.shares) > 1:
                for one in apart([result]):
                    row = figures(one.iops, one.bytes_per_s, one.percentiles_ns)
                    table.add_row(f"  {one.side}s", *([""] if several else []), *row)
    return table


def whole(measured: Measurement) -> list[str]:
    """Return what was measured of all I/Os of a cell."""
    return figures(measured.iops, measured.bytes_per_s, measured.latency.percentiles_ns)


def figures(iops: float, bytes_per_s: float, percentiles_ns: Mapping[float, int]) -> list[str]:
    """Return what was measured."""
    return [
        wording.rate(iops),
        wording.rate(bytes_per_s / 1e6),
        *(wording.latency(percentiles_ns[p] / 1e6) for p in SHOWN_PERCENTILES),
    ]


def judged(result: CellResult) -> list[str | Text]:
    """Return what was owed and the verdict in its colour; an invalid cell has none."""
    owed, verdict = result.promise, result.verdict
    if owed is None or verdict is None:
        return ["", ""]
    if result.invalid:
        return [promised(owed), Text("invalid", style="yellow")]
    return [promised(owed), Text(verdict.short, style=COLOURS[verdict.outcome])]


def promised(owed: Promise) -> str:
    """Return what was owed: the median where latencies are (of a mix: of both), else the rate."""
    if owed.percentiles_ns:
        medians = [wording.latency(of[50.0] / 1e6) for of in owed.percentiles_ns.values()]
        return f"p50 {', '.join(medians)}"
    if "MB/s" in owed.bound_by:
        return f"{wording.rate(owed.bytes_per_s / 1e6)} MB/s"
    return f"{wording.rate(owed.iops)} IOPS"


def reasons(results: Sequence[CellResult]) -> list[Text]:
    """Return what held back which cells, a line for each reason, and why cells are invalid."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        verdict = result.verdict
        for reason in result.invalid:
            cells.setdefault((result.subject, f"invalid: {reason}", "yellow"), []).append(
                result.cell.title
            )
        for text in () if result.invalid else in_words(result.spoiled):
            cells.setdefault((result.subject, text, "yellow"), []).append(result.cell.title)
        if verdict and verdict.held_back_by and not result.invalid:
            key = (result.subject, verdict.held_back_by, COLOURS[verdict.outcome])
            cells.setdefault(key, []).append(result.cell.title)
    return [
        Text(f"{subject}: {reason}: {', '.join(titles)}", style=style)
        for (subject, reason, style), titles in cells.items()
    ]


def summary(results: Sequence[CellResult]) -> list[Text]:
    """Return one line for each subject whose disk is known: kept its promise, or falls short."""
    lines = []
    for subject in dict.fromkeys(result.subject for result in results):
        own = [r for r in results if r.subject == subject and r.verdict]
        counts = Counter(standing(result) for result in own)
        short = [r.cell.title for r in own if standing(r) == Outcome.SHORT.value]
        if short:
            text = f"{subject} FALLS SHORT in {len(short)} of {len(own)} cells: {', '.join(short)}"
            lines.append(Text(text, style="bold red"))
        elif own:
            met = counts.pop(Outcome.MET.value, 0)
            text = f"{subject}: {met} of {len(own)} cells met"
            text += "".join(f", {count} {outcome}" for outcome, count in counts.items())
            lines.append(Text(text, style="bold green" if met == len(own) else "bold yellow"))
    return lines


def standing(result: CellResult) -> str:
    """Return the verdict's outcome in a word; an invalid cell has none."""
    if result.invalid or result.verdict is None:
        return "invalid"
    return str(result.verdict.outcome.value)


def conditions(results: Sequence[CellResult]) -> list[str]:
    """Return what each subject was like when it was measured."""
    return list(dict.fromkeys(f"{result.subject}: {result.condition}" for result in results))


def show_table(results: Sequence[CellResult], out: Console) -> None:
    """Print the table, and the verdict of each subject in a line."""
    out.print(results_table(results))
    out.print(*reasons(results), sep="\n", highlight=False)
    out.print(*summary(results), sep="\n", highlight=False)


def show(results: Sequence[CellResult], out: Console, title: str | None = None) -> None:
    """Print the table, the curves of the smallest block, the rates, and the verdict in a line."""
    subjects = list(dict.fromkeys(result.subject for result in results))
    out.print(Text(title or " and ".join(subjects), style="bold"))
    out.print(results_table(results))
    for block in curve_blocks(results):
        out.print(*block, sep="\n", highlight=False)
    rates = [r for r in results if r.cell.profile is Profile.ASYNC]
    if rates:
        out.print(
            Text(
                f"\n{loads(r.cell.load for r in rates)}; bars are MB/s, ┃ the promise",
                style="bold",
            )
        )
        out.print(*bars([bar(one, results) for one in apart(rates)]), sep="\n", highlight=False)
    out.print()
    out.print(*reasons(results), sep="\n", highlight=False)
    for condition in conditions(results):
        out.print(condition, highlight=False, markup=False, style="dim")
    for line in summary(results):
        out.print(line, highlight=False)


def curve_blocks(results: Sequence[CellResult]) -> list[list[Text]]:
    """Return the percentile chart of the smallest block: a curve for each subject and direction."""
    depth_one = [r for r in results if r.cell.profile is Profile.SYNC]
    if not depth_one:
        return []
    smallest = min(r.cell.block_bytes for r in depth_one)
    curves = {
        name(one, results, one.label): one.percentiles_ns
        for one in apart(depth_one)
        if one.cell.block_bytes == smallest
    }
    size = format_size(smallest)
    title = Text(
        f"\nlatency by percentile, {loads(r.cell.load for r in depth_one)}, {size}",
        style="bold",
    )
    return [[title, *percentile_curves(curves)]]


def name(result: CellResult | Shown, among: Sequence[CellResult], cell: str) -> str:
    """Return the cell's name, with the subject in front when there are several."""
    several = len({r.subject for r in among}) > 1
    return f"{result.subject} {cell}" if several else cell


def bar(one: Shown, among: Sequence[CellResult]) -> tuple[str, float, float | None, str]:
    """Return the entry of one loaded cell, in bytes per second: one scale for all block sizes."""
    several = len({r.cell.load for r in among if r.cell.profile is Profile.ASYNC}) > 1
    label = name(one, among, one.title if several else one.io)
    figure = f"{wording.rate(one.iops)} IOPS, {wording.rate(one.bytes_per_s / 1e6)} MB/s"
    return label, one.bytes_per_s, one.promised_bytes_per_s, figure
