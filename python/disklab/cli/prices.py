"""`disklab prices`: a vendor's price list, as a file, becomes prices that disklab counts with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from disklab.catalog import load_catalog
from disklab.catalog.price_lists import Imported, document, read, whole
from disklab.cli.experiment_new import write_new
from disklab.cli.output import Json, console, print_json, warn
from disklab.errors import Problem, UserError

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

    Lists are read from files and nothing is fetched; docs/prices.md says where to get them. Prices
    of VM sizes (by the hour, reserved, spot) and disks that the catalogue has are kept, with their
    region, date and currency. It never writes over a file.

    Examples: [bold]disklab prices azure-eastus.json --out eastus.yaml[/bold], then
    [bold]DISKLAB_CATALOG=eastus.yaml disklab advise FILE --terms reserved-1y[/bold]
    """
    if out.exists():
        rule = "is there already, and nothing is written over"
        raise UserError(Problem("--out", str(out), rule, "choose another name"))
    catalog = load_catalog()
    found = [(path, read(path, catalog, region or ())) for path in files]
    whole(found)
    head = "# Written by `disklab prices`. Use it by DISKLAB_CATALOG=FILE.\n"
    write_new(out, head + yaml.safe_dump(document(found), sort_keys=False, width=120))
    told = [summary(path, one) for path, one in found]
    if json:
        print_json({"ok": True, "file": str(out), "lists": told})
        return
    for (path, one), line in zip(found, told, strict=True):
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
