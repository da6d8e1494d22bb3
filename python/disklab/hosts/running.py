"""Volumes that are attached: found, listed, shown, changed, broken and detached."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from disklab.catalog.suggest import did_you_mean
from disklab.engine import CacheCounters, Control, ListedVolume, View
from disklab.engine.own_folder import UNFINISHED
from disklab.engine.process import EngineProcess
from disklab.errors import EngineError, MachineError, Problem, UserError
from disklab.hosts.filesystem import (
    Filesystem,
    abort,
    force_unmount,
    make_filesystem,
    mount_device,
    mount_of,
    set_read_ahead,
    unmount,
    users_of,
)
from disklab.hosts.ownership import (
    Mount,
    OurDevice,
    device_of,
    elsewhere,
    prove,
)
from disklab.hosts.places import HostPlace, Places, VolumeRecord, remove_mount_point
from disklab.hosts.requirements import require_machine
from disklab.waiting import until

# A mount point by its descriptor: what was looked at is what is mounted on.
#
# Making a file system takes minutes, in which whoever owns a folder above can put a link in the
# place of the mount point. The descriptor leads to the folder that was checked, or to none.

EVERYBODYS = stat.S_ISVTX | stat.S_IWOTH
FOR_MOUNTS = (Path("/mnt"), Path("/media"))
"""Folders of root in which a user who may call root's part can mount a disk."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class MountPoint:
    """A folder that is held open, or the one in which it is to be made."""

    path: Path
    _parent: int
    _folder: int | None
    _key: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def exists(self) -> bool:
        """Whether it was there when it was looked at, or has been made since."""
        return self._folder is not None

    def check_owner(self, caller: int, place: str) -> None:
        """Raise UserError unless it is this user's own, or in a folder of theirs, or for mounts.

        The folder above counts alone, not those above that: another one's tree can be bound there.
        """
        folders = [self._parent] if self._folder is None else [self._parent, self._folder]
        owners = [os.fstat(folder).st_uid for folder in folders]
        _refuse_others(self.path, owners, caller, place)

    @property
    def unfinished(self) -> Path:
        """Where it is made, before it has its name."""
        return self.path.with_name(UNFINISHED + self._key)

    def make(self, record: Callable[[os.stat_result], None]) -> None:
        """Make it, telling what it is before it has its name. Raises MachineError."""
        name = self.unfinished.name
        os.mkdir(name, dir_fd=self._parent)
        made = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        record(made)
        try:
            os.rename(name, self.path.name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            folder = os.open(self.path.name, FOLDER, dir_fd=self._parent)
        except OSError as error:
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._parent)
            raise MachineError(
                f"{self.path}: something has replaced it in the meantime ({error.strerror}); "
                "nothing is mounted"
            ) from error
        found = os.fstat(folder)
        if (found.st_dev, found.st_ino) != (made.st_dev, made.st_ino):
            os.close(folder)
            raise MachineError(f"{self.path}: another folder has replaced it; nothing is mounted")
        self._folder = folder

    def mount(self, device: OurDevice, kind: str) -> None:
        """Mount a device of ours. Raises MachineError when the folder has gone elsewhere."""
        assert self._folder is not None, "it was there, or has been made"
        if os.listdir(self._folder):
            raise MachineError(f"{self.path}: files have appeared in it; nothing is mounted")
        mount_device(device, self._folder, kind)
        made = device.mounts()
        if all(mount.point != self.path for mount in made):
            for mount in made:
                unmount(mount)
            raise MachineError(
                f"{self.path}: it was moved while {device.path} was mounted on it; that is undone"
            )


def refuse_others_folder(point: Path, caller: int, place: str) -> None:
    """Raise UserError as `MountPoint.check_owner` will, before anything else is told of a path."""
    owners = []
    for folder in (point, point.parent):
        with suppress(OSError, ValueError):
            owners.append(os.stat(folder).st_uid)
    with suppress(OSError, RuntimeError, ValueError):
        _refuse_others(point.resolve(), owners, caller, place)


