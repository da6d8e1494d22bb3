"""What a disk promises for a cell, computed from its host profile.

Rates: the smallest of the caps that the path's I/Os pay, or what the outstanding I/Os allow by
Little's law when no cap binds. Latencies: the quantiles of the profile's own distribution, where no
cap stands before them.

**Source:** the profile's numbers are the catalogue's; how caps and paths combine is the disk
model's (docs/disk-model.md). **Divergence:** refill windows are left out here, so percentiles are
promised only where the caps leave them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from disklab.catalog.profile import Distribution, HostProfile, Latency, Limit, VolumeProfile
from disklab.probe.cells import KIB, PERCENTILES, Cell, Plan

Quantiles = Sequence[tuple[int, int]]
"""Points (parts per million, nanoseconds), linear in between."""

PPM = 1_000_000


@dataclass(frozen=True)
class Cap:
    """One limit of the profile as it concerns one cell."""

    place: str
    """`disk 0`, `vm cached`, `vm uncached`; a stripe's disks appear as one, `disk`."""
    unit: str
    """`ios` or `bytes`."""
    per_s: float
    """Units per second that it grants over the cell, credits included."""
    share: float
    """Part of the cell's I/Os that pay here: 1, or the misses, or one direction of a mix."""
    units_per_io: float
    """What one I/O costs here."""

    @property
    def iops(self) -> float:
        """The cell's IOPS at which this cap is reached."""
        paid = self.share * self.units_per_io
        return self.per_s / paid if paid > 0 else float("inf")

    def __str__(self) -> str:
        """Return `disk 5000 IOPS` or `vm cached 512 MB/s`."""
        if self.unit == "ios":
            return f"{self.place} {self.per_s:.0f} IOPS"
        return f"{self.place} {self.per_s / 1e6:g} MB/s"


@dataclass(frozen=True)
class Promise:
    """What the disk owes in one cell."""

    iops: float
    bytes_per_s: float
    bound_by: str
    """The cap that gives the rate, or the latency when the outstanding I/Os do not reach any."""
    percentiles_ns: dict[str, dict[float, int]] | None
    """Service times of reads and of writes by percentile; None where a cap or a queue stands before
    them."""
    hit_ratio: float | None
    """Share of the I/Os that the host cache answers; None where there is no cache on the path."""
    split_pieces: float | None = None
    """Set when the latency decides and the kernel split the I/Os: then nothing is owed."""
    burst: Promise | None = None
    """Of a base rate: what the disk owes while burst credits last."""


BURST_REACHED = 0.95
"""From so much of the burst on, the disk bursts: rates that are met differ by 5 %."""

# More pieces than this, and the disk saw other I/Os than those measured: their service times run
# side by side, and no promise is known for the whole.
WHOLE_PIECES = 1.05

# Where a cap allows less than this times the rate of an unhindered depth-1 loop, I/Os wait for it
# now and then, and their percentiles are the cap's, not the disk's.
UNHINDERED_RATIO = 1.25


@dataclass(frozen=True)
class Placement:
    """A volume and the host that it is attached to: the two parts of a host profile."""

    host: HostProfile
    volume: VolumeProfile


@dataclass(frozen=True)
class State:
    """What was seen of the disk around a cell; the empty state knows nothing."""

    hit_ratio: float | None = None
    """Share of reads that hit; None: they are held to find what the probe has just written."""
    credits_left: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """At the start of the cell, by (place, unit); where missing, the profile's start."""
    pieces: float = 1.0
    """Into how many I/Os the kernel split each one before it reached the disk."""


SPENT = State(
    credits_left={
        (place, unit): 0.0
        for place in ("disk 0", "vm cached", "vm uncached")
        for unit in ("ios", "bytes")
    }
)
"""Every bucket of burst credits is empty."""
SAME_RATE = 0.98
"""A base rate closer to the burst than that is no other promise."""


def owed_now(measured_iops: float, bursting: Promise, base: Promise) -> Promise:
    """Return which of two promises a disk whose credits nobody sees is held against.

    It bursts while it has credits and then does its base rate, so what is below the burst is held
    against the base.
    """
    reached = measured_iops >= bursting.iops * BURST_REACHED
    if base.iops >= bursting.iops * SAME_RATE or reached:
        return bursting
    return replace(base, burst=bursting)


