"""The answer of a run: every comparison of its main factor, and the sentences that sum them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from disklab.report import wording
from disklab.report.cells import Cell, Factor, Matrix, Rates
from disklab.report.reasons import reasons_of_pair, status_of, why
from disklab.report.subject import Subject
from disklab.report.verdict import Crossing, Judgement, Outcome, Quantity, crossings, judge
from disklab.results import Level

MOST_SENTENCES = 6
"""What the first screen holds; the table below has every comparison."""


MOST_REASONS = 3


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


@dataclass(frozen=True)
class Finding:
    """What is said of one pair of levels in one context, along the whole sweep."""

    text: str
    reason: str
    basis: str
    outcome: Outcome | None
    """None: it differs along the sweep."""
    pairs: tuple[Pair, ...]
    crossings: tuple[Crossing, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Everything that is said of one run."""

    subject: Subject
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]

    @property
    def headline(self) -> tuple[Finding, ...]:
        """What the first screen says."""
        return self.findings[:MOST_SENTENCES]


def answer_of(subject: Subject) -> Answer:
    """Compare every level of the main factor with its first, the others held fixed."""
    matrix = subject.matrix
    pairs = pairs_of(subject)
    findings: list[Finding] = []
    if matrix.main is not None:
        baseline, *rest = matrix.main.levels
        for level in rest:
            of_level = [pair for pair in pairs if pair.second == level]
            findings += findings_of(matrix, matrix.main, baseline, level, of_level)
            if not of_level:
                findings.append(_no_comparison(matrix, matrix.main, baseline, level))
    elif matrix.cells:
        findings = [_alone(cell) for cell in matrix.cells.values()]
    return Answer(subject, tuple(pairs), tuple(findings))


def _no_comparison(matrix: Matrix, main: Factor, baseline: Level, level: Level) -> Finding:
    """Return why a level stands beside nothing: each reason once."""
    reasons: dict[str, None] = {}
    for side in (level, baseline):
        cells = [cell for cell in matrix.cells.values() if cell.factors[main.name] == side]
        bad = [cell for cell in cells if not cell.usable]
        if bad and len(bad) == len(cells):
            reasons |= dict.fromkeys(f"{main.phrase(side)} {status_of(cell)}" for cell in bad)
    if not reasons:
        reasons = {"they have no cell in common that gave figures": None}
    text = f"No verdict on {main.phrase(level)} against {main.phrase(baseline)}"
    return Finding(text, "; ".join(list(reasons)[:MOST_REASONS]), "", None, ())


def _alone(cell: Cell) -> Finding:
    """Return what a single cell gave: there is nothing to compare it with."""
    if not cell.usable:
        return Finding(
            "No verdict: the one cell has no figures that count", status_of(cell), "", None, ()
        )
    rate, tail = cell.median("ops_per_s"), cell.median("p99_ms")
    told = [f"{wording.rate(rate)} ops/s"] if rate is not None else []
    told += [f"p99 {wording.latency(tail)}"] if tail is not None else []
    text = f"one cell, nothing to compare: {', '.join(told)}"
    return Finding(text, "; ".join(why(cell).phrases()), "", None, ())


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


def findings_of(
    matrix: Matrix, main: Factor, baseline: Level, level: Level, pairs: Sequence[Pair]
) -> list[Finding]:
    """Return the sentences on one level against the baseline: one if all agree, or by context."""
    if not pairs:
        return []
    names = main.phrase(baseline), main.phrase(level)
    alone = {pair.judgement.outcome for pair in pairs}
    if len(pairs) > 1 and alone == {Outcome.NO_DIFFERENCE}:
        return [_all_alike(pairs, names)]
    found = []
    for context in matrix.contexts():
        line = [pair for pair in pairs if all(pair.context[n] == v for n, v in context.items())]
        if line:
            found.append(_along(matrix, context, names, line))
    return found


def _all_alike(pairs: Sequence[Pair], names: tuple[str, str]) -> Finding:
    low, high = _hull(pairs)
    text = f"{names[1]} and {names[0]}: no difference in all {len(pairs)} comparisons: "
    return Finding(
        text=text + wording.change_range(low, high),
        reason=_reason(pairs, names),
        basis=wording.basis_of([pair.judgement for pair in pairs]),
        outcome=Outcome.NO_DIFFERENCE,
        pairs=tuple(pairs),
    )


