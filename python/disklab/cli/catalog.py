"""`disklab catalog`: disks and VM sizes with limits, prices and sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date as Date  # noqa: N812 - `date` is a field here  # noqa: N812 - `date` is a field here
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table
from rich.text import Text

from disklab.catalog import Catalog, DiskEntry, VmEntry, description, load_catalog
from disklab.catalog.description import describe_disk, describe_local, describe_vm, describe_volume
from disklab.catalog.load import CatalogueFile, user_files
from disklab.catalog.price import OLD_DAYS
from disklab.catalog.price_lists import Imported, document, read, whole
from disklab.catalog.quantity import LOCAL_DISKS, is_expression, parse_disks
from disklab.catalog.size_lists import read_sizes, read_volumes, sizes_document
from disklab.catalog.suggest import did_you_mean
from disklab.catalog.weather import weather_facts
from disklab.cli.amounts import all_names
from disklab.cli.output import Json, console, print_json, warn
from disklab.durable import write_new
from disklab.errors import Problem, UserError

# What of the catalogue is not to be relied on as it stands: guessed, old, undated or unpriced.

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


CatalogFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog",
        help="A file with more disks and VM sizes, in addition to $DISKLAB_CATALOG.",
        show_default=False,
    ),
]

Stale = Annotated[
    bool, typer.Option("--stale", help="Like --check, but facts count as old after a year.")
]
SizesList = Annotated[
    Path | None,
    typer.Option(
        help="Make a catalogue file of the VM sizes in a vendor's list: `az vm list-skus` or "
        "`aws ec2 describe-instance-types`, as JSON.",
        metavar="LIST",
    ),
]

VolumesList = Annotated[
    Path | None,
    typer.Option(
        help="Print the volumes of `aws ec2 describe-volumes`, saved as JSON, as an experiment "
        "file says them.",
        metavar="LIST",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="List what is assumed, old, undated or without a price. Always exits with 0.",
    ),
]
SizesOut = Annotated[Path, typer.Option(help="The file that --sizes writes.", metavar="FILE")]


def loaded(files: list[Path] | None) -> Catalog:
    """Return the catalogue with the files of the option added to the user's usual ones."""
    return load_catalog([*user_files(), *(files or [])])


def catalog(  # noqa: PLR0913, PLR0917 - each option is a parameter
    word: Annotated[
        str | None,
        typer.Argument(
            help="A name, a part of one, or disks such as '4 x azure/P30'.",
            autocompletion=all_names,
        ),
    ] = None,
    files: CatalogFiles = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a catalogue file.")
    ] = False,
    check: Check = False,
    stale: Stale = False,
    sizes: SizesList = None,
    out: SizesOut = Path("sizes.yaml"),
    volumes: VolumesList = None,
    json: Json = False,
) -> None:
    """List disks and VM sizes, or show everything about one of them.

    Each number has a source and a date; `disklab catalog azure/P30` shows them, and `disklab
    catalog --check` names those that no source states, or that have not been checked for years
    (`--stale`: for a year). `--sizes` imports VM sizes from a vendor's own list.

    Examples: [bold]disklab catalog[/bold], [bold]disklab catalog P30[/bold], [bold]disklab catalog
    azure/Standard_DS14_v2[/bold], [bold]disklab catalog Esv3 --json[/bold], [bold]disklab catalog
    Esv3 --check[/bold], [bold]disklab catalog 'azure/PremiumV2(250GiB, 10000 IOPS, 250
    MB/s)'[/bold]
    """
    if schema:
        print_json(CatalogueFile.model_json_schema())
        return
    known = loaded(files)
    if sizes is not None:
        _import_sizes(known, sizes, out)
        return
    if volumes is not None:
        _print_volumes(known, volumes, json=json)
        return
    if check or stale:
        _check(known, word, YEAR_DAYS if stale else OLD_FACT_DAYS, json=json)
        return
    if word is not None and (description := _description(known, word)):
        if json:
            print_json(description)
        else:
            _print_description(description)
        return
    disks, vms = _found(known, word)
    local = [name for name in LOCAL_DISKS if _matches(word, name)]
    if not (disks or vms or local):
        names = [*known.disk_names(), *known.vms, *(vm.series_name for vm in known.vms.values())]
        way_out = did_you_mean(word or "", names, "`disklab catalog` without a word lists all")
        raise UserError(Problem("WORD", repr(word), "nothing in the catalogue has it", way_out))
    if json:
        content = {"disks": [describe_disk(known, disk) for disk in disks]}
        content["local_disks"] = [describe_local(known, name) for name in local]
        content["vm_sizes"] = [describe_vm(known, vm) for vm in vms]
        print_json(content)
        return
    _print_lists(known, disks, vms, local)


def _found(known: Catalog, word: str | None) -> tuple[list[DiskEntry], list[VmEntry]]:
    """Return the disks and VM sizes that have the word in their name or their family's."""
    disks = [disk for disk in known.disks.values() if _matches(word, disk.name, disk.family_name)]
    vms = [vm for vm in known.vms.values() if _matches(word, vm.name, vm.series_name)]
    return disks, vms