def promise(placed: Placement, cell: Cell, plan: Plan, state: State) -> Promise:
    """Return what the volume owes in `cell`."""
    shares = cell.direction.shares
    hits = {side: assumed_hits(placed.volume, side, state.hit_ratio) for side in shares}
    caps = caps_of(placed, cell, plan, hits, state.credits_left)
    quantiles = {side: service_times(placed, cell, side, hits[side]) for side in shares}
    mean_ns = sum(share * mean(quantiles[side]) for side, share in shares.items())
    unhindered = cell.load.outstanding / (mean_ns / 1e9) if mean_ns > 0 else float("inf")
    tightest = min(caps, key=lambda cap: cap.iops, default=None)
    if tightest is None or unhindered <= tightest.iops:
        iops, bound_by = unhindered, f"latency at {cell.load.outstanding} outstanding"
    else:
        iops, bound_by = tightest.iops, str(tightest)
    free = tightest is None or tightest.iops >= UNHINDERED_RATIO * unhindered
    split = state.pieces > WHOLE_PIECES and iops == unhindered
    return Promise(
        iops=iops,
        bytes_per_s=iops * cell.block_bytes,
        bound_by=bound_by,
        percentiles_ns={side: percentiles(of) for side, of in quantiles.items()}
        if free and cell.load.outstanding == 1
        else None,
        hit_ratio=None
        if placed.volume.caching == "None"
        else sum(share * (hits[side] or 0.0) for side, share in shares.items()),
        split_pieces=state.pieces if split else None,
    )


def assumed_hits(volume: VolumeProfile, side: str, observed: float | None) -> float | None:
    """Return the share of a cell's reads or writes that the host cache answers."""
    caching = volume.caching
    if caching == "None":
        return None
    if side == "write":
        # Write-through waits for the disk; ReadWrite acknowledges from the cache.
        return 1.0 if caching == "ReadWrite" else 0.0
    return 1.0 if observed is None else observed


def caps_of(
    placed: Placement,
    cell: Cell,
    plan: Plan,
    hits: Mapping[str, float | None],
    credits_left: Mapping[tuple[str, str], float],
) -> list[Cap]:
    """Return every cap on the cell's path with the share of I/Os that pay it."""
    host, volume = placed.host, placed.volume
    medium = volume.disks[0].medium
    shares = cell.direction.shares
    misses = {side: share * (1.0 - (hits[side] or 0.0)) for side, share in shares.items()}
    if "write" in shares and host.cache is not None and host.cache.charges_writes:
        misses["write"] = shares["write"]
    none = dict.fromkeys(shares, 0.0)
    found = []
    for place, limits, paying in (
        ("disk 0", volume.disks[0].limits, misses),
        (
            "vm cached",
            host.cached,
            shares if volume.caching != "None" or medium == "temp" else none,
        ),
        ("vm uncached", host.uncached, misses if medium == "remote" else none),
    ):
        for limit in limits:
            share = sum(part for side, part in paying.items() if limit.scope in ("all", side))
            if share > 0:
                left = credits_left.get((place, limit.unit))
                per_s = granted_per_s(limit, plan, left)
                cap = Cap(place, limit.unit, per_s, share, cost(limit, cell.block_bytes))
                found.append(striped(cap, volume, limit, cell) if place == "disk 0" else cap)
    return found


