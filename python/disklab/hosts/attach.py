"""Attaching: from disks in words to a block device with their manners."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from disklab.catalog import AttachedDisks, Catalog, HostRequest, Resolution, VolumeRequest, resolve
from disklab.catalog.quantity import about_bytes, format_bytes
from disklab.catalog.resolve import joined
from disklab.engine import AttachedVolume, Control, EngineProcess, start_host
from disklab.engine.own_folder import boot_id
from disklab.engine.process import unseen
from disklab.errors import DisklabError, MachineError, Problem, UserError, refuse
from disklab.hosts.cleaning import remove_dead
from disklab.hosts.doctor import shortfalls
from disklab.hosts.filesystem import (
    LEAST_BYTES,
    Filesystem,
    check_mount_point,
    content,
    make_filesystem,
    mount_of,
    read_ahead_kib,
    resolved_mount_point,
    set_read_ahead,
    unmount,
)
from disklab.hosts.ownership import diskseq, mounts, prove
from disklab.hosts.places import (
    HostPlace,
    HostRecord,
    Owner,
    Places,
    VolumeRecord,
    check_name,
    remove_mount_point,
)
from disklab.hosts.requirements import require_machine, required_program
from disklab.hosts.running import (
    MountPoint,
    held,
    is_running,
    refuse_others_folder,
    stop_host,
)
from disklab.interrupts import ended_once, held_back

DEFAULT_HOST = "default"
DEFAULT_FILESYSTEM: Filesystem = "xfs"

Progress = Callable[[str], None]
"""Told what is being done, in a few words."""


@dataclass(frozen=True)
class AttachRequest:
    """What to attach, where, and what to put on it."""

    volume: VolumeRequest
    host: str = DEFAULT_HOST
    vm: str | None = None
    """None: that of the running host."""
    host_cache_bytes: int | None = None
    scale: Fraction | None = None
    filesystem: Filesystem | None = None
    mount_point: Path | None = None
    read_ahead_kib: int | None = None
    memory: bool = False
    preallocate: bool = False
    reformat: bool = False
    calibrate: bool = True
    transport: str = "auto"
    """How requests reach the engine: as `disklab-engine emulate --transport`."""
    owner: Owner | None = None
    """The process that the host is to end with; None: it stays until it is detached."""


@dataclass(frozen=True)
class Attached:
    """What was made."""

    host: str
    name: str
    device: str
    size_bytes: int
    disks: str
    vm: str | None
    caching: str
    filesystem: str | None
    mount_point: str | None
    read_ahead_kib: int
    backing_file: str | None
    reused: bool
    warnings: list[str] = field(default_factory=list)


def attach(
    catalog: Catalog,
    request: AttachRequest,
    places: Places,
    progress: Progress = lambda _: None,
    caller: int | None = None,
) -> Attached:
    """Make a block device that behaves like these disks.

    `caller` is the user for whom root mounts it; None: whoever asks may mount anywhere.

    Raises UserError before anything has changed; when a later step fails, what was made is
    taken away again.
    """
    check_name(request.host, "--host")
    check_name(request.volume.name, "--name")
    host = places.host(request.host)
    # What can be checked without the lock is: a wrong name need not wait.
    _resolved(catalog, request, host)
    require_machine()
    with ended_once(), places.locked(), ExitStack() as undo:
        running = is_running(host)
        resolution, host_request = _resolved(catalog, request, host)
        _check_taken(host, request.volume.name, running)
        found = _check_data(host, request, resolution)
        kind = _filesystem(request, found, resolution)
        space = _check_space(places, request, resolution)
        held_point: MountPoint | None = None
        if request.mount_point is not None:
            if caller is not None:
                refuse_others_folder(request.mount_point, caller, "--mount")
            point = resolved_mount_point(request.mount_point, "--mount")
            check_mount_point(point, "--mount")
            request = replace(request, mount_point=point)
            held_point = undo.enter_context(held(point))
            if caller is not None:
                held_point.check_owner(caller, "--mount")
        warnings = [*resolution.warnings, *space]
        if not running:
            progress("starting the emulated host, measuring this machine")
            warnings += _start(host, places, resolution, host_request, request)
        elif request.transport != "auto":
            _check_transport(host, request.transport)
        step = _Step(host, request, resolution, kind, found is None, progress, held_point)
        try:
            return step.run(warnings)
        except BaseException:
            if not running:
                with suppress(DisklabError):
                    stop_host(host)
            raise


def _start(
    host: HostPlace,
    places: Places,
    resolution: Resolution,
    host_request: HostRequest,
    request: AttachRequest,
) -> list[str]:
    is_made = False
    try:
        # A signal in between would leave folders that nobody takes away.
        with held_back():
            host.make()
            _check_leftovers(host)
            is_made = True
        profile = resolution.host.model_copy(update={"volumes": []})
        record = HostRecord(
            vm=host_request.vm,
            host_cache_bytes=host_request.host_cache_bytes,
            scale=str(host_request.scale),
            owner=None if request.owner is None else Owner.keeping(host.root, "hosts", host.name),
        )
        # Before the start: a host that runs without it could not be told from one without a VM.
        host.record_host(record)
        _, warnings = start_host(
            profile,
            host.name,
            places.run,
            places.data,
            calibrate=request.calibrate,
            transport=request.transport,
        )
    except BaseException:
        if is_made:
            remove_dead(host, places)
        raise
    host.record_host(
        record.model_copy(update={"fuse_device": _fuse_device(host), "boot": boot_id()})
    )
    return warnings


def _fuse_device(host: HostPlace) -> str | None:
    """Return the number of the file system that a host has just mounted; None: it needs none."""
    return next((one.device for one in reversed(mounts()) if one.point == host.mount), None)


def _identity(made: AttachedVolume) -> dict[str, int | None]:
    """Return what tells this use of a device from every other one, for the volume's record."""
    inode = None if made.file is None else os.stat(made.file).st_ino
    return {"inode": inode, "diskseq": diskseq(Path(made.device))}


