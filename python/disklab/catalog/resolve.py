"""From names to a profile: which disks, on which VM, with which caching. Every rule is here.

A refusal gives all broken rules at once, each with value, rule, source, place and way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction
from typing import overload

from disklab.catalog.facts import GIB
from disklab.catalog.load import Catalog, DiskEntry, VmEntry, cite
from disklab.catalog.profile import (
    PPM,
    CacheProfile,
    Caching,
    DiskProfile,
    Distribution,
    HostProfile,
    Limit,
    SharedLimit,
    VolumeProfile,
    latency_profile,
)
from disklab.catalog.provisioning import (
    DiskOfVolume,
    Provisioned,
    Terms,
    cached_limits,
    nvme_limits,
    provision,
    uncached_limits,
)
from disklab.catalog.quantity import DiskExpression, about_bytes, format_bytes, parse_disks
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError, refuse

# What the engine calls a host without a VM: no budget, no cache, only the disks' own limits.
NO_VM = "no VM"

# Unit of lookup of the host cache. No vendor documents it; 64 KiB keeps the bookkeeping of a
# 576 GiB cache small, and the model fetches only the 4 KiB sectors that a miss asks for.
CACHE_BLOCK_BYTES = 64 << 10

# Stripe chunk when none is given: 64 KiB for OLTP (source prem_perf, 2021-06-29).
DEFAULT_CHUNK_BYTES = 64 << 10
SECTOR_BYTES = 4096
MOST_CHUNK_BYTES = 1 << 30

# Ephemeral OS disks have the size of their image; 30 GiB is that of the usual Linux images
# (assumed; `ephemeral-os(64GiB)` asks for another).
EPHEMERAL_OS_BYTES = 30 * GIB


@dataclass(frozen=True)
class Places:
    """How the user named each part of the request: options of a command, or lines of a file."""

    disks: str = "DISKS"
    vm: str = "--vm"
    caching: str = "--caching"
    chunk: str = "--stripe"
    size: str = "--size"
    latency: str = "--latency"
    host_cache: str = "--host-cache-size"
    scale: str = "--scale"


@dataclass(frozen=True)
class HostRequest:
    """A VM, and what is assumed about it."""

    vm: str | None = None
    host_cache_bytes: int | None = None
    """Instead of the published size of the host cache; the only way where none is published."""
    scale: Fraction = Fraction(1)
    """Shrinks host cache and burst credits; rates and latencies stay."""
    seed: int = 1


@dataclass(frozen=True)
class VolumeRequest:
    """Disks, and how they are put together."""

    disks: str
    name: str = "data"
    caching: Caching = "None"
    chunk_bytes: int | None = None
    size_bytes: int | None = None
    """The device is cut to this size; limits stay those of the disks."""
    latency: str | None = None
    """One of the dated latency profiles of the disk's family; None: its default."""
    barriers: bool = True
    """Without them a file system sends no FLUSH, which therefore takes no time."""


@dataclass(frozen=True)
class AttachedDisks:
    """What a host has already."""

    data_disks: int = 0
    nvme_disks: int = 0
    temp_disks: int = 0
    ephemeral_os_disks: int = 0


@dataclass(frozen=True)
class Resolution:
    """A profile that the engine accepts, and what to know about it."""

    host: HostProfile
    """With the volume as its only one."""
    volume: VolumeProfile
    expression: DiskExpression
    vm: VmEntry | None
    warnings: tuple[str, ...]
    entry: DiskEntry | None = None
    """The disk that is bought; None: the VM brings it along."""

    @property
    def has_credits(self) -> bool:
        """Whether a limit has burst credits."""
        limits = (*self.host.cached, *self.host.uncached, *self.volume.disks[0].limits)
        return any(one.burst is not None and one.burst.credits is not None for one in limits)


@dataclass(frozen=True)
class _Asked:
    """A request whose names are known, and what surrounds it."""

    catalog: Catalog
    expression: DiskExpression
    disks: DiskOfVolume
    vm: VmEntry | None
    host: HostRequest
    volume: VolumeRequest
    attached: AttachedDisks
    places: Places


