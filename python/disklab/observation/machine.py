"""The machine below a database: its disk, memory and CPUs, read from /proc and /sys."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from disklab.databases.observing import Count, Observer, Reading
from disklab.errors import MachineError
from disklab.machines.protocol import Machine
from disklab.reading import digits

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
    if (sectors := digits(size)) is None:
        return None
    return Disk(
        node,
        machine,
        number,
        place,
        filesystem,
        sectors * SECTOR,
        (digits(read_ahead) or 0) * 1024,
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


# The time for which a database is looked at: readings at its ends and in between.

HOUR = 3600.0
MOST_INTERVALS = 12
"""As many as somebody reads; a window of several hours is told by the hour."""
LEAST_INTERVAL_S = 10.0
"""PostgreSQL's sessions tell their counters once a second, so a shorter interval is off by more."""
SHORTEST_S = 2.0
"""A window that ends earlier tells no rate."""


@dataclass(frozen=True)
class Interval:
    """A part of the window."""

    seconds: float
    tables: dict[str, Count]

    @cached_property
    def count(self) -> Count:
        """All tables together."""
        figures = zip(*(vars(one).values() for one in self.tables.values()), strict=True)
        return Count(*map(sum, figures))

    @property
    def per_s(self) -> float:
        """Reads and writes a second."""
        return (self.count.reads + self.count.writes) / self.seconds


@dataclass(frozen=True)
class Window:
    """All readings, at least two, in order."""

    readings: Sequence[Reading]
    disks: Sequence[dict[str, DiskReading]]
    """Of the same moments: counters of the disks that are seen, by node."""
    started_at: float
    """By the clock of this machine, seconds since 1970."""
    interrupted: bool

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.readings[-1].at_s - self.readings[0].at_s

    @cached_property
    def intervals(self) -> list[Interval]:
        """The parts, in order."""
        pairs = zip(self.readings, self.readings[1:], strict=False)
        return [interval(first, last) for first, last in pairs]

    @cached_property
    def whole(self) -> Interval:
        """The window as one interval; restarts in between are seen by the intervals."""
        tables: dict[str, Count] = {}
        for one in self.intervals:
            for name, count in one.tables.items():
                tables[name] = tables.get(name, Count()) + count
        return Interval(self.seconds, tables)


def interval(first: Reading, last: Reading) -> Interval:
    """Return what happened between two readings."""
    grown = {
        name: count - first.tables[name] if name in first.tables else count
        for name, count in last.tables.items()
    }
    return Interval(last.at_s - first.at_s, grown)


def interval_s(seconds: float) -> float:
    """Return how far readings are apart in a window of so many seconds."""
    if seconds >= 3 * HOUR:
        return HOUR
    return max(min(LEAST_INTERVAL_S, seconds), seconds / MOST_INTERVALS)


def watch(
    observer: Observer,
    disks: Sequence[Disk],
    seconds: float,
    stop: threading.Event,
    told: Callable[[float], None],
) -> Window:
    """Look for so many seconds, or until `stop` is set; `told` hears the seconds that are over.

    Raises MachineError when the database does not answer, at the beginning or in between.
    """
    started_at, step = time.time(), interval_s(seconds)
    readings, counted = [observer.read()], [_counters(disks)]
    begin = readings[0].at_s
    for number in range(1, round(seconds / step) + 1):
        due = begin + min(seconds, number * step)
        while not stop.is_set() and (left := due - time.monotonic()) > 0:
            stop.wait(min(left, 1.0))
            told(time.monotonic() - begin)
        early = stop.is_set() and time.monotonic() - readings[-1].at_s < SHORTEST_S
        if early and len(readings) > 1:
            break
        if early:
            # Ended at once, yet a rate needs two readings that are some time apart.
            time.sleep(SHORTEST_S)
        readings.append(observer.read())
        counted.append(_counters(disks))
        if stop.is_set():
            break
    return Window(readings, counted, started_at, stop.is_set())


def _counters(disks: Sequence[Disk]) -> dict[str, DiskReading]:
    return {one.node: one.read() for one in disks}
