"""AWS's offer files of EC2, which has EBS in it: `index.json` or `index.csv` of one region.

Their form: docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html ("reading a
service price list file"). The CSV is read line by line, so a large region costs no memory.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from pydantic_core import from_json

from disklab import reading
from disklab.catalog.facts import ListedPrice, PriceTerms
from disklab.errors import Problem, UserError

Part = Literal["per_gib", "per_iops", "per_mb_per_s"]
Attributes = Mapping[str, str]
"""What a list says of one price: names in small letters and digits, as both forms have them."""

VOLUMES = ("gp2", "gp3", "io1", "io2", "st1", "sc1")
YEARS: dict[str, PriceTerms] = {"1yr": "reserved-1y", "3yr": "reserved-3y"}
MIB_IN_GIB = 1024
HEAD_LINES = 5
"""Lines before the CSV's table: format, disclaimer, publication date, version, offer."""


def rows(path: Path) -> tuple[str, str, Iterable[ListedPrice], str | None] | None:
    """Return vendor, date, prices and no next page of a file; None: it is not of this kind.

    Raises UserError for a damaged one.
    """
    with reading.opened(path, reading.PRICES, "FILE") as file:
        start = file.read(4096)
    if start.lstrip(b'"').startswith(b"FormatVersion"):
        date, attributes = _of_csv(path)
    elif b'"offerCode"' in start:
        date, attributes = _of_json(path)
    else:
        return None
    return "aws", date, (row for one in attributes for row in _rows(one)), None


def _of_csv(path: Path) -> tuple[str, Iterator[Attributes]]:
    lines = _lines(path)
    head = [next(csv.reader([line]), []) for _, line in zip(range(HEAD_LINES), lines, strict=False)]
    told = {line[0]: line[1] for line in head if len(line) > 1}
    names = [_plain(name) for name in next(csv.reader([next(lines, "")]), [])]
    if "instancetype" not in names or "priceperunit" not in names:
        rule = "is not an offer file of EC2: it has no column Instance Type or PricePerUnit"
        raise UserError(Problem("FILE", str(path), rule, "name the index.csv of AmazonEC2"))
    table = csv.reader(lines)
    return told.get("Publication Date", "")[:10], (
        dict(zip(names, line, strict=False)) for line in table
    )


def _lines(path: Path) -> Iterator[str]:
    for line in reading.lines(path, reading.PRICES, "FILE"):
        if line is not None:
            yield line.decode("utf-8", "replace") + "\n"


def _of_json(path: Path) -> tuple[str, Iterator[Attributes]]:
    try:
        whole = from_json(reading.contents(path, reading.PRICES, "FILE"))
        return str(whole["publicationDate"])[:10], _joined(whole["products"], whole["terms"])
    except (ValueError, KeyError, TypeError) as error:
        rule = f"is not an offer file of EC2: {error}"
        raise UserError(Problem("FILE", str(path), rule, "save it again")) from None


def _joined(products: Mapping[str, Any], terms: Mapping[str, Any]) -> Iterator[Attributes]:
    """Yield each price with what it is the price of, as a line of the CSV has it."""
    for kind, by_sku in terms.items():
        for sku, offers in by_sku.items():
            product = products.get(sku, {})
            base = {_plain(k): str(v) for k, v in product.get("attributes", {}).items()}
            base |= {"productfamily": str(product.get("productFamily", "")), "termtype": str(kind)}
            for offer in offers.values():
                bound = {_plain(k): str(v) for k, v in offer.get("termAttributes", {}).items()}
                for price in offer.get("priceDimensions", {}).values():
                    for currency, amount in price.get("pricePerUnit", {}).items():
                        yield {
                            **base,
                            **bound,
                            "unit": str(price.get("unit", "")),
                            "startingrange": str(price.get("beginRange", "0")),
                            "currency": str(currency),
                            "priceperunit": str(amount),
                        }


def _rows(one: Attributes) -> Iterator[ListedPrice]:
    """Yield what a price is in the catalogue's terms; none where it is something else's."""
    try:
        amount = Decimal(one.get("priceperunit", ""))
    except InvalidOperation:
        return
    if not amount.is_finite() or amount < 0 or one.get("startingrange", "0") not in ("0", ""):
        return
    region, currency = one.get("regioncode", ""), one.get("currency", "")
    if not region or not currency:
        return
    if one.get("productfamily", "").startswith("Compute Instance"):
        terms = _machine_terms(one)
        if terms is not None and amount > 0:
            yield ListedPrice("vm", one.get("instancetype", ""), amount, region, currency, terms)
        return
    part = _volume_part(one)
    name = one.get("volumeapiname", "")
    if part is not None and one.get("termtype") == "OnDemand" and name in VOLUMES:
        yield ListedPrice(part[0], name, amount / part[1], region, currency)


def _machine_terms(one: Attributes) -> PriceTerms | None:
    """Return the terms of a VM with Linux on shared hardware; None: it is another one's price."""
    plain = (
        one.get("operatingsystem") == "Linux"
        and one.get("tenancy") == "Shared"
        and one.get("preinstalledsw") == "NA"
        and one.get("capacitystatus") == "Used"
        and one.get("unit") == "Hrs"
    )
    if not plain:
        return None
    if one.get("termtype") == "OnDemand":
        return "pay-as-you-go"
    if one.get("purchaseoption") == "No Upfront" and one.get("offeringclass") == "standard":
        return YEARS.get(one.get("leasecontractlength", ""))
    return None


def _volume_part(one: Attributes) -> tuple[Part, int] | None:
    """Return what of a volume is paid, and by how much the list's unit is larger than ours."""
    family, unit = one.get("productfamily"), one.get("unit", "").casefold()
    # AWS writes both: io2 is sold by the `GB-month`, the others by the `GB-Mo`.
    unit = unit.replace("-month", "-mo")
    if family == "Storage" and unit == "gb-mo":
        return "per_gib", 1
    if family == "System Operation" and unit == "iops-mo" and one.get("group") == "EBS IOPS":
        return "per_iops", 1
    if family == "Provisioned Throughput" and unit == "gibps-mo":
        return "per_mb_per_s", MIB_IN_GIB
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