def _import_sizes(known: Catalog, path: Path, out: Path) -> None:
    """Write the sizes of a vendor's list that the catalogue lacks."""
    sizes = read_sizes(path, known)
    count = sum(len(members) for members in sizes.series.values())
    if count:
        text = yaml.safe_dump(sizes_document(path, sizes), sort_keys=False, width=120)
        head = "# Written by `disklab catalog --sizes`. Use it by DISKLAB_CATALOG=FILE.\n"
        write_new(out, head + text)
    console().print(
        f"{count:,} sizes written to {out}; {sizes.known:,} are in the catalogue already; for "
        f"{sizes.without_limits:,} the list states no limit",
        markup=False,
    )


def _print_volumes(known: Catalog, path: Path, *, json: bool) -> None:
    """Print what somebody has as disk expressions."""
    listed = read_volumes(path, known)
    if json:
        print_json({"volumes": [asdict(volume) for volume in listed]})
        return
    table = Table("volume", "name", "instance", "disks", box=None, pad_edge=False)
    for volume in listed:
        unknown = "" if volume.known else " (not in the catalogue)"
        row = (volume.volume, volume.name, volume.instance, f"{volume.disks}{unknown}")
        table.add_row(*map(Text, row))
    console().print(table)


def _check(known: Catalog, word: str | None, fact_days: int, *, json: bool) -> None:
    """Print what of these is not to be relied on as it stands."""
    found = doubts(known, *_found(known, word), Date.today(), fact_days)
    found += _of_weather(known, word)
    if json:
        print_json({"doubts": [asdict(one) for one in found]})
        return
    table = Table("disks or sizes", "what", "is", "date", "source", box=None, pad_edge=False)
    table.columns[4].overflow = "fold"
    for one in found:
        table.add_row(one.of, one.fact, one.kind, one.date, ", ".join(one.source))
    console().print(table)
    counted = Counter(one.kind for one in found)
    told = ", ".join(f"{count} {kind}" for kind, count in counted.items()) or "nothing to report"
    console().print(
        f"\n{told}. assumed: no source states it; inferred: taken from another size or page; old: "
        f"a fact of more than {fact_days // YEAR_DAYS} years, a price of more than one; missing: "
        "no price is known."
    )


def _of_weather(known: Catalog, word: str | None) -> Iterator[Doubt]:
    """Yield what of the weather nobody publishes, once for each place where it stands."""
    for of, facts in known.weather.items():
        for odds in weather_facts(known, facts.given()) if _matches(word, of) else ():
            if odds["status"] in GUESSED:
                date, sources = odds["date"] or "", tuple(odds["source"])
                yield Doubt(f"weather of {of}", odds["fact"], odds["status"], date, sources, 1)


def _description(known: Catalog, word: str) -> dict[str, Any] | None:
    """Return everything about the one disk or VM size of this very name, or about these disks."""
    if word in known.disks:
        return describe_disk(known, known.disks[word])
    if word in known.vms:
        return describe_vm(known, known.vms[word])
    if is_expression(word):
        return describe_volume(known, parse_disks(word, "WORD"), "WORD")
    return describe_local(known, word) if word in LOCAL_DISKS else None


def _matches(word: str | None, *names: str) -> bool:
    return word is None or any(word.casefold() in name.casefold() for name in names)


def _print_lists(
    known: Catalog, disks: list[DiskEntry], vms: list[VmEntry], local: list[str]
) -> None:
    out = console()
    if disks:
        table = Table("disk", title="Disks", title_justify="left", box=None, pad_edge=False)
        for heading in ("GiB", "IOPS", "MB/s", "burst", "host cache", "price", "source"):
            right = heading in ("GiB", "IOPS", "MB/s")
            table.add_column(heading, justify="right" if right else "left", overflow="fold")
        for disk in disks:
            table.add_row(disk.name, *description.disk(known, disk))
        out.print(table)
    if local:
        out.print("\nDisks that a VM brings along: " + ", ".join(local))
    if vms:
        table = Table("VM size", title="\nVM sizes", title_justify="left", box=None, pad_edge=False)
        for heading in ("vCPU", "GiB", "disks", "cached", "cache GiB", "uncached", "burst"):
            table.add_column(heading, justify="right")
        for heading in ("temp GiB", "NVMe", "USD/h"):
            table.add_column(heading, justify="right")
        for vm in vms:
            table.add_row(vm.name, *description.vm(vm))
        out.print(table)
        out.print("\ncached, uncached, burst: IOPS / MB/s. USD/h: East US where listed.")
    names = [*(disk.name for disk in disks), *(vm.name for vm in vms)]
    name = names[0] if len(names) == 1 else "NAME"
    out.print(f"`disklab catalog {name}` shows sources, dates, prices, and a disk's weather.")


