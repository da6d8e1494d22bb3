"""Shows finished results: tables and charts in the terminal, a chart in a file."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from disklab.engine.messages import Envelope
from disklab.probe import wording
from disklab.probe.cells import PERCENTILES, Profile, format_size
from disklab.probe.charts import Shown, apart, write_chart
from disklab.probe.fio import Measurement
from disklab.probe.known import Published
from disklab.probe.promise import Promise
from disklab.probe.run import CellResult, Output
from disklab.probe.verdict import LATENCY_TOLERANCE_RATIO, Outcome
from disklab.terminal import SafeConsole, width_of

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
        wording.iops(iops),
        wording.mb_per_s(bytes_per_s),
        *(wording.duration(percentiles_ns[p]) for p in SHOWN_PERCENTILES),
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
        medians = [wording.duration(of[50.0]) for of in owed.percentiles_ns.values()]
        return f"p50 {', '.join(medians)}"
    if "MB/s" in owed.bound_by:
        return f"{wording.mb_per_s(owed.bytes_per_s)} MB/s"
    return f"{wording.iops(owed.iops)} IOPS"


def reasons(results: Sequence[CellResult]) -> list[Text]:
    """Return what held back which cells, a line for each reason, and why cells are invalid."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        verdict = result.verdict
        for reason in result.invalid:
            cells.setdefault((result.subject, f"invalid: {reason}", "yellow"), []).append(
                result.cell.title
            )
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
    """Return what each subject was like when it was measured, and every warning once."""
    said = [f"{result.subject}: {result.condition}" for result in results]
    said += [f"{result.subject}: {warning}" for result in results for warning in result.warnings]
    return list(dict.fromkeys(said))


# Our figures beside the published ones: percentile by percentile, rate by rate.

SOURCE = "tomaskubica.cz 2020-09, Azure VM and fast local disks; 8k random writes"


@dataclass(frozen=True)
class Compared:
    """One device's results and its published row."""

    device: str
    results: tuple[CellResult, ...]
    published: Published | None
    envelope: Envelope | None
    """What the emulating machine can do at best; None for a real disk."""

    def result(self, profile: Profile) -> CellResult | None:
        """Return the cell of a profile."""
        return next((r for r in self.results if r.cell.profile is profile), None)


def ratio_text(ours: float, published: float, worse_above: bool) -> Text:
    """Return ours over published; red when it is worse than the tolerance allows."""
    ratio = ours / published
    off = ratio - 1 if worse_above else 1 - ratio
    style = "red" if off > LATENCY_TOLERANCE_RATIO else "green"
    if off < -LATENCY_TOLERANCE_RATIO:
        style = "yellow"  # better than published is a difference too
    return Text(f"{ratio:.2f}", style=style)


def percentile_table(compared: Compared) -> Table | None:
    """Return one device's latencies at depth 1: ours, published, ours over published."""
    result, known = compared.result(Profile.SYNC), compared.published
    if result is None:
        return None
    table = Table(title=compared.device, title_justify="left")
    for name in ("percentile", "ours", "published", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for percentile, ours_ns in result.measurement.latency.percentiles_ns.items():
        theirs_ns = known.percentiles_ns.get(percentile) if known else None
        table.add_row(
            f"{percentile:g}",
            wording.duration(ours_ns),
            wording.duration(theirs_ns) if theirs_ns else "",
            ratio_text(ours_ns, theirs_ns, worse_above=True) if theirs_ns else "",
        )
    return table


def rate_table(all_compared: Sequence[Compared]) -> Table | None:
    """Return every device's IOPS under the deep queue; None when no such cell was measured."""
    table = Table(title="four jobs, depth 256 each: IOPS", title_justify="left")
    table.add_column("device", no_wrap=True)
    for name in ("ours", "published", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note")
    for compared in all_compared:
        result, known = compared.result(Profile.ASYNC), compared.published
        if result is not None:
            ours = result.measurement.iops
            table.add_row(
                compared.device,
                wording.iops(ours),
                wording.iops(known.iops) if known else "",
                ratio_text(ours, known.iops, worse_above=False) if known else "",
                known.note if known else "",
            )
    return table if table.row_count else None


def walls(compared: Compared) -> list[str]:
    """Return which limits of the emulating machine stood before the published figures."""
    envelope, known = compared.envelope, compared.published
    if envelope is None or known is None:
        return []
    found = []
    lowest_ns, most_iops = envelope.p50_ns, envelope.iops
    below = [p for p, ns in known.percentiles_ns.items() if ns < lowest_ns]
    if below and compared.result(Profile.SYNC):
        found.append(
            f"{compared.device}: published percentiles up to p{max(below):g} lie below this "
            f"machine's lowest median, {wording.duration(lowest_ns)}"
        )
    if known.iops > most_iops and compared.result(Profile.ASYNC):
        found.append(
            f"{compared.device}: {wording.iops(known.iops)} IOPS were published, this machine's "
            f"emulator ends at {wording.iops(most_iops)}"
        )
    return found


def renderables(all_compared: Sequence[Compared]) -> list[RenderableType]:
    """Return the whole comparison for a console."""
    latencies = [table for c in all_compared if (table := percentile_table(c)) is not None]
    rates = rate_table(all_compared)
    shown: list[RenderableType] = []
    if latencies:
        shown += [Text("latency, one job, depth 1", style="bold"), Columns(latencies)]
    if rates is not None:
        shown.append(rates)
    shown.append(Text(f"published: {SOURCE}", style="dim"))
    shown += [Text(wall, style="magenta") for c in all_compared for wall in walls(c)]
    return shown


# Where there is no terminal to ask: wide enough that no figure of the tables wraps.
PLAIN_WIDTH = 120


def console() -> Console:
    """Return the console for results."""
    return SafeConsole(width=width_of(sys.stdout, PLAIN_WIDTH))


def show_results(results: Sequence[CellResult], output: Output, title: str | None = None) -> None:
    """Show the results, unless JSON lines have told them, and write the chart when asked."""
    if not output.json:
        show(results, console(), title)
    write_chart_when_asked(results, output, title or "")


def write_chart_when_asked(results: Sequence[CellResult], output: Output, title: str) -> None:
    """Write the chart of `--chart`."""
    if output.chart is not None:
        write_chart(results, output.chart, title)
        SafeConsole(stderr=True).print(f"chart: {output.chart}", highlight=False, soft_wrap=True)


def show_comparison(compared: Sequence[Compared], title: str) -> None:
    """Print our figures beside the published ones, and what stood in the way."""
    out = console()
    out.print(Text(title, style="bold"))
    for part in renderables(compared):
        out.print(part, highlight=False)
    results = [result for one in compared for result in one.results]
    out.print(Text("\nagainst the catalogue's promise", style="bold"))
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
                f"\n{wording.loads(r.cell.load for r in rates)}; bars are MB/s, ┃ the promise",
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
        f"\nlatency by percentile, {wording.loads(r.cell.load for r in depth_one)}, {size}",
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
    figure = f"{wording.iops(one.iops)} IOPS, {wording.mb_per_s(one.bytes_per_s)} MB/s"
    return label, one.bytes_per_s, one.promised_bytes_per_s, figure
