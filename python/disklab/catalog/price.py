"""What a volume or a VM costs a month, in USD, with region, date and source; or that nobody knows.

A result carries its prices with their dates (price, price date, region). Prices are
list prices on the terms asked for; no currency is converted here. What a vendor quoted in another
one has a USD price only where the catalogue states one, marked `inferred`, with its derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - a price has a `date` of its own
from decimal import Decimal
from typing import TypeVar

from disklab.catalog.facts import GIB, PriceFormula, PriceList, PriceTerms, Status
from disklab.catalog.load import Catalog, DiskEntry, VmEntry
from disklab.catalog.provisioning import Terms, provision
from disklab.catalog.quantity import DiskExpression, parse_disks
from disklab.catalog.resolve import Places, find_vm

# What a cloud's own interfaces call the disks of the catalogue's families.

AZURE_SKUS = {
    "azure/PremiumSSD": "Premium_LRS",
    "azure/StandardSSD": "StandardSSD_LRS",
    "azure/StandardHDD": "Standard_LRS",
    "azure/PremiumSSDv2": "PremiumV2_LRS",
    "azure/UltraDisk": "UltraSSD_LRS",
}
"""By the family in the catalogue; the same in Azure's templates, its command and Terraform."""


# The vendors' calculators, and the disks' monthly prices, count 365 / 12 days: 730 hours.
HOURS_PER_MONTH = 730

DEFAULT_REGION = "eastus"
REGIONS = {"azure": DEFAULT_REGION, "aws": "us-east-1", "gcp": "us-central1"}
"""By vendor, the region that most prices of the catalogue are of."""
DEFAULT_TERMS: PriceTerms = "pay-as-you-go"
CENT = Decimal("0.01")
OLD_DAYS = 365
"""Vendors change their lists about once a year; an older price is told."""


@dataclass(frozen=True)
class Price:
    """A price of the catalogue."""

    usd_per_month: float
    """Rounded to a cent."""
    region: str
    """As the list states it; it may be another one than was asked for."""
    date: str
    source: tuple[str, ...]
    """Keys of the catalogue's `sources`; empty: nothing is charged."""
    status: Status
    note: str | None = None
    terms: PriceTerms = DEFAULT_TERMS

    def doubt(self, region: str, today: Date) -> str | None:
        """Return why the price may not be the one to pay: another region, old, or undated."""
        if not self.source:
            return None
        if _plain(self.region) != _plain(region):
            return f"of {self.region}, not of {region}"
        try:
            age = today - Date.fromisoformat(self.date[:10])
        except ValueError:
            return f"of an uncertain date ({self.date or 'none is stated'})"
        return f"of {self.date[:10]}, {age.days // 30} months old" if age.days > OLD_DAYS else None


@dataclass(frozen=True)
class NoPrice:
    """The catalogue has no price in USD: why."""

    reason: str


def volume_price(
    catalog: Catalog,
    disks: DiskExpression | str,
    *,
    size_bytes: int | None = None,
    region: str = DEFAULT_REGION,
    terms: PriceTerms = DEFAULT_TERMS,
) -> Price | NoPrice:
    """Return what all the disks of a volume cost, with all of their I/Os that are billed.

    `size_bytes` is the size of the whole volume, and chooses the tier where `disks` names a family
    only. Most disks are sold by the hour only: where no list has them on the terms asked for, that
    price holds. Raises UserError for disks that cannot be.
    """
    expression = parse_disks(disks) if isinstance(disks, str) else disks
    if expression.is_local:
        note = "comes with the VM, and is in its price"
        return Price(0.0, "any", "", (), "published", note)
    disk = provision(catalog, expression, Terms(size_bytes=size_bytes))
    listed = list_price(catalog, disk.entry, region, terms)
    if listed is None:
        return _no_price(catalog, disk.entry)
    prices, figure = listed
    if isinstance(figure, PriceFormula):
        mb_per_s = Decimal(disk.bytes_per_s or 0) / disk.entry.family.mb_bytes
        size_gib = Decimal(disk.size_bytes) / GIB
        figure = figure.at(size_gib, Decimal(disk.iops or 0), mb_per_s)
    charge, charge_source = io_charge(catalog, disk.entry)
    return Price(
        usd_per_month=_cents((figure + charge) * expression.count),
        region=prices.region,
        date=prices.date,
        source=(*prices.source, *charge_source),
        status=prices.status,
        note="; ".join(_notes(prices, expression, charge)) or None,
        terms=prices.terms,
    )


