"""What a disk expression gives and costs: `4 x azure/P30`, `azure/Ultra(250GiB, 10000 IOPS)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from disklab.catalog.description import Fact, describe_disk, fact_of, rate_unit
from disklab.catalog.expression import DiskExpression
from disklab.catalog.facts import GIB, Rate
from disklab.catalog.load import Catalog, DiskEntry
from disklab.catalog.price import Price, volume_price
from disklab.catalog.provisioning import Provisioned, Terms, provision
from disklab.errors import Problem, UserError


def describe_volume(catalog: Catalog, expression: DiskExpression, place: str) -> Fact:
    """Return all facts about the disks of an expression, what they give together, and the price.

    Raises UserError for disks that cannot be.
    """
    if expression.is_local:
        rule = f"{expression.name!r} is a disk of the VM, whose limits are those of the VM"
        way_out = "ask for the VM, for example `disklab catalog azure/Standard_E8ds_v4`"
        raise UserError(Problem(place, repr(str(expression)), rule, way_out))
    disk = provision(catalog, expression, Terms(place=place))
    if disk.entry is None:
        raise AssertionError("only local disks have no entry, and those are refused above")
    described = describe_disk(catalog, disk.entry)
    bought = list(_bought(catalog, disk.entry, disk, expression.count))
    # What was bought stands in the place of what can be bought.
    known = {fact["fact"] for fact in bought}
    facts = [*bought, *(fact for fact in described["facts"] if fact["fact"] not in known)]
    price = volume_price(catalog, expression)
    keys = price.source if isinstance(price, Price) else ()
    return described | {
        "name": str(expression),
        "disk": disk.entry.name,
        "facts": facts,
        "count": expression.count,
        "size_bytes": disk.size_bytes * expression.count,
        "iops": _whole(disk.iops, expression.count),
        "bytes_per_s": _whole(disk.bytes_per_s, expression.count),
        "price_usd_per_month": price.usd_per_month if isinstance(price, Price) else None,
        "price": asdict(price),
        "sources": described["sources"] | {key: catalog.sources[key].model_dump() for key in keys},
    }


def _whole(amount: int | None, count: int) -> int | None:
    return None if amount is None else amount * count


def _bought(catalog: Catalog, entry: DiskEntry, disk: Provisioned, count: int) -> Iterator[Fact]:
    """Yield size, IOPS and throughput as bought, each with the rule that allows it."""
    unit, mb_bytes = rate_unit(entry.family), entry.family.mb_bytes
    provenance = entry.family.provenance
    facts = entry.facts
    size = f"{_amount(disk.size_bytes / GIB, count)} GiB"
    yield fact_of(catalog, "size", size, provenance, "size_gib")
    if disk.iops is not None:
        value = f"{_amount(disk.iops, count)}{_rule(facts.iops)}"
        yield fact_of(catalog, "IOPS", value, provenance, "iops")
    if disk.bytes_per_s is not None:
        value = f"{_amount(disk.bytes_per_s / mb_bytes, count)} {unit}{_rule(facts.mb_per_s)}"
        yield fact_of(catalog, "throughput", value, provenance, "mb_per_s")


def _amount(each: float, count: int) -> str:
    return f"{each:.12g}" if count == 1 else f"{each * count:.12g} = {count} x {each:.12g}"


def _rule(rate: Rate | None) -> str:
    """Return the formula of what can be chosen."""
    if rate is None or rate.most is None:
        return ""
    return f", of up to {rate.most}" + (" a disk" if rate.most.value is None else "")
