"""How figures and judgements read: one place for all sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import floor, log10

from disklab.report.verdict import EQUIVALENCE, Basis, Interval, Judgement, Outcome, Quantity

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
TIMES_FROM, TIMES_TO = 2.0, 3.0
"""From a doubling on a factor reads better than a percentage; also for a range that ends there."""
SMALL_CHANGE = 0.095  # rounds to less than ten per cent
LEAST_SHARE = 1e-4
_PERCENT = re.compile(rf"[\d.]+{SPACE}%")


def in_a_row(names: Sequence[str]) -> str:
    """Return one or more names as a list: `A`, `A and B`, `A, B and C`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def significant(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits and thousands apart: 1,230 or 0.00512."""
    if value == 0:
        return "0"
    places = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, places)}f}"


def two_digits(value: float) -> str:
    """Return a figure with two digits, and none that say nothing: 1,100, 13 or 3."""
    return f"{float(f'{value:.2g}'):,g}"


def rate(per_s: float | None) -> str:
    """Return a rate without its unit."""
    return "" if per_s is None else significant(per_s)


def with_spans(sentences: Iterable[str]) -> list[str]:
    """Return each sentence once; those that differ in one percentage become one with its span."""
    alike: dict[str, dict[str, None]] = {}
    for sentence in sentences:
        shares = _PERCENT.findall(sentence)
        name = _PERCENT.sub("%", sentence) if len(shares) == 1 else sentence
        alike.setdefault(name, {})[sentence] = None
    return [_with_span(list(group)) for group in alike.values()]


def _with_span(sentences: list[str]) -> str:
    if len(sentences) == 1:
        return sentences[0]
    shares = [_PERCENT.findall(sentence)[0] for sentence in sentences]
    low, *_, high = sorted(shares, key=lambda share: float(share.rstrip(f"{SPACE}%")))
    return _PERCENT.sub(f"{low} to {high}", sentences[0])


def milliseconds(ms: float) -> str:
    """Return a latency of a column in ms, or before that unit: `0.912`, `7.38`, `44,300`."""
    return f"{ms:.3g}" if ms < 1000 else significant(ms)


def latency(ms: float | None) -> str:
    """Return a latency with its unit: `912 us`, `7.38 ms`, `84.4 s`."""
    if ms is None:
        return ""
    if ms < 1:
        return f"{significant(ms * 1000)}{SPACE}us"
    return f"{significant(ms)}{SPACE}ms" if ms < 1000 else f"{significant(ms / 1000)}{SPACE}s"


def latencies(ms: Sequence[float]) -> str:
    """Return latencies beside each other, the unit once where they share it."""
    told = [latency(one) for one in ms]
    units = {one.rpartition(SPACE)[2] for one in told}
    if len(units) == 1:
        told[:-1] = [one.rpartition(SPACE)[0] for one in told[:-1]]
    return " · ".join(told)


def percent(share: float) -> str:
    """Return a share of one; what is not all is never rounded up to all.

    Below a ten-thousandth, which no figure of a run is exact to, it is none.
    """
    if abs(share) < LEAST_SHARE:
        return f"0{SPACE}%"
    whole = round(share * 100)
    if whole == 100 and share < 1:
        return f"{floor(share * 1000) / 10:g}{SPACE}%"
    return f"{whole}{SPACE}%" if share >= 0.01 or share == 0 else f"{share * 100:.2g}{SPACE}%"


def signed(change: float, digits: int = 0) -> str:
    """Return a change as +3 % or -2 %, with a real minus."""
    text = f"{abs(change) * 100:.{digits}f}"
    none = float(text) == 0
    sign = "" if none else MINUS if change < 0 else "+"
    return f"{sign}{text}{SPACE}%"


def change_range(low: float, high: float) -> str:
    """Return an interval of ratios as changes: `-2 % to +3 %`, or `2.1 to 2.4 times`."""
    if in_times(low, high):
        ends = two_digits(low), two_digits(high)
        return f"{ends[0]} times" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} times"
    # Two small changes that look alike get another digit.
    alike = signed(low - 1) == signed(high - 1)
    digits = 1 if alike and abs(high - 1) < SMALL_CHANGE else 0
    first, last = signed(low - 1, digits), signed(high - 1, digits)
    return first if first == last else f"{first} to {last}"


def in_times(low: float, high: float) -> bool:
    """Return whether a range of ratios is told as factors."""
    return low >= TIMES_FROM or (low > 1 and high >= TIMES_TO)


def size(low: float, high: float) -> str:
    """Return how much more or less, without a sign: `31 % to 42 %`, or `2.1 to 2.4 times`."""
    if in_times(low, high):
        return change_range(low, high)
    ends = sorted((abs(low - 1), abs(high - 1)))
    first, last = (signed(end).lstrip("+") for end in ends)
    return first if first == last else f"{first.removesuffix(f'{SPACE}%')} to {last}"


def more(ratio: float, counted: str) -> str:
    """Return how much more, of a ratio from 1 on: `8.9 times the reads`, `36 % more reads`."""
    if ratio >= TIMES_FROM:
        return f"{significant(ratio, 2)} times the {counted}"
    return f"{percent(ratio - 1)} more {counted}"


def more_or_fewer(low: float, high: float, counted: str) -> str:
    """Return a span of ratios on one side of 1: `1.6 to 3.3 times the reads`, `12 % fewer`."""
    if in_times(low, high):
        return f"{change_range(low, high)} the {counted}"
    return f"{size(low, high)} {'more' if high > 1 else 'fewer'} {counted}"


def speed(ratio: float, other: str = "") -> str:
    """Return a ratio of rates: `12 % slower than P30`, `2.2 times as fast as P30`."""
    if ratio >= TIMES_FROM:
        return f"{two_digits(ratio)} times as fast" + (f" as {other}" if other else "")
    how = f"{percent(abs(ratio - 1))} {'faster' if ratio >= 1 else 'slower'}"
    return how + (f" than {other}" if other else "")


def sure(interval: Interval) -> str:
    """Return what a range is worth: `90 % sure`."""
    return f"{floor(interval.confidence * 100 + 1e-9)}{SPACE}% sure"


def difference(quantity: Quantity, outcome: Outcome, low: float, high: float) -> str:
    """Return what a judgement says in a table: `equal (+1 % to +3 %)`, `31 % to 42 % faster`."""
    if outcome is Outcome.NO_DIFFERENCE:
        return f"equal ({change_range(low, high)})"
    if outcome is Outcome.CANNOT_TELL:
        return f"cannot tell ({change_range(low, high)})"
    higher = outcome is Outcome.HIGHER
    if quantity is not Quantity.OPS:
        return f"{size(low, high)} {'higher' if higher else 'lower'} {quantity.label}"
    times = in_times(low, high)
    return f"{size(low, high)} {'as fast' if times else 'faster' if higher else 'slower'}"


def judged(judgement: Judgement) -> str:
    """Return one judgement in a few words, for a table."""
    interval = judgement.interval
    if interval is None:
        return change_range(judgement.ratio, judgement.ratio)
    return difference(judgement.quantity, judgement.outcome, interval.low, interval.high)


def basis(judgement: Judgement) -> str:
    """Return what a judgement rests on, in a few words."""
    interval = judgement.interval
    if interval is None and judgement.predicted:
        return "one simulated run; `disklab predict --bands` shows how certain it is"
    if interval is None:
        if not judgement.measured:
            return "as published, without repeats"
        few = "one valid repeat" if min(judgement.repeats) == 1 else "two valid repeats"
        return f"{few}, too short for an interval"
    if interval.basis is Basis.SECONDS:
        few = "one valid repeat" if min(judgement.repeats) == 1 else "two valid repeats"
        return f"from the seconds of {few}; it does not include how much repeats differ"
    if interval.basis is Basis.BANDS:
        return "simulated; the range covers what is not known about disks, machines and database"
    first, second = judgement.repeats
    repeats = f"{first}" if first == second else f"{first} and {second}"
    return f"{confidence(interval)}, {repeats} repeats"


def basis_of(judgements: Sequence[Judgement]) -> str:
    """Return what several judgements rest on, and how surely all of them hold at once.

    **Source:** Bonferroni: the shares of cases in which each fails add up at worst.
    """
    told = "; ".join(dict.fromkeys(basis(one) for one in judgements))
    sure = [one.interval.confidence for one in judgements if one.interval]
    if len(sure) < 2:
        return told
    together = floor((1 - sum(1 - one for one in sure)) * 100 + 1e-9)
    if together < LEAST_TOGETHER:
        return f"{told}; each by itself, not all {len(sure)} at once"
    return f"{told}; all {len(sure)} at once: {together}{SPACE}% at least"


LEAST_TOGETHER = 50
"""Percent: what holds less often than not is not named."""


def confidence(interval: Interval) -> str:
    """Return `95 % interval`; the attained level, never more than it is."""
    return f"{floor(interval.confidence * 100 + 1e-9)}{SPACE}% interval"


def bounds() -> str:
    """Return what `equally fast` means."""
    return f"equally fast means: at most {percent(EQUIVALENCE)} apart"


def money(usd: float | None) -> str:
    """Return an amount in dollars."""
    if usd is None:
        return ""
    return f"${usd:,.0f}" if usd >= 100 else f"${usd:,.2f}"


def span(seconds: float | None) -> str:
    """Return a duration: `60 s`, `12 min`, `10.5 h`, `12 days`, `7.3 years`."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.{0 if seconds >= 10 else 1}f}".removesuffix(".0") + f"{SPACE}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}{SPACE}min"
    days = seconds / 86_400
    if days < 2:
        return f"{seconds / 3600:.1f}{SPACE}h"
    return f"{days:,.0f}{SPACE}days" if days < 730 else f"{days / 365:,.1f}{SPACE}years"


def capital(text: str) -> str:
    """Return the text with a capital."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return the text with a capital and a full stop."""
    text = text.strip()
    return capital(text) + ("" if text.endswith((".", "!", "?")) else ".")


def counted(count: int, what: str) -> str:
    """Return `1 more comparison`, `2 more comparisons`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
