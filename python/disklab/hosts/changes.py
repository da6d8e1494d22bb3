"""What `set` and `fail` ask for, from words to the engine's `Change` and `Fault`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from threading import Event
from typing import Any

from disklab.catalog import Catalog, HostRequest, VolumeRequest, resolve
from disklab.catalog.profile import (
    PPM,
    Caching,
    Distribution,
    Latency,
    Limit,
    Unit,
    VolumeProfile,
    latency_profile,
)
from disklab.catalog.quantity import format_rate
from disklab.catalog.suggest import did_you_mean, suggestions
from disklab.catalog.weather import Spell
from disklab.errors import Problem, UserError, refuse
from disklab.hosts.places import HostRecord, VolumeRecord

FAULTS: dict[str, str] = {
    "error-rate": "this share of the I/Os fails: error-rate 1%",
    "slow": "service times are multiplied: slow 10x, slow 2.5x --disk 0",
    "stall": "nothing is served: stall 5s, or stall until recover",
    "host-failure": "the host dies: local data and what a ReadWrite cache had not flushed are lost",
    "deallocate": "the VM is stopped and deallocated: local data are lost",
    "recover": "repairs everything above",
}

_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ns|us|ms|s|min)", re.ASCII)
_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)\s*%", re.ASCII)
_FACTOR = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*x?", re.ASCII)


@dataclass(frozen=True)
class WishedChange:
    """The options of `set`. Absent ones change nothing."""

    iops: int | None = None
    bytes_per_s: int | None = None
    latency: str | None = None
    """A time (`2ms`) or a latency profile of the catalogue."""
    caching: Caching | None = None
    credits: str | None = None
    """`full`, `empty` or a percentage."""


def parse_time_ns(text: str, place: str) -> int:
    """Read `500us`, `2.5ms` or `5s` as nanoseconds."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        rule = "a time is a number with ns, us, ms, s or min"
        raise UserError(Problem(place, repr(text), rule, "write for example 2ms"))
    return int(Fraction(found[1]) * _TIME_UNITS[found[2]])


def change_of(
    catalog: Catalog,
    wish: WishedChange,
    volume: VolumeProfile,
    record: VolumeRecord,
    host: HostRecord,
) -> dict[str, Any]:
    """Return the engine's `Change`. Raises UserError for what the volume cannot have."""
    change: dict[str, Any] = {}
    limits = volume.disks[0].limits
    if wish.iops is not None:
        limits = _with_rate(limits, "ios", wish.iops, "--iops")
    if wish.bytes_per_s is not None:
        limits = _with_rate(limits, "bytes", wish.bytes_per_s, "--throughput")
    if limits != volume.disks[0].limits:
        change["limits"] = [limit.model_dump() for limit in limits]
    if wish.latency is not None:
        change["latency"] = _latency(catalog, wish.latency, volume).model_dump()
    if wish.caching is not None:
        _check_caching(catalog, wish.caching, record, host)
        change["caching"] = wish.caching
    if wish.credits is not None:
        change |= _credits(wish.credits, limits)
    return change


def _with_rate(limits: list[Limit], unit: Unit, per_s: int, place: str) -> list[Limit]:
    """Return the limits with one baseline replaced. A burst that is no higher ends."""
    if per_s < 1:
        rule = "a rate is at least 1 a second"
        raise UserError(Problem(place, str(per_s), rule, "give a positive number"))
    changed, found = [], False
    for limit in limits:
        if limit.unit != unit:
            changed.append(limit)
            continue
        found = True
        burst = limit.burst if limit.burst and limit.burst.per_s > per_s else None
        changed.append(limit.model_copy(update={"per_s": per_s, "burst": burst}))
    return changed if found else [*changed, Limit(unit=unit, per_s=per_s)]


def _latency(catalog: Catalog, text: str, volume: VolumeProfile) -> Latency:
    if text in catalog.latencies:
        return latency_profile(catalog, text)
    if not _TIME.fullmatch(text.strip()):
        near = did_you_mean(text, catalog.latencies, "write for example 2ms or premium-ssd-2022")
        rule = "a latency is a time such as 2ms, or a latency profile of the catalogue"
        raise UserError(Problem("--latency", repr(text), rule, near))
    constant = Distribution(quantiles_ppm_ns=[(PPM, parse_time_ns(text, "--latency"))])
    # FLUSH keeps its time: it is not what people mean by the latency of a disk.
    flush = volume.disks[0].latency.flush
    return Latency(read=constant, write=constant, flush=flush)


