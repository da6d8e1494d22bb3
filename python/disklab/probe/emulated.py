"""Emulated disks under the probe: made for it and removed again, or found under a path."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from disklab.catalog import HostRequest, VolumeRequest, find_vm, host_profile, load_catalog
from disklab.catalog.resolve import Places as Words
from disklab.engine import Control, Envelope
from disklab.engine.locks import own_name
from disklab.errors import Problem, UserError
from disklab.hosts import attach as attaching
from disklab.hosts import running
from disklab.hosts.attach import AttachRequest
from disklab.hosts.control_group import UNLIMITED_BYTES, ControlGroup, GroupRoot
from disklab.hosts.filesystem import Filesystem
from disklab.hosts.left_databases import record_group, remove_database
from disklab.hosts.ownership import our_devices
from disklab.hosts.places import HostRecord, Places
from disklab.hosts.running import Target
from disklab.interrupts import held_back
from disklab.probe import fio
from disklab.probe.cells import GIB, MIB, Plan
from disklab.probe.known import Disk, placed, resolved
from disklab.probe.promise import Placement
from disklab.probe.run import (
    CellResult,
    Known,
    Listener,
    Ours,
    OurSubject,
    Subject,
    probe,
    runnable,
)
from disklab.probe.target import SPARE_BYTES, Opened, open_region, opened, region_of

VOLUME = "probe"
# Only the progress bar uses it: the engine measures the machine at start.
ATTACH_S = 5.0
# A file system of its own beside the region: the journals of ext4 and xfs at these sizes, their
# inode tables, and the blocks that are reserved for root.
FILESYSTEM_SPARE_BYTES = GIB


def owner(at: Opened) -> Target | None:
    """Return our volume that it is or lies on, proved by the loop device's backing file."""
    number = at.status.st_rdev if at.is_device else at.status.st_dev
    places = Places.usual()
    for device in our_devices(places):
        if device.path.stat().st_rdev == number:
            return Target(places.host(device.host), device.volume)
    return None


def known_of(target: Target) -> Ours:
    """Return what is known of an emulated volume: its profile, counters and envelope."""
    record = target.host.host_record() or HostRecord()
    catalog = load_catalog()
    request = HostRequest(record.vm, record.host_cache_bytes, Fraction(record.scale))
    host = host_profile(catalog, find_vm(catalog, record.vm, Words()), request)
    with Control(target.host.socket) as control:
        envelope = control.hello().envelope
    view = running.show(target)

    def dilate(factor: int) -> None:
        with Control(target.host.socket) as control:
            control.dilate(factor)

    def set_credits(share: float) -> None:
        with Control(target.host.socket) as control:
            control.set_credits(share)

    return Ours(
        Placement(host, view.profile),
        lambda: running.show(target),
        envelope,
        dilate,
        lambda: running.flush_ms(target),
        set_credits,
    )


@contextmanager
def made_for_probe(
    disk: Disk, name: str, plan: Plan, filesystem: Filesystem | None = None
) -> Iterator[OurSubject]:
    """Yield an emulated disk that exists as long as the block; with `filesystem`, a file on it.

    It lives on a host of its own, so that nothing else pays from its VM's budgets.
    """
    places = Places.usual()
    check_space(places, plan)
    host = own_name("probe")
    with ExitStack() as undo:
        mount_point, size_bytes = None, None
        if filesystem is not None:
            mount_point = Path(tempfile.mkdtemp(prefix="disklab-probe-"))
            undo.callback(_forget, mount_point)
            size_bytes = shortened(disk, plan)
        made = attached(disk, host, size_bytes, filesystem, mount_point)
        target, path = undo.enter_context(made)
        known = known_of(target)
        if filesystem is not None:
            known = apart(known, places, host, undo)
        with open_region(path, plan, ours=True, destroy_data=False) as region:
            yield OurSubject(name, region, known)


def _forget(mount_point: Path) -> None:
    """Remove a mount point; while it is in use, why it is so has been said."""
    with suppress(OSError):
        mount_point.rmdir()


