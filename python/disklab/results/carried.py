"""Whether an offered rate was carried: the one rule of reports, requirements and advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from disklab.results.records import TrialResult

SUSTAINED = 0.97
"""Share of the offered operations from which a rate counts as carried.

What is under way at the end is not counted. A queue that grows is soon far below.
"""
SURE = ("even", "trace")
"""Arrivals that are the same each time."""
DEVIATIONS = 4
"""Random arrivals of N operations vary by 1/sqrt(N) (one standard deviation). Further than four of
them off is chance in one run of 30,000."""


def offered_per_s(result: TrialResult) -> float | None:
    """Return the rate that an open loop offered, operations a second; None of a closed loop."""
    rate = result.loop.get("rate_per_s")
    return float(rate) if rate else None


def carried_ratio(results: Sequence[TrialResult]) -> float | None:
    """Return the median of achieved over offered rates; None: the loop was closed."""
    ratios = [
        result.ops_per_s / rate
        for result in results
        if result.ops_per_s is not None and (rate := offered_per_s(result)) is not None
    ]
    return median(ratios) if ratios else None


def least_ratio(results: Sequence[TrialResult]) -> float:
    """Return the share of an offered rate that still counts as carried, by the shortest run.

    Short runs of random arrivals may do less by chance.
    """
    found = [_least(result) for result in results if offered_per_s(result) is not None]
    return min(found, default=SUSTAINED)


def is_overloaded(results: Sequence[TrialResult]) -> bool:
    """Return whether a cell cannot carry the rate that was offered to it."""
    ratio = carried_ratio(results)
    return ratio is not None and ratio < least_ratio(results)


def _least(result: TrialResult) -> float:
    rate, seconds = offered_per_s(result), result.duration_s
    if not rate or not seconds or result.loop.get("arrivals") in SURE:
        return SUSTAINED
    return min(SUSTAINED, max(0.0, 1 - DEVIATIONS / math.sqrt(rate * seconds)))
