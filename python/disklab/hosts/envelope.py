"""Which disks this machine can emulate: the engine's envelope against what a disk promises."""

from __future__ import annotations

from dataclasses import dataclass

from disklab.catalog.profile import HostProfile, Limit, Unit, VolumeProfile
from disklab.catalog.quantity import about_rate, about_time
from disklab.catalog.service_time import quantile_ns
from disklab.engine import Envelope

MEDIAN_PPM = 500_000


@dataclass(frozen=True)
class Shortfall:
    """One promise that this machine cannot keep."""

    limit: str
    """`IOPS`, `MB/s` or `latency`."""
    promised: str
    measured: str

    def __str__(self) -> str:
        """Return it as half a sentence."""
        return f"{self.limit}: the disk has {self.promised}, this machine {self.measured}"


def shortfalls(host: HostProfile, volume: VolumeProfile, envelope: Envelope) -> list[Shortfall]:
    """Return what stands in the way of this volume on this machine; nothing: it fits."""
    found = []
    for unit, most, shown in (
        ("ios", envelope.iops, lambda per_s: f"{per_s} IOPS"),
        ("bytes", envelope.bytes_per_s, about_rate),
    ):
        rate = top_rate(host, volume, unit)  # type: ignore[arg-type]
        if rate is not None and rate > most:
            name = {"ios": "IOPS", "bytes": "MB/s"}[unit]
            found.append(Shortfall(name, shown(rate), shown(most)))
    latency = volume.disks[0].latency
    fastest = min(quantile_ns(latency.read, MEDIAN_PPM), quantile_ns(latency.write, MEDIAN_PPM))
    if volume.caching != "None" and host.cache is not None:
        fastest = min(fastest, quantile_ns(host.cache.latency.read, MEDIAN_PPM))
    if 0 < fastest < envelope.p50_ns:
        found.append(Shortfall("latency", about_time(fastest), about_time(envelope.p50_ns)))
    return found


def top_rate(host: HostProfile, volume: VolumeProfile, unit: Unit) -> int | None:
    """Return the highest rate that the limits of a volume ever grant; None: there is no limit."""
    disk = volume.disks[0]
    own = _top(disk.limits, unit)
    of_disks = None if own is None else own * len(volume.disks)
    if disk.medium == "nvme":
        return of_disks
    on_host, on_network = _top(host.cached, unit), _top(host.uncached, unit)
    if disk.medium == "temp":
        return on_host
    attached = _least(of_disks, on_network)
    if volume.caching == "None":
        return attached
    # Hits are limited by the host's own SSD alone.
    return on_host


def _top(limits: list[Limit], unit: Unit) -> int | None:
    rates = [
        limit.burst.per_s if limit.burst else limit.per_s for limit in limits if limit.unit == unit
    ]
    return max(rates) if rates else None


def _least(one: int | None, other: int | None) -> int | None:
    known = [rate for rate in (one, other) if rate is not None]
    return min(known) if known else None
