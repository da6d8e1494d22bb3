"""The machine below a database: its disk, memory and CPUs, read from /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from disklab.errors import MachineError
from disklab.machines.protocol import Machine

SECTOR = 512
"""What /proc/diskstats and /sys/block count in, whatever the disk's own sectors are."""


@dataclass(frozen=True)
class DiskReading:
    """Counters of a block device since the machine started."""

    reads: float
    read_bytes: float
    writes: float
    written_bytes: float

    def __sub__(self, earlier: DiskReading) -> DiskReading:
        """Return the growth."""
        return DiskReading(
            *(
                max(0.0, a - b)
                for a, b in zip(vars(self).values(), vars(earlier).values(), strict=True)
            )
        )


@dataclass(frozen=True)
class Disk:
    """The block device below a node's data."""

    node: str
    machine: Machine
    number: str
    """Its major and minor number: `8:16`."""
    folder: str
    """Where it is mounted."""
    filesystem: str
    size_bytes: int
    read_ahead_bytes: int

    def read(self) -> DiskReading:
        """Return its counters now. Raises MachineError."""
        text = _text(self.machine, "/proc/diskstats")
        major, minor = self.number.split(":")
        for line in text.splitlines():
            words = line.split()
            if words[:2] == [major, minor]:
                return DiskReading(
                    float(words[3]),
                    float(words[5]) * SECTOR,
                    float(words[7]),
                    float(words[9]) * SECTOR,
                )
        raise MachineError(f"{self.node}: the block device {self.number} has gone")


@dataclass(frozen=True)
class MachineSeen:
    """A node's machine."""

    node: str
    cpus: int | None
    memory_bytes: int | None
    page_cache_bytes: int | None
    """Files that its memory holds now, other people's too."""
    disk: Disk | None


def look(node: str, machine: Machine, folders: tuple[str, ...]) -> MachineSeen:
    """Return what a machine is; what it does not tell is None."""
    processors = re.findall(r"^processor\s*:", _text(machine, "/proc/cpuinfo"), re.MULTILINE)
    memory = dict(_memory(machine))
    cached = memory.get("Cached")
    # What is shared between processes is counted as cached, and holds no files.
    shared = memory.get("Shmem", 0)
    return MachineSeen(
        node,
        len(processors) or None,
        memory.get("MemTotal"),
        None if cached is None else max(0, cached - shared),
        next((disk for one in folders if (disk := disk_of(node, machine, one))), None),
    )


def _memory(machine: Machine) -> Iterator[tuple[str, int]]:
    for line in _text(machine, "/proc/meminfo").splitlines():
        found = re.fullmatch(r"(\w+):\s+(\d+) kB", line.strip())
        if found is not None:
            yield found[1], int(found[2]) * 1024


def disk_of(node: str, machine: Machine, folder: str) -> Disk | None:
    """Return the block device below a folder; None: it is on none, or in another namespace."""
    mount = mount_of(_text(machine, "/proc/self/mountinfo"), folder)
    if mount is None:
        return None
    number, place, filesystem = mount
    below = f"/sys/dev/block/{number}"
    size = _text(machine, f"{below}/size")
    # A partition has its disk's queue.
    read_ahead = _text(machine, f"{below}/queue/read_ahead_kb")
    read_ahead = read_ahead or _text(machine, f"{below}/../queue/read_ahead_kb")
    if not size.isdigit():
        return None
    return Disk(
        node,
        machine,
        number,
        place,
        filesystem,
        int(size) * SECTOR,
        int(read_ahead) * 1024 if read_ahead.isdigit() else 0,
    )


def mount_of(mountinfo: str, folder: str) -> tuple[str, str, str] | None:
    """Return number, mount point and file system of a folder, from /proc/self/mountinfo."""
    found = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if len(words) < 5 or not after:
            continue
        place = words[4].encode().decode("unicode_escape")
        inside = place in {"/", folder} or folder.startswith(place.rstrip("/") + "/")
        # The last of several mounts at one place lies on top.
        if inside and (found is None or len(place) >= len(found[1])):
            found = (words[2], place, after.split()[0])
    return found


def _text(machine: Machine, path: str) -> str:
    with suppress(MachineError):
        return machine.files.read(PurePosixPath(path), 4 << 20).decode(errors="replace").strip()
    return ""
