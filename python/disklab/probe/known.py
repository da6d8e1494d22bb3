"""From a disk's name to what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field

from disklab.catalog import (
    Caching,
    HostRequest,
    Places,
    Resolution,
    VolumeRequest,
    load_catalog,
    resolve,
)
from disklab.errors import Problem, UserError
from disklab.probe.promise import Placement

OPTIONS = Places(disks="--disk", vm="--vm", caching="--caching")

CACHING: tuple[Caching, ...] = ("None", "ReadOnly", "ReadWrite")


@dataclass(frozen=True)
class Disk:
    """A disk as the user names it."""

    disks: str
    vm: str | None
    caching: Caching = "None"
    host_cache_bytes: int | None = None
    """What its host cache is taken to hold, where none is published."""
    latency: str | None = None
    """One of the dated latency profiles of its family; None: the default."""
    places: Places = field(default=OPTIONS, compare=False)
    """Where the user named each part, for the errors."""

    @property
    def title(self) -> str:
        """What the results call it; without a VM there is no host cache to speak of."""
        return f"{self.disks}, caching {self.caching}" if self.vm else self.disks


def parse_caching(text: str, place: str = "--caching") -> Caching:
    """Return the host caching of that name."""
    for caching in CACHING:
        if text == caching:
            return caching
    way_out = f"choose {', '.join(CACHING)}"
    raise UserError(Problem(place, text, "is not a host caching", way_out))


def resolved(disk: Disk) -> Resolution:
    """Return the disk's profile; a user error with every rule that the wish breaks."""
    catalog = load_catalog()
    request = VolumeRequest(disks=disk.disks, caching=disk.caching, latency=disk.latency)
    return resolve(
        catalog, HostRequest(disk.vm, disk.host_cache_bytes), request, places=disk.places
    )


def placed(disk: Disk) -> Placement:
    """Return the disk with its host, as the promise needs them."""
    found = resolved(disk)
    return Placement(found.host, found.volume)
