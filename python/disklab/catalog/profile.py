"""The host profile: the JSON form of `crates/disklab-disk/src/profile.rs`, field by field."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

if TYPE_CHECKING:
    from disklab.catalog.facts import DistributionFacts
    from disklab.catalog.load import Catalog

Caching = Literal["None", "ReadOnly", "ReadWrite"]
Medium = Literal["remote", "temp", "nvme"]
Scope = Literal["all", "read", "write"]
Unit = Literal["ios", "bytes"]

UnsignedInt = Annotated[int, Field(ge=0, lt=1 << 64)]
"""What a `u64` of the engine holds."""


class Profile(BaseModel):
    """A frozen part of a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Distribution(Profile):
    """Service times: pairs of parts per million and nanoseconds, and a term for each KiB over 4."""

    quantiles_ppm_ns: list[tuple[int, UnsignedInt]] = Field(min_length=1)
    per_kib_ns: UnsignedInt = 0


class Latency(Profile):
    """Service times without any wait, by operation."""

    read: Distribution
    write: Distribution
    flush: Distribution


class Burst(Profile):
    """Credits of a limit; `credits` null: burst for ever."""

    per_s: UnsignedInt
    credits: UnsignedInt | None
    start: UnsignedInt | None = None


class Limit(Profile):
    """One token bucket, or a pair of them when it bursts."""

    scope: Scope = "all"
    unit: Unit
    per_s: Annotated[UnsignedInt, Field(gt=0)]
    io_unit_bytes: int | None = None
    window_ns: UnsignedInt = 0
    burst: Burst | None = None


class SharedLimit(Profile):
    """What all disks of a name on a host have together: the host's, once, and their parts."""

    scope: Scope
    unit: Unit
    of_host: UnsignedInt
    part: UnsignedInt
    most: Annotated[UnsignedInt, Field(gt=0)]


class DiskProfile(Profile):
    """One disk; `shared` is what several volumes of its name on a host have instead of `limits`."""

    name: str
    medium: Medium
    limits: list[Limit]
    shared: list[SharedLimit] = []
    latency: Latency

    @model_serializer(mode="wrap")
    def _without_nothing(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what no disk of its kind shares: most do not."""
        made: dict[str, Any] = dump(self)
        return made if self.shared else {key: made[key] for key in made if key != "shared"}


class VolumeProfile(Profile):
    """One volume: a disk, or a RAID 0 stripe."""

    name: str
    size_bytes: UnsignedInt
    caching: Caching
    chunk_bytes: int | None
    disks: list[DiskProfile] = Field(min_length=1)


class CacheProfile(Profile):
    """The host cache of a VM."""

    capacity_bytes: UnsignedInt
    block_bytes: int
    latency: Latency
    charges_writes: bool = False
    """Whether the disk's limits count what ReadWrite caching acknowledges, and its destage not."""


class HostProfile(Profile):
    """One emulated or simulated VM."""

    version: Literal[1] = 1
    name: str
    seed: UnsignedInt
    cached: list[Limit]
    uncached: list[Limit]
    cache: CacheProfile | None
    volumes: list[VolumeProfile]


# From percentiles in a catalogue file to the quantile tables of a profile, in exact arithmetic.

PPM = 1_000_000
# The profile's `per_kib_ns` counts the KiB beyond the first four.
BASE_KIB = 4
# A shape may be that of another distribution, which may be like a third; more is a circle.
MOST_LIKES = 8


def latency_profile(catalog: Catalog, name: str) -> Latency:
    """Return the service times of a latency profile of the catalogue."""
    if name not in catalog.service_times:
        facts = catalog.latencies[name]
        catalog.service_times[name] = Latency(
            read=_distribution(catalog, facts.read),
            write=_distribution(catalog, facts.write),
            flush=_distribution(catalog, facts.flush),
        )
    return catalog.service_times[name]


def mean_ns(distribution: Distribution) -> Fraction:
    """Return the mean of a quantile table as the model draws from it: linear between points."""
    points = distribution.quantiles_ppm_ns
    if len(points) == 1:
        return Fraction(points[0][1])
    area = sum((right[0] - left[0]) * (left[1] + right[1]) for left, right in pairwise(points))
    return Fraction(area, 2 * PPM)


def quantile_ns(distribution: Distribution, ppm: int, kib: int = BASE_KIB) -> int:
    """Return the service time below which `ppm` of the I/Os of `kib` KiB stay."""
    points = distribution.quantiles_ppm_ns
    extra = max(0, kib - BASE_KIB) * distribution.per_kib_ns
    for left, right in pairwise(points):
        if ppm <= right[0] and right[0] > left[0]:
            share = Fraction(max(ppm - left[0], 0), right[0] - left[0])
            return int(left[1] + share * (right[1] - left[1])) + extra
    return points[-1][1] + extra


def circular(catalog: Catalog, name: str) -> str | None:
    """Return the `like` of a latency profile that never reaches a table of its own."""
    for operation in ("read", "write", "flush"):
        like = getattr(catalog.latencies[name], operation).like
        for _ in range(MOST_LIKES + 1):
            if like is None:
                break
            shape, _, of = like.partition("/")
            like = getattr(catalog.latencies[shape], of).like
        if like is not None:
            return str(like)
    return None


def _distribution(catalog: Catalog, facts: DistributionFacts) -> Distribution:
    per_kib_ns = _nanoseconds(Fraction(facts.per_kib_us))
    if facts.constant_us is not None:
        constant = _nanoseconds(Fraction(facts.constant_us))
        return Distribution(quantiles_ppm_ns=[(PPM, constant)], per_kib_ns=per_kib_ns)
    if facts.like is not None:
        name, _, operation = facts.like.partition("/")
        shape = getattr(catalog.latencies[name], operation)
        points = _distribution(catalog, shape).quantiles_ppm_ns
        if facts.mean_us is not None:
            like = Distribution(quantiles_ppm_ns=points)
            factor = Fraction(facts.mean_us) * 1000 / mean_ns(like)
            points = [(ppm, int(ns * factor)) for ppm, ns in points]
        return Distribution(quantiles_ppm_ns=points, per_kib_ns=per_kib_ns)
    # What was measured at another size is moved to 4 KiB, so that the term per KiB brings it back.
    shift = (BASE_KIB - facts.at_kib) * per_kib_ns
    points = [
        (int(Fraction(percentile) * PPM / 100), max(1, _nanoseconds(Fraction(us)) + shift))
        for percentile, us in (facts.percentiles_us or {}).items()
    ]
    # Nothing is known outside the published percentiles: the first and the last one close the ends.
    if points[0][0] > 0:
        points.insert(0, (0, points[0][1]))
    if points[-1][0] < PPM:
        points.append((PPM, points[-1][1]))
    return Distribution(quantiles_ppm_ns=points, per_kib_ns=per_kib_ns)


def _nanoseconds(microseconds: Fraction) -> int:
    return int(microseconds * 1000)
