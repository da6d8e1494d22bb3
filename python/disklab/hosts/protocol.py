"""What a bed asks of a node, whoever emulates it: `EmulatedNode`, or a fake in the tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from disklab.catalog import Caching
from disklab.engine import Envelope, View
from disklab.hosts.attach import Attached
from disklab.hosts.places import HostPlace


class Watched(Protocol):
    """A node as telemetry sees it."""

    @property
    def name(self) -> str:
        """The host's name; unique on this machine."""
        ...

    @property
    def place(self) -> HostPlace:
        """Its run and data directories, with the socket of its emulator."""
        ...

    @property
    def pid(self) -> int:
        """The process that emulates it."""
        ...

    @property
    def attached(self) -> Mapping[str, Attached]:
        """Its devices by volume."""
        ...

    def show(self, volume: str) -> View:
        """Return counters, profile and faults of a volume."""
        ...


class Conditioned(Protocol):
    """A node whose disks are brought into a condition."""

    def set_caching(self, volume: str, caching: Caching) -> None:
        """Change the host caching of a volume; the new cache is empty."""
        ...

    def set_read_ahead(self, volume: str, bytes_: int | None) -> None:
        """Set the read-ahead of a device; None: what the kernel chose."""
        ...

    def set_time_dilation(self, factor: int) -> None:
        """Let its time run slower by this factor from now on."""
        ...

    def drop_host_cache(self, volume: str) -> None:
        """Empty the volume's part of the host cache."""
        ...

    def warm_host_cache(self, volume: str) -> int:
        """Fill the host cache with what a volume's files hold; return how many bytes it has."""
        ...


class Bursting(Protocol):
    """A node whose limits may burst on credits."""

    def has_credits(self, volume: str) -> bool:
        """Return whether a volume or its VM bursts on credits."""
        ...

    def set_credits(self, share: float) -> None:
        """Set all burst credits to a share (0 to 1) of full buckets."""
        ...


class Fragile(Protocol):
    """A node that may break."""

    def break_disk(self, volume: str, fault: Mapping[str, object]) -> None:
        """Break or mend a volume: `slow`, `stall`, `recover`."""
        ...

    def lose(self) -> None:
        """Let its host fail and another one take its place; nothing may have a volume open.

        Local disks are empty then, the host cache is cold, and what ReadWrite caching had not
        flushed is gone; every volume is mounted again.
        """
        ...

    def move(self, vm: str, caching: Caching | None = None) -> None:
        """Detach its disks and attach them to another VM; nothing may have a volume open.

        Network disks keep their data, local ones are new and empty; the host cache is cold, and
        counters begin at zero. `caching`: that of all volumes there; None: as before.
        """
        ...


class Node(Watched, Conditioned, Bursting, Fragile, Protocol):
    """A node of a rehearsed cluster. Every method raises DisklabError when it is lost."""

    @property
    def volumes(self) -> Mapping[str, Path]:
        """Mounted directories by device."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What a reader must know about its disks."""
        ...

    @property
    def envelope(self) -> Envelope | None:
        """What this machine can do at all, as the node measured it."""
        ...

    def remove(self) -> None:
        """Take away everything that was made for it, data included."""
        ...