def cost(limit: Limit, bytes_: int) -> float:
    """Return what an I/O of `bytes_` costs at the limit."""
    if limit.unit == "bytes":
        return float(bytes_)
    io_unit = limit.io_unit_bytes
    return float(max(1, -(-bytes_ // io_unit))) if io_unit else 1.0


def granted_per_s(limit: Limit, plan: Plan, credits_left: float | None) -> float:
    """Return the mean rate over the cell: burst while credits last, baseline afterwards."""
    base, burst = float(limit.per_s), limit.burst
    if burst is None:
        return base
    if burst.credits is None:  # on-demand bursting ends never
        return float(burst.per_s)
    left = credits_left
    if left is None:
        left = float(burst.credits if burst.start is None else burst.start)
    return min(float(burst.per_s), base + left / plan.duration_s)


def striped(cap: Cap, volume: VolumeProfile, limit: Limit, cell: Cell) -> Cap:
    """Return one disk's cap as the stripe's: every disk carries its part of the pieces."""
    disks, chunk = len(volume.disks), volume.chunk_bytes
    if disks == 1 or not chunk:
        return cap
    # What a disk gets of an I/O lies in a row on it, and is one I/O there.
    parts = min(float(disks), max(1.0, cell.block_bytes / chunk))
    per_part = cost(limit, round(cell.block_bytes / parts))
    return replace(cap, place="disk", per_s=cap.per_s * disks, units_per_io=parts * per_part)


def service_times(placed: Placement, cell: Cell, side: str, hits: float | None) -> Quantiles:
    """Return the quantiles of a side's service time: the cache's, the disk's or their mixture."""
    disk = points(of_side(placed.volume.disks[0].latency, side), cell.block_bytes)
    cache = placed.host.cache
    if hits is None or cache is None:
        return disk
    return mixture(points(of_side(cache.latency, side), cell.block_bytes), disk, hits)


def of_side(latency: Latency, side: str) -> Distribution:
    """Return the service times of reads or of writes."""
    return latency.write if side == "write" else latency.read


def points(distribution: Distribution, block_bytes: int) -> Quantiles:
    """Return a profile's distribution for one block size, from 0 to 1 000 000 ppm."""
    extra_ns = round(max(0, block_bytes - 4 * KIB) / KIB * distribution.per_kib_ns)
    given = [(ppm, ns + extra_ns) for ppm, ns in distribution.quantiles_ppm_ns]
    if len(given) == 1:
        return [(0, given[0][1]), (PPM, given[0][1])]
    return given


def quantile(of: Quantiles, ppm: float) -> float:
    """Return the value below which `ppm` of the samples lie."""
    for (low_ppm, low_ns), (high_ppm, high_ns) in pairwise(of):
        if ppm <= high_ppm and high_ppm > low_ppm:
            return low_ns + (high_ns - low_ns) * max(0.0, ppm - low_ppm) / (high_ppm - low_ppm)
    return float(of[-1][1])


def below(of: Quantiles, ns: float) -> float:
    """Return how many ppm of the samples are at most `ns`: the inverse of [`quantile`]."""
    if ns < of[0][1]:
        return 0.0
    for (low_ppm, low_ns), (high_ppm, high_ns) in reversed(list(pairwise(of))):
        if ns >= high_ns:
            return float(high_ppm)
        if ns >= low_ns:
            return low_ppm + (high_ppm - low_ppm) * (ns - low_ns) / (high_ns - low_ns)
    return 0.0


def strictly_below(of: Quantiles, ns: float) -> float:
    """Return how many ppm of the samples are less than `ns`; less than [`below`] at a flat part."""
    for (low_ppm, low_ns), (high_ppm, high_ns) in pairwise(of):
        if ns <= low_ns:
            return float(low_ppm)
        if ns <= high_ns:
            return low_ppm + (high_ppm - low_ppm) * (ns - low_ns) / (high_ns - low_ns)
    return float(PPM)


def mixture(first: Quantiles, second: Quantiles, share: float) -> Quantiles:
    """Return the distribution that draws from `first` with probability `share`, else from `second`.

    The sum of two piecewise linear distribution functions is piecewise linear between all their
    points; each point is taken from both sides, because a flat part of the quantiles is a jump.
    """
    if share >= 1.0:
        return first
    if share <= 0.0:
        return second
    mixed: list[tuple[int, int]] = []
    for ns in sorted({ns for _, ns in (*first, *second)}):
        for ppm_of in (strictly_below, below):
            ppm = share * ppm_of(first, ns) + (1 - share) * ppm_of(second, ns)
            mixed.append((round(ppm), ns))
    return mixed


def percentiles(of: Quantiles) -> dict[float, int]:
    """Return the values at the probe's percentiles."""
    return {p: round(quantile(of, p * PPM / 100)) for p in PERCENTILES}


def mean(of: Quantiles) -> float:
    """Return the mean of the distribution in nanoseconds."""
    pairs = pairwise(of)
    return sum((high - low) * (a + b) / 2 for (low, a), (high, b) in pairs) / PPM
