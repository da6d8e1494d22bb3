"""What a disk did while a command ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field

from disklab.engine import Lateness, LimitCounters, View

Kind = Literal["read", "write", "flush", "discard"]
NameOf = Callable[[LimitCounters], str]
SIMULATED = "simulated"
"""Instead of a file system's name: such a run is compared with its like alone."""
KINDS: tuple[Kind, ...] = ("read", "write", "flush", "discard")


class Latency(BaseModel):
    """From an I/O's issue to its reply, in milliseconds; percentiles are at most 6 % too high."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    """The end of the largest bucket that has an I/O."""

    @classmethod
    def of(cls, histogram: Lateness) -> Latency | None:
        """Return the summary of a histogram; None: it is empty."""
        buckets = histogram.buckets
        total = sum(count for _, count in buckets)
        if total == 0:
            return None
        mean = sum(value * count for value, count in buckets) / total

        def ms(ppm: int) -> float:
            return histogram.quantile(ppm) / 1e6

        return cls(
            mean_ms=mean / 1e6,
            p50_ms=ms(500_000),
            p95_ms=ms(950_000),
            p99_ms=ms(990_000),
            max_ms=buckets[-1][0] / 1e6,
        )


class Operations(BaseModel):
    """I/Os of one kind."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ios: int
    bytes: int
    failed: int
    latency: Latency | None = None


class LimitUse(BaseModel):
    """A limit that I/Os waited for."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    delayed_s: float
    per_s: int | None = None
    """None: a simulation names the limit alone."""
    unit: str | None = None
    delayed_ios: int | None = None
    credits_spent: int | None = None
    """In I/Os or bytes; None: the limit has no credits."""
    credits_left_ratio: float | None = None


class CommandRun(BaseModel):
    """A command and what the disk did for it: what `--json` prints and `--compare` reads."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: list[str]
    exit_code: int
    """Of the command; 128 and the signal's number where a signal ended it."""
    wall_s: float
    disks: str
    vm: str | None
    caching: str
    filesystem: str
    operations: dict[Kind, Operations]
    limits: list[LimitUse]
    cache_hit_ratio: float | None = None
    late_ratio: float
    """The share of replies that this machine gave more than 50 microseconds late."""
    warnings: list[str] = []

    @property
    def ios(self) -> int:
        """How many I/Os of all kinds."""
        return sum(operations.ios for operations in self.operations.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def disk_s(self) -> float:
        """How long all I/Os took, from issue to reply, added up.

        What the command waits for a CPU afterwards is not in it.
        """
        every = self.operations.values()
        return sum(one.ios * one.latency.mean_ms for one in every if one.latency) / 1e3


def operations_between(before: View, after: View) -> dict[Kind, Operations]:
    """Return what a disk did between two looks, by kind; kinds without an I/O too."""
    earlier, later = before.counters.operations, after.counters.operations
    none = Lateness.of([])
    return {
        kind: Operations(
            ios=later[kind].ios - earlier[kind].ios,
            bytes=later[kind].bytes - earlier[kind].bytes,
            failed=later[kind].failed - earlier[kind].failed,
            latency=Latency.of(
                after.emulator.latency_ns.get(kind, none).since(
                    before.emulator.latency_ns.get(kind, none)
                )
            ),
        )
        for kind in KINDS
    }


def limits_between(before: View, after: View, name: NameOf) -> list[LimitUse]:
    """Return the limits that held an I/O up between two looks, the longest wait first."""
    earlier: Mapping[tuple[str, str, str], LimitCounters] = {
        (limit.place, limit.unit, limit.scope): limit for limit in before.counters.limits
    }
    uses = []
    for limit in after.counters.limits:
        since = earlier.get((limit.place, limit.unit, limit.scope))
        delayed = limit.delayed_ios - (since.delayed_ios if since else 0)
        waited = limit.delayed_ns - (since.delayed_ns if since else 0)
        credits_ = limit.credits
        if delayed == 0 and credits_ is None:
            continue
        left = spent = None
        if credits_ is not None and credits_.capacity:
            left = credits_.left / credits_.capacity
            if since is not None and since.credits is not None:
                spent = max(0, since.credits.left - credits_.left)
        uses.append(
            LimitUse(
                name=name(limit),
                per_s=limit.per_s,
                unit=limit.unit,
                delayed_ios=delayed,
                delayed_s=waited / 1e9,
                credits_spent=spent,
                credits_left_ratio=left,
            )
        )
    return sorted(uses, key=lambda use: -use.delayed_s)


def late_between(before: View, after: View) -> float:
    """Return the share of the replies between two looks that were late; 0 to 1."""
    replies = after.emulator.replies - before.emulator.replies
    late = after.emulator.late_replies - before.emulator.late_replies
    return late / replies if replies else 0.0


def hits_between(before: View, after: View) -> float | None:
    """Return the share of reads that the host cache served; None: no cache, or no reads."""
    earlier, later = before.counters.cache, after.counters.cache
    if earlier is None or later is None:
        return None
    hits, misses = later.hit_ios - earlier.hit_ios, later.miss_ios - earlier.miss_ios
    return hits / (hits + misses) if hits + misses else None
