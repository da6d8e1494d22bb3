"""What the system that a trial describes costs a month: list prices, with date and source."""

from __future__ import annotations

from collections.abc import Iterable

from disklab.catalog import Catalog
from disklab.catalog.facts import PriceTerms
from disklab.catalog.price import (
    DEFAULT_REGION,
    DEFAULT_TERMS,
    NoPrice,
    Price,
    vm_price,
    volume_price,
)
from disklab.results.records import Price as PriceRecord
from disklab.spec import Trial, TrialSpec
from disklab.spec.feasible import volumes_of


def cluster_price(
    catalog: Catalog,
    spec: TrialSpec,
    region: str = DEFAULT_REGION,
    terms: PriceTerms = DEFAULT_TERMS,
) -> float | None:
    """Return the price of all nodes with their disks, in USD a month; None: one is not known.

    Load generators are not counted; a device experiment is one VM with its volume.
    """
    parts = list(_parts(catalog, spec, region, terms))
    if any(isinstance(price, NoPrice) for _, price in parts):
        return None
    each = sum(price.usd_per_month for _, price in parts if isinstance(price, Price))
    return round(each * spec.nodes, 2)


def prices(
    catalog: Catalog,
    trials: Iterable[Trial],
    region: str = DEFAULT_REGION,
    terms: PriceTerms = DEFAULT_TERMS,
) -> list[PriceRecord]:
    """Return every price that the trials counted with, once."""
    found: dict[str, PriceRecord] = {}
    for trial in trials:
        for item, price in _parts(catalog, trial.spec, region, terms):
            # A price without a source is that of something included in another.
            if isinstance(price, Price) and price.source:
                found[item] = PriceRecord(
                    item=item,
                    amount=price.usd_per_month,
                    region=price.region,
                    date=price.date,
                    source=", ".join(price.source),
                    terms=price.terms,
                )
    return list(found.values())


def _parts(
    catalog: Catalog, spec: TrialSpec, region: str, terms: PriceTerms
) -> Iterable[tuple[str, Price | NoPrice]]:
    """Yield what one node consists of."""
    owner = spec.machine
    yield owner.vm, vm_price(catalog, owner.vm, region=region, terms=terms)
    for *_, volume, _ in volumes_of(spec):
        price = volume_price(
            catalog, volume.disks, size_bytes=volume.size_bytes, region=region, terms=terms
        )
        yield volume.disks, price