@contextmanager
def attached(
    disk: Disk,
    host: str,
    size_bytes: int | None,
    filesystem: Filesystem | None = None,
    mount_point: Path | None = None,
) -> Iterator[tuple[Target, Path]]:
    """Yield an emulated disk as long as the block, and where it is: mount point, else device.

    Its backing file is sparse: only what is written takes room.
    """
    places = Places.usual()
    request = AttachRequest(
        volume=VolumeRequest(
            disks=disk.disks,
            name=VOLUME,
            caching=disk.caching,
            size_bytes=size_bytes,
            latency=disk.latency,
        ),
        host=host,
        vm=disk.vm,
        host_cache_bytes=disk.host_cache_bytes,
        filesystem=filesystem,
        mount_point=mount_point,
    )
    made = attaching.attach(load_catalog(), request, places)
    target = Target(places.host(host), VOLUME)
    with ExitStack() as undo:
        undo.callback(remove, target, places)
        yield target, mount_point or Path(made.device)


def apart(known: Ours, places: Places, host: str, undo: ExitStack) -> Ours:
    """Let fio use a disk from a control group of its own.

    The journal of a file system sends FLUSHes, and a loop device serves each group by a worker of
    its own: fio's reads do not wait for them then, as they would not on a real disk. Its writes do:
    FUSE holds the file's lock meanwhile (fuse_fsync). The result says so.
    """
    root = GroupRoot.of_machine()
    if root is None:
        return known
    group = ControlGroup.make(host, UNLIMITED_BYTES, root)
    folder = places.database(host)
    undo.callback(remove_database, folder)
    record_group(folder, group)
    return replace(known, inside=group.inside)


def shortened(disk: Disk, plan: Plan) -> int | None:
    """Return the size of a device that just holds the region and a file system.

    mkfs writes its structures at the speed of the emulated disk, in proportion to the size.
    """
    wanted = plan.size_bytes + FILESYSTEM_SPARE_BYTES
    return wanted if resolved(disk).volume.size_bytes > wanted else None


def remove(target: Target, places: Places) -> None:
    """Detach and delete; a second Ctrl-C waits until that is done."""
    with held_back():
        running.detach(target, places, delete_data=True)


def check_space(places: Places, plan: Plan) -> None:
    """Refuse a probe whose backing file would not fit."""
    folder, free = places.room()
    needed = plan.size_bytes + SPARE_BYTES
    if free < needed:
        rule = f"{folder} has {free // MIB} MiB free, the emulated disk needs {needed // MIB} MiB"
        way_out = "give a smaller --size, or set DISKLAB_DATA_DIR"
        raise UserError(Problem("--size", f"{plan.size_bytes // MIB} MiB", rule, way_out))


# One probe of one place: by this process, or by one that has the rights for it.


@dataclass(frozen=True)
class Emulated:
    """A disk that is made for the probe, and removed."""

    disk: Disk
    name: str
    """What the results call it."""
    plan: Plan
    filesystem: Filesystem | None = None
    """The probe uses a file on it; None: the device."""


@dataclass(frozen=True)
class At:
    """A directory, a file or a device that is there."""

    path: Path
    plan: Plan
    promised: Disk | None = None
    """What it should be, where it is no disk of ours."""
    destroy_data: bool = False


@dataclass(frozen=True)
class Probed:
    """What was measured."""

    results: tuple[CellResult, ...]
    envelope: Envelope | None = None
    """What this machine can do, of an emulated disk."""


Wanted = Emulated | At
Look = Callable[[Wanted, Listener], Probed]


def look_here(wanted: Wanted, tell: Listener) -> Probed:
    """Probe in this process. Raises UserError for what cannot be probed, and MachineError."""
    plan = wanted.plan
    program = fio.find_fio(plan.engine)
    fio.check_memory(plan)
    if isinstance(wanted, Emulated):
        with made_for_probe(wanted.disk, wanted.name, plan, wanted.filesystem) as subject:
            results = probe(program, subject, plan, tell)
            return Probed(results, subject.known.envelope)
    with opened(wanted.path) as at:
        target, promised = owner(at), wanted.promised
        known = Known(placed(promised)) if promised else None
        if target is not None:
            known = known_of(target)  # what the emulator does says more than what it should be
        ours = target is not None
        with region_of(at, plan, ours=ours, destroy_data=wanted.destroy_data) as region:
            there = Subject(region.shown, region, known)
            check_cells_remain(plan, there)
            return Probed(probe(program, there, plan, tell))


def check_cells_remain(plan: Plan, subject: Subject) -> None:
    """Refuse a plan of writes alone where nothing may be written."""
    if not runnable(plan, subject.region).cells:
        rule = (
            "disklab never writes to a device that it did not create, and the plan has only writes"
        )
        way_out = "choose --rw randread, or name a directory where the probe makes its own file"
        raise UserError(Problem("--rw", subject.region.shown, rule, way_out))
