"""How strong an option is in each of its parts, so that two can be compared without simulating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disklab.advice.bounds import sustained
from disklab.catalog import Resolution
from disklab.catalog.load import VmEntry
from disklab.catalog.profile import Limit

UNLIMITED = float("inf")
MBIT_BYTES = 125_000


@dataclass(frozen=True)
class Strength:
    """What an option gives all the time, by part; no limit is infinite."""

    amounts: tuple[float, ...]
    """Cores, memory, network, then IOPS and bytes a second of reads and writes: the VM's cached and
    uncached budgets, and all disks together; host cache and volume in bytes."""
    kinds: tuple[str, ...]
    """Latency profiles of disks and host cache: options of different kinds are not compared."""

    @property
    def cores(self) -> float:
        """Cores of a node."""
        return self.amounts[0]

    @property
    def memory_gib(self) -> float:
        """Memory of a node."""
        return self.amounts[1]

    def at_most(self, other: Strength) -> bool:
        """Return whether this is no better than the other in anything."""
        same = self.kinds == other.kinds
        return same and all(a <= b for a, b in zip(self.amounts, other.amounts, strict=True))

    def rank(self) -> tuple[float, ...]:
        """Return an order whose last is the strongest: by disks as far as the VM lets them, CPU."""
        cores, memory, _, *rest = self.amounts
        cached, uncached, disks = (rest[start : start + 4] for start in (0, 4, 8))
        reads = min(disks[0], max(uncached[0], cached[0] if self.amounts[-2] else 0.0))
        return (min(reads, MOST_READS), cores, memory, *disks)


MOST_READS = 100_000.0
"""Disks beyond this many reads a second and node are equally strong: their processors are not."""


def strength_of(made: Resolution, seconds: float, vm: VmEntry) -> Strength:
    """Return the strength of a volume on a VM over a run of some seconds."""
    host, volume, net_mbit_per_s = made.host, made.volume, vm.facts.net_mbit_per_s
    disk, count = volume.disks[0], len(volume.disks)
    disks = tuple(amount * count for amount in four(disk.limits, seconds))
    cached, uncached = four(host.cached, seconds), four(host.uncached, seconds)
    network = UNLIMITED if net_mbit_per_s is None else net_mbit_per_s * MBIT_BYTES
    through_cache = host.cache is not None and volume.caching != "None"
    cache_bytes = host.cache.capacity_bytes if host.cache and through_cache else 0
    amounts = (
        float(vm.facts.vcpu),
        vm.facts.mem_gib or 0.0,
        network,
        *cached,
        *uncached,
        *disks,
        float(cache_bytes),
        float(volume.size_bytes),
    )
    kinds = (
        disk.medium,
        volume.caching,
        str(disk.latency.model_dump() if disk.medium != "remote" else ""),
        str(host.cache.latency.model_dump() if host.cache and through_cache else ""),
    )
    return Strength(amounts, kinds)


def four(limits: Sequence[Limit], seconds: float) -> tuple[float, float, float, float]:
    """Return read IOPS, write IOPS, bytes read and bytes written a second."""
    told = []
    for unit in ("ios", "bytes"):
        for scope in ("read", "write"):
            some = [one for one in limits if one.unit == unit and one.scope in ("all", scope)]
            told.append(min((sustained(one, seconds) for one in some), default=UNLIMITED))
    return told[0], told[1], told[2], told[3]
