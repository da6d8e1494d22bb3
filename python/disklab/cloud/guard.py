"""The conductor's side of the cost guard: what is made is written down, bounded and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from disklab.cloud import first_boot
from disklab.cloud.bill import Tariff
from disklab.cloud.protocol import OWNER, RUN, UNTIL, Clock, CloudSite, Fit, Wish
from disklab.cloud.record import Notebook, Record, records
from disklab.errors import DisklabError, Problem, UserError
from disklab.interrupts import uninterrupted
from disklab.results import durable

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
        rule = f"hosts are made for at most {LONGEST_S / 3600:.0f} h at a time"
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
        return f"left alone {record.group}: its run goes on", True
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
