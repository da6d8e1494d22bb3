"""Service times of a kind of disk as published measurements have them: one stated function. Pure.

A profile is of one period and one operation. Of its measurements those count that were taken at
depth 1 of the disk itself, without a cache and below every limit, with blocks of at most 16 KiB.

- Its median is the median over the sources, each source being the median of its measurements. A
  measurement that gives a mean alone has the median that its shape's median is of its mean.
- A percentile that sources state is the median over them of its ratio to their own median. The
  other percentiles are those of the profile's `shape`, between the neighbours that are stated.
- Its band is that of eight disks of ten: of the sources' medians, and of machines of one source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from disklab.catalog.facts import DistributionFacts, Facts, LatencyFacts, Sources, Status
from disklab.catalog.profile import BASE_KIB, PPM, latency_profile, mean_ns, quantile_ns

if TYPE_CHECKING:
    from disklab.catalog.load import Catalog
    from disklab.catalog.profile import Distribution

MOST_KIB = 16
"""Larger blocks tell of the path's bandwidth, and smaller ones are moved by the term per KiB."""
ONE_SOURCE_BAND = Fraction(14, 10)
"""One source knows one disk of one day: averages of a kind of disk lie up to 1.4 apart."""
LEAST_BAND = Fraction(115, 100)
"""Equal machines differ by that much (Azure-Samples 2019, the noise dataset of 2024)."""

EIGHT_OF_TEN = 1.9
"""Of a normal distribution: the 80 % interval's half over the median distance from the middle."""

Operation = Literal["read", "write", "flush"]


class Measurement(Facts):
    """What somebody measured and published of one disk."""

    disk: str | None = None
    vm: str | None = None
    year: int | None = None
    """When it was measured; absent: the source does not say, and the line does not count."""
    until: int | None = None
    tool: str | None = None
    op: Literal["read", "write", "both", "flush", "sync"]
    """`sync`: a file's fsync or fdatasync, which is several I/Os of the device."""
    kib: Decimal | None = None
    depth: int = 1
    cache: str = "None"
    mean_ms: Decimal | None = None
    percentiles_ms: dict[Decimal, Decimal] = Field(default={})
    machines_ms: tuple[Decimal, Decimal] | None = None
    """The spread between machines or runs, where the source states it."""
    samples: int | None = None
    cap: str | None = None
    """The limit that held it up: such a latency is waiting, and not a service time."""
    basis: Literal["device", "derived", "fsync", "app", "model"]
    """`device`: the disk's own I/Os; `derived`: computed from the source's figures, as the note
    says; `fsync`, `app`: of a file or a database, an upper bound; `model`: a planner's."""
    source: str
    note: str | None = None

    @model_validator(mode="after")
    def _has_a_figure(self) -> Measurement:
        if self.mean_ms is None and not self.percentiles_ms:
            raise ValueError("give mean_ms or percentiles_ms")
        return self

    def counts(self, of: Operation, years: tuple[int, int]) -> bool:
        """Return whether it is a service time of the disk, of that operation and period."""
        return self.bounds(of, years) and self.depth == 1 and self.cap is None

    def bounds(self, of: Operation, years: tuple[int, int]) -> bool:
        """Return whether a service time is no longer than that: what waits takes longer."""
        return (
            (self.op == of or (self.op == "both" and of != "flush"))
            and self.basis in ("device", "derived")
            and self.cache == "None"
            and (self.kib is None or self.kib <= MOST_KIB)
            and self.year is not None
            and years[0] <= self.year <= years[1]
            and (self.mean_ms is not None or Decimal(50) in self.percentiles_ms)
        )


class ProfiledOperation(Facts):
    """One operation of a profile that follows from measurements."""

    of: str
    """The kind of disk: a key of `evidence`."""
    shape: str
    """Whose percentiles stand where no source states any: `NAME/read` or `NAME/write`."""
    per_kib_us: Decimal = Decimal(0)
    mean_ms: Decimal | None = None
    """What is assumed where nobody measured."""
    within: Decimal | None = Field(default=None, ge=1)
    """The band at least: of what is assumed, and where sources contradict each other."""
    because: str | None = None
    source: Sources = Field(default=[])


