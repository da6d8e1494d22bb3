"""Everything about one disk or VM size, as data: each fact with value, status, date and source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from disklab.catalog.citation import date_of
from disklab.catalog.facts import (
    Burst,
    DistributionFacts,
    Facts,
    FamilyFacts,
    LatencyFacts,
    PriceList,
    Provenance,
    Rate,
)
from disklab.catalog.load import Catalog, DiskEntry, VmEntry
from disklab.catalog.price import DEFAULT_TERMS
from disklab.catalog.processor import REFERENCE, cpu_speed
from disklab.catalog.profile import Distribution
from disklab.catalog.quantity import about_time
from disklab.catalog.service_time import latency_profile, mean_ns, quantile_ns

Fact = dict[str, Any]

LOCAL_TITLES = {
    "local": "the temp disk of the VM, on the host's own SSD",
    "nvme": "one local NVMe disk of the VM",
    "ephemeral-os": "the ephemeral OS disk of the VM",
}


def describe_disk(catalog: Catalog, disk: DiskEntry) -> Fact:
    """Return all facts about a disk."""
    names = (disk.name, disk.family.title)
    facts, prices = [*_disk_facts(catalog, disk)], [*_disk_prices(catalog, disk)]
    return _description(catalog, names, facts, prices, disk.family.notes)


def describe_vm(catalog: Catalog, vm: VmEntry) -> Fact:
    """Return all facts about a VM size."""
    names = (vm.name, f"series {vm.series_name}")
    facts, prices = [*_vm_facts(catalog, vm)], [*_vm_prices(catalog, vm)]
    return _description(catalog, names, facts, prices, vm.series.notes)


def describe_local(name: str) -> Fact:
    """Return what there is to say about a disk that a VM brings along."""
    note = "size, limits and latency are those of the VM: `disklab catalog VM` shows them"
    return {
        "name": name,
        "title": LOCAL_TITLES[name],
        "facts": [],
        "prices": [],
        "notes": [note],
        "sources": {},
    }


def _description(
    catalog: Catalog,
    names: tuple[str, str],
    facts: list[Fact],
    prices: list[Fact],
    notes: list[str],
) -> Fact:
    name, title = names
    keys = [key for part in (*facts, *prices) for key in part["source"]]
    return {
        "name": name,
        "title": title,
        "facts": facts,
        "prices": prices,
        "notes": [*notes, *(f"{fact['fact']}: {fact['note']}" for fact in facts if fact["note"])],
        "sources": {key: catalog.sources[key].model_dump() for key in dict.fromkeys(keys)},
    }


def fact_of(
    catalog: Catalog, fact: str, value: str, provenance: dict[str, Provenance], field: str
) -> Fact:
    """Return a fact with where its field's numbers come from."""
    found = provenance.get(field)
    # What is said about the whole is no news about each of its fields.
    note = found.note if found is not None else None
    found = found or provenance["default"]
    return {
        "fact": fact,
        "value": value,
        "status": found.status,
        "date": date_of(catalog, provenance, field),
        "source": found.source,
        "note": note,
    }


def rate_unit(family: FamilyFacts) -> str:
    """Return the unit that the vendor means by MB/s."""
    return {1_000_000: "MB/s", 1 << 20: "MiB/s"}.get(family.mb_bytes, f"x {family.mb_bytes} B/s")


