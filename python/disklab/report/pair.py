"""Two cells that differ in the main factor only, and what kind of answer they give. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from disklab.report.cells import Cell, Rates, canonical, scaled_loads
from disklab.report.reasons import fails, limited_by_machine
from disklab.report.subject import Subject
from disklab.report.verdict import Judgement, Outcome, Quantity, judge
from disklab.results import Level
from disklab.results.required import paced_at


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
    def rests_on_credits(self) -> bool:
        """Whether one of them does not do all day what is compared."""
        return any(one.steady is not None for cell in self.cells for one in cell.usable)

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
        """Whether this machine, or a ceiling, held the better one back: it may be better still."""
        cell = self.cells[1 if self.better > 0 else 0]
        by_ceiling = self.deciding is Quantity.OPS and paced_at(cell.usable) is not None
        return by_ceiling or limited_by_machine(cell)

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
    given = all(
        result.loop.get("kind") == "open" or paced_at([result])
        for cell in cells
        for result in cell.usable
    )
    order = [Quantity.OPS, Quantity.P50, Quantity.P99, Quantity.P95]
    if given:
        order = [Quantity.P99, Quantity.P50, Quantity.P95, Quantity.OPS]
    return next((quantity for quantity in order if quantity in judgements), None)


# Several runs side by side: cells matched by factor levels, rates by node, errors by cell.


@dataclass(frozen=True)
class Matched:
    """One cell in two runs."""

    cells: tuple[Cell, Cell]
    judgements: Mapping[Quantity, Judgement]
    deciding: Quantity

    @property
    def judgement(self) -> Judgement:
        """The judgement of the deciding quantity: the second run over the first."""
        return self.judgements[self.deciding]

    @property
    def settled(self) -> bool:
        """Whether a small difference is one: single figures, or an interval that is narrow."""
        found = self.judgement
        alone = found.interval is None and not found.measured
        return alone or found.outcome is Outcome.NO_DIFFERENCE

    @property
    def not_counted(self) -> str:
        """Why its error is in no sum of errors; empty: it counts."""
        return next((why for cell in self.cells if (why := cell.not_counted)), "")


@dataclass(frozen=True)
class Comparison:
    """Two runs, cell by cell."""

    first: Subject
    second: Subject
    rates: Rates
    """Whose rates are compared."""
    matched: tuple[Matched, ...]
    unmatched: int
    """Cells of the second run that the first one lacks, or that have no figures there."""

    @property
    def per_node(self) -> bool:
        """Whether rates are compared by node, since the runs had different numbers of nodes."""
        return self.rates is Rates.NODE

    @property
    def counted(self) -> tuple[Matched, ...]:
        """The cells whose errors and order prove something."""
        return tuple(one for one in self.matched if not one.not_counted)

    @property
    def is_history(self) -> bool:
        """Whether both are of one mode, so that a difference is a change and not an error."""
        return self.first.info.mode == self.second.info.mode


def comparisons_of(subjects: Sequence[Subject]) -> list[Comparison]:
    """Compare each run with the published one, or else with the first."""
    published = [one for one in subjects if one.info.mode == "published"]
    base = (published or list(subjects))[0]
    return [compared(base, other) for other in subjects if other is not base]


def compared(first: Subject, second: Subject) -> Comparison:
    """Match the second run's cells with the first one's and judge them."""
    results = [[r for r in one.run.results() if r.usable] for one in (first, second)]
    nodes = [{result.nodes for result in each} for each in results]
    scaled = scaled_loads(results[0] + results[1])
    rates = Rates.NODE if nodes[0] != nodes[1] else Rates.CLUSTER if scaled else Rates.AS_RUN
    matched, unmatched = [], 0
    for cell in second.matrix.cells.values():
        other = counterpart(second, cell, first)
        judgements = compare(first, other, second, cell, rates) if other else {}
        deciding = deciding_quantity((other, cell), judgements) if other else None
        if other is None or deciding is None:
            unmatched += 1
        else:
            matched.append(Matched((other, cell), judgements, deciding))
    return Comparison(first, second, rates, tuple(matched), unmatched)


def counterpart(subject: Subject, cell: Cell, other: Subject) -> Cell | None:
    """Return the cell of another run with the same levels; None when there is none or several.

    A factor that only the other run varies must have the level that this run's specification
    says; without one, the other run must leave no choice.
    """
    names = [name for name in cell.factors if any(f.name == name for f in other.matrix.factors)]
    if not names:
        return None
    levels = tuple(canonical(cell.factors[name]) for name in names)
    alike = other.matrix.alike(tuple(names)).get(levels, ())
    rest = [factor.name for factor in other.matrix.factors if factor.name not in cell.factors]
    spec = subject.specs.get(cell.trial, {}) if rest else {}
    found = [one for one in alike if all(_agrees(spec, name, one.factors[name]) for name in rest)]
    return found[0] if len(found) == 1 else None


def _agrees(spec: Mapping[str, Any], path: str, level: object) -> bool:
    """Return whether a specification does not contradict a level; a missing value does not."""
    value: Any = spec
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return True
        value = value[part]
    if isinstance(value, str | int | float) and isinstance(level, str | int | float):
        return canonical(value) == canonical(level)
    return True


def settings_apart(comparison: Comparison) -> list[str]:
    """Return the settings that differ in cells of one name: `nodes 3 against 6`, each once."""
    if comparison.first.info.mode == "published":
        return []
    specs = [
        {one.trial: one.spec for one in subject.run.planned()}
        for subject in (comparison.first, comparison.second)
    ]
    found: dict[str, None] = {}
    for one in comparison.matched:
        old, new = (leaves(each.get(c.trial, {})) for each, c in zip(specs, one.cells, strict=True))
        if old and new:
            for path in [*old, *(path for path in new if path not in old)]:
                if old.get(path) != new.get(path) and matters(path, old, new):
                    found[f"{path} {told(old.get(path))} against {told(new.get(path))}"] = None
    return list(found)


def matters(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a setting that differs is one: caches that nobody uses are none."""
    if path == "before.host_cache":
        pairs = (*old.items(), *new.items())
        return any(name.endswith(".caching") and value != "None" for name, value in pairs)
    # Where real hosts are measured, burst credits are what they are: the run says so.
    return path != "before.credits_ratio" or (path in old and path in new)


def leaves(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the settings of a specification by their dotted paths."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping):
            found |= leaves(value, path)
        else:
            found[path] = value
    return found


def told(value: object) -> str:
    """Return a setting in words."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "unset" if value is None else str(value)