class ProfileFacts(Facts):
    """Service times that follow from the measurements of one period."""

    years: tuple[int, int]
    read: ProfiledOperation
    write: ProfiledOperation
    flush: Literal["durable", "write"] | ProfiledOperation = Field(default="durable")
    """`durable`: acknowledged writes are, so a flush finds nothing to wait for; `write`: as long as
    a write."""


def measurements(
    evidence: Sequence[Measurement], of: Operation, years: tuple[int, int]
) -> list[Measurement]:
    """Return the measurements that count for an operation in a period."""
    return [row for row in evidence if row.counts(of, years)]


def profiled(catalog: Catalog, facts: ProfileFacts) -> LatencyFacts:
    """Return the service times of a profile. Its shapes are in the catalogue already."""
    read, write = (
        _distribution(catalog, getattr(facts, of), of, facts.years) for of in ("read", "write")
    )
    flush = write.model_copy(update={"status": "assumed", "note": "as a write"})
    if isinstance(facts.flush, ProfiledOperation):
        flush = _distribution(catalog, facts.flush, "flush", facts.years)
    elif facts.flush == "durable":
        note = "acknowledged writes are durable"
        source = ["disklab_assumption"]
        flush = DistributionFacts(
            status="assumed", source=source, note=note, constant_us=Decimal(0)
        )
    note = f"as measured {_period(facts.years)}"
    return LatencyFacts(note=note, read=read, write=write, flush=flush)


def band(levels: Iterable[Fraction], machines: Iterable[Fraction]) -> Fraction:
    """Return the factor within which eight of ten disks lie.

    `levels`: the median of each source over that of all; of a normal spread, eight of ten are
    within 1.9 times the median distance. `machines`: the ends of the spread between machines of
    one source, over its mean; they are percentiles 10 and 90 already.
    """
    distances = [abs(math.log(ratio)) for ratio in levels]
    least = ONE_SOURCE_BAND if len(distances) < 2 else LEAST_BAND
    spread = Fraction(math.exp(EIGHT_OF_TEN * median(distances))).limit_denominator(100)
    return max([least, spread, *(max(ratio, 1 / ratio) for ratio in machines)])


@dataclass(frozen=True)
class _Standing:
    """What a distribution rests on."""

    status: Status
    sources: list[str]
    note: str
    within: Fraction = ONE_SOURCE_BAND


