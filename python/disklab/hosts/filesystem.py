"""File systems on our devices: blank or not, made, mounted, unmounted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from disklab.catalog.quantity import format_bytes
from disklab.errors import DisklabError, MachineError, Problem, UserError
from disklab.hosts.control_group import MARK
from disklab.hosts.ownership import Mount, OurDevice, is_our_fuse_mount, mounts
from disklab.hosts.places import HostPlace
from disklab.hosts.requirements import find_program, how_to_get
from disklab.machines import programs
from disklab.machines.protocol import Finished

Filesystem = Literal["xfs", "ext4"]

# A slow disk takes minutes for the journal of a large file system.
MKFS_SECONDS = 900.0
MOUNT_SECONDS = 120.0
# An unmount writes everything back first, at the speed of the emulated disk.
UNMOUNT_SECONDS = 300.0
PROBE_SECONDS = 60.0

# mkfs.xfs refuses less than 300 MB; e2fsprogs needs a few MB for a journal.
LEAST_BYTES = {"xfs": 300 << 20, "ext4": 16 << 20}

# A discard of the whole device would only make a hole of a hole. ext4 would write its inode tables
# in the background for many minutes, on the very disk that is measured: with noinit_itable never.
MKFS_OPTIONS = {
    "xfs": ["-q", "-K"],
    "ext4": ["-q", "-E", "nodiscard,lazy_itable_init=1"],
}
MOUNT_OPTIONS = {"xfs": "noatime", "ext4": "noatime,noinit_itable"}


def content(path: Path) -> str | None:
    """Return what a low-level probe finds on a device or in a file; None: it is blank."""
    ran = _run(["blkid", "-p", "-o", "export", str(path)], PROBE_SECONDS, allowed=(0, 2, 8))
    if ran.code == 2:  # documented: nothing was found
        return None
    lines = ran.stdout.decode(errors="replace").splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts.get("TYPE") or facts.get("PTTYPE") or "something that blkid cannot name"


def make_filesystem(device: OurDevice, kind: Filesystem, mark: Path, *, reformat: bool) -> None:
    """Make a file system on a device of ours that is blank, or with `reformat` on any of ours.

    The caller has just proved that the device is ours. `mark`: the run directory of its host, by
    which mkfs is found when its caller was killed.
    """
    force = {"xfs": "-f", "ext4": "-F"}[kind]
    options = [*MKFS_OPTIONS[kind], *([force] if reformat else [])]
    words = [f"mkfs.{kind}", *options, str(device.path)]
    _run(words, MKFS_SECONDS, variables={MARK: str(mark)})


def mount_device(device: OurDevice, folder: int, kind: str) -> None:
    """Mount a device of ours on an open folder: see `mount_point`."""
    options = MOUNT_OPTIONS.get(kind, "noatime")
    # Left as it is, the name is the kernel's own for the open folder; mount(8) would look for a
    # path of it, and mount on what lies there a moment later.
    words = ["mount", "--no-canonicalize", "-t", kind, "-o", options, str(device.path)]
    _run([*words, f"/proc/self/fd/{folder}"], MOUNT_SECONDS, handles=(folder,))


def unmount(mount: Mount) -> None:
    """Unmount in the orderly way. Raises UserError while somebody uses the mount."""
    with _leading_to(mount) as (path, folder):
        try:
            _run(["umount", "--no-canonicalize", path], UNMOUNT_SECONDS, handles=(folder,))
        except MachineError as error:
            users = list(users_of(Path(path)))
            if not users:
                raise
            rule = f"it is in use by {', '.join(users)}"
            way_out = "end what uses it, then try again"
            raise UserError(Problem("mount point", str(mount.point), rule, way_out)) from error


def force_unmount(mount: Mount, *flags: str) -> bool:
    """Unmount a mount whose disk is dead; returns whether it is gone."""
    program = find_program("umount") or "umount"
    with suppress(MachineError, TimeoutError), _leading_to(mount) as (path, folder):
        words = [program, "--no-canonicalize", *flags, path]
        programs.run(words, UNMOUNT_SECONDS, handles=(folder,))
    return all(other.number != mount.number for other in mounts())


def abort(host: HostPlace, how: str = "-f") -> None:
    """Fail every I/O that waits for a dead host: MNT_FORCE aborts it; -l: its users keep it."""
    # A killed start may leave several mounts on top of each other.
    for mount in reversed(mounts()):
        if is_our_fuse_mount(mount, host):
            force_unmount(mount, how)


@contextmanager
def _leading_to(mount: Mount) -> Iterator[tuple[str, int]]:
    """Yield a path that leads to this mount and no other, and the open folder that it begins with.

    A path alone would be resolved again: a user who may rename a folder above it could have put a
    link there that leads to another user's mount. Raises MachineError when the mount is no longer
    there.
    """
    folder = number = None
    try:
        with suppress(OSError):
            folder = os.open(mount.point.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            # Not opened to be read: its disk may be dead.
            point = os.open(mount.point.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
            number = _mount_of(point)
            os.close(point)
        if folder is None or number != mount.number or _mount_of(folder) == number:
            raise MachineError(f"{mount.point}: it has been moved or unmounted in the meantime")
        yield f"/proc/self/fd/{folder}/{mount.point.name}", folder
    finally:
        if folder is not None:
            os.close(folder)


def _mount_of(descriptor: int) -> int:
    """Return the number of the mount that an open file is on."""
    information = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    return next(
        int(line.split()[1]) for line in information.splitlines() if line.startswith("mnt_id")
    )


def resolved_mount_point(point: Path, place: str) -> Path:
    """Return a mount point as the kernel will show it: without links and `..`.

    Raises UserError for a link that leads nowhere.
    """
    try:
        if point.is_symlink() and not point.exists():
            rule = f"this link leads to {os.readlink(point)}, which does not exist"
            way_out = f"create it first: mkdir -p {point.parent / os.readlink(point)}"
            raise UserError(Problem(place, str(point), rule, way_out))
        # One that is not absolute is refused next.
        return point.resolve() if point.is_absolute() else point
    except (OSError, RuntimeError, ValueError) as error:
        rule = f"this is not a path that can be followed: {error}"
        raise UserError(Problem(place, str(point), rule, "choose another directory")) from error


def check_mount_point(point: Path, place: str) -> None:
    """Raise UserError for a directory on which nothing can be mounted safely."""
    problem = None
    if not point.is_absolute():
        problem = "a mount point is an absolute path", f"write {Path.cwd() / point}"
    elif any(mount.point == point for mount in mounts()):
        problem = "something is mounted there already", "choose another directory"
    elif point.exists() and not point.is_dir():
        problem = "it is not a directory", "choose another directory"
    elif point.exists() and any(point.iterdir()):
        problem = "a mount would hide what is in this directory", "choose an empty one"
    elif not point.exists() and not point.parent.is_dir():
        problem = f"{point.parent} does not exist", f"create it first: mkdir -p {point.parent}"
    if problem is not None:
        raise UserError(Problem(place, str(point), *problem))


FULL_BYTES = 32 << 20
"""Fewer are soon none: emulated disks take room as they are written."""


def why_full(path: Path) -> str | None:
    """Return that this machine's file system of a path is full, and what to do; None: it is not."""
    free = shutil.disk_usage(path).free
    if free >= FULL_BYTES:
        return None
    at = max(
        (mount for mount in mounts() if path.resolve().is_relative_to(mount.point)),
        key=lambda mount: len(mount.point.parts),
    )
    return (
        f"this machine's disk is full: {at.point} ({at.kind} on {at.source}) has "
        f"{format_bytes(free - free % 4096)} free; make room there, or set DISKLAB_DATA_DIR"
    )


