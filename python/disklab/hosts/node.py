"""One node of a rehearsed cluster: an emulated host with all its volumes, mounted."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from disklab.catalog import Caching, Catalog, VolumeRequest
from disklab.engine import Control, EngineProcess, Envelope, View
from disklab.errors import DisklabError, EngineError
from disklab.hosts import running
from disklab.hosts.attach import Attached, AttachRequest, attach
from disklab.hosts.cleaning import Scope, clean
from disklab.hosts.filesystem import Filesystem, read_ahead_kib, set_read_ahead
from disklab.hosts.places import HostPlace, Owner, Places
from disklab.hosts.running import Target, our_device
from disklab.waiting import Wait

# Where the bytes of files lie on their device: the kernel's FIEMAP.

# From <linux/fs.h> and <linux/fiemap.h>; no module of Python has them.
FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 0x1
FIEMAP_EXTENT_LAST = 0x1
# Unknown place, delayed allocation, inside metadata, or unwritten: no bytes of the file are there.
FIEMAP_EXTENT_NOWHERE = 0x2 | 0x4 | 0x200 | 0x800
HEADER = struct.Struct("=QQLLLL")
EXTENT = struct.Struct("=QQQQQLLLL")
# A call returns at most so many; files of a database on a fresh disk have a few.
EXTENTS_PER_CALL = 256
# Bound of one file: an extent of 4 KiB each for 64 GiB would be more than we can meet.
MOST_CALLS = 1 << 16

Range = tuple[int, int]
"""Offset and length on the device, in bytes."""


def ranges_of(files: Iterable[Path]) -> list[Range]:
    """Return where the bytes of files lie on their device, in the order of the files.

    A file that vanishes meanwhile (a compaction ended) is left out.
    """
    found: list[Range] = []
    for file in files:
        with suppress(FileNotFoundError):
            found += _extents(file)
    return found


def _extents(file: Path) -> Iterator[Range]:
    """Yield the extents of one file. Offsets are those of the device under the file system."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        start = 0
        for _ in range(MOST_CALLS):
            request = bytearray(HEADER.size + EXTENTS_PER_CALL * EXTENT.size)
            HEADER.pack_into(
                request, 0, start, (1 << 64) - 1 - start, FIEMAP_FLAG_SYNC, 0, EXTENTS_PER_CALL, 0
            )
            fcntl.ioctl(handle, FS_IOC_FIEMAP, request)
            count = HEADER.unpack_from(request)[3]
            flags = FIEMAP_EXTENT_LAST
            for index in range(count):
                logical, physical, length, _, _, flags, *_ = EXTENT.unpack_from(
                    request, HEADER.size + index * EXTENT.size
                )
                if not flags & FIEMAP_EXTENT_NOWHERE:
                    yield physical, length
                start = logical + length
            if count == 0 or flags & FIEMAP_EXTENT_LAST:
                return
    finally:
        os.close(handle)


Progress = Callable[[str], None]

# What ends after a database was stopped: its last files are closed by the kernel.
BUSY_SECONDS = 10.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class VolumeWish:
    """A volume of a node, scaled."""

    disks: str
    caching: Caching
    chunk_bytes: int | None
    size_bytes: int
    filesystem: Filesystem
    read_ahead_bytes: int | None
    latency: str | None = None
    barriers: bool = True


@dataclass(frozen=True)
class NodeWish:
    """A node of a cluster, scaled."""

    name: str
    """Of the emulated host; unique on this machine."""
    vm: str
    scale: Fraction
    host_cache_bytes: int | None
    """What its VM's host cache is taken to hold, before the scale; None: as published."""
    volumes: Mapping[str, VolumeWish]
    """Devices by name, each mounted."""


