"""Where warm-up ends and steady state begins, told from the rate of each second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# Fewer seconds cannot tell a trend from noise.
LEAST_SECONDS = 5
# SNIA's criteria (SSS PTS 2.0.2): over the window the least-squares line changes by no more than
# 10 % of the mean, and no value leaves the mean by more than 20 %. One second of a database varies
# more than SNIA's rounds of a minute: a tenth of the seconds may leave the band.
MOST_DRIFT_RATIO = 0.10
MOST_EXCURSION_RATIO = 0.20
MOST_OUTSIDE_RATIO = 0.10


@dataclass(frozen=True)
class Steady:
    """What the seconds of a run tell."""

    from_s: int | None
    """The first second of the longest steady end of the run; None: there is no steady state."""
    drift_ratio: float
    """Change of the fitted line over the window, as a share of the mean. Of the whole run when
    there is no steady state."""

    @property
    def found(self) -> bool:
        """Whether there is a steady state."""
        return self.from_s is not None


def steady_state(rates: Sequence[float]) -> Steady:
    """Return from which second on the rates are steady to the end of the run.

    A steady end shorter than half of the run is none: the run was too short to tell.

    **Source:** SNIA SSS PTS 2.0.2 (steady-state criteria), with the window as long as the data
    allow; Barrett et al., OOPSLA'17: say so when there is no steady state.
    """
    last = len(rates) - max(LEAST_SECONDS, math.ceil(len(rates) / 2))
    for start in range(last + 1):
        window = rates[start:]
        mean = fmean(window)
        if mean <= 0:
            continue
        outside = sum(abs(rate - mean) > MOST_EXCURSION_RATIO * mean for rate in window)
        drift = drift_ratio(window)
        if abs(drift) <= MOST_DRIFT_RATIO and outside <= MOST_OUTSIDE_RATIO * len(window):
            return Steady(start, drift)
    return Steady(None, drift_ratio(rates))


def drift_ratio(rates: Sequence[float]) -> float:
    """Return by which share of its mean the fitted line changes from first to last second."""
    count = len(rates)
    mean = fmean(rates) if rates else 0.0
    if count < 2 or mean <= 0:
        return 0.0
    middle = (count - 1) / 2
    spread = sum((second - middle) ** 2 for second in range(count))
    slope = sum((second - middle) * (rate - mean) for second, rate in enumerate(rates)) / spread
    return slope * (count - 1) / mean
