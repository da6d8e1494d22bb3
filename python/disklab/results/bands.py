"""Bands: from the logarithms of draws to where a figure, or a ratio of two, lies. Pure.

**Divergence:** logarithms are taken to be normal, each side with a spread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from disklab.results.records import Band, Bands

TENTH = 1.2816
"""Of a normal distribution: a tenth lies above the mean plus so many standard deviations."""


def band(logs: Sequence[float], residual: float) -> Band:
    """Return where a figure lies over the predicted one in eight cases of ten.

    `logs`: of each draw's figure over the predicted one. `residual`: the factor that is left when
    every value is right, at least 1.
    """
    rest = math.log(residual)
    return Band(
        low=math.exp(-math.hypot(TENTH * _spread([-log for log in logs]), rest)),
        high=math.exp(math.hypot(TENTH * _spread(logs), rest)),
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
