"""Everything about one disk or VM size, as data: each fact with value, status, date and source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from disklab.catalog.facts import (
    GIB,
    Burst,
    DistributionFacts,
    Facts,
    FamilyFacts,
    LatencyFacts,
    PriceList,
    Provenance,
    Rate,
    VmLimit,
)
from disklab.catalog.load import Catalog, DiskEntry, VmEntry, date_of
from disklab.catalog.price import DEFAULT_TERMS, Price, volume_price
from disklab.catalog.processor import REFERENCE, cpu_speed
from disklab.catalog.profile import Distribution, Limit, latency_profile, mean_ns, quantile_ns
from disklab.catalog.provisioning import Provisioned, Terms, provision, uncached_limits
from disklab.catalog.quantity import DiskExpression, about_time, format_rate
from disklab.catalog.weather import LOCAL, weather_facts, weather_of
from disklab.errors import Problem, UserError

Fact = dict[str, Any]

LOCAL_TITLES = {
    "local": "the temp disk of the VM, on the host's own SSD",
    "nvme": "one local NVMe disk of the VM",
    "ephemeral-os": "the ephemeral OS disk of the VM",
}


def describe_disk(catalog: Catalog, disk: DiskEntry) -> Fact:
    """Return all facts about a disk."""
    names = (disk.name, disk.family.title)
    family = LOCAL if disk.family.medium == "nvme" else disk.family_name
    facts, prices = [*_disk_facts(catalog, disk)], [*_disk_prices(catalog, disk)]
    described = _description(catalog, names, facts, prices, disk.family.notes)
    return _with_weather(catalog, described, family, disk.vendor)


def describe_vm(catalog: Catalog, vm: VmEntry) -> Fact:
    """Return all facts about a VM size."""
    names = (vm.name, f"series {vm.series_name}")
    facts, prices = [*_vm_facts(catalog, vm)], [*_vm_prices(catalog, vm)]
    return _description(catalog, names, facts, prices, vm.series.notes)


def describe_local(catalog: Catalog, name: str) -> Fact:
    """Return what there is to say about a disk that a VM brings along."""
    note = "size, limits and latency are those of the VM: `disklab catalog VM` shows them"
    described = _description(catalog, (name, LOCAL_TITLES[name]), [], [], [note])
    return _with_weather(catalog, described, LOCAL, "")


def _with_weather(catalog: Catalog, described: Fact, of: str, vendor: str) -> Fact:
    """Return a description with the odds of the disk's weather and their sources."""
    weather = [*weather_facts(catalog, weather_of(catalog, of, vendor).odds)]
    keys = dict.fromkeys(key for odds in weather for key in odds["source"])
    sources = {key: catalog.sources[key].model_dump() for key in keys}
    return described | {"weather": weather, "sources": described["sources"] | sources}


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


