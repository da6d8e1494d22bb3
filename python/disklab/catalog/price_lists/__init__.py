"""Vendors' price lists as files, made into price lists of a catalogue file.

Nothing is fetched here: the user brings the file. What the catalogue has no disk or VM size for is
left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from disklab.catalog.facts import ListedPrice, PriceTerms
from disklab.catalog.load import Catalog
from disklab.catalog.price_lists import aws, azure
from disklab.errors import Problem, UserError

PARTS = {"per_gib": "a GiB", "per_iops": "IOPS", "per_mb_per_s": "MB/s"}
SKIP = re.compile(r"\$skip=(\d+)")
PAGE_ITEMS = 1000
"""Of a page of Azure's service."""

Key = tuple[str, str, PriceTerms, str]
"""Region, currency, terms, and what it is paid per."""


@dataclass
class Imported:
    """What one file says."""

    vendor: str
    date: str
    lists: dict[Key, dict[str, dict[str, Any]]] = field(default_factory=dict)
    kept: int = 0
    unknown: int = 0
    """Prices of VM sizes and disks that the catalogue does not have."""
    clashes: list[str] = field(default_factory=list)
    """Names that the list has several prices for; the highest counts."""
    incomplete: list[str] = field(default_factory=list)
    """Disks that are left out because a part of their price is missing, and which one."""
    next_page: str | None = None
    """Where the list goes on; None: it ends here."""


def read(path: Path, catalog: Catalog, regions: Sequence[str] = ()) -> Imported:
    """Return the prices of a file that the catalogue has a use for.

    Understood are the JSON of Azure's retail prices and AWS's offer files, JSON or CSV, of EC2.
    Raises UserError for any other file, and where nothing of it can be used.
    """
    vendor, date, rows, next_page = azure.rows(path) or aws.rows(path) or _nobody(path)
    found = Imported(vendor, date, next_page=next_page)
    wanted = {region.casefold() for region in regions}
    parts: dict[tuple[str, str, PriceTerms, str], dict[str, Decimal]] = {}
    seen: set[str] = set()
    for row in rows:
        seen.add(row.region)
        if wanted and row.region.casefold() not in wanted:
            continue
        name = f"{vendor}/{row.name}"
        if name not in (catalog.vms if row.part == "vm" else catalog.disks):
            found.unknown += 1
        elif row.part in ("vm", "disk"):
            _keep(found, row, name)
        else:
            parts.setdefault((row.region, row.currency, row.terms, name), {})[row.part] = row.amount
    for (region, currency, terms, name), amounts in parts.items():
        _keep_formula(found, catalog, (region, currency, terms, "month"), name, amounts)
    if not found.kept:
        raise UserError(_nothing(path, found, seen, wanted))
    return found


def whole(imported: Sequence[tuple[Path, Imported]]) -> None:
    """Raise UserError where files are pages of a list of which others are missing."""
    pages = [(path, one) for path, one in imported if one.next_page is not None]
    skipped = [int(found[1]) for _, one in pages if (found := SKIP.search(one.next_page or ""))]
    # The last page names no next one, so it is there besides those that do.
    lists = [one for _, one in imported if one.vendor == "azure"]
    has_last = len(lists) > len(pages)
    if not pages or (has_last and max(skipped, default=0) <= len(pages) * PAGE_ITEMS):
        return
    path, one = pages[-1]
    rule = f"is one page of a list that continues at {one.next_page}"
    way_out = "save every page, and name all files in one command"
    raise UserError(Problem("FILE", str(path), rule, way_out))


def document(imported: Iterable[tuple[Path, Imported]]) -> dict[str, Any]:
    """Return a catalogue file with the prices of these files."""
    sources: dict[str, Any] = {}
    prices: list[dict[str, Any]] = []
    for path, one in imported:
        key = f"{one.vendor}_prices_{one.date.replace('-', '')}"
        while key in sources:
            key += "_"
        sources[key] = {"at": f"the price list {path.name} of {one.vendor}", "date": one.date}
        for (region, currency, terms, per), content in sorted(one.lists.items()):
            head = {"source": [key], "region": region, "currency": currency, "per": per}
            prices.append({**head, "date": one.date, "terms": terms, **content})
    return {"sources": sources, "prices": prices}


def _keep(found: Imported, row: ListedPrice, name: str) -> None:
    key: Key = (row.region, row.currency, row.terms, "hour" if row.part == "vm" else "month")
    into = found.lists.setdefault(key, {}).setdefault("vms" if row.part == "vm" else "disks", {})
    before = into.get(name)
    if before is not None and before != float(row.amount):
        found.clashes.append(f"{name} in {row.region}, {row.terms}")
    into[name] = max(float(row.amount), before or 0.0)
    found.kept += before is None


def _keep_formula(
    found: Imported, catalog: Catalog, key: Key, name: str, amounts: dict[str, Decimal]
) -> None:
    """Add a disk that is sold by the GiB: how much of IOPS and MB/s comes with it, is known.

    A part that is bought and has no price here would be free: then the disk is left out.
    """
    facts = catalog.disks[name].facts
    wanted = {"per_gib": True}
    wanted["per_iops"] = facts.iops is not None and facts.iops.choosable
    wanted["per_mb_per_s"] = facts.mb_per_s is not None and facts.mb_per_s.choosable
    missing = [PARTS[part] for part, bought in wanted.items() if bought and part not in amounts]
    if missing:
        found.incomplete.append(f"{name} in {key[0]} has no price of {' and '.join(missing)}")
        return
    found.kept += len(amounts)
    known = next((p.formulas[name] for p in catalog.prices if name in p.formulas), None)
    formula = {part: float(amounts.get(part, 0)) for part in ("per_gib", "per_iops")}
    formula["iops_included"] = known.iops_included if known else 0
    formula["per_mb_per_s"] = float(amounts.get("per_mb_per_s", 0))
    formula["mb_per_s_included"] = known.mb_per_s_included if known else 0
    found.lists.setdefault(key, {}).setdefault("formulas", {})[name] = formula


def _nobody(path: Path) -> tuple[str, str, Iterable[ListedPrice], str | None]:
    rule = "is neither Azure's list of retail prices nor an offer file of AWS's EC2"
    way_out = "docs/prices.md says where to get them"
    raise UserError(Problem("FILE", str(path), rule, way_out))


def _nothing(path: Path, found: Imported, seen: set[str], wanted: set[str]) -> Problem:
    some = sorted(seen)[:5]
    if wanted and not any(region.casefold() in wanted for region in seen):
        rule = f"has no price of {', '.join(sorted(wanted))}"
        return Problem("FILE", str(path), rule, f"it has for example {', '.join(some) or 'none'}")
    rule = f"has no price of a disk or VM size of the catalogue ({found.unknown} of others)"
    return Problem("FILE", str(path), rule, "`disklab catalog` lists the names")
