"""Whether two conditions differ, and by how much: never a bare number. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import ceil, comb, exp, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from disklab.results import Bands
from disklab.results.bands import band_of_ratio, mover_of_ratio

# Intervals for the ratio of two conditions, without assuming a distribution. Pure.
#
# With three or more repeats on both sides: Hodges-Lehmann's estimate on logarithms with the exact
# interval of the Mann-Whitney test. With fewer, the seconds of the repeats are resampled in blocks
# longer than their autocorrelation; that interval tells how steady the repeats were, not how much
# repeats differ, and says so in its basis.
#
# **Source:** Hodges and Lehmann 1963; Bauer 1972 (the interval); Politis and Romano 1992 (circular
# blocks); Maricq, OSDI'18 (non-parametric intervals for systems).

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
FEWEST_REPEATS = 3
"""Two against two repeats order themselves by chance in a third of all cases; three, in a tenth."""
MOST_EXACT = 50
"""Repeats of a side from which on the normal distribution serves: the exact counts take seconds."""
MOST_REPEATS = 1000
"""Repeats of a side whose differences are all formed: a million of them."""
RESAMPLES = 1000
"""The ends of a 95 % interval then rest on 25 resamples each."""
FEWEST_BLOCKS = 8
"""Below that a series holds too few independent pieces for any interval."""
BLOCK_TIMES = 3.0
"""Autocorrelation times a block. Simulated (AR(1), 0.8): two cover 87 %, three 95 %."""
SMALLEST_DRAW = 1e-6
"""Of a figure: keeps the logarithm finite when a resample is all standstill."""
MOST_LAG_SHARE = 4
"""Autocorrelation is summed up to a quarter of the series: further lags are noise."""


class Basis(str, Enum):
    """What an interval rests on."""

    REPEATS = "repeats"
    SECONDS = "seconds"
    """Of one or two repeats: the spread between repeats is not in it."""
    BANDS = "bands"
    """Of predictions: what is not known of disks, machines and database."""
    SINGLE = "single figures"
    """No interval: published tables, predictions without bands."""


@dataclass(frozen=True)
class Interval:
    """A ratio (1 is equal) with its confidence interval."""

    ratio: float
    low: float
    high: float
    confidence: float
    """The attained one: three against three repeats cannot give more than 90 %."""
    basis: Basis


def of_repeats(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """Return after / before from repeats; None with too few, or figures that are not positive."""
    if min(len(before), len(after)) < FEWEST_REPEATS or min(*before, *after) <= 0:
        return None
    logs_before, logs_after = _logs(before), _logs(after)
    differences = np.sort(np.subtract.outer(logs_after, logs_before).ravel())
    cut, confidence = _cut(len(before), len(after))
    # Of many repeats some stand for all: as large a share of the differences is cut off.
    cut = max(1, round(cut * len(differences) / (len(before) * len(after))))
    return Interval(
        ratio=exp(float(np.median(differences))),
        low=exp(float(differences[cut - 1])),
        high=exp(float(differences[len(differences) - cut])),
        confidence=confidence,
        basis=Basis.REPEATS,
    )


def _logs(figures: Sequence[float]) -> Floats:
    """Return the logarithms in order: of many, evenly spaced order statistics."""
    ordered = np.sort(np.log(figures))
    if len(ordered) <= MOST_REPEATS:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, MOST_REPEATS).round().astype(np.int64)]


@lru_cache(maxsize=256)
def _cut(first: int, second: int) -> tuple[int, float]:
    """Return how many ordered differences lie outside on each side, plus one, and the confidence.

    The highest cut whose confidence is still `CONFIDENCE`; cut 1, the whole range, if none is.
    """
    if max(first, second) > MOST_EXACT:
        # Mann-Whitney's U is nearly normal; half a count is the correction for whole numbers.
        middle = first * second / 2
        spread = sqrt(first * second * (first + second + 1) / 12)
        cut = max(1, int(middle - NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * spread + 0.5))
        return cut, 1 - 2 * NormalDist(middle, spread).cdf(cut - 0.5)
    ways = _rank_sums(first, second)
    all_ways = comb(first + second, first)
    cut, below = 1, ways[0]
    while 2 * (below + ways[cut]) <= (1 - CONFIDENCE) * all_ways:
        below += ways[cut]
        cut += 1
    return cut, 1 - 2 * below / all_ways


def _rank_sums(first: int, second: int) -> list[int]:
    """Return in how many ways Mann-Whitney's U comes out as 0, 1, 2, ... when nothing differs."""
    # Coefficients of the Gaussian binomial, multiplied and divided factor by factor.
    ways = [1] + [0] * (first * second)
    for factor in range(1, first + 1):
        for u in range(len(ways) - 1, second + factor - 1, -1):
            ways[u] -= ways[u - second - factor]
        for u in range(factor, len(ways)):
            ways[u] += ways[u - factor]
    return ways


