"""What the emulated disks did while a trial was measured: the sum over its passes.

Counters are read before and after each pass, so that what happens between passes (fills, dropped
caches, compactions) is no part of it, however short the passes are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from disklab.engine import LimitCounters, View
from disklab.hosts.protocol import Node
from disklab.results import LimitWait

LimitKey = tuple[str, str, str, str]
"""Volume, place, unit and scope."""


@dataclass
class LimitSum:
    """One limit of one volume, over all nodes and passes."""

    per_s: int
    granted: int = 0
    delayed_ios: int = 0
    delayed_ns: int = 0
    credits_start: int | None = None
    credits_left: int | None = None
    credits_capacity: int | None = None


@dataclass
class Account:
    """Sums of one measurement."""

    elapsed_s: float = 0.0
    read_ios: int = 0
    read_bytes: int = 0
    write_ios: int = 0
    write_bytes: int = 0
    ios_by_host: dict[str, int] = field(default_factory=dict)
    bytes_by_host: dict[str, int] = field(default_factory=dict)
    """Reads and writes of all volumes of a host."""
    hit_ios: int = 0
    miss_ios: int = 0
    has_cache: bool = False
    replies: int = 0
    late_replies: int = 0
    limits: dict[LimitKey, LimitSum] = field(default_factory=dict)
    views: dict[tuple[str, str], tuple[View, View]] = field(default_factory=dict)
    """By host and volume: before the first pass and after the last."""

    @contextmanager
    def counting(self, nodes: Sequence[Node]) -> Iterator[dict[tuple[str, str], View]]:
        """Count what happens inside the block, unless it fails. Yields the views before it."""
        before = _views(nodes)
        yield before
        after = _views(nodes)
        for key, view in before.items():
            if key in after and not after[key].began_anew(view):
                self._add(*key, view, after[key])
            else:
                # Moved to another VM: what its disks did is not known as a whole.
                after.setdefault(key, view)
            first = self.views[key][0] if key in self.views else view
            self.views[key] = first, after[key]

    def hit_ratio(self) -> float | None:
        """Return the share of disk reads that the host cache served; None: it is not used."""
        total = self.hit_ios + self.miss_ios
        return self.hit_ios / total if self.has_cache and total else None

    def late_ratio(self) -> float | None:
        """Return the share of the emulator's replies that were late."""
        return self.late_replies / self.replies if self.replies else None

    def waits(self, elapsed_s: float) -> list[LimitWait]:
        """Return the limits by how long they made I/Os wait, longest first."""
        found = [
            LimitWait(
                limit=name_of(place, unit, scope, one.per_s),
                volume=volume,
                delayed_ios=one.delayed_ios,
                delayed_ms=one.delayed_ns / 1e6,
                utilisation=one.granted / one.per_s / elapsed_s if elapsed_s else None,
                credits_start=one.credits_start,
                credits_left=one.credits_left,
                credits_capacity=one.credits_capacity,
            )
            for (volume, place, unit, scope), one in self.limits.items()
        ]
        return sorted(found, key=lambda one: -one.delayed_ms)

    def busiest(self) -> tuple[int, int]:
        """Return I/Os and bytes of the host whose disks did the most."""
        if not self.ios_by_host:
            return 0, 0
        host = max(self.ios_by_host, key=lambda one: self.ios_by_host[one])
        return self.ios_by_host[host], self.bytes_by_host[host]

    def _add(self, host: str, volume: str, before: View, after: View) -> None:
        old, new = before.counters, after.counters
        for kind in ("read", "write"):
            ios = new.operations[kind].ios - old.operations[kind].ios
            bytes_ = new.operations[kind].bytes - old.operations[kind].bytes
            setattr(self, f"{kind}_ios", getattr(self, f"{kind}_ios") + ios)
            setattr(self, f"{kind}_bytes", getattr(self, f"{kind}_bytes") + bytes_)
            self.ios_by_host[host] = self.ios_by_host.get(host, 0) + ios
            self.bytes_by_host[host] = self.bytes_by_host.get(host, 0) + bytes_
        if new.cache is not None and old.cache is not None and after.profile.caching != "None":
            self.has_cache = True
            self.hit_ios += new.cache.hit_ios - old.cache.hit_ios
            self.miss_ios += new.cache.miss_ios - old.cache.miss_ios
        self.replies += after.emulator.replies - before.emulator.replies
        self.late_replies += after.emulator.late_replies - before.emulator.late_replies
        earlier = {_key(volume, limit): limit for limit in old.limits}
        for limit in new.limits:
            was = earlier.get(_key(volume, limit))
            if was is not None:
                self._add_limit(_key(volume, limit), was, limit)

    def _add_limit(self, key: LimitKey, was: LimitCounters, now: LimitCounters) -> None:
        total = self.limits.setdefault(key, LimitSum(now.per_s))
        total.granted += now.granted - was.granted
        total.delayed_ios += now.delayed_ios - was.delayed_ios
        total.delayed_ns += now.delayed_ns - was.delayed_ns
        if now.credits is not None and was.credits is not None:
            if total.credits_start is None:
                total.credits_start = was.credits.left
            total.credits_left = now.credits.left
            total.credits_capacity = now.credits.capacity


def name_of(place: str, unit: str, scope: str, per_s: int) -> str:
    """Return a limit as the report names it: `vm cached 512 MB/s`, `disk 0 5000 IOPS`."""
    rate = f"{per_s} IOPS" if unit == "ios" else f"{per_s / 1e6:g} MB/s"
    return f"{place} {rate}" + ("" if scope == "all" else f" {scope}")


def _views(nodes: Sequence[Node]) -> dict[tuple[str, str], View]:
    return {(node.name, volume): node.show(volume) for node in nodes for volume in node.attached}


def _key(volume: str, limit: LimitCounters) -> LimitKey:
    return volume, limit.place, limit.unit, limit.scope
