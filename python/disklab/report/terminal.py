"""The report in the terminal: the same sentences, and one table."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from disklab.report import tables, wording
from disklab.report.axes import Figures
from disklab.report.html import NUMBER
from disklab.report.report import Report
from disklab.report.subject import Subject

MOST_NOTES = 3
"""The first screen is the answer; the page has all of them."""
LEAST_NAME = 16
"""Columns for the cell's name, however wide the other columns are."""


def show(report: Report, out: Console) -> None:
    """Print the report."""
    first = report.subjects[0]
    out.print(Text(first.info.experiment.title or first.info.id, style="bold"))
    show_answer(report, out)
    for text in report.status:
        out.print(Text(f"  {text}", style="dim"))
    if report.rest:
        for subject in report.subjects:
            if subject.info.mode != "published" or len(report.subjects) == 1:
                show_comparisons(report, subject, out)
    for subject in report.subjects:
        # What was published stands beside the other runs' cells, further down.
        if subject.info.mode != "published" or len(report.subjects) == 1:
            show_cells(subject, out, named=len(report.subjects) > 1)
    for comparison in report.comparisons:
        title = f"{comparison.second.label} compared with {comparison.first.label}"
        out.print(Text(f"\n{title}", style="bold"))
        out.print(grid(tables.side_by_side(comparison)))
        columns = tables.study(comparison)
        if columns is not None:
            out.print(grid(tables.without_empty_columns(columns)))
        if scaled := tables.scaled_loads(comparison):
            out.print(Text(scaled, style="dim"))
    show_notes(report, out)


def show_answer(report: Report, out: Console) -> None:
    """Print the answer, and the few sentences below it."""
    for number, (heading, finding, basis) in enumerate(report.first_screen):
        label = f"{heading}: " if heading else ""
        line = verdict_line(label + finding.text, finding.reason, basis, bold=number == 0)
        out.print(Padding(line, (0, 0, 0, 2), expand=False))


def show_cells(subject: Subject, out: Console, *, named: bool) -> None:
    """Print the cells of one run."""
    title = f"{subject.label} ({subject.info.id})" if named else ""
    out.print(Text(f"\n{title}" if title else "", style="bold"))
    out.print(grid(tables.without_empty_columns(tables.summary(subject))))
    gone = tables.without_empty_columns(tables.credits_gone(subject))
    if gone.rows:
        out.print(Text("\nBurst credits that ran out", style="bold"))
        out.print(grid(gone))
    made_of = tables.replayed(subject)
    if made_of.rows:
        out.print(Text("\nThe trace", style="bold"))
        out.print(grid(made_of))
    for text in tables.refusals(subject):
        out.print(Text(f"  {text}", style="dim"))


def show_comparisons(report: Report, subject: Subject, out: Console) -> None:
    """Print every comparison of one run."""
    figures = tables.comparisons(report.answer_of(subject))
    if len(figures.rows) > 1:
        title = "Every comparison"
        title += f", {subject.label}" if len(report.subjects) > 1 else ""
        out.print(Text(f"\n{title}", style="bold"))
        out.print(grid(tables.without_empty_columns(figures)))


def show_notes(report: Report, out: Console) -> None:
    """Print the first warnings."""
    notes = [text for subject in report.subjects for text in tables.warnings(subject)]
    for text in notes[:MOST_NOTES]:
        out.print(Text.assemble(("note: ", "yellow"), text))
    if len(notes) > MOST_NOTES:
        more = wording.counted(len(notes) - MOST_NOTES, "more note")
        out.print(Text(f"{more} in the page", style="dim"))


def verdict_line(says: str, why: str, basis: str, *, bold: bool = True) -> RenderableType:
    """Return a finding: what is said, why, and on what it rests."""
    lines = [Text(wording.sentence(says), style="bold" if bold else "")]
    if why:
        lines.append(Text(wording.sentence(why)))
    if basis:
        lines.append(Text(basis, style="dim"))
    return Group(*lines)


def grid(figures: Figures) -> Table:
    """Return a table; numbers are set right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(figures.headings):
        column = [line[number] for line in figures.rows]
        right = number > 0 and all(not value or NUMBER.match(value) for value in column)
        made.add_column(
            heading,
            justify="right" if right else "left",
            no_wrap=right,
            min_width=LEAST_NAME if number == 0 else None,
        )
    for line in figures.rows:
        made.add_row(*(Text(value) for value in line))
    return made