def _check_caching(
    catalog: Catalog, caching: Caching, record: VolumeRecord, host: HostRecord
) -> None:
    """Hold the new caching against the same rules as an attach."""
    request = HostRequest(host.vm, host.host_cache_bytes, Fraction(host.scale))
    resolve(catalog, request, VolumeRequest(record.disks, caching=caching))


def credits_share(text: str) -> Fraction:
    """Return full, empty or a percentage as a share. Raises UserError for anything else."""
    share = {"full": Fraction(1), "empty": Fraction(0)}.get(text)
    if share is None and (found := _PERCENT.fullmatch(text.strip())):
        share = Fraction(found[1]) / 100
    if share is None or share > 1:
        rule = "credits are full, empty or a percentage up to 100%"
        raise UserError(Problem("--credits", repr(text), rule, "write for example 50%"))
    return share


def has_credits(limits: list[Limit]) -> bool:
    """Return whether a disk of such limits has burst credits."""
    return any(limit.burst is not None and limit.burst.credits is not None for limit in limits)


def _credits(text: str, limits: list[Limit]) -> dict[str, int]:
    share = credits_share(text)
    change = {}
    for unit, key in (("ios", "credit_ios"), ("bytes", "credit_bytes")):
        buckets = [
            limit.burst.credits
            for limit in limits
            if limit.unit == unit and limit.burst and limit.burst.credits is not None
        ]
        if buckets:
            change[key] = int(max(buckets) * share)
    if not change:
        rule = "the disk has no credit bucket"
        way_out = "only disks with credit bursting have one, such as azure/P20"
        raise UserError(Problem("--credits", repr(text), rule, way_out))
    return change


def describe_limits(limits: list[Limit]) -> str:
    """Return limits on one line, for people."""
    parts = []
    for limit in limits:
        rate = f"{limit.per_s} IOPS" if limit.unit == "ios" else format_rate(limit.per_s)
        if limit.scope != "all":
            rate += f" ({limit.scope}s)"
        if limit.burst is not None:
            top = limit.burst.per_s
            rate += f", burst {top} IOPS" if limit.unit == "ios" else f", burst {format_rate(top)}"
        parts.append(rate)
    return "; ".join(parts) or "no limit of its own"


def fault_of(kind: str, value: str | None, disk: int | None) -> dict[str, Any]:
    """Return the engine's `Fault`. Raises UserError for words that are none."""
    if kind not in FAULTS:
        near = suggestions(kind, FAULTS)
        way_out = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(FAULTS)}"
        raise UserError(Problem("FAULT", repr(kind), "there is no such fault", way_out))
    problems = []
    if disk is not None and kind != "slow":
        rule = f"{kind} applies to the whole volume"
        problems.append(Problem("--disk", str(disk), rule, "leave it out"))
    if value is not None and kind in ("host-failure", "deallocate", "recover"):
        problems.append(Problem("VALUE", repr(value), f"{kind} takes no value", "leave it out"))
    refuse(problems)
    if kind == "error-rate":
        return {"kind": kind, "ppm": _share_ppm(value)}
    if kind == "slow":
        return {"kind": kind, "permille": _permille(value), "disk": disk}
    if kind == "stall":
        return {"kind": kind, "for_ns": None if value is None else parse_time_ns(value, "VALUE")}
    return {"kind": kind}


def _share_ppm(value: str | None) -> int:
    found = _PERCENT.fullmatch((value or "").strip())
    if found is None or Fraction(found[1]) > 100:
        rule = "the share of I/Os that fail is a percentage up to 100%"
        raise UserError(Problem("VALUE", repr(value), rule, "write for example error-rate 0.1%"))
    return int(Fraction(found[1]) * 10_000)


def _permille(value: str | None) -> int:
    found = _FACTOR.fullmatch((value or "").strip())
    if found is None:
        rule = "service times are multiplied by a factor"
        raise UserError(Problem("VALUE", repr(value), rule, "write for example slow 10x"))
    return int(Fraction(found[1]) * 1000)


def live_through(
    spells: Sequence[Spell], fail: Callable[[str, str | None, Spell | None], object], over: Event
) -> None:
    """Let a volume have its weather until it is over; it is well again whatever ends this.

    `fail`: gets a fault and its value, as `disklab disk fail` has them, and the spell that begins.
    """
    began = time.monotonic()
    try:
        for spell in spells:
            if over.wait(max(began + spell.at_s - time.monotonic(), 0.0)):
                return
            is_stall = spell.times is None
            fail("stall" if is_stall else "slow", None if is_stall else f"{spell.times}x", spell)
            over.wait(spell.lasts_s)
            fail("recover", None, None)
    finally:
        fail("recover", None, None)
