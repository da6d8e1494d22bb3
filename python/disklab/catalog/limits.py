"""From IOPS and MB/s in the catalogue to the token buckets of a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from disklab.catalog.facts import Burst as BurstFacts
from disklab.catalog.facts import Formula, VmLimit
from disklab.catalog.load import DiskEntry, VmEntry
from disklab.catalog.profile import Burst, Limit, Scope, Unit

# "30 minutes from a full bucket" is Azure's rule for disks (bursting2, 2025-01-14) and for VMs.
VM_BURST_SECONDS = 30 * 60

# Temp disks and host caches hand their MB/s out in steps: 1 MiB I/Os at depth 64 on a temp disk of
# 512 MB/s end near 50, 100, 150, 200 and 245 ms on all six hosts measured in 2019 (catalogue source
# measurements_2019). Their IOPS limits, and every limit of remote disks, showed no steps in the
# same runs, so those refill continuously.
CACHED_BYTES_WINDOW_NS = 50_000_000


def burst_credits(top: int, base: int, seconds: int, scale: Fraction) -> int:
    """Return the credits of a bucket that lasts `seconds` at the top rate, scaled down."""
    return int((top - base) * seconds * scale)


def _limit(scope: Scope, ios: int | None) -> list[Limit]:
    return [] if ios is None else [Limit(scope=scope, unit="ios", per_s=ios)]


def _byte_limit(scope: Scope, mb: int | None, mb_bytes: int, window_ns: int = 0) -> list[Limit]:
    if mb is None:
        return []
    return [Limit(scope=scope, unit="bytes", per_s=mb * mb_bytes, window_ns=window_ns)]


@dataclass(frozen=True)
class Bought:
    """What was provisioned and found possible. Absent: the disk has no such limit of its own."""

    size_gib: Fraction
    iops: int | None
    bytes_per_s: int | None
    on_demand: bool
    """On-demand instead of credit bursting."""


def disk_limits(disk: DiskEntry, bought: Bought, scale: Fraction) -> list[Limit]:
    """Return the limits of one disk; `scale` shrinks its credits."""
    facts, family = disk.facts, disk.family
    bursts = facts.credit_burst
    if bought.on_demand:
        bursts = facts.on_demand_burst
    if bursts is not None and bursts.below_gib is not None and bought.size_gib >= bursts.below_gib:
        bursts = None
    found: list[Limit] = []
    if bought.iops is not None:
        top, stated = (bursts.iops, bursts.credit_ios) if bursts else (None, None)
        burst = _burst(bursts, top, bought.iops, stated, scale)
        found.append(Limit(unit="ios", per_s=bought.iops, burst=burst))
    found += _by_direction(facts.read_iops, facts.write_iops, bought.size_gib, "ios", 1)
    if bought.bytes_per_s is not None:
        top, stated = (
            int(formula.at(bought.size_gib, 0) * family.mb_bytes) if formula else None
            for formula in ((bursts.mb_per_s, bursts.credit_mb) if bursts else (None, None))
        )
        burst = _burst(bursts, top, bought.bytes_per_s, stated, scale)
        found.append(Limit(unit="bytes", per_s=bought.bytes_per_s, burst=burst))
    mb = family.mb_bytes
    found += _by_direction(facts.read_mb_per_s, facts.write_mb_per_s, bought.size_gib, "bytes", mb)
    unit = family.io_unit_bytes
    return [
        limit.model_copy(update={"io_unit_bytes": unit if limit.unit == "ios" else None})
        for limit in found
    ]


def _burst(
    facts: BurstFacts | None, top: int | None, base: int, stated: int | None, scale: Fraction
) -> Burst | None:
    """Return the burst above a baseline, or None if the top rate is not above it.

    `stated`: the vendor's own number of credits.
    """
    if facts is None or top is None or top <= base:
        return None
    if facts.endless:
        return Burst(per_s=top, credits=None)
    full = (top - base) * facts.minutes * 60 if stated is None else stated
    return Burst(per_s=top, credits=int(full * scale))


def _by_direction(
    read: Formula | None, write: Formula | None, size_gib: Fraction, unit: Unit, factor: int
) -> list[Limit]:
    """Return limits that reads and writes have apart."""
    scopes: tuple[tuple[Scope, Formula | None], ...] = (("read", read), ("write", write))
    return [
        Limit(scope=scope, unit=unit, per_s=max(1, int(formula.at(size_gib, 0) * factor)))
        for scope, formula in scopes
        if formula is not None
    ]


def cached_limits(vm: VmEntry, scale: Fraction) -> list[Limit]:
    """Return the budget of the host's own SSD, host cache and temp disk, with VM bursting."""
    limit, top = vm.facts.cached, vm.facts.cached_burst or VmLimit()
    if limit is None:
        return []
    unit, window = vm.series.cached_mb_bytes, CACHED_BYTES_WINDOW_NS
    return [
        *_bursting(_limit("all", limit.iops), top.iops, scale),
        *_bursting(
            _byte_limit("all", limit.mb_per_s, unit, window),
            top.mb_per_s and top.mb_per_s * unit,
            scale,
        ),
        *_byte_limit("read", limit.read_mb_per_s, unit, window),
        *_byte_limit("write", limit.write_mb_per_s, unit, window),
    ]


def uncached_limits(vm: VmEntry, scale: Fraction) -> list[Limit]:
    """Return the budget of the storage network, with VM bursting."""
    limit, top = vm.facts.uncached, vm.facts.uncached_burst or VmLimit()
    if limit is None:
        return []
    unit = vm.series.uncached_mb_bytes
    top_bytes = top.mb_per_s and top.mb_per_s * unit
    return [
        *_bursting(_limit("all", limit.iops), top.iops, scale),
        *_bursting(_byte_limit("all", limit.mb_per_s, unit), top_bytes, scale),
    ]


def _bursting(limits: list[Limit], high: int | None, scale: Fraction) -> Iterator[Limit]:
    """Yield limits of a VM with the burst above each; None or no higher: they have none."""
    for limit in limits:
        burst = None
        if high is not None and high > limit.per_s:
            full = burst_credits(high, limit.per_s, VM_BURST_SECONDS, scale)
            burst = Burst(per_s=high, credits=full)
        yield limit.model_copy(update={"burst": burst})


def nvme_limits(vm: VmEntry) -> list[Limit]:
    """Return the limits of one local NVMe disk: its share of the VM's figures."""
    nvme = vm.facts.nvme
    if nvme is None:
        return []
    write = vm.series.nvme_write

    def share(total: int | None) -> int | None:
        return None if total is None else max(1, total // nvme.count)

    write_iops, write_bytes = share(nvme.total_write_iops), None
    if write is not None:
        write_iops, write_bytes = write.iops, write.mib_per_s * (1 << 20)
    mb = 1_000_000  # the vendors' pages of NVMe disks count in 10^6
    return [
        *_limit("all", share(nvme.total_iops)),
        *_limit("read", share(nvme.total_read_iops)),
        *_limit("write", write_iops),
        *_byte_limit("all", share(nvme.total_mb_per_s), mb),
        *_byte_limit("read", share(nvme.total_read_mb_per_s), mb),
        *_byte_limit("write", share(nvme.total_write_mb_per_s), mb),
        *_byte_limit("write", write_bytes, 1),
    ]
