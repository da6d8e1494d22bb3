"""`disklab disk attach`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from disklab.catalog import Catalog, VolumeRequest
from disklab.catalog.quantity import about_bytes, about_time, format_rate
from disklab.catalog.weather import Spell, compressed_year, weather_of_disks
from disklab.cli.amounts import (
    bytes_of,
    disk_names,
    progress,
    read_ahead_kib,
    scale_of,
    utf8,
    vm_names,
)
from disklab.cli.catalog import CatalogFiles, loaded
from disklab.cli.output import Json, console, notes, print_json, warn_once
from disklab.cli.root_part import root_part
from disklab.engine import CacheCounters, LimitCounters, View, VolumeCounters
from disklab.errors import Problem, UserError
from disklab.hosts import attach as attaching
from disklab.hosts import changes
from disklab.interrupts import ended_once
from disklab.privilege.volumes import Attach, Fail, perform

# What a volume does, as a table: limits, credits, cache, operations.


def view_table(view: View, before: View | None, seconds: float) -> RenderableType:
    """Return the table of a view; with an earlier one, rates over the seconds in between."""
    profile = view.profile
    title = Text.assemble(
        (profile.name, "bold"),
        f"  {len(profile.disks)} x {profile.disks[0].name}, "
        f"{about_bytes(profile.size_bytes)}, caching {profile.caching}",
    )
    parts: list[RenderableType] = [title, _operations(view, before, seconds), _limits(view)]
    if view.counters.cache is not None:
        parts.append(_cache(view.counters.cache, view.counters.hit_ratio()))
    parts.append(Text.assemble("waits now for: ", (binding(view.counters), "bold")))
    emulator = view.emulator
    lateness = about_time(emulator.lateness_ns.p99)
    late = f"{emulator.late_ratio():.2%} of replies late, p99 by {lateness}"
    parts.append(f"emulator: {emulator.transport}, {late}")
    if view.failure is not None:
        parts.append(Text(f"failed: {view.failure}", "bold red"))
    if view.faults:
        faults = ", ".join(" ".join(str(part) for part in fault.values()) for fault in view.faults)
        parts.append(Text(f"faults: {faults}", "red"))
    return Group(*parts)


def binding(counters: VolumeCounters) -> str:
    """Return the limit that some I/O waits for now."""
    waited = [limit_name(limit) for limit in counters.limits if limit.binding]
    if waited:
        return ", ".join(waited)
    return "nothing" if not counters.queued else "a stall, the cache or a destage"


def limit_name(limit: LimitCounters) -> str:
    """Return a limit in words: `disk 0 IOPS`, `vm cached MB/s (reads)`."""
    scope = "" if limit.scope == "all" else f" ({limit.scope}s)"
    return f"{limit.place} {'IOPS' if limit.unit == 'ios' else 'MB/s'}{scope}"


def _operations(view: View, before: View | None, seconds: float) -> Table:
    table = Table("operation", box=None, pad_edge=False)
    for heading in ("I/Os", "data", "failed", "IOPS now", "MB/s now"):
        table.add_column(heading, justify="right")
    for kind, one in view.counters.operations.items():
        iops, rate = "", ""
        if before is not None and seconds > 0:
            earlier = before.counters.operations[kind]
            iops = f"{(one.ios - earlier.ios) / seconds:.0f}"
            rate = f"{(one.bytes - earlier.bytes) / seconds / 1e6:.1f}"
        failed = str(one.failed) if one.failed else ""
        table.add_row(kind, str(one.ios), about_bytes(one.bytes), failed, iops, rate)
    counters = view.counters
    table.caption = f"{counters.in_flight} in flight, {counters.queued} queued"
    table.caption_justify = "left"
    return table


def _limits(view: View) -> Table:
    table = Table("limit", box=None, pad_edge=False)
    for heading in ("a second", "granted", "delayed I/Os", "mean delay", "credits left", "binds"):
        table.add_column(heading, justify="right")
    for limit in view.counters.limits:
        ios = limit.unit == "ios"
        delay = limit.delayed_ns / limit.delayed_ios if limit.delayed_ios else 0
        table.add_row(
            limit_name(limit),
            str(limit.per_s) if ios else format_rate(limit.per_s),
            str(limit.granted) if ios else about_bytes(limit.granted),
            str(limit.delayed_ios),
            about_time(delay) if delay else "",
            _credits(limit),
            Text("now" if limit.binding else "", "yellow"),
        )
    return table


def _credits(limit: LimitCounters) -> str:
    if limit.credits is None:
        return ""
    left, capacity = limit.credits.left, limit.credits.capacity
    shown = str(left) if limit.unit == "ios" else about_bytes(left)
    return f"{shown} ({left / capacity:.0%})" if capacity else shown


def _cache(cache: CacheCounters, ratio: float | None) -> str:
    served = "no reads yet" if ratio is None else f"{ratio:.1%} of reads hit"
    return (
        f"host cache: {served}, {about_bytes(cache.cached_bytes)} held, "
        f"{about_bytes(cache.dirty_bytes)} not yet on the disk, "
        f"{about_bytes(cache.evicted_bytes)} evicted"
    )


Disks = Annotated[
    str | None,
    typer.Argument(
        metavar="[DISKS]",
        help="azure/P30, 4 x azure/P30, azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s), local, "
        "nvme, ephemeral-os.",
        autocompletion=disk_names,
        show_default=False,
    ),
]
Name = Annotated[str, typer.Option(help="Name of the volume.")]
Host = Annotated[str, typer.Option(help="Emulated host to attach to.")]
Vm = Annotated[
    str | None,
    typer.Option(help="VM size of the host: its limits, cache, disks.", autocompletion=vm_names),
]
CachingOption = Annotated[
    Literal["None", "ReadOnly", "ReadWrite"],
    typer.Option(help="Host caching.", case_sensitive=False),
]
Stripe = Annotated[
    str | None, typer.Option(help="Chunk of a stripe of several disks; 64KiB by default.")
]
Size = Annotated[str | None, typer.Option(help="Cut the device to this size; limits stay.")]
LatencyOption = Annotated[
    str | None, typer.Option(help="Latency as measured in another year, such as 2022.")
]
FilesystemOption = Annotated[
    Literal["xfs", "ext4"] | None, typer.Option(help="Make this file system on it.")
]
MountPoint = Annotated[
    Path | None,
    typer.Option(
        parser=lambda text: Path(utf8(text)),
        help="Mount it here (xfs unless it has a file system).",
        metavar="DIR",
    ),
]
ReadAhead = Annotated[str | None, typer.Option(help="Read-ahead of the kernel, such as 8KiB or 0.")]
Memory = Annotated[
    bool, typer.Option("--memory", help="Keep the data in memory; gone after detach.")
]
Preallocate = Annotated[bool, typer.Option("--preallocate", help="Allocate all the space at once.")]
Reformat = Annotated[
    bool, typer.Option("--reformat", help="Discard the data of an earlier disk of this name.")
]
HostCacheSize = Annotated[
    str | None, typer.Option(help="Size of the host cache, where none is published.")
]
Scale = Annotated[str | None, typer.Option(help="Shrink host cache and credits, such as 1/100.")]
NoCalibrate = Annotated[
    bool, typer.Option("--no-calibrate", help="Start at once; latencies are less exact.")
]
Transport = Annotated[
    Literal["auto", "fuse-io-uring", "fuse", "ublk"],
    typer.Option(help="How the kernel hands over requests; see docs/ublk.md for ublk."),
]
WeatherOption = Annotated[
    str | None,
    typer.Option(
        help="Then give it the weather of this disk: a compressed year, or until Ctrl-C.",
        metavar="DISKS",
    ),
]
WeatherSeed = Annotated[int, typer.Option("--seed", help="Seed of the weather.", min=0)]
YearIn = Annotated[str, typer.Option(help="How long the compressed year takes.")]


def spells_of(disks: str | None, seed: int, year_in: str, known: Catalog) -> list[Spell]:
    """Return the compressed year of a disk; None: it has none. Raises UserError for no time."""
    if disks is None:
        return []
    # The models of the experiment file take a quarter of a second, which other volumes do not need.
    from disklab.spec.amounts import Unreadable  # noqa: PLC0415
    from disklab.spec.timetable import year_seconds  # noqa: PLC0415

    try:
        year_s = year_seconds(year_in)
    except Unreadable as wrong:
        raise UserError(Problem("--year-in", year_in, wrong.rule, wrong.way_out)) from None
    return compressed_year(weather_of_disks(known, disks), year_s, seed)


def named(disks: str | None) -> str:
    """Return the disks of a volume. Raises UserError where nothing names any."""
    if disks is None:
        way_out = "write for example azure/P30, or --weather aws/gp3 --size 100GiB"
        raise UserError(Problem("DISKS", "nothing", "a volume is made of disks", way_out))
    return disks


def attach(  # noqa: PLR0913, PLR0917 - each option is a parameter
    disks: Disks = None,
    name: Name = "data",
    host: Host = "default",
    vm: Vm = None,
    caching: CachingOption = "None",
    stripe: Stripe = None,
    size: Size = None,
    latency: LatencyOption = None,
    filesystem: FilesystemOption = None,
    mount: MountPoint = None,
    read_ahead: ReadAhead = None,
    memory: Memory = False,
    preallocate: Preallocate = False,
    reformat: Reformat = False,
    host_cache_size: HostCacheSize = None,
    scale: Scale = None,
    no_calibrate: NoCalibrate = False,
    transport: Transport = "auto",
    weather: WeatherOption = None,
    seed: WeatherSeed = 1,
    year_in: YearIn = "10min",
    files: CatalogFiles = None,
    json: Json = False,
) -> None:
    """Create a block device that behaves like these disks.

    Nothing is written to any device but the new one. Data of attached disks stay in
    /var/lib/disklab and are there again at the next attach of the same name; those of the VM's own
    disks (local, nvme, ephemeral-os) are lost with the host.

    Examples: [bold]disklab disk attach azure/P30 --mount /mnt/p30[/bold], [bold]disklab disk attach
    '4 x azure/P30' --vm azure/Standard_DS14_v2 --caching ReadOnly[/bold], [bold]disklab disk attach
    'aws/gp3(100GiB)' --weather aws/gp3 --seed 1[/bold]
    """
    volume = VolumeRequest(
        disks=named(disks or weather),
        name=name,
        caching=caching,
        chunk_bytes=bytes_of(stripe, "--stripe"),
        size_bytes=bytes_of(size, "--size"),
        latency=latency,
    )
    request = attaching.AttachRequest(
        volume=volume,
        host=host,
        vm=vm,
        host_cache_bytes=bytes_of(host_cache_size, "--host-cache-size"),
        scale=scale_of(scale),
        filesystem=filesystem,
        mount_point=None if mount is None else mount.absolute(),
        read_ahead_kib=read_ahead_kib(read_ahead),
        memory=memory,
        preallocate=preallocate,
        reformat=reformat,
        calibrate=not no_calibrate,
        transport=transport,
    )
    known = loaded(files)
    spells = spells_of(weather, seed, year_in, known)
    with ended_once(), progress() as told:
        made: attaching.Attached = perform(root_part(), Attach(request, known), told)
    for warning in made.warnings:
        warn_once(warning)
    if json:
        print_json(asdict(made))
    else:
        _print(made)
    if spells:
        _live_through(made, spells)


def _live_through(made: attaching.Attached, spells: Sequence[Spell]) -> None:
    def fail(fault: str, value: str | None, spell: Spell | None) -> None:
        perform(root_part(), Fail(made.name, made.host, fault, value, None))
        if spell is not None:
            notes().print(f"{spell.at_s:.1f} s: {fault} {value or ''} for {spell.lasts_s:.1f} s")

    changes.live_through(spells, fail, Event())


def _print(made: attaching.Attached) -> None:
    out = console()
    size = about_bytes(made.size_bytes)
    out.print(Text.assemble((made.device, "bold"), f"  {made.disks}, {size}"))
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
