"""What is said of pairs of cells: the answer that can be read aloud, the figures in brackets. Pure.

Every kind of answer has one function. A sentence names the better one first; a line of a sweep
is advice where its order changes on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from disklab.report import wording
from disklab.report.cells import Cell, Factor, Matrix
from disklab.report.pair import Kind, Pair
from disklab.report.reasons import carried, fails, offered, why
from disklab.report.verdict import FEWEST_REPEATS, Basis, Crossing, Judgement, Quantity, crossings
from disklab.results import Level
from disklab.results.required import paced_at

OPERATIONS = {
    "read": "reads",
    "write": "writes",
    "insert": "inserts",
    "update": "updates",
    "delete": "deletes",
    "scan": "scans",
    "read_modify_write": "reads with writes",
    "new order": "new orders",
    "new_order": "new orders",
}
PERCENTILES = {
    Quantity.P50: "median",
    Quantity.P95: "95th percentile",
    Quantity.P99: "99th percentile",
}
PREDICTED = "predict"


@dataclass(frozen=True)
class Names:
    """What the two sides are called."""

    first: str
    second: str

    @classmethod
    def of(cls, main: Factor, first: Level, second: Level) -> Names:
        """Return the levels of the main factor in the user's own words."""
        return cls(_quoted(main.phrase(first)), _quoted(main.phrase(second)))

    def by_rank(self, better: int) -> tuple[str, str]:
        """Return the better one and the other."""
        return (self.second, self.first) if better > 0 else (self.first, self.second)


def _quoted(name: str) -> str:
    """Return a name that a sentence can hold: one with a comma in quotes."""
    return (
        f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"
        if "," in name
        else name
    )


def operations(pairs: Sequence[Pair]) -> str:
    """Return what was counted: `reads`, `writes`, or `operations`."""
    # Published tables and devices have no kinds; a level may say it.
    levels = {str(level) for pair in pairs for level in pair.context.values()}
    return operations_of([cell for pair in pairs for cell in pair.cells], levels)


def operations_of(cells: Sequence[Cell], levels: Collection[str] = ()) -> str:
    """Return what cells counted, or what one of the levels names where they do not tell."""
    kinds = {name for cell in cells for result in cell.usable for name in result.per_operation}
    kinds = kinds or OPERATIONS.keys() & set(levels)
    return OPERATIONS.get(next(iter(kinds)), "operations") if len(kinds) == 1 else "operations"


def place(matrix: Matrix, context: Mapping[str, Level], counted: str) -> str:
    """Return what was held fixed, without what the operations' name tells already."""
    told = {n: v for n, v in context.items() if OPERATIONS.get(str(v)) != counted}
    return matrix.phrase(told)


def of_pair(pair: Pair, names: Names) -> str:
    """Return the sentence on one pair."""
    counted = operations([pair])
    if pair.kind is Kind.OVERLOAD:
        return overload(pair, names)
    if pair.kind is Kind.MACHINE:
        return machine([pair], counted)
    if pair.kind is Kind.UNKNOWN:
        return unknown(pair, names, counted)
    if pair.kind is Kind.EQUAL:
        return equal([pair], names, counted)
    text = difference(pair, names, counted)
    return text + (f", at a worse 99th percentile ({tail(pair)})" if pair.tail_disagrees else "")


def difference(pair: Pair, names: Names, counted: str) -> str:
    """Return who is better, by how much, and the two figures."""
    better, worse = names.by_rank(pair.seen)
    path = pair.deciding.value
    high, low = (cell.median(path) for cell in _by_rank(pair))
    about = "about " if pair.mode == PREDICTED else ""
    least = "at least " if pair.at_least else about
    judgement = pair.judgement
    if pair.deciding is Quantity.OPS:
        ratio = judgement.ratio if judgement.ratio > 1 else 1 / judgement.ratio
        how = wording.more(ratio, counted)
        figures = f"{wording.rate(high)} against {wording.rate(low)} a second"
        joint = "of" if ratio >= wording.TIMES_FROM else "than"
        return f"{better} does {least}{how} {joint} {worse} ({figures}{doubt(judgement)})"
    what = PERCENTILES[pair.deciding]
    figures = f"{wording.latency(high)} against {wording.latency(low)}"
    shorter = min(judgement.ratio, 1 / judgement.ratio)
    return (
        f"{better} answers sooner than {worse}: its {what} is {least}"
        f"{wording.percent(1 - shorter)} lower ({figures}{doubt(judgement)})"
    )


