"""`disklab disk`: attach, list, show, set, fail, detach."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.live import Live
from rich.table import Table

from disklab.catalog import VolumeRequest, parse_bytes
from disklab.catalog.quantity import about_bytes, format_bytes
from disklab.cli.catalog import CatalogFiles, loaded
from disklab.cli.completion import disk_names, vm_names, volume_names
from disklab.cli.live import view_table
from disklab.cli.output import Json, console, notes, print_json, warn
from disklab.errors import Problem, UserError
from disklab.hosts import attach as attaching
from disklab.hosts import changes, running
from disklab.hosts.places import HostRecord, Places

app = typer.Typer(no_args_is_help=True, help="Real block devices with a cloud disk's manners.")

Volume = Annotated[
    str,
    typer.Argument(
        metavar="VOLUME",
        help="Its name, or its device.",
        autocompletion=volume_names,
        show_default=False,
    ),
]
HostOption = Annotated[str | None, typer.Option("--host", help="The emulated host.")]

# Shown again so often; the counters themselves are exact.
WATCH_SECONDS = 1.0


@app.command()
def attach(  # noqa: PLR0913, PLR0917 - each option is a parameter
    disks: Annotated[
        str,
        typer.Argument(
            metavar="DISKS",
            help="azure/P30, 4 x azure/P30, azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s), local, "
            "nvme, ephemeral-os.",
            autocompletion=disk_names,
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the volume.")] = "data",
    host: Annotated[str, typer.Option(help="Emulated host to attach to.")] = "default",
    vm: Annotated[
        str | None,
        typer.Option(
            help="VM size of the host: its limits, cache, disks.", autocompletion=vm_names
        ),
    ] = None,
    caching: Annotated[
        Literal["None", "ReadOnly", "ReadWrite"],
        typer.Option(help="Host caching.", case_sensitive=False),
    ] = "None",
    stripe: Annotated[
        str | None, typer.Option(help="Chunk of a stripe of several disks; 64KiB by default.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Cut the device to this size; limits stay.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="Latency of another date, such as 2022.")
    ] = None,
    filesystem: Annotated[
        Literal["xfs", "ext4"] | None, typer.Option(help="Make this file system on it.")
    ] = None,
    mount: Annotated[
        Path | None, typer.Option(help="Mount it here (xfs unless it has a file system).")
    ] = None,
    read_ahead: Annotated[
        str | None, typer.Option(help="Read-ahead of the kernel, such as 8KiB or 0.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep the data in memory; gone after detach.")
    ] = False,
    preallocate: Annotated[
        bool, typer.Option("--preallocate", help="Take all the space at once.")
    ] = False,
    reformat: Annotated[
        bool, typer.Option("--reformat", help="Lose the data of an earlier attach of this name.")
    ] = False,
    host_cache_size: Annotated[
        str | None, typer.Option(help="Size of the host cache, where none is published.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Shrink host cache and credits, such as 1/100.")
    ] = None,
    no_calibrate: Annotated[
        bool, typer.Option("--no-calibrate", help="Start at once; latencies are less exact.")
    ] = False,
    files: CatalogFiles = None,
    json: Json = False,
) -> None:
    """Make a block device with the manners of these disks.

    Nothing is written to any device but the new one. Data of attached disks stay in
    /var/lib/disklab and are there again at the next attach of the same name; those of the VM's own
    disks (local, nvme, ephemeral-os) are gone with the host.

    Examples: [bold]disklab disk attach azure/P30 --mount /mnt/p30[/bold],
    [bold]disklab disk attach '4 x azure/P30' --vm azure/Standard_DS14_v2 --caching ReadOnly[/bold],
    [bold]disklab disk attach local --vm azure/Standard_E8ds_v4 --filesystem ext4[/bold]
    """
    volume = VolumeRequest(
        disks=disks,
        name=name,
        caching=caching,
        chunk_bytes=_bytes(stripe, "--stripe"),
        size_bytes=_bytes(size, "--size"),
        latency=latency,
    )
    request = attaching.AttachRequest(
        volume=volume,
        host=host,
        vm=vm,
        host_cache_bytes=_bytes(host_cache_size, "--host-cache-size"),
        scale=_fraction(scale),
        filesystem=filesystem,
        mount_point=None if mount is None else Path(mount).absolute(),
        read_ahead_kib=_read_ahead(read_ahead),
        memory=memory,
        preallocate=preallocate,
        reformat=reformat,
        calibrate=not no_calibrate,
    )
    known = loaded(files)
    with _progress() as progress:
        made = attaching.attach(known, request, Places.usual(), progress)
    for warning in made.warnings:
        warn(warning)
    if json:
        print_json(asdict(made))
        return
    out = console()
    out.print(f"[bold]{made.device}[/]  {made.disks}, {about_bytes(made.size_bytes)}")
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = {
        "volume": f"{made.name} on host {made.host}",
        "VM": made.vm or "none: only the disk's own limits",
        "caching": made.caching,
        "file system": made.filesystem or "none",
        "mounted on": made.mount_point or "nothing",
        "read-ahead": f"{made.read_ahead_kib} KiB",
        "data": (made.backing_file or "memory") + (", kept from before" if made.reused else ""),
    }
    for label, value in rows.items():
        table.add_row(label, value)
    out.print(table)


@app.command("list")
def list_(host: HostOption = None, json: Json = False) -> None:
    """List the attached volumes."""
    volumes = running.list_volumes(Places.usual(), host)
    if json:
        print_json({"volumes": [asdict(volume) for volume in volumes]})
        return
    out = console()
    if not volumes:
        out.print("No volumes are attached. `disklab disk attach azure/P30` makes one.")
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
    """Show what a volume does: counters, credits left, hit ratio, the limit that binds now.

    Examples: [bold]disklab disk show data[/bold], [bold]disklab disk show data --watch[/bold],
    [bold]disklab disk show /dev/loop3 --json[/bold]
    """
    target = running.find(volume, host, Places.usual())
    if json:
        while True:
            print_json(running.show(target).model_dump())
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    view = running.show(target)
    out = console()
    if not watch:
        out.print(view_table(view, None, 0.0))
        return
    shown_at, before = time.monotonic(), view
    with Live(view_table(view, None, 0.0), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_SECONDS)
            view, now = running.show(target), time.monotonic()
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
    """Change a volume while it works.

    Examples: [bold]disklab disk set data --iops 500 --throughput 60MB[/bold],
    [bold]disklab disk set data --credits empty[/bold],
    [bold]disklab disk set data --caching ReadOnly[/bold]
    """
    target = running.find(volume, host, Places.usual())
    wish = changes.WishedChange(iops, _rate(throughput), latency, caching, credits_)
    kib = _read_ahead(read_ahead)
    if wish == changes.WishedChange() and kib is None:
        rule = "nothing to change was given"
        raise UserError(Problem("disk set", repr(volume), rule, "see `disklab disk set --help`"))
    record = target.host.volume_record(target.volume)
    view = running.show(target)
    assert record is not None  # `find` goes by the records
    request = target.host.host_record() or HostRecord()
    changed = changes.change_of(loaded(files), wish, view.profile, record, request)
    running.change(target, changed, kib)
    profile = running.show(target).profile
    if json:
        print_json({"profile": profile.model_dump(), "read_ahead_kib": kib})
        return
    limits = changes.describe_limits(profile.disks[0].limits)
    console().print(f"{target.volume}: {limits}; caching {profile.caching}")


@app.command(
    help="Break a volume, or mend it.\n\n"
    + "\n\n".join(f"[bold]{kind}[/bold]: {meaning}." for kind, meaning in changes.FAULTS.items())
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
    """Break a volume, or mend it."""
    wanted = changes.fault_of(fault, value, disk)
    target = running.find(volume, host, Places.usual())
    running.fail(target, wanted)
    if json:
        print_json({"volume": target.volume, "fault": wanted})
        return
    console().print(f"{target.volume}: {changes.FAULTS[fault].split(':')[0]}")


@app.command()
def detach(
    volume: Volume,
    host: HostOption = None,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Remove the data of the disk as well.")
    ] = False,
    json: Json = False,
) -> None:
    """Unmount what disklab mounted, and take the device away. The last volume ends its host."""
    places = Places.usual()
    target = running.find(volume, host, places)
    with _progress() as progress:
        progress(f"detaching {target.volume}")
        kept = running.detach(target, places, delete_data=delete_data)
    if json:
        print_json({"volume": target.volume, "host": target.host.name, "data": kept})
        return
    console().print(f"{target.volume} is detached")
    for path in kept:
        console().print(f"its data stay in {path}", markup=False)


@contextmanager
def _progress() -> Iterator[attaching.Progress]:
    """Show what is being done: a spinner on a terminal, nothing elsewhere."""
    out = notes()
    if not out.is_terminal:
        yield lambda _: None
        return
    with out.status("looking") as status:
        yield status.update


def _bytes(text: str | None, place: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UserError(Problem(place, repr(text), str(error), "write for example 64GiB")) from None


def _rate(text: str | None) -> int | None:
    """Read `200MB` or `200 MB/s`; a number alone would leave the unit open."""
    if text is None:
        return None
    amount = _bytes(text.strip().removesuffix("/s"), "--throughput")
    if text.strip().isdigit():
        rule = "a throughput needs a unit"
        raise UserError(Problem("--throughput", text, rule, f"write {text}MB for {text} MB/s"))
    return amount


def _read_ahead(text: str | None) -> int | None:
    amount = _bytes(text, "--read-ahead")
    if amount is None:
        return None
    # The kernel keeps it in KiB; more than 64 MiB is a slip.
    if amount % 1024 or amount > 64 << 20:
        rule = "read-ahead is whole KiB up to 64MiB"
        value = format_bytes(amount)
        raise UserError(Problem("--read-ahead", value, rule, "write for example 8KiB, or 0"))
    return amount // 1024


def _fraction(text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        rule = "a scale is a fraction"
        raise UserError(Problem("--scale", repr(text), rule, "write for example 1/100")) from None