def _check_transport(host: HostPlace, asked: str) -> None:
    """Refuse another transport than that of the running host: all its volumes share one."""
    with Control(host.socket) as control:
        has = control.hello().transport
    if asked != has:
        rule = f"host {host.name!r} is already running, over {has}"
        way_out = "leave the option out, or name another host with --host"
        raise UserError(Problem("--transport", asked, rule, way_out))


def _check_leftovers(host: HostPlace) -> None:
    """Refuse the name of a dead host: its devices would be mistaken for new ones."""
    if (why := unseen(host.run)) is not None:
        way_out = "name another host with --host"
        raise UserError(Problem("--host", repr(host.name), why, way_out))
    if host.pid.exists() or host.volume_records():
        rule = "a host of this name died and left something behind"
        raise UserError(Problem("--host", repr(host.name), rule, "run `disklab clean` first"))


def _resolved(
    catalog: Catalog, request: AttachRequest, host: HostPlace
) -> tuple[Resolution, HostRequest]:
    """Resolve against the host as it runs, or as it is asked for."""
    record = None if EngineProcess.of(host.run) is None else host.host_record()
    asked = HostRequest(request.vm, request.host_cache_bytes, request.scale or Fraction(1))
    if record is not None:
        runs = HostRequest(record.vm, record.host_cache_bytes, Fraction(record.scale))
        _check_same(request, runs, host.name)
        asked = runs
    made = resolve(catalog, asked, request.volume, _attached_disks(host))
    return joined(made, asked.scale), asked


def _check_same(request: AttachRequest, runs: HostRequest, name: str) -> None:
    """Refuse what contradicts the running host."""
    problems = []
    for place, asked, has in (
        ("--vm", request.vm, runs.vm),
        ("--host-cache-size", request.host_cache_bytes, runs.host_cache_bytes),
        ("--scale", request.scale, runs.scale),
    ):
        if asked is not None and asked != has:
            shown = "none" if has is None else str(has)
            rule = f"host {name!r} is already running, with {place} {shown}"
            way_out = "leave the option out, or name another host with --host"
            problems.append(Problem(place, str(asked), rule, way_out))
    refuse(problems)


def _attached_disks(host: HostPlace) -> AttachedDisks:
    """Count what the host has already."""
    counts = {"local": 0, "nvme": 0, "ephemeral-os": 0, None: 0}
    for record in host.volume_records().values():
        counts[record.local_disk] = counts.get(record.local_disk, 0) + record.count
    return AttachedDisks(
        data_disks=counts[None],
        nvme_disks=counts["nvme"],
        temp_disks=counts["local"],
        ephemeral_os_disks=counts["ephemeral-os"],
    )