def doubt(judgement: Judgement) -> str:
    """Return the range after a semicolon: `; 90 % sure: 31 to 42 %`; empty without one."""
    interval = judgement.interval
    if interval is None or interval.basis is Basis.SECONDS:
        return ""
    low, high = interval.low, interval.high
    if judgement.ratio < 1 and judgement.quantity is Quantity.OPS:
        low, high = 1 / high, 1 / low
    if max(judgement.ratio, 1 / judgement.ratio) < wording.TIMES_FROM:
        return f"; {wording.sure(interval)}: {wording.size(low, high)}"
    ends = dict.fromkeys(wording.significant(end, 2) for end in (low, high))
    return f"; {wording.sure(interval)}: {' to '.join(ends)} times"


def equal(pairs: Sequence[Pair], names: Names, counted: str) -> str:
    """Return that two do not differ, and within what."""
    one = pairs[0]
    if all(pair.mode == PREDICTED and alike(pair.cells) for pair in pairs):
        return (
            f"The prediction does not distinguish between {names.second} and {names.first}: "
            "what they change is not simulated, or changes nothing here"
        )
    low, high = hull(pairs)
    within = max(abs(low - 1), abs(high - 1))
    repeats = one.judgement.repeats
    interval = one.judgement.interval
    known = interval is not None
    count = f", {min(repeats)} repeats" if known and min(repeats) > 1 else ""
    if interval is not None and one.mode == PREDICTED:
        count = f", {wording.sure(interval)}"
    how = f"within {ceil(within * 100 - 1e-9) or 1}{wording.SPACE}%{count}"
    about = "equally" if known else "about equally"
    load = f" for {counted}" if counted != "operations" else ""
    if one.deciding is not Quantity.OPS:
        load = f" at the given rate, {PERCENTILES[one.deciding]}"
    return f"{names.second} and {names.first} are {about} fast{load} ({how})"


def alike(cells: Sequence[Cell]) -> bool:
    """Return whether cells have the very same rates and latencies, as equal simulations do.

    Without burst credits: what they are worth later may differ.
    """
    figures = ("ops_per_s", "mean_ms", "p50_ms", "p95_ms", "p99_ms")
    if any(result.steady for cell in cells for result in cell.usable):
        return False
    return len({tuple(cell.median(name) for name in figures) for cell in cells}) == 1


def unknown(pair: Pair, names: Names, counted: str) -> str:
    """Return between what the difference lies when that does not tell."""
    low, high = hull([pair])
    load = "" if counted == "operations" else f" for {counted}"
    ends = (low, high) if pair.deciding is Quantity.OPS else (1 / high, 1 / low)
    between = (
        f"{names.second} is between {wording.speed(ends[0], names.first)} and "
        f"{wording.speed(ends[1])}"
    )
    if pair.mode == PREDICTED and pair.judgement.interval is not None:
        return f"Cannot tell{load}: {between} ({wording.sure(pair.judgement.interval)})"
    repeats = min(pair.judgement.repeats)
    if repeats < FEWEST_REPEATS:
        count = "only two repeats" if repeats > 1 else "a single repeat"
        return f"Cannot tell yet from {count}, in which {difference(pair, names, counted)}"
    return f"Cannot tell yet{load}: {between} after {repeats} repeats"


def machine(pairs: Sequence[Pair], counted: str) -> str:
    """Return that this machine's processor was the limit."""
    used = [found for pair in pairs for cell in pair.cells if (found := busy(cell)) is not None]
    share = f" ({wording.percent(max(used))} busy)" if used else ""
    return f"No answer for {counted}: this machine's processor was the limit, not the disks{share}"