Statistic = Callable[[Floats], Floats]
"""Weights (resamples x windows, how often each window counts) -> a figure for each resample."""


@dataclass(frozen=True)
class Series:
    """The windows of one repeat, and a figure of any weighting of them."""

    figures: Floats
    """The figure of each window, for the autocorrelation."""
    statistic: Statistic


def of_seconds(
    before: Sequence[Series], after: Sequence[Series], random: np.random.Generator
) -> Interval | None:
    """Return after / before from the course of few repeats; None when they are too short."""
    sides = []
    for repeats in (before, after):
        drawn = [_resampled(series, random) for series in repeats]
        usable = [one for one in drawn if one is not None]
        if not usable or len(usable) < len(drawn):
            return None
        # Each resample takes one of the repeats: their difference is then in the interval too.
        chosen = random.integers(len(usable), size=RESAMPLES)
        sides.append(np.stack([one[1] for one in usable])[chosen, np.arange(RESAMPLES)])
        sides.append(np.array([one[0] for one in usable]))
    drawn_before, seen_before, drawn_after, seen_after = sides
    if min(float(side.min()) for side in sides) <= 0:
        return None
    logs = np.log(drawn_after) - np.log(drawn_before)
    centre = float(np.median(np.log(seen_after)) - np.median(np.log(seen_before)))
    low, high = np.quantile(logs, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(exp(centre), exp(float(low)), exp(float(high)), CONFIDENCE, Basis.SECONDS)


def _resampled(series: Series, random: np.random.Generator) -> tuple[float, Floats] | None:
    """Return the repeat's figure and those of its resamples; None when it is too short."""
    length = len(series.figures)
    block = block_length(series.figures)
    blocks = length // block
    if blocks < FEWEST_BLOCKS:
        return None
    starts = random.integers(length, size=(RESAMPLES, blocks))
    # Where blocks start and where they have ended, on a circle; the running sum is the weight.
    weights = np.zeros((RESAMPLES, length + block), dtype=np.float64)
    rows = np.arange(RESAMPLES)[:, None]
    np.add.at(weights, (rows, starts), 1.0)
    np.add.at(weights, (rows, starts + block), -1.0)
    weights = np.cumsum(weights, axis=1)
    weights[:, :block] += weights[:, length:]
    seen = float(series.statistic(np.ones((1, length)))[0])
    drawn = series.statistic(weights[:, :length])
    # Here, because it takes a quarter of a second, and most commands judge nothing.
    from scipy.special import stdtrit  # type: ignore[import-untyped] # noqa: PLC0415

    # Few blocks vary too little, as a sample's variance does; and Student's t is wider than Gauss.
    widened = (
        float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2))
        / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        * np.sqrt(blocks / (blocks - 1))
    )
    if seen <= 0:
        return seen, drawn
    return seen, seen * np.exp(widened * np.log(np.maximum(drawn, seen * SMALLEST_DRAW) / seen))


def block_length(figures: Floats) -> int:
    """Return a block length that holds the series' autocorrelation: at least length^(1/3).

    A few times the integrated autocorrelation time; the sum ends at the first lag that is not
    positive
    (Geyer 1992, in its simplest form).
    """
    length = len(figures)
    least = max(1, round(float(np.cbrt(length))))
    centred = figures - figures.mean()
    variance = float(centred @ centred)
    if variance <= 0:
        return least
    time = 1.0
    for lag in range(1, length // MOST_LAG_SHARE):
        correlation = float(centred[:-lag] @ centred[lag:]) / variance
        if correlation <= 0:
            break
        time += 2 * correlation
    return max(least, round(BLOCK_TIMES * time))


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
