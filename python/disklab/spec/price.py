"""What the cluster of a trial costs a month: VMs and disks of its nodes, without the clients.

The price is that of the full system that the trial describes, whatever part of it is rehearsed.
"""

from __future__ import annotations

from dataclasses import dataclass

from disklab.catalog import Catalog, NoPrice, Price, vm_price, volume_price
from disklab.spec.feasible import volumes_of
from disklab.spec.model import TrialSpec


@dataclass(frozen=True)
class PricedItem:
    """One item of the bill: a VM, or the disks of a volume."""

    item: str
    usd_per_month: float
    """Of one; the bill has `count` of them."""
    count: int
    region: str
    date: str
    source: str


@dataclass(frozen=True)
class MonthlyPrice:
    """The bill of a cluster."""

    usd_per_month: float | None
    """None: something has no price in the catalogue."""
    items: tuple[PricedItem, ...]
    missing: tuple[str, ...]
    """Why there is no sum."""


def monthly_price(spec: TrialSpec, catalog: Catalog) -> MonthlyPrice:
    """Return what the nodes of a trial cost a month. The trial must not be refused."""
    nodes = spec.cluster.nodes if spec.cluster else 1
    found: list[PricedItem] = []
    missing: list[str] = []

    def add(name: str, price: Price | NoPrice) -> None:
        if isinstance(price, NoPrice):
            missing.append(price.reason)
            return
        source = ", ".join(price.source)
        found.append(PricedItem(name, price.usd_per_month, nodes, price.region, price.date, source))

    vm = spec.cluster.vm if spec.cluster else spec.device.vm if spec.device else ""
    add(vm, vm_price(catalog, vm))
    for _, _, volume, _ in volumes_of(spec):
        add(volume.disks, volume_price(catalog, volume.disks, size_bytes=volume.size_bytes))
    total = round(sum(item.usd_per_month * item.count for item in found), 2)
    return MonthlyPrice(None if missing else total, tuple(found), tuple(dict.fromkeys(missing)))