def _check_taken(host: HostPlace, name: str, running: bool) -> None:
    taken = host.volume_record(name) is not None
    if running and not taken:
        with Control(host.socket) as control:
            taken = any(volume.name == name for volume in control.volumes())
    if taken:
        rule = f"a volume of this name is attached to host {host.name!r} already"
        way_out = f"choose another --name, or first run `disklab disk detach {name}`"
        raise UserError(Problem("--name", repr(name), rule, way_out))


def _check_data(host: HostPlace, request: AttachRequest, resolution: Resolution) -> str | None:
    """Return what the data of an earlier attach hold; None: there are none, or they are blank."""
    file = host.data_file(request.volume.name)
    if request.memory or not file.exists():
        return None
    if resolution.volume.disks[0].medium != "remote":
        # The engine keeps data of network disks only: those of a host's own disks go with it.
        if file.stat().st_size > 0 and host.why_foreign_image(request.volume.name):
            rule = "disklab did not create this file, and a VM's own disk starts empty"
            way_out = "choose another --name, or move the file away"
            raise UserError(Problem("--name", str(file), rule, way_out))
        return None
    size = file.stat().st_size
    if size > resolution.volume.size_bytes:
        rule = f"{file} holds {format_bytes(size)} of an earlier attach, and a disk cannot shrink"
        way_out = "attach at least that size, choose another --name, or remove the file"
        value = format_bytes(resolution.volume.size_bytes)
        raise UserError(Problem("--size", value, rule, way_out))
    return content(file)


def _filesystem(request: AttachRequest, found: str | None, resolution: Resolution) -> str | None:
    """Return which file system the volume will have; None: none was asked for."""
    wanted = request.filesystem
    if request.reformat and wanted is None and request.mount_point is None:
        rule = "only a file system can be recreated"
        raise UserError(Problem("--reformat", "given", rule, "add --filesystem xfs or ext4"))
    if found is not None and not request.reformat:
        if wanted is not None and found != wanted:
            rule = f"volume {request.volume.name!r} holds {found} from an earlier attach"
            way_out = (
                "add --reformat to delete it, leave --filesystem out, or choose another --name"
            )
            raise UserError(Problem("--filesystem", wanted, rule, way_out))
        return found if wanted or request.mount_point else None
    if wanted is None and request.mount_point is None:
        return None
    kind = wanted or DEFAULT_FILESYSTEM
    required_program(f"mkfs.{kind}", "--filesystem")
    if resolution.volume.size_bytes < LEAST_BYTES[kind]:
        rule = f"{kind} needs at least {format_bytes(LEAST_BYTES[kind])}"
        value = f"{kind} on {format_bytes(resolution.volume.size_bytes)}"
        raise UserError(Problem("--filesystem", value, rule, "choose ext4 or a larger --size"))
    return kind


def _check_space(places: Places, request: AttachRequest, resolution: Resolution) -> list[str]:
    """Refuse to take space that is not there; warn that a sparse file may outgrow it."""
    folder, free = places.room()
    size = resolution.volume.size_bytes
    if request.memory or size <= free:
        return []
    if not request.preallocate:
        has = f"{folder} has {about_bytes(free)} free"
        return [f"{has}: writing more than that to the disk fails; --size cuts it"]
    rule = f"{folder} has {format_bytes(free)} free"
    way_out = "leave --preallocate out, choose a smaller --size, or set DISKLAB_DATA_DIR"
    raise UserError(Problem("--preallocate", format_bytes(size), rule, way_out))