def _price(price: dict[str, Any]) -> str:
    """Return what the disks of an expression cost, in words."""
    if "reason" in price:
        return f"Costs: {price['reason']}"
    told = [price["region"], price["date"], price["status"], *price["source"]]
    text = f"Costs {price['usd_per_month']:.2f} USD a month ({', '.join(filter(None, told))})"
    return text + (f": {price['note']}" if price["note"] else "")


def _facts_table(what: str, facts: list[dict[str, Any]]) -> Table:
    table = Table(what, "value", "status", "date", "source", box=None, pad_edge=False)
    table.columns[1].overflow = table.columns[4].overflow = "fold"
    for fact in facts:
        sources = ", ".join(fact["source"])
        table.add_row(fact["fact"], fact["value"], fact["status"], fact["date"] or "", sources)
    return table


def _print_description(description: dict[str, Any]) -> None:
    out = console()
    out.print(Text.assemble((description["name"], "bold"), f"  {description['title']}"))
    out.print(_facts_table("fact", description["facts"]))
    if "weather" in description:
        out.print("\nWeather")
        out.print(_facts_table("odds", description["weather"]))
    if description["prices"]:
        table = Table("price", "region", "date", "source", title="\nPrices", title_justify="left")
        table.box, table.pad_edge = None, False
        for price in description["prices"]:
            amount = f"{price['amount']} {price['currency']} a {price['per']}"
            if price.get("for"):
                amount += f" ({price['for']})"
            table.add_row(amount, price["region"], price["date"], ", ".join(price["source"]))
        out.print(table)
    if "price" in description:
        out.print(f"\n{_price(description['price'])}", markup=False)
    for note in description["notes"]:
        out.print(f"- {note}", markup=False)
    if description["sources"]:
        out.print("\nSources")
        for key, source in description["sources"].items():
            date = f" ({source['date']})" if source["date"] else ""
            out.print(f"  {key}{date}: {source['at']}", markup=False)


# `disklab prices`: a vendor's price list, as a file, becomes prices that disklab counts with.

MOST_CLASHES = 3


def prices(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="JSON of Azure's retail prices, or AWS's offer file of EC2 (JSON or CSV).",
        ),
    ],
    region: Annotated[
        list[str] | None,
        typer.Option(
            help="Keep the prices of this region; may be given several times.",
            metavar="REGION",
            show_default="all of them",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The catalogue file to write.", metavar="FILE")] = Path(
        "prices.yaml"
    ),
    json: Json = False,
) -> None:
    """Turn a vendor's price list into a file of prices for disklab.

    Lists are read from files, and nothing is downloaded; docs/prices.md says where to get them.
    Prices of VM sizes (by the hour, reserved, spot) and disks that the catalogue has are kept, with
    their region, date and currency. It never overwrites a file.

    Examples: [bold]disklab prices azure-eastus.json --out eastus.yaml[/bold], then
    [bold]DISKLAB_CATALOG=eastus.yaml disklab advise FILE --terms reserved-1y[/bold]
    """
    if out.exists():
        rule = "exists already and is not overwritten"
        raise UserError(Problem("--out", str(out), rule, "choose another name"))
    catalog = load_catalog()
    lists = [(path, read(path, catalog, region or ())) for path in files]
    whole(lists)
    head = "# Written by `disklab prices`. Use it by DISKLAB_CATALOG=FILE.\n"
    write_new(out, head + yaml.safe_dump(document(lists), sort_keys=False, width=120))
    summaries = [summary(path, one) for path, one in lists]
    if json:
        print_json({"ok": True, "file": str(out), "lists": summaries})
        return
    for (path, one), line in zip(lists, summaries, strict=True):
        console().print(
            f"{path}: {line['kept']:,} prices kept, {one.unknown:,} of VM sizes and disks that the "
            "catalogue does not have",
            markup=False,
        )
        tell_doubts(one)
    console().print(f"next: DISKLAB_CATALOG={out} disklab advise FILE", markup=False)


def summary(path: Path, one: Imported) -> dict[str, object]:
    """Return what was found in a file."""
    return {
        "file": str(path),
        "vendor": one.vendor,
        "date": one.date,
        "kept": one.kept,
        "unknown": one.unknown,
        "regions": sorted({region for region, *_ in one.lists}),
        "currencies": sorted({currency for _, currency, *_ in one.lists}),
        "clashes": one.clashes,
        "incomplete": one.incomplete,
    }


def tell_doubts(one: Imported) -> None:
    """Warn of prices that are kept and not counted with, and of names with several prices."""
    others = sorted({currency for _, currency, *_ in one.lists} - {"USD"})
    if others:
        warn(f"prices in {', '.join(others)} are kept; disklab counts in USD and converts nothing")
    for text in one.incomplete:
        warn(f"{text}: it is left out, and the package's own price holds")
    if one.clashes:
        some = "; ".join(one.clashes[:MOST_CLASHES])
        warn(f"{len(one.clashes)} names have several prices, the highest counts: {some}")