def explained(failure: DisklabError, folder: Path) -> DisklabError:
    """Return a failure that begins with the full disk of this machine below a folder, where it is.

    Emulated disks take their room as they are written, and what failed follows from that.
    """
    full = why_full(folder)
    return failure if full is None else MachineError(f"{full} (then: {failure})")


def users_of(point: Path) -> Iterator[str]:
    """Yield the processes that have files below a mount point open."""
    try:
        device = os.stat(point).st_dev
    except OSError:
        return
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _uses(process, device):
            try:
                name = (process / "comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue
            yield f"process {process.name} ({name})"


def _uses(process: Path, device: int) -> bool:
    with suppress(OSError):
        for link in (process / "cwd", process / "root", *(process / "fd").iterdir()):
            with suppress(OSError):
                if os.stat(link).st_dev == device:
                    return True
    return False


def set_read_ahead(device: OurDevice, kib: int) -> None:
    """Set how far the kernel reads ahead on a device of ours."""
    (device.sysfs() / "queue/read_ahead_kb").write_text(str(kib), encoding="ascii")


def read_ahead_kib(device: OurDevice) -> int:
    """Return how far the kernel reads ahead."""
    return int((device.sysfs() / "queue/read_ahead_kb").read_text(encoding="ascii"))


def mount_of(device: OurDevice, point: str | None) -> Mount | None:
    """Return the mount of this device at the point that we noted; None: it is gone."""
    return next((mount for mount in device.mounts() if str(mount.point) == point), None)


def _run(
    command: list[str],
    seconds: float,
    allowed: tuple[int, ...] = (0,),
    handles: tuple[int, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program of the system; its failure becomes a MachineError with its own words."""
    program = find_program(command[0])
    if program is None:
        raise MachineError(f"{command[0]} is not installed: {how_to_get(command[0])}")
    shown = " ".join(command)
    try:
        named = {"LC_ALL": "C", **(variables or {})}
        ran = programs.run([program, *command[1:]], seconds, handles=handles, variables=named)
    except TimeoutError as error:
        raise MachineError(
            f"`{shown}` did not end within {seconds:.0f} s; the disk may be stalled: "
            "`disklab disk show` says so, `disklab disk fail NAME recover` repairs it"
        ) from error
    if ran.code not in allowed:
        said = (ran.stderr or ran.stdout).decode(errors="replace").strip().replace("\n", "; ")
        raise MachineError(f"`{shown}` failed with code {ran.code}: {said}")
    return ran