def _limit_text(limit: Limit) -> str:
    scope = "" if limit.scope == "all" else f"{limit.scope} "
    rate = f"{limit.per_s} IOPS" if limit.unit == "ios" else format_rate(limit.per_s)
    return scope + rate


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
        return f"{rate.included}" + (f" and {rate.of_vm} of the VM" if rate.of_vm else "")
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
        if disk.name in prices.io_charges:
            parts = ("its I/Os, at the hourly limit that is billed", _doubt(prices))
            billed = ", ".join(part for part in parts if part)
            yield {"amount": prices.io_charges[disk.name], "for": billed, **shared}
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
    for disk, caps in series.caps.items():
        limits = uncached_limits(vm, Fraction(1), disk) if caps else []
        text = ", ".join(_limit_text(limit) for limit in limits) or "takes none"
        yield fact_of(catalog, f"{disk} together", text, series.provenance, "caps")
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
    for field, known in vm.inferred.items():
        yield {
            "fact": f"how well {field} is known",
            "value": f"eight of ten lie within a factor of {known.within}",
            "status": known.status,
            "date": catalog.sources[known.source[0]].date,
            "source": known.source,
            "note": known.because,
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


# What a disk expression gives and costs: `4 x azure/P30`, `azure/Ultra(250GiB, 10000 IOPS)`.


def describe_volume(catalog: Catalog, expression: DiskExpression, place: str) -> Fact:
    """Return all facts about the disks of an expression, what they give together, and the price.

    Raises UserError for disks that cannot be.
    """
    if expression.is_local:
        rule = f"{expression.name!r} is a disk of the VM, whose limits are those of the VM"
        way_out = "ask for the VM, for example `disklab catalog azure/Standard_E8ds_v4`"
        raise UserError(Problem(place, repr(str(expression)), rule, way_out))
    disk = provision(catalog, expression, Terms(place=place))
    described = describe_disk(catalog, disk.entry)
    bought = list(_bought(catalog, disk.entry, disk, expression.count))
    # What was bought stands in the place of what can be bought.
    replaced = {fact["fact"] for fact in bought}
    facts = [*bought, *(fact for fact in described["facts"] if fact["fact"] not in replaced)]
    price = volume_price(catalog, expression)
    keys = price.source if isinstance(price, Price) else ()
    return described | {
        "name": str(expression),
        "disk": disk.entry.name,
        "facts": facts,
        "count": expression.count,
        "size_bytes": disk.size_bytes * expression.count,
        "iops": _whole(disk.iops, expression.count),
        "bytes_per_s": _whole(disk.bytes_per_s, expression.count),
        "price_usd_per_month": price.usd_per_month if isinstance(price, Price) else None,
        "price": asdict(price),
        "sources": described["sources"] | {key: catalog.sources[key].model_dump() for key in keys},
    }


def _whole(amount: int | None, count: int) -> int | None:
    return None if amount is None else amount * count


def _bought(catalog: Catalog, entry: DiskEntry, disk: Provisioned, count: int) -> Iterator[Fact]:
    """Yield size, IOPS and throughput as bought, each with the rule that allows it."""
    unit, mb_bytes = rate_unit(entry.family), entry.family.mb_bytes
    provenance = entry.family.provenance
    facts = entry.facts
    size = f"{_amount(disk.size_bytes / GIB, count)} GiB"
    yield fact_of(catalog, "size", size, provenance, "size_gib")
    if disk.iops is not None:
        value = f"{_amount(disk.iops, count)}{_rule(facts.iops)}"
        yield fact_of(catalog, "IOPS", value, provenance, "iops")
    if disk.bytes_per_s is not None:
        value = f"{_amount(disk.bytes_per_s / mb_bytes, count)} {unit}{_rule(facts.mb_per_s)}"
        yield fact_of(catalog, "throughput", value, provenance, "mb_per_s")


def _amount(each: float, count: int) -> str:
    return f"{each:.12g}" if count == 1 else f"{each * count:.12g} = {count} x {each:.12g}"


def _rule(rate: Rate | None) -> str:
    """Return the formula of what can be chosen."""
    if rate is None or rate.most is None:
        return ""
    return f", of up to {rate.most}" + (" a disk" if rate.most.value is None else "")


# One line of a list for each disk and VM size.


def disk(catalog: Catalog, entry: DiskEntry) -> tuple[str, ...]:
    """Return GiB, IOPS, MB/s, burst, host cache, newest price and source of a disk."""
    facts, family = entry.facts, entry.family
    sizes = facts.size_gib
    burst = facts.credit_burst or facts.on_demand_burst
    text = ""
    if burst is not None:
        text = " / ".join(str(top) for top in (burst.iops, burst.mb_per_s) if top is not None)
        text += " credit" if facts.credit_burst else " on demand"
    iops = _rate_row(facts.iops) or _pair(facts.read_iops, facts.write_iops)
    mb = _rate_row(facts.mb_per_s) or _pair(facts.read_mb_per_s, facts.write_mb_per_s)
    date = date_of(catalog, family.provenance)
    if family.mb_bytes == 1 << 20:
        mb += " MiB"
    return (
        str(sizes.most) if sizes.fixed else f"{sizes.least}-{sizes.most}",
        iops,
        mb,
        text,
        "no" if family.host_cache_max_gib is None or _too_large(entry) else "yes",
        price(catalog, entry),
        " ".join((family.provenance["default"].source[0], date[:10])).strip(),
    )


def vm(entry: VmEntry) -> tuple[str, ...]:
    """Return vCPU, GiB, disks, cached, cache, uncached, burst, temp, NVMe and price of a VM."""
    facts = entry.facts
    cache = facts.cached.cache_gib if facts.cached else None
    unknown = "?" if entry.series.host_cache == "size-unknown" else ""
    nvme = f"{facts.nvme.count} x {facts.nvme.size_gb} GB" if facts.nvme else ""
    usd = facts.usd_per_hour.get("eastus") or next(iter(facts.usd_per_hour.values()), "")
    return (
        str(facts.vcpu),
        "" if facts.mem_gib is None else f"{facts.mem_gib:g}",
        "" if facts.max_data_disks is None else str(facts.max_data_disks),
        _limit(facts.cached),
        unknown if cache is None else str(cache),
        _limit(facts.uncached),
        _limit(facts.uncached_burst),
        str(facts.temp_gib or ""),
        nvme,
        str(usd),
    )


def price(catalog: Catalog, entry: DiskEntry) -> str:
    """Return the first list's price of a disk, with currency and date."""
    for prices in catalog.prices:
        if entry.name in prices.disks:
            amount = prices.disks[entry.name]
            return f"{amount} {prices.currency}/{prices.per}, {prices.date}"
        if entry.name in prices.formulas:
            formula = prices.formulas[entry.name]
            return f"{formula.per_gib} {prices.currency}/GiB/{prices.per} + IOPS, {prices.date}"
    return ""


def _too_large(entry: DiskEntry) -> bool:
    most = entry.family.host_cache_max_gib
    return most is not None and entry.facts.size_gib.most > most


def _rate_row(rate: Rate | None) -> str:
    if rate is None:
        return ""
    return str(rate.included) if rate.most is None else f"up to {rate.most}"


def _pair(read: object, write: object) -> str:
    return "" if read is None else f"{read} read, {write} write"


def _limit(limit: VmLimit | None) -> str:
    if limit is None:
        return ""
    mb = limit.mb_per_s if limit.mb_per_s is not None else limit.read_mb_per_s
    return f"{limit.iops} / {mb}"
