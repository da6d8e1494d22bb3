"""The probe's tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from disklab.probe import wording
from disklab.probe.cells import Profile
from disklab.probe.run import CellResult
from disklab.probe.verdict import Outcome

SHOWN_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
COLOURS = {
    Outcome.MET: "green",
    Outcome.ABOVE: "yellow",
    Outcome.SHORT: "red",
    Outcome.BEYOND_MACHINE: "magenta",
}


def results_table(results: Sequence[CellResult]) -> Table:
    """Return all cells; the same cell of several subjects stands side by side, line by line."""
    subjects = list(dict.fromkeys(result.subject for result in results))
    known = any(result.promise for result in results)
    table = Table(title=None if len(subjects) > 1 else subjects[0], title_justify="left")
    table.add_column("cell", no_wrap=True)
    if len(subjects) > 1:
        table.add_column("disk", no_wrap=True)
    for name in ("IOPS", "MB/s", *(f"p{p:g}" for p in SHOWN_PERCENTILES)):
        table.add_column(name, justify="right", no_wrap=True)
    if known:
        table.add_column("promised", no_wrap=True)
        table.add_column("verdict")
    cells = list(dict.fromkeys(result.cell for result in results))
    for cell in cells:
        rows = [result for result in results if result.cell == cell]
        for number, result in enumerate(rows):
            last = number == len(rows) - 1 and len(subjects) > 1
            table.add_row(*row(result, number == 0, len(subjects) > 1, known), end_section=last)
    return table


def row(result: CellResult, first: bool, several: bool, known: bool) -> list[str | Text]:
    """Return one line of the table."""
    measured = result.measurement
    percentiles = measured.latency.percentiles_ns
    cells: list[str | Text] = [result.cell.title if first else ""]
    if several:
        cells.append(result.subject)
    cells += [wording.iops(measured.iops), wording.mb_per_s(measured.bytes_per_s)]
    cells += [wording.duration(percentiles[p]) for p in SHOWN_PERCENTILES]
    if known:
        cells += [promised(result), verdict(result)]
    return cells


def promised(result: CellResult) -> str:
    """Return what was owed: the median for depth 1, else the rate and what bounds it."""
    owed = result.promise
    if owed is None:
        return ""
    if owed.percentiles_ns:
        p50, p99 = owed.percentiles_ns[50.0], owed.percentiles_ns[99.0]
        return f"p50 {wording.duration(p50)}, p99 {wording.duration(p99)}"
    if "MB/s" in owed.bound_by:
        return f"{wording.mb_per_s(owed.bytes_per_s)} MB/s"
    return f"{wording.iops(owed.iops)} IOPS"


def verdict(result: CellResult) -> Text:
    """Return the verdict in its colour; an invalid cell has none."""
    if result.invalid:
        return Text(f"invalid: {'; '.join(result.invalid)}", style="yellow")
    if result.verdict is None:
        return Text("")
    return Text(str(result.verdict), style=COLOURS[result.verdict.outcome])


def summary(results: Sequence[CellResult]) -> list[Text]:
    """Return one line for each subject whose disk is known: kept its promise, or falls short."""
    lines = []
    for subject in dict.fromkeys(result.subject for result in results):
        judged = [r for r in results if r.subject == subject and r.verdict and not r.invalid]
        short = [r for r in judged if r.verdict and r.verdict.outcome is Outcome.SHORT]
        if short:
            names = ", ".join(result.cell.title for result in short)
            text = f"{subject} FALLS SHORT in {len(short)} of {len(judged)} cells: {names}"
            lines.append(Text(text, style="bold red"))
        elif judged:
            above = sum(1 for r in judged if r.verdict and r.verdict.outcome is Outcome.ABOVE)
            beyond = sum(
                1 for r in judged if r.verdict and r.verdict.outcome is Outcome.BEYOND_MACHINE
            )
            kept = len(judged) - above - beyond
            text = f"{subject}: {kept} of {len(judged)} cells met"
            text += f", {above} above" if above else ""
            text += f", {beyond} beyond this machine" if beyond else ""
            lines.append(Text(text, style="bold green" if kept == len(judged) else "bold yellow"))
    return lines


def conditions(results: Sequence[CellResult]) -> list[str]:
    """Return what each subject was like when it was measured, and every warning once."""
    said = [f"{result.subject}: {result.condition}" for result in results]
    said += [f"{result.subject}: {warning}" for result in results for warning in result.warnings]
    return list(dict.fromkeys(said))


def depth_note(profile: Profile) -> str:
    """Return how a profile loads the disk."""
    return "one job, depth 1" if profile is Profile.SYNC else "four jobs, depth 256 each"
