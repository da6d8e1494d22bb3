"""Stripes of disks that may be formatted: made by the mdadm of their host, and taken apart again.

Whether a disk is empty is decided by the engine (`formatting`), for each member. mdadm looks once
more, and claims its members; without `--run` it goes on with nothing that it finds something on.
What is taken apart is known by its UUID, which the journal has before the stripe is made: nothing
else is stopped, and no superblock with another UUID is removed.

**Divergence:** the engine holds its claim on a single disk while that is formatted. Here it is let
go before mdadm takes the members, whose own checks close that gap.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disklab.errors import MachineError
from disklab.hosts.filesystem import MKFS_OPTIONS, MOUNT_OPTIONS, Filesystem
from disklab.machines.protocol import Command, Finished, Machine

OURS = "d15c1ab0"
"""What the UUIDs of our stripes begin with, as those of our file systems do."""
# mkfs writes some hundred MiB at most, at the 25 MB/s of the slowest disk.
MAKE_SECONDS = 600.0


@dataclass(frozen=True)
class Stripe:
    """A stripe of ours, made or to be made."""

    path: str
    uuid: str
    """As mdadm writes it."""
    devices: Sequence[str]

    @classmethod
    def of(cls, devices: Sequence[str]) -> Stripe:
        """Return a new stripe of devices, which is not made yet."""
        uuid = ":".join([OURS, *(secrets.token_hex(4) for _ in range(3))])
        return cls(f"/dev/md/disklab-{uuid[-8:]}", uuid, devices)


def make(machine: Machine, stripe: Stripe, chunk_bytes: int) -> None:
    """Make a stripe, which the journal has already, of devices that were found to be empty.

    Raises MachineError when mdadm refuses, or made something else.
    """
    path, count = stripe.path, len(stripe.devices)
    words = ["mdadm", "--create", path, f"--uuid={stripe.uuid}", "--homehost=any"]
    words += ["--metadata=1.2", "--level=0", f"--chunk={chunk_bytes >> 10}"]
    _ran(machine, [*words, f"--raid-devices={count}", *stripe.devices])
    told = _told(_asked(machine, ["mdadm", "--detail", "--export", path]))
    wanted = {"MD_UUID": stripe.uuid, "MD_LEVEL": "raid0", "MD_DEVICES": str(count)}
    if any(told.get(key) != value for key, value in wanted.items()):
        raise MachineError(f"{machine.name}: {path} is not the stripe that was asked for: {told}")


def mount(machine: Machine, stripe: Stripe, filesystem: Filesystem, point: str) -> None:
    """Make a file system on a stripe of ours and mount it. Raises MachineError.

    mkfs is not forced: what lies on the stripe already is somebody's.
    """
    _ran(machine, [f"mkfs.{filesystem}", *MKFS_OPTIONS[filesystem], stripe.path])
    options = MOUNT_OPTIONS.get(filesystem, "noatime")
    _ran(machine, ["mount", "-t", filesystem, "-o", options, stripe.path, point])


def undo(machine: Machine, stripe: Stripe) -> str | None:
    """Stop a stripe of ours and remove its superblocks from its members, and nothing else.

    Returns what a user must know about a member that has another one now. Raises MachineError.
    """
    if not stripe.uuid.startswith(f"{OURS}:"):
        raise MachineError(f"{machine.name}: {stripe.uuid} is not the UUID of a stripe of ours")
    # After a restart of the host it may be called otherwise.
    for line in _asked(machine, ["mdadm", "--detail", "--scan"]).stdout.decode().splitlines():
        words = line.split()
        if words[:1] == ["ARRAY"] and f"UUID={stripe.uuid}" in words:
            _ran(machine, ["mdadm", "--stop", words[1]])
    told = []
    for device in stripe.devices:
        found = _told(_asked(machine, ["mdadm", "--examine", "--export", device])).get("MD_UUID")
        if found == stripe.uuid:
            _ran(machine, ["mdadm", "--zero-superblock", device])
        elif found is not None:
            told.append(f"{machine.name}: {device} belongs to the array {found} now, and stays")
        elif _asked(machine, ["test", "-b", device]).code != 0:
            told.append(
                f"{machine.name}: {device} is gone; if the disk comes back, it has the superblock "
                f"of our stripe {stripe.uuid}: mdadm --zero-superblock"
            )
    return "; ".join(told) or None


def _told(ended: Finished) -> Mapping[str, str]:
    """Return what mdadm says with `--export`: nothing where there is no array."""
    if ended.code != 0:
        return {}
    lines = ended.stdout.decode(errors="replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _asked(machine: Machine, words: Sequence[str]) -> Finished:
    return machine.run(Command(words, variables={"LC_ALL": "C"}))


def _ran(machine: Machine, words: Sequence[str]) -> None:
    ended = machine.run(Command(words, variables={"LC_ALL": "C"}), MAKE_SECONDS)
    if ended.code != 0:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
        raise MachineError(f"{machine.name}: {' '.join(words)}: code {ended.code}: {said}")
