"""Whether the disks are good enough by the rules that a database's makers publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disklab.report import wording
from disklab.report.cells import Cell, Matrix, median
from disklab.results import RuleFinding


@dataclass(frozen=True)
class Ruled:
    """One rule and one cell, over all its usable repeats."""

    cell: Cell
    found: tuple[RuleFinding, ...]

    @property
    def kept(self) -> bool | None:
        """Whether the rule is kept; None: repeats disagree, or this machine may be why not."""
        answers = {one.kept or (None if one.doubt else False) for one in self.found}
        return answers.pop() if len(answers) == 1 else None

    @property
    def sure(self) -> bool:
        """Whether no repeat's figure was too coarse for the answer."""
        return self.kept is not None and all(one.sure for one in self.found)

    @property
    def figure(self) -> str:
        """The median of the repeats: `3.1 ms`, or `11 ms; from 8 to 16 ms` where it is coarse."""
        doubts = ", ".join(dict.fromkeys(one.doubt for one in self.found if one.doubt))
        if self.kept is None and doubts:
            return (
                f"{milliseconds(median([one.found_ms for one in self.found]) or 0.0)} ms; {doubts}"
            )
        shown = milliseconds(median([one.found_ms for one in self.found]) or 0.0)
        ranges = [one.within_ms for one in self.found if one.within_ms is not None]
        if self.sure or not ranges:
            return f"{shown} ms"
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        return f"{shown} ms; from {milliseconds(low)} to {milliseconds(high)} ms"

    @property
    def answer(self) -> str:
        """`yes`, `no`, `probably`, `probably not` or `cannot tell`."""
        if self.kept is None:
            return "cannot tell"
        if self.sure:
            return "yes" if self.kept else "no"
        return "probably" if self.kept else "probably not"


def rules_of(cell: Cell) -> list[Ruled]:
    """Return each rule of a cell over its usable repeats."""
    found: dict[tuple[str, str], list[RuleFinding]] = {}
    for result in cell.usable:
        for one in result.rules:
            found.setdefault((one.subject, one.what), []).append(one)
    return [Ruled(cell, tuple(repeats)) for repeats in found.values()]


def ruled(matrix: Matrix) -> Iterator[tuple[RuleFinding, list[Ruled]]]:
    """Yield each rule of a run with what became of it in every usable cell."""
    rules: dict[tuple[str, str], RuleFinding] = {}
    cells: dict[tuple[str, str], list[Ruled]] = {}
    for cell in matrix.cells.values():
        for one in rules_of(cell):
            name = one.found[0].subject, one.found[0].what
            rules.setdefault(name, one.found[0])
            cells.setdefault(name, []).append(one)
    for name, rule in rules.items():
        yield rule, cells[name]


def milliseconds(value: float) -> str:
    """Return a figure as the rules write theirs: two digits, and none that say nothing."""
    return f"{float(f'{value:.2g}'):,g}"


ANSWERS = ("yes", "probably", "cannot tell", "probably not", "no")
"""In the order in which they are told."""


def sentence(matrix: Matrix, rule: RuleFinding, cells: Sequence[Ruled]) -> tuple[str, str]:
    """Return the answer to a rule in one sentence, and what the rule is."""
    told = []
    for answer in ANSWERS:
        names = [
            f"{name_of(matrix, one.cell)} ({one.figure})" for one in cells if one.answer == answer
        ]
        if names:
            told.append(f"{answer}: {', '.join(names)}")
    text = f"Good enough for {rule.subject}? {wording.capital('; '.join(told))}"
    reason = f"{rule.subject} asks for a {rule.what} below {milliseconds(rule.below_ms)} ms"
    return text, f"{reason} ({rule.source})" if rule.source else reason


def name_of(matrix: Matrix, cell: Cell) -> str:
    """Return a cell by the levels of the factors that vary."""
    return matrix.phrase({f.name: cell.factors[f.name] for f in matrix.varying}) or "this disk"