def busy(cell: Cell) -> float | None:
    """Return how busy this machine was when it was the limit."""
    found = why(cell)
    return found.utilisation if found.is_machine else None


def overload(pair: Pair, names: Names) -> str:
    """Return who cannot carry the offered rate, and who can."""
    sides = list(zip((names.first, names.second), pair.cells, strict=True))
    failing = [(name, cell) for name, cell in sides if fails(cell)]
    rate = wording.rate(offered(failing[0][1]))
    told = [
        f"{wording.rate(c.median('ops_per_s'))} ({wording.percent(carried(c) or 0)})"
        for _, c in failing
    ]
    if len(failing) == 2:
        return (
            f"Neither {names.first} nor {names.second} can carry {rate} operations a second: they "
            f"do {told[0]} and {told[1]}"
        )
    ((name, failed),) = failing
    other, carries = next(one for one in sides if one[1] is not failed)
    p99 = carries.median("p99_ms")
    quick = f", 99th percentile {wording.latency(p99)}" if p99 is not None else ""
    return (
        f"{name} cannot carry {rate} operations a second: it does {told[0]}. "
        f"{wording.capital(other)} carries them{quick}"
    )


def ranked(main: Factor, cells: Sequence[Cell]) -> str:
    """Return all candidates in their order, which pairs with the first one do not tell.

    Those that carry the offered rate, or keep to a closed loop's ceiling, by price, or by their
    99th percentile where a price is not known; of another closed loop by rate. Empty: fewer than
    three have figures, all have the same, or fewer than two carry the rate.
    """
    usable = [cell for cell in cells if cell.median("ops_per_s") is not None]
    if len(usable) < FEWEST_RANKED or alike(usable):
        return ""
    rate = offered(usable[0])
    carriers = [cell for cell in usable if not fails(cell)]
    paced = [cell for cell in usable if paced_at(cell.usable)]
    ceilings = {paced_at(cell.usable) for cell in paced}
    if len(paced) >= FEWEST_CARRIERS and len(ceilings) == 1:
        rate, carriers = ceilings.pop(), paced
    if rate is None:
        usable.sort(key=lambda cell: -(cell.median("ops_per_s") or 0))
        told = [_figured(main, cell, wording.rate(cell.median("ops_per_s"))) for cell in usable]
        return f"By {operations_of(usable)} a second: {', '.join(told)}"
    if len(carriers) < FEWEST_CARRIERS:
        return ""
    priced = all(_usd(cell) is not None for cell in carriers)
    carriers.sort(key=lambda cell: (_usd(cell) if priced else cell.median("p99_ms")) or 0)
    told = [
        _figured(main, cell, f"p99 {wording.latency(cell.median('p99_ms'))}") for cell in carriers
    ]
    failing = ", ".join(_level(main, cell) for cell in usable if cell not in carriers)
    return (
        f"{wording.rate(rate)} operations a second can be carried by these, the "
        f"{'cheapest' if priced else 'fastest'} first: {', '.join(told)}"
        f"{f'; not by {failing}' if failing else ''}"
    )


FEWEST_RANKED, FEWEST_CARRIERS = 3, 2


def _level(main: Factor, cell: Cell) -> str:
    return _quoted(main.phrase(cell.factors[main.name]))


def _usd(cell: Cell) -> float | None:
    return cell.usable[0].price_usd_per_month


def _figured(main: Factor, cell: Cell, figure: str) -> str:
    usd = _usd(cell)
    price = f", {wording.money(usd)} a month" if usd is not None else ""
    return f"{_level(main, cell)} ({figure}{price})"


def tail(pair: Pair) -> str:
    """Return the 99th percentile of the better one, which is the worse, and the other's."""
    high, low = (cell.median(Quantity.P99.value) for cell in _by_rank(pair))
    return f"{wording.latency(high)} against {wording.latency(low)}"


