"""The emulated hosts of a bed: their disks' conditions, their time, what is watched of them."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from disklab.databases import Database
from disklab.engine import Control
from disklab.errors import DisklabError, MachineError
from disklab.hosts.attach import Attached
from disklab.hosts.control_group import ControlGroup
from disklab.hosts.namespaces import EmulatedHosts
from disklab.hosts.protocol import Node
from disklab.procedures.bed import Bed, empty_cache
from disklab.procedures.breaking import Ground
from disklab.procedures.conditions import Step
from disklab.spec import Cluster, ClusterTrial, Volume
from disklab.telemetry import Disk, Emulator, Memory, Source
from disklab.telemetry.sources import Metric, node_suffix
from disklab.workloads.protocol import Begin, Load

# Files that a process already has open: giving them a device's new read-ahead.
#
# Linux copies the read-ahead of a device into each file when it is opened (`file_ra_state_init`),
# and
# uses that copy from then on, also for mapped files. A database keeps its files open for as long as
# it runs: changing the device alone would change nothing for it.

# The number is the same on every architecture. Source: Linux 5.6, arch/*/entry/syscalls.
PIDFD_GETFD = 438
_LIBC = ctypes.CDLL(None, use_errno=True)


def renew_read_ahead(pids: Iterable[int], mount: Path) -> int:
    """Let what the processes have open under a mount point take the device's read-ahead anew.

    `POSIX_FADV_NORMAL` on the very file that the process has open sets it (mm/fadvise.c), and
    pidfd_getfd(2) gets hold of that file. Returns how many files there were. Raises MachineError
    where this machine does not allow it: before Linux 5.6, or without CAP_SYS_PTRACE.
    """
    device = mount.stat().st_dev
    return sum(_renew(pid, device) for pid in pids)


def _renew(pid: int, device: int) -> int:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        numbers = [number for number in _open_files(pid) if _is_on(pid, number, device)]
        for number in numbers:
            file = _get(process, pid, number)
            if file is not None:
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)
                finally:
                    os.close(file)
        return len(numbers)
    finally:
        os.close(process)


def _open_files(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    return []


def _is_on(pid: int, number: int, device: int) -> bool:
    with suppress(OSError):
        found = Path(f"/proc/{pid}/fd/{number}").stat()
        return found.st_dev == device and stat.S_ISREG(found.st_mode)
    return False


def _get(process: int, pid: int, number: int) -> int | None:
    """Return a descriptor of our own for a file of the process; None: it was closed meanwhile."""
    file = int(_LIBC.syscall(PIDFD_GETFD, process, number, 0))
    if file >= 0:
        return file
    error = ctypes.get_errno()
    if error in (errno.EBADF, errno.ESRCH):
        return None
    raise MachineError(
        f"pidfd_getfd on process {pid}: {os.strerror(error)}: files that it has open keep the "
        "read-ahead that they were opened with (Linux 5.6 and CAP_SYS_PTRACE are needed)"
    )


# While nothing is measured. At the 8 KiB that Cassandra's data disks have, a compaction waits for a
# cloud disk after every two pages: 4 MB/s (seen on a striped P30), an hour for a scaled data set.
FAR_AHEAD_BYTES = 4 << 20


@dataclass
class EmulatedBedHosts:
    """The hosts of a rehearsal's bed. See `BedHosts` for what each method promises."""

    nodes: Sequence[Node]
    time_dilation: int
    groups: Sequence[ControlGroup | None]
    """Of each node: its memory and page cache; None: this machine has no such thing."""
    network: EmulatedHosts | None
    """The nodes' hosts in namespaces; None: they share this machine's loopback."""
    data_device: str
    """The device that holds the tables."""
    memory_of: Callable[[str], int]
    """What a VM size has, in bytes."""
    names: Sequence[str]
    """What a timetable calls the nodes, in order."""
    later: int
    """How many of them, the last ones, a timetable brings later."""

    @contextmanager
    def taking(self, step: Step, spec: ClusterTrial, bed: Bed) -> Iterator[None]:
        """Change disks and host caches."""
        yield
        # Those that come later are new hosts then, and may have other disks.
        for node in self.nodes[: len(self.nodes) - self.later]:
            if step == "set credits":
                node.set_credits(spec.before.credits_ratio)
            else:
                self._take_on(node, step, spec.cluster.volumes["data"], bed)
        if step == "set credits":
            bed.note(credits=spec.before.credits_ratio)

    def _take_on(self, node: Node, step: Step, volume: Volume, bed: Bed) -> None:
        """Take a step that concerns the data device of each node."""
        device = self.data_device
        match step:
            case "set caching":
                node.set_caching(device, volume.caching)
                bed.note(caching=volume.caching, host_cache=empty_cache(volume.caching))
            case "set read-ahead":
                self._set_read_ahead(node, bed.database, volume.read_ahead_bytes)
                bed.note(read_ahead_bytes=volume.read_ahead_bytes)
            case "drop host cache":
                node.drop_host_cache(device)
                bed.note(host_cache="empty")
            case "warm host cache":
                node.warm_host_cache(device)
                bed.note(host_cache="written")
            case _:
                # It is the database's.
                pass

    @contextmanager
    def far_ahead(self, bed: Bed) -> Iterator[None]:
        """Set the data devices' read-ahead, and back."""
        try:
            for node in self.nodes:
                self._set_read_ahead(node, bed.database, FAR_AHEAD_BYTES)
            yield
        finally:
            # A node that has died is told of by what it broke.
            for node in self.nodes:
                with suppress(DisklabError):
                    self._set_read_ahead(node, bed.database, bed.state.read_ahead_bytes)

    def _set_read_ahead(self, node: Node, database: Database, bytes_: int | None) -> None:
        """Give the data device a read-ahead, and what the database has open on it."""
        node.set_read_ahead(self.data_device, bytes_)
        renew_read_ahead(database.observe().pids, node.volumes[self.data_device])

    @contextmanager
    def running(self, bed: Bed) -> Iterator[None]:
        """Let the hosts' time run slower."""
        del bed
        if self.time_dilation == 1:
            yield
            return
        try:
            for node in self.nodes:
                node.set_time_dilation(self.time_dilation)
            self._dilate_network(self.time_dilation)
            yield
        finally:
            # A host that has died is told of by what it broke.
            for node in self.nodes:
                with suppress(DisklabError):
                    node.set_time_dilation(1)
            with suppress(DisklabError):
                self._dilate_network(1)

    def _dilate_network(self, factor: int) -> None:
        if self.network is not None and self.network.delays is not None:
            self.network.delays.dilate(factor)

    def start_load(self, begin: Begin) -> Load:
        """Start it here."""
        return begin()

    def sources(self, undo: ExitStack) -> list[Source]:
        """Return the nodes' disks, emulators and memory groups."""
        sources: list[Source] = []
        for number, node in enumerate(self.nodes, 1):
            suffix = node_suffix(number)
            for volume in node.attached:
                emulator = OfEmulator(node, volume, suffix)
                undo.callback(emulator.close)
                sources += [OfDisk(node, volume, suffix), emulator]
        groups = enumerate(self.groups, 1)
        sources += [Memory(f"n{number}", group) for number, group in groups if group is not None]
        return sources

    def ground(self, database: Database, cluster: Cluster) -> Ground:
        """Return the nodes, their disks and their links."""
        return Ground(
            dict(zip(self.names, self.nodes, strict=True)),
            database,
            cluster,
            self.memory_of,
            network=self.network,
            links=self.network,
        )


