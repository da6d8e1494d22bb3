"""What this machine must have before anything is made. Imports nothing that only Linux has."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from disklab.database_facts import facts_of, names
from disklab.errors import Problem, UserError, refuse

# Programs of mkfs.* and losetup are in sbin, which is not on everybody's PATH.
SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

PACKAGES = {  # program: (Debian and Ubuntu, Fedora)
    "mkfs.xfs": ("xfsprogs", "xfsprogs"),
    "mkfs.ext4": ("e2fsprogs", "e2fsprogs"),
    "mount": ("mount", "util-linux-core"),
    "umount": ("mount", "util-linux-core"),
    "blkid": ("util-linux", "util-linux"),
    "fio": ("fio", "fio"),
    "sysbench": ("sysbench", "sysbench"),
}
_OF_DATABASES = [package for name in names() for package in facts_of(name).packages]
PACKAGES |= {one.program: (one.debian, one.fedora) for one in _OF_DATABASES}
OWN = frozenset(one.program for one in _OF_DATABASES if not one.usual)
"""Programs that a database's own checks look for, because they are seldom on the PATH."""


def find_program(name: str) -> str | None:
    """Return the path of a program, also where root's programs are."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_PATHS])
    return shutil.which(name, path=path)


def how_to_get(program: str) -> str:
    """Return the command that installs a program here."""
    debian, fedora = PACKAGES[program]
    if shutil.which("dnf"):
        return f"sudo dnf install {fedora}"
    return f"sudo apt-get install {debian}"


def required_program(name: str, place: str) -> str:
    """Return the path of a program. Raises UserError when it is not installed."""
    found = find_program(name)
    if found is None:
        rule = "the program is not installed"
        raise UserError(Problem(place, name, rule, f"install it: {how_to_get(name)}"))
    return found


def problems() -> Iterator[Problem]:
    """Yield what stands in the way of a block device on this machine."""
    system = platform.system()
    if system != "Linux":
        rule = "block devices are emulated on Linux only"
        yield Problem("this machine", system, rule, "use a Linux machine or VM, with root")
        return
    if os.geteuid() != 0:
        rule = "making block devices needs root"
        yield Problem("this user", f"uid {os.geteuid()}", rule, "run it with sudo")
    if not Path("/dev/fuse").exists() and Path("/dev/ublk-control").exists():
        # Then the engine serves ublk devices, which need neither FUSE nor loop devices.
        return
    if not Path("/dev/fuse").exists():
        rule = "emulated disks are served through FUSE"
        way_out = "sudo modprobe fuse; in a container, pass --device /dev/fuse"
        yield Problem("/dev/fuse", "no such device", rule, way_out)
    if not Path("/dev/loop-control").exists():
        rule = "emulated disks are shown by loop devices"
        way_out = "sudo modprobe loop; in a container, run it with --privileged"
        yield Problem("/dev/loop-control", "no such device", rule, way_out)


def require_machine() -> None:
    """Raise UserError with everything that stands in the way of a block device."""
    refuse(list(problems()))


def available_memory_bytes() -> int:
    """Return what the kernel says can be used without swapping."""
    facts = Path("/proc/meminfo").read_text(encoding="ascii")
    line = next(line for line in facts.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024