@dataclass(frozen=True)
class _Step:
    """The part of an attach that changes the machine, and undoes it when a step fails."""

    host: HostPlace
    request: AttachRequest
    resolution: Resolution
    kind: str | None
    blank: bool
    progress: Progress
    point: MountPoint | None
    """Where it is mounted, held open since it was looked at; None: nowhere."""

    def run(self, warnings: list[str]) -> Attached:
        name, host = self.request.volume.name, self.host
        expression = self.resolution.expression
        record = VolumeRecord(
            disks=str(expression),
            medium=self.resolution.volume.disks[0].medium,
            count=expression.count,
            local_disk=expression.name if expression.is_local else None,
            filesystem=self.kind,
            mount_point=None if self.request.mount_point is None else str(self.request.mount_point),
            made_mount_point=False,
        )
        host.record_volume(name, record)
        new_data = not host.data_file(name).exists()
        # Data that disklab did not make are used, and never marked as ours.
        marks = not self.request.memory and (new_data or host.why_foreign_image(name) is None)
        if marks:
            host.mark_image(name)
        made: AttachedVolume | None = None
        try:
            # A signal before what was made is on record would leave what nobody proves to be ours.
            with held_back():
                with Control(host.socket) as control:
                    envelope = control.hello().envelope
                    made = control.attach(
                        self.resolution.volume,
                        memory=self.request.memory,
                        preallocate=self.request.preallocate,
                    )
                if marks:
                    host.mark_image(name)
                update = {"device": made.device, "backing_file": made.backing_file}
                record = record.model_copy(update={**update, **_identity(made)})
                host.record_volume(name, record)
            if envelope is not None:
                short = shortfalls(self.resolution.host, self.resolution.volume, envelope)
                warnings += [
                    f"this machine is slower than the described disk: {one}" for one in short
                ]
            record = self._prepare(made.device, record)
            if self.request.read_ahead_kib is not None:
                # After mkfs and mount: a change of the block size resets it.
                device = prove(Path(made.device), host, name)
                set_read_ahead(device, self.request.read_ahead_kib)
            host.record_volume(name, record.model_copy(update={"state": "attached"}))
        except BaseException:
            self._undo(made, record, delete_data=new_data)
            raise
        device = prove(Path(made.device), host, name)
        return Attached(
            host=host.name,
            name=name,
            device=made.device,
            size_bytes=self.resolution.volume.size_bytes,
            disks=str(expression),
            vm=self.resolution.vm.name if self.resolution.vm else None,
            caching=self.resolution.volume.caching,
            filesystem=self.kind,
            mount_point=record.mount_point,
            read_ahead_kib=read_ahead_kib(device),
            backing_file=made.backing_file,
            reused=made.reused,
            warnings=warnings,
        )

    def _prepare(self, device_name: str, record: VolumeRecord) -> VolumeRecord:
        """Make the file system and mount it."""
        name, path = self.request.volume.name, Path(device_name)
        if self.kind is None:
            return record
        if self.blank or self.request.reformat:
            self.progress(f"making {self.kind} on {path} at the speed of the disk")
            device = prove(path, self.host, name)
            if not self.request.reformat and (found := content(path)) is not None:
                raise MachineError(
                    f"{path}: it should be blank but holds {found}; nothing was created"
                )
            kind: Filesystem = "ext4" if self.kind == "ext4" else "xfs"
            make_filesystem(device, kind, self.host.run, reformat=self.request.reformat)
        if self.point is not None:
            if not self.point.exists:
                record = self._make_mount_point(self.point, record)
            self.point.mount(prove(path, self.host, name), self.kind)
        return record

    def _make_mount_point(self, point: MountPoint, record: VolumeRecord) -> VolumeRecord:
        """Make the directory; at each moment the record proves what is there of it."""
        name = self.request.volume.name
        unfinished = record.model_copy(update={"unfinished_mount_point": str(point.unfinished)})
        self.host.record_volume(name, unfinished)

        def finished(made: os.stat_result) -> None:
            nonlocal unfinished
            update = {"made_device": made.st_dev, "made_inode": made.st_ino}
            unfinished = unfinished.model_copy(update={"made_mount_point": True, **update})
            self.host.record_volume(name, unfinished)

        point.make(finished)
        return unfinished

    def _undo(
        self, made: AttachedVolume | None, record: VolumeRecord, *, delete_data: bool
    ) -> None:
        """Take away what this attach made. What cannot be is left to `disklab clean`."""
        name = self.request.volume.name
        with suppress(DisklabError, OSError):
            if made is not None:
                device = prove(Path(made.device), self.host, name)
                if (mount := mount_of(device, record.mount_point)) is not None:
                    unmount(mount)
                with Control(self.host.socket) as control:
                    control.detach(name, delete_data=delete_data)
            latest = self.host.volume_record(name) or record
            remove_mount_point(latest)
            self.host.forget_volume(name)
            self.host.unmark_images()