def _disk_facts(catalog: Catalog, disk: DiskEntry) -> Iterator[Fact]:
    facts, family = disk.facts, disk.family
    unit = rate_unit(family)
    sizes, most = facts.size_gib, family.host_cache_max_gib
    caching = "none" if most is None else "None, ReadOnly, ReadWrite"
    if most is not None and sizes.most > most:
        caching = f"only up to {most} GiB"
    plus = facts.performance_plus
    values: list[tuple[str, str, object]] = [
        (
            "size",
            "size_gib",
            f"{sizes.most if sizes.fixed else f'{sizes.least} to {sizes.most}'} GiB",
        ),
        ("IOPS", "iops", facts.iops and _rate(facts.iops)),
        ("throughput", "mb_per_s", facts.mb_per_s and f"{_rate(facts.mb_per_s)} {unit}"),
        ("read IOPS", "read_iops", facts.read_iops),
        ("write IOPS", "write_iops", facts.write_iops),
        (f"read {unit}", "read_mb_per_s", facts.read_mb_per_s),
        (f"write {unit}", "write_mb_per_s", facts.write_mb_per_s),
        ("credit burst", "credit_burst", facts.credit_burst and _burst(facts.credit_burst, unit)),
        (
            "on-demand burst",
            "on_demand_burst",
            facts.on_demand_burst and _burst(facts.on_demand_burst, unit),
        ),
        (
            "Performance Plus",
            "performance_plus",
            plus and f"{plus.iops} IOPS, {plus.mb_per_s} {unit}",
        ),
        (
            "I/O unit",
            "io_unit_bytes",
            family.io_unit_bytes and f"{family.io_unit_bytes // 1024} KiB",
        ),
        (
            "written whole",
            "whole_write_bytes",
            family.whole_write_bytes and f"{family.whole_write_bytes // 1024} KiB, aligned",
        ),
        ("host caching", "host_cache_max_gib", caching),
        ("latency promise", "latency_promise", family.latency_promise),
    ]
    for name, field, value in values:
        if value is not None:
            yield fact_of(catalog, name, str(value), family.provenance, field)
    usual = family.latency["default"]
    yield from _latency_facts(catalog, usual, "")
    for profile in sorted(set(family.latency.values()) - {usual}):
        yield from _latency_facts(catalog, profile, f"{profile}: ")


def _burst(burst: Burst, unit: str) -> str:
    parts = [f"{burst.iops} IOPS"] if burst.iops else []
    parts += [f"{burst.mb_per_s} {unit}"] if burst.mb_per_s else []
    text = ", ".join(parts)
    if burst.credit_ios is not None:
        text += f", {burst.credit_ios} I/O credits"
    elif burst.credit_mb is not None:
        text += f", credits of {burst.credit_mb} {unit.partition('/')[0]}"
    elif not burst.endless:
        text += f" for {burst.minutes} minutes"
    return text + (f", below {burst.below_gib} GiB" if burst.below_gib else "")


def _rate(rate: Rate) -> str:
    if rate.most is None:
        return str(rate.included)
    return f"{rate.included} included, up to {rate.most}"


def _latency_facts(catalog: Catalog, name: str, prefix: str) -> Iterator[Fact]:
    facts: LatencyFacts = catalog.latencies[name]
    profile = latency_profile(catalog, name)
    for operation in ("read", "write", "flush"):
        given: DistributionFacts = getattr(facts, operation)
        yield {
            "fact": f"{prefix}{operation} latency",
            "value": _distribution(getattr(profile, operation)),
            "status": given.status,
            "date": given.date or catalog.sources[given.source[0]].date,
            "source": given.source,
            "note": given.note,
        }


def _distribution(distribution: Distribution) -> str:
    if len(distribution.quantiles_ppm_ns) == 1:
        return about_time(distribution.quantiles_ppm_ns[0][1])
    points = " ".join(
        f"p{ppm / 10_000:g} {about_time(quantile_ns(distribution, ppm))}"
        for ppm in (500_000, 950_000, 990_000, 999_000)
    )
    text = f"{points}, mean {about_time(float(mean_ns(distribution)))} at 4 KiB"
    if distribution.per_kib_ns:
        text += f", + {about_time(distribution.per_kib_ns)} per KiB"
    return text


def _disk_prices(catalog: Catalog, disk: DiskEntry) -> Iterator[Fact]:
    for prices in catalog.prices:
        shared = _shared(prices)
        if disk.name in prices.disks:
            yield {"amount": prices.disks[disk.name], "for": _doubt(prices), **shared}
        for gib, iops, mb, amount in prices.quotes.get(disk.name, []):
            yield {"amount": amount, "for": f"{gib} GiB, {iops} IOPS, {mb} MB/s", **shared}
        formula = prices.formulas.get(disk.name)
        if formula is not None:
            text = (
                f"{formula.per_gib} per GiB + {formula.per_iops} per IOPS over "
                f"{formula.iops_included} + {formula.per_mb_per_s} per MB/s over "
                f"{formula.mb_per_s_included}"
            )
            yield {"amount": text, "for": prices.status, **shared}


def _shared(prices: PriceList) -> Fact:
    """Return what all prices of a list have in common."""
    return {
        "currency": prices.currency,
        "per": prices.per,
        "region": prices.region,
        "date": prices.date,
        "source": prices.source,
    }


def _doubt(prices: PriceList) -> str | None:
    """Return in words what a price is beside a published one to be paid by the hour."""
    told: list[str] = [] if prices.terms == DEFAULT_TERMS else [prices.terms]
    told += [] if prices.status == "published" else [prices.status]
    return ", ".join(told) or None


