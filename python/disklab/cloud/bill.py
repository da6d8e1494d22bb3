"""What the resources of a layout cost an hour, and how long a budget lasts.

List prices of the catalogue, pay as you go, each with region and date. What is rounded is rounded
up, so that the bill is not below Azure's where the prices are right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from disklab.catalog import Catalog, NoPrice, Price, vm_price, volume_price
from disklab.catalog.price import HOURS_PER_MONTH
from disklab.cloud.layout import Layout
from disklab.errors import Problem, UserError

# Standard static public IPv4 address, USD an hour in most regions. Assumed: Azure's page "IP
# Addresses pricing" has had 0.005 since 2021; the catalogue has no list of it.
ADDRESS_USD_PER_HOUR = 0.005
OS_DISK = "azure/E4"
"""The OS disk of a VM without an ephemeral one: 30 GiB of an image on the tier of 32 GiB."""
AWS_OS_DISK = "aws/gp3(8GiB)"
"""The root volume of Canonical's images. AWS asks 0.005 USD an hour for a public address as well
(page "Amazon VPC pricing", since February 2024)."""
# An OS disk is small beside the rest; where it has no price of its own, that of E4 in East US.
UNKNOWN_WAY_OUT = (
    "add its price to a catalogue file of yours (`disklab prices` takes Azure's list), or choose "
    "another one"
)


@dataclass(frozen=True)
class Item:
    """Equal resources of a layout."""

    what: str
    count: int
    usd_per_hour: float
    """Of all of them."""
    compute: bool
    """Whether it costs nothing while its VM is deallocated."""
    source: str
    """Region and date of the price."""


@dataclass(frozen=True)
class Tariff:
    """What all resources of a layout cost."""

    items: tuple[Item, ...]
    unknown: tuple[str, ...] = ()
    """Resources without a price in the catalogue, with the reason."""

    @property
    def usd_per_hour(self) -> float:
        """What an hour costs while the VMs run."""
        return sum(item.usd_per_hour for item in self.items)

    @property
    def idle_usd_per_hour(self) -> float:
        """What an hour costs when the VMs are deallocated: disks and addresses."""
        return sum(item.usd_per_hour for item in self.items if not item.compute)

    def usd(self, seconds: float) -> float:
        """Return what so many seconds cost: VMs by started minutes, the rest by started hours."""
        minutes, hours = math.ceil(max(0.0, seconds) / 60), math.ceil(max(0.0, seconds) / 3600)
        return sum(
            item.usd_per_hour * (minutes / 60 if item.compute else hours) for item in self.items
        )

    def seconds_for(self, usd: float) -> int:
        """Return for how many whole minutes, in seconds, a budget lasts; at most a month's."""
        low, high = 0, HOURS_PER_MONTH * 60
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.usd(middle * 60) <= usd else (low, middle - 1)
        return low * 60

    def rows(self, seconds: float) -> Iterator[tuple[str, float, float]]:
        """Yield each resource with its priced hours and what they cost, for the bill."""
        minutes, hours = math.ceil(max(0.0, seconds) / 60), math.ceil(max(0.0, seconds) / 3600)
        for item in self.items:
            priced = minutes / 60 if item.compute else float(hours)
            yield f"{item.count} x {item.what}", priced * item.count, item.usd_per_hour * priced


def tariff_of(layout: Layout, catalog: Catalog, region: str) -> Tariff:
    """Return the prices of a layout's resources."""
    items: list[Item] = []
    unknown: list[str] = []

    def add(what: str, count: int, price: Price | NoPrice, *, compute: bool) -> None:
        if isinstance(price, NoPrice):
            unknown.append(f"{what}: {price.reason}")
            return
        each = price.usd_per_month / HOURS_PER_MONTH
        told = f"{price.region}, {price.date}"
        items.append(Item(what, count, each * count, compute, told))

    for name, count in Counter(host.vm.name for host in layout.hosts).items():
        add(name, count, vm_price(catalog, name, region=region), compute=True)
    stripes = Counter(
        str(volume.disks)
        for host in layout.hosts
        for volume in host.volumes
        if volume.kind == "disk"
    )
    sizes = {volume.disks: volume for host in layout.hosts for volume in host.volumes}
    for disks, count in stripes.items():
        bought = sizes[disks].bought
        assert bought is not None, "a managed disk is bought"
        size = bought.size_bytes * sizes[disks].count
        price = volume_price(catalog, disks, size_bytes=size, region=region)
        add(f"({disks})" if " x " in disks else disks, count, price, compute=False)
    managed = sum(not host.ephemeral_os for host in layout.hosts)
    if managed:
        in_aws = any(host.vm.name.startswith("aws/") for host in layout.hosts)
        os_disk = AWS_OS_DISK if in_aws else OS_DISK
        price = volume_price(catalog, os_disk, region=region)
        add(f"OS disk ({os_disk})", managed, price, compute=False)
    address = ADDRESS_USD_PER_HOUR * len(layout.hosts)
    items.append(Item("public address", len(layout.hosts), address, False, "assumed"))
    return Tariff(tuple(items), tuple(unknown))


def check_known(tariff: Tariff, place: str) -> None:
    """Raise UserError when a price is not known: then no bound on the costs can be kept."""
    if tariff.unknown:
        rule = "without it, no bound on the costs can be kept"
        raise UserError(*(Problem(place, one, rule, UNKNOWN_WAY_OUT) for one in tariff.unknown))