def _along(
    matrix: Matrix, context: Mapping[str, Level], names: tuple[str, str], line: Sequence[Pair]
) -> Finding:
    """Return the sentence on one line of a sweep, or on a single pair."""
    where = f"{matrix.phrase(context)}: " if context else ""
    if matrix.sweep is None or len(line) == 1:
        (pair, *_) = line
        at = ""
        if matrix.sweep is not None:
            at = f" at {matrix.sweep.phrase(pair.context[matrix.sweep.name])}"
        advice = "" if published(pair) else wording.advice(pair.judgement)
        return Finding(
            text=f"{where}{_verdict(pair, names)}{at}" + (f"; {advice}" if advice else ""),
            reason=_reason(line, names),
            basis=wording.basis(pair.judgement),
            outcome=pair.judgement.outcome,
            pairs=tuple(line),
        )
    sweep = matrix.sweep
    parts = []
    for _, group in groupby(line, key=_kind):
        run = list(group)
        levels = [sweep.phrase(pair.context[sweep.name]) for pair in run]
        parts.append(f"{_segment(run)} {_stretch(sweep, levels, run, line)}")
    crossed = crossings(
        [sweep.phrase(pair.context[sweep.name]) for pair in line],
        [pair.judgement for pair in line],
    )
    text = f"{where}{names[1]} against {names[0]}: " + "; ".join(parts)
    levels = [sweep.phrase(level) for level in sweep.levels]
    for one in crossed:
        verb = "rises above" if one.rises else "falls below"
        near = levels.index(one.first) - levels.index(one.last) == 1
        where = f"from {one.first} on" if near else f"between {one.last} and {one.first}"
        text += f". {wording.capital(names[1])} {verb} {names[0]} {where}"
    outcomes = {pair.judgement.outcome for pair in line}
    return Finding(
        text=text,
        reason=_reason(line, names),
        basis=wording.basis_of([pair.judgement for pair in line]),
        outcome=next(iter(outcomes)) if len(outcomes) == 1 else None,
        pairs=tuple(line),
        crossings=tuple(crossed),
    )


def _kind(pair: Pair) -> tuple[Outcome, int]:
    return pair.judgement.outcome, pair.judgement.leaning


def _segment(run: Sequence[Pair]) -> str:
    """Return what neighbouring pairs with one outcome say together."""
    judgement = run[0].judgement
    low, high = _hull(run)
    if judgement.interval is None:
        return wording.change_range(low, high)
    return wording.difference(run[0].deciding, judgement.outcome, low, high)


def _stretch(sweep: Factor, levels: list[str], run: Sequence[Pair], line: Sequence[Pair]) -> str:
    """Return where on the sweep: `at all levels`, `up to 128 threads`, `from 256 threads on`."""
    if len(run) == len(line):
        return f"at every level of {sweep.title}"
    if len(run) == 1:
        return f"at {levels[0]}"
    if run[0] is line[0]:
        return f"up to {levels[-1]}"
    if run[-1] is line[-1]:
        return f"from {levels[0]} on"
    return f"from {levels[0]} to {levels[-1]}"


def _verdict(pair: Pair, names: tuple[str, str]) -> str:
    """Return the sentence on one pair."""
    judgement = pair.judgement
    if judgement.interval is None:
        of = "" if pair.deciding is Quantity.OPS else f"{pair.deciding.label} "
        return f"{names[1]} against {names[0]}: {of}{wording.judged(judgement)}"
    if judgement.outcome in (Outcome.NO_DIFFERENCE, Outcome.CANNOT_TELL):
        text = wording.judged(judgement)
        return f"{names[1]} and {names[0]}: {text}"
    if wording.in_times(judgement.interval.low, judgement.interval.high):
        return f"{names[1]} is {wording.judged(judgement)} as {names[0]}"
    return f"{names[1]} is {wording.judged(judgement)} than {names[0]}"


def published(pair: Pair) -> bool:
    """Return whether a pair cannot be measured again."""
    return any(result.mode == "published" for cell in pair.cells for result in cell.results)


def _hull(pairs: Sequence[Pair]) -> tuple[float, float]:
    lows = [p.judgement.interval.low if p.judgement.interval else p.judgement.ratio for p in pairs]
    highs = [
        p.judgement.interval.high if p.judgement.interval else p.judgement.ratio for p in pairs
    ]
    return min(lows), max(highs)


def _reason(pairs: Sequence[Pair], names: tuple[str, str]) -> str:
    """Return why: each different reason of the pairs once, with the span of its percentages."""
    told: list[str] = []
    for pair in pairs:
        better = 1 if pair.deciding.higher_is_better else -1
        leaning = pair.judgement.leaning * better
        told += reasons_of_pair(*pair.cells, leaning, names)
    return "; ".join(wording.with_spans(told)[:MOST_REASONS])
