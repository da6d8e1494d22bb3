"""Removing what a crash left: mounts, loop devices, processes, run directories. Data stay.

A host that is healthy is no leftover and stays, unless everything is asked for, or it belongs to a
rehearsal that is gone: then its data go with it. Healthy means that its process is ours and holds
its lock; one that is silent or busy lives. A plan is made first, and each of its steps proves once
more that its object is ours. What is not proved is left alone and named.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from disklab.engine import Control, remove_ublk
from disklab.engine.locks import Life
from disklab.engine.own_folder import UNFINISHED, remove_unfinished
from disklab.engine.process import EngineProcess, unseen
from disklab.errors import DisklabError
from disklab.hosts import left_networks
from disklab.hosts.control_group import end_marked, marked_processes
from disklab.hosts.filesystem import abort, force_unmount, mount_of, unmount
from disklab.hosts.left_databases import (
    Left,
    Outcome,
    Removed,
    Step,
    applied,
    owner_of,
    planned,
    steps_of,
    why_left,
)
from disklab.hosts.ownership import (
    OurDevice,
    backing_file,
    elsewhere,
    is_our_fuse_mount,
    look_alikes,
    mounts,
    our_devices,
    prove,
)
from disklab.hosts.places import HostPlace, Places, VolumeRecord, remove_mount_point
from disklab.hosts.requirements import require_machine
from disklab.machines import programs
from disklab.waiting import until

# From <linux/loop.h>; no module of Python has it.
LOOP_CLR_FD = 0x4C01
# Programs on a dead disk get errors for everything that they had written, one after the other,
# and most of them end by that (measured: 4 s for a writer with 300 MB in the page cache).
BUSY_SECONDS = 20.0
# The last close of a device detaches it.
GONE_SECONDS = 20.0
# By this the engine refuses data that are not whole; it goes with the file.
LOST = "user.disklab.lost"


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
    foreign: list[Left] = field(default_factory=list)
    """What lies where ours would and is not proved to be ours."""


@dataclass
class Plan:
    """What is to be done, in an order in which nothing holds what comes before it."""

    parts: list[list[Step]] = field(default_factory=list)
    """The steps of each host or database: a failure in one holds up none of the others."""
    healthy: list[str] = field(default_factory=list)
    foreign: list[Left] = field(default_factory=list)
    undecided: set[str] = field(default_factory=set)
    """Hosts among the foreign ones that may live, whose data are theirs."""


def clean(places: Places, scope: Scope) -> tuple[list[Removed], Kept]:
    """Remove what is left; return what was removed and what stays. UserError without root."""
    require_machine()
    with places.locked():
        plan = make_plan(places, scope)
        outcomes = [planned(part) if scope.dry_run else applied(part) for part in plan.parts]
        removed = [one for part in outcomes for one in part]
        if not scope.dry_run:
            for folder in ("hosts", "databases", "networks"):
                remove_unfinished(places.run, folder)
            remove_unfinished(places.data)
            places.remove_half_written()
        gone = {one.what for one in removed if one.done}
        data = [str(path) for path in places.data_files() if str(path) not in gone]
        return removed, Kept(plan.healthy, data, plan.foreign)


def clean_orphans(places: Places) -> list[Removed]:
    """Remove the hosts and databases of rehearsals that are gone; leave everything else alone."""
    removed: list[Removed] = []
    for host in places.hosts():
        if host.is_orphan():
            removed += clean(places, Scope(host=host.name))[0]
    for network in places.networks():
        if left_networks.owner_life(network) is Life.GONE:
            removed += clean(places, Scope(host=network.name))[0]
    for node in _without_host(places):
        owner = owner_of(node)
        if owner is not None and owner.life(node) is Life.GONE:
            removed += clean(places, Scope(host=node.name))[0]
    return removed


def remove_dead(host: HostPlace, places: Places) -> list[Removed]:
    """Remove what is left of a host whose process has just ended, or was killed as it hung.

    The caller holds the lock of the places.
    """
    if EngineProcess.of(host.run) is not None or unseen(host.run) is not None:
        return []
    return list(applied(_host_steps(host, places, None, keep=False)))


def _without_host(places: Places) -> list[Path]:
    """Return the run directories of databases whose VM is lost.

    The host of a database is made before it and removed after it otherwise.
    """
    hosts = {host.name for host in places.hosts()}
    return [node for node in places.databases() if node.name not in hosts]


def make_plan(places: Places, scope: Scope) -> Plan:
    """Return what `clean` would do. Changes nothing. The caller holds the lock of the places."""
    plan = Plan()
    # First: what is mounted in emulated hosts holds disks.
    _plan_networks(places, scope, plan)
    hosts = [host for host in places.hosts() if scope.host in (None, host.name)]
    for host in hosts:
        if (why := host.why_foreign()) is None:
            _plan_host(host, places, scope, plan)
            continue
        plan.foreign.append(Left(str(host.run), why))
        if (database := places.database(host.name)).exists():
            why = why_left(database) or "its host is not ours"
            plan.foreign.append(Left(str(database), why))
    for node in _without_host(places):
        if scope.host in (None, node.name):
            _plan_waiting(node, scope, plan)
    if scope.data:
        orphans = {step.host for part in plan.parts for step in part if step.kind == "data"}
        for name in sorted({path.parent.name for path in places.data_files()} - orphans):
            keeps = name in plan.healthy or name in plan.undecided
            if scope.host in (None, name) and not keeps:
                _plan_data(places.host(name), plan)
    if scope.host is None:
        plan.foreign += [Left(str(path), "it is not a folder of ours") for path in _strange(places)]
    plan.foreign += [Left(str(device), why) for device, why in look_alikes(places)]
    return plan


def _plan_networks(places: Places, scope: Scope, plan: Plan) -> None:
    """Plan to remove the sets of emulated hosts whose owners are gone."""
    for network in places.networks():
        if scope.host not in (None, network.name):
            continue
        if (why := left_networks.why_left(network)) is not None:
            plan.foreign.append(Left(str(network), why))
        elif left_networks.owner_life(network) is Life.LIVES and not scope.everything:
            plan.healthy.append(network.name)
        elif (why := left_networks.unseen(network)) is not None:
            plan.foreign.append(Left(str(network), why))
        else:
            plan.parts.append(list(left_networks.steps_of(network)))


def _plan_host(host: HostPlace, places: Places, scope: Scope, plan: Plan) -> None:
    orphan = host.is_orphan()
    process = EngineProcess.of(host.run)
    if (why := _why_undecided(host, process)) is not None:
        plan.undecided.add(host.name)
        plan.foreign.append(Left(str(host.run), why))
        return
    if process is not None and not orphan and not scope.everything:
        half_made = list(_half_made(host))
        if not _will_be_empty(host):
            plan.parts.append(half_made)
            plan.healthy.append(host.name)
            return
        # What a killed attach started and never used.
        half = {step.what for step in half_made}
        plan.parts.append([*half_made, *_host_steps(host, places, process, but=half)])
        return
    # Who waits for its disk ends with that, and is seen to below.
    _plan_database(places.database(host.name), plan)
    plan.parts.append(list(_marked(host)))
    keep = not (orphan or scope.data)
    plan.parts.append(list(_host_steps(host, places, process, keep=keep)))
    if orphan and not scope.data:
        # What a rehearsal filled is of no use to anybody, and may be large.
        _plan_data(host, plan)


def _why_undecided(host: HostPlace, process: EngineProcess | None) -> str | None:
    """Return why a host is left alone whatever is asked for; None: its life can be told."""
    if process is None and (why := unseen(host.run)) is not None:
        return why
    owner = host.owner()
    return None if owner is None else owner.why_elsewhere(host.run)


def _plan_database(run_dir: Path, plan: Plan) -> None:
    """Plan to remove what is left of the database node on a host, before its disks go."""
    plan.parts.append(list(steps_of(run_dir)))
    if run_dir.exists() and (why := why_left(run_dir)) is not None:
        plan.foreign.append(Left(str(run_dir), why))


def _plan_waiting(run_dir: Path, scope: Scope, plan: Plan) -> None:
    """Plan to remove a node whose VM is lost, unless it comes back: its rehearsal lives."""
    owner = owner_of(run_dir) if why_left(run_dir) is None else None
    state = Life.GONE if owner is None else owner.life(run_dir)
    if state is Life.LIVES and not scope.everything:
        plan.healthy.append(run_dir.name)
    elif owner is not None and (why := owner.why_elsewhere(run_dir)) is not None:
        plan.foreign.append(Left(str(run_dir), why))
    else:
        _plan_database(run_dir, plan)


def _plan_data(host: HostPlace, plan: Plan) -> None:
    """Plan to remove the disk images of a host that is gone: those that are proved to be ours."""
    steps = []
    for path in sorted(host.data.glob("*.img")):
        if (why := host.why_foreign_image(path.stem)) is not None:
            plan.foreign.append(Left(str(path), why))
        else:
            steps.append(Step("data", str(path), host.name, partial(_remove_data, host, path.stem)))
    plan.parts.append(steps)


def _remove_data(host: HostPlace, volume: str) -> Outcome:
    why = host.remove_image(volume)
    return why is None, why or ""


def _strange(places: Places) -> Iterator[Path]:
    """Yield what lies among our folders and cannot be one: links, files, other names."""
    known = {place.run for place in places.hosts()}
    known |= {*places.databases(), *places.networks()}
    for folder in ("hosts", "databases", "networks"):
        place = places.run / folder
        if place.is_symlink():
            yield place
        elif place.is_dir():
            names = [path for path in place.iterdir() if not path.name.startswith(UNFINISHED)]
            yield from sorted(set(names) - known)


def _half_made(host: HostPlace) -> Iterator[Step]:
    """Detach what a killed `attach` left on a healthy host. The lock says that none runs now."""
    for name, record in host.volume_records().items():
        if record.state == "attaching":
            yield from _marked(host)
            remove = partial(_remove_half_made, host, name, record)
            yield Step("volume", name, host.name, remove, "half attached", holds=True)


def _marked(host: HostPlace) -> Iterator[Step]:
    """End what a killed command left running: its children, or mkfs in a killed `attach`."""
    if processes := marked_processes(host.run):
        what = ", ".join(str(process.pid) for process in processes)
        yield Step("process", what, host.name, lambda: (end_marked(host.run), ""))


def _remove_half_made(host: HostPlace, name: str, record: VolumeRecord) -> Outcome:
    outcomes: list[DisklabError] = []
    what = f"nothing provides the volume {name} of {host.name} any more"
    done = until(what, partial(_detach_half_made, host, name, outcomes), BUSY_SECONDS)
    remove_mount_point(record)
    return done, "" if done else str(outcomes[-1])


def _detach_half_made(host: HostPlace, name: str, errors: list[DisklabError]) -> bool:
    """Try once to take a volume away; returns whether it is gone."""
    try:
        with Control(host.socket) as control:
            for volume in control.volumes():
                if volume.name == name:
                    for mount in prove(Path(volume.device), host, name).mounts():
                        unmount(mount)
                    control.detach(name)
    except DisklabError as error:
        errors.append(error)
        return False
    host.forget_volume(name)
    host.unmark_images()
    return True


def _will_be_empty(host: HostPlace) -> bool:
    """Return whether a healthy host has no volumes but those that are half made."""
    records = host.volume_records()
    half_made = {name for name, record in records.items() if record.state == "attaching"}
    try:
        with Control(host.socket) as control:
            # A host that is silent is not waited for any longer than this.
            control.hello()
            return {volume.name for volume in control.volumes()} | records.keys() <= half_made
    except DisklabError:
        return False


def _host_steps(
    host: HostPlace,
    places: Places,
    process: EngineProcess | None,
    but: Collection[str] = (),
    *,
    keep: bool = True,
) -> Iterator[Step]:
    """Yield what there is to remove of a host, in the order in which one thing holds the other.

    Some volumes may be seen to by earlier steps. `keep`: their data stay.
    """
    devices = [one for one in our_devices(places) if one.host == host.name]
    devices = [one for one in devices if one.volume not in but]
    orderly = process is not None and _answers(host)
    if process is not None and not orderly:
        # Who waits for the dead disk is let go first: this aborts the FUSE connection.
        yield Step("process", str(process.pid), host.name, partial(_kill, host, process))
    for device in devices:
        for mount in reversed(device.mounts()):
            remove = partial(_unmount, device, mount.point, host, places, orderly=orderly)
            yield Step("mount", str(mount.point), host.name, remove)
    if process is not None and orderly:
        yield Step(
            "process", str(process.pid), host.name, partial(_shut_down, host, process, keep=keep)
        )
    for device in devices:
        remove = partial(_detach, device, host, places)
        yield Step("device", str(device.path), host.name, remove, holds=True)
    yield from _unproved(host, {str(device.path) for device in devices})
    if any(is_our_fuse_mount(mount, host) for mount in mounts()):
        remove = partial(_unmount_fuse, host)
        yield Step("fuse mount", str(host.mount), host.name, remove, holds=True)
    remove = partial(_remove_run_dir, host, settle=keep and not orderly)
    yield Step("run directory", str(host.run), host.name, remove)


def _answers(host: HostPlace) -> bool:
    """Return whether a host can be asked to go in the orderly way."""
    try:
        with Control(host.socket) as control:
            control.hello()
    except DisklabError:
        return False
    return True


def _kill(host: HostPlace, process: EngineProcess) -> Outcome:
    ended = process.end()
    abort(host)
    return ended, ""


def _shut_down(host: HostPlace, process: EngineProcess, *, keep: bool) -> Outcome:
    """End a healthy host in the orderly way; kill it when it will not."""
    try:
        with Control(host.socket) as control:
            note = "; ".join(control.shutdown(discard=not keep))
    except DisklabError as error:
        note = str(error)
    else:
        process.wait()
    ended = not process.is_ours() or process.end()
    return ended, note


def _now(device: OurDevice, places: Places) -> OurDevice | None:
    """Return a device as it is now: a ublk device has lost its disk with the process."""
    return next((one for one in our_devices(places) if one.path == device.path), None)


def _unmount(
    planned: OurDevice, point: Path, host: HostPlace, places: Places, *, orderly: bool
) -> Outcome:
    """Unmount a device of ours."""
    device = _now(planned, places)
    mount = None if device is None else mount_of(device, str(point))
    if mount is None:
        return True, ""
    if not orderly:
        abort(host)
    if until(f"nobody uses {point}", partial(force_unmount, mount), BUSY_SECONDS):
        return True, ""
    # Somebody still has files open; they get errors, and the mount goes with the last one.
    return force_unmount(mount, "-l"), "was in use: unmounted lazily"


def _detach(planned: OurDevice, host: HostPlace, places: Places) -> Outcome:
    device = _now(planned, places)
    if device is None:
        return True, ""
    if device.is_ublk:
        return _remove_ublk(device, host, places)
    abort(host)
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
        return False, str(error)
    gone = lambda: not _still_there(device, host)  # noqa: E731
    if not until(f"{device.path} is gone", gone, GONE_SECONDS):
        holder = elsewhere(device)
        where = f"it is mounted {holder}" if holder else "in use"
        return False, f"{where}: end what uses it, then clean again"
    return True, ""


def _remove_ublk(device: OurDevice, host: HostPlace, places: Places) -> Outcome:
    """Remove what stays of a dead ublk device.

    The engine reads the marks again, and takes all dead devices of the host at once.
    """
    note = ""
    try:
        remove_ublk(places.run, host.name)
    except DisklabError as error:
        note = str(error)
    gone = device.path not in {one.path for one in our_devices(places) if one.is_ublk}
    return gone, "" if gone else note


def _unproved(host: HostPlace, proved: Collection[str]) -> Iterator[Step]:
    """Yield devices of our notes whose proof is gone, such as after a lazy unmount by hand."""
    for volume, record in host.volume_records().items():
        if record.device is None or record.device in proved:
            continue
        if backing_file(Path(record.device)) == f"/{volume}":
            note = (
                f"its mount is gone, and with it the proof that it is ours; if it is "
                f"idle: losetup -d {record.device}"
            )
            remove = partial(lambda note: (False, note), note)
            yield Step("device", record.device, host.name, remove, note, holds=True, possible=False)


def _still_there(device: OurDevice, host: HostPlace) -> bool:
    try:
        prove(device.path, host, device.volume)
    except DisklabError:
        return False
    return True


def _unmount_fuse(host: HostPlace) -> Outcome:
    abort(host)
    abort(host, "-l")
    gone = not any(is_our_fuse_mount(mount, host) for mount in mounts())
    return gone, "" if gone else "still mounted"


def _remove_run_dir(host: HostPlace, *, settle: bool) -> Outcome:
    problems = list(_unwritten(host)) if settle else []
    for record in host.volume_records().values():
        remove_mount_point(record)
    left = host.remove()
    return not left, "; ".join([*left, *problems])


def _unwritten(host: HostPlace) -> Iterator[str]:
    """Yield what this machine's disk has not taken of the data of a dead host.

    Its engine would have been told; nobody else has these files open.
    """
    for path in sorted(host.data.glob("*.img")):
        if host.why_foreign_image(path.stem) is not None:
            continue
        # A process of its own, since a disk that hangs holds who waits for it.
        command = ["sync", "--data", str(path)]
        ran = programs.start(command, stderr=programs.PIPE, folder=None)
        outputs = ran.outputs(BUSY_SECONDS)
        if outputs is None:
            ran.kill()
            yield f"{path}: this machine's disk has not written all data within {BUSY_SECONDS:g} s"
            continue
        told = outputs[1].decode(errors="replace")
        if ran.returncode < 0 or (ran.returncode and not told):
            # Somebody ended it, which says nothing of the data.
            yield f"{path}: it is not known whether this machine's disk has written all data"
        elif ran.returncode:
            reason = f"this machine failed to write its data back ({told.strip()})"
            with suppress(OSError):
                os.setxattr(path, LOST, reason.encode())
            yield f"{path}: {reason}: flushed data may be lost"


def as_json(removed: list[Removed], kept: Kept) -> dict[str, object]:
    """Return the outcome as one object."""
    return {"removed": [asdict(one) for one in removed], **asdict(kept)}
