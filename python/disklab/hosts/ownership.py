"""The proof that a device, a mount or a process is ours. Read again before every step.

A loop device is ours only when its backing file lies in the FUSE mount of one of our hosts as this
mount namespace has it (the same path in another namespace is another file), a ublk device only when
it carries the mark of one of them inside the kernel; a mount is ours only when its source is such a
device, or when it is that FUSE mount itself. What a dead host left elsewhere is known by `diskseq`
and the number of its mount, as recorded in this boot.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disklab.engine import ublk_devices
from disklab.engine.locks import is_held
from disklab.engine.own_folder import boot_id
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.places import HostPlace, Places, VolumeRecord
from disklab.names import NAME

FUSE_TYPE = "fuse.disklab"
# Disks are /dev/ublkbN; the class lists every device, dead ones too.
UBLK = "ublkb"
UBLK_DEVICES = Path("/sys/class/ublk-char")
# From <linux/loop.h>; no module of Python has it. `struct loop_info64` begins with the device and
# the inode of the file.
LOOP_GET_STATUS64 = 0x4C05
LOOP_INFO_BYTES = 232
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    device: str
    """`major:minor`."""
    number: int
    """The kernel's own, which no other mount has while this one is there."""
    point: Path
    kind: str
    source: str
    root: Path = Path("/")
    """Which directory of the file system it shows."""


@dataclass(frozen=True)
class OurDevice:
    """A loop device that shows a file of one of our hosts, or a ublk device with its mark."""

    path: Path
    host: str
    volume: str
    live: bool = True
    """Whether there is a disk. A ublk device without its process has none, but may be mounted."""

    @property
    def is_ublk(self) -> bool:
        """Return whether it is a ublk device."""
        return self.path.name.startswith(UBLK)

    @property
    def number(self) -> str:
        """`major:minor`, as mounts show it."""
        info = os.stat(self.path)
        return f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"

    def mounts(self) -> list[Mount]:
        """Return where the device is mounted, the innermost last."""
        if not self.live:
            # The node has gone with the disk; its name is ours until the device is removed.
            return [mount for mount in mounts() if mount.source == str(self.path)]
        number = self.number
        return [mount for mount in mounts() if mount.device == number]

    def sysfs(self) -> Path:
        """Return its directory under /sys/block."""
        return Path("/sys/block") / self.path.name


def mounts(process: Path = Path("/proc/self")) -> list[Mount]:
    """Return all mounts that a process sees, in the order in which they were made."""
    found = []
    for line in (process / "mountinfo").read_text(encoding="utf-8").splitlines():
        front, _, back = line.partition(" - ")
        fields, tail = front.split(" "), back.split(" ")
        root, point = Path(_unescape(fields[3])), Path(_unescape(fields[4]))
        found.append(Mount(fields[2], int(fields[0]), point, tail[0], _unescape(tail[1]), root))
    return found


def our_devices(places: Places) -> list[OurDevice]:
    """Return every device of ours, found through the kernel and not through our notes."""
    found = []
    for block in sorted(Path("/sys/block").glob("loop*")):
        device = _owned(Path("/dev") / block.name, places)
        if device is not None:
            found.append(device)
    return found + _ublk_devices(places)


def prove(device: Path, host: HostPlace, volume: str) -> OurDevice:
    """Return the device if it shows the file of this volume at this moment.

    Raises MachineError otherwise: somebody else has the device now.
    """
    found = _owned(device, Places(host.root, host.data.parent))
    if found is None or (found.host, found.volume) != (host.name, volume):
        places = Places(host.root, host.data.parent)
        reason = "" if _named(device, places) is None else why_foreign(device, places)
        shown = reason or f"it shows {backing_file(device)}"
        proof = f"it does not show {host.mount / volume} ({shown})"
        if device.name.startswith(UBLK):
            proof = f"it does not carry the mark of volume {volume!r} of host {host.name!r}"
        raise MachineError(
            f"{device}: {proof}, so it is not a device of ours and is left alone; "
            "`disklab clean` removes what is left"
        )
    return found


def device_of(target: Path, places: Places, place: str) -> OurDevice:
    """Return our device that a user names by path. Raises UserError for one that is not ours."""
    try:
        is_device = stat.S_ISBLK(os.stat(target).st_mode)
    except OSError as error:
        rule = f"there must be such a device: {error.strerror}"
        way_out = "`disklab disk list` lists the attached ones"
        raise UserError(Problem(place, str(target), rule, way_out)) from error
    found = _owned(target.resolve(), places) if is_device else None
    if found is None:
        rule = "disklab did not create this device, and touches only its own"
        way_out = "`disklab disk list` lists those that it created"
        raise UserError(Problem(place, str(target), rule, way_out))
    return found


def is_our_fuse_mount(mount: Mount, host: HostPlace) -> bool:
    """Return whether a mount is the FUSE mount of a host of ours, and not another's shown there."""
    if mount.kind != FUSE_TYPE or mount.point != host.mount or mount.root != Path("/"):
        return False
    record = host.host_record()
    if record is not None and record.fuse_device is not None:
        return mount.device == record.fuse_device
    # A start that was killed has noted nothing. A forced unmount ends a file system at each place
    # where it is mounted, so it must be mounted here only.
    return all(one.point == host.mount for one in mounts() if one.device == mount.device)


