"""Bands: from the logarithms of draws to where a figure, or a ratio of two, lies. Pure.

**Divergence:** logarithms are taken to be normal, each side with a spread of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from disklab.results.records import Band, Bands

# How far one figure is from another: the one definition that predictions and reports use. Pure.
#
# A ratio of 2 and one of 1/2 are equally far off, by 100 %: an error that may be as large as it
# likes upwards and ends at -100 % downwards would flatter what comes out too low.

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


TENTH = 1.2816
"""Of a normal distribution: a tenth lies above the mean plus so many standard deviations."""


def band(logs: Sequence[float], residual: float, width: float = 1.0) -> Band:
    """Return where a figure lies over the predicted one in eight cases of ten.

    `logs`: of each draw's figure over the predicted one. `residual`: the factor that is left when
    every value is right, at least 1. `width`: how much wider the band is than these two tell.
    """
    rest = math.log(residual)
    return Band(
        low=math.exp(-width * math.hypot(TENTH * _spread([-log for log in logs]), rest)),
        high=math.exp(width * math.hypot(TENTH * _spread(logs), rest)),
    )


def _spread(logs: Sequence[float]) -> float:
    """Return the standard deviation that the positive logarithms alone tell."""
    return math.sqrt(2 * sum(max(log, 0.0) ** 2 for log in logs) / len(logs))


def band_of_ratio(first: Bands, second: Bands, figure: str) -> Band | None:
    """Return the band of second / first over the predicted ratio; None: one of them has none.

    Draw for draw where both met the same draws, so that what they share cancels; otherwise as of
    two predictions that have nothing in common.
    """
    if figure not in first.draws or figure not in second.draws:
        return None
    residual = max(one.pair_residuals.get(figure, 1.0) for one in (first, second))
    if first.design == second.design:
        pairs = zip(first.draws[figure], second.draws[figure], strict=True)
        return band([after - before for before, after in pairs], residual)
    one, other = first.figures[figure], second.figures[figure]
    return Band(
        low=math.exp(-math.hypot(math.log(one.high), math.log(other.low))),
        high=math.exp(math.hypot(math.log(one.low), math.log(other.high))),
    )


def mover_of_ratio(first: Bands, second: Bands, figure: str) -> str:
    """Return what moves second / first most; empty: nothing moves it much."""
    moved: dict[str, float] = {}
    for sign, bands in ((-1, first), (1, second)):
        for mover in bands.movers:
            effect = sign * math.log(mover.ratios.get(figure, 1.0))
            moved[mover.name] = moved.get(mover.name, 0.0) + effect
    name = max(moved, key=lambda name: abs(moved[name]), default="")
    return name if name and abs(moved[name]) >= LEAST_MOVED else ""


LEAST_MOVED = 0.005
"""What moves a figure by less than half a percent is not named."""
