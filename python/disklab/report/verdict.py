"""Whether two conditions differ, and by how much: never a bare number. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

import numpy as np

from disklab.report.verdict_interval import (
    FEWEST_REPEATS,
    Basis,
    Interval,
    Series,
    of_repeats,
    of_seconds,
)
from disklab.results import Bands
from disklab.results.bands import band_of_ratio, mover_of_ratio

EQUIVALENCE = 0.05
"""Conditions whose ratio lies within 5 % for sure do not differ: healthy hosts of one size differed
by less, unhealthy ones by more (Azure Samples' Cassandra study 2019: 19,200 to 20,100 IOPS)."""
SEED = 1
"""Of the resampling: the same results give the same report."""
MOST_REPEATS_ADVISED = 50
"""Beyond that another method is better advice than more repeats."""


class Outcome(str, Enum):
    """What can be said of a pair."""

    HIGHER = "higher"
    LOWER = "lower"
    NO_DIFFERENCE = "no difference"
    CANNOT_TELL = "cannot tell"


class Quantity(str, Enum):
    """What is compared."""

    OPS = "ops_per_s"
    P50 = "p50_ms"
    P95 = "p95_ms"
    P99 = "p99_ms"

    @property
    def label(self) -> str:
        """As charts and sentences call it."""
        return {"ops_per_s": "ops/s"}.get(self.value, self.value.removesuffix("_ms"))

    @property
    def higher_is_better(self) -> bool:
        """Rates are, latencies are not."""
        return self is Quantity.OPS


@dataclass(frozen=True)
class Sample:
    """One condition's figures of one quantity."""

    figures: tuple[float, ...]
    """One for each repeat; rates are those of a node when sides have different numbers of nodes."""
    series: tuple[Series, ...] = ()
    """The course of each repeat; may be missing."""
    predicted: bool = False
    """Repeats of a prediction differ by its seed, and tell nothing of what is not known."""
    measured: bool = False
    """Repeated at will, rehearsed or measured: single figures of it tell no direction."""
    bands: Bands | None = None
    """Of a prediction."""


@dataclass(frozen=True)
class Judgement:
    """The comparison of two conditions in one quantity."""

    quantity: Quantity
    outcome: Outcome
    ratio: float
    """Second condition over the first; 1 is equal."""
    interval: Interval | None
    """None: single figures, or repeats too short for one."""
    repeats: tuple[int, int]
    more_repeats: int | None = None
    """When it cannot be told: about how many repeats a side would tell."""
    predicted: bool = False
    """One side or both: repeats would tell nothing."""
    measured: bool = False
    """One side or both was rehearsed or measured."""
    unknown: str = ""
    """Of predictions: the value that moves their ratio most; empty when none does."""

    @property
    def basis(self) -> Basis:
        """What the judgement rests on."""
        return self.interval.basis if self.interval else Basis.SINGLE

    @property
    def leaning(self) -> int:
        """1: higher, -1: lower, 0: neither; single figures count from 5 % on if published."""
        if self.interval is not None:
            return {Outcome.HIGHER: 1, Outcome.LOWER: -1}.get(self.outcome, 0)
        if self.measured:
            return 0
        return 1 if self.ratio >= 1 + EQUIVALENCE else -1 if self.ratio <= 1 - EQUIVALENCE else 0


def judge(quantity: Quantity, before: Sample, after: Sample) -> Judgement | None:
    """Compare two conditions; None when one has no figures or they are not positive."""
    if not before.figures or not after.figures or min(*before.figures, *after.figures) <= 0:
        return None
    interval = _interval(quantity, before, after)
    ratio = interval.ratio if interval else _ratio(before, after)
    outcome = _outcome(interval)
    cannot_tell = outcome is Outcome.CANNOT_TELL
    predicted = before.predicted or after.predicted
    return Judgement(
        quantity=quantity,
        outcome=outcome,
        ratio=ratio,
        interval=interval,
        repeats=(len(before.figures), len(after.figures)),
        more_repeats=_repeats_needed(interval, before, after)
        if cannot_tell and not predicted
        else None,
        predicted=predicted,
        measured=before.measured or after.measured,
        unknown=mover_of_ratio(before.bands, after.bands, quantity.value)
        if before.bands and after.bands
        else "",
    )


def _ratio(before: Sample, after: Sample) -> float:
    return float(np.median(after.figures)) / float(np.median(before.figures))


def _interval(quantity: Quantity, before: Sample, after: Sample) -> Interval | None:
    if before.predicted or after.predicted:
        return _of_bands(quantity, before, after)
    interval = of_repeats(before.figures, after.figures)
    if interval is None and before.series and after.series:
        interval = of_seconds(before.series, after.series, np.random.default_rng(SEED))
    return interval


def _of_bands(quantity: Quantity, before: Sample, after: Sample) -> Interval | None:
    """Return the band of a ratio of two predictions; None unless both have bands."""
    if before.bands is None or after.bands is None:
        return None
    found = band_of_ratio(before.bands, after.bands, quantity.value)
    if found is None:
        return None
    ratio, confidence = _ratio(before, after), before.bands.confidence
    return Interval(ratio, ratio * found.low, ratio * found.high, confidence, Basis.BANDS)


def _outcome(interval: Interval | None) -> Outcome:
    if interval is None or interval.basis is Basis.SECONDS:
        # One or two repeats: the seconds of a run do not tell how much runs differ.
        return Outcome.CANNOT_TELL
    if interval.low >= 1 - EQUIVALENCE and interval.high <= 1 + EQUIVALENCE:
        return Outcome.NO_DIFFERENCE
    if interval.low > 1:
        return Outcome.HIGHER
    if interval.high < 1:
        return Outcome.LOWER
    return Outcome.CANNOT_TELL


def _repeats_needed(interval: Interval | None, before: Sample, after: Sample) -> int | None:
    """Return about how many repeats would bring the interval inside the bounds of equivalence.

    Intervals shrink with the root of the number of repeats; None when that many
    would not be reasonable.
    """
    repeats = min(len(before.figures), len(after.figures))
    if interval is None or interval.basis is Basis.SECONDS:
        if interval is not None and not interval.low <= 1 <= interval.high:
            return FEWEST_REPEATS
        return FEWEST_REPEATS + 2  # five against five give 95 %, and one outlier is survived
    half = np.log(interval.high / interval.low) / 2
    needed = max(repeats + 1, ceil(repeats * float(half / np.log1p(EQUIVALENCE)) ** 2))
    return needed if needed <= MOST_REPEATS_ADVISED else None


@dataclass(frozen=True)
class Crossing:
    """Where one line of a sweep crosses another."""

    first: str
    """The first level at which the order is the other one."""
    last: str
    """The last level at which it was the old one."""
    rises: bool
    """Whether the second condition rises above the first; otherwise it falls below."""


def crossings(levels: Sequence[str], judged: Sequence[Judgement | None]) -> list[Crossing]:
    """Return where the order of two lines changes for sure along the levels of a sweep."""
    found: list[Crossing] = []
    last: tuple[str, int] | None = None
    for level, judgement in zip(levels, judged, strict=True):
        leaning = judgement.leaning if judgement else 0
        if not leaning:
            continue
        if last is not None and last[1] != leaning:
            found.append(Crossing(first=level, last=last[0], rises=leaning > 0))
        last = (level, leaning)
    return found