class EmulatedNode:
    """A running emulated host. `remove` takes away everything that `build` made, data included."""

    def __init__(self, place: HostPlace, places: Places) -> None:
        self._place = place
        self._places = places
        self._catalog: Catalog | None = None
        self._requests: dict[str, AttachRequest] = {}
        """How each volume was asked for."""
        self._time_dilation = 1
        self.attached: dict[str, Attached] = {}
        self.default_read_ahead_kib: dict[str, int] = {}
        """What the kernel chose for each device."""

    @classmethod
    def build(
        cls, catalog: Catalog, wish: NodeWish, places: Places, progress: Progress
    ) -> EmulatedNode:
        """Start the host and attach, format and mount its volumes.

        Raises UserError for what cannot be, MachineError or EngineError when a step fails; then
        nothing is left.
        """
        node = cls(places.host(wish.name), places)
        node._catalog = catalog
        mounts = places.run / "mounts"
        mounts.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            for name, volume in wish.volumes.items():
                request = AttachRequest(
                    volume=VolumeRequest(
                        disks=volume.disks,
                        name=name,
                        caching=volume.caching,
                        chunk_bytes=volume.chunk_bytes,
                        size_bytes=volume.size_bytes,
                        latency=volume.latency,
                        barriers=volume.barriers,
                    ),
                    host=wish.name,
                    vm=wish.vm,
                    scale=wish.scale,
                    host_cache_bytes=wish.host_cache_bytes,
                    filesystem=volume.filesystem,
                    mount_point=mounts / f"{wish.name}-{name}",
                    owner=Owner.this(),
                )
                node._requests[name] = request
                made = attach(catalog, request, places, progress)
                node.attached[name] = made
                node.default_read_ahead_kib[name] = made.read_ahead_kib
                node.set_read_ahead(name, volume.read_ahead_bytes)
        except BaseException:
            with suppress(DisklabError):
                node.remove()
            raise
        return node

    @property
    def name(self) -> str:
        """The emulated host's name."""
        return self._place.name

    @property
    def place(self) -> HostPlace:
        """The run and data directories of the host."""
        return self._place

    @property
    def pid(self) -> int:
        """The process of the host."""
        process = EngineProcess.of(self._place.run)
        if process is None:
            # Only while its disks move to another VM.
            raise EngineError(f"host {self.name!r} does not run")
        return process.pid

    @property
    def envelope(self) -> Envelope | None:
        """What this machine can do through the whole path, as the host measured it."""
        with Control(self._place.socket) as control:
            return control.hello().envelope

    @property
    def volumes(self) -> dict[str, Path]:
        """Mounted directories by device."""
        return {name: Path(str(one.mount_point)) for name, one in self.attached.items()}

    @property
    def warnings(self) -> list[str]:
        """What attaching warned about."""
        return [text for one in self.attached.values() for text in one.warnings]

    def target(self, volume: str) -> Target:
        """Return what the functions of `running` call a volume."""
        return Target(self._place, volume)

    def show(self, volume: str) -> View:
        """Return counters, profile and faults of a volume."""
        return running.show(self.target(volume))

    def set_caching(self, volume: str, caching: Caching) -> None:
        """Change the host caching of a volume; the new cache is empty."""
        running.change(self.target(volume), {"caching": caching}, None)
        self.attached[volume] = replace(self.attached[volume], caching=caching)

    def set_read_ahead(self, volume: str, bytes_: int | None) -> None:
        """Set the read-ahead of a device; None: what the kernel chose."""
        kib = self.default_read_ahead_kib[volume] if bytes_ is None else bytes_ >> 10
        set_read_ahead(our_device(self.target(volume)), kib)

    def has_credits(self, volume: str) -> bool:
        """Return whether a volume or its VM bursts on credits, which a load uses up."""
        return any(limit.credits is not None for limit in self.show(volume).counters.limits)

    def set_credits(self, share: float) -> None:
        """Set the burst credits of the VM and of all disks to a share (0 to 1) of full buckets."""
        with Control(self._place.socket) as control:
            control.set_credits(share)

    def set_time_dilation(self, factor: int) -> None:
        """Let its time run slower by this factor from now on; 1: as this machine's."""
        self._time_dilation = factor
        with Control(self._place.socket) as control:
            control.dilate(factor)

    def break_disk(self, volume: str, fault: Mapping[str, object]) -> None:
        """Break or mend a volume: `slow`, `stall`, `recover`."""
        running.fail(self.target(volume), dict(fault))

    def lose(self) -> None:
        """Let its host fail and another one take its place. See `Fragile`."""
        ahead = {name: self.read_ahead_kib(name) for name in self.attached}
        running.lose(self._place, list(self.attached))
        for name, kib in ahead.items():
            set_read_ahead(our_device(self.target(name)), kib)

    def move(self, vm: str, caching: Caching | None = None) -> None:
        """Detach all disks and attach them to another VM. See `Fragile`."""
        assert self._catalog is not None, "a node that was built has a catalogue"
        ahead = {name: self.read_ahead_kib(name) for name in self.attached}
        for name in reversed(list(ahead)):
            # Whoever looks at its disks meanwhile finds none.
            del self.attached[name]
            running.detach(self.target(name), self._places)
        for name, asked in self._requests.items():
            volume = asked.volume if caching is None else replace(asked.volume, caching=caching)
            request = replace(asked, vm=vm, volume=volume, host_cache_bytes=None)
            self._requests[name] = request
            self.attached[name] = attach(self._catalog, request, self._places)
            set_read_ahead(our_device(self.target(name)), ahead[name])
        self.set_time_dilation(self._time_dilation)

    def read_ahead_kib(self, volume: str) -> int:
        """Return how far the kernel reads ahead on a volume."""
        return read_ahead_kib(our_device(self.target(volume)))

    def drop_host_cache(self, volume: str) -> None:
        """Empty the volume's part of the host cache."""
        running.drop_cache(self.target(volume))

    def warm_host_cache(self, volume: str) -> int:
        """Fill the host cache with what the files of a volume hold; return how many bytes it has.

        The youngest file comes last: where not everything fits, it stays.
        """
        files = sorted(
            (path for path in self.volumes[volume].rglob("*") if path.is_file()),
            key=lambda path: path.stat().st_mtime_ns,
        )
        return running.warm_cache(self.target(volume), merged(ranges_of(files))).cached_bytes

    def remove(self) -> None:
        """Unmount and detach everything, end the host, delete its data.

        Raises what stood in the way; `disklab clean` finds the rest.
        """
        with Wait(f"nobody uses the volumes of {self.name}", BUSY_SECONDS) as wait:
            for name in reversed(self._place.volume_records()):
                while True:
                    try:
                        running.detach(self.target(name), self._places, delete_data=True)
                        break
                    except DisklabError as error:
                        if wait.is_over:
                            # Dead, or held by somebody who does not end: the way of `clean --all`.
                            scope = Scope(everything=True, host=self.name, data=True)
                            clean(self._places, scope)
                            return
                        wait.pause(POLL_SECONDS, str(error).partition("\n")[0])


def merged(ranges: list[Range]) -> list[Range]:
    """Return the ranges with those joined that follow each other without a gap."""
    found: list[Range] = []
    for offset, length in ranges:
        if found and found[-1][0] + found[-1][1] == offset:
            found[-1] = (found[-1][0], found[-1][1] + length)
        else:
            found.append((offset, length))
    return found
