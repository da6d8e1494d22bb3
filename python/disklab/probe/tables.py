"""The probe's tables in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from disklab.probe import wording
from disklab.probe.fio import Measurement
from disklab.probe.promise import Promise
from disklab.probe.run import CellResult
from disklab.probe.sides import apart
from disklab.probe.verdict import Outcome

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
