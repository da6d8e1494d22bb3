"""Which share of the rows is asked for, as far as a cache tells.

A cache that evicts holds the rows that were asked for lately. Were reads spread evenly over a
share `w` of the rows, and did it hold a share `c` of all rows, then it would answer `c / w` of
them; so its hit ratio `h` tells `w = c / h`. A cache with room left has evicted nothing: what it
holds is what was asked for, as far as misses have become rare.

**Divergence:** reads are never spread evenly over some rows and never come to the others. `w` is
the working set that hits this cache as often; a larger cache would find a larger one. It is
believed to a factor of two, as the policy of the cache, rows in several files and writes that fill
it too are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from disklab.databases.observing import CacheSeen

LEAST_REQUESTS = 1000
"""Fewer tell nothing: their hit ratio is off by several percent."""
RARE_RATIO = 0.05
"""With fewer misses than this a cache with room has seen most of what is asked for."""
TOLD_RATIO = 0.98
"""Of a full cache: with fewer misses than 2 % their number says little of what lies beyond."""
FACTOR = 2.0
"""Either way."""


@dataclass(frozen=True)
class WorkingSet:
    """What a cache tells."""

    ratio: float
    """The share of the rows that is asked for, 0 to 1."""
    least: float
    most: float
    why: str
    """How it was found, as a sentence without a full stop."""


def working_set(first: CacheSeen, last: CacheSeen, whole: float) -> WorkingSet | str:
    """Return what a cache tells between two readings, or why it tells nothing.

    `whole`: the rows, or the bytes, of all data that could be in it, copies included.
    """
    requests, hits = last.requests - first.requests, last.hits - first.hits
    if requests < LEAST_REQUESTS:
        return f"the {last.name} was asked {max(0.0, requests):,.0f} times, which is too little"
    if whole <= 0 or last.held <= 0:
        return f"the {last.name} holds nothing"
    hit = min(1.0, max(0.0, hits / requests))
    held = min(1.0, last.held / whole)
    words = f"the {last.name} holds {held * 100:.0f} % of the {last.of}, answered {hit * 100:.0f} %"
    if held >= TOLD_RATIO:
        return f"{words}, so it cannot tell which are asked for more often"
    return _of_full(held, hit, words) if last.full else _of_roomy(held, hit, words)


def _of_roomy(held: float, hit: float, words: str) -> WorkingSet | str:
    """Return what a cache tells that never had to evict: each miss may be one more row."""
    if hit < 1 - RARE_RATIO:
        return f"{words}, and it is still being filled"
    return _bounded(held, held, held * FACTOR, f"{words}, with room to spare")


def _of_full(held: float, hit: float, words: str) -> WorkingSet:
    if hit <= held:
        return _bounded(1.0, 1 / FACTOR, 1.0, f"{words}, no more than its share")
    if hit >= TOLD_RATIO:
        return _bounded(held, 0.0, held * FACTOR, f"{words}: nearly all reads")
    ratio = held / hit
    return _bounded(ratio, ratio / FACTOR, ratio * FACTOR, words)


def _bounded(ratio: float, least: float, most: float, why: str) -> WorkingSet:
    return WorkingSet(min(1.0, ratio), min(1.0, least), min(1.0, most), why)
