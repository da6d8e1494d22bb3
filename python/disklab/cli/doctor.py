"""`disklab doctor`: what this machine can emulate, what is missing, how to get it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from disklab.catalog.quantity import about_rate, about_time
from disklab.catalog.suggest import did_you_mean
from disklab.cli.amounts import progress
from disklab.cli.catalog import CatalogFiles, loaded
from disklab.cli.output import Json, console, print_json
from disklab.databases import records
from disklab.engine import Envelope
from disklab.errors import Problem, UserError
from disklab.hosts import doctor as examination
from disklab.hosts.places import Places


def doctor(
    disk: Annotated[
        str | None,
        typer.Argument(metavar="[DISK]", help="Check only this disk, such as azure/P30."),
    ] = None,
    no_measure: Annotated[
        bool, typer.Option("--no-measure", help="Only look; do not measure the machine.")
    ] = False,
    files: CatalogFiles = None,
    json: Json = False,
) -> None:
    """Say what this machine can emulate, what is missing, and how to get it.

    Measures the machine through the whole path of an emulated disk (some seconds) and compares
    every disk of the catalogue with that.

    Examples: [bold]disklab doctor[/bold], [bold]disklab doctor azure/P30[/bold],
    [bold]disklab doctor --json[/bold]
    """
    places = Places.usual()
    known = loaded(files)
    if disk is not None and disk not in (names := known.disk_names()):
        way_out = did_you_mean(disk, names, "`disklab catalog` lists all disks")
        raise UserError(Problem("DISK", disk, "no such disk in the catalogue", way_out))
    checks = [*examination.checks(places)]
    checks += [check for record in records() for check in record.checks()]
    able = all(check.ok for check in checks if check.required)
    envelope: Envelope | None = None
    fits: list[examination.Fit] = []
    if able and not no_measure:
        with progress() as told:
            told("measuring this machine")
            envelope = examination.measure(places)
        fits = [fit for fit in examination.fits(known, envelope) if disk in {None, fit.disk}]
    if json:
        content: dict[str, object] = {"able": able, "checks": [asdict(check) for check in checks]}
        content["envelope"] = None if envelope is None else envelope.model_dump()
        content["disks"] = [asdict(fit) for fit in fits]
        print_json(content)
    else:
        _print_checks(checks)
        if envelope is not None:
            _print_envelope(envelope, fits)
    if not able:
        raise typer.Exit(1)


def _print_checks(checks: list[examination.Check]) -> None:
    table = Table("", "", "found", "what to do", box=None, pad_edge=False, show_header=False)
    table.columns[2].overflow = table.columns[3].overflow = "fold"
    for check in checks:
        mark = Text("ok", "green") if check.ok else Text("missing", "red")
        if not check.ok and not check.required:
            mark = Text("without", "yellow")
        table.add_row(mark, check.name, check.found, check.way_out)
    console().print(table)


def _print_envelope(envelope: Envelope, fits: list[examination.Fit]) -> None:
    out = console()
    out.print(
        f"\nThis machine: latency from {about_time(envelope.p50_ns)} "
        f"(p99 {about_time(envelope.p99_ns)}), {envelope.iops} IOPS, "
        f"{about_rate(envelope.bytes_per_s)}"
    )
    good = [fit for fit in fits if not fit.shortfalls]
    shown = ", ".join(_name(fit) for fit in good) if len(fits) <= MOST_NAMED else _by_cloud(fits)
    out.print(f"\n{len(good)} of {len(fits)} disks fit it: {shown or 'none'}")
    bad = [fit for fit in fits if fit.shortfalls]
    if not bad:
        return
    table = Table("disk", "what stands in the way", box=None, pad_edge=False)
    table.title, table.title_justify = f"\n{len(bad)} disks do not", "left"
    table.columns[1].overflow = "fold"
    for fit in bad:
        table.add_row(_name(fit), "; ".join(str(short) for short in fit.shortfalls))
    out.print(table)


MOST_NAMED = 8
"""Disks that are named one by one."""


def _by_cloud(fits: list[examination.Fit]) -> str:
    """Return how many of each cloud fit."""
    clouds: dict[str, list[examination.Fit]] = {}
    for fit in fits:
        clouds.setdefault((fit.vm or fit.disk).split("/")[0], []).append(fit)
    counts = {
        cloud: sum(not fit.shortfalls for fit in of_cloud) for cloud, of_cloud in clouds.items()
    }
    return "; ".join(
        f"{cloud} {'all' if count == len(clouds[cloud]) else f'{count} of'} {len(clouds[cloud])}"
        for cloud, count in counts.items()
    )


def _name(fit: examination.Fit) -> str:
    return fit.disk if fit.vm is None else f"{fit.disk} on {fit.vm}"
