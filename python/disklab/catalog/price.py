"""What a volume or a VM costs a month, in USD, with region, date and source; or that nobody knows.

A result carries its prices with their dates (METHODOLOGY: price, price date, region). Prices are
list prices, pay as you go; nothing is converted here. What a vendor quoted in another currency
has a USD price only where the catalogue states one, marked `inferred`, with its derivation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from disklab.catalog.expression import DiskExpression, parse_disks
from disklab.catalog.facts import GIB, PriceFormula, PriceList, Status
from disklab.catalog.load import Catalog, DiskEntry
from disklab.catalog.provisioning import Terms, provision
from disklab.catalog.resolve import Places, find_vm

# The vendors' calculators, and the disks' monthly prices, count 365 / 12 days: 730 hours.
HOURS_PER_MONTH = 730

DEFAULT_REGION = "eastus"
CENT = Decimal("0.01")


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
) -> Price | NoPrice:
    """Return what all the disks of a volume cost.

    `size_bytes` is the size of the whole volume, and chooses the tier where `disks` names a family
    only. Raises UserError for disks that cannot be.
    """
    expression = parse_disks(disks) if isinstance(disks, str) else disks
    if expression.is_local:
        note = "comes with the VM, and is in its price"
        return Price(0.0, "any", "", (), "published", note)
    disk = provision(catalog, expression, Terms(size_bytes=size_bytes))
    if disk.entry is None:
        raise AssertionError("only local disks have no entry, and those are handled above")
    found = _list_price(catalog, disk.entry, region)
    if found is None:
        return _no_price(catalog, disk.entry)
    prices, figure = found
    if isinstance(figure, PriceFormula):
        mb_per_s = Decimal(disk.bytes_per_s or 0) / disk.entry.family.mb_bytes
        size_gib = Decimal(disk.size_bytes) / GIB
        figure = figure.at(size_gib, Decimal(disk.iops or 0), mb_per_s)
    return Price(
        usd_per_month=_cents(figure * expression.count),
        region=prices.region,
        date=prices.date,
        source=tuple(prices.source),
        status=prices.status,
        note="; ".join(_notes(prices, expression)) or None,
    )


def vm_price(catalog: Catalog, vm: str, *, region: str = DEFAULT_REGION) -> Price | NoPrice:
    """Return what a VM costs, pay as you go. Raises UserError for an unknown name."""
    entry = find_vm(catalog, vm, Places(vm="VM"))
    if entry is None:
        raise AssertionError("a name was given")
    hourly, provenance = entry.facts.usd_per_hour, entry.series.provenance.get("price")
    if not hourly or provenance is None:
        return NoPrice(f"no price in the catalogue for {vm}")
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


def _list_price(
    catalog: Catalog, disk: DiskEntry, region: str
) -> tuple[PriceList, Decimal | PriceFormula] | None:
    """Return the monthly price in USD of the first list, one of the asked region if there is."""
    found = [
        (prices, figure)
        for prices in catalog.prices
        if (prices.currency, prices.per) == ("USD", "month")
        and (figure := prices.disks.get(disk.name, prices.formulas.get(disk.name))) is not None
    ]
    wanted = _plain(region)
    return next((one for one in found if _plain(one[0].region) == wanted), next(iter(found), None))


def _no_price(catalog: Catalog, disk: DiskEntry) -> NoPrice:
    others = {
        prices.currency
        for prices in catalog.prices
        if disk.name in prices.disks or disk.name in prices.formulas
    }
    only = f" (only in {', '.join(sorted(others))})" if others else ""
    return NoPrice(f"no price in USD in the catalogue for {disk.name}{only}")


def _notes(prices: PriceList, expression: DiskExpression) -> Iterator[str]:
    if prices.note is not None:
        yield prices.note
    if expression.on_demand_burst:
        yield "without the fees of on-demand bursting, which the catalogue does not know"
    if expression.performance_plus:
        yield "Performance Plus is taken to cost nothing more"


def _plain(region: str) -> str:
    """Return `East US` as `eastus`."""
    return region.replace(" ", "").casefold()


def _cents(amount: Decimal) -> float:
    return float(amount.quantize(CENT))