@overload
def find_vm(catalog: Catalog, name: str, places: Places) -> VmEntry: ...


@overload
def find_vm(catalog: Catalog, name: str | None, places: Places) -> VmEntry | None: ...


def find_vm(catalog: Catalog, name: str | None, places: Places) -> VmEntry | None:
    """Return the VM size. Raises UserError for a name that is not in the catalogue."""
    if name is None or name in catalog.vms:
        return None if name is None else catalog.vms[name]
    # Another product line has other limits: r5 is not what r5b is.
    alike = [known for known in catalog.vms if _line(known) == _line(name)]
    near = did_you_mean(name, alike, "") or _neighbours(catalog, name)
    add = "`--catalog FILE` adds others"
    if name.partition("/")[0] in {"aws", "azure"}:
        add += ", which `disklab catalog --sizes LIST` makes of the vendor's own list"
    way_out = f"{near or '`disklab catalog` lists all sizes;'} {add}"
    raise UserError(Problem(places.vm, repr(name), "no such VM size in the catalogue", way_out))


def _neighbours(catalog: Catalog, name: str) -> str:
    """Return the same size of the vendor's families that are for the same; empty: none is known."""
    vendor, _, short = name.rpartition("/")
    family = re.match(r"[a-z]+", _line(name).removeprefix("standard_"))
    size = re.split(r"[.-]", short, maxsplit=1)[-1]
    same = [
        known
        for known in catalog.vms
        if known.rpartition("/")[0] == vendor and re.split(r"[.-]", known, maxsplit=1)[-1] == size
    ]
    kin = [known for known in same if family and _line(known).startswith(family[0])] or same
    asked = _family(name)
    kin.sort(key=lambda known: (-SequenceMatcher(None, _family(known), asked).ratio(), known))
    return f"the nearest: {' or '.join(kin[:2])};" if kin else ""


def _family(name: str) -> str:
    """Return a VM size without its size: `c7i`, `e2`."""
    return re.split(r"[.-]", name.rpartition("/")[2], maxsplit=1)[0]


def _line(name: str) -> str:
    """Return the product line of a VM size: `r5b` of AWS, the letters before the size of Azure."""
    short = name.rpartition("/")[2].casefold().removeprefix("standard_")
    family, dot, _ = short.partition(".")
    if dot:
        return family
    return re.split(r"[\d-]", short, maxsplit=1)[0]


UNCHARGED = "2020"
"""The period in which writes to a ReadWrite cache were not counted against the disk.

**Source:** tomaskubica.cz 2020-09 (60,100 writes a second on a P4), stian 2019 (11,500). Those of
December 2021 were: see `charges_writes` in `crates/disklab-disk/src/profile.rs`.
"""


def resolve(
    catalog: Catalog,
    host: HostRequest,
    volume: VolumeRequest,
    attached: AttachedDisks | None = None,
    places: Places | None = None,
) -> Resolution:
    """Return the profile of a volume on a host. Raises UserError with every broken rule."""
    asked = _known(catalog, host, volume, attached or AttachedDisks(), places or Places())
    refuse([*_scale_problems(asked), *_vm_problems(asked), *_shape_problems(asked)])
    machine = host_profile(catalog, asked.vm, host)
    if volume.latency == UNCHARGED and machine.cache is not None:
        cache = machine.cache.model_copy(update={"charges_writes": False})
        machine = machine.model_copy(update={"cache": cache})
    entry = asked.disks.entry if isinstance(asked.disks, Provisioned) else None
    if asked.vm is not None and entry is not None and asked.vm.series.caps.get(entry.name):
        own = uncached_limits(asked.vm, host.scale, entry.name)
        machine = machine.model_copy(update={"uncached": own})
    profile = VolumeProfile(
        name=volume.name,
        size_bytes=_volume_bytes(asked),
        caching=volume.caching,
        chunk_bytes=_chunk(asked),
        disks=[_disk(asked)] * asked.expression.count,
    )
    return Resolution(
        host=machine.model_copy(update={"volumes": [profile]}),
        volume=profile,
        expression=asked.expression,
        vm=asked.vm,
        warnings=tuple(_warnings(asked)),
        entry=entry,
    )