def diskseq(device: Path) -> int | None:
    """Return the kernel's number for this use of a device; None: before Linux 5.15.

    A loop number that was freed and taken again has another one.
    """
    try:
        return int(Path("/sys/block", device.name, "diskseq").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def elsewhere(device: OurDevice) -> str | None:
    """Return who has a device mounted in another mount namespace, in words; None: nobody.

    A namespace without a process, that only a file holds, cannot be seen.
    """
    number, seen = device.number, {os.readlink("/proc/self/ns/mnt")}
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError, IndexError):
            namespace = os.readlink(process / "ns/mnt")
            if namespace in seen:
                continue
            seen.add(namespace)
            for mount in mounts(process):
                if mount.device == number:
                    name = (process / "comm").read_text(encoding="utf-8").strip()
                    where = f"on {mount.point} in another mount namespace ({namespace})"
                    return f"{where}, that of process {process.name} ({name})"
    return None


def _ublk_devices(places: Places) -> list[OurDevice]:
    """Return the ublk devices of all our hosts; a device without a record has no volume's name."""
    if not any(UBLK_DEVICES.glob("*")):
        return []
    return [
        OurDevice(Path(one.device), host.name, one.volume or "", one.live)
        for host in places.hosts()
        for one in ublk_devices(places.run, host.name)
    ]


def _owned(device: Path, places: Places) -> OurDevice | None:
    if device.name.startswith(UBLK):
        return next((one for one in _ublk_devices(places) if one.path == device), None)
    named = _named(device, places)
    if named is not None and why_foreign(device, places) is None:
        return named
    return _recorded(device, places)


def _recorded(device: Path, places: Places) -> OurDevice | None:
    """Return the volume of a dead host whose mount is out of sight, by what the kernel tells.

    It was lazily unmounted, or is of another mount namespace, which may be gone. Within one boot
    no other use of the device has its `diskseq`, and no other mount the number of one that is in
    use. As long as the host lives the device is for those alone who see its mount.
    """
    shown, now = backing_file(device), diskseq(device)
    name = "" if shown is None else Path(shown).name
    if now is None or NAME.fullmatch(name) is None:
        return None
    for host in places.hosts():
        volume, made = host.volume_record(name), host.host_record()
        if volume is None or (volume.device, volume.diskseq) != (str(device), now):
            continue
        if made is None or made.fuse_device is None or made.boot != boot_id():
            continue
        if is_held(host.run / "lock") or host.why_foreign() is not None:
            continue
        if _differs(device, volume, {made.fuse_device}, host.mount / name) is None:
            return OurDevice(device, host.name, name)
    return None


def _named(device: Path, places: Places) -> OurDevice | None:
    """Return which volume of ours a loop device shows, as far as a path can tell."""
    shown = backing_file(device)
    if shown is None:
        return None
    file = Path(shown)
    hosts = places.run / "hosts"
    # <run>/hosts/<host>/mnt/<volume>, and nothing above or below.
    if file.parent.name != "mnt" or file.parent.parent.parent != hosts:
        return None
    return OurDevice(device, file.parent.parent.name, file.name)


def look_alikes(places: Places) -> list[tuple[Path, str]]:
    """Return the loop devices that show a path of ours and are not ours, each with the reason."""
    found = []
    for block in sorted(Path("/sys/block").glob("loop*")):
        device = Path("/dev") / block.name
        if _named(device, places) is not None and _recorded(device, places) is None:
            reason = why_foreign(device, places)
            if reason is not None:
                found.append((device, reason))
    return found


def why_foreign(device: Path, places: Places) -> str | None:
    """Return why a loop device with a path of ours is not ours; None: it is.

    Its file must lie in the mount that we see at that path, and be the one that was attached, by
    device and inode, from the kernel. Never looks at the file itself: a host may hang.
    """
    named = _named(device, places)
    if named is None:
        return "it shows no file of ours"
    host = places.host(named.host)
    own = {mount.device for mount in mounts() if is_our_fuse_mount(mount, host)}
    if not own:
        return f"{host.mount} is not mounted in this mount namespace"
    record = host.volume_record(named.volume)
    if record is None or record.device != str(device):
        # What a kill left half attached has no record of its device.
        record = VolumeRecord(disks="", medium="", count=0)
    return _differs(device, record, own, host.mount / named.volume)


def _differs(device: Path, record: VolumeRecord, own: set[str], file: Path) -> str | None:
    """Return what tells a loop device from the one that was recorded, and mounted there."""
    known, now = record.diskseq, diskseq(device)
    if known is not None and now is not None and known != now:
        return f"the number now belongs to another device (diskseq {now}, ours was {known})"
    try:
        number, inode = backing_inode(device)
    except OSError as error:
        # The kernel asks a dead host for what it knew longer ago than a day.
        dead = error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        return None if dead and known == now else f"its file cannot be determined: {error.strerror}"
    if f"{os.major(number)}:{os.minor(number)}" not in own:
        return f"it shows {file} of another mount namespace"
    return None if record.inode in (None, inode) else f"it shows a file other than {file}"


def backing_inode(device: Path) -> tuple[int, int]:
    """Return device and inode of the file that a loop device shows."""
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = bytearray(LOOP_INFO_BYTES)
        fcntl.ioctl(handle, LOOP_GET_STATUS64, status)
    finally:
        os.close(handle)
    number, inode = struct.unpack_from("=QQ", status)
    return number, inode


def backing_file(device: Path) -> str | None:
    """Return the file that a loop device shows; None: it is none, or shows nothing."""
    try:
        shown = Path("/sys/block", device.name, "loop/backing_file").read_text(encoding="utf-8")
    except OSError:
        return None
    return shown.rstrip("\n").removesuffix(" (deleted)")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
