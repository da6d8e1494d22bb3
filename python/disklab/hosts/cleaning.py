"""Removing what a crash left: mounts, loop devices, processes, run directories. Data stay.

A host that is healthy is no leftover and stays, unless everything is asked for, or it belongs to a
rehearsal that is gone: then its data go with it. Every step first proves that its object is ours.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from disklab.engine import Control, remove_ublk
from disklab.engine.process import EngineProcess
from disklab.errors import DisklabError, EngineError, UserError
from disklab.hosts.filesystem import force_unmount, unmount
from disklab.hosts.left_databases import planned, remove_database
from disklab.hosts.ownership import (
    OurDevice,
    backing_file,
    is_our_fuse_mount,
    mounts,
    our_devices,
    prove,
)
from disklab.hosts.places import HostPlace, Places, remove_mount_point
from disklab.hosts.requirements import require_machine

# From <linux/loop.h>; no module of Python has it.
LOOP_CLR_FD = 0x4C01
# Programs on a dead disk get errors for everything that they had written, one after the other,
# and most of them end by that (measured: 4 s for a writer with 300 MB in the page cache).
BUSY_SECONDS = 20.0
# The last close of a device detaches it.
GONE_SECONDS = 20.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Removed:
    """One thing that was found, and what became of it."""

    kind: str
    """`process`, `database process`, `memory group`, `mount`, `device`, `fuse mount`, `volume`,
    `run directory`, `data`."""
    what: str
    host: str
    done: bool
    """Whether it is gone; in a dry run, whether it would be removed."""
    note: str = ""


@dataclass(frozen=True)
class Scope:
    """What to clean."""

    everything: bool = False
    """Healthy hosts as well."""
    host: str | None = None
    data: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Kept:
    """What clean left alone on purpose."""

    healthy: list[str]
    data: list[str]


def clean(places: Places, scope: Scope) -> tuple[list[Removed], Kept]:
    """Remove what is left; return what was removed and what stays. UserError without root."""
    require_machine()
    with places.locked():
        removed: list[Removed] = []
        healthy: list[str] = []
        for host in places.hosts():
            if scope.host not in (None, host.name):
                continue
            orphan = host.is_orphan()
            well = _healthy(host)
            if well and not orphan and not scope.everything:
                removed += _half_made(host, dry_run=scope.dry_run)
                if _is_empty(host) and not scope.dry_run:
                    # What a killed attach started and never used.
                    removed += _remove_host(host, places, healthy=True)
                else:
                    healthy.append(host.name)
            else:
                # Who waits for its disk ends with that, and is seen to below.
                database = _database(places, host.name, dry_run=scope.dry_run)
                removed += [one for one in database if one.done]
                remove = _plan if scope.dry_run else partial(_remove_host, healthy=well)
                removed += remove(host, places)
                if orphan and not scope.data:
                    # What a rehearsal filled is of no use to anybody, and may be large.
                    removed += _data(places, replace(scope, host=host.name), healthy)
        hosts = {host.name for host in places.hosts()} | set(healthy)
        for node in places.databases():
            # The host of a database is made before it and removed after it.
            if node.name not in hosts and scope.host in (None, node.name):
                removed += _database(places, node.name, dry_run=scope.dry_run)
        removed += _data(places, scope, healthy) if scope.data else []
        return removed, Kept(healthy, [str(path) for path in places.data_files()])


def clean_orphans(places: Places) -> list[Removed]:
    """Remove the hosts and databases of rehearsals that are gone; leave everything else alone."""
    removed: list[Removed] = []
    for host in places.hosts():
        if host.is_orphan():
            removed += clean(places, Scope(host=host.name))[0]
    return removed


def _database(places: Places, host: str, *, dry_run: bool) -> Iterator[Removed]:
    """Remove what is left of the database node on a host, before its disks go."""
    run_dir = places.database(host)
    for kind, what, done, note in planned(run_dir) if dry_run else remove_database(run_dir):
        yield Removed(kind, what, host, done, note)


def _healthy(host: HostPlace) -> bool:
    process = EngineProcess.recorded(host.pid)
    if process is None or not process.is_ours():
        return False
    try:
        with Control(host.socket) as control:
            control.hello()
    except (EngineError, UserError):
        return False
    return True


def _half_made(host: HostPlace, *, dry_run: bool) -> Iterator[Removed]:
    """Detach what a killed `attach` left on a healthy host. The lock says that none runs now."""
    for name, record in host.volume_records().items():
        if record.state != "attaching":
            continue
        if dry_run:
            yield Removed("volume", name, host.name, True, "half attached")
            continue
        # mkfs outlives the command that started it, and holds the device until it is done.
        outcomes: list[DisklabError] = []
        done = _until(partial(_detach_half_made, host, name, outcomes), BUSY_SECONDS)
        remove_mount_point(record)
        note = "half attached" if done else str(outcomes[-1])
        yield Removed("volume", name, host.name, done, note)


def _detach_half_made(host: HostPlace, name: str, errors: list[DisklabError]) -> bool:
    """Try once to take a volume away; returns whether it is gone."""
    try:
        with Control(host.socket) as control:
            for volume in control.volumes():
                if volume.name == name:
                    for mount in prove(Path(volume.device), host, name).mounts():
                        unmount(mount.point)
                    control.detach(name)
    except DisklabError as error:
        errors.append(error)
        return False
    host.forget_volume(name)
    return True


def _is_empty(host: HostPlace) -> bool:
    """Return whether a healthy host has no volumes."""
    try:
        with Control(host.socket) as control:
            return not control.volumes() and not host.volume_records()
    except DisklabError:
        return False


def _remove_host(host: HostPlace, places: Places, *, healthy: bool) -> Iterator[Removed]:
    """Remove everything of a host, in the order in which one thing holds the other."""
    process = EngineProcess.recorded(host.pid)
    devices = [device for device in our_devices(places) if device.host == host.name]
    if not healthy:
        # Whoever waits for the dead disk is let go first: this aborts the FUSE connection.
        yield from _end_process(host, process)
        _abort(host)
        # A ublk device loses its disk with the process.
        devices = [device for device in our_devices(places) if device.host == host.name]
    for device in devices:
        yield from _unmount_all(device, host, orderly=healthy)
    if healthy and process is not None:
        yield from _shut_down(host, process)
        devices = [device for device in our_devices(places) if device.host == host.name]
    outcomes = [_detach(device, host, places) for device in devices] + _unproved(host)
    yield from outcomes
    if not all(outcome.done for outcome in outcomes):
        # The mount and the records are the proof that the device is ours: they stay with it.
        return
    yield from _unmount_fuse(host)
    for record in host.volume_records().values():
        remove_mount_point(record)
    if any(is_our_fuse_mount(mount, host) for mount in mounts()):
        yield Removed("run directory", str(host.run), host.name, False, "still mounted")
        return
    left = host.remove()
    yield Removed("run directory", str(host.run), host.name, not left, ", ".join(left))


def _plan(host: HostPlace, places: Places) -> Iterator[Removed]:
    """Yield what would be removed of a host."""
    process = EngineProcess.recorded(host.pid)
    devices = [device for device in our_devices(places) if device.host == host.name]
    if process is not None and process.is_ours():
        yield Removed("process", str(process.pid), host.name, True)
    for device in devices:
        for mount in device.mounts():
            yield Removed("mount", str(mount.point), host.name, True)
        yield Removed("device", str(device.path), host.name, True)
    if any(is_our_fuse_mount(mount, host) for mount in mounts()):
        yield Removed("fuse mount", str(host.mount), host.name, True)
    yield Removed("run directory", str(host.run), host.name, True)


def _end_process(host: HostPlace, process: EngineProcess | None) -> Iterator[Removed]:
    if process is not None and process.is_ours():
        ended = process.end()
        yield Removed("process", str(process.pid), host.name, ended)


def _shut_down(host: HostPlace, process: EngineProcess) -> Iterator[Removed]:
    """End a healthy host in the orderly way; kill it when it will not."""
    try:
        with Control(host.socket) as control:
            control.shutdown()
    except DisklabError as error:
        note = str(error)
    else:
        note = ""
        process.wait()
    ended = not process.is_ours() or process.end()
    yield Removed("process", str(process.pid), host.name, ended, note)


def _abort(host: HostPlace) -> None:
    """Fail every I/O that waits for a dead host: MNT_FORCE aborts the connection, busy or not."""
    if any(is_our_fuse_mount(mount, host) for mount in mounts()):
        force_unmount(host.mount, "-f")


def _unmount_all(device: OurDevice, host: HostPlace, *, orderly: bool) -> Iterator[Removed]:
    """Unmount a device of ours everywhere, the innermost mount first."""
    for mount in reversed(device.mounts()):
        prove(device.path, host, device.volume)
        note, gone = "", False
        if orderly:
            with suppress(DisklabError):
                unmount(mount.point)
                gone = True
        gone = gone or _until(partial(force_unmount, mount.point), BUSY_SECONDS)
        if not gone:
            # Somebody still has files open; they get errors, and the mount goes with the last one.
            gone, note = force_unmount(mount.point, "-l"), "was in use: unmounted lazily"
        yield Removed("mount", str(mount.point), host.name, gone, note)


def _detach(device: OurDevice, host: HostPlace, places: Places) -> Removed:
    if device.is_ublk:
        return _remove_ublk(device, host, places)
    try:
        prove(device.path, host, device.volume)
        handle = os.open(device.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Between the first proof and this open the device could have become another's.
            prove(device.path, host, device.volume)
            fcntl.ioctl(handle, LOOP_CLR_FD)
        finally:
            os.close(handle)
    except (DisklabError, OSError) as error:
        return Removed("device", str(device.path), host.name, False, str(error))
    if not _until(lambda: not _still_there(device, host), GONE_SECONDS):
        note = "in use: end what uses it, then clean again"
        return Removed("device", str(device.path), host.name, False, note)
    return Removed("device", str(device.path), host.name, True)


def _remove_ublk(device: OurDevice, host: HostPlace, places: Places) -> Removed:
    """Remove what stays of a dead ublk device.

    The engine reads the marks again, and takes all dead devices of the host at once.
    """
    note = ""
    try:
        remove_ublk(places.run, host.name)
    except DisklabError as error:
        note = str(error)
    gone = device.path not in {one.path for one in our_devices(places) if one.is_ublk}
    return Removed("device", str(device.path), host.name, gone, "" if gone else note)


def _unproved(host: HostPlace) -> list[Removed]:
    """Return devices of our notes whose proof is gone, such as after a lazy unmount by hand."""
    found = []
    for volume, record in host.volume_records().items():
        if record.device is not None and backing_file(Path(record.device)) == f"/{volume}":
            note = f"its mount is gone, and the proof with it; if idle: losetup -d {record.device}"
            found.append(Removed("device", record.device, host.name, False, note))
    return found


def _until(done: Callable[[], bool], seconds: float) -> bool:
    """Return whether it is done, trying again until the time is over."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _still_there(device: OurDevice, host: HostPlace) -> bool:
    try:
        prove(device.path, host, device.volume)
    except DisklabError:
        return False
    return True


def _unmount_fuse(host: HostPlace) -> Iterator[Removed]:
    # A killed start may leave several mounts on top of each other: no more than hosts were started.
    for mount in mounts():
        if is_our_fuse_mount(mount, host):
            gone = force_unmount(host.mount, "-f") or force_unmount(host.mount, "-l")
            yield Removed("fuse mount", str(host.mount), host.name, gone)


def _data(places: Places, scope: Scope, healthy: list[str]) -> Iterator[Removed]:
    """Remove backing files of hosts that are gone: regular files of ours in our data directory."""
    for path in places.data_files():
        host = path.parent.name
        if scope.host not in (None, host) or host in healthy:
            continue
        if path.is_symlink() or not path.is_file():
            yield Removed("data", str(path), host, False, "no regular file: left alone")
            continue
        if not scope.dry_run:
            path.unlink()
            with suppress(OSError):
                path.parent.rmdir()
        yield Removed("data", str(path), host, True)


def as_json(removed: list[Removed], kept: Kept) -> dict[str, object]:
    """Return the outcome as one object."""
    return {"removed": [asdict(one) for one in removed], **asdict(kept)}
