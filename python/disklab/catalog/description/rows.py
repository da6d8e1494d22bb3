"""One line of a list for each disk and VM size."""

from __future__ import annotations

from disklab.catalog.citation import date_of
from disklab.catalog.facts import Rate, VmLimit
from disklab.catalog.load import Catalog, DiskEntry, VmEntry


def disk(catalog: Catalog, entry: DiskEntry) -> tuple[str, ...]:
    """Return GiB, IOPS, MB/s, burst, host cache, newest price and source of a disk."""
    facts, family = entry.facts, entry.family
    sizes = facts.size_gib
    burst = facts.credit_burst or facts.on_demand_burst
    text = ""
    if burst is not None:
        text = " / ".join(str(top) for top in (burst.iops, burst.mb_per_s) if top is not None)
        text += " credit" if facts.credit_burst else " on demand"
    iops = _rate(facts.iops) or _pair(facts.read_iops, facts.write_iops)
    mb = _rate(facts.mb_per_s) or _pair(facts.read_mb_per_s, facts.write_mb_per_s)
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


def _rate(rate: Rate | None) -> str:
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
