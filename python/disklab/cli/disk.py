"""`disklab disk`: attach, list, show, set, cache, fail, detach."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.live import Live
from rich.table import Table

from disklab.catalog import parse_bytes
from disklab.catalog.quantity import about_bytes
from disklab.cli.amounts import progress, rate_of, read_ahead_kib, utf8, volume_names
from disklab.cli.attach import attach, view_table
from disklab.cli.catalog import CatalogFiles, loaded
from disklab.cli.output import Json, console, print_json
from disklab.cli.root_part import root_part
from disklab.engine import View
from disklab.errors import Problem, UserError
from disklab.hosts import changes
from disklab.hosts.running import Listed
from disklab.privilege.volumes import (
    Cache,
    Cached,
    Changed,
    Detach,
    Detached,
    Fail,
    ListAll,
    Named,
    Set,
    Show,
    perform,
)

# How commands name an attached volume.

Volume = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME",
        parser=utf8,
        help="Its name, or its device.",
        autocompletion=volume_names,
        show_default=False,
    ),
]
HostOption = Annotated[str | None, typer.Option("--host", help="The emulated host.")]


# `disklab disk cache`: the host cache as a condition of an experiment, filled or emptied.

host_cache = typer.Typer(
    no_args_is_help=True, help="Fill or empty the host cache, between two runs."
)


def _range(text: str) -> tuple[int, int]:
    offset, colon, length = text.partition(":")
    try:
        if not colon:
            raise ValueError("a range is an offset and a length")
        return parse_bytes(offset), parse_bytes(length)
    except ValueError as error:
        way_out = "write for example 0:1GiB"
        raise UserError(Problem("--range", repr(text), str(error), way_out)) from None


def _tell(cached: Cached, json: bool) -> None:
    cache = cached.cache
    if json:
        print_json({"volume": cached.volume, "cache": cache.model_dump()})
        return
    dirty = f", {about_bytes(cache.dirty_bytes)} of it dirty" if cache.dirty_bytes else ""
    held = about_bytes(cache.cached_bytes)
    console().print(f"{cached.volume}: {held} in the host cache{dirty}")


@host_cache.command()
def warm(
    volume: Volume,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="OFFSET:LENGTH, such as 0:1GiB; may be given again."),
    ] = None,
    host: HostOption = None,
    json: Json = False,
) -> None:
    """Fill the host cache with everything written to a volume, as if it had just been read.

    If not all of it fits, the last part stays.
    Example: [bold]disklab disk cache warm data[/bold]
    """
    wanted = [_range(text) for text in ranges] if ranges else None
    with progress() as told:
        cached: Cached = perform(root_part(), Cache(volume, host, "warm", wanted), told)
    _tell(cached, json)


@host_cache.command()
def drop(volume: Volume, host: HostOption = None, json: Json = False) -> None:
    """Empty a volume's part of the host cache. What a ReadWrite cache has not destaged stays.

    Example: [bold]disklab disk cache drop data[/bold]
    """
    _tell(perform(root_part(), Cache(volume, host, "drop")), json)


app = typer.Typer(no_args_is_help=True, help="Real block devices that behave like a cloud disk.")

app.command()(attach)
app.add_typer(host_cache, name="cache")

# Shown again so often; the counters themselves are exact.
WATCH_SECONDS = 1.0


@app.command("list")
def list_(host: HostOption = None, json: Json = False) -> None:
    """List the attached volumes.

    Examples: [bold]disklab disk list[/bold], [bold]disklab disk list --json[/bold]
    """
    volumes: list[Listed] = perform(root_part(), ListAll(host))
    if json:
        print_json({"volumes": [asdict(volume) for volume in volumes]})
        return
    out = console()
    if not volumes:
        out.print("No volumes are attached. `disklab disk attach azure/P30` creates one.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("volume", "host", "device", "size", "disks", "VM", "caching", "mount", "state"):
        table.add_column(heading, overflow="fold")
    for one in volumes:
        size = "" if one.size_bytes is None else about_bytes(one.size_bytes)
        row = (one.name, one.host, one.device, size, one.disks, one.vm, one.caching)
        table.add_row(*(part or "" for part in row), one.mount_point or "", one.state)
    out.print(table)


@app.command()
def show(
    volume: Volume,
    host: HostOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second.")] = False,
    json: Json = False,
) -> None:
    """Show what a volume does: counters, credits left, hit ratio, the limit reached now.

    Examples: [bold]disklab disk show data[/bold], [bold]disklab disk show data --watch[/bold],
    [bold]disklab disk show /dev/loop3 --json[/bold]
    """

    def look() -> View:
        view: View = perform(root_part(), Show(volume, host))
        return view

    if json:
        while True:
            print_json(look().model_dump())
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    view = look()
    out = console()
    if not watch:
        out.print(view_table(view, None, 0.0))
        return
    shown_at, before = time.monotonic(), view
    with Live(view_table(view, None, 0.0), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_SECONDS)
            view, now = look(), time.monotonic()
            live.update(view_table(view, before, now - shown_at), refresh=True)
            shown_at, before = now, view


@app.command("set")
def set_(  # noqa: PLR0913, PLR0917 - each option is a parameter
    volume: Volume,
    iops: Annotated[int | None, typer.Option(help="New IOPS limit of each disk.")] = None,
    throughput: Annotated[
        str | None,
        typer.Option(help="New throughput limit of each disk: 200MB or 190MiB (a second)."),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="New service time (2ms), or a profile (premium-ssd-2022).")
    ] = None,
    caching: Annotated[
        Literal["None", "ReadOnly", "ReadWrite"] | None,
        typer.Option(help="New host caching.", case_sensitive=False),
    ] = None,
    credits_: Annotated[
        str | None, typer.Option("--credits", help="Burst credits: full, empty, 50%.")
    ] = None,
    read_ahead: Annotated[str | None, typer.Option(help="New read-ahead, such as 128KiB.")] = None,
    host: HostOption = None,
    files: CatalogFiles = None,
    json: Json = False,
) -> None:
    """Change a volume while it is in use.

    Examples: [bold]disklab disk set data --iops 500 --throughput 60MB[/bold],
    [bold]disklab disk set data --credits empty[/bold],
    [bold]disklab disk set data --caching ReadOnly[/bold]
    """
    wish = changes.WishedChange(iops, rate_of(throughput), latency, caching, credits_)
    kib = read_ahead_kib(read_ahead)
    if wish == changes.WishedChange() and kib is None:
        rule = "nothing to change was given"
        raise UserError(Problem("disk set", repr(volume), rule, "see `disklab disk set --help`"))
    changed: Changed = perform(root_part(), Set(volume, host, wish, kib, loaded(files)))
    profile = changed.profile
    if json:
        print_json({"profile": profile.model_dump(), "read_ahead_kib": kib})
        return
    limits = changes.describe_limits(profile.disks[0].limits)
    console().print(f"{changed.volume}: {limits}; caching {profile.caching}")


@app.command(
    help="Make a volume fail, or repair it.\n\n"
    + "\n\n".join(f"[bold]{kind}[/bold]: {meaning}." for kind, meaning in changes.FAULTS.items())
    + "\n\nExamples: [bold]disklab disk fail data slow 10x[/bold], "
    "[bold]disklab disk fail data recover[/bold]"
)
def fail(  # noqa: PLR0913, PLR0917 - each option is a parameter
    volume: Volume,
    fault: Annotated[
        str,
        typer.Argument(
            metavar="FAULT",
            help="error-rate, slow, stall, host-failure, deallocate or recover.",
            autocompletion=lambda: list(changes.FAULTS),
        ),
    ],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="Such as 1%, 10x or 5s.")
    ] = None,
    disk: Annotated[
        int | None, typer.Option(help="Only this disk of the stripe, counted from 0.")
    ] = None,
    host: HostOption = None,
    json: Json = False,
) -> None:
    """Make a volume fail, or repair it."""
    wanted = changes.fault_of(fault, value, disk)
    broken: Named = perform(root_part(), Fail(volume, host, fault, value, disk))
    if json:
        print_json({"volume": broken.volume, "fault": wanted})
        return
    console().print(f"{broken.volume}: {changes.FAULTS[fault].split(':')[0]}")


@app.command()
def detach(
    volume: Volume,
    host: HostOption = None,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Remove the data of the disk as well.")
    ] = False,
    json: Json = False,
) -> None:
    """Unmount what disklab mounted, and remove the device. The last volume ends its host.

    Example: [bold]disklab disk detach data[/bold]
    """
    with progress() as told:
        gone: Detached = perform(root_part(), Detach(volume, host, delete_data), told)
    if json:
        print_json({"volume": gone.volume, "host": gone.host, "data": gone.kept})
        return
    console().print(f"{gone.volume} is detached")
    for path in gone.kept:
        console().print(f"its data are kept in {path}", markup=False)
