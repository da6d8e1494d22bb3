"""The proof that a device, a mount or a process is ours. Read again before every step.

A loop device is ours only when its backing file lies in the FUSE mount of one of our hosts, a ublk
device only when it carries the mark of one of them inside the kernel; a mount is ours only when its
source is such a device, or when it is that FUSE mount itself.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from disklab.engine import ublk_devices
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.places import HostPlace, Places

FUSE_TYPE = "fuse.disklab"
# Disks are /dev/ublkbN; the class lists every device, dead ones too.
UBLK = "ublkb"
UBLK_DEVICES = Path("/sys/class/ublk-char")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    device: str
    """`major:minor`."""
    point: Path
    kind: str
    source: str


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


def mounts() -> list[Mount]:
    """Return all mounts that this process sees, in the order in which they were made."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        front, _, back = line.partition(" - ")
        fields, tail = front.split(" "), back.split(" ")
        point = Path(_unescape(fields[4]))
        found.append(Mount(fields[2], point, tail[0], _unescape(tail[1])))
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
    found = _owned(device, Places(host.run.parent.parent, host.data.parent))
    if found is None or (found.host, found.volume) != (host.name, volume):
        proof = f"it does not show {host.mount / volume} (it shows {backing_file(device)})"
        if device.name.startswith(UBLK):
            proof = f"it does not carry the mark of volume {volume!r} of host {host.name!r}"
        raise MachineError(
            f"{device}: {proof}, so it is no device of ours and is left alone; "
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
        rule = "disklab did not make this device, and touches only its own"
        way_out = "`disklab disk list` lists those that it made"
        raise UserError(Problem(place, str(target), rule, way_out))
    return found


def is_our_fuse_mount(mount: Mount, host: HostPlace) -> bool:
    """Return whether a mount is the FUSE mount of a host of ours."""
    return mount.kind == FUSE_TYPE and mount.point == host.mount


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
    shown = backing_file(device)
    if shown is None:
        return None
    file = Path(shown)
    hosts = places.run / "hosts"
    # <run>/hosts/<host>/mnt/<volume>, and nothing above or below.
    if file.parent.name != "mnt" or file.parent.parent.parent != hosts:
        return None
    return OurDevice(device, file.parent.parent.name, file.name)


def backing_file(device: Path) -> str | None:
    """Return the file that a loop device shows; None: it is none, or shows nothing."""
    try:
        shown = Path("/sys/block", device.name, "loop/backing_file").read_text(encoding="utf-8")
    except OSError:
        return None
    return shown.rstrip("\n").removesuffix(" (deleted)")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
