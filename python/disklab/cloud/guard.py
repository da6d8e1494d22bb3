"""The conductor's side of the cost guard: what is made is written down, bounded and removed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from disklab import durable
from disklab.catalog import Catalog, NoPrice, Price, vm_price, volume_price
from disklab.catalog.price import HOURS_PER_MONTH
from disklab.cloud import first_boot
from disklab.cloud.layout import Layout
from disklab.cloud.protocol import OWNER, RUN, UNTIL, Clock, CloudSite, Fit, Wish
from disklab.cloud.record import Notebook, Record, records
from disklab.errors import DisklabError, Problem, UserError
from disklab.interrupts import uninterrupted

# What the resources of a layout cost an hour, and how long a budget lasts.
#
# List prices of the catalogue, pay as you go, each with region and date. What is rounded is
# rounded up, so that the bill is not below Azure's where the prices are right.

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
    volumes = [volume for host in layout.hosts for volume in host.made]
    sizes = {volume.disks: volume.bought.size_bytes * volume.count for volume in volumes}
    for disks, count in Counter(volume.disks for volume in volumes).items():
        price = volume_price(catalog, disks, size_bytes=sizes[disks], region=region)
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
        rule = "without it, no limit on the costs can be kept"
        raise UserError(*(Problem(place, one, rule, UNKNOWN_WAY_OUT) for one in tariff.unknown))


# Assumed until a real subscription says better: VMs are there after 5 min, their packages after 3.
SET_UP_S = 600.0
REMOVAL_S = 900.0
"""Kept free at the end: a dozen VMs go in 5 to 10 min."""
SLACK = 1.5
"""A run may take so much longer than was expected before its time is over."""
LONGEST_S = 23 * 3600.0
"""Azure's schedule for shutting down knows a time of day only, so the next one must be meant."""


@dataclass(frozen=True)
class Budget:
    """How long a run may be there, and what that costs."""

    expected_s: float
    """Setting up, measuring and removing."""
    allowed_s: float
    expected_usd: float
    most_usd: float
    """When it is removed at the end of the allowed time."""


def budget_of(tariff: Tariff, measuring_s: float, max_usd: float | None) -> Budget:
    """Return how long a run may be there. Raises UserError when the money is not enough for it."""
    expected = SET_UP_S + measuring_s + REMOVAL_S
    if expected > LONGEST_S:
        rule = f"hosts are created for at most {LONGEST_S / 3600:.0f} h at a time"
        value = f"{expected / 3600:.1f} h"
        raise UserError(Problem("the plan", value, rule, "measure less: --only, --quick, --repeat"))
    allowed = min(expected * SLACK, LONGEST_S)
    if max_usd is not None:
        allowed = min(allowed, float(tariff.seconds_for(max_usd)))
    if allowed < expected:
        rule = f"the run is expected to cost {tariff.usd(expected):.2f} USD"
        way_out = "give more, or measure less: --only, --quick, --repeat"
        raise UserError(Problem("--max-usd", f"{max_usd:g}", rule, way_out))
    # Whole minutes: the schedule has no finer ones.
    allowed = allowed // 60 * 60
    return Budget(expected, allowed, tariff.usd(expected), tariff.usd(allowed))


@dataclass
class Held:
    """Hosts that are there."""

    addresses: dict[str, str]
    record: Record
    clock: Clock

    def has_time_for(self, seconds: float) -> bool:
        """Return whether something ends early enough for the removal to be in time."""
        latest = self.record.until - timedelta(seconds=REMOVAL_S)
        return self.clock.now() + timedelta(seconds=seconds) <= latest


@dataclass(frozen=True)
class Making:
    """What is to be made, and for whom."""

    site: CloudSite
    fit: Fit
    record: Record
    notebook: Notebook
    ssh_from: str
    clock: Clock


@contextmanager
def held(making: Making, told: Callable[[str], None]) -> Iterator[Held]:
    """Make the hosts, and remove them at the end, whatever that is; a kept group stays.

    The record is on the disk before the first call that makes anything. When the removal fails,
    `told` hears it and the record stays: `disklab clean --cloud` goes on with it.
    """
    record, notebook = making.record, making.notebook
    notebook.write(record)
    with durable.sole_writer(notebook.folder):
        stays = False
        try:
            addresses = making.site.make(_wish(making))
            notebook.write_ssh_config(addresses)
            yield Held(addresses, record, making.clock)
            stays = record.kept
        finally:
            if not stays:
                with uninterrupted():
                    _remove(making, told)


def _wish(making: Making) -> Wish:
    layout, record = making.fit.layout, making.record
    public, keys = making.notebook.make_keys([host.name for host in layout.hosts])
    alive = max(1, int((record.until - making.clock.now()).total_seconds() // 60))
    return Wish(
        group=record.group,
        tags={RUN: record.run, OWNER: record.owner, UNTIL: record.until.isoformat()},
        layout=layout,
        zones=making.fit.zones,
        ssh_public_key=public,
        ssh_from=making.ssh_from,
        user_data={
            host.name: first_boot.user_data(host, record.run, keys[host.name], alive)
            for host in layout.hosts
        },
    )


def _remove(making: Making, told: Callable[[str], None]) -> None:
    record = making.record
    try:
        making.site.remove(record.group, record.run)
    except DisklabError as error:
        told(
            f"the group {record.group} may still be there and cost up to "
            f"{record.usd_per_hour:.2f} USD an hour: {error}; run `disklab clean --cloud`"
        )
    else:
        making.notebook.forget()


def clean_left(
    site_of: Callable[[Record], CloudSite], now: datetime, *, everything: bool, dry_run: bool
) -> Iterator[tuple[str, bool]]:
    """Remove groups that are written down and whose run is gone; yield what was done, and how.

    False beside a line: something is left. A run that goes on is left alone, and so is a group
    that is kept until later, unless `everything` is said.
    """
    for notebook, record in records():
        if record is None:
            yield f"{notebook.folder}: the record cannot be read; look for its group", False
        elif record.kept and record.until > now and not everything:
            until = record.until.strftime("%Y-%m-%d %H:%M UTC")
            yield f"left alone {record.group}: kept until {until}; --all removes it", True
        elif dry_run:
            yield f"would remove the group {record.group} in {record.region}", True
        else:
            yield _cleaned(notebook, record, site_of)


def _cleaned(
    notebook: Notebook, record: Record, site_of: Callable[[Record], CloudSite]
) -> tuple[str, bool]:
    try:
        with durable.sole_writer(notebook.folder):
            site_of(record).remove(record.group, record.run)
            notebook.forget()
    except UserError:
        return f"left alone {record.group}: its run is still going on", True
    except DisklabError as error:
        return f"could not remove {record.group}: {error}", False
    return f"removed the group {record.group} in {record.region}", True


def clean_tagged(
    site: CloudSite, owner: str, known: frozenset[str], *, dry_run: bool
) -> Iterator[tuple[str, bool]]:
    """Remove groups with our tag that no record of this machine has: its record was lost."""
    for found in site.ours(owner):
        if found.group in known or RUN not in found.tags:
            continue
        if dry_run:
            yield f"would remove the group {found.group}, found by its tag", True
            continue
        try:
            site.remove(found.group, found.tags[RUN])
        except DisklabError as error:
            yield f"could not remove {found.group}: {error}", False
        else:
            yield f"removed the group {found.group}, found by its tag", True
