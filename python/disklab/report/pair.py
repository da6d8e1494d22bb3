"""Two cells that differ in the main factor only, and what kind of answer they give. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from disklab.report.cells import Cell, Rates
from disklab.report.reasons import fails, limited_by_machine
from disklab.report.subject import Subject
from disklab.report.verdict import Judgement, Outcome, Quantity, judge
from disklab.results import Level


class Kind(str, Enum):
    """What can be answered of a pair."""

    BETTER = "better"
    """The second one is."""
    WORSE = "worse"
    EQUAL = "equal"
    UNKNOWN = "cannot tell"
    MACHINE = "this machine was the limit"
    OVERLOAD = "cannot sustain"


@dataclass(frozen=True)
class Pair:
    """Two cells that differ in the main factor only."""

    context: Mapping[str, Level]
    """Levels of the factors that were held fixed, the sweep's among them."""
    first: Level
    second: Level
    cells: tuple[Cell, Cell]
    judgements: Mapping[Quantity, Judgement]
    deciding: Quantity
    """Rate in a closed loop, latency where the rate was given."""

    @property
    def judgement(self) -> Judgement:
        """The judgement of the deciding quantity."""
        return self.judgements[self.deciding]

    @property
    def better(self) -> int:
        """1: the second one is better, -1: the first one is, 0: neither."""
        return self.judgement.leaning * (1 if self.deciding.higher_is_better else -1)

    @property
    def mode(self) -> str:
        """How it was found: `predict`, `rehearse`, `published`."""
        return next((str(one.mode) for cell in self.cells for one in cell.usable), "")

    @property
    def kind(self) -> Kind:
        """What can be answered."""
        if any(map(fails, self.cells)):
            return Kind.OVERLOAD
        held = [limited_by_machine(cell) for cell in self.cells]
        # A machine that held back the better one alone hides how much better that is, not which.
        if all(held) or (held[0] and self.better >= 0) or (held[1] and self.better <= 0):
            return Kind.MACHINE
        if self.better:
            return Kind.BETTER if self.better > 0 else Kind.WORSE
        found = self.judgement
        alone = found.interval is None and not found.measured
        return Kind.EQUAL if alone or found.outcome is Outcome.NO_DIFFERENCE else Kind.UNKNOWN

    @property
    def seen(self) -> int:
        """Which one looks better, whether or not that is sure: 1, -1, or 0."""
        higher = (self.judgement.ratio > 1) - (self.judgement.ratio < 1)
        return higher * (1 if self.deciding.higher_is_better else -1)

    @property
    def at_least(self) -> bool:
        """Whether this machine held back the better one, which may be better than it looks."""
        return limited_by_machine(self.cells[1 if self.better > 0 else 0])

    @property
    def tail_disagrees(self) -> bool:
        """Whether the one that does more operations has the worse 99th percentile."""
        tail = self.judgements.get(Quantity.P99)
        if tail is None or self.deciding is not Quantity.OPS or not self.better:
            return False
        return tail.leaning == self.better


def pairs_of(subject: Subject) -> list[Pair]:
    """Return every pair of usable cells that differ in the main factor only."""
    matrix = subject.matrix
    if matrix.main is None:
        return []
    baseline = matrix.main.levels[0]
    found = []
    for cell in matrix.cells.values():
        level = cell.factors[matrix.main.name]
        other = matrix.cell({**cell.factors, matrix.main.name: baseline})
        if level == baseline or other is None:
            continue
        judgements = compare(subject, other, subject, cell)
        deciding = deciding_quantity((other, cell), judgements)
        if deciding is None:
            continue
        context = {
            factor.name: cell.factors[factor.name]
            for factor in (*matrix.others, *([matrix.sweep] if matrix.sweep else []))
        }
        found.append(Pair(context, baseline, level, (other, cell), judgements, deciding))
    return found


def compare(
    one: Subject, first: Cell, other: Subject, second: Cell, rates: Rates = Rates.AS_RUN
) -> dict[Quantity, Judgement]:
    """Judge two cells in every quantity that both have."""
    judged = {
        quantity: judge(
            quantity,
            one.sample(first, quantity, rates),
            other.sample(second, quantity, rates),
        )
        for quantity in Quantity
    }
    return {quantity: found for quantity, found in judged.items() if found is not None}


def deciding_quantity(
    cells: Sequence[Cell], judgements: Mapping[Quantity, Judgement]
) -> Quantity | None:
    """Return what decides: with a given rate the latency does, and a rate says nothing."""
    loops = {str(result.loop.get("kind")) for cell in cells for result in cell.usable}
    order = [Quantity.OPS, Quantity.P50, Quantity.P99, Quantity.P95]
    if loops == {"open"}:
        order = [Quantity.P99, Quantity.P50, Quantity.P95, Quantity.OPS]
    return next((quantity for quantity in order if quantity in judgements), None)