def _distribution(
    catalog: Catalog, facts: ProfiledOperation, of: Operation, years: tuple[int, int]
) -> DistributionFacts:
    shape = _shape(catalog, facts.shape)
    rows = measurements(catalog.evidence.get(facts.of, []), of, years)
    if not rows:
        mean_us = Fraction(facts.mean_ms or 0) * 1000
        level_us = mean_us * Fraction(quantile_ns(shape, PPM // 2)) / mean_ns(shape)
        sources = facts.source or ["disklab_assumption"]
        within = Fraction(facts.within or ONE_SOURCE_BAND)
        standing = _Standing("assumed", sources, facts.because or "no measurement", within)
        return _facts(facts, level_us, _merged(shape, {}), standing)
    levels = _levels(rows, facts, shape)
    middle = median(levels.values())
    caps = [row for row in catalog.evidence[facts.of] if row.cap and row.bounds(of, years)]
    level_us = min([middle, *(_level_us(row, facts, shape) for row in caps)])
    stated = _stated(rows, facts, shape)
    waited = f"; no longer than what waited for {caps[0].cap}" if level_us < middle else ""
    has_tail = any(ppm > PPM // 2 for ppm in stated)
    standing = _Standing(
        status="measured" if has_tail and len(levels) > 1 else "inferred",
        sources=[*levels, *dict.fromkeys(row.source for row in caps)],
        note=_note(len(rows), len(levels), years, stated, facts.shape) + waited,
        within=max(
            Fraction(facts.within or 1),
            band(
                (level / middle for level in levels.values()),
                (ratio for row in rows for ratio in _machines(row)),
            ),
        ),
    )
    return _facts(facts, level_us, _merged(shape, stated), standing)


def _facts(
    facts: ProfiledOperation, level_us: Fraction, ratios: dict[int, Fraction], standing: _Standing
) -> DistributionFacts:
    """Return the quantiles of a median (us, at 4 KiB) and their ratios to it."""
    return DistributionFacts(
        status=standing.status,
        source=standing.sources,
        note=standing.note,
        at_kib=BASE_KIB,
        per_kib_us=facts.per_kib_us,
        percentiles_us={
            Decimal(ppm) / (PPM // 100): Decimal(max(1, round(level_us * ratio * 10))) / 10
            for ppm, ratio in ratios.items()
        },
        within=Decimal(round(standing.within * 100)) / 100,
    )


def _shape(catalog: Catalog, name: str) -> Distribution:
    profile, _, operation = name.partition("/")
    shape: Distribution = getattr(latency_profile(catalog, profile), operation)
    return shape


def _ratio(shape: Distribution, ppm: int) -> Fraction:
    return Fraction(quantile_ns(shape, ppm), quantile_ns(shape, PPM // 2))


def _level_us(row: Measurement, facts: ProfiledOperation, shape: Distribution) -> Fraction:
    """Return the median of a measurement in us, moved to 4 KiB."""
    shift = (BASE_KIB - Fraction(max(row.kib or BASE_KIB, BASE_KIB))) * Fraction(facts.per_kib_us)
    if (stated := row.percentiles_ms.get(Decimal(50))) is not None:
        return Fraction(stated) * 1000 + shift
    mean = Fraction(row.mean_ms or 0) * 1000 + shift
    return mean * Fraction(quantile_ns(shape, PPM // 2)) / mean_ns(shape)


def _levels(
    rows: Sequence[Measurement], facts: ProfiledOperation, shape: Distribution
) -> dict[str, Fraction]:
    """Return the median of each source's measurements, in us."""
    sources = dict.fromkeys(row.source for row in rows)
    return {
        source: median([_level_us(row, facts, shape) for row in rows if row.source == source])
        for source in sources
    }


def _stated(
    rows: Sequence[Measurement], facts: ProfiledOperation, shape: Distribution
) -> dict[int, Fraction]:
    """Return the percentiles that sources state, over their own median.

    The minimum and the maximum are left out: they depend on how many I/Os there were.
    """
    found: dict[int, list[Fraction]] = {}
    for row in rows:
        own = _level_us(row, facts, shape)
        for percent, ms in row.percentiles_ms.items():
            if 0 < percent < 100 and percent != 50:
                found.setdefault(int(percent * PPM / 100), []).append(Fraction(ms) * 1000 / own)
    return {ppm: median(ratios) for ppm, ratios in sorted(found.items())}


def _merged(shape: Distribution, stated: dict[int, Fraction]) -> dict[int, Fraction]:
    """Return ratios to the median: the stated ones, and the shape's within their neighbours."""
    fixed = {**stated, PPM // 2: Fraction(1)}
    merged = dict(fixed)
    for ppm, _ in shape.quantiles_ppm_ns:
        if ppm not in fixed:
            below = max((ratio for at, ratio in fixed.items() if at < ppm), default=Fraction(0))
            above = min((ratio for at, ratio in fixed.items() if at > ppm), default=None)
            ratio = max(_ratio(shape, ppm), below)
            merged[ppm] = ratio if above is None else min(ratio, above)
    grown, rising = Fraction(0), {}
    for ppm in sorted(merged):
        grown = max(grown, merged[ppm])
        rising[ppm] = grown
    return rising


def _machines(row: Measurement) -> Iterator[Fraction]:
    if row.machines_ms is not None and row.mean_ms is not None:
        yield from (Fraction(end) / Fraction(row.mean_ms) for end in row.machines_ms)


def _note(
    rows: int, sources: int, years: tuple[int, int], stated: dict[int, Fraction], shape: str
) -> str:
    plural = "" if rows == 1 else "s"
    text = f"{rows} measurement{plural} of {sources} source{'' if sources == 1 else 's'}"
    text += f", {_period(years)}"
    if not any(ppm > PPM // 2 for ppm in stated):
        return f"{text}; no percentiles are published, the shape is that of {shape}"
    percents = ", ".join(f"p{ppm / 10_000:g}" for ppm in stated if ppm > PPM // 2)
    return f"{text}; {percents} stated, the rest in the shape of {shape}"


def _period(years: tuple[int, int]) -> str:
    return f"{years[0]} to {years[1]}"