def together(made: Sequence[Resolution]) -> HostProfile:
    """Return the host of several volumes: with disks of several names, the VM's widest cap."""
    if len(made) > 1:
        made = [_sharing(each) for each in made]
    attached = [each for each in made if each.entry is not None] or made
    host = max((each.host for each in attached), key=lambda host: _bytes_of(host.uncached))
    several = len({each.entry.name for each in made if each.entry is not None}) > 1
    return host.model_copy(update={"volumes": [_capped(each, beside=several) for each in made]})


def joined(made: Resolution, scale: Fraction) -> Resolution:
    """Return a volume as a host has it that runs, where others of any name may join it."""
    if made.vm is None:
        return made
    volume = _capped(_sharing(made), beside=True)
    update = {"uncached": uncached_limits(made.vm, scale), "volumes": [volume]}
    return replace(made, host=made.host.model_copy(update=update), volume=volume)


def _bytes_of(limits: Sequence[Limit]) -> int:
    return sum(limit.per_s for limit in limits if limit.unit == "bytes")


def _sharing(made: Resolution) -> Resolution:
    """Return a volume whose disks know what they share with others of their name."""
    if made.entry is None or not made.entry.family.shared:
        return made
    count = len(made.volume.disks)
    disk = made.volume.disks[0]
    shared = _shared(made.entry, disk.limits, made.host.uncached, count)
    disks = [disk.model_copy(update={"shared": shared})] * count
    return replace(made, volume=made.volume.model_copy(update={"disks": disks}))


