"""What of the catalogue is not to be relied on as it stands: guessed, old, undated or unpriced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - `date` is a field here
from typing import Any

from disklab.catalog.description import describe_disk, describe_vm
from disklab.catalog.load import Catalog, DiskEntry, VmEntry
from disklab.catalog.price import OLD_DAYS

GUESSED = {"assumed", "inferred"}
"""Statuses of numbers that no source states."""
YEAR_DAYS = 365
OLD_FACT_DAYS = 3 * YEAR_DAYS
"""Documents of VM sizes and disks are rewritten about every second year."""


@dataclass(frozen=True)
class Doubt:
    """A fact of a family of disks, or of a series of VM sizes, and what is doubtful about it."""

    of: str
    fact: str
    kind: str
    """`assumed`, `inferred`, `old`, `undated`, or `missing`."""
    date: str
    source: tuple[str, ...]
    entries: int
    """How many disks or sizes of the family have it."""


def doubts(
    catalog: Catalog,
    disks: Iterable[DiskEntry],
    vms: Iterable[VmEntry],
    today: Date,
    fact_days: int = OLD_FACT_DAYS,
) -> list[Doubt]:
    """Return every doubt, once for each family or series, in the order of the catalogue.

    `fact_days`: from which age on a fact is old.
    """
    found: dict[tuple[str, str, str, str], list[tuple[str, ...]]] = {}
    for disk in disks:
        for doubt in _of_entry(describe_disk(catalog, disk), today, fact_days):
            found.setdefault((disk.family_name, *doubt[:3]), []).append(doubt[3])
    for vm in vms:
        for doubt in _of_entry(describe_vm(catalog, vm), today, fact_days):
            found.setdefault((vm.series_name, *doubt[:3]), []).append(doubt[3])
    return [
        Doubt(of, fact, kind, date, sources[0], len(sources))
        for (of, fact, kind, date), sources in found.items()
    ]


def _of_entry(
    described: Mapping[str, Any], today: Date, fact_days: int
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    for fact in described["facts"]:
        named, told = fact["fact"], fact["date"] or ""
        sources = tuple(fact["source"])
        if fact["status"] in GUESSED:
            yield named, fact["status"], told, sources
        elif (kind := _age(told, today, fact_days)) is not None:
            yield named, kind, told, sources
    prices = described["prices"]
    if not prices:
        yield "price", "missing", "", ()
        return
    # One good price is enough: a region's or another's.
    ages = [_age(price["date"] or "", today, OLD_DAYS) for price in prices]
    if None not in ages:
        newest = max(prices, key=lambda price: price["date"] or "")
        kind = "undated" if "undated" in ages else "old"
        yield "price", kind, newest["date"] or "", tuple(newest["source"])


def _age(told: str, today: Date, most_days: int) -> str | None:
    """Return `old` or `undated`; None for a date that is recent enough."""
    try:
        age = today - Date.fromisoformat(told[:10])
    except ValueError:
        return "undated"
    return "old" if age.days > most_days else None
