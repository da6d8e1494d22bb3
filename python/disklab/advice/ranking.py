"""In which order options stand: by price what keeps the promise, then how near the rest comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from disklab.advice.options import Option
from disklab.results.required import Outcome

RANKS = (Outcome.MET, Outcome.CANNOT_TELL, Outcome.MISSED, Outcome.CANNOT_SUSTAIN)

ALIKE_RATIO = 1.25
"""Latencies without bands that differ by less are one: what a quick cell is off by."""

ALIKE_RATE_RATIO = 1.05
"""The same of rates, as in a report."""


def ranked(options: Iterable[Option], *, by_price: bool = False) -> list[Option]:
    """Return options in their order, each hardware once.

    What qualifies stands by price. What misses stands by how far it is from the promise. Options
    that differ by less than their band are one group, sorted by price. What loses
    its data with one VM comes last. `by_price`: all miss for one reason that no disk has.
    """
    if by_price:
        return distinct(sorted(options, key=_usd))
    kinds: dict[int, list[Option]] = {}
    for option in options:
        lossy = option.candidate.lossy
        rank = len(RANKS) if lossy else RANKS.index(option.kept.outcome)
        kinds.setdefault(rank, []).append(option)
    found: list[Option] = []
    for rank in sorted(kinds):
        missing = rank < len(RANKS) and RANKS[rank] in (Outcome.MISSED, Outcome.CANNOT_SUSTAIN)
        for group in groups(kinds[rank]) if missing else [kinds[rank]]:
            found += sorted(group, key=_usd)
    return distinct(found)


def groups(missing: Sequence[Option]) -> list[list[Option]]:
    """Return options that miss the promise, in groups that differ by less than their band.

    The nearest group comes first, and each begins with its nearest.
    """
    found: list[list[Option]] = []
    for option in sorted(missing, key=distance):
        if found and distance(option) <= distance(found[-1][0]) * _width(found[-1][0]):
            found[-1].append(option)
        else:
            found.append([option])
    return found


def distinct(options: Iterable[Option]) -> list[Option]:
    """Return the first option of each hardware, whatever its settings: one buys hardware."""
    found: dict[str, Option] = {}
    for option in options:
        found.setdefault(option.candidate.hardware, option)
    return [*found.values()]


def distance(option: Option) -> float:
    """Return how many times over the promise an option is; of one that falls behind, its load."""
    if option.kept.achieved_ratio is not None:
        return 1 / max(option.kept.achieved_ratio, 1e-6)
    return max((point.miss for point in option.kept.points), default=1.0)


def _width(option: Option) -> float:
    """Return by what factor another option's figure must differ to be another one."""
    behind = option.kept.achieved_ratio is not None
    bands = option.results[0].bands
    band = bands.figures.get("ops_per_s" if behind else "p99_ms") if bands is not None else None
    least = ALIKE_RATE_RATIO if behind else ALIKE_RATIO
    return least if band is None else max(least, band.high)


def _usd(option: Option) -> float:
    return option.candidate.usd_per_month