def _refuse_others(path: Path, owners: Collection[int], caller: int, place: str) -> None:
    below = {top.resolve() for top in FOR_MOUNTS} & set(path.parents)
    if caller in owners or (below and not {*owners} - {0}):
        return
    rule = (
        "under sudo a disk is mounted at an empty folder of your own, in a folder of your own, "
        "or below /mnt or /media"
    )
    way_out = f"choose one of these, such as /mnt/{path.name}, or make one with mkdir"
    raise UserError(Problem(place, str(path), rule, way_out))


@contextmanager
def held(path: Path) -> Iterator[MountPoint]:
    """Hold a mount point, whose path has no links. Raises MachineError when it has one by now."""
    try:
        parent = os.open(path.parent, FOLDER)
    except OSError as error:
        raise MachineError(f"{path.parent}: it cannot be opened: {error.strerror}") from error
    point: MountPoint | None = None
    try:
        _check(path.parent, parent)
        point = MountPoint(path, parent, _folder_in(parent, path))
        yield point
    finally:
        os.close(parent)
        if point is not None and point._folder is not None:
            os.close(point._folder)


def _folder_in(parent: int, path: Path) -> int | None:
    try:
        folder = os.open(path.name, FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineError(f"{path}: it is no longer a folder: {error.strerror}") from error
    above, found = os.fstat(parent), os.fstat(folder)
    owners = {0, os.geteuid(), above.st_uid}
    # In a folder of everybody's, such as /tmp, another user's would be taken away at any time; in
    # one that everybody writes to and that is not sticky, any folder would.
    if above.st_mode & EVERYBODYS and found.st_uid not in owners | _caller():
        os.close(folder)
        raise MachineError(f"{path}: it belongs to uid {found.st_uid}; use a folder of your own")
    return folder


def _caller() -> set[int]:
    """Return who called sudo, whose own folders are as good as root's."""
    user = os.environ.get("SUDO_UID", "")
    return {int(user)} if user.isascii() and user.isdigit() else set()


def _check(path: Path, descriptor: int) -> None:
    """Raise MachineError when a link led elsewhere: the kernel says where the open folder is."""
    where = os.readlink(f"/proc/self/fd/{descriptor}")
    if where != str(path):
        raise MachineError(f"{path}: it now leads to {where}; nothing is mounted")


# A killed process leaves its files to the kernel, which closes them within milliseconds.
LOSE_SECONDS = 10.0
# Namespaces of killed programs are taken apart by the kernel when it has time for that: on a
# machine with a load of 90 they were still there after 10 s.
LET_GO_SECONDS = 60.0
# A host that starts has a copy of all mounts until it has a root of its own, 50 ms later; a test
# beside seven others met one at load 10 (2026-11-27).
COPIED_SECONDS = 3.0


@dataclass(frozen=True)
class Listed:
    """A volume in a list, whether its host still answers or not."""

    host: str
    name: str
    device: str
    size_bytes: int | None
    caching: str | None
    disks: str
    vm: str | None
    mount_point: str | None
    state: str
    """`attached`, `attaching` (left half-made), `failed: ` and why, or `host does not answer`."""


@dataclass(frozen=True)
class Target:
    """A volume that a user named."""

    host: HostPlace
    volume: str

    def record(self) -> VolumeRecord:
        """Return what was noted of it when it was attached. Raises MachineError."""
        record = self.host.volume_record(self.volume)
        if record is None:
            raise MachineError(f"volume {self.volume!r} is not attached; run `disklab clean`")
        return record


def is_running(host: HostPlace) -> bool:
    """Return whether the engine of a host runs. Raises EngineError when it does not answer."""
    if EngineProcess.of(host.run) is None:
        return False
    with Control(host.socket) as control:
        control.hello()
    return True


def stop_host(host: HostPlace) -> None:
    """End a host that has no volumes in use, and remove its run directory."""
    process = EngineProcess.of(host.run)
    with Control(host.socket) as control:
        control.shutdown()
    if process is not None and not process.wait():
        raise EngineError(f"host {host.name!r} does not end; see {host.log}, run `disklab clean`")
    # No device is left on it; somebody only looks into the directory.
    abort(host, "-l")
    host.remove()


def find(name: str, host: str | None, places: Places, place: str = "VOLUME") -> Target:
    """Return the volume that a name or device path means. UserError: none, or several."""
    if name.startswith("/"):
        device = device_of(Path(name), places, place)
        return Target(places.host(device.host), device.volume)
    known: list[Target] = []
    for one in places.hosts():
        if host is None or one.name == host:
            known += [Target(one, volume) for volume in one.volume_records()]
    same = [target for target in known if target.volume == name]
    if len(same) == 1:
        return same[0]
    if same:
        rule = f"the hosts {', '.join(target.host.name for target in same)} have such a volume"
        raise UserError(Problem(place, repr(name), rule, "say which with --host"))
    rule = "no volume of this name is attached" + (f" to host {host!r}" if host else "")
    names = [target.volume for target in known]
    otherwise = f"attached are {', '.join(names)}" if names else "`disklab disk attach` creates one"
    raise UserError(Problem(place, repr(name), rule, did_you_mean(name, names, otherwise)))


@contextmanager
def connected(target: Target) -> Iterator[Control]:
    """Yield the control connection of a volume's host."""
    require_machine()
    with Control(target.host.socket) as control:
        yield control


def list_volumes(places: Places, host: str | None = None) -> list[Listed]:
    """Return every volume of every host."""
    found = []
    for one in places.hosts():
        if host is not None and one.name != host:
            continue
        answers = _volumes(one)
        host_record = one.host_record()
        vm = host_record.vm if host_record else None
        for name, record in one.volume_records().items():
            live = None if answers is None else answers.get(name)
            state = record.state if live is not None else "not there: run `disklab clean`"
            if live is not None and live.failure is not None:
                state = f"failed: {live.failure}"
            if answers is None:
                everything = "" if EngineProcess.of(one.run) is None else " --all"
                state = f"host does not answer: run `disklab clean{everything}`"
            found.append(
                Listed(
                    host=one.name,
                    name=name,
                    device=live.device if live else record.device or "",
                    size_bytes=live.size_bytes if live else None,
                    caching=live.caching if live else None,
                    disks=record.disks,
                    vm=vm,
                    mount_point=record.mount_point,
                    state=state,
                )
            )
    return found


def _volumes(host: HostPlace) -> dict[str, ListedVolume] | None:
    """Return what a host says it has; None: it does not answer."""
    try:
        with Control(host.socket) as control:
            return {volume.name: volume for volume in control.volumes()}
    except EngineError:
        return None


def show(target: Target) -> View:
    """Return counters, profile and faults of a volume."""
    with connected(target) as control:
        return control.show(target.volume)


def change(target: Target, changed: dict[str, Any], read_ahead: int | None) -> None:
    """Change a running volume."""
    with connected(target) as control:
        if changed:
            control.change(target.volume, changed)
    if read_ahead is not None:
        set_read_ahead(our_device(target), read_ahead)


def our_device(target: Target) -> OurDevice:
    """Return the device of a volume, proved to be ours."""
    record = target.record()
    if record.device is None:
        raise MachineError(f"volume {target.volume!r} has no device yet; run `disklab clean`")
    return prove(Path(record.device), target.host, target.volume)


def flush_ms(target: Target) -> float:
    """Return how long FLUSHes of a volume took since it was attached, in this machine's time."""
    words = (our_device(target).sysfs() / "stat").read_text(encoding="ascii").split()
    # The last of the seventeen fields that Linux 5.5 and later have (Documentation/block/stat.rst).
    return float(words[16]) if len(words) > 16 else 0.0


def fail(target: Target, fault: dict[str, Any]) -> None:
    """Break or mend something."""
    with connected(target) as control:
        control.fail(target.volume, fault)


def lose(host: HostPlace, volumes: Iterable[str]) -> None:
    """Let a host fail, and mount its volumes again on the next one: local ones are made anew.

    Raises MachineError when somebody still uses a volume after `LOSE_SECONDS`.
    """
    targets = [Target(host, name) for name in volumes]
    if not targets:
        return
    fail(targets[0], {"kind": "host-failure"})
    for target in targets:
        mounted = mount_of(our_device(target), target.record().mount_point)
        if mounted is not None:
            _unmount_dead(mounted)
    fail(targets[0], {"kind": "recover"})
    for target in targets:
        record = target.record()
        if record.mount_point is None or record.filesystem is None:
            continue
        with held(Path(record.mount_point)) as point:
            _await_free(our_device(target).path)
            if record.local_disk is not None:
                kind: Filesystem = "ext4" if record.filesystem == "ext4" else "xfs"
                make_filesystem(our_device(target), kind, target.host.run, reformat=True)
            point.mount(our_device(target), record.filesystem)


def _await_free(device: Path) -> None:
    """Return when no namespace has it mounted; those of killed programs go a moment later."""
    if not until(f"nobody has {device} mounted", lambda: not _is_held(device), LET_GO_SECONDS):
        rule = "another mount namespace still has it mounted (`grep -l` it in /proc/*/mounts)"
        raise MachineError(f"{device}: {rule}; end the programs there")


def _await_copies(device: Path) -> None:
    """Give namespaces that have just begun the time to let go; what stays refuses the device."""
    until(f"nobody has {device} mounted", lambda: not _is_held(device), COPIED_SECONDS)


def _is_held(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _unmount_dead(mount: Mount) -> None:
    if not until(f"nobody uses {mount.point}", lambda: force_unmount(mount), LOSE_SECONDS):
        users = ", ".join(users_of(mount.point)) or "somebody"
        raise MachineError(f"{mount.point}: {users} uses it")


def warm_cache(target: Target, ranges: Iterable[tuple[int, int]] | None = None) -> CacheCounters:
    """Fill the host cache with a volume's data, or with some ranges (offset, length) of it."""
    with connected(target) as control:
        return control.warm(target.volume, ranges)


def drop_cache(target: Target) -> CacheCounters:
    """Empty a volume's part of the host cache, but for dirty data."""
    with connected(target) as control:
        return control.drop_cache(target.volume)


def detach(target: Target, places: Places, *, delete_data: bool = False) -> list[str]:
    """Unmount what we mounted and take the device away. The last volume ends its host.

    Returns the places of data that stay. MachineError: it is detached, and this machine's disk has
    not taken all of them.
    """
    require_machine()
    host, name = target.host, target.volume
    with places.locked():
        device, record = our_device(target), target.record()
        foreign = [m for m in device.mounts() if str(m.point) != record.mount_point]
        if foreign:
            rule = f"{device.path} is mounted on {foreign[0].point}, and not by disklab"
            way_out = f"unmount it first: umount {foreign[0].point}"
            raise UserError(Problem("VOLUME", repr(name), rule, way_out))
        mounted = mount_of(device, record.mount_point)
        # Connected before anything is unmounted: a dead host is for `disklab clean`.
        with Control(host.socket) as control:
            if mounted is not None:
                unmount(mounted)
                _await_copies(device.path)
            try:
                prove(device.path, host, name)
                problem = control.detach(name, delete_data=delete_data)
            except UserError as error:
                # Refused: somebody has the device open. Everything is to be as it was.
                holder = elsewhere(device) if "is mounted" in str(error) else None
                if mounted is not None:
                    with held(mounted.point) as point:
                        point.mount(prove(device.path, host, name), mounted.kind)
                if holder is None:
                    raise
                rule = f"{device.path} is still mounted {holder}"
                way_out = "end that process, or unmount it from within: nsenter -t PID -m umount"
                raise UserError(Problem("VOLUME", repr(name), rule, way_out)) from error
            last = not control.volumes()
        remove_mount_point(record)
        host.forget_volume(name)
        host.unmark_images()
        if last:
            stop_host(host)
        if problem is not None:
            raise MachineError(f"{name} is detached, but {problem}")
        file = host.data_file(name)
        return [str(file)] if file.exists() else []
