"""How far one figure is from another: the one definition that predictions and reports use. Pure.

A ratio of 2 and one of 1/2 are equally far off, by 100 %: an error that may be as large as it
likes upwards and ends at -100 % downwards would flatter what comes out too low.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

TIMES_FROM = 2.0
"""From a doubling on a factor reads better than a percentage."""


def off_by(ratio: float) -> float:
    """Return how far a positive ratio is from 1, in either direction: 0.25 for 1.25 and for 0.8."""
    return max(ratio, 1 / ratio) - 1


def middle(ratios: Sequence[float]) -> float:
    """Return how far off the median ratio is; of at least one."""
    return statistics.median(map(off_by, ratios))


def largest(ratios: Sequence[float]) -> float:
    """Return how far off the worst ratio is; of at least one."""
    return max(map(off_by, ratios))


def told(off: float) -> str:
    """Return a distance in words: `4.3 %`, `30 %`, or `2.3 times`."""
    if off + 1 >= TIMES_FROM:
        return f"{off + 1:.2g} times" if off < 99 else f"{off + 1:,.0f} times"
    return f"{off * 100:.1f} %" if off < 0.0995 else f"{off * 100:.0f} %"