class OfDisk:
    """A device of a node, wherever it is: moved to another VM it is another device."""

    def __init__(self, node: Node, volume: str, suffix: str) -> None:
        self.name = f"disk {volume}{suffix}"
        self._node = node
        self._volume = volume
        self._at: Attached | None = None
        self._source: Disk | None = None

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield what `Disk` does; nothing while it is being moved."""
        at = self._node.attached.get(self._volume)
        if at is None:
            return
        if at is not self._at or self._source is None:
            self._at, self._source = at, Disk(self.name.removeprefix("disk "), Path(at.device))
        yield from self._source.sample(elapsed_s, slow)


class OfEmulator:
    """A volume of a node as its emulator counts it; one that was moved counts from zero."""

    def __init__(self, node: Node, volume: str, suffix: str) -> None:
        self.name = f"emulator {volume}{suffix}"
        self._node = node
        self._volume = volume
        self._suffix = suffix
        self._at: Attached | None = None
        self._source: Emulator | None = None
        self._undo = ExitStack()

    def sample(self, elapsed_s: float, slow: int = 1) -> Iterator[Metric]:
        """Yield what `Emulator` does; nothing while the volume is being moved."""
        at = self._node.attached.get(self._volume)
        if at is None:
            return
        if at is not self._at or self._source is None:
            self.close()
            control = self._undo.enter_context(Control(self._node.place.socket))
            show = partial(control.show, self._volume)
            self._at, self._source = at, Emulator(self._volume, show, self._suffix)
        yield from self._source.sample(elapsed_s, slow)

    def close(self) -> None:
        """Close its connection."""
        self._undo.close()