def _by_rank(pair: Pair) -> tuple[Cell, Cell]:
    """Return the better cell and the other."""
    first, second = pair.cells
    return (second, first) if pair.seen > 0 else (first, second)


def hull(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the span of the pairs' intervals, or of their ratios where they have none."""
    lows = [p.judgement.interval.low if p.judgement.interval else p.judgement.ratio for p in pairs]
    highs = [
        p.judgement.interval.high if p.judgement.interval else p.judgement.ratio for p in pairs
    ]
    return min(lows), max(highs)


def of_line(sweep: Factor, names: Names, line: Sequence[Pair]) -> tuple[str, list[Crossing]]:
    """Return the sentence on one line of a sweep, and where its order changes."""
    counted = operations(line)
    crossed = crossings(
        [sweep.phrase(pair.context[sweep.name]) for pair in line],
        [pair.judgement for pair in line],
    )
    groups = [list(group) for _, group in groupby(line, key=lambda pair: pair.kind)]
    if len(groups) == 1 and groups[0][0].kind in (Kind.EQUAL, Kind.MACHINE):
        (group,) = groups
        text = (
            equal(group, names, counted) if group[0].kind is Kind.EQUAL else machine(group, counted)
        )
        return f"{text}, at every level of {sweep.title}", crossed
    parts = [f"{segment(group, counted)} {stretch(sweep, group, line)}" for group in groups]
    decided = [group for group in groups if group[0].kind is not Kind.EQUAL]
    told = [group[0].kind for group in decided]
    tails = [pair for pair in line if pair.tail_disagrees]
    if told in ([Kind.BETTER, Kind.WORSE], [Kind.WORSE, Kind.BETTER]):
        chosen = [names.second if kind is Kind.BETTER else names.first for kind in told]
        where = [stretch(sweep, group, line) for group in decided]
        text = f"Choose {chosen[0]} {where[0]}, {chosen[1]} {where[1]}"
        text += f" ({names.second}: {', '.join(parts)})"
    else:
        text = f"{names.second} against {names.first}: {'; '.join(parts)}"
    if tails:
        worst = max(tails, key=lambda pair: abs(pair.judgements[Quantity.P99].ratio - 1))
        better, _ = names.by_rank(worst.better)
        at = sweep.phrase(worst.context[sweep.name])
        text += f"; the 99th percentile of {better} is the worse one ({tail(worst)} at {at})"
    return text, crossed


def segment(run: Sequence[Pair], counted: str) -> str:
    """Return what neighbouring pairs of one kind say together."""
    kind, deciding = run[0].kind, run[0].deciding
    low, high = hull(run)
    if kind is Kind.OVERLOAD:
        return "one or both cannot carry the offered rate"
    if kind is Kind.MACHINE:
        return "no answer, because this machine's processor was the limit,"
    if kind is Kind.UNKNOWN:
        return f"cannot tell ({wording.change_range(low, high)})"
    if kind is Kind.EQUAL:
        return f"equally fast ({wording.change_range(low, high)})"
    about = "about " if run[0].mode == PREDICTED else ""
    if deciding is Quantity.OPS:
        return about + wording.more_or_fewer(low, high, counted)
    word = "lower" if high < 1 else "higher"
    return f"{about}{wording.size(low, high)} {word} {PERCENTILES[deciding]}"


def stretch(sweep: Factor, run: Sequence[Pair], line: Sequence[Pair]) -> str:
    """Return where on the sweep: `up to 128 threads`, `from 256 threads on`."""
    levels = [sweep.phrase(pair.context[sweep.name]) for pair in run]
    if len(run) == len(line):
        return f"at every level of {sweep.title}"
    if run[0] is line[0]:
        return f"up to {levels[-1]}" if len(run) > 1 else f"at {levels[0]}"
    if run[-1] is line[-1]:
        return f"from {levels[0]} on" if len(run) > 1 else f"at {levels[0]}"
    return f"from {levels[0]} to {levels[-1]}" if len(run) > 1 else f"at {levels[0]}"
