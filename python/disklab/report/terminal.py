"""The report in the terminal: the same sentences, and one table."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from disklab.report import tables, wording
from disklab.report.html import NUMBER
from disklab.report.panel import Figures
from disklab.report.report import Report


def show(report: Report, out: Console) -> None:
    """Print the report."""
    first = report.subjects[0]
    out.print(Text(first.info.experiment.title or first.info.id, style="bold"))
    for heading, finding in report.headline:
        label = f"{heading}: " if heading else ""
        out.print(
            Padding(verdict_line(label + finding.text, finding.reason, finding.basis), (0, 0, 0, 2))
        )
    if report.rest:
        out.print(
            Text(f"  {len(report.rest)} more comparisons in the page and in --json", style="dim")
        )
    for line in report.status:
        out.print(Text(f"  {line}", style="dim"))
    for subject in report.subjects:
        out.print()
        if len(report.subjects) > 1:
            out.print(Text(f"{subject.label} ({subject.info.id})", style="bold"))
        out.print(grid(tables.without_empty_columns(tables.summary(subject))))
    for comparison in report.comparisons:
        out.print()
        out.print(Text(f"{comparison.second.label} beside {comparison.first.label}", style="bold"))
        out.print(grid(tables.side_by_side(comparison)))
    for subject in report.subjects:
        for text in tables.warnings(subject):
            out.print(Text.assemble(("note: ", "yellow"), text))


def verdict_line(says: str, why: str, basis: str) -> RenderableType:
    """Return a finding: what is said, why, and on what it rests."""
    lines = [Text(wording.sentence(says), style="bold")]
    if why:
        lines.append(Text(f"Why: {wording.sentence(why)}"))
    if basis:
        lines.append(Text(basis, style="dim"))
    return Group(*lines)


def grid(figures: Figures) -> Table:
    """Return a table; numbers are set right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(figures.headings):
        column = [line[number] for line in figures.rows]
        right = number > 0 and all(not value or NUMBER.match(value) for value in column)
        made.add_column(heading, justify="right" if right else "left", no_wrap=right)
    for line in figures.rows:
        made.add_row(*(Text(value) for value in line))
    return made
