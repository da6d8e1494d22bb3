"""What may be probed, and how: the safety rules stand here.

A directory gets a temporary file of the probe's own. An existing file and a device that disklab did
not create are read and never written, whatever the flags. A device of ours is written when nobody
uses it and nothing lies on it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import Problem, UserError
from disklab.hosts.filesystem import content
from disklab.probe.cells import MIB, Plan, format_size

# Beyond the region itself: what a file system needs for its own blocks while the file grows.
SPARE_BYTES = 16 * MIB
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Region:
    """What fio opens, and what it may do there."""

    path: Path
    """The device or file that fio opens."""
    shown: str
    """How the user named it."""
    size_bytes: int
    writable: bool
    condition: str
    """How the region was made ready before reads are measured, for the report."""


@dataclass(frozen=True)
class Opened:
    """What lies at a path, opened once: whatever is proved of it holds for what is probed.

    The path itself may lead elsewhere a moment later.
    """

    shown: Path
    """How the user named it."""
    descriptor: int
    status: os.stat_result

    @property
    def path(self) -> Path:
        """A name of the open file for this process and for fio, whoever moves what was named."""
        return name_of(self.descriptor)

    @property
    def is_device(self) -> bool:
        """Whether it is a block device."""
        return stat.S_ISBLK(self.status.st_mode)


def name_of(descriptor: int) -> Path:
    """Return the name by which other processes of root or of this user open it anew."""
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open what lies at a path, for reading. Raises UserError when there is nothing to be read."""
    place = "disklab probe PATH"
    try:
        # A pipe would wait for its other end otherwise.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        way_out = (
            "name a directory, a file or a block device; or --disk azure/P30 for an emulated one"
        )
        raise UserError(Problem(place, str(path), "does not exist", way_out)) from None
    except PermissionError:
        way_out = "run disklab as root, or choose a place that you may read"
        raise UserError(Problem(place, str(path), "may not be read by you", way_out)) from None
    except (OSError, ValueError) as error:
        rule = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
        raise UserError(Problem(place, str(path), rule, "name another one")) from None
    try:
        yield Opened(path, descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


@contextmanager
def open_region(path: Path, plan: Plan, *, ours: bool, destroy_data: bool) -> Iterator[Region]:
    """Yield the region to probe at `path`; leave nothing behind when it closes.

    `ours` says that `path` is a device that disklab made, proven by its backing file.
    """
    with opened(path) as at, region_of(at, plan, ours=ours, destroy_data=destroy_data) as region:
        yield region


@contextmanager
def region_of(at: Opened, plan: Plan, *, ours: bool, destroy_data: bool) -> Iterator[Region]:
    """Yield the region to probe of what is open; `ours` as `open_region` has it."""
    mode = at.status.st_mode
    if stat.S_ISDIR(mode):
        with open_temporary(at, plan) as region:
            yield region
    elif stat.S_ISREG(mode):
        yield open_file(at, plan)
    elif at.is_device:
        yield open_device(at, plan, ours=ours, destroy_data=destroy_data)
    else:
        rule = "is neither a directory, nor a file, nor a block device"
        raise UserError(Problem("disklab probe PATH", str(at.shown), rule, "name one of these"))


@contextmanager
def open_temporary(at: Opened, plan: Plan) -> Iterator[Region]:
    """Yield a file of the probe's own in a directory.

    The file has no name while it is probed, so that not even kill -9 leaves one behind; fio opens
    it through this process.
    """
    place = "disklab probe PATH"
    if not os.access(at.path, os.W_OK | os.X_OK):
        way_out = "choose a directory that you may write to, or run disklab as root"
        raise UserError(Problem(place, str(at.shown), "may not be written by you", way_out))
    space = os.fstatvfs(at.descriptor)
    available_bytes = space.f_bavail * space.f_frsize
    if available_bytes < plan.size_bytes + SPARE_BYTES:
        rule = (
            f"{available_bytes // MIB} MiB are free, the probe needs "
            f"{(plan.size_bytes + SPARE_BYTES) // MIB} MiB"
        )
        raise UserError(Problem(place, str(at.shown), rule, "give a smaller --size"))
    name = f".disklab-probe-{secrets.token_hex(8)}"
    descriptor = os.open(name, _NEW, 0o600, dir_fd=at.descriptor)
    try:
        os.unlink(name, dir_fd=at.descriptor)
        check_direct(at.shown, descriptor)
        os.ftruncate(descriptor, plan.size_bytes)
        condition = "own file, written in full before the first read"
        yield Region(
            name_of(descriptor), str(at.shown), plan.size_bytes, writable=True, condition=condition
        )
    finally:
        os.close(descriptor)


def check_direct(shown: Path, descriptor: int) -> None:
    """Refuse a file system without O_DIRECT: its page cache would be measured, not its disk."""
    try:
        os.close(os.open(name_of(descriptor), os.O_RDONLY | os.O_DIRECT))
    except OSError:
        rule = "its file system does not support O_DIRECT, so its page cache would be measured"
        way_out = "choose a directory on a disk's file system (ext4, xfs)"
        raise UserError(Problem("disklab probe PATH", str(shown), rule, way_out)) from None


def open_file(at: Opened, plan: Plan) -> Region:
    """Return an existing file as a region that is only read: its content is its owner's."""
    check_direct(at.shown, at.descriptor)
    size_bytes = fitting_size(at.shown, at.status.st_size, plan)
    # st_blocks counts units of 512 bytes, whatever the file system's block.
    holes = at.status.st_blocks * 512 < at.status.st_size
    condition = "existing file, read only"
    if holes:
        condition += "; it has holes, and reading a hole is not a disk read"
    return Region(at.path, str(at.shown), size_bytes, writable=False, condition=condition)


def open_device(at: Opened, plan: Plan, *, ours: bool, destroy_data: bool) -> Region:
    """Return a block device as a region; written only when it is ours, unused and blank."""
    size_bytes = fitting_size(at.shown, os.lseek(at.descriptor, 0, os.SEEK_END), plan)
    if not ours:
        condition = "device that disklab did not create: read only, as it was found"
        return Region(at.path, str(at.shown), size_bytes, writable=False, condition=condition)
    place = "disklab probe DEVICE"
    if in_use(at.path):
        rule = "the device is mounted or in use, and writes to it would corrupt its contents"
        way_out = "name its mount point, where the probe makes a file of its own, or unmount it"
        raise UserError(Problem(place, str(at.shown), rule, way_out))
    found = content(at.path)
    if found and not destroy_data:
        way_out = "name its mount point, or give --destroy-data to overwrite it"
        raise UserError(Problem(place, str(at.shown), f"holds {found}", way_out))
    condition = "emulated device, written in full before the first read"
    return Region(at.path, str(at.shown), size_bytes, writable=True, condition=condition)


def fitting_size(path: Path, size_bytes: int, plan: Plan) -> int:
    """Return how much of the target is probed: `--size`, or all of it when it is smaller."""
    largest = max(cell.block_bytes for cell in plan.cells)
    if size_bytes < largest:
        rule = f"its {size_bytes} bytes are less than one block of {format_size(largest)}"
        raise UserError(Problem("disklab probe PATH", str(path), rule, "choose a smaller --bs"))
    return min(plan.size_bytes, size_bytes)


def in_use(path: Path) -> bool:
    """Return whether the kernel has the device claimed: mounted, in an array, swap."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return True
    return False