def vm_price(
    catalog: Catalog,
    vm: str,
    *,
    region: str = DEFAULT_REGION,
    terms: PriceTerms = DEFAULT_TERMS,
) -> Price | NoPrice:
    """Return what a VM costs: of the user's lists, else of the catalogue's series.

    Raises UserError for an unknown name.
    """
    entry = find_vm(catalog, vm, Places(vm="VM"))
    lists = [
        (prices, prices.vms[entry.name]) for prices in catalog.prices if entry.name in prices.vms
    ]
    listed = _nearest(lists, region, terms)
    known = [] if listed is None else [_listed(*listed)]
    if terms == DEFAULT_TERMS and (own := _series_price(catalog, entry, region)) is not None:
        known.append(own)
    wanted = _plain(region)
    found = next((one for one in known if _plain(one.region) == wanted), next(iter(known), None))
    if found is None:
        way = (
            "" if terms == DEFAULT_TERMS else f", {terms}: `disklab prices` imports a list with it"
        )
        return NoPrice(f"no price in the catalogue for {vm}{way}")
    return found


def _listed(prices: PriceList, amount: Decimal) -> Price:
    hours = HOURS_PER_MONTH if prices.per == "hour" else 1
    return Price(
        usd_per_month=_cents(amount * hours),
        region=prices.region,
        date=prices.date,
        source=tuple(prices.source),
        status=prices.status,
        note=prices.note,
        terms=prices.terms,
    )


def _series_price(catalog: Catalog, entry: VmEntry, region: str) -> Price | None:
    hourly, provenance = entry.facts.usd_per_hour, entry.series.provenance.get("price")
    if not hourly or provenance is None:
        return None
    where = region if region in hourly else next(iter(hourly))
    date = provenance.date or catalog.sources[provenance.source[0]].date or ""
    return Price(
        usd_per_month=_cents(hourly[where] * HOURS_PER_MONTH),
        region=where,
        date=date,
        source=tuple(provenance.source),
        status=provenance.status,
        note=provenance.note,
    )


Figure = TypeVar("Figure")


def _nearest(
    found: Iterable[tuple[PriceList, Figure]], region: str, terms: PriceTerms
) -> tuple[PriceList, Figure] | None:
    """Return the first in USD on these terms, one of the asked region if there is."""
    fit = [one for one in found if one[0].currency == "USD" and one[0].terms == terms]
    wanted = _plain(region)
    return next((one for one in fit if _plain(one[0].region) == wanted), next(iter(fit), None))


def list_price(
    catalog: Catalog, disk: DiskEntry, region: str, terms: PriceTerms
) -> tuple[PriceList, Decimal | PriceFormula] | None:
    """Return the monthly price in USD, one of the asked region if there is."""
    found = [
        (prices, figure)
        for prices in catalog.prices
        if prices.per == "month"
        and (figure := prices.disks.get(disk.name, prices.formulas.get(disk.name))) is not None
    ]
    return _nearest(found, region, terms) or _nearest(found, region, DEFAULT_TERMS)


def _no_price(catalog: Catalog, disk: DiskEntry) -> NoPrice:
    others = {
        prices.currency
        for prices in catalog.prices
        if disk.name in prices.disks or disk.name in prices.formulas
    }
    only = f" (only in {', '.join(sorted(others))})" if others else ""
    return NoPrice(f"no price in USD in the catalogue for {disk.name}{only}")


def io_charge(catalog: Catalog, disk: DiskEntry) -> tuple[Decimal, tuple[str, ...]]:
    """Return what the I/Os of a disk under load add to its price a month, and who says so.

    0: they are not billed. Of Standard SSD: its hourly limit of billed I/Os, which a few dozen a
    second reach.
    """
    for prices in catalog.prices:
        if disk.name in prices.io_charges:
            return prices.io_charges[disk.name], tuple(prices.source)
    return Decimal(0), ()


def _notes(prices: PriceList, expression: DiskExpression, charge: Decimal) -> Iterator[str]:
    if prices.note is not None:
        yield prices.note
    if charge:
        yield f"of which {charge * expression.count} for I/Os, at the hourly limit that is billed"
    if expression.on_demand_burst:
        yield "without the fees of on-demand bursting, which the catalogue does not know"
    if expression.performance_plus:
        yield "Performance Plus is assumed to cost nothing more"


def _plain(region: str) -> str:
    """Return `East US` as `eastus`."""
    return region.replace(" ", "").casefold()


def _cents(amount: Decimal) -> float:
    return float(amount.quantize(CENT))
