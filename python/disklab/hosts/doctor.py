"""What this machine can emulate, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.catalog import Catalog, HostRequest, VolumeRequest, resolve
from disklab.catalog.profile import HostProfile, Limit, Unit, VolumeProfile, quantile_ns
from disklab.catalog.quantity import LOCAL_DISKS, about_bytes, about_rate, about_time
from disklab.engine import Control, Envelope, find_engine, start_host
from disklab.errors import DisklabError, EngineError, UserError
from disklab.hosts import namespaces, requirements
from disklab.hosts.control_group import GroupRoot
from disklab.hosts.places import Places
from disklab.hosts.running import stop_host
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command
from disklab.setting_kinds import parts_of

# Which disks this machine can emulate: the engine's envelope against what a disk promises.

MEDIAN_PPM = 500_000


@dataclass(frozen=True)
class Shortfall:
    """One promise that this machine cannot keep."""

    limit: str
    """`IOPS`, `MB/s` or `latency`."""
    promised: str
    measured: str

    def __str__(self) -> str:
        """Return it as half a sentence."""
        return f"{self.limit}: the disk has {self.promised}, this machine {self.measured}"


def shortfalls(host: HostProfile, volume: VolumeProfile, envelope: Envelope) -> list[Shortfall]:
    """Return what stands in the way of this volume on this machine; nothing: it fits."""
    found = []
    for unit, most, shown in (
        ("ios", envelope.iops, lambda per_s: f"{per_s} IOPS"),
        ("bytes", envelope.bytes_per_s, about_rate),
    ):
        rate = top_rate(host, volume, unit)  # type: ignore[arg-type]
        if rate is not None and rate > most:
            name = {"ios": "IOPS", "bytes": "MB/s"}[unit]
            found.append(Shortfall(name, shown(rate), shown(most)))
    latency = volume.disks[0].latency
    fastest = min(quantile_ns(latency.read, MEDIAN_PPM), quantile_ns(latency.write, MEDIAN_PPM))
    if volume.caching != "None" and host.cache is not None:
        fastest = min(fastest, quantile_ns(host.cache.latency.read, MEDIAN_PPM))
    if 0 < fastest < envelope.p50_ns:
        found.append(Shortfall("latency", about_time(fastest), about_time(envelope.p50_ns)))
    return found


def top_rate(host: HostProfile, volume: VolumeProfile, unit: Unit) -> int | None:
    """Return the highest rate that the limits of a volume ever grant; None: there is no limit."""
    disk = volume.disks[0]
    own = _top(disk.limits, unit)
    of_disks = None if own is None else own * len(volume.disks)
    if disk.medium == "nvme":
        return of_disks
    on_host, on_network = _top(host.cached, unit), _top(host.uncached, unit)
    if disk.medium == "temp":
        return on_host
    attached = _least(of_disks, on_network)
    if volume.caching == "None":
        return attached
    # Hits are limited by the host's own SSD alone.
    return on_host


def _top(limits: list[Limit], unit: Unit) -> int | None:
    rates = [
        limit.burst.per_s if limit.burst else limit.per_s for limit in limits if limit.unit == unit
    ]
    return max(rates) if rates else None


def _least(one: int | None, other: int | None) -> int | None:
    known = [rate for rate in (one, other) if rate is not None]
    return min(known) if known else None


# FUSE serves devices well from here on (ASYNC_DIO with parallel direct writes; Ubuntu 22.04).
LEAST_KERNEL = (5, 15)
# FUSE_OVER_IO_URING came with this one.
URING_KERNEL = (6, 14)
# Below it a host with a few volumes and their file systems does not fit comfortably.
LEAST_MEMORY_BYTES = 1 << 30
LEAST_SPACE_BYTES = 10 << 30


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    ok: bool
    required: bool
    """Without it no disk can be attached."""
    way_out: str = ""


@dataclass(frozen=True)
class Fit:
    """Whether a disk of the catalogue fits this machine."""

    disk: str
    vm: str | None
    shortfalls: list[Shortfall]


def checks(places: Places) -> Iterator[Check]:
    """Look at this machine without changing it."""
    blocking = {problem.place: problem for problem in requirements.problems()}
    system = platform.system()
    if system != "Linux":
        yield Check("system", system, False, True, blocking["this machine"].way_out)
        return
    yield _kernel()
    for name, found, place in (
        ("root", f"uid {os.geteuid()}", "this user"),
        ("FUSE", "/dev/fuse", "/dev/fuse"),
        ("loop devices", "/dev/loop-control", "/dev/loop-control"),
    ):
        problem = blocking.get(place)
        way_out = problem.way_out if problem else ""
        yield Check(name, problem.value if problem else found, problem is None, True, way_out)
    yield _fuse_over_uring()
    yield _issue_times()
    yield _engine()
    for program in requirements.PACKAGES:
        if program in requirements.OWN:
            continue
        path = requirements.find_program(program)
        # mkfs and fio are needed for what they do only; the others by every attach with a mount.
        needed = program in ("mount", "umount", "blkid")
        way_out = "" if path else requirements.how_to_get(program)
        yield Check(program, path or "not installed", path is not None, needed, way_out)
    yield _memory_groups()
    yield _emulated_hosts()
    yield _memory()
    yield _space(places)


def measure(places: Places) -> Envelope:
    """Start an emulated host without volumes and return what it measured of this machine.

    Raises UserError or EngineError when it does not come up. Nothing is left.
    """
    requirements.require_machine()
    host = places.host(f"doctor-{secrets.token_hex(4)}")
    profile = HostProfile(name="doctor", seed=1, cached=[], uncached=[], cache=None, volumes=[])
    with places.locked():
        host.make()
        try:
            # Anew: what an earlier start measured, on a busy machine perhaps, is what is in doubt.
            start_host(profile, host.name, places.run, places.data, measure_anew=True)
        except DisklabError:
            host.remove()
            raise
        try:
            with Control(host.socket) as control:
                envelope = control.hello().envelope
        finally:
            stop_host(host)
    if envelope is None:
        raise EngineError("the engine came up without measuring this machine; see `make setup`")
    return envelope


def fits(catalog: Catalog, envelope: Envelope) -> Iterator[Fit]:
    """Yield every disk of the catalogue, and one VM of each series for the disks that VMs have."""
    for name, disk in catalog.disks.items():
        size = disk.facts.size_gib
        # Disks whose size is chosen are held against the machine at 256 GiB and what that includes.
        expression = name if size.fixed else f"{name}({min(size.most, max(size.least, 256))}GiB)"
        yield _fit(catalog, expression, None, envelope)
    seen: set[tuple[str, str]] = set()
    for vm in catalog.vms.values():
        for local in LOCAL_DISKS:
            if (vm.series_name, local) in seen:
                continue
            try:
                yield _fit(catalog, local, vm.name, envelope)
            except UserError:  # this VM has no such disk
                continue
            seen.add((vm.series_name, local))


def _fit(catalog: Catalog, expression: str, vm: str | None, envelope: Envelope) -> Fit:
    found = resolve(catalog, HostRequest(vm=vm), VolumeRequest(expression))
    return Fit(expression, vm, shortfalls(found.host, found.volume, envelope))


def _kernel() -> Check:
    release = platform.release()
    wanted = ".".join(map(str, LEAST_KERNEL))
    ok = parts_of(release.partition("-")[0])[:2] >= LEAST_KERNEL
    return Check("kernel", release, ok, True, "" if ok else f"use Linux {wanted} or later")


def _fuse_over_uring() -> Check:
    parameter = Path("/sys/module/fuse/parameters/enable_uring")
    there = parameter.exists()
    found = "offered by this kernel" if there else "not in this kernel: /dev/fuse is used, slower"
    wanted = ".".join(map(str, URING_KERNEL))
    return Check("FUSE over io_uring", found, there, False, "" if there else f"Linux {wanted}")


def _issue_times() -> Check:
    parts = (Path("/proc/sys/kernel/perf_event_paranoid"), Path("/sys/kernel/tracing"))
    there = all(part.exists() for part in parts)
    found = (
        "offered by this kernel" if there else "not in this kernel: an I/O begins when it arrives"
    )
    wanted = "a kernel with CONFIG_PERF_EVENTS and CONFIG_EVENT_TRACING"
    return Check("issue times of I/Os", found, there, False, "" if there else wanted)


def _engine() -> Check:
    try:
        path = find_engine()
        ran = LocalMachine().run(Command([str(path), "--version"]), 10.0)
    except DisklabError as error:
        return Check("engine", str(error), False, True, "run `make setup`")
    said = (ran.stdout or ran.stderr).decode(errors="replace").strip()
    if ran.code != 0:
        return Check("engine", f"{path}: {said}", False, True, "run `make setup`")
    return Check("engine", f"{said} ({path})", True, True)


def _memory_groups() -> Check:
    root = GroupRoot.of_machine()
    if root is None:
        way_out = "without them a database's page cache is not scaled: enable the memory controller"
        return Check("memory groups", "no cgroup memory controller", False, False, way_out)
    found = f"cgroup version {root.version} in {root.memory}"
    if not os.access(root.memory, os.W_OK):
        way_out = "run it as root; in a container, with --privileged"
        return Check("memory groups", f"{found}, not writable", False, False, way_out)
    return Check("memory groups", found, True, False)


def _emulated_hosts() -> Check:
    why = namespaces.why_not()
    if why is None:
        return Check("hosts in namespaces", "can be made", True, False)
    way_out = "without them a cluster's nodes share this machine's loopback network"
    return Check("hosts in namespaces", why, False, False, way_out)


def _memory() -> Check:
    free = requirements.available_memory_bytes()
    ok = free >= LEAST_MEMORY_BYTES
    way_out = "" if ok else f"free some: {about_bytes(LEAST_MEMORY_BYTES)} are comfortable"
    return Check("free memory", about_bytes(free), ok, False, way_out)


def _space(places: Places) -> Check:
    _, free = places.room()
    ok = free >= LEAST_SPACE_BYTES
    way_out = "" if ok else "free some, or set DISKLAB_DATA_DIR to a larger file system"
    return Check(f"free space in {places.data}", about_bytes(free), ok, False, way_out)
