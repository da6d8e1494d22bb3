"""Azure's retail prices: the JSON of https://prices.azure.com/api/retail/prices, page by page.

Meters of disks: learn.microsoft.com/azure/virtual-machines/disks-understand-billing; fields:
learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from disklab import reading
from disklab.catalog.facts import ListedPrice, PriceTerms
from disklab.errors import Problem, UserError

HOURS_PER_MONTH = 730
"""As Azure's calculator counts."""
HOURS_PER_YEAR = 8760

TIER = re.compile(r"([PES]\d+) LRS Disk")
"""The meter of a disk of fixed size, locally redundant. `P30 LRS Disk Mount` is another one's."""

BY_SIZE = {
    "Azure Premium SSD v2": ("PremiumV2", "Premium LRS Provisioned "),
    "Ultra Disks": ("Ultra", "Ultra LRS Provisioned "),
}
PARTS: dict[str, Literal["per_gib", "per_iops", "per_mb_per_s"]] = {
    "Capacity": "per_gib",
    "IOPS": "per_iops",
    "Throughput (MBps)": "per_mb_per_s",
}
YEARS: dict[str, tuple[PriceTerms, int]] = {
    "1 Year": ("reserved-1y", 1),
    "3 Years": ("reserved-3y", 3),
}


class Item(BaseModel):
    """One price of the list; whatever else it says is not needed."""

    currency: str = Field(alias="currencyCode")
    amount: Decimal = Field(alias="retailPrice", ge=0)
    region: str = Field(alias="armRegionName")
    product: str = Field(alias="productName")
    sku: str = Field(alias="skuName")
    meter: str = Field(alias="meterName")
    unit: str = Field(alias="unitOfMeasure")
    vm: str = Field("", alias="armSkuName")
    kind: str = Field("Consumption", alias="type")
    term: str = Field("", alias="reservationTerm")
    least: Decimal = Field(Decimal(0), alias="tierMinimumUnits")


class Page(BaseModel):
    """One answer of the service."""

    items: list[Item] = Field(alias="Items")
    next_page: str | None = Field(None, alias="NextPageLink")


def rows(path: Path) -> tuple[str, str, Iterable[ListedPrice], str | None] | None:
    """Return vendor, date, prices and next page of a file; None: it is not of this kind.

    The list tells no date of its own: that of the file holds. Raises UserError for a damaged one.
    """
    data = reading.contents(path, reading.PRICES, "FILE")
    start = data[:4096].lstrip()
    if not start.startswith((b"{", b"[")) or b"armRegionName" not in data:
        return None
    following = None
    try:
        if start.startswith(b"["):
            items = reading.parse_list(Item, data)
        else:
            page = reading.parse(Page, data)
            items, following = page.items, page.next_page or None
    except reading.NotAsExpectedError as error:
        raise UserError(
            *error.problems(str(path), "save the answer of the service again")
        ) from None
    if not items:
        raise UserError(Problem("FILE", str(path), "has no prices", "save the answer again"))
    date = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date().isoformat()
    return "azure", date, _rows(items), following


def _rows(items: Iterable[Item]) -> Iterator[ListedPrice]:
    for one in items:
        if one.kind == "DevTestConsumption" or one.least > 0:
            continue
        row = _machine(one) if one.product.startswith("Virtual Machines ") else _disk(one)
        if row is not None:
            yield row


def _machine(one: Item) -> ListedPrice | None:
    """Return the price of a VM with Linux: that of its hardware alone."""
    if not one.vm or one.product.endswith(("Windows", "CloudServices")):
        return None
    if one.kind == "Reservation":
        if one.term not in YEARS:
            return None
        terms, years = YEARS[one.term]
        return ListedPrice(
            "vm", one.vm, one.amount / (years * HOURS_PER_YEAR), one.region, one.currency, terms
        )
    if one.sku.endswith("Low Priority") or one.unit != "1 Hour":
        return None
    spot = one.sku.endswith("Spot")
    return ListedPrice(
        "vm", one.vm, one.amount, one.region, one.currency, "spot" if spot else "pay-as-you-go"
    )


def _disk(one: Item) -> ListedPrice | None:
    if one.kind == "Reservation":
        return _reserved_disk(one)
    if one.product in BY_SIZE:
        name, prefix = BY_SIZE[one.product]
        part = PARTS.get(one.meter.removeprefix(prefix)) if one.meter.startswith(prefix) else None
        if part is None:
            return None
        return ListedPrice(part, name, one.amount * HOURS_PER_MONTH, one.region, one.currency)
    found = TIER.fullmatch(one.meter)
    if found is None or not one.product.endswith("Managed Disks") or one.unit != "1/Month":
        return None
    return ListedPrice("disk", found[1], one.amount, one.region, one.currency)


def _reserved_disk(one: Item) -> ListedPrice | None:
    found = TIER.fullmatch(one.meter)
    if found is None or one.term not in YEARS or not one.product.endswith("Managed Disks"):
        return None
    terms, years = YEARS[one.term]
    return ListedPrice("disk", found[1], one.amount / (12 * years), one.region, one.currency, terms)
