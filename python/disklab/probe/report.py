"""Shows finished results: tables and charts in the terminal, a chart in a file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from disklab.probe import plot, tables, wording
from disklab.probe.cells import Profile, format_size
from disklab.probe.charts import write_chart
from disklab.probe.comparison import Compared, renderables
from disklab.probe.request import Output
from disklab.probe.run import CellResult
from disklab.probe.sides import Shown, apart
from disklab.terminal import SafeConsole

# Where there is no terminal to ask: wide enough that no figure of the tables wraps.
PLAIN_WIDTH = 120


def console() -> Console:
    """Return the console for results."""
    made = SafeConsole()
    return made if made.is_terminal else SafeConsole(width=PLAIN_WIDTH)


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
    out.print(tables.results_table(results))
    out.print(*tables.reasons(results), sep="\n", highlight=False)
    out.print(*tables.summary(results), sep="\n", highlight=False)


def show(results: Sequence[CellResult], out: Console, title: str | None = None) -> None:
    """Print the table, the curves of the smallest block, the rates, and the verdict in a line."""
    subjects = list(dict.fromkeys(result.subject for result in results))
    out.print(Text(title or " and ".join(subjects), style="bold"))
    out.print(tables.results_table(results))
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
        out.print(
            *plot.bars([bar(one, results) for one in apart(rates)]), sep="\n", highlight=False
        )
    out.print()
    out.print(*tables.reasons(results), sep="\n", highlight=False)
    for condition in tables.conditions(results):
        out.print(condition, highlight=False, markup=False, style="dim")
    for line in tables.summary(results):
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
    return [[title, *plot.percentile_curves(curves)]]


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
