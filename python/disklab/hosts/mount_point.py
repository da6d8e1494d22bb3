"""A mount point by its descriptor: what was looked at is what is mounted on.

Making a file system takes minutes, in which whoever owns a folder above can put a link in the
place of the mount point. The descriptor leads to the folder that was checked, or to none.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from disklab.engine.own_folder import UNFINISHED
from disklab.errors import MachineError
from disklab.hosts.filesystem import mount_device, unmount
from disklab.hosts.ownership import OurDevice

EVERYBODYS = stat.S_ISVTX | stat.S_IWOTH
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
                f"{self.path}: something came in its place meanwhile ({error.strerror}); "
                "nothing is mounted"
            ) from error
        found = os.fstat(folder)
        if (found.st_dev, found.st_ino) != (made.st_dev, made.st_ino):
            os.close(folder)
            raise MachineError(f"{self.path}: another folder came in its place; nothing is mounted")
        self._folder = folder

    def mount(self, device: OurDevice, kind: str) -> None:
        """Mount a device of ours. Raises MachineError when the folder has gone elsewhere."""
        assert self._folder is not None, "it was there, or has been made"
        if os.listdir(self._folder):
            raise MachineError(f"{self.path}: files came into it meanwhile; nothing is mounted")
        mount_device(device, self._folder, kind)
        points = [mount.point for mount in device.mounts()]
        if self.path not in points:
            for point in points:
                unmount(point)
            raise MachineError(
                f"{self.path}: it was moved while {device.path} was mounted on it; that is undone"
            )


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
        raise MachineError(f"{path}: it is a folder no more: {error.strerror}") from error
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
        raise MachineError(f"{path}: it leads to {where} by now; nothing is mounted")