def _vm_facts(catalog: Catalog, vm: VmEntry) -> Iterator[Fact]:
    facts, series = vm.facts, vm.series
    odd_mb = None if series.cached_mb_bytes == 1_000_000 else f"{series.cached_mb_bytes} B"
    values: list[tuple[str, str, object]] = [
        ("vCPU", "vcpu", facts.vcpu),
        ("memory GiB", "mem_gib", facts.mem_gib),
        ("temp disk GiB", "temp_gib", facts.temp_gib),
        ("data disks", "max_data_disks", facts.max_data_disks),
        ("network Mbit/s", "net_mbit_per_s", facts.net_mbit_per_s),
        ("cached", "cached", _figures(facts.cached)),
        ("cached burst, 30 minutes", "cached_burst", _figures(facts.cached_burst)),
        ("one cached MB", "cached", odd_mb),
        ("uncached", "uncached", _figures(facts.uncached)),
        ("uncached burst, 30 minutes", "burst", _figures(facts.uncached_burst)),
        ("NVMe", "nvme", _figures(facts.nvme)),
        ("premium storage", "premium_storage", "yes" if series.premium_storage else "no"),
        ("host cache", "host_cache", series.host_cache),
        ("ephemeral OS disk", "ephemeral_os", "yes" if series.ephemeral_os else "no"),
    ]
    for name, field, value in values:
        if value is not None:
            yield fact_of(catalog, name, str(value), series.provenance, field)
    yield _speed_fact(catalog, vm)
    if series.nvme_write is not None:
        write = series.nvme_write
        yield {
            "fact": "NVMe writes, one disk",
            "value": f"{write.iops} IOPS, {write.mib_per_s} MiB/s",
            "status": write.status,
            "date": catalog.sources[write.source[0]].date,
            "source": write.source,
            "note": write.note,
        }
    for name, figures in facts.conflicts.items():
        value = ", ".join(f"{number:g} {key}" for key, number in figures.items())
        yield fact_of(catalog, f"other page: {name}", value, series.provenance, "conflicts")
    for path, profile in series.latency.items():
        if _has_path(vm, path):
            yield from _latency_facts(catalog, profile, f"{path.replace('_', ' ')} ")


def _speed_fact(catalog: Catalog, vm: VmEntry) -> Fact:
    speed = cpu_speed(catalog, vm.name)
    ends = f"{speed.value / speed.within:.2f} to {speed.value * speed.within:.2f}"
    text = f"{speed.value:.2f} ({ends}) of one of {REFERENCE}"
    dates = [row.date for row in catalog.processors.get(vm.series_name, []) if row.date]
    return {
        "fact": "speed of a vCPU",
        "value": "; ".join(filter(None, (text, ", ".join(speed.processors)))),
        "status": "assumed" if speed.assumed else "measured",
        "date": max(dates, default=catalog.sources[speed.source[0]].date),
        "source": [*speed.source],
        "note": speed.note,
    }


def _figures(facts: Facts | None) -> str | None:
    if facts is None:
        return None
    return ", ".join(
        f"{number} {key}" for key, number in facts.model_dump(exclude_none=True).items()
    )


def _has_path(vm: VmEntry, path: str) -> bool:
    return {
        "temp": vm.facts.temp_gib > 0,
        "nvme": vm.facts.nvme is not None,
        "ephemeral_os": vm.series.ephemeral_os,
        "host_cache": vm.series.host_cache != "none",
    }[path]


def _vm_prices(catalog: Catalog, vm: VmEntry) -> Iterator[Fact]:
    for prices in catalog.prices:
        if vm.name in prices.vms:
            yield {"amount": prices.vms[vm.name], "for": _doubt(prices), **_shared(prices)}
    provenance = vm.series.provenance.get("price")
    for region, amount in vm.facts.usd_per_hour.items():
        if provenance is None:
            continue
        yield {
            "amount": amount,
            "for": None,
            "currency": "USD",
            "per": "hour",
            "region": region,
            "date": provenance.date or catalog.sources[provenance.source[0]].date,
            "source": provenance.source,
        }
    for term, amount in vm.facts.eur_per_month_2020.items():
        yield {
            "amount": amount,
            "for": term.replace("_", " "),
            "currency": "EUR",
            "per": "month",
            "region": "North Europe",
            "date": "2020-09-07",
            "source": ["tk_local_2020"],
        }