def _capped(made: Resolution, *, beside: bool) -> VolumeProfile:
    """Return a volume; `beside` others: what the VM caps of its disks is a limit of their own."""
    volume, count = made.volume, len(made.volume.disks)
    if not beside or made.entry is None or not made.entry.family.shared:
        return volume
    caps = [
        limit.model_copy(update={"per_s": max(1, limit.per_s // count)})
        for limit in made.host.uncached
    ]
    disk = volume.disks[0]
    disk = disk.model_copy(update={"limits": _least([*disk.limits, *caps])})
    return volume.model_copy(update={"disks": [disk] * count})


def _shared(
    entry: DiskEntry, limits: Sequence[Limit], caps: Sequence[Limit], count: int
) -> list[SharedLimit]:
    """Return what all disks of a name on a VM have together; `caps`: of the VM on them.

    `limits`: of each of so many disks of a stripe.

    **Source:** gcp_diag, 2024-08-21: the VM's once, and the parts of all.
    """
    found = []
    for limit in limits:
        rate, unit = entry.facts.iops, 1
        if limit.unit == "bytes":
            rate, unit = entry.facts.mb_per_s, entry.family.mb_bytes
        of_host = 0 if rate is None else rate.of_vm * unit
        most = [cap.per_s for cap in caps if (cap.scope, cap.unit) == (limit.scope, limit.unit)]
        if rate is not None and rate.included.at_most is not None:
            most.append(int(rate.included.at_most * unit))
        found.append(
            SharedLimit(
                scope=limit.scope,
                unit=limit.unit,
                of_host=of_host,
                part=limit.per_s - of_host // count,
                most=min(most, default=UNCAPPED),
            )
        )
    return found


UNCAPPED = 10**12
"""No disk does as much."""


def _least(limits: Sequence[Limit]) -> list[Limit]:
    """Return of those limits that count the same the lowest."""
    lowest: dict[tuple[str, str], Limit] = {}
    for limit in limits:
        key = (limit.scope, limit.unit)
        lowest[key] = min(limit, lowest.get(key, limit), key=lambda x: x.per_s)
    return list(lowest.values())


def _disk(asked: _Asked) -> DiskProfile:
    """Return one disk of the volume."""
    disk = asked.disks.profile
    if asked.volume.barriers:
        return disk
    nothing = Distribution(quantiles_ppm_ns=[(PPM, 0)])
    latency = disk.latency.model_copy(update={"flush": nothing})
    return disk.model_copy(update={"latency": latency})


def _known(
    catalog: Catalog,
    host: HostRequest,
    volume: VolumeRequest,
    attached: AttachedDisks,
    places: Places,
) -> _Asked:
    """Look the names up. Raises UserError when the VM, the disks or both are impossible."""
    problems: list[Problem] = []
    vm: VmEntry | None = None
    disks: DiskOfVolume | None = None
    try:
        vm = find_vm(catalog, host.vm, places)
    except UserError as error:
        problems += error.problems
    try:
        expression = parse_disks(volume.disks, places.disks)
        if not expression.is_local:
            terms = Terms(
                places.disks, volume.size_bytes, volume.latency, places.latency, host.scale
            )
            key = (expression, terms)
            disks = catalog.bought.get(key) or provision(catalog, expression, terms)
            catalog.bought[key] = disks
        elif vm is not None:
            disks = _local(catalog, expression, vm, places)
        elif host.vm is None:
            rule = f"{expression.name!r} is a disk of the VM, and no VM is given"
            way_out = f"give {places.vm}, for example {places.vm} azure/Standard_E8ds_v4"
            problems.append(Problem(places.disks, repr(volume.disks), rule, way_out))
    except UserError as error:
        problems += error.problems
    if problems or disks is None:
        raise UserError(*problems)
    return _Asked(catalog, expression, disks, vm, host, volume, attached, places)


def host_profile(catalog: Catalog, vm: VmEntry | None, request: HostRequest) -> HostProfile:
    """Return the profile of a host without volumes."""
    if vm is None:
        return HostProfile(
            name=NO_VM, seed=request.seed, cached=[], uncached=[], cache=None, volumes=[]
        )
    if request in catalog.hosts:
        return catalog.hosts[request]
    cache = None
    capacity = cache_bytes(vm, request)
    if capacity is not None:
        cache = CacheProfile(
            capacity_bytes=max(CACHE_BLOCK_BYTES, capacity),
            block_bytes=CACHE_BLOCK_BYTES,
            latency=latency_profile(catalog, vm.series.latency["host_cache"]),
            charges_writes=True,
        )
    made = HostProfile(
        name=vm.name,
        seed=request.seed,
        cached=cached_limits(vm, request.scale),
        uncached=uncached_limits(vm, request.scale),
        cache=cache,
        volumes=[],
    )
    catalog.hosts[request] = made
    return made


def cache_bytes(vm: VmEntry, request: HostRequest) -> int | None:
    """Return the scaled capacity of a VM's host cache in whole blocks; None: it has none."""
    if vm.series.host_cache == "none" or "host_cache" not in vm.series.latency:
        return None
    published = vm.facts.cached.cache_gib if vm.facts.cached else None
    full = request.host_cache_bytes
    if full is None and published is not None:
        full = published * GIB
    if full is None:
        return None
    return int(full * request.scale) // CACHE_BLOCK_BYTES * CACHE_BLOCK_BYTES


def _local(
    catalog: Catalog, expression: DiskExpression, vm: VmEntry, places: Places
) -> DiskOfVolume:
    """Return what a VM brings along: temp disk, NVMe disk, ephemeral OS disk."""
    name, value = expression.name, str(expression)
    problems = []
    told = expression.iops or expression.bytes_per_s
    if told or expression.on_demand_burst or expression.performance_plus:
        rule = f"the limits of {name!r} are those of the VM and cannot be chosen"
        problems.append(Problem(places.disks, repr(value), rule, "leave the arguments out"))
    source = cite(catalog, vm.series.provenance)
    at_most = _local_bytes(vm, name)
    path = {"local": "temp", "nvme": "nvme", "ephemeral-os": "ephemeral_os"}[name]
    if not at_most or path not in vm.series.latency:
        what = {
            "local": "temp disk",
            "nvme": "local NVMe disk",
            "ephemeral-os": "ephemeral OS disk",
        }
        rule = f"{vm.name} has no {what[name]} ({source})"
        if name == "local" and vm.facts.nvme is not None:
            way_out = "its own disks are NVMe: write `nvme`"
        elif name == "nvme" and vm.facts.temp_gib:
            way_out = "its own disk is a temp disk: write `local`, or choose a VM with NVMe disks"
        else:
            able = _example(catalog, vm.vendor, name)
            such = f"a VM that has one, such as {able}, or " if able else ""
            way_out = f"choose {such}an attached disk"
        raise UserError(*problems, Problem(places.vm, repr(vm.name), rule, way_out))
    size = expression.size_bytes
    if size is None:
        size = min(EPHEMERAL_OS_BYTES, at_most) if name == "ephemeral-os" else at_most
    if not SECTOR_BYTES <= size <= at_most:
        rule = f"{name!r} of {vm.name} has at most {about_bytes(at_most)} ({source})"
        way_out = f"ask for {format_bytes(SECTOR_BYTES)} to {format_bytes(at_most)}"
        problems.append(Problem(places.disks, repr(value), rule, way_out))
    refuse(problems)
    profile = DiskProfile(
        name=f"{vm.name} {name}",
        medium="nvme" if name == "nvme" else "temp",
        limits=nvme_limits(vm) if name == "nvme" else [],
        latency=latency_profile(catalog, vm.series.latency[path]),
    )
    return DiskOfVolume(profile, size, vm.series.latency[path])


def _example(catalog: Catalog, vendor: str, disk: str) -> str | None:
    """Return a vendor's first VM that brings such a disk along."""
    begin = f"{vendor}/"
    own = (vm for name, vm in catalog.vms.items() if name.startswith(begin))
    return next((vm.name for vm in own if _local_bytes(vm, disk)), None)


def _local_bytes(vm: VmEntry, name: str) -> int:
    """Return how large a local disk of a VM can be; 0: it has none."""
    temp = vm.facts.temp_gib * GIB
    if name == "local":
        return temp
    if name == "nvme":
        size = vm.facts.nvme.size_gb * 10**9 if vm.facts.nvme else 0
        return size // SECTOR_BYTES * SECTOR_BYTES
    # Source ephemeral_os, 2026-09-08: it lies in the host cache (DSv2, Dsv3) or on the temp disk.
    cache = (vm.facts.cached.cache_gib if vm.facts.cached else None) or 0
    return max(temp, cache * GIB) if vm.series.ephemeral_os else 0


def _scale_problems(asked: _Asked) -> Iterator[Problem]:
    if not 0 < asked.host.scale <= 1:
        rule = "a scale is above 0 and at most 1"
        yield Problem(asked.places.scale, str(asked.host.scale), rule, "write for example 1/100")


def _vm_problems(asked: _Asked) -> Iterator[Problem]:
    """Yield the rules that disks and VM break together."""
    vm, host, places, catalog = asked.vm, asked.host, asked.places, asked.catalog
    if asked.volume.caching != "None":
        yield from _caching_problems(asked)
    if host.host_cache_bytes is not None and (vm is None or vm.series.host_cache == "none"):
        rule = f"{vm.name if vm else 'a host without VM'} has no host cache"
        value = format_bytes(host.host_cache_bytes)
        yield Problem(places.host_cache, value, rule, "leave it out, or choose another VM")
    if vm is None:
        return
    source = cite(catalog, vm.series.provenance)
    yield from count_problems(vm, asked.expression, asked.attached, places.disks, source)
    if not isinstance(asked.disks, Provisioned):
        return
    entry = asked.disks.entry
    if entry.family.needs_premium_storage and not vm.series.premium_storage:
        rule = f"{vm.name} does not support premium storage ({source})"
        able = sorted(v.name for v in catalog.vms.values() if v.series.premium_storage)
        near = did_you_mean(vm.name.replace("_v", "s_v"), able, f"choose one such as {able[0]}")
        yield Problem(places.vm, repr(vm.name), rule, f"{near} or use a Standard SSD")
    if vm.series.caps.get(entry.name, {}) is None:
        others = [
            disk.name
            for disk in catalog.disks.values()
            if disk.vendor == vm.vendor and vm.series.caps.get(disk.name, {}) is not None
        ]
        rule = f"{vm.name} takes no {entry.name} ({cite(catalog, vm.series.provenance, 'caps')})"
        way_out = f"choose {' or '.join(others[:2])}, or another VM"
        yield Problem(places.disks, repr(str(asked.expression)), rule, way_out)
    yield from vendor_problems(vm, entry, asked.expression, places.disks)


def vendor_problems(
    vm: VmEntry, disk: DiskEntry, expression: DiskExpression, place: str
) -> Iterator[Problem]:
    """Yield why a VM cannot have a disk of another cloud; a user's own may be of any."""
    if disk.builtin and vm.builtin and disk.vendor != vm.vendor:
        rule = f"{disk.name} is a disk of {disk.vendor}, {vm.name} a VM of {vm.vendor}"
        yield Problem(place, repr(str(expression)), rule, f"choose a disk of {vm.vendor}")


def count_problems(
    vm: VmEntry, expression: DiskExpression, attached: AttachedDisks, place: str, source: str
) -> Iterator[Problem]:
    """Yield why a VM cannot have so many disks beside those that are attached."""
    count, name = expression.count, expression.name
    what, most, there = {
        "local": ("temp disk", 1, attached.temp_disks),
        "ephemeral-os": ("OS disk", 1, attached.ephemeral_os_disks),
        "nvme": ("NVMe disks", vm.facts.nvme.count if vm.facts.nvme else 0, attached.nvme_disks),
    }.get(name, ("data disks", vm.facts.max_data_disks, attached.data_disks))
    if most is not None and there + count > most:
        has = f" and {there} of them in use" if there else ""
        rule = f"{vm.name} has {most} {what}{has}, not {there + count} ({source})"
        if not expression.is_local:
            rule = f"{vm.name} takes {most} {what}, not {there + count} ({source})"
        left = max(0, most - there)
        way_out = (
            f"use at most {left} more, or a larger VM" if left else "choose another host or VM"
        )
        yield Problem(place, repr(str(expression)), rule, way_out)


def _caching_problems(asked: _Asked) -> Iterator[Problem]:
    """Yield why a volume cannot use the host cache."""
    catalog, vm, disks, places = asked.catalog, asked.vm, asked.disks, asked.places
    place, value = places.caching, asked.volume.caching
    none = f"use {_written(places.caching, 'None')}"
    if not isinstance(disks, Provisioned):
        rule = f"{asked.expression.name!r} is on the host itself, so it has no host cache"
        yield Problem(place, value, rule, none)
        return
    entry = disks.entry
    source = cite(catalog, entry.family.provenance, "host_cache_max_gib")
    most = entry.family.host_cache_max_gib
    if most is None:
        rule = f"{entry.family.title} has no host caching ({source})"
        yield Problem(place, value, rule, f"{none} or another kind of disk")
    elif disks.size_bytes > most * GIB:
        size = disks.size_bytes // GIB
        rule = f"{entry.name} ({size} GiB) cannot use the host cache, which ends at {most} GiB"
        smaller = f"{entry.name}({most}GiB)"
        yield Problem(place, value, f"{rule} ({source})", f"{none}, {smaller} or a smaller disk")
    if vm is None:
        rule = "the host cache belongs to a VM, and no VM is given"
        way_out = f"give {places.vm}, for example {places.vm} azure/Standard_DS14_v2, or {none}"
        yield Problem(place, value, rule, way_out)
        return
    vm_source = cite(catalog, vm.series.provenance)
    if vm.series.host_cache == "none":
        rule = f"{vm.name} has no host cache ({vm_source})"
        yield Problem(place, value, rule, f"{none} or a VM such as azure/Standard_DS14_v2")
    elif cache_bytes(vm, asked.host) is None:
        rule = f"the size of the host cache of {vm.name} is not published ({vm_source})"
        way_out = f"say what you assume: {_written(places.host_cache, '100GiB')}, or {none}"
        yield Problem(place, value, rule, way_out)


def _written(place: str, value: str) -> str:
    """Return an option, or a key of a file, with its value, as the user writes it."""
    option = place.startswith("--")
    return f"{place} {value}" if option else f"{place.rpartition(': ')[2]}: {value}"


MOST_VOLUME_BYTES = 10**15
"""What results and figures hold; no published volume of one VM is as large."""


def _shape_problems(asked: _Asked) -> Iterator[Problem]:
    """Yield what is wrong with chunk and size."""
    expression, disks, volume, places = asked.expression, asked.disks, asked.volume, asked.places
    chunk = volume.chunk_bytes
    if chunk is not None:
        value = format_bytes(chunk)
        if expression.count == 1:
            rule = "one disk alone is not striped"
            way_out = f"leave it out, or write for example 4 x {expression}"
            yield Problem(places.chunk, value, rule, way_out)
        elif chunk < SECTOR_BYTES or chunk & (chunk - 1) or chunk > MOST_CHUNK_BYTES:
            rule = "a chunk is a power of two from 4KiB to 1GiB"
            yield Problem(places.chunk, value, rule, "use for example 64KiB")
    yield from size_problems(expression, disks.size_bytes, places.disks)
    most = disks.size_bytes * expression.count
    if volume.size_bytes is not None:
        least = expression.count * (_chunk(asked) or SECTOR_BYTES)
        if not least <= volume.size_bytes <= most:
            rule = (
                f"{expression} gives {format_bytes(most)} in all, and needs {format_bytes(least)}"
            )
            way_out = (
                f"choose {format_bytes(least)} to {format_bytes(most)}, or more or larger disks"
            )
            yield Problem(places.size, format_bytes(volume.size_bytes), rule, way_out)


def size_problems(expression: DiskExpression, disk_bytes: int, place: str) -> Iterator[Problem]:
    """Yield why no volume is of so many disks of a size."""
    most = disk_bytes * expression.count
    if most > MOST_VOLUME_BYTES:
        rule = f"a volume has at most 1 PB, and this one {about_bytes(most)}"
        fewer = f"use at most {MOST_VOLUME_BYTES // disk_bytes} of these disks"
        yield Problem(place, repr(str(expression)), rule, fewer)


def _chunk(asked: _Asked) -> int | None:
    if asked.expression.count == 1:
        return None
    chunk = asked.volume.chunk_bytes
    return DEFAULT_CHUNK_BYTES if chunk is None else chunk


def _volume_bytes(asked: _Asked) -> int:
    """Return the usable bytes: whole chunks on every disk."""
    unit = _chunk(asked) or SECTOR_BYTES
    wanted, count = asked.volume.size_bytes, asked.expression.count
    each = asked.disks.size_bytes if wanted is None else wanted // count
    return each // unit * unit * count


def _warnings(asked: _Asked) -> Iterator[str]:
    """Yield what is assumed and not published or measured."""
    disks, vm, volume, host = asked.disks, asked.vm, asked.volume, asked.host
    yield from _thin(asked.catalog, disks.latency_name)
    if vm is None:
        return
    if asked.expression.name == "local" and vm.facts.nvme is not None:
        size = about_bytes(vm.facts.temp_gib * GIB)
        yield f"`local` is the temp disk of {vm.name} ({size}); its NVMe disks are `nvme`"
    if vm.facts.uncached is None and disks.profile.medium == "remote":
        yield f"no limit on attached disks is known for {vm.name}: only the disks' own limits hold"
    inferred = {"cached": vm.facts.cached, "burst": vm.facts.uncached_burst}
    for part, limit in inferred.items():
        provenance = vm.series.provenance.get(part)
        if limit is not None and provenance is not None and provenance.status == "inferred":
            yield f"the {part} limits of {vm.name} are inferred: {provenance.note}"
    if volume.caching != "None" and host.host_cache_bytes is not None:
        size = about_bytes(host.host_cache_bytes)
        yield f"the host cache of {vm.name} is assumed to hold {size}, as you stated"
    if volume.caching != "None" and vm.facts.cached is None:
        yield f"no cached limit is published for {vm.name}: hits are limited by latency alone"


def _thin(catalog: Catalog, name: str) -> Iterator[str]:
    """Yield what service times rest on where nobody, or one source alone, measured them."""
    facts = catalog.latencies[name]
    words = {"assumed": "are partly assumed", "inferred": "rest on little evidence"}
    for status, text in words.items():
        notes = [
            f"{operation}s: {getattr(facts, operation).note}"
            for operation in ("read", "write")
            if getattr(facts, operation).status == status
        ]
        if notes:
            yield f"the service times of {name} {text}: {'; '.join(notes)}"
